//! Controllers: discovery, the way to a queue, events, Abort, keep-alive, reset.

use crate::host::{admin, connected, io};
use crate::queue::{Queue, Wishes, blocks, host, of, pattern};
use crate::server::{Disk, NQN, Setup, TestTarget};
use ashlar_nvme_protocol::command::{
    DYNAMIC_CONTROLLER, FabricsCommand, InvalidParameter, admin_opcode, io_opcode,
};
use ashlar_nvme_protocol::identify::structure;
use ashlar_nvme_protocol::log::{page, parse_discovery_page};
use ashlar_nvme_protocol::nqn::Nqn;
use ashlar_nvme_protocol::pdu::Body;
use ashlar_nvme_protocol::property::offset;
use ashlar_nvme_protocol::{Completion, Status};
use std::sync::atomic::Ordering;

fn discovery() -> Wishes {
    Wishes { subsystem: Nqn::discovery(), ..Wishes::default() }
}

fn set_feature(feature: u32, value: u32) -> ashlar_nvme_protocol::Submission {
    of(admin_opcode::SET_FEATURES, 1).with_dword(10, feature).with_dword(11, value)
}

#[test]
fn discovery_tells_where_the_subsystem_is() {
    let target = TestTarget::new();
    let (mut queue, _) = admin(&target, &discovery());
    let controller = queue.identify(structure::CONTROLLER, 0);
    assert_eq!(controller[111], 2, "a discovery controller");
    let entries = parse_discovery_page(&queue.log(page::DISCOVERY, 2048));
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].subsystem.as_str(), NQN);
    assert_eq!(entries[0].portal.address.to_string(), "192.0.2.1:4420");
    // It has no namespaces and no I/O queues.
    let list = of(admin_opcode::IDENTIFY, 0).with_dword(10, 2);
    assert_eq!(queue.status(list, &[], 4096), Status::INVALID_FIELD);
    drop(queue);
    target.stop();
}

#[test]
fn a_change_of_addresses_is_told_to_discovery_controllers() {
    let target = TestTarget::new();
    let (mut queue, _) = admin(&target, &discovery());
    queue.good(set_feature(0x0b, 1 << 31), &[], 0);
    let event = queue.start(of(admin_opcode::ASYNC_EVENT_REQUEST, 0), &[], 0);
    target.target.set_portals(vec!["192.0.2.1:4420".parse().unwrap(); 2]);
    let Body::CapsuleResp(completion) = queue.receive().0 else { panic!("no event") };
    assert_eq!((completion.command.get(), completion.result.get()), (event, 0x70_f002));
    assert_eq!(parse_discovery_page(&queue.log(page::DISCOVERY, 4096)).len(), 2);
    drop(queue);
    target.stop();
}

#[test]
fn a_host_finds_controller_and_namespaces() {
    let disks = vec![Disk::new("a", 1, 2048), Disk::new("b", 2, 4096)];
    let target = TestTarget::with(Setup { disks, ..Setup::default() });
    let (mut queue, id) = admin(&target, &Wishes::default());
    let controller = queue.identify(structure::CONTROLLER, 0);
    assert_eq!((controller[111], controller[77]), (1, 8));
    assert_eq!(u16::from_le_bytes([controller[78], controller[79]]), id);
    assert_eq!(
        queue.identify(structure::ACTIVE_LIST, 0)[..12],
        [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]
    );
    let second = queue.identify(structure::NAMESPACE, 2);
    assert_eq!(second[..8], 4096_u64.to_le_bytes());
    assert_eq!(second[104..120], [2; 16], "NGUID is the volume's UUID");
    let descriptors = queue.identify(structure::DESCRIPTORS, 2);
    assert_eq!((descriptors[0], &descriptors[4..20]), (2, &[2; 16][..]));
    assert_eq!(queue.log(page::ANA, 56)[48..], [1, 0, 0, 0, 2, 0, 0, 0]);
    drop(queue);
    target.stop();
}

