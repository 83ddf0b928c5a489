//! Reads, writes and the rest of the I/O commands, in every way in which data can travel.

use crate::host::{admin, connected, io};
use crate::queue::BLOCK;
use crate::queue::{Queue, Wishes, blocks, of, pattern};
use crate::server::{Disk, Setup, TestTarget};
use ashlar_nvme_protocol::command::io_opcode;
use ashlar_nvme_protocol::pdu::Body;
use ashlar_nvme_protocol::{Sgl, Status, Submission};
use ashlar_units::Extent;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

#[test]
fn data_written_on_one_queue_is_read_on_another_whatever_was_agreed() {
    for digests in [(false, false), (true, false), (false, true), (true, true)] {
        for hpda in [0, 3, 31] {
            for without_flow_control in [false, true] {
                let wishes = Wishes { digests, hpda, without_flow_control, ..Wishes::default() };
                let target = TestTarget::new();
                let (admin, id) = admin(&target, &wishes);
                let mut one = io(&target, &wishes, (1, id), 0);
                let mut other = io(&target, &wishes, (2, id), 1);
                // In the capsule, at its limit, and by R2T in one piece and in many.
                for (seed, bytes) in [(1, 512), (2, 8192), (3, 16_384), (4, 1 << 20)] {
                    let data = pattern(seed, bytes);
                    let first = u32::from(seed) * 4096;
                    one.write(first, &data);
                    let count = u32::try_from(bytes / BLOCK).unwrap();
                    let is_same = other.read(first, count) == data;
                    assert!(is_same, "{digests:?} {hpda} {bytes}");
                }
                drop((admin, one, other));
                target.stop();
            }
        }
    }
}

#[test]
fn with_flow_control_every_command_has_its_completion_and_the_head_moves() {
    let target = TestTarget::new();
    let (admin, mut queue) = connected(&target, &Wishes::default());
    // Connect was the first.
    for head in 2..20 {
        let (completion, data) = queue.run(blocks(io_opcode::READ, 0, 8), &[], 4096);
        assert_eq!((completion.queue_head.get(), data.len()), (head, 4096));
    }
    drop((admin, queue));
    target.stop();
}

#[test]
fn flush_and_fua_reach_the_volume() {
    let target = TestTarget::new();
    let (admin, mut queue) = connected(&target, &Wishes::default());
    let disk = target.disk();
    queue.good(of(io_opcode::FLUSH, 1), &[], 0);
    assert_eq!(disk.flushes.load(Ordering::Relaxed), 1);
    let fua = 1 << 30;
    let write = blocks(io_opcode::WRITE, 0, 1).with_dword(12, fua);
    queue.good(write, &pattern(1, BLOCK), 0);
    let zeroes = blocks(io_opcode::WRITE_ZEROES, 8, 1).with_dword(12, fua | 7);
    queue.good(zeroes, &[], 0);
    assert_eq!(disk.durable_writes.load(Ordering::Relaxed), 2);
    // What is read with FUA is durable.
    queue.good(blocks(io_opcode::READ, 0, 1).with_dword(12, fua), &[], 512);
    assert_eq!(disk.flushes.load(Ordering::Relaxed), 2);
    drop((admin, queue));
    target.stop();
}

fn ranges(list: &[(u32, u64)]) -> Vec<u8> {
    let range = |(count, first): &(u32, u64)| {
        [&[0; 4][..], &count.to_le_bytes(), &first.to_le_bytes()].concat()
    };
    list.iter().flat_map(range).collect()
}

#[test]
fn zeroes_and_deallocated_ranges_read_as_zeros() {
    let target = TestTarget::new();
    let (admin, mut queue) = connected(&target, &Wishes::default());
    queue.write(0, &pattern(9, 64 * BLOCK));
    queue.good(blocks(io_opcode::WRITE_ZEROES, 8, 8), &[], 0);
    assert_eq!(queue.read(8, 8), vec![0; 8 * BLOCK]);
    let dsm = |deallocate: bool, count: u32| {
        of(io_opcode::DATASET_MANAGEMENT, 1)
            .with_dword(10, count - 1)
            .with_dword(11, if deallocate { 4 } else { 1 })
    };
    // A hint changes nothing.
    queue.good(dsm(false, 1), &ranges(&[(8, 32)]), 0);
    assert_ne!(queue.read(32, 8), vec![0; 8 * BLOCK]);
    // All 256 entries are sent, two count.
    let mut list = ranges(&[(8, 32), (0, 40), (4, 48)]);
    list.resize(4096, 0xee);
    queue.good(dsm(true, 3), &list, 0);
    assert_eq!(queue.read(32, 8), vec![0; 8 * BLOCK]);
    assert_eq!(queue.read(48, 4), vec![0; 4 * BLOCK]);
    assert_ne!(queue.read(40, 8), vec![0; 8 * BLOCK]);
    // One range too far, and none is given back.
    let beyond = ranges(&[(8, 0), (8, 1 << 40)]);
    assert_eq!(queue.status(dsm(true, 2), &beyond, 0), Status::LBA_OUT_OF_RANGE);
    assert_ne!(queue.read(0, 8), vec![0; 8 * BLOCK]);
    drop((admin, queue));
    target.stop();
}

