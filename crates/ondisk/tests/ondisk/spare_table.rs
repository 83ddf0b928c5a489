//! The spare table in the superblock: it follows the members, and what makes no sense is refused.

use ashlar_ondisk::assembly::{AssemblyRequest, MemberReading, ReadLabel, Start, assemble};
use ashlar_ondisk::{
    AreaPlan, AreaRequest, Areas, BitmapPage, Features, GeometryRecord, MemberEvent, SpareRecord,
    Superblock, SuperblockFault,
};
use ashlar_units::{Extent, MemberIdx};

use crate::declustered::{declustered, record};
use crate::samples::{DEVICE_BYTES, member_uuid, reading, readings};

/// 4+2 over nine members with a distributed spare.
fn spared() -> Superblock {
    let request = AreaRequest {
        written_map_places: 1,
        ..AreaRequest::new(GeometryRecord { level: 6, ..record((4, 2), 9, 1) })
    };
    let plan = AreaPlan::for_member(&request, DEVICE_BYTES).expect("fits");
    let incompatible = Features::DECLUSTERED | Features::DISTRIBUTED_SPARES;
    Superblock {
        features: Features { incompatible, ..Features::NONE },
        areas: plan.areas,
        ..declustered()
    }
}

/// The same after these slots were lost, each by an update of its own.
fn after_losses(slots: &[u16]) -> Superblock {
    let mut superblock = spared();
    for slot in slots {
        superblock.generation += 1;
        superblock.record(member_uuid(*slot), MemberEvent::Lost).expect("it was in service");
    }
    superblock
}

#[test]
fn the_table_follows_losses_and_gives_a_free_column_to_who_waits() {
    let mut superblock = after_losses(&[4, 7, 1]);
    let columns = |superblock: &Superblock| -> Vec<(usize, u16, Option<u8>, u64)> {
        let of = |it: &SpareRecord| (it.entry, it.slot.0, it.column, it.since);
        superblock.spares.iter().map(of).collect()
    };
    let first = [(0, 4, Some(0), 11), (1, 7, None, 12), (2, 1, None, 13)];
    assert_eq!(columns(&superblock), first);
    assert!(!superblock.has_spare_entry(), "one spare, and two that parity bears");
    let bytes = superblock.encode().expect("valid");
    assert_eq!(Superblock::decode(&bytes), Ok(superblock.clone()));
    assert_eq!(bytes[3056..3060], [4, 0, 3, 0], "slot 4, in use and was whole, column 0");
    assert_eq!(bytes[3072..3076], [7, 0, 3, 255]);
    superblock.generation += 1;
    superblock.record(member_uuid(4), MemberEvent::Readded).expect("it was out");
    assert_eq!(columns(&superblock), first, "until all is in place");
    superblock.record(member_uuid(4), MemberEvent::Lost).expect("it was on its way");
    assert!(!superblock.spares[0].was_whole, "it was not filled");
    superblock.record(member_uuid(4), MemberEvent::Readded).expect("it was out");
    superblock.record(member_uuid(4), MemberEvent::Completed).expect("it was on its way");
    assert_eq!(columns(&superblock), [(1, 7, Some(0), 12), (2, 1, None, 13)]);
    superblock.encode().expect("valid");
}

#[test]
fn a_table_that_makes_no_sense_is_refused_and_never_written() {
    let with = |change: fn(&mut SpareRecord)| {
        let mut superblock = after_losses(&[4, 7]);
        change(&mut superblock.spares[1]);
        superblock
    };
    let without = |change: fn(&mut Superblock)| {
        let mut superblock = after_losses(&[4, 7]);
        change(&mut superblock);
        superblock
    };
    let all = [
        ("spare_table", with(|it| it.slot = MemberIdx(4))),
        ("spare_table", with(|it| it.slot = MemberIdx(9))),
        ("spare_table", with(|it| it.entry = 0)),
        ("spare_table", with(|it| it.entry = 3)),
        ("spare_table", with(|it| it.column = Some(0))),
        ("spare_table", with(|it| it.column = Some(1))),
        ("spare_table.slot", with(|it| it.slot = MemberIdx(2))),
        ("spare_table.since", with(|it| it.since = 0)),
        ("spare_table.since", with(|it| it.since = 13)),
        ("spare_table.slot", without(|it| it.spares.truncate(1))),
        ("spare_table", without(|it| it.features.incompatible = Features::DECLUSTERED)),
        (
            "areas.spare_states",
            without(|it| {
                it.areas = Areas { spare_states: Extent::default(), ..it.areas };
            }),
        ),
    ];
    for (name, superblock) in all {
        assert_eq!(superblock.encode(), Err(SuperblockFault::Field { name }), "{superblock:?}");
    }
}

/// A page of an earlier life of an entry, of another member or of another entry does not count.
#[test]
fn a_page_of_states_is_of_one_entry_one_loss_and_one_member() {
    let superblock = after_losses(&[4, 7]);
    let (geometry, [one, other]) =
        (superblock.geometry, [superblock.spares[0], superblock.spares[1]]);
    let tag = superblock.page_tag(member_uuid(2));
    let bits = [5; ashlar_ondisk::bitmap::WORDS_PER_PAGE];
    let bytes = one.page_identity(&geometry, tag, 0).encode(9, &bits);
    let page = BitmapPage { sequence: 9, bits };
    assert_eq!(one.page_identity(&geometry, tag, 0).decode(&bytes), Ok(page));
    let later = SpareRecord { since: one.since + 1, ..one };
    let strangers = [
        later.page_identity(&geometry, tag, 0),
        other.page_identity(&geometry, tag, 0),
        one.page_identity(&geometry, tag ^ 1, 0),
        one.page_identity(&geometry, tag, 1),
    ];
    assert!(strangers.iter().all(|it| it.decode(&bytes).is_err()));
}

/// Members of the table may be on spares: their states decide, not their number. What is missing
/// besides is no more than parity bears.
#[test]
fn a_start_counts_what_is_lost_beside_the_table() {
    let superblock = after_losses(&[4]);
    let start_without = |slots: &[u16]| {
        let mut all = readings(&superblock);
        for slot in slots {
            let sound = reading(&superblock, *slot);
            all[usize::from(*slot)] = MemberReading { label: ReadLabel::Damaged, ..sound };
        }
        assemble(&all, &AssemblyRequest::default()).start
    };
    assert_eq!(start_without(&[4]), Start::Degraded);
    assert_eq!(start_without(&[4, 1]), Start::Degraded);
    assert_eq!(start_without(&[4, 1, 2]), Start::Degraded, "if member 4 is on spares");
    assert!(matches!(start_without(&[4, 1, 2, 3]), Start::Refused(_)));
}