#[test]
fn a_connect_that_is_wrong_says_where() {
    let target = TestTarget::new();
    let try_connect = |wishes: &Wishes, number: u16, controller: u16| -> Completion {
        let mut queue = Queue::greeted(target.connect(0), wishes);
        queue.connect(wishes, number, controller)
    };
    let wishes = Wishes::default();
    let refused = |completion: Completion| (completion.status(), completion.result.get());
    let invalid =
        |parameter: InvalidParameter| (Status::CONNECT_INVALID_PARAMETERS, parameter.result());
    let other = Wishes { subsystem: "nqn.other".parse().unwrap(), ..wishes.clone() };
    let subsystem = invalid(InvalidParameter::SUBSYSTEM);
    assert_eq!(refused(try_connect(&other, 0, DYNAMIC_CONTROLLER)), subsystem);
    assert_eq!(refused(try_connect(&wishes, 0, 5)), invalid(InvalidParameter::CONTROLLER));
    let short = Wishes { entries_less_one: 0, ..wishes.clone() };
    let entries = invalid(InvalidParameter::ENTRIES);
    assert_eq!(refused(try_connect(&short, 0, DYNAMIC_CONTROLLER)), entries);
    let long = Wishes { entries_less_one: 128, ..wishes.clone() };
    assert_eq!(refused(try_connect(&long, 0, DYNAMIC_CONTROLLER)), entries);
    // I/O queues: of no controller, of another host's, too many, twice.
    let unknown = invalid(InvalidParameter::CONTROLLER);
    assert_eq!(refused(try_connect(&wishes, 1, 999)), unknown);
    let (admin, id) = admin(&target, &wishes);
    let stranger = Wishes { host: host(2), ..wishes.clone() };
    assert_eq!(refused(try_connect(&stranger, 1, id)), invalid(InvalidParameter::HOST_NQN));
    let mut twin = wishes.clone();
    twin.host.id = host(2).id;
    assert_eq!(refused(try_connect(&twin, 1, id)), invalid(InvalidParameter::HOST_ID));
    assert_eq!(refused(try_connect(&wishes, 65, id)), invalid(InvalidParameter::QUEUE));
    let first = io(&target, &wishes, (1, id), 1);
    assert_eq!(try_connect(&wishes, 1, id).status(), Status::SEQUENCE_ERROR);
    drop((admin, first));
    target.stop();
}

#[test]
fn a_controller_must_be_enabled_before_it_has_io_queues() {
    let target = TestTarget::new();
    let wishes = Wishes::default();
    let mut admin = Queue::greeted(target.connect(0), &wishes);
    let completion = admin.connect(&wishes, 0, DYNAMIC_CONTROLLER);
    let id = u16::try_from(completion.result.get()).unwrap();
    assert_eq!(admin.status(of(admin_opcode::KEEP_ALIVE, 0), &[], 0), Status::SEQUENCE_ERROR);
    let mut io = Queue::greeted(target.connect(1), &wishes);
    assert_eq!(io.connect(&wishes, 1, id).status(), Status::SEQUENCE_ERROR);
    drop((admin, io));
    target.stop();
}

#[test]
fn anything_before_connect_is_a_sequence_error() {
    let target = TestTarget::new();
    let mut queue = Queue::greeted(target.connect(0), &Wishes::default());
    let get = FabricsCommand::PropertyGet { offset: 0, is_wide: true };
    assert_eq!(queue.status(get.encode(), &[], 0), Status::SEQUENCE_ERROR);
    assert_eq!(queue.status(of(admin_opcode::IDENTIFY, 0), &[], 4096), Status::INVALID_OPCODE);
    let connected = queue.connect(&Wishes::default(), 0, DYNAMIC_CONTROLLER);
    assert_eq!(connected.status(), Status::SUCCESS);
    drop(queue);
    target.stop();
}

#[test]
fn growth_is_told_and_used_at_once() {
    let target = TestTarget::new();
    let (mut admin, mut queue) = connected(&target, &Wishes::default());
    admin.good(set_feature(0x0b, 1 << 8), &[], 0);
    let event = admin.start(of(admin_opcode::ASYNC_EVENT_REQUEST, 0), &[], 0);
    assert_eq!(
        queue.status(blocks(io_opcode::READ, 40_000, 1), &[], 512),
        Status::LBA_OUT_OF_RANGE
    );
    let disk = target.disk();
    disk.facts.lock().unwrap().size_bytes *= 2;
    disk.bytes.lock().unwrap().resize(65_536 * 512, 0x77);
    assert!(target.refresh().is_empty());
    let Body::CapsuleResp(completion) = admin.receive().0 else { panic!("no event") };
    assert_eq!((completion.command.get(), completion.result.get()), (event, 0x04_0002));
    assert_eq!(admin.log(page::CHANGED_NAMESPACES, 4096)[..4], [1, 0, 0, 0]);
    assert_eq!(admin.identify(structure::NAMESPACE, 1)[..8], 65_536_u64.to_le_bytes());
    // The queue is told by a message of its own.
    while queue.status(blocks(io_opcode::READ, 40_000, 1), &[], 512) != Status::SUCCESS {}
    assert_eq!(queue.read(40_000, 1), vec![0x77; 512]);
    drop((admin, queue));
    target.stop();
}

