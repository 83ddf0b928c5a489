//! Failure domains of declustered arrays: what the superblock says, what a start can do without.

use ashlar_ondisk::assembly::{
    AssemblyRequest, MemberReading, ReadLabel, RefusalKind, Start, assemble,
};
use ashlar_ondisk::{
    Access, EnclosureKind, EnclosureRecord, Features, Superblock, SuperblockFault,
};

use crate::declustered::{declustered, in_enclosures};
use crate::samples::{array, reading, readings};

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
