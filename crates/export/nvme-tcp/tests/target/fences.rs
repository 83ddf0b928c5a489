//! Reservations: which hosts they keep out, what survives, and that a host without rights no longer
//! writes.

use crate::host::connected;
use crate::queue::{Queue, Wishes, blocks, host, of, pattern};
use crate::server::{Setup, TestTarget};
use ashlar_nvme_protocol::command::{admin_opcode, io_opcode};
use ashlar_nvme_protocol::log::page;
use ashlar_nvme_protocol::pdu::Body;
use ashlar_nvme_protocol::{Status, Submission};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const WRITE_EXCLUSIVE: u32 = 1;
const EXCLUSIVE_ACCESS: u32 = 2;
const PERSIST: u32 = 3 << 30;

fn keys(current: u64, other: u64) -> Vec<u8> {
    [current.to_le_bytes(), other.to_le_bytes()].concat()
}

fn register(queue: &mut Queue, key: u64, persist: u32) -> Status {
    let entry = of(io_opcode::RESERVATION_REGISTER, 1).with_dword(10, persist);
    queue.status(entry, &keys(0, key), 0)
}

fn acquire_entry(action: u32, kind: u32) -> Submission {
    of(io_opcode::RESERVATION_ACQUIRE, 1).with_dword(10, action | kind << 8)
}

fn acquire(queue: &mut Queue, key: u64, kind: u32) -> Status {
    queue.status(acquire_entry(0, kind), &keys(key, 0), 0)
}

fn report(queue: &mut Queue) -> Vec<u8> {
    let entry = of(io_opcode::RESERVATION_REPORT, 1).with_dword(10, 63).with_dword(11, 1);
    queue.good(entry, &[], 256)
}

fn two_hosts(target: &TestTarget) -> [(Queue, Queue); 2] {
    [1, 2].map(|number| {
        let wishes = Wishes { host: host(number), ..Wishes::default() };
        connected(target, &wishes)
    })
}

fn write_status(queue: &mut Queue) -> Status {
    queue.status(blocks(io_opcode::WRITE, 0, 1), &pattern(1, 512), 0)
}

#[test]
fn a_holder_keeps_others_out_until_it_releases() {
    let target = TestTarget::new();
    let [(a, mut one), (b, mut other)] = two_hosts(&target);
    assert_eq!(register(&mut one, 0xa, 0), Status::SUCCESS);
    assert_eq!(acquire(&mut one, 0xa, WRITE_EXCLUSIVE), Status::SUCCESS);
    assert_eq!(write_status(&mut other), Status::RESERVATION_CONFLICT);
    other.read(0, 1);
    assert_eq!(write_status(&mut one), Status::SUCCESS);
    assert_eq!(acquire(&mut other, 0xb, WRITE_EXCLUSIVE), Status::RESERVATION_CONFLICT);
    let told = report(&mut other);
    assert_eq!((told[4], told[5], told[66], told[72], told[80]), (1, 1, 1, 0xa, 1));
    assert_ne!(told[64..66], [0xff, 0xff], "its controller is connected");
    let release = of(io_opcode::RESERVATION_RELEASE, 1).with_dword(10, WRITE_EXCLUSIVE << 8);
    one.good(release, &0xa_u64.to_le_bytes(), 0);
    assert_eq!(write_status(&mut other), Status::SUCCESS);
    assert_eq!(target.count(|counters| &counters.reservation_conflicts), 1);
    drop((a, b, one, other));
    target.stop();
}

