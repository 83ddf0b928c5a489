//! Reservations: the access table, every command, and bytes that survive.

use super::host;
use ashlar_nvme_protocol::Status;
use ashlar_nvme_protocol::command::{
    Blocks, IoCommand, RegisterAction, ReservationAcquire, ReservationRegister, ReservationRelease,
};
use ashlar_nvme_protocol::log::ReservationNoticeKind as Notice;
use ashlar_nvme_protocol::nqn::HostId;
use ashlar_nvme_protocol::reservation::{
    Keys, NotReservations, Notified, REGISTRANTS_MAX, RESERVATION_BYTES_MAX, ReportedController,
    ReservationType, Reservations,
};
use fastrand::Rng;

const NGUID: [u8; 16] = [0xcd; 16];

fn id(number: u8) -> HostId {
    host(number).id
}

fn key(number: u8) -> u64 {
    0x1000 + u64::from(number)
}

const REGISTER: ReservationRegister =
    ReservationRegister { action: RegisterAction::Register, ignores_key: false, persists: None };

fn register(state: &mut Reservations, number: u8) {
    let keys = Keys { current: 0, other: key(number) };
    assert_eq!(state.register(id(number), &REGISTER, keys), Ok(Notified::default()));
}

fn acquire(
    state: &mut Reservations,
    number: u8,
    kind: ReservationType,
) -> Result<Notified, Status> {
    let keys = Keys { current: key(number), other: 0 };
    state.acquire(id(number), &ReservationAcquire::Acquire(kind), keys)
}

fn preempt(
    state: &mut Reservations,
    number: u8,
    key_of_others: u64,
    kind: ReservationType,
) -> Result<Notified, Status> {
    let keys = Keys { current: key(number), other: key_of_others };
    state.acquire(id(number), &ReservationAcquire::Preempt(kind), keys)
}

fn release(
    state: &mut Reservations,
    number: u8,
    kind: ReservationType,
) -> Result<Notified, Status> {
    state.release(id(number), &ReservationRelease::Release(kind), key(number))
}

/// Hosts 1, 2 and 3 are registered, 1 holds; 4 is a stranger.
fn held(kind: ReservationType) -> Reservations {
    let mut state = Reservations::default();
    (1..=3).for_each(|number| register(&mut state, number));
    assert_eq!(acquire(&mut state, 1, kind), Ok(Notified::default()));
    state
}

fn commands() -> [(IoCommand, bool); 6] {
    let blocks = Blocks { first: 0, count: 1 };
    [
        (IoCommand::Read { blocks, fua: false }, false),
        (IoCommand::Compare { blocks }, false),
        (IoCommand::Write { blocks, fua: false }, true),
        (IoCommand::WriteZeroes { blocks, fua: false, may_unmap: true }, true),
        (IoCommand::DatasetManagement { ranges: 1, deallocate: true }, true),
        (IoCommand::Flush, true),
    ]
}

#[test]
fn each_type_lets_each_host_do_what_the_table_says() {
    use ReservationType as Type;
    // Who may write, and who may read: holder, registrant, stranger.
    let table = [
        (Type::WriteExclusive, [true, false, false], [true, true, true]),
        (Type::ExclusiveAccess, [true, false, false], [true, false, false]),
        (Type::WriteExclusiveRegistrantsOnly, [true, true, false], [true, true, true]),
        (Type::ExclusiveAccessRegistrantsOnly, [true, true, false], [true, true, false]),
        (Type::WriteExclusiveAllRegistrants, [true, true, false], [true, true, true]),
        (Type::ExclusiveAccessAllRegistrants, [true, true, false], [true, true, false]),
    ];
    for (kind, writes, reads) in table {
        let state = held(kind);
        for (at, number) in [1, 2, 4].into_iter().enumerate() {
            for (command, is_write) in commands() {
                let may = if is_write { writes[at] } else { reads[at] };
                let wanted = if may { Ok(()) } else { Err(Status::RESERVATION_CONFLICT) };
                assert_eq!(state.admit(id(number), &command), wanted, "{kind:?} {at} {command:?}");
            }
        }
    }
    for (command, _) in commands() {
        assert_eq!(Reservations::default().admit(id(4), &command), Ok(()));
    }
}

#[test]
fn registering_needs_a_key_and_a_host() {
    let mut state = Reservations::default();
    let keys = |other| Keys { current: 0, other };
    assert_eq!(state.register(id(1), &REGISTER, keys(0)), Err(Status::INVALID_FIELD));
    let nobody = HostId::default();
    assert_eq!(state.register(nobody, &REGISTER, keys(5)), Err(Status::OPERATION_DENIED));
    assert_eq!(state, Reservations::default());
    register(&mut state, 1);
    register(&mut state, 1);
    assert_eq!(state.registrants().len(), 1, "the same key again is no fault");
    assert_eq!(state.register(id(1), &REGISTER, keys(9)), Err(Status::RESERVATION_CONFLICT));
}

