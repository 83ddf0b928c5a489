//! Which requests are let in, and the error for each that is not.

use crate::admit::{NbdRequest, Terms};
use crate::wire::{Dialect, NbdError, RequestFlags, RequestHead};
use ashlar_units::Extent;
use ashlar_volume::{MemVolume, Volume, VolumeFacts};
use proptest::prelude::{any, proptest};

const SIZE: u64 = 64 << 20;

fn facts() -> VolumeFacts {
    VolumeFacts { size_bytes: SIZE, logical_block_bytes: 4096, ..MemVolume::new("v", 4096).facts() }
}

fn admit_in(
    (facts, dialect): (&VolumeFacts, Dialect),
    (type_code, flags): (u16, u16),
    extent: (u64, u64),
) -> Result<NbdRequest, NbdError> {
    let head = RequestHead {
        flags: RequestFlags(flags),
        type_code,
        cookie: 0,
        offset: extent.0,
        bytes: extent.1,
        payload_bytes: 0,
    };
    Terms { facts, dialect, has_allocation_context: true }.admit(&head)
}

fn admit(type_code: u16, flags: u16, offset: u64, bytes: u64) -> Result<NbdRequest, NbdError> {
    admit_in((&facts(), Dialect::Structured), (type_code, flags), (offset, bytes))
}

#[test]
fn each_type_becomes_its_order() {
    let extent = Extent::new(4096, 8192);
    let at = |type_code, flags| admit(type_code, flags, 4096, 8192).unwrap();
    assert_eq!(at(0, 0), NbdRequest::Read(extent));
    assert_eq!(at(1, 1), NbdRequest::Write { extent, fua: true });
    assert_eq!(at(2, 0), NbdRequest::Disconnect);
    assert_eq!(at(3, 1), NbdRequest::Flush);
    assert_eq!(at(4, 0), NbdRequest::Trim { extent, fua: false });
    assert_eq!(at(5, 0), NbdRequest::Cache);
    assert_eq!(at(6, 0), NbdRequest::WriteZeroes { extent, may_unmap: true, fua: false });
    assert_eq!(at(6, 3), NbdRequest::WriteZeroes { extent, may_unmap: false, fua: true });
    assert_eq!(at(7, 8), NbdRequest::Status { extent, is_one: true });
    assert_eq!(admit(8, 0, 4096, 8192), Err(NbdError::Invalid));
}

#[test]
fn beyond_the_end_is_no_space_for_changes_and_invalid_for_the_rest() {
    for (type_code, error) in [
        (0, NbdError::Invalid),
        (1, NbdError::NoSpace),
        (4, NbdError::Invalid),
        (5, NbdError::Invalid),
        (6, NbdError::NoSpace),
        (7, NbdError::Invalid),
    ] {
        for (offset, bytes) in [(SIZE, 4096), (SIZE - 4096, 8192), (u64::MAX - 4095, 8192)] {
            assert_eq!(admit(type_code, 0, offset, bytes), Err(error), "type {type_code}");
        }
    }
}

#[test]
fn misaligned_and_empty_requests_are_invalid() {
    for type_code in [0, 1, 4, 5, 6, 7] {
        for (offset, bytes) in [(512, 4096), (4096, 512), (1, 1), (4096, 0)] {
            assert_eq!(admit(type_code, 0, offset, bytes), Err(NbdError::Invalid));
        }
    }
}

#[test]
fn flags_are_taken_only_where_they_belong() {
    let allowed = [0b101, 0b1, u16::MAX, 0b1, 0b1, 0b1, 0b1_0011, 0b1001];
    for (type_code, allowed) in (0u16..).zip(allowed) {
        for bit in 0..16 {
            let is_allowed = allowed & 1 << bit != 0;
            let result = admit(type_code, 1 << bit, 0, 65_536);
            assert_eq!(result.is_ok(), is_allowed, "type {type_code} flag {bit}: {result:?}");
        }
    }
}

#[test]
fn df_needs_a_dialect_with_parts_and_a_read_of_one_piece() {
    let simple = (&facts(), Dialect::Simple);
    assert_eq!(admit_in(simple, (0, 4), (0, 4096)), Err(NbdError::Invalid));
    assert!(admit(0, 4, 0, 1 << 20).is_ok());
    assert_eq!(admit(0, 4, 0, 2 << 20), Err(NbdError::Overflow));
    assert!(admit(0, 0, 0, 32 << 20).is_ok());
    assert_eq!(admit(0, 0, 0, (32 << 20) + 4096), Err(NbdError::Overflow));
    assert_eq!(admit_in(simple, (0, 0), (0, (32 << 20) + 4096)), Err(NbdError::Invalid));
}

#[test]
fn fast_zero_is_for_whole_stripes_that_may_be_unmapped() {
    const FAST: u16 = 16;
    assert!(admit(6, FAST, 65_536, 131_072).is_ok());
    assert!(admit(6, FAST, 0, SIZE).is_ok());
    assert_eq!(admit(6, FAST, 4096, 65_536), Err(NbdError::NotSupported));
    assert_eq!(admit(6, FAST, 0, 4096), Err(NbdError::NotSupported));
    assert_eq!(admit(6, FAST | 2, 0, 65_536), Err(NbdError::NotSupported), "no hole");
    let odd = VolumeFacts { optimal_bytes: 3 * 65_536, ..facts() };
    let odd = (&odd, Dialect::Structured);
    assert!(admit_in(odd, (6, FAST), (0, SIZE)).is_ok(), "the last stripe is whole");
}

#[test]
fn a_read_only_volume_refuses_changes_as_not_permitted() {
    let read_only = VolumeFacts { read_only: true, ..facts() };
    for dialect in [Dialect::Simple, Dialect::Structured] {
        for type_code in 0..8 {
            let result = admit_in((&read_only, dialect), (type_code, 0), (0, 4096));
            let is_change = [1, 4, 6].contains(&type_code);
            assert_eq!(result == Err(NbdError::Permission), is_change, "type {type_code}");
        }
    }
}

#[test]
fn a_status_needs_its_context() {
    let facts = facts();
    let terms =
        Terms { facts: &facts, dialect: Dialect::Structured, has_allocation_context: false };
    let head = RequestHead {
        flags: RequestFlags(0),
        type_code: 7,
        cookie: 0,
        offset: 0,
        bytes: 4096,
        payload_bytes: 0,
    };
    assert_eq!(terms.admit(&head), Err(NbdError::Invalid));
}

#[test]
fn extended_writes_must_announce_their_payload() {
    let facts = facts();
    let extended = (&facts, Dialect::Extended);
    assert!(admit_in(extended, (1, 32), (0, 4096)).is_ok());
    assert_eq!(admit_in(extended, (1, 0), (0, 4096)), Err(NbdError::Invalid));
    for type_code in [0, 3, 4, 5, 6, 7] {
        assert_eq!(admit_in(extended, (type_code, 32), (0, 4096)), Err(NbdError::Invalid));
    }
}

proptest! {
    #[test]
    fn what_is_let_in_lies_within_the_volume(
        type_code in 0u16..9, flags in 0u16..64, offset in any::<u64>(), bytes in any::<u64>()
    ) {
        let facts = facts();
        for dialect in [Dialect::Simple, Dialect::Structured, Dialect::Extended] {
            let request = admit_in((&facts, dialect), (type_code, flags), (offset, bytes));
            if let Some(extent) = request.ok().and_then(|request| request.extent()) {
                assert!(facts.covers(extent));
            }
        }
    }
}