/// The host that preempts is answered only when no write of the other is under way: a node that was
/// fenced off must not write after the node that fenced it has begun.
#[test]
fn a_preemption_waits_for_writes_that_are_under_way() {
    let target = TestTarget::new();
    let [(a, mut one), (b, mut other)] = two_hosts(&target);
    for (queue, key) in [(&mut one, 0xa), (&mut other, 0xb)] {
        assert_eq!(register(queue, key, 0), Status::SUCCESS);
    }
    assert_eq!(acquire(&mut other, 0xb, WRITE_EXCLUSIVE), Status::SUCCESS);
    let disk = target.disk();
    disk.is_held.store(true, Ordering::SeqCst);
    // The write of the host that loses is with the volume, and stays there.
    let late = other.start(blocks(io_opcode::WRITE, 0, 1), &[0xbb; 512], 0);
    let written = |it: &TestTarget| it.count(|counters| &counters.writes);
    target.until(|it| written(it) == 1);
    other.read(8, 1);
    let preempts = one.start(acquire_entry(1, EXCLUSIVE_ACCESS), &keys(0xa, 0xb), 0);
    // Soon nothing of the other passes; its reads are not held up by the disk.
    let read = blocks(io_opcode::READ, 8, 1);
    while other.status(read, &[], 512) != Status::RESERVATION_CONFLICT {}
    one.stream.set_nonblocking(true).unwrap();
    let mut byte = [0];
    let early = std::io::Read::read(&mut one.stream, &mut byte);
    assert!(early.is_err(), "answered while the other's write was under way");
    one.stream.set_nonblocking(false).unwrap();
    disk.is_held.store(false, Ordering::SeqCst);
    let ended = |queue: &mut Queue, id| match queue.receive().0 {
        Body::CapsuleResp(completion) => {
            assert_eq!((completion.command.get(), completion.status()), (id, Status::SUCCESS));
        }
        other => panic!("{other:?}"),
    };
    ended(&mut one, preempts);
    ended(&mut other, late);
    assert_eq!(write_status(&mut one), Status::SUCCESS);
    drop((a, b, one, other));
    target.stop();
}

/// A write that was admitted before the preemption, and whose data comes after it, is kept out.
#[test]
fn data_that_was_asked_for_before_a_preemption_is_not_written_after_it() {
    let target = TestTarget::new();
    let [(a, mut one), (b, mut other)] = two_hosts(&target);
    assert_eq!(register(&mut one, 0xa, 0), Status::SUCCESS);
    let payload = vec![0xbb; 65_536];
    let late = other.start(blocks(io_opcode::WRITE, 0, 128), &payload, 0);
    let Body::R2t(r2t) = other.receive().0 else { panic!("nothing was asked for") };
    assert_eq!(acquire(&mut one, 0xa, WRITE_EXCLUSIVE), Status::SUCCESS);
    other.send_asked(&r2t, &payload, 65_536);
    let Body::CapsuleResp(completion) = other.receive().0 else { panic!("no answer") };
    let wanted = (late, Status::RESERVATION_CONFLICT);
    assert_eq!((completion.command.get(), completion.status()), wanted);
    assert_eq!(one.read(0, 1), vec![0; 512]);
    drop((a, b, one, other));
    target.stop();
}

#[test]
fn reservations_survive_a_restart_and_persistent_ones_a_reboot() {
    for (persist, reboots, survives) in
        [(0, false, true), (PERSIST, false, true), (PERSIST, true, true), (0, true, false)]
    {
        let target = TestTarget::new();
        let kept = Arc::clone(&target.kept);
        let [(a, mut one), (b, other)] = two_hosts(&target);
        assert_eq!(register(&mut one, 0xa, persist), Status::SUCCESS);
        assert_eq!(acquire(&mut one, 0xa, WRITE_EXCLUSIVE), Status::SUCCESS);
        drop((a, b, one, other));
        target.stop();
        kept.has_rebooted.store(reboots, Ordering::SeqCst);
        let target = TestTarget::with(Setup { kept, ..Setup::default() });
        let [(a, mut one), (b, mut other)] = two_hosts(&target);
        let wanted = if survives { Status::RESERVATION_CONFLICT } else { Status::SUCCESS };
        assert_eq!(write_status(&mut other), wanted, "{persist:#x} {reboots}");
        assert_eq!(write_status(&mut one), Status::SUCCESS);
        drop((a, b, one, other));
        target.stop();
    }
}