#[test]
fn registrants_are_bounded() {
    let mut state = Reservations::default();
    for number in 0..REGISTRANTS_MAX {
        let mut host = [1; 16];
        host[..8].copy_from_slice(&u64::try_from(number).expect("few").to_le_bytes());
        let keys = Keys { current: 0, other: 7 };
        assert!(state.register(HostId(host), &REGISTER, keys).is_ok());
    }
    let keys = Keys { current: 0, other: 7 };
    assert_eq!(state.register(id(99), &REGISTER, keys), Err(Status::OPERATION_DENIED));
    assert_eq!(state.to_bytes(&NGUID).len(), RESERVATION_BYTES_MAX);
}

#[test]
fn replacing_and_unregistering_need_the_current_key_unless_it_is_ignored() {
    for action in [RegisterAction::Replace, RegisterAction::Unregister] {
        let command = ReservationRegister { action, ..REGISTER };
        let ignoring = ReservationRegister { ignores_key: true, ..command };
        let wrong = Keys { current: 5, other: 77 };
        let right = Keys { current: key(1), other: 77 };
        let mut state = held(ReservationType::WriteExclusive);
        assert_eq!(state.register(id(1), &command, wrong), Err(Status::RESERVATION_CONFLICT));
        assert_eq!(state.register(id(4), &command, wrong), Err(Status::RESERVATION_CONFLICT));
        assert!(state.clone().register(id(1), &ignoring, wrong).is_ok());
        assert!(state.register(id(1), &command, right).is_ok());
        let registered = state.registrants().iter().find(|it| it.host == id(1)).map(|it| it.key);
        assert_eq!(registered, (action == RegisterAction::Replace).then_some(77));
    }
    // Replacing without regard to the key registers, too.
    let command =
        ReservationRegister { action: RegisterAction::Replace, ignores_key: true, persists: None };
    let mut state = Reservations::default();
    assert!(state.register(id(1), &command, Keys { current: 0, other: 3 }).is_ok());
    assert_eq!(state.registrants().len(), 1);
}

#[test]
fn only_registrants_acquire_and_only_one_holds() {
    let mut state = Reservations::default();
    register(&mut state, 1);
    register(&mut state, 2);
    let conflict = Err(Status::RESERVATION_CONFLICT);
    let kind = ReservationType::WriteExclusive;
    assert_eq!(acquire(&mut state, 4, kind), conflict);
    let keys = Keys { current: 5, other: 0 };
    assert_eq!(state.acquire(id(1), &ReservationAcquire::Acquire(kind), keys), conflict);
    assert!(acquire(&mut state, 1, kind).is_ok());
    assert!(acquire(&mut state, 1, kind).is_ok(), "the same again is no fault");
    assert_eq!(acquire(&mut state, 1, ReservationType::ExclusiveAccess), conflict);
    assert_eq!(acquire(&mut state, 2, kind), conflict);
    let of_all = ReservationType::WriteExclusiveAllRegistrants;
    assert!(acquire(&mut held(of_all), 2, of_all).is_ok(), "every registrant holds");
}

#[test]
fn releasing_needs_the_type_that_is_held_and_tells_those_who_shared_it() {
    for kind in ReservationType::ALL {
        let mut state = held(kind);
        let other = ReservationType::ALL[usize::from(kind.code()) % 6];
        assert_eq!(release(&mut state, 1, other), Err(Status::INVALID_FIELD));
        assert_eq!(release(&mut state, 4, kind), Err(Status::RESERVATION_CONFLICT));
        if !kind.is_of_all_registrants() {
            assert_eq!(release(&mut state, 2, kind), Ok(Notified::default()), "it holds nothing");
            assert_eq!(state.kind(), Some(kind));
        }
        let told = release(&mut state, 1, kind).expect("released").0;
        let is_shared = kind.code() > 2;
        let wanted =
            vec![(id(2), Notice::ReservationReleased), (id(3), Notice::ReservationReleased)];
        assert_eq!(told, if is_shared { wanted } else { Vec::new() }, "{kind:?}");
        assert_eq!((state.kind(), state.registrants().len()), (None, 3));
    }
}

#[test]
fn clearing_ends_everything_and_tells_all_others() {
    let mut state = held(ReservationType::WriteExclusive);
    let clear = |state: &mut Reservations, number| {
        state.release(id(number), &ReservationRelease::Clear, key(number))
    };
    assert_eq!(clear(&mut state, 4), Err(Status::RESERVATION_CONFLICT));
    let told = clear(&mut state, 2).expect("any registrant may").0;
    assert_eq!(
        told,
        [(id(1), Notice::ReservationPreempted), (id(3), Notice::ReservationPreempted)]
    );
    assert_eq!((state.kind(), state.registrants().len()), (None, 0));
}

