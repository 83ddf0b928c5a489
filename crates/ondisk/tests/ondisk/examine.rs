//! Examining devices, healthy and damaged, from the bytes of their two ends.

use ashlar_ondisk::examine::{DeviceEnds, Examination, examine_ranges, has_only_ours};
use ashlar_ondisk::format::heartbeat_slots;
use ashlar_ondisk::{CopyState, Heartbeat, Text};
use ashlar_units::{Extent, to_usize};
use proptest::prelude::{ProptestConfig, any, proptest};

use crate::samples::{DEVICE_BYTES, array_uuid, incarnation, lost, raid6, uuid};
use crate::superblock::spare;

/// The two ranges of a device with these superblock bytes in all four copies.
pub fn ends(superblock: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let [head, tail] = examine_ranges(DEVICE_BYTES).expect("large enough");
    let (mut head, mut tail) = (vec![0; to_usize(head.bytes)], vec![0; to_usize(tail.bytes)]);
    for at in [0, 65_536] {
        head[at..at + superblock.len()].copy_from_slice(superblock);
        tail[at..at + superblock.len()].copy_from_slice(superblock);
    }
    (head, tail)
}

#[test]
fn the_ranges_are_aligned_and_reach_both_ends() {
    for device in [4 << 20, DEVICE_BYTES, (16 << 40) + 4095] {
        let [head, tail] = examine_ranges(device).expect("large enough");
        assert_eq!(head, Extent::new(0, 256 << 10));
        assert_eq!(tail, Extent::new(device / 4096 * 4096 - (128 << 10), 128 << 10));
        let examination = Examination::new(device, None, None);
        let offsets: Vec<u64> = examination.copies.iter().map(|copy| copy.offset).collect();
        assert_eq!(offsets, [0, 64 << 10, tail.offset, tail.offset + (64 << 10)]);
    }
    assert_eq!(examine_ranges((4 << 20) - 1), None);
}

/// A start asks no prober about such a device.
#[test]
fn what_others_write_at_the_ends_of_a_member_shows() {
    let (head, tail) = ends(&raid6().encode().expect("valid"));
    assert!(has_only_ours(Some(&head), Some(&tail)));
    let heartbeat = heartbeat_slots()[0];
    let beyond = raid6().encode().expect("valid").len();
    for at in [0, 4086, beyond, 65_535, 65_536 + beyond, to_usize(heartbeat.offset), head.len() - 1]
    {
        let mut other = head.clone();
        other[at] ^= 1;
        assert!(!has_only_ours(Some(&other), Some(&tail)), "{at}");
    }
    for at in [0, beyond, tail.len() - 8192, tail.len() - 1] {
        let mut other = tail.clone();
        other[at] ^= 1;
        assert!(!has_only_ours(Some(&head), Some(&other)), "{at} of the tail");
    }
    assert!(!has_only_ours(None, Some(&tail)) && !has_only_ours(Some(&head), None));
}