#[test]
fn a_change_that_cannot_be_stored_is_refused_and_did_not_happen() {
    let target = TestTarget::new();
    let [(a, mut one), (b, mut other)] = two_hosts(&target);
    assert_eq!(register(&mut one, 0xa, 0), Status::SUCCESS);
    target.kept.is_failing.store(true, Ordering::SeqCst);
    assert_eq!(acquire(&mut one, 0xa, WRITE_EXCLUSIVE), Status::INTERNAL_ERROR);
    assert_eq!(report(&mut one)[4], 0, "nothing is held");
    assert_eq!(write_status(&mut other), Status::SUCCESS);
    target.kept.is_failing.store(false, Ordering::SeqCst);
    assert_eq!(acquire(&mut one, 0xa, WRITE_EXCLUSIVE), Status::SUCCESS);
    drop((a, b, one, other));
    target.stop();
}

#[test]
fn a_volume_whose_reservations_cannot_be_known_is_not_served() {
    let target = TestTarget::new();
    let kept = Arc::clone(&target.kept);
    let [(a, mut one), (b, other)] = two_hosts(&target);
    assert_eq!(register(&mut one, 0xa, PERSIST), Status::SUCCESS);
    drop((a, b, one, other));
    target.stop();
    kept.stored.lock().unwrap().get_mut(&[1; 16]).unwrap()[30] ^= 1;
    let target = TestTarget::with(Setup { kept, disks: Vec::new(), ..Setup::default() });
    target.disks.lock().unwrap().push(crate::server::Disk::new("disk", 1, 2048));
    let left_out = target.refresh();
    assert_eq!(left_out.len(), 1);
    assert!(left_out[0].contains("'disk' is not served"), "{left_out:?}");
    assert!(target.target.namespaces().is_empty());
    target.stop();
}

#[test]
fn a_host_that_was_preempted_is_told() {
    let target = TestTarget::new();
    let [(a, mut one), (mut b, mut other)] = two_hosts(&target);
    assert_eq!(register(&mut one, 0xa, 0), Status::SUCCESS);
    assert_eq!(register(&mut other, 0xb, 0), Status::SUCCESS);
    let event = b.start(of(admin_opcode::ASYNC_EVENT_REQUEST, 0), &[], 0);
    one.good(acquire_entry(1, WRITE_EXCLUSIVE), &keys(0xa, 0xb), 0);
    let Body::CapsuleResp(completion) = b.receive().0 else { panic!("no event") };
    assert_eq!((completion.command.get(), completion.result.get()), (event, 0x80_0006));
    let told = b.log(page::RESERVATION, 64);
    assert_eq!((told[8], told[12]), (1, 1), "its registration was preempted, namespace 1");
    drop((a, b, one, other));
    target.stop();
}

#[test]
fn persistence_is_a_feature_too() {
    let target = TestTarget::new();
    let (mut admin, queue) = connected(&target, &Wishes::default());
    let feature = |opcode, value| of(opcode, 1).with_dword(10, 0x83).with_dword(11, value);
    let get = feature(admin_opcode::GET_FEATURES, 0);
    assert_eq!(admin.run(get, &[], 0).0.result.get(), 0);
    admin.good(feature(admin_opcode::SET_FEATURES, 1), &[], 0);
    assert_eq!(admin.run(get, &[], 0).0.result.get(), 1);
    target.kept.is_failing.store(true, Ordering::SeqCst);
    let refused = admin.status(feature(admin_opcode::SET_FEATURES, 0), &[], 0);
    assert_eq!(refused, Status::INTERNAL_ERROR);
    assert_eq!(admin.run(get, &[], 0).0.result.get(), 1);
    drop((admin, queue));
    target.stop();
}

#[test]
fn only_the_extended_report_is_given() {
    let target = TestTarget::new();
    let (admin, mut queue) = connected(&target, &Wishes::default());
    let short = of(io_opcode::RESERVATION_REPORT, 1).with_dword(10, 5);
    assert_eq!(queue.status(short, &[], 24), Status::INVALID_FIELD);
    assert_eq!(report(&mut queue).len(), 256);
    drop((admin, queue));
    target.stop();
}
