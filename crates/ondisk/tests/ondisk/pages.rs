//! Bitmap pages and heartbeat blocks.

use ashlar_ondisk::bitmap::{self, WORDS_PER_PAGE};
use ashlar_ondisk::format::BITS_PER_PAGE;
use ashlar_ondisk::{BitmapKind, Features, Heartbeat, PageFault, PageIdentity, Text};
use proptest::prelude::{ProptestConfig, any, proptest};

use crate::samples::{array_uuid, incarnation, raid6, uuid};

fn identity(kind: BitmapKind, page: u32) -> PageIdentity {
    PageIdentity { kind, owner_tag: bitmap::array_tag(array_uuid()), page }
}

fn bits() -> bitmap::PageBits {
    std::array::from_fn(|at| (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

#[test]
fn a_page_never_written_has_no_bit_set() {
    let page = identity(BitmapKind::WriteIntent, 3).decode(&[0; 4096]).expect("sparse");
    assert_eq!((page.sequence, page.bits), (0, [0; WORDS_PER_PAGE]));
}

#[test]
fn every_flipped_byte_of_a_page_is_detected() {
    let own = identity(BitmapKind::WrittenMap, 1);
    let bytes = own.encode(7, &bits());
    for at in 0..bytes.len() {
        let mut damaged = bytes;
        damaged[at] ^= 0x10;
        assert!(own.decode(&damaged).is_err(), "byte {at}");
    }
    assert_eq!(own.decode(&bytes[..4095]), Err(PageFault::Size { bytes: 4095 }));
}

#[test]
fn a_page_in_the_wrong_place_is_told_by_its_identity() {
    let own = identity(BitmapKind::WriteIntent, 1);
    let bytes = own.encode(7, &bits());
    let decode = |identity: PageIdentity| identity.decode(&bytes).map(|page| page.sequence);
    assert_eq!(decode(own), Ok(7));
    assert_eq!(
        decode(identity(BitmapKind::WriteIntent, 2)),
        Err(PageFault::Misplaced { found: 1, wanted: 2 })
    );
    assert_eq!(decode(identity(BitmapKind::WrittenMap, 1)), Err(PageFault::Foreign));
    let elsewhere = PageIdentity { owner_tag: bitmap::array_tag(uuid(0xBB, 0)), ..own };
    assert_eq!(decode(elsewhere), Err(PageFault::OtherOwner));
    // Of the same array, but another member's; and as arrays had them before pages named members.
    let mut superblock = raid6();
    let [one, two] = [0, 1].map(|at: usize| superblock.members[at].uuid);
    assert_eq!(superblock.page_tag(one), bitmap::array_tag(superblock.array_uuid));
    superblock.features.incompatible |= Features::MEMBER_PAGES;
    let of = |member| PageIdentity { owner_tag: superblock.page_tag(member), ..own };
    assert!(of(one).decode(&of(one).first()).is_ok());
    assert_eq!(of(two).decode(&of(one).first()), Err(PageFault::OtherOwner));
}

#[test]
fn bits_are_numbered_without_gaps_over_pages() {
    let mut last = None;
    for bit in 0..3 * BITS_PER_PAGE {
        let place = bitmap::locate(bit);
        let number = (u64::from(place.page) * BITS_PER_PAGE)
            + u64::try_from(place.word).expect("small") * 64
            + u64::from(place.mask.trailing_zeros());
        assert!(place.mask.is_power_of_two() && place.word < WORDS_PER_PAGE);
        assert_eq!(number, bit);
        assert!(last.is_none_or(|last| number == last + 1));
        last = Some(number);
    }
    for (bits, pages) in [(0, 0), (1, 1), (32_512, 1), (32_513, 2)] {
        assert_eq!(bitmap::page_count(bits), pages);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(100)
    })]

    #[test]
    fn any_page_comes_back_as_it_was(
        page in any::<u32>(), sequence in any::<u64>(), seed in any::<u64>(),
        intent in any::<bool>(),
    ) {
        let kind = if intent { BitmapKind::WriteIntent } else { BitmapKind::WrittenMap };
        let turned = |by: usize| seed.rotate_left(u32::try_from(by % 64).expect("small"));
        let bits = std::array::from_fn(turned);
        let own = identity(kind, page);
        let back = own.decode(&own.encode(sequence, &bits)).expect("own output");
        proptest::prop_assert_eq!((back.sequence, back.bits), (sequence, bits));
    }
}

fn heartbeat(sequence: u64) -> Heartbeat {
    Heartbeat {
        array_uuid: array_uuid(),
        incarnation: incarnation(3),
        sequence,
        interval_ms: 1000,
        host_id: Text::cut("node-7.example"),
        boot_id: uuid(0xB0, 1),
    }
}

#[test]
fn a_heartbeat_comes_back_and_every_flipped_byte_is_detected() {
    let bytes = heartbeat(5).encode();
    assert_eq!(Heartbeat::decode(&bytes), Some(heartbeat(5)));
    for at in 0..bytes.len() {
        let mut damaged = bytes;
        damaged[at] ^= 0x04;
        assert_eq!(Heartbeat::decode(&damaged), None, "byte {at}");
    }
    assert_eq!(Heartbeat::decode(&[0; 4096]), None);
}

#[test]
fn heartbeats_alternate_so_that_a_torn_one_leaves_the_one_before() {
    let (old, new) = (heartbeat(8), heartbeat(9));
    assert_ne!(old.slot(), new.slot());
    let mut blocks = [[0; 4096]; 2];
    blocks[old.slot()] = old.encode();
    blocks[new.slot()] = new.encode();
    let newest = |blocks: &[[u8; 4096]; 2]| {
        Heartbeat::newest([Some(&blocks[0][..]), Some(&blocks[1][..])], array_uuid())
    };
    assert_eq!(newest(&blocks), Some(new));
    blocks[new.slot()][100] ^= 1;
    assert_eq!(newest(&blocks), Some(old));
    assert_eq!(Heartbeat::newest([None, Some(&blocks[0][..])], uuid(0xBB, 0)), None, "not ours");
}

#[test]
fn interval_zero_means_nobody_runs_the_array() {
    assert!(heartbeat(1).is_running());
    assert!(!Heartbeat { interval_ms: 0, ..heartbeat(1) }.is_running());
}
