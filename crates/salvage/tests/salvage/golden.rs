//! The golden images of the format, read as files: they are never edited, and this crate must agree
//! with them.

use crate::forge::seal;
use ashlar_salvage::log::{BlockChange, Kind, Writer, read};
use ashlar_salvage::pages::{Keeper, Pages};
use ashlar_salvage::superblock::{Area, Copy, Role, Superblock};
use ashlar_salvage::uuid_text;

/// The bytes of an image: `length`, then lines of offset and hexadecimal bytes; what is not there
/// is zero.
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
    let geometry = &found.geometry;
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
fn a_growing_array_is_read_as_its_hexadecimal_says() {
    let found = superblock(include_str!("../../../ondisk/tests/images/v1-growing.txt"));
    // Read off the image by eye: 0x420, 0x438, 0x448.
    let map = found.geometry.declustered.as_ref().expect("layout version 2");
    assert_eq!((found.geometry.slots(), found.entries.len()), (12, 12));
    assert_eq!(map.members_before_growths().collect::<Vec<_>>(), [9, 10]);
    // The first growth opened its stripes, the second has not yet.
    assert!(map.stripes() > map.stripes_at_creation());
    assert!(map.stripes() * 100 < map.stripes_at_creation() * 112);
}

#[test]
fn a_declustered_array_is_read_as_its_hexadecimal_says() {
    let found = superblock(include_str!("../../../ondisk/tests/images/v1-declustered.txt"));
    // Read off the image by eye: 0xd8, 0xe4, 0x420, 0x424, 0x428, 0x430.
    let geometry = &found.geometry;
    assert_eq!((geometry.level, geometry.data_strips, geometry.parity_strips), (6, 4, 2));
    assert_eq!((geometry.slots(), found.entries.len()), (9, 9));
    let map = geometry.declustered.as_ref().expect("layout version 2");
    // Eight data columns, so 3 rows of cells of 4 strips in a slice, and 4 groups.
    assert_eq!(geometry.stripes(), geometry.rows / 12 * 16);
    assert_eq!(map.members(), 9);
}

/// With other bytes at these offsets, and the checksum of that.
fn resealed(image: &[u8], changes: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = image.to_vec();
    changes.iter().for_each(|(at, value)| bytes[*at] = *value);
    seal(&mut bytes, 8);
    bytes
}

#[test]
fn an_array_with_failure_domains_is_read_as_its_hexadecimal_says() {
    let text = include_str!("../../../ondisk/tests/images/v1-domains.txt");
    let found = superblock(text);
    // Read off the image by eye: 0x420 to 0x427 are 12 members, 2 of a domain, no spare columns, 2
    // domains of an enclosure.
    let map = found.geometry.declustered.as_ref().expect("layout version 2");
    assert_eq!((map.members(), map.domain_members(), found.enclosure_slots), (12, 2, Some(4)));
    let image = image(text);
    for (changes, field) in [
        (&[(1062_usize, 3_u8)] as &[(usize, u8)], "enclosure_domains"),
        (&[(1062, 0)], "enclosure_domains"),
        (&[(1063, 0)], "enclosure_kind"),
        (&[(1063, 5)], "enclosure_kind"),
        (&[(40, 8)], "enclosure_domains"),
        (&[(40, 8), (1062, 0), (1063, 0)], "domain_members"),
    ] {
        assert_eq!(Copy::decode(&resealed(&image, changes)), Copy::Damaged(field), "{changes:?}");
    }
}

#[test]
fn room_for_a_reshape_moves_the_data_behind_it() {
    let found = superblock(include_str!("../../../ondisk/tests/images/v1-reshape-room.txt"));
    // Read off the image by eye: entry 9 at 0x1b0, entry 7 at 0x190.
    assert_eq!(found.enclosure_slots, None);
    assert!(found.data.offset > 64 << 20, "{:?}", found.data);
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
        let tag = u64::from_le_bytes(page[16..24].try_into().expect("eight bytes"));
        let before = usize::try_from(number).expect("small") * 4096;
        let image = [vec![0; before], page.clone()].concat();
        let area = Area { offset: 0, bytes: u64::try_from(image.len()).expect("small") };
        let keepers = [Keeper { image: &image, tags: vec![tag], blank_counts: true }];
        // One place for each page: the area is as small as in the first arrays.
        let stripes = area.bytes / 4096 * 32_512;
        let found = match is_map {
            true => Pages::written_map(area, Area { offset: 0, bytes: 0 }, stripes, false),
            false => Pages::write_intent(area),
        };
        let bits =
            (0..32_512_u64).filter(|bit| found.is_set(u64::from(number) * 32_512 + bit, &keepers));
        let ones: u32 = page[32..].iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(bits.count(), usize::try_from(ones).expect("small"));
        assert!(ones > 0 && !found.is_lost(u64::from(number), &keepers));
    }
}

