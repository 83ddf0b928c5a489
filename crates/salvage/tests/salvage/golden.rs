//! The golden images of the format, read as files: they are never edited, and this crate must agree with them.

use ashlar_salvage::pages::{Keeper, Pages};
use ashlar_salvage::superblock::{Area, Copy, Role, Superblock};
use ashlar_salvage::uuid_text;

/// The bytes of an image: `length`, then lines of offset and hexadecimal bytes; what is not there is zero.
fn image(text: &str) -> Vec<u8> {
    let mut lines = text.lines();
    let length = lines.next().and_then(|line| line.strip_prefix("length ")).expect("a length");
    let mut bytes = vec![0; length.parse().expect("a number")];
    for line in lines.filter(|line| !line.is_empty()) {
        let (offset, values) = line.split_once(": ").expect("an offset");
        let offset = usize::from_str_radix(offset, 16).expect("hexadecimal");
        for (at, value) in values.split(' ').enumerate() {
            bytes[offset + at] = u8::from_str_radix(value, 16).expect("hexadecimal");
        }
    }
    bytes
}

fn superblock(text: &str) -> Superblock {
    match Copy::decode(&image(text)) {
        Copy::Good(superblock) => *superblock,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_array_is_read_as_its_hexadecimal_says() {
    let found = superblock(include_str!("../../../ondisk/tests/images/v1-created.txt"));
    // Read off the image by eye: 0x30, 0x88, 0xd8, 0xe0, 0xe8, 0x198.
    assert_eq!((found.generation, found.array_name.as_str(), found.unclean), (10, "tank0", false));
    let geometry = found.geometry;
    let code = (geometry.level, geometry.data_strips, geometry.parity_strips, geometry.groups);
    assert_eq!(code, (100, 6, 2, 1));
    assert_eq!((geometry.strip_bytes, geometry.rows), (65_536, 0x3de));
    assert_eq!(found.data, Area { offset: 0x20_0000, bytes: 0x3de_0000 });
    assert_eq!(found.entries.len(), 8);
    assert_eq!(found.entries[1].serial, "SER0001");
    assert!(found.entries.iter().all(|entry| entry.role == Role::Active && entry.out_since == 0));
    assert_eq!(uuid_text(&found.array_uuid), "aa000001-0203-4405-8607-08090a0b0caa");
}

#[test]
fn an_array_after_many_events_is_read() {
    let found = superblock(include_str!("../../../ondisk/tests/images/v1-eventful.txt"));
    let roles: Vec<Role> = found.entries.iter().map(|entry| entry.role).collect();
    for role in [Role::Active, Role::Out] {
        assert!(roles.contains(&role), "{roles:?}");
    }
    assert!(found.entries.iter().all(|entry| (entry.role == Role::Out) <= (entry.out_since > 0)));
}

#[test]
fn a_spare_is_no_member() {
    let image = image(include_str!("../../../ondisk/tests/images/v1-spare.txt"));
    assert_eq!(Copy::decode(&image), Copy::Spare);
}

#[test]
fn a_changed_byte_anywhere_is_damage() {
    let image = image(include_str!("../../../ondisk/tests/images/v1-eventful.txt"));
    for at in 0..image.len() {
        let mut image = image.clone();
        image[at] ^= 0x10;
        assert!(!matches!(Copy::decode(&image), Copy::Good(_)), "byte {at}");
    }
}

#[test]
fn pages_of_bits_are_read() {
    let pages = [
        (include_str!("../../../ondisk/tests/images/v1-written-map.txt"), true),
        (include_str!("../../../ondisk/tests/images/v1-write-intent.txt"), false),
    ];
    for (text, is_map) in pages {
        let page = image(text);
        let number = u32::from_le_bytes(page[8..12].try_into().expect("four bytes"));
        // Any array whose tag is the one of the image; the second half of its UUID is zero.
        let tag = u64::from_le_bytes(page[16..24].try_into().expect("eight bytes"));
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&tag.to_be_bytes());
        let before = usize::try_from(number).expect("small") * 4096;
        let image = [vec![0; before], page.clone()].concat();
        let area = Area { offset: 0, bytes: u64::try_from(image.len()).expect("small") };
        let make = if is_map { Pages::written_map } else { Pages::write_intent };
        let keepers = [Keeper { image: &image, blank_counts: true }];
        let found = make(&uuid, area);
        let bits =
            (0..32_512_u64).filter(|bit| found.is_set(u64::from(number) * 32_512 + bit, &keepers));
        let ones: u32 = page[32..].iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(bits.count(), usize::try_from(ones).expect("small"));
        assert!(ones > 0 && !found.is_lost(u64::from(number), &keepers));
    }
}
