//! A controller: what it answers, and when.

use super::{controller, namespace, view};
use ashlar_nvme_protocol::command::{AdminCommand, Feature, GetFeature, admin_opcode};
use ashlar_nvme_protocol::controller::{Answer, Controller, View};
use ashlar_nvme_protocol::identify::{ControllerKind, structure};
use ashlar_nvme_protocol::log::{ReservationNotice, ReservationNoticeKind, page};
use ashlar_nvme_protocol::property::{PropertyChange, offset};
use ashlar_nvme_protocol::{Status, Submission};

fn ready(kind: ControllerKind) -> Controller {
    let mut controller = controller(kind);
    let change = controller.set_property(offset::CONFIGURATION, false, 0x0046_0001);
    assert_eq!(change, Ok(PropertyChange::Enabled));
    controller
}

fn run(controller: &mut Controller, entry: &Submission, view: &View) -> Result<Answer, Status> {
    let command = AdminCommand::decode(entry)?;
    controller.execute(entry.command.get(), &command, view)
}

fn of(opcode: u8) -> Submission {
    Submission { opcode, flags: 0x40, ..Submission::default() }
}

fn identify(structure: u8, namespace: u32) -> Submission {
    let entry = of(admin_opcode::IDENTIFY).with_dword(10, u32::from(structure));
    Submission { namespace: namespace.into(), ..entry }
}

fn log(page: u8, bytes: u32, keeps: bool) -> Submission {
    let keeps = if keeps { 1 << 15 } else { 0 };
    of(admin_opcode::GET_LOG_PAGE).with_dword(10, u32::from(page) | keeps | (bytes / 4 - 1) << 16)
}

fn set(feature: Feature, value: u32) -> Submission {
    let entry = of(admin_opcode::SET_FEATURES).with_dword(10, u32::from(feature.code()));
    Submission { namespace: 1.into(), ..entry.with_dword(11, value) }
}

fn get(feature: Feature, select: u32) -> Submission {
    let dword = u32::from(feature.code()) | select << 8;
    let entry = of(admin_opcode::GET_FEATURES).with_dword(10, dword);
    Submission { namespace: 1.into(), ..entry }
}

fn data(answer: Result<Answer, Status>) -> Vec<u8> {
    match answer {
        Ok(Answer::Done { data, .. }) => data,
        other => panic!("{other:?}"),
    }
}