#[test]
fn a_healthy_member_tells_all_about_its_array() {
    let superblock = lost(&raid6(), &[4]);
    let (mut head, tail) = ends(&superblock.encode().expect("valid"));
    let heartbeat = Heartbeat {
        array_uuid: array_uuid(),
        incarnation: incarnation(1),
        sequence: 41,
        interval_ms: 1000,
        host_id: Text::cut("node-7"),
        boot_id: uuid(0xB0, 1),
    };
    let at = to_usize(heartbeat_slots()[heartbeat.slot()].offset);
    head[at..at + 4096].copy_from_slice(&heartbeat.encode());
    let examination = Examination::new(DEVICE_BYTES, Some(&head), Some(&tail));
    assert!(examination.is_healthy());
    assert_eq!(examination.superblock(), Some(&superblock));
    assert_eq!(examination.heartbeat, Some(heartbeat));
    let text = examination.to_string();
    for part in [
        "tank0",
        "n+m 4+2",
        "strip 64 KiB",
        "out since generation 11",
        "SER0004",
        "clean",
        "running on host 'node-7'",
        "copy 3",
        "ok",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn what_there_is_none_of_leaves_no_trace() {
    let mut superblock = raid6();
    superblock.unclean = true;
    superblock.members.iter_mut().for_each(|member| member.serial = Text::cut(""));
    let (head, tail) = ends(&superblock.encode().expect("valid"));
    let text = Examination::new(DEVICE_BYTES, Some(&head), Some(&tail)).to_string();
    assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
    assert!(!text.contains("serial") && !text.contains("groups"), "{text}");
    assert!(text.contains("unclean: running, or ended without a stop"), "{text}");
}

#[test]
fn damage_is_named_copy_by_copy() {
    let (mut head, tail) = ends(&raid6().encode().expect("valid"));
    head[72] ^= 1;
    head[65_536..131_072].fill(0);
    let examination = Examination::new(DEVICE_BYTES, Some(&head), Some(&tail));
    let states: Vec<_> = examination.copies.iter().map(|copy| copy.state).collect();
    assert_eq!(
        states,
        [
            CopyState::Damaged { field: Some("incarnation") },
            CopyState::Absent,
            CopyState::Ok,
            CopyState::Ok
        ]
    );
    assert!(!examination.is_healthy());
    assert_eq!(examination.superblock(), Some(&raid6()));
    assert!(examination.to_string().contains("first wrong field: incarnation"));
}

#[test]
fn an_unreadable_end_leaves_the_other() {
    let (head, tail) = ends(&raid6().encode().expect("valid"));
    for (head, tail, lost) in [(None, Some(&tail[..]), 0), (Some(&head[..]), None, 2)] {
        let examination = Examination::new(DEVICE_BYTES, head, tail);
        assert_eq!(examination.superblock(), Some(&raid6()));
        assert_eq!(examination.copies[lost].state, CopyState::Unreadable);
        assert_eq!(examination.copies[lost + 1].state, CopyState::Unreadable);
    }
}

#[test]
fn spares_strangers_and_midgets_are_told_apart() {
    let (head, tail) = ends(&spare().encode().expect("valid"));
    let text = Examination::new(DEVICE_BYTES, Some(&head), Some(&tail)).to_string();
    assert!(text.contains("spare in pool") && text.contains("spares"), "{text}");
    let blank = Examination::new(DEVICE_BYTES, Some(&[0; 262_144]), Some(&[0; 131_072]));
    assert!(blank.copies.iter().all(|copy| copy.state == CopyState::Absent));
    let small = Examination::new(1 << 20, None, None);
    assert!(small.to_string().contains("too small"));
}

#[test]
fn a_device_that_grew_has_its_copies_where_it_ended_before() {
    let (head, tail) = ends(&raid6().encode().expect("valid"));
    let [_, end] = examine_ranges(DEVICE_BYTES).expect("large enough");
    let grown = DEVICE_BYTES * 2;
    let of = |at_the_end: Option<Vec<u8>>, before: Option<Vec<u8>>| {
        let read = |extent: Extent| match extent.offset {
            0 => Some(head.clone()),
            offset if offset == end.offset => before.clone(),
            _ => at_the_end.clone(),
        };
        DeviceEnds::read(grown, read)
    };
    let found = of(Some(vec![0; tail.len()]), Some(tail.clone()));
    assert!(found.choice.is_whole() && !found.choice.is_cut_short());
    let examination = Examination::of(grown, &found);
    assert_eq!(examination.recorded_bytes, Some(DEVICE_BYTES));
    assert_eq!(examination.copies[3].offset, end.offset + (64 << 10));
    assert!(examination.is_healthy(), "{examination}");
    assert!(examination.to_string().contains("the device grew"));
    // Whatever lies in the new space counts for nothing: copies of a member that ended there, too.
    let (_, other) = ends(&lost(&raid6(), &[4]).encode().expect("valid"));
    assert!(of(Some(other), Some(tail.clone())).choice.is_whole());
    // It was cut short before it grew.
    assert!(of(Some(tail.clone()), Some(vec![0; tail.len()])).choice.is_cut_short());
    assert!(!of(None, None).choice.is_cut_short());
}

/// Its head is damaged, and it was a member before it grew, and again since.
#[test]
fn of_ends_that_a_device_had_the_last_counts() {
    let mut later = raid6();
    later.generation = 99;
    later.members[0].bytes = 2 * DEVICE_BYTES;
    let later = later.for_member(later.member_uuid).expect("listed");
    let at = |bytes: u64| examine_ranges(bytes).expect("large enough")[1].offset;
    let tails = [
        (at(DEVICE_BYTES), ends(&raid6().encode().expect("valid")).1),
        (at(2 * DEVICE_BYTES), ends(&later.encode().expect("valid")).1),
    ];
    let read = |extent: Extent| match tails.iter().find(|(offset, _)| *offset == extent.offset) {
        Some((_, tail)) => Some(tail.clone()),
        None => Some(vec![0; to_usize(extent.bytes)]),
    };
    let (grown, sizes) = (3 * DEVICE_BYTES, [DEVICE_BYTES, 2 * DEVICE_BYTES].into());
    let found = DeviceEnds::read(grown, read).or_before(grown, &sizes, read);
    assert_eq!(found.choice.superblock().map(|it| it.generation), Some(99));
}

#[test]
fn a_device_that_is_too_small_is_told() {
    let (head, _) = ends(&raid6().encode().expect("valid"));
    let shrunk = Examination::new(DEVICE_BYTES / 2, Some(&head), None);
    assert_eq!(shrunk.recorded_bytes, Some(DEVICE_BYTES));
    assert!(!shrunk.is_healthy());
    assert!(shrunk.to_string().contains("size differs"));
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(300)
    })]

    /// Whatever lies on a device, and however little of it could be read, examining says something.
    #[test]
    fn examining_never_panics_whatever_the_bytes(
        changes in proptest::collection::vec((0usize..140_000, any::<u8>(), 1usize..600), 0..8),
        head_bytes in 0usize..262_144, tail_bytes in 0usize..131_072, cut in any::<bool>(),
    ) {
        let (mut head, mut tail) = ends(&raid6().encode().expect("valid"));
        for (at, value, length) in changes {
            head[at..at + length].fill(value);
            let at = at % 130_000;
            tail[at..at + length].fill(value);
        }
        if cut {
            head.truncate(head_bytes);
            tail.truncate(tail_bytes);
        }
        let examination = Examination::new(DEVICE_BYTES, Some(&head), Some(&tail));
        proptest::prop_assert!(examination.to_string().contains("copy 3"));
    }
}