#[test]
fn a_holder_that_unregisters_gives_the_reservation_up() {
    let unregister = ReservationRegister { action: RegisterAction::Unregister, ..REGISTER };
    let keys = |number| Keys { current: key(number), other: 0 };
    for kind in ReservationType::ALL {
        let mut state = held(kind);
        let told = state.register(id(1), &unregister, keys(1)).expect("unregistered").0;
        if kind.is_of_all_registrants() {
            assert_eq!((state.kind(), told.len()), (Some(kind), 0), "the others hold it still");
            state.register(id(2), &unregister, keys(2)).expect("unregistered");
            assert!(state.is_holder(id(3)));
            state.register(id(3), &unregister, keys(3)).expect("unregistered");
        } else {
            assert_eq!(told.len(), if kind.code() > 2 { 2 } else { 0 }, "{kind:?}");
        }
        assert_eq!(state.kind(), None);
        assert!(state.is_consistent());
    }
}

#[test]
fn preempting_the_holder_takes_its_place() {
    for (was, kind) in [
        (ReservationType::WriteExclusive, ReservationType::ExclusiveAccess),
        (ReservationType::WriteExclusive, ReservationType::WriteExclusive),
        (ReservationType::ExclusiveAccessRegistrantsOnly, ReservationType::WriteExclusive),
    ] {
        let mut state = held(was);
        let told = preempt(&mut state, 2, key(1), kind).expect("preempted").0;
        let mut wanted = vec![(id(1), Notice::RegistrationPreempted)];
        if was != kind {
            wanted.push((id(3), Notice::ReservationPreempted));
        }
        assert_eq!(told, wanted);
        assert!(state.is_holder(id(2)) && state.kind() == Some(kind));
        assert_eq!(state.registrants().len(), 2);
    }
}

#[test]
fn preempting_another_registrant_leaves_the_reservation() {
    let mut state = held(ReservationType::WriteExclusive);
    let kind = ReservationType::ExclusiveAccess;
    let told = preempt(&mut state, 2, key(3), kind).expect("preempted").0;
    assert_eq!(told, [(id(3), Notice::RegistrationPreempted)]);
    assert!(state.is_holder(id(1)) && state.kind() == Some(ReservationType::WriteExclusive));
    // Nobody holds: registrations go, and no reservation comes of it.
    let mut state = Reservations::default();
    (1..=3).for_each(|number| register(&mut state, number));
    preempt(&mut state, 1, key(2), kind).expect("preempted");
    assert_eq!((state.kind(), state.registrants().len()), (None, 2));
}

#[test]
fn preempting_needs_a_key_that_somebody_has() {
    let mut state = held(ReservationType::WriteExclusive);
    let before = state.clone();
    let kind = ReservationType::WriteExclusive;
    assert_eq!(preempt(&mut state, 2, 99, kind), Err(Status::RESERVATION_CONFLICT));
    assert_eq!(preempt(&mut state, 2, 0, kind), Err(Status::INVALID_FIELD));
    assert_eq!(preempt(&mut state, 4, key(1), kind), Err(Status::RESERVATION_CONFLICT));
    assert_eq!(state, before);
}

#[test]
fn preempting_all_registrants_by_key_0_leaves_one_holder() {
    let mut state = held(ReservationType::ExclusiveAccessAllRegistrants);
    let told = preempt(&mut state, 2, 0, ReservationType::WriteExclusive).expect("preempted").0;
    assert_eq!(
        told,
        [(id(1), Notice::RegistrationPreempted), (id(3), Notice::RegistrationPreempted)]
    );
    assert!(state.is_holder(id(2)) && state.registrants().len() == 1);
    // By a key, one registrant goes, and all others hold on.
    let kind = ReservationType::ExclusiveAccessAllRegistrants;
    let mut state = held(kind);
    preempt(&mut state, 2, key(1), ReservationType::WriteExclusive).expect("preempted");
    assert_eq!(state.kind(), Some(kind));
    assert!(state.is_holder(id(2)) && state.is_holder(id(3)) && state.is_consistent());
}