#[test]
fn compare_tells_same_from_other_in_capsules_and_by_r2t() {
    let target = TestTarget::new();
    let (admin, mut queue) = connected(&target, &Wishes::default());
    for bytes in [BLOCK, 65_536] {
        let mut data = pattern(5, bytes);
        let count = u32::try_from(bytes / BLOCK).unwrap();
        queue.write(0, &data);
        assert_eq!(queue.status(blocks(io_opcode::COMPARE, 0, count), &data, 0), Status::SUCCESS);
        data[bytes - 1] ^= 1;
        let other = queue.status(blocks(io_opcode::COMPARE, 0, count), &data, 0);
        assert_eq!(other, Status::COMPARE_FAILURE);
    }
    drop((admin, queue));
    target.stop();
}

#[test]
fn what_cannot_be_done_is_refused_by_name_and_the_queue_goes_on() {
    let target = TestTarget::new();
    let (admin, mut queue) = connected(&target, &Wishes::default());
    let data = pattern(1, BLOCK);
    let sgl = |queue: &mut Queue, entry: Submission, kind: u8| {
        // By hand: the SGL is another than the capsule's.
        let id = queue.next_id();
        let mut raw = Sgl::Transport { bytes: 512 }.encode();
        raw[15] = kind;
        let entry = Submission { command: id.into(), sgl: raw, ..entry };
        queue.send(&Body::CapsuleCmd(entry), &[]);
        match queue.receive().0 {
            Body::CapsuleResp(completion) => completion.status(),
            other => panic!("{other:?}"),
        }
    };
    let read = |first, count| blocks(io_opcode::READ, first, count);
    let write = |first, count| blocks(io_opcode::WRITE, first, count);
    let beyond = Status::LBA_OUT_OF_RANGE;
    assert_eq!(queue.status(read(32_768, 1), &[], 512), beyond);
    assert_eq!(queue.status(write(32_767, 2), &pattern(1, 1024), 0), beyond);
    assert_eq!(queue.status(read(0, 1).with_dword(11, u32::MAX), &[], 512), beyond);
    assert_eq!(queue.status(read(0, 1), &[], 1024), Status::SGL_LENGTH_INVALID);
    assert_eq!(queue.status(write(0, 2), &data, 0), Status::SGL_LENGTH_INVALID);
    // One block more than the most that a command may move.
    assert_eq!(queue.status(read(0, 2049), &[], 2049 * 512), Status::INVALID_FIELD);
    let other_namespace = Submission { namespace: 2.into(), ..read(0, 1) };
    assert_eq!(queue.status(other_namespace, &[], 512), Status::INVALID_NAMESPACE);
    let everywhere = Submission { namespace: u32::MAX.into(), ..read(0, 1) };
    assert_eq!(queue.status(everywhere, &[], 512), Status::INVALID_NAMESPACE);
    assert_eq!(queue.status(of(0x55, 1), &[], 0), Status::INVALID_OPCODE);
    let prp = Submission { flags: 0, ..read(0, 1) };
    assert_eq!(queue.status(prp, &[], 512), Status::INVALID_FIELD);
    assert_eq!(sgl(&mut queue, read(0, 1), 0x00), Status::SGL_TYPE_INVALID);
    assert_eq!(sgl(&mut queue, read(0, 1), 0x40), Status::SGL_TYPE_INVALID);
    queue.write(0, &data);
    assert_eq!(queue.read(0, 1), data);
    let submitted = target.disk().submitted.load(Ordering::Relaxed);
    assert_eq!(submitted, 2, "nothing of it reached the volume");
    drop((admin, queue));
    target.stop();
}

#[test]
fn failures_of_the_volume_have_their_status() {
    let read_only = Disk::new("disk", 1, 2048);
    read_only.facts.lock().unwrap().read_only = true;
    let broken = Disk::new("broken", 2, 2048);
    *broken.failing.lock().unwrap() = Some(Extent::new(4096, 512));
    let disks = vec![read_only, broken];
    let target = TestTarget::with(Setup { disks, ..Setup::default() });
    let (admin, mut queue) = connected(&target, &Wishes::default());
    let data = pattern(1, BLOCK);
    let write = blocks(io_opcode::WRITE, 0, 1);
    assert_eq!(queue.status(write, &data, 0), Status::WRITE_PROTECTED);
    assert_eq!(
        queue.status(blocks(io_opcode::WRITE_ZEROES, 0, 1), &[], 0),
        Status::WRITE_PROTECTED
    );
    queue.good(of(io_opcode::FLUSH, 1), &[], 0);
    let second = |entry: Submission| Submission { namespace: 2.into(), ..entry };
    let read = second(blocks(io_opcode::READ, 8, 1));
    assert_eq!(queue.status(read, &[], 512), Status::UNRECOVERED_READ);
    let write = second(blocks(io_opcode::WRITE, 8, 1));
    assert_eq!(queue.status(write, &data, 0), Status::WRITE_FAULT);
    assert_eq!(target.count(|counters| &counters.media_errors), 2);
    drop((admin, queue));
    target.stop();
}

