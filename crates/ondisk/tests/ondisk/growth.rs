//! Superblocks of declustered arrays that grow: incompatible bit 7.

use ashlar_layout::declustered::DeclusteredError;
use ashlar_ondisk::assembly::{AssemblyRequest, ExtraReason, RefusalKind, Start, assemble};
use ashlar_ondisk::examine::Examination;
use ashlar_ondisk::{
    Access, AreaPlan, AreaRequest, Areas, Features, GeometryRecord, GrowthFault, GrowthRecord,
    MemberEntry, MemberEvent, Role, SpreadRecord, Superblock, SuperblockFault, Text,
};
use ashlar_units::{Extent, MemberIdx};

use crate::declustered::{declustered, in_enclosures, record};
use crate::samples::{
    DEVICE_BYTES, array, member_uuid, reading, readings, serial, started, updated,
};
use std::ops::Range;

/// Reserved for a reshape on large members.
const RESERVED: u64 = 64 << 20;

fn entry(slot: u16, device_bytes: u64) -> MemberEntry {
    MemberEntry::new(member_uuid(slot), MemberIdx(slot), Role::Active)
        .on_device(device_bytes, Text::cut(&serial(slot)))
}

/// 4+2 over nine members as a program makes them that knows of two places for each page.
fn pool(device_bytes: u64, strip_bytes: u32) -> Superblock {
    let wanted = GeometryRecord { level: 6, strip_bytes, ..record((4, 2), 9, 1) };
    let plan = AreaPlan::for_member(&AreaRequest::new(wanted), device_bytes).expect("fits");
    let compatible = if plan.areas.reshape.bytes > 0 { Features::RESHAPE_AREA } else { 0 };
    let incompatible =
        Features::DECLUSTERED | Features::MEMBER_PAGES | Features::DISTRIBUTED_SPARES;
    Superblock {
        features: Features { compatible, incompatible, ..Features::NONE },
        geometry: plan.geometry,
        region_bytes: plan.region_bytes,
        areas: plan.areas,
        member_bytes: device_bytes,
        members: (0..9).map(|slot| entry(slot, device_bytes)).collect(),
        ..array(4, 2, 1)
    }
}

/// At the start of a growth, with the new members in the table.
fn growing(before: &Superblock, added: u16) -> Superblock {
    let first = before.geometry.slots();
    let mut grown = before.growing(added.into()).expect("it can grow");
    grown.members.extend((first..first + added).map(|slot| entry(slot, before.member_bytes)));
    grown
}

fn with_growth(
    superblock: &Superblock,
    at: usize,
    change: impl FnOnce(&mut GrowthRecord),
) -> Superblock {
    let mut superblock = superblock.clone();
    let spread: &mut SpreadRecord = superblock.geometry.spread.as_mut().expect("declustered");
    change(spread.growths[at].as_mut().expect("it grew"));
    superblock
}

/// At this frontier of a growth: so many of `of` parts.
fn moved(superblock: &Superblock, at: usize, part: u64, of: u64) -> Superblock {
    let layout = superblock.geometry.to_layout().expect("an array");
    let growth = layout.declustered().and_then(|map| map.growth()).expect("it grows");
    let cells = growth.end_cells / growth.step_cells * part / of * growth.step_cells;
    with_growth(superblock, at, |growth| growth.moved_cells = cells)
}

/// From nine members to ten, and half way to twelve.
pub fn half_way() -> Superblock {
    let once = moved(&growing(&pool(DEVICE_BYTES, 4096), 1), 0, 1, 1);
    moved(&growing(&once, 2), 1, 1, 2)
}

#[test]
fn growths_are_stored_where_the_page_says_and_come_back() {
    let superblock = half_way();
    let bytes = superblock.encode().expect("valid");
    assert_eq!(Superblock::decode(&bytes), Ok(superblock.clone()));
    let number = |at: usize, length: usize| {
        bytes[at..at + length].iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte))
    };
    let growths: Vec<GrowthRecord> = superblock.geometry.growths().collect();
    assert_eq!((number(40, 8), number(1056, 2)), (8 | 4 | 32 | 128, 12));
    assert_eq!((number(1080, 2), number(1088, 8)), (9, growths[0].moved_cells));
    assert_eq!((number(1096, 2), number(1104, 8)), (10, growths[1].moved_cells));
    assert!(growths[1].moved_cells > 0 && growths[0].moved_cells > growths[1].moved_cells);
    let layout = superblock.geometry.to_layout().expect("an array");
    assert_eq!(GeometryRecord::from_layout(&layout), superblock.geometry);
    assert_eq!(layout.stripe_count(), superblock.geometry.stripes());
    assert!(superblock.geometry.stripes_at_creation() < superblock.geometry.stripes());
    assert!(superblock.geometry.stripes() < superblock.geometry.stripes_when_grown());
}