#[test]
fn a_report_names_every_controller_of_every_registrant() {
    let state = held(ReservationType::WriteExclusive);
    let controllers =
        [ReportedController { id: 5, host: id(1) }, ReportedController { id: 6, host: id(1) }];
    let report = state.report(&controllers);
    assert_eq!(report.len(), 64 * 5);
    assert_eq!((report[0], report[4], report[5], report[9]), (3, 1, 4, 0));
    let entry = |at: usize| &report[64 * at..64 * (at + 1)];
    let told = |at: usize| {
        let entry = entry(at);
        let key = u64::from_le_bytes(entry[8..16].try_into().expect("eight"));
        (u16::from_le_bytes([entry[0], entry[1]]), entry[2], key, entry[16])
    };
    assert_eq!(told(1), (5, 1, key(1), 1));
    assert_eq!(told(2), (6, 1, key(1), 1));
    assert_eq!(told(3), (0xffff, 0, key(2), 2));
    assert_eq!(told(4), (0xffff, 0, key(3), 3));
}

#[test]
fn generations_rise_with_registrations_only() {
    let generation = |state: &Reservations| state.report(&[])[0];
    let mut state = Reservations::default();
    register(&mut state, 1);
    register(&mut state, 2);
    assert_eq!(generation(&state), 2);
    acquire(&mut state, 1, ReservationType::WriteExclusive).expect("held");
    release(&mut state, 1, ReservationType::WriteExclusive).expect("released");
    assert_eq!(generation(&state), 2);
    preempt(&mut state, 1, key(2), ReservationType::WriteExclusive).expect("preempted");
    assert_eq!(generation(&state), 3);
    state.release(id(1), &ReservationRelease::Clear, key(1)).expect("cleared");
    assert_eq!(generation(&state), 4);
}

#[test]
fn what_is_stored_is_what_is_read_back() {
    for kind in ReservationType::ALL {
        let mut state = held(kind);
        state.set_persists(kind.code() % 2 == 0);
        let bytes = state.to_bytes(&NGUID);
        assert_eq!(Reservations::from_bytes(&bytes, &NGUID), Ok(state));
        let other = Reservations::from_bytes(&bytes, &[0; 16]);
        assert_eq!(other, Err(NotReservations::Namespace));
    }
    let none = Reservations::default();
    assert_eq!(Reservations::from_bytes(&none.to_bytes(&NGUID), &NGUID), Ok(none));
}

#[test]
fn changed_bytes_are_refused() {
    let good = held(ReservationType::WriteExclusive).to_bytes(&NGUID);
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(Reservations::from_bytes(&bad, &NGUID).is_err(), "bit {bit}");
    }
    for length in 0..good.len() {
        assert!(Reservations::from_bytes(&good[..length], &NGUID).is_err(), "{length} bytes");
    }
    // Under a right checksum, too: a holder that is not registered.
    let mut forged = good.clone();
    forged[32] ^= 1;
    let end = forged.len() - 4;
    let sum = crc_fast::crc32_iscsi(&forged[..end]).to_le_bytes();
    forged[end..].copy_from_slice(&sum);
    let refused = Reservations::from_bytes(&forged, &NGUID);
    assert_eq!(refused, Err(NotReservations::Contradiction));
}

/// Random commands of five hosts: the state stays one that can be, refusals change nothing, and it
/// survives as bytes.
#[test]
fn no_sequence_of_commands_contradicts_itself() {
    for seed in 0..500 {
        let mut chance = Rng::with_seed(seed);
        let mut state = Reservations::default();
        for _ in 0..60 {
            let before = state.clone();
            let host = HostId([chance.u8(..5); 16]);
            let kind = ReservationType::ALL[chance.usize(..6)];
            let keys = Keys { current: chance.u64(..3), other: chance.u64(..3) };
            let result = match chance.u8(..3) {
                0 => {
                    let actions = [
                        RegisterAction::Register,
                        RegisterAction::Unregister,
                        RegisterAction::Replace,
                    ];
                    let action = actions[chance.usize(..3)];
                    let ignores_key = chance.bool();
                    state.register(
                        host,
                        &ReservationRegister { action, ignores_key, ..REGISTER },
                        keys,
                    )
                }
                1 if chance.bool() => state.acquire(host, &ReservationAcquire::Acquire(kind), keys),
                1 => state.acquire(host, &ReservationAcquire::PreemptAndAbort(kind), keys),
                _ if chance.u8(..8) == 0 => {
                    state.release(host, &ReservationRelease::Clear, keys.current)
                }
                _ => state.release(host, &ReservationRelease::Release(kind), keys.current),
            };
            assert!(state.is_consistent(), "seed {seed}: {state:?}");
            match result {
                Err(_) => assert_eq!(state, before, "seed {seed}"),
                Ok(told) => assert!(told.0.iter().all(|(told, _)| *told != host), "seed {seed}"),
            }
            let bytes = state.to_bytes(&NGUID);
            assert_eq!(
                Reservations::from_bytes(&bytes, &NGUID).as_ref(),
                Ok(&state),
                "seed {seed}"
            );
        }
    }
}