#[test]
fn a_namespace_that_goes_is_let_go_of() {
    let disks = vec![Disk::new("a", 1, 2048), Disk::new("b", 2, 2048)];
    let target = TestTarget::with(Setup { disks, ..Setup::default() });
    let (mut admin, mut queue) = connected(&target, &Wishes::default());
    queue.read(0, 1);
    assert_eq!((target.target.users_of("a"), target.target.users_of("b")), (1, 0));
    let left = target.target.withdraw("a");
    target.until(|_| left() == 0);
    assert_eq!(queue.status(blocks(io_opcode::READ, 0, 1), &[], 512), Status::INVALID_NAMESPACE);
    assert_eq!(admin.identify(structure::ACTIVE_LIST, 0)[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
    // It comes back with the next look.
    assert!(target.refresh().is_empty());
    queue.read(0, 1);
    drop((admin, queue));
    target.stop();
}

#[test]
fn an_abort_gives_up_what_has_not_begun_and_nothing_else() {
    let mut setup = Setup::default();
    setup.limits.session.slots = 1;
    let target = TestTarget::with(setup);
    let (mut admin, mut queue) = connected(&target, &Wishes::default());
    let disk = target.disk();
    disk.is_held.store(true, Ordering::SeqCst);
    let abort = |queue: u16, command: u16| {
        of(admin_opcode::ABORT, 0).with_dword(10, u32::from(command) << 16 | u32::from(queue))
    };
    let first = queue.start(blocks(io_opcode::WRITE, 0, 1), &pattern(1, 512), 0);
    let second = queue.start(blocks(io_opcode::WRITE, 1, 1), &pattern(2, 512), 0);
    let third = queue.start(blocks(io_opcode::WRITE, 2, 1), &pattern(3, 512), 0);
    // The one slot has the first, the line's head the second; the third waits.
    let mut aborted = |command| admin.run(abort(1, command), &[], 0).0.result.get();
    // Each queue is read on its own: the target may not have seen the third yet.
    let is_given_up = (0..1_000_000).any(|_| aborted(third) == 0);
    assert!(is_given_up, "given up");
    assert_eq!(aborted(third), 1, "not there any more");
    assert_eq!(aborted(first), 1, "under way");
    assert_eq!(admin.run(abort(9, first), &[], 0).0.result.get(), 1, "no such queue");
    let Body::CapsuleResp(completion) = queue.receive().0 else { panic!("no answer") };
    assert_eq!((completion.command.get(), completion.status()), (third, Status::ABORT_REQUESTED));
    disk.is_held.store(false, Ordering::SeqCst);
    for id in [first, second] {
        let Body::CapsuleResp(completion) = queue.receive().0 else { panic!("no answer") };
        assert_eq!((completion.command.get(), completion.status()), (id, Status::SUCCESS));
    }
    assert_eq!(queue.read(2, 1), vec![0; 512]);
    // A request for an event.
    let event = admin.start(of(admin_opcode::ASYNC_EVENT_REQUEST, 0), &[], 0);
    let id = admin.start(abort(0, event), &[], 0);
    for (wanted, status) in [(event, Status::ABORT_REQUESTED), (id, Status::SUCCESS)] {
        let Body::CapsuleResp(completion) = admin.receive().0 else { panic!("no answer") };
        assert_eq!((completion.command.get(), completion.status()), (wanted, status));
    }
    drop((admin, queue));
    target.stop();
}

#[test]
fn a_silent_host_is_given_up_with_all_its_queues_and_others_are_not() {
    let target = TestTarget::new();
    let silent = Wishes { host: host(2), keep_alive_ms: 2000, ..Wishes::default() };
    let (mut admin, mut queue) = connected(&target, &Wishes::default());
    let (silent_admin, silent_queue) = connected(&target, &silent);
    assert_eq!(silent_admin.expect_end(), None);
    assert_eq!(silent_queue.expect_end(), None);
    assert_eq!(target.count(|counters| &counters.keep_alive_expired), 1);
    queue.read(0, 1);
    admin.good(of(admin_opcode::KEEP_ALIVE, 0), &[], 0);
    drop((admin, queue));
    target.until(|it| it.ends.lock().unwrap().iter().any(|end| end.contains("silent")));
    target.stop();
}

#[test]
fn reads_on_an_io_queue_keep_a_controller_alive() {
    let target = TestTarget::new();
    let wishes = Wishes { keep_alive_ms: 2000, ..Wishes::default() };
    let (admin, mut queue) = connected(&target, &wishes);
    let start = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec;
    // Five seconds are more than two timeouts.
    while rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec < start + 6 {
        queue.read(0, 1);
    }
    assert_eq!(target.count(|counters| &counters.keep_alive_expired), 0);
    drop((admin, queue));
    target.stop();
}

#[test]
fn a_reset_ends_io_queues_and_the_controller_can_be_enabled_again() {
    let target = TestTarget::new();
    let wishes = Wishes::default();
    let (mut admin, id) = admin(&target, &wishes);
    let queue = io(&target, &wishes, (1, id), 1);
    let event = admin.start(of(admin_opcode::ASYNC_EVENT_REQUEST, 0), &[], 0);
    assert_eq!(admin.set_property(offset::CONFIGURATION, 0), Status::SUCCESS);
    assert_eq!(queue.expect_end(), None);
    assert_eq!(admin.property(offset::STATUS, false), 0);
    assert_eq!(admin.set_property(offset::CONFIGURATION, 0x0046_0001), Status::SUCCESS);
    let mut queue = io(&target, &wishes, (1, id), 0);
    queue.read(0, 1);
    // The identifier of the request that went with the reset is free.
    admin.next_id();
    let again = admin.run(of(admin_opcode::KEEP_ALIVE, 0), &[], 0).0;
    assert!(again.command.get() > event);
    drop((admin, queue));
    target.stop();
}

#[test]
fn a_shutdown_ends_io_queues_and_says_that_it_is_complete() {
    let target = TestTarget::new();
    let (mut admin, queue) = connected(&target, &Wishes::default());
    assert_eq!(admin.set_property(offset::CONFIGURATION, 0x0046_4001), Status::SUCCESS);
    assert_eq!(queue.expect_end(), None);
    while admin.property(offset::STATUS, false) != 0b1001 {}
    assert_eq!(target.disk().flushes.load(Ordering::Relaxed), 1, "what was answered is durable");
    drop(admin);
    target.stop();
}

#[test]
fn a_shutdown_that_cannot_make_everything_durable_says_so() {
    let target = TestTarget::new();
    let (mut admin, queue) = connected(&target, &Wishes::default());
    target.disk().is_sick.store(true, Ordering::SeqCst);
    assert_eq!(admin.set_property(offset::CONFIGURATION, 0x0046_4001), Status::SUCCESS);
    // CFS, and never "complete".
    while admin.property(offset::STATUS, false) != 0b0111 {}
    drop((admin, queue));
    target.stop();
}

/// A host that saw its queue end connects it again at once, under the same number: the number must
/// be free by then.
#[test]
fn the_number_of_a_queue_is_free_before_its_host_sees_its_end() {
    let target = TestTarget::new();
    let wishes = Wishes::default();
    let (mut admin, id) = admin(&target, &wishes);
    for round in 0..200 {
        let queue = io(&target, &wishes, (1, id), round % 2);
        assert_eq!(admin.set_property(offset::CONFIGURATION, 0), Status::SUCCESS);
        assert_eq!(queue.expect_end(), None);
        assert_eq!(admin.set_property(offset::CONFIGURATION, 0x0046_0001), Status::SUCCESS);
    }
    drop(admin);
    target.stop();
}

#[test]
fn io_queues_end_with_their_admin_queue() {
    let target = TestTarget::new();
    let (admin, queue) = connected(&target, &Wishes::default());
    drop(admin);
    assert_eq!(queue.expect_end(), None);
    target.stop();
}

#[test]
fn disconnect_ends_an_io_queue_and_its_number_is_free_again() {
    let target = TestTarget::new();
    let wishes = Wishes::default();
    let (admin, id) = admin(&target, &wishes);
    let mut queue = io(&target, &wishes, (1, id), 1);
    assert_eq!(queue.status(FabricsCommand::Disconnect.encode(), &[], 0), Status::SUCCESS);
    assert_eq!(queue.expect_end(), None);
    let open = |it: &TestTarget| it.count(|counters| &counters.sessions.open);
    target.until(|it| open(it) == 1);
    io(&target, &wishes, (1, id), 0).read(0, 1);
    drop(admin);
    target.stop();
}

#[test]
fn no_more_controllers_than_the_limit() {
    let mut setup = Setup::default();
    setup.limits.controllers_max = 2;
    let target = TestTarget::with(setup);
    let wishes = Wishes::default();
    let two = [admin(&target, &wishes), admin(&target, &wishes)];
    assert_ne!(two[0].1, two[1].1);
    let mut third = Queue::greeted(target.connect(0), &wishes);
    assert_eq!(third.connect(&wishes, 0, DYNAMIC_CONTROLLER).status(), Status::CONNECT_BUSY);
    assert_eq!(target.target.hosts(), [(wishes.host.nqn.to_string(), 2)]);
    drop((two, third));
    target.stop();
}