#[test]
fn a_pool_that_never_grew_has_neither_the_flag_nor_the_fields() {
    for superblock in [declustered(), pool(DEVICE_BYTES, 4096), array(4, 2, 1)] {
        let bytes = superblock.encode().expect("valid");
        assert_eq!(bytes[40] & 128, 0);
        assert!(bytes[1080..3056].iter().all(|byte| *byte == 0));
        assert_eq!(superblock.geometry.growths().count(), 0);
        assert_eq!(superblock.areas.grown_map, Extent::default());
        let geometry = &superblock.geometry;
        let stripes = [geometry.stripes_at_creation(), geometry.stripes_when_grown()];
        assert_eq!(stripes, [geometry.stripes(); 2]);
    }
}

#[test]
fn a_program_that_does_not_know_growths_keeps_away() {
    let older = Features {
        incompatible: Features::SUPPORTED.incompatible & !Features::GROWN,
        ..Features::SUPPORTED
    };
    assert_eq!(half_way().access(older), Access::Refused { unknown: Features::GROWN });
}

fn refused(superblock: &Superblock) -> &'static str {
    match superblock.encode() {
        Err(SuperblockFault::Field { name }) => name,
        other => panic!("{other:?}"),
    }
}

#[test]
fn growths_that_cannot_be_are_never_written() {
    let sound = half_way();
    for wrong in [
        with_growth(&sound, 1, |growth| growth.moved_cells += 1),
        with_growth(&sound, 1, |growth| growth.moved_cells = u64::MAX),
        with_growth(&sound, 0, |growth| growth.moved_cells = 0),
        with_growth(&sound, 1, |growth| growth.members_before = 9),
        with_growth(&sound, 1, |growth| growth.members_before = 12),
        with_growth(&sound, 0, |growth| growth.members_before = 11),
    ] {
        assert_eq!(refused(&wrong), "growths");
    }
    let few = with_growth(&sound, 0, |growth| growth.members_before = 6);
    assert_eq!(refused(&few), "spare_columns");
    let mut none = sound.clone();
    none.features.incompatible &= !Features::GROWN;
    assert_eq!(refused(&none), "growths");
    let mut bit = pool(DEVICE_BYTES, 4096);
    bit.features.incompatible |= Features::GROWN;
    assert_eq!(refused(&bit), "growths");
}

/// What encoding never writes: bytes of an entry that is none.
#[test]
fn an_entry_without_members_is_zeros() {
    let mut bytes = pool(DEVICE_BYTES, 4096).encode().expect("valid");
    let sound = bytes.clone();
    let refused = |bytes: &mut Vec<u8>| {
        let sum = {
            let mut rest = bytes.clone();
            rest.drain(8..12);
            crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &rest)
        };
        let sum = u32::try_from(sum).expect("32 bits");
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        Superblock::decode(bytes).map(|_| ())
    };
    assert_eq!(refused(&mut bytes), Ok(()));
    bytes[1088] = 1;
    assert_eq!(refused(&mut bytes), Err(SuperblockFault::Field { name: "growths" }));
    bytes = sound;
    bytes[1082] = 1;
    assert_eq!(refused(&mut bytes), Err(SuperblockFault::Field { name: "reserved" }));
}

#[test]
fn pages_of_the_map_go_on_in_the_room_that_is_reserved_for_a_reshape() {
    let before = pool(9 << 30, 4096);
    assert_eq!(before.areas.reshape.bytes, RESERVED);
    let after = growing(&before, 2);
    let Areas { written_map, grown_map, reshape, .. } = after.areas;
    let first_pages = written_map.bytes / 8192;
    let pages = after.geometry.stripes_when_grown().div_ceil(32_512);
    assert!(pages > first_pages + 10, "{pages} of {first_pages}");
    assert_eq!(
        (written_map, grown_map.offset),
        (before.areas.written_map, before.areas.reshape.offset)
    );
    assert_eq!((grown_map.bytes, reshape.offset), ((pages - first_pages) * 8192, grown_map.end()));
    assert_eq!(grown_map.bytes + reshape.bytes, RESERVED);
    assert_eq!(after.areas.data, before.areas.data);
    assert_eq!(Superblock::decode(&after.encode().expect("valid")), Ok(after.clone()));
    let mut ends = written_map.offset;
    for page in 0..pages {
        let offsets = [0, 1].map(|place| after.written_map_offset(page, place));
        let start = if page == first_pages { grown_map.offset } else { ends };
        assert_eq!(offsets, [start, start + 4096]);
        ends = start + 8192;
    }
    assert_eq!(ends, grown_map.end());
    // A second growth takes more of it.
    let again = growing(&moved(&after, 0, 1, 1), 3);
    assert_eq!(again.areas.grown_map.offset, grown_map.offset);
    assert!(again.areas.grown_map.bytes > grown_map.bytes);
    assert_eq!(again.areas.grown_map.bytes + again.areas.reshape.bytes, RESERVED);
    assert!(again.encode().is_ok());
}