fn result(answer: Result<Answer, Status>) -> u64 {
    match answer {
        Ok(Answer::Done { result, .. }) => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_answered_before_the_controller_is_enabled() {
    let mut controller = controller(ControllerKind::Io);
    let entry = identify(structure::CONTROLLER, 0);
    assert_eq!(run(&mut controller, &entry, &view(&[])), Err(Status::SEQUENCE_ERROR));
    controller.set_property(offset::CONFIGURATION, false, 0x0046_0001).expect("enabled");
    assert_eq!(data(run(&mut controller, &entry, &view(&[]))).len(), 4096);
    controller.set_property(offset::CONFIGURATION, false, 0).expect("reset");
    assert_eq!(run(&mut controller, &entry, &view(&[])), Err(Status::SEQUENCE_ERROR));
}

#[test]
fn every_structure_is_answered_or_refused_by_name() {
    let namespaces = [namespace(2)];
    let view = view(&namespaces);
    let invalid = Err(Status::INVALID_NAMESPACE);
    for structure in 0..=255 {
        let mut controller = ready(ControllerKind::Io);
        let known = [0, 1, 2, 3, 5, 6, 7, 8, 0x10, 0x11, 0x12, 0x13, 0x1c].contains(&structure);
        let answer = run(&mut controller, &identify(structure, 2), &view);
        assert_eq!(answer.is_ok(), known, "{structure:#x}");
        let mut discovery = ready(ControllerKind::Discovery);
        let answer = run(&mut discovery, &identify(structure, 0), &view);
        assert_eq!(answer.is_ok(), structure == 1, "{structure:#x}");
        // Of a namespace that is not there: an error, or all zeros if it might be.
        let answer = run(&mut controller, &identify(structure, 3), &view);
        match structure {
            0x00 | 0x11 => assert_eq!(data(answer), vec![0; 4096]),
            0x03 | 0x05 | 0x08 | 0x12 => assert_eq!(answer, invalid, "{structure:#x}"),
            _ => {}
        }
        if matches!(structure, 0 | 2 | 7 | 0x10) {
            let answer = run(&mut controller, &identify(structure, u32::MAX), &view);
            assert_eq!(answer, invalid, "{structure:#x}");
        }
    }
    let mut controller = ready(ControllerKind::Io);
    let other_set = identify(structure::SPECIFIC_NAMESPACE, 2).with_dword(11, 2 << 24);
    assert_eq!(run(&mut controller, &other_set, &view), Err(Status::INVALID_FIELD));
}

#[test]
fn log_pages_are_those_of_the_kind_of_controller() {
    let namespaces = [namespace(1)];
    for number in 0..=255 {
        for (kind, pages) in [
            (ControllerKind::Io, &page::OF_IO[..]),
            (ControllerKind::Discovery, &page::OF_DISCOVERY[..]),
        ] {
            let answer = run(&mut ready(kind), &log(number, 4096, true), &view(&namespaces));
            if pages.contains(&number) {
                assert_eq!(data(answer).len(), 4096, "{number:#x}");
            } else {
                assert_eq!(answer, Err(Status::INVALID_LOG_PAGE), "{number:#x}");
            }
        }
    }
}

#[test]
fn no_answer_is_longer_than_the_limit() {
    let entry = |bytes_less_one: u32| {
        of(admin_opcode::GET_LOG_PAGE)
            .with_dword(10, 2 | (bytes_less_one & 0xffff) << 16)
            .with_dword(11, bytes_less_one >> 16)
    };
    let mut controller = ready(ControllerKind::Io);
    assert_eq!(data(run(&mut controller, &entry((1 << 18) - 1), &view(&[]))).len(), 1 << 20);
    let refused = run(&mut controller, &entry(1 << 18), &view(&[]));
    assert_eq!(refused, Err(Status::INVALID_FIELD));
    let refused = run(&mut controller, &entry(u32::MAX), &view(&[]));
    assert_eq!(refused, Err(Status::INVALID_FIELD));
}

#[test]
fn a_host_gets_as_many_queues_as_it_wants_and_there_are() {
    let mut controller = ready(ControllerKind::Io);
    for (wanted, granted) in [(0, 0), (0x0001_0001, 0x0001_0001), (0x003f_003f, 0x0003_0003)] {
        let answer = run(&mut controller, &set(Feature::NumberOfQueues, wanted), &view(&[]));
        assert_eq!(result(answer), granted, "{wanted:#x}");
    }
    let answer = run(&mut controller, &set(Feature::NumberOfQueues, 0xffff), &view(&[]));
    assert_eq!(answer, Err(Status::INVALID_FIELD));
}

#[test]
fn features_are_as_they_were_set_and_as_at_first_after_a_reset() {
    let namespaces = [namespace(1)];
    let view = view(&namespaces);
    let mut controller = ready(ControllerKind::Io);
    let values = [
        (Feature::AsyncEventConfiguration, 0x0000_0900),
        (Feature::KeepAliveTimer, 15_000),
        (Feature::ErrorHandling, 5),
        (Feature::ReservationNotificationMask, 0b1010),
        (Feature::Arbitration, 3),
    ];
    for (feature, value) in values {
        assert_eq!(run(&mut controller, &set(feature, value), &view), Ok(Answer::DONE));
        assert_eq!(result(run(&mut controller, &get(feature, 0), &view)), u64::from(value));
    }
    controller.set_property(offset::CONFIGURATION, false, 0).expect("reset");
    controller.set_property(offset::CONFIGURATION, false, 0x0046_0001).expect("enabled");
    let events = run(&mut controller, &get(Feature::AsyncEventConfiguration, 0), &view);
    assert_eq!(result(events), 0);
}

#[test]
fn what_cannot_be_is_not_set() {
    let namespaces = [namespace(1)];
    let refused = [
        (set(Feature::ErrorHandling, 1 << 16), Status::INVALID_FIELD),
        (set(Feature::PowerManagement, 1), Status::INVALID_FIELD),
        (set(Feature::VolatileWriteCache, 0), Status::FEATURE_NOT_CHANGEABLE),
        (set(Feature::AsyncEventConfiguration, 1 << 20), Status::INVALID_FIELD),
        (set(Feature::ReservationNotificationMask, 1), Status::INVALID_FIELD),
        (
            Submission { namespace: 9.into(), ..set(Feature::ReservationPersistence, 1) },
            Status::INVALID_NAMESPACE,
        ),
    ];
    for (entry, status) in refused {
        let answer = run(&mut ready(ControllerKind::Io), &entry, &view(&namespaces));
        assert_eq!(answer, Err(status), "{entry:?}");
    }
    let persistence = set(Feature::ReservationPersistence, 1);
    let answer = run(&mut ready(ControllerKind::Io), &persistence, &view(&namespaces));
    assert_eq!(answer, Ok(Answer::SetPersistence { namespace: 1, persists: true }));
    let of_discovery =
        run(&mut ready(ControllerKind::Discovery), &set(Feature::NumberOfQueues, 0), &view(&[]));
    assert_eq!(of_discovery, Err(Status::INVALID_FIELD));
}

#[test]
fn every_feature_answers_every_question() {
    let namespaces = [namespace(1)];
    for feature in Feature::ALL {
        for select in 0..4 {
            let entry = get(feature, select);
            let Ok(AdminCommand::GetFeature(get)) = AdminCommand::decode(&entry) else {
                panic!("{feature:?}");
            };
            assert!(select < 3 || get.select == GetFeature::CAPABILITIES);
            let answer = run(&mut ready(ControllerKind::Io), &entry, &view(&namespaces));
            assert!(answer.is_ok(), "{feature:?} {select}: {answer:?}");
        }
    }
    let whole = get(Feature::HostIdentifier, 0).with_dword(11, 1);
    assert_eq!(data(run(&mut ready(ControllerKind::Io), &whole, &view(&[]))), [1; 16]);
}

fn request(controller: &mut Controller, id: u16) -> Result<Answer, Status> {
    let entry = Submission { command: id.into(), ..of(admin_opcode::ASYNC_EVENT_REQUEST) };
    run(controller, &entry, &view(&[]))
}

#[test]
fn an_event_is_told_once_until_its_page_was_read() {
    let mut controller = ready(ControllerKind::Io);
    assert_eq!(request(&mut controller, 50), Ok(Answer::Waits));
    controller.namespace_changed(3);
    assert_eq!(controller.next_event(), None, "the host did not ask for this kind");
    let wanted = set(Feature::AsyncEventConfiguration, 1 << 8);
    run(&mut controller, &wanted, &view(&[])).expect("set");
    // Notice, attribute changed, page 4.
    assert_eq!(controller.next_event(), Some((50, 0x0004_0002)));
    request(&mut controller, 51).expect("waits");
    controller.namespace_changed(4);
    assert_eq!(controller.next_event(), None, "the page was not read yet");
    let page = data(run(&mut controller, &log(page::CHANGED_NAMESPACES, 4096, false), &view(&[])));
    assert_eq!(page[..8], [3, 0, 0, 0, 4, 0, 0, 0]);
    assert_eq!(controller.next_event(), None, "it was all in the page");
    controller.namespace_changed(5);
    assert_eq!(controller.next_event(), Some((51, 0x0004_0002)));
}

#[test]
fn reading_with_rae_keeps_the_event() {
    let mut controller = ready(ControllerKind::Io);
    run(&mut controller, &set(Feature::AsyncEventConfiguration, 1 << 8), &view(&[])).expect("set");
    request(&mut controller, 1).expect("waits");
    request(&mut controller, 2).expect("waits");
    controller.namespace_changed(3);
    assert!(controller.next_event().is_some());
    let kept = log(page::CHANGED_NAMESPACES, 4096, true);
    for _ in 0..2 {
        let page = data(run(&mut controller, &kept, &view(&[])));
        assert_eq!(page[0], 3);
    }
    controller.namespace_changed(4);
    assert_eq!(controller.next_event(), None);
}

#[test]
fn requests_for_events_are_bounded_and_can_be_aborted() {
    let mut controller = ready(ControllerKind::Io);
    assert_eq!(request(&mut controller, 1), Ok(Answer::Waits));
    assert_eq!(request(&mut controller, 2), Ok(Answer::Waits));
    assert_eq!(request(&mut controller, 3), Err(Status::ASYNC_EVENT_LIMIT));
    let abort = of(admin_opcode::ABORT).with_dword(10, 2 << 16);
    let answer = run(&mut controller, &abort, &view(&[]));
    assert_eq!(answer, Ok(Answer::AbortedRequest { command: 2 }));
    assert_eq!(result(run(&mut controller, &abort, &view(&[]))), 1, "it does not wait any more");
    let of_io = of(admin_opcode::ABORT).with_dword(10, 2 << 16 | 3);
    let answer = run(&mut controller, &of_io, &view(&[]));
    assert_eq!(answer, Ok(Answer::Abort { queue: 3, command: 2 }));
    assert_eq!(request(&mut controller, 3), Ok(Answer::Waits));
    assert_eq!(controller.drop_event_requests(), [1, 3]);
}

#[test]
fn reservation_notices_reach_the_host_unless_masked() {
    let namespaces = [namespace(1)];
    let mut controller = ready(ControllerKind::Io);
    let notice = |kind| ReservationNotice { namespace: 1, kind };
    let mask = set(Feature::ReservationNotificationMask, 1 << 2);
    run(&mut controller, &mask, &view(&namespaces)).expect("set");
    controller.reservation_notice(notice(ReservationNoticeKind::ReservationReleased));
    request(&mut controller, 1).expect("waits");
    request(&mut controller, 2).expect("waits");
    assert_eq!(controller.next_event(), None, "masked");
    controller.reservation_notice(notice(ReservationNoticeKind::ReservationPreempted));
    controller.reservation_notice(notice(ReservationNoticeKind::RegistrationPreempted));
    assert_eq!(controller.next_event(), Some((1, 0x0080_0006)));
    assert_eq!(controller.next_event(), None);
    // One page, one notice: the second is told after the first was read.
    let page = data(run(&mut controller, &log(page::RESERVATION, 64, false), &view(&namespaces)));
    assert_eq!((page[8], page[9]), (3, 1));
    assert_eq!(controller.next_event(), Some((2, 0x0080_0006)));
}

#[test]
fn keep_alive_counts_as_traffic() {
    let mut controller = ready(ControllerKind::Io);
    assert!(!controller.keep_alive().has_expired(4999));
    let keep_alive = of(admin_opcode::KEEP_ALIVE);
    assert_eq!(run(&mut controller, &keep_alive, &view(&[])), Ok(Answer::DONE));
    assert!(!controller.keep_alive().has_expired(5000));
    assert!(controller.keep_alive().has_expired(10_000));
}