#[test]
fn a_log_area_is_read_batch_by_batch() {
    let image = image(include_str!("../../../ondisk/tests/images/v1-log-area.txt"));
    // The first batch names its device and its start; the array's tag is at 24.
    let number = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().expect("eight bytes"));
    let mut array_uuid = [0; 16];
    array_uuid[..8].copy_from_slice(&number(24).to_be_bytes());
    let incarnation = image[40..56].try_into().expect("sixteen bytes");
    let writer = Writer { array_uuid, log_tag: number(32), incarnation };
    let area = Area { offset: 0, bytes: u64::try_from(image.len()).expect("small") };
    let batches = read(&image, area, &writer).expect("readable");
    // Read off the image by eye: batches at 0, 6000 and 8000.
    let heads: Vec<(u16, u64, u64, usize)> = batches
        .iter()
        .map(|it| (it.log_ring, it.sequence, it.settled_below, it.records.len()))
        .collect();
    assert_eq!(heads, [(1, 7, 39, 2), (1, 8, 40, 2), (2, 1, 1, 0)]);
    let first = &batches[0].records[0];
    assert_eq!((first.sequence, first.stripe, first.kind), (40, 0, Kind::Full));
    let holders: Vec<(u64, u8, u8)> =
        first.holders.iter().map(|it| (it.log_tag & 0xFF, it.strip, it.flags)).collect();
    assert_eq!(holders, [(4, 4, 0), (2, 2, 0), (6, 2, 1), (5, 5, 0)]);
    let blocks = first.payload.iter().map(|it| (it.strip, it.row, it.offset));
    assert_eq!(blocks.collect::<Vec<_>>(), [(2, 3, 0x1000), (4, 3, 0x2000)]);
    let second: Vec<u64> = batches[0].records[1].payload.iter().map(|it| it.offset).collect();
    assert_eq!(second, [0x3000, 0x4000]);
    let kinds: Vec<Kind> = batches[1].records.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [Kind::InDoubt, Kind::FirstWrite]);
    // Nobody else's batches, and none that has a changed byte, payload included.
    let other = Writer { log_tag: writer.log_tag ^ 1, ..writer };
    assert_eq!(read(&image, area, &other).map(|it| it.len()), Some(0));
    let mut torn = image.clone();
    torn[0x2800] ^= 1;
    assert_eq!(read(&torn, area, &writer).map(|it| it.len()), Some(2));
}

#[test]
fn a_logged_array_names_the_devices_of_its_log() {
    let found = superblock(include_str!("../../../ondisk/tests/images/v1-logged.txt"));
    // The flags at 0x84 are 3.
    assert_eq!((found.consistency_policy, found.resync_dirty), (3, true));
    assert_eq!(found.intent_log, Area { offset: 0x4_2000, bytes: 0x10_0000 });
    assert_eq!(found.entries[0].log_tag, 0x1122_3344_5566_7700);
}

#[test]
fn a_parity_only_record_says_what_its_block_was_and_is_to_be() {
    let image = image(include_str!("../../../ondisk/tests/images/v1-parity-only-log.txt"));
    let number = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().expect("eight bytes"));
    let mut array_uuid = [0; 16];
    array_uuid[..8].copy_from_slice(&number(24).to_be_bytes());
    let incarnation = image[40..56].try_into().expect("sixteen bytes");
    let writer = Writer { array_uuid, log_tag: number(32), incarnation };
    let area = Area { offset: 0, bytes: u64::try_from(image.len()).expect("small") };
    let batches = read(&image, area, &writer).expect("readable");
    let [batch] = &batches[..] else { panic!("one batch") };
    let change = BlockChange { strip: 2, old: 0x0102_0304, new: 0xF1F2_F3F4 };
    let kinds: Vec<Kind> = batch.records.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [Kind::ParityOnly(change), Kind::Full]);
    let blocks = batch.records.iter().flat_map(|it| &it.payload);
    let blocks: Vec<(u8, u16, u64)> = blocks.map(|it| (it.strip, it.row, it.offset)).collect();
    assert_eq!(blocks, [(4, 3, 0x1000), (4, 0, 0x2000)]);
}

#[test]
fn an_array_with_parity_only_records_is_not_taken_for_a_newer_one() {
    let found = superblock(include_str!("../../../ondisk/tests/images/v1-parity-only.txt"));
    assert_eq!((found.consistency_policy, found.entries.len()), (3, 7));
}