#[test]
fn maps_that_are_too_small_are_refused() {
    let after = growing(&pool(9 << 30, 4096), 2);
    let mut small = after.clone();
    small.areas.grown_map.bytes -= 4096;
    assert_eq!(refused(&small), "areas.grown_map");
    let mut one_place = after.clone();
    one_place.areas.written_map.bytes /= 2;
    assert_eq!(refused(&one_place), "areas.written_map");
    let mut overlapping = after.clone();
    overlapping.areas.reshape.offset -= 4096;
    assert_eq!(refused(&overlapping), "areas");
    let mut before = pool(9 << 30, 4096);
    before.areas.grown_map = Extent::new(before.areas.reshape.offset, 8192);
    before.areas.reshape = Extent::new(before.areas.reshape.offset + 8192, RESERVED - 8192);
    assert_eq!(refused(&before), "areas.grown_map", "it never grew");
}

#[test]
fn growths_for_which_there_is_no_room_or_no_leave_are_refused_in_one_line() {
    let fault = |superblock: &Superblock, added: usize| {
        let fault = superblock.growing(added).expect_err("it cannot grow so");
        assert!(!fault.to_string().contains('\n') && fault.to_string().len() > 30);
        fault
    };
    let sound = pool(DEVICE_BYTES, 4096);
    assert_eq!(fault(&array(4, 2, 1), 1), GrowthFault::NotDeclustered);
    assert_eq!(fault(&declustered(), 1), GrowthFault::OldMap);
    assert_eq!(fault(&half_way(), 1), GrowthFault::Layout(DeclusteredError::Growing));
    let twice = moved(&half_way(), 1, 1, 1);
    assert_eq!(fault(&twice, 1), GrowthFault::Layout(DeclusteredError::GrownTwice));
    assert_eq!(fault(&in_enclosures(), 2), GrowthFault::PartOfEnclosure { added: 2, slots: 4 });
    let mut degraded = sound.clone();
    degraded.generation += 1;
    degraded.record(member_uuid(3), MemberEvent::Lost).expect("it is active");
    assert_eq!(fault(&degraded, 1), GrowthFault::NotWhole);
    let mut without_room = pool(9 << 30, 4096);
    without_room.areas.reshape = Extent::default();
    without_room.features.compatible = 0;
    assert!(matches!(fault(&without_room, 2), GrowthFault::NoRoomForMap { free_bytes: 0, .. }));
    let mut full = sound.clone();
    full.areas.write_intent.bytes = 0;
    assert_eq!(fault(&full, 1), GrowthFault::NoRoomForBits);
    assert!(sound.growing(1).is_ok());
}

#[test]
fn examine_says_how_far_a_growth_is() {
    let bytes = half_way().encode().expect("valid");
    let examined = Examination::new(DEVICE_BYTES, Some(&bytes), None).to_string();
    assert!(examined.contains("raid6 4+2 declustered over 12"), "{examined}");
    assert!(examined.contains("from 9 members, complete"), "{examined}");
    assert!(
        examined.contains("from 10 members, ") && examined.contains(" have moved"),
        "{examined}"
    );
}

/// Its cells move beside the spare table.
#[test]
fn a_pool_without_distributed_spares_is_not_started_while_it_grows() {
    let mut plain = half_way();
    plain.features.incompatible &= !Features::DISTRIBUTED_SPARES;
    plain.areas.spare_states = Extent::default();
    let verdict = assemble(&readings(&plain), &AssemblyRequest::default());
    let Start::Refused(refusal) = verdict.start else { panic!("{:?}", verdict.start) };
    assert_eq!(refusal.kind, RefusalKind::Unsupported);
    assert!(refusal.line.contains("does not serve such arrays"), "{}", refusal.line);
    for started in [half_way(), moved(&half_way(), 1, 1, 1), pool(DEVICE_BYTES, 4096)] {
        let verdict = assemble(&readings(&started), &AssemblyRequest::default());
        assert_eq!(verdict.start, Start::Whole);
    }
}