/// More commands than slots, more bytes than credit, more buffers than the pool: everything is
/// answered, because what waits is never in the way of the data that it waits for.
#[test]
fn a_full_queue_of_long_writes_is_carried_out() {
    let setup = Setup { buffers: 1, ..Setup::default() };
    let target = TestTarget::with(setup);
    let (admin, mut queue) = connected(&target, &Wishes::default());
    // 64 KiB by R2T and 4 KiB in capsules in turns: the capsules stand between R2Ts and their data.
    let mut data = BTreeMap::new();
    for number in 0..126_u32 {
        let bytes = if number % 2 == 0 { 65_536 } else { 4096 };
        let payload = pattern(u8::try_from(number).unwrap(), bytes);
        let count = u32::try_from(bytes / BLOCK).unwrap();
        let id = queue.start(blocks(io_opcode::WRITE, number * 128, count), &payload, 0);
        data.insert(id, (number, payload));
    }
    let mut answered = 0;
    while answered < 126 {
        match queue.receive().0 {
            Body::R2t(r2t) => {
                let payload = data[&r2t.command].1.clone();
                queue.send_asked(&r2t, &payload, 16_384);
            }
            Body::CapsuleResp(completion) => {
                assert_eq!(completion.status(), Status::SUCCESS);
                answered += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    let bytes = target.disk().bytes.lock().unwrap().clone();
    for (number, payload) in data.values() {
        let at = usize::try_from(number * 128).unwrap() * BLOCK;
        assert!(bytes[at..at + payload.len()] == payload[..], "write {number}");
    }
    drop((admin, queue));
    target.stop();
}

#[test]
fn no_more_data_is_asked_for_than_the_limit() {
    let mut setup = Setup::default();
    setup.limits.awaited_bytes_max = 128 << 10;
    let target = TestTarget::with(setup);
    let (admin, mut queue) = connected(&target, &Wishes::default());
    let payload = pattern(7, 65_536);
    let writes: Vec<u16> = (0..6)
        .map(|number| queue.start(blocks(io_opcode::WRITE, number * 128, 128), &payload, 0))
        .collect();
    let mut asked = Vec::new();
    let mut answered = Vec::new();
    // A flush is not in the way of what waits, and comes back last: it came last.
    let flush = queue.start(of(io_opcode::FLUSH, 1), &[], 0);
    while answered.len() < 7 {
        match queue.receive().0 {
            Body::R2t(r2t) => {
                asked.push(r2t);
                assert!(asked.len() <= 2, "64 KiB each, 128 KiB at a time");
                // Both are there before one is fed.
                if asked.len() == 2 || answered.len() >= 4 {
                    let first = asked.remove(0);
                    queue.send_asked(&first, &payload, 65_536);
                }
            }
            Body::CapsuleResp(completion) => {
                answered.push(completion.command.get());
                if !asked.is_empty() && answered.len() >= 5 {
                    let first = asked.remove(0);
                    queue.send_asked(&first, &payload, 65_536);
                }
            }
            other => panic!("{other:?}"),
        }
    }
    answered.sort_unstable();
    assert_eq!(answered, [writes, vec![flush]].concat());
    drop((admin, queue));
    target.stop();
}

#[test]
fn a_queue_that_is_dropped_under_load_leaves_nothing_behind() {
    let target = TestTarget::new();
    let (admin, mut queue) = connected(&target, &Wishes::default());
    let payload = pattern(7, 65_536);
    target.disk().is_held.store(true, Ordering::SeqCst);
    for number in 0..20 {
        queue.start(blocks(io_opcode::WRITE, number * 128, 128), &payload, 0);
        queue.start(blocks(io_opcode::WRITE, number * 128, 8), &payload[..4096], 0);
    }
    let Body::R2t(r2t) = queue.receive().0 else { panic!("nothing was asked for") };
    queue.send_asked(&r2t, &payload, 65_536);
    drop(queue);
    target.disk().is_held.store(false, Ordering::SeqCst);
    drop(admin);
    target.stop();
}

#[test]
fn a_target_that_stops_under_load_leaves_nothing_behind() {
    let target = TestTarget::new();
    let (admin, mut queue) = connected(&target, &Wishes::default());
    let payload = pattern(7, 65_536);
    for number in 0..20 {
        queue.start(blocks(io_opcode::WRITE, number * 128, 128), &payload, 0);
        queue.start(blocks(io_opcode::READ, 0, 128), &[], 65_536);
    }
    queue.receive();
    target.stop_now();
    drop((admin, queue));
}
