//! Failure domains of declustered arrays: what the superblock says, what a start can do without.

use ashlar_ondisk::assembly::{
    AssemblyRequest, MemberReading, ReadLabel, RefusalKind, Start, assemble,
};
use ashlar_ondisk::{
    Access, EnclosureKind, EnclosureRecord, Features, MemberEvent, Superblock, SuperblockFault,
};
use ashlar_units::MemberIdx;

use crate::declustered::{declustered, in_enclosures, spared_enclosures};
use crate::samples::{array, member_uuid, reading, readings};

fn refused(superblock: &Superblock) -> &'static str {
    match superblock.encode() {
        Err(SuperblockFault::Field { name }) => name,
        other => panic!("{other:?}"),
    }
}

fn with(domains: u8) -> Superblock {
    let enclosures = Some(EnclosureRecord { kind: EnclosureKind::Listed, domains });
    Superblock { enclosures, ..in_enclosures() }
}

#[test]
fn every_kind_of_enclosure_is_stored_where_the_page_says_and_comes_back() {
    for (code, kind) in (1..).zip(EnclosureKind::ALL) {
        let enclosures = Some(EnclosureRecord { kind, domains: 2 });
        let superblock = Superblock { enclosures, ..in_enclosures() };
        let bytes = superblock.encode().expect("valid");
        assert_eq!((bytes[1062], bytes[1063], bytes[40]), (2, code, 8 | 64));
        assert_eq!(Superblock::decode(&bytes), Ok(superblock));
    }
}

#[test]
fn an_array_without_domains_has_neither_the_flag_nor_the_fields() {
    for superblock in [declustered(), array(4, 2, 1)] {
        let bytes = superblock.encode().expect("valid");
        assert_eq!((bytes[1062], bytes[1063], bytes[40] & 64), (0, 0, 0));
    }
}

#[test]
fn a_program_that_does_not_know_domains_keeps_away() {
    let older = Features {
        incompatible: Features::SUPPORTED.incompatible & !Features::FAILURE_DOMAINS,
        ..Features::SUPPORTED
    };
    let unknown = Features::FAILURE_DOMAINS;
    assert_eq!(in_enclosures().access(older), Access::Refused { unknown });
}

#[test]
fn domains_that_cannot_be_are_never_written() {
    assert_eq!(refused(&with(0)), "enclosure_domains");
    assert_eq!(refused(&with(3)), "enclosure_domains", "more than parity replaces");
    assert_eq!(with(1).encode().map(|_| ()), Ok(()));
    let incompatible = Features::DECLUSTERED;
    let features = Features { incompatible, ..Features::NONE };
    assert_eq!(refused(&Superblock { features, ..in_enclosures() }), "enclosure_domains");
    let unsaid = Superblock { features, enclosures: None, ..in_enclosures() };
    assert_eq!(refused(&unsaid), "domain_members");
    let features = Features { incompatible: Features::FAILURE_DOMAINS, ..Features::NONE };
    let flat = Superblock { features, enclosures: with(1).enclosures, ..array(4, 2, 1) };
    assert_eq!(refused(&flat), "enclosure_domains");
}

/// Each set of members that is missing, by the domains that it hits: slots 2d and 2d + 1.
#[test]
fn members_of_two_domains_may_be_missing_however_many_they_are() {
    let superblock = in_enclosures();
    let all = readings(&superblock);
    for lost in 0u16..1 << 12 {
        let mut left = all.clone();
        for slot in (0..12).filter(|slot| lost & 1 << slot != 0) {
            let sound = reading(&superblock, slot);
            left[usize::from(slot)] = MemberReading { label: ReadLabel::Damaged, ..sound };
        }
        let hit = (0..6).filter(|domain| lost >> (2 * domain) & 3 != 0).count();
        let start = assemble(&left, &AssemblyRequest::default()).start;
        match (hit, &start) {
            (0, Start::Whole) | (1 | 2, Start::Degraded) => {}
            (3.., Start::Refused(refusal)) => match refusal.kind {
                RefusalKind::TooManyMissing => {
                    let says = format!("of {hit} failure domains, and can do without 2 of these");
                    assert!(refusal.line.contains(&says), "{}", refusal.line);
                }
                RefusalKind::NoArray => assert_eq!(lost, (1 << 12) - 1),
                _ => panic!("{lost:b}: {}", refusal.line),
            },
            _ => panic!("{lost:b}: {start:?}"),
        }
    }
}

/// Members of a domain share a spare column, and others do not.
#[test]
fn a_table_of_enclosures_has_a_column_for_each_domain_and_an_entry_for_each_member() {
    let mut superblock = spared_enclosures();
    assert_eq!(superblock.geometry.spare_entries(), 6, "three domains of two members");
    for (slot, column) in [(4, Some(0)), (5, Some(0)), (6, None), (7, None)] {
        superblock.generation += 1;
        superblock.record(member_uuid(slot), MemberEvent::Lost).expect("it was in service");
        let record = superblock.spare_record(MemberIdx(slot)).expect("it is lost");
        assert_eq!(record.column, column, "slot {slot}");
        superblock.encode().expect("valid");
    }
    let mut twice = superblock.clone();
    twice.spares[2].column = Some(0);
    assert_eq!(refused(&twice), "spare_table");
    let start_without = |slots: &[u16]| {
        let mut all = readings(&superblock);
        for slot in [&[4, 5, 6, 7], slots].concat() {
            let sound = reading(&superblock, slot);
            all[usize::from(slot)] = MemberReading { label: ReadLabel::Damaged, ..sound };
        }
        assemble(&all, &AssemblyRequest::default()).start
    };
    assert_eq!(start_without(&[]), Start::Degraded);
    assert_eq!(start_without(&[0, 1]), Start::Degraded, "if the first are on spares");
    assert!(matches!(start_without(&[0, 1, 2]), Start::Refused(_)), "no entry is left");
    for slot in [4, 5] {
        superblock.generation += 1;
        superblock.record(member_uuid(slot), MemberEvent::Readded).expect("it was out");
        superblock.record(member_uuid(slot), MemberEvent::Completed).expect("it is filled");
    }
    let columns: Vec<_> = superblock.spares.iter().map(|it| (it.slot.0, it.column)).collect();
    assert_eq!(columns, [(6, Some(0)), (7, Some(0))], "they waited for it");
}