/// It gets one with its first growth: from what is reserved, or from what is free before the data.
#[test]
fn a_pool_without_a_spare_table_gets_one_when_it_grows() {
    for device_bytes in [DEVICE_BYTES, 9 << 30] {
        let mut plain = pool(device_bytes, 4096);
        let geometry = GeometryRecord { level: 6, strip_bytes: 4096, ..record((4, 2), 9, 0) };
        let plan = AreaPlan::for_member(&AreaRequest::new(geometry), device_bytes).expect("fits");
        plain.features.incompatible &= !Features::DISTRIBUTED_SPARES;
        (plain.geometry, plain.areas) = (plan.geometry, plan.areas);
        plain.encode().expect("valid");
        let grown = growing(&plain, 2);
        assert!(grown.has_spare_table() && grown.areas.spare_states.bytes > 0);
        assert_eq!(grown.areas.data, plain.areas.data);
        let bytes = grown.encode().expect("valid");
        assert_eq!(Superblock::decode(&bytes), Ok(grown.clone()));
        let again = growing(&moved(&grown, 0, 1, 1), 1);
        assert_eq!(again.areas.spare_states, grown.areas.spare_states);
        let mut lost = grown.clone();
        lost.generation += 1;
        lost.record(member_uuid(2), MemberEvent::Lost).expect("it was in service");
        assert_eq!(lost.spare_record(MemberIdx(2)).map(|it| it.column), Some(None));
    }
}

/// A growth begins when a member that was there before has it, and new members are told first.
#[test]
fn a_new_member_that_nobody_knows_counts_for_nothing() {
    let before = updated(&pool(DEVICE_BYTES, 4096));
    let begun = started(&growing(&before, 3), 7);
    let other = started(&before, 8);
    let all = |old: &dyn Fn(u16) -> Superblock, new: Range<u16>| {
        let own = |slot: u16| reading(&if slot < 9 { old(slot) } else { begun.clone() }, slot);
        (0..9).chain(new).map(own).collect::<Vec<_>>()
    };
    // Cut off while the new members were told; and then started without them.
    for (old, new) in
        [(&before, 9..12), (&before, 9..10), (&other, 9..12), (&updated(&other), 10..12)]
    {
        let verdict = assemble(&all(&|_| old.clone(), new.clone()), &AssemblyRequest::default());
        assert_eq!((verdict.start, verdict.slots.len()), (Start::Whole, 9));
        assert_eq!(verdict.newest.map(|it| it.generation), Some(old.generation));
        assert_eq!(verdict.extras.len(), new.len());
        assert!(verdict.extras.iter().all(|extra| extra.reason == ExtraReason::NotListed));
    }
    // Cut off while the others were told.
    for told in 1..9 {
        let old = |slot: u16| if slot < told { begun.clone() } else { before.clone() };
        let verdict = assemble(&all(&old, 9..12), &AssemblyRequest::default());
        assert_eq!((verdict.start, verdict.slots.len()), (Start::Whole, 12), "{told}");
        // Two of the members are lost with the power, the first that was told among them.
        let mut fewer = all(&old, 9..12);
        fewer.remove(11);
        fewer.remove(0);
        let forced = AssemblyRequest { accept_dirty_degraded: true, ..Default::default() };
        let verdict = assemble(&fewer, &forced);
        let is_begun = told > 1;
        assert_eq!(verdict.slots.len(), if is_begun { 12 } else { 9 }, "{told}");
        assert_eq!(verdict.start, Start::Degraded, "{told}");
    }
}

/// A growth takes a second update before it serves: older copies of all other members do not undo
/// what came after.
#[test]
fn a_new_member_that_went_on_is_not_forgotten() {
    let before = updated(&pool(DEVICE_BYTES, 4096));
    let served = updated(&started(&growing(&before, 3), 7));
    for new in [9..12, 10..11] {
        let old = (0..9).map(|slot| reading(&before, slot));
        let all: Vec<_> = old.chain(new.map(|slot| reading(&served, slot))).collect();
        let forced = AssemblyRequest { accept_dirty_degraded: true, ..Default::default() };
        let verdict = assemble(&all, &forced);
        assert!(matches!(verdict.start, Start::Refused(_)), "{:?}", verdict.start);
        assert_eq!(verdict.newest.map(|it| it.generation), Some(served.generation));
    }
}
