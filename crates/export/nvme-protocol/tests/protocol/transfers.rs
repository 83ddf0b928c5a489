//! Data that was asked for: in order, within bounds, once.

use ashlar_nvme_protocol::pdu::{Fatal, FatalStatus, H2cData};
use ashlar_nvme_protocol::transfer::Transfers;
use fastrand::Rng;

fn data(transfer: u16, (offset, bytes): (u32, u32), is_last: bool) -> H2cData {
    H2cData { command: transfer.saturating_add(40), transfer, offset, bytes, is_last }
}

fn open(bytes: &[u32]) -> Transfers {
    let mut transfers = Transfers::new(4);
    for (at, bytes) in bytes.iter().enumerate() {
        let command = 40 + u16::try_from(at).expect("few");
        let r2t = transfers.open(command, *bytes).expect("there is room");
        assert_eq!((usize::from(r2t.transfer), r2t.offset, r2t.bytes), (at, 0, *bytes));
    }
    transfers
}

#[test]
fn data_in_order_is_accepted_until_it_is_whole() {
    let mut transfers = open(&[8192]);
    let first = transfers.accept(&data(0, (0, 4096), false)).expect("the first half");
    assert_eq!((first.offset, first.bytes, first.is_complete), (0, 4096, false));
    let second = transfers.accept(&data(0, (4096, 4096), true)).expect("the second half");
    assert_eq!((second.offset, second.is_complete), (4096, true));
    assert_eq!(transfers.count(), 0);
    // It is closed: the same again is not of any transfer.
    assert_eq!(transfers.accept(&data(0, (4096, 4096), true)), Err(Fatal::field(10)));
}

#[test]
fn each_kind_of_wrong_data_has_its_refusal_and_changes_nothing() {
    let range = Err(Fatal::of(FatalStatus::DataOutOfRange));
    let wrong = [
        // A gap, a step back, beyond the end, beyond 32 bits.
        (data(0, (4, 4), false), range),
        (data(0, (8192, 4), false), range),
        (data(0, (0, 8196), true), range),
        (data(0, (0, u32::MAX), true), range),
        // Not last where it ends, last where it does not end.
        (data(0, (0, 8192), false), Err(Fatal::field(1))),
        (data(0, (0, 4096), true), Err(Fatal::field(1))),
        (data(0, (0, 0), false), Err(Fatal::field(16))),
        // Transfers that are not open, a command that is another's.
        (data(1, (0, 4096), false), Err(Fatal::field(10))),
        (data(4, (0, 4096), false), Err(Fatal::field(10))),
        (data(u16::MAX, (0, 4096), false), Err(Fatal::field(10))),
        (H2cData { command: 41, ..data(0, (0, 4096), false) }, Err(Fatal::field(8))),
    ];
    for (wrong, refusal) in wrong {
        let mut transfers = open(&[8192]);
        assert_eq!(transfers.accept(&wrong), refusal, "{wrong:?}");
        assert!(transfers.accept(&data(0, (0, 8192), true)).is_ok(), "{wrong:?}");
    }
}

#[test]
fn no_more_transfers_than_there_is_room_for() {
    let mut transfers = open(&[4, 4, 4, 4]);
    assert_eq!(transfers.open(9, 4), None);
    assert!(transfers.accept(&data(2, (0, 4), true)).is_ok());
    assert_eq!(transfers.open(9, 4).map(|r2t| r2t.transfer), Some(2));
    assert_eq!(transfers.open(9, 0), None);
}

/// Whatever comes: accepted pieces of one transfer are disjoint, in order, and together all of it.
#[test]
fn accepted_pieces_are_exactly_what_was_asked_for() {
    for seed in 0..2000 {
        let mut chance = Rng::with_seed(seed);
        let total = chance.u32(1..64);
        let mut transfers = open(&[total, 9]);
        let mut next = 0;
        for _ in 0..200 {
            let offset = if chance.bool() { next } else { chance.u32(..70) };
            let bytes = chance.u32(..24);
            let is_last = offset.wrapping_add(bytes) == total || chance.u8(..8) == 0;
            let wanted = data(chance.u16(..3), (offset, bytes), is_last);
            let Ok(piece) = transfers.accept(&wanted) else { continue };
            if piece.transfer == 0 {
                assert_eq!(piece.offset, next, "seed {seed}");
                next += piece.bytes;
                assert_eq!(piece.is_complete, next == total, "seed {seed}");
                if piece.is_complete {
                    break;
                }
            }
        }
        assert!(next <= total, "seed {seed}");
    }
}
