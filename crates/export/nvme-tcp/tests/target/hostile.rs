//! Hosts that break the rules: the target survives them, answers them, and gives everything back.

use crate::host::{admin, connected, io};
use crate::queue::{Queue, Wishes, blocks, host, of, pattern};
use crate::server::{Setup, TestTarget};
use ashlar_nvme_protocol::command::{admin_opcode, io_opcode};
use ashlar_nvme_protocol::digest::digest;
use ashlar_nvme_protocol::pdu::{Body, FatalStatus, H2cData, IcReq, R2t, TermReq, encode};
use ashlar_nvme_protocol::{Completion, Sgl, Status, Submission};
use fastrand::Rng;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Somebody else is served while this goes on, and nothing is left afterwards.
fn beside_an_honest_host(setup: Setup, act: impl FnOnce(&TestTarget)) {
    let target = TestTarget::with(setup);
    let wishes = Wishes { host: host(9), ..Wishes::default() };
    let (admin, mut queue) = connected(&target, &wishes);
    let data = pattern(9, 4096);
    queue.write(20_000, &data);
    act(&target);
    assert!(queue.read(20_000, 8) == data, "what the honest host wrote is there");
    drop((admin, queue));
    target.stop();
}

fn why(term: Option<TermReq>) -> (FatalStatus, u32) {
    let term = term.expect("the host is told why");
    (term.status.expect("a known status"), term.info)
}

/// A write of 64 KiB, and what was asked for.
fn asked(queue: &mut Queue) -> R2t {
    queue.start(blocks(io_opcode::WRITE, 0, 128), &[0; 65_536], 0);
    match queue.receive().0 {
        Body::R2t(r2t) => r2t,
        other => panic!("{other:?}"),
    }
}

fn data_of(r2t: &R2t, (offset, bytes): (u32, u32), is_last: bool) -> H2cData {
    H2cData { command: r2t.command, transfer: r2t.transfer, offset, bytes, is_last }
}

#[test]
fn headers_that_make_no_sense_end_the_connection_with_the_reason() {
    let invalid = FatalStatus::InvalidHeaderField;
    let cases: [(Vec<u8>, (FatalStatus, u32)); 6] = [
        (vec![0xff; 8], (invalid, 0)),
        // A kind that controllers send; a length of header that is another's.
        (vec![1, 0, 128, 0, 128, 0, 0, 0], (invalid, 0)),
        (vec![4, 0, 71, 0, 72, 0, 0, 0], (invalid, 2)),
        // Data that would have 4 GiB less a little.
        ([&[4, 0, 72, 72, 0xff, 0xff, 0xff, 0xff][..], &[0; 64]].concat(), {
            (FatalStatus::LimitExceeded, 0)
        }),
        ([&[4, 0, 72, 8, 200, 0, 0, 0][..], &[0; 64]].concat(), (invalid, 3)),
        ([&[4, 1, 72, 0, 72, 0, 0, 0][..], &[0; 64]].concat(), (invalid, 1)),
    ];
    beside_an_honest_host(Setup::default(), |target| {
        let (admin, id) = admin(target, &Wishes::default());
        for (at, (bytes, wanted)) in cases.into_iter().enumerate() {
            let mut queue = io(target, &Wishes::default(), (1, id), 1);
            queue.stream.write_all(&bytes).unwrap();
            assert_eq!(why(queue.expect_end()), wanted, "case {at}");
            let open = |it: &TestTarget| it.count(|counters| &counters.sessions.open);
            target.until(|it| open(it) == 3);
        }
        drop(admin);
    });
}

#[test]
fn a_connection_that_does_not_begin_with_icreq_is_told_so() {
    beside_an_honest_host(Setup::default(), |target| {
        let mut queue = Queue::greeted(target.connect(0), &Wishes::default());
        queue.stream = target.connect(0);
        queue.stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let capsule = Body::CapsuleCmd(Submission::default());
        queue.send(&capsule, &[]);
        assert_eq!(why(queue.expect_end()).0, FatalStatus::SequenceError);
        // Twice is once too often.
        let mut queue = Queue::greeted(target.connect(0), &Wishes::default());
        let request = IcReq {
            format: 0,
            hpda: 0,
            header_digest: false,
            data_digest: false,
            r2t_max_less_one: 0,
        };
        queue.send(&Body::IcReq(request), &[]);
        assert_eq!(why(queue.expect_end()).0, FatalStatus::SequenceError);
    });
}

#[test]
fn a_wrong_header_digest_ends_the_connection() {
    beside_an_honest_host(Setup::default(), |target| {
        let wishes = Wishes { digests: (true, true), ..Wishes::default() };
        let (admin, mut queue) = connected(target, &wishes);
        let entry = blocks(io_opcode::READ, 0, 1);
        let header = encode(&Body::CapsuleCmd(entry), 0, &queue.terms);
        let mut bytes = header.as_bytes().to_vec();
        bytes[20] ^= 1;
        queue.stream.write_all(&bytes).unwrap();
        assert_eq!(why(queue.expect_end()).0, FatalStatus::HeaderDigest);
        drop(admin);
    });
}

#[test]
fn wrong_data_digests_fail_the_command_and_nothing_is_written() {
    beside_an_honest_host(Setup::default(), |target| {
        let wishes = Wishes { digests: (false, true), ..Wishes::default() };
        let (admin, mut queue) = connected(target, &wishes);
        let answer = |queue: &mut Queue| match queue.receive().0 {
            Body::CapsuleResp(completion) => completion.status(),
            other => panic!("{other:?}"),
        };
        // In the capsule.
        let data = pattern(3, 512);
        let sgl = Sgl::InCapsule { offset: 0, bytes: 512 }.encode();
        let entry = Submission { command: 77.into(), sgl, ..blocks(io_opcode::WRITE, 0, 1) };
        let header = encode(&Body::CapsuleCmd(entry), 512, &queue.terms);
        let mut sum = digest(&data);
        sum[0] ^= 1;
        queue.stream.write_all(&[header.as_bytes(), &data, &sum].concat()).unwrap();
        assert_eq!(answer(&mut queue), Status::TRANSIENT_TRANSPORT_ERROR);
        // In the first of two PDUs: the second is still taken.
        let r2t = asked(&mut queue);
        let half = pattern(4, 32_768);
        for (offset, flips) in [(0, 1), (32_768, 0)] {
            let body = Body::H2cData(data_of(&r2t, (offset, 32_768), offset > 0));
            let header = encode(&body, 32_768, &queue.terms);
            let mut sum = digest(&half);
            sum[3] ^= flips;
            queue.stream.write_all(&[header.as_bytes(), &half, &sum].concat()).unwrap();
        }
        assert_eq!(answer(&mut queue), Status::TRANSIENT_TRANSPORT_ERROR);
        assert_eq!(queue.read(0, 128), vec![0; 65_536]);
        assert_eq!(target.count(|counters| &counters.digest_errors), 2);
        drop((admin, queue));
    });
}

#[test]
fn data_out_of_turn_or_out_of_range_ends_the_connection_and_writes_nothing() {
    type Wrong = fn(&R2t) -> H2cData;
    let range = FatalStatus::DataOutOfRange;
    let invalid = FatalStatus::InvalidHeaderField;
    let cases: [(Wrong, (FatalStatus, u32)); 8] = [
        // A gap, beyond the end, beyond 32 bits.
        (|r2t| data_of(r2t, (4096, 4096), false), (range, 0)),
        (|r2t| data_of(r2t, (0, 65_540), true), (range, 0)),
        (|r2t| data_of(r2t, (u32::MAX, 4096), true), (range, 0)),
        // Last and not last at the wrong places.
        (|r2t| data_of(r2t, (0, 4096), true), (invalid, 1)),
        (|r2t| data_of(r2t, (0, 65_536), false), (invalid, 1)),
        // Of a transfer that is not open, of one that cannot be, of another command.
        (
            |r2t| H2cData { transfer: r2t.transfer + 1, ..data_of(r2t, (0, 4096), false) },
            (invalid, 10),
        ),
        (|r2t| H2cData { transfer: 0xffff, ..data_of(r2t, (0, 4096), false) }, (invalid, 10)),
        (
            |r2t| H2cData { command: r2t.command + 1, ..data_of(r2t, (0, 4096), false) },
            (invalid, 8),
        ),
    ];
    beside_an_honest_host(Setup::default(), |target| {
        let (admin, id) = admin(target, &Wishes::default());
        for (at, (wrong, wanted)) in cases.into_iter().enumerate() {
            let number = u16::try_from(at).unwrap() + 1;
            let mut queue = io(target, &Wishes::default(), (number, id), 1);
            let r2t = asked(&mut queue);
            let header = wrong(&r2t);
            let data = vec![0xee; usize::try_from(header.bytes).unwrap()];
            queue.send(&Body::H2cData(header), &data);
            assert_eq!(why(queue.expect_end()), wanted, "case {at}");
        }
        let bytes = target.disk().bytes.lock().unwrap().clone();
        assert!(bytes[..65_536].iter().all(|byte| *byte == 0));
        drop(admin);
    });
}

#[test]
fn data_that_nobody_asked_for_ends_the_connection() {
    beside_an_honest_host(Setup::default(), |target| {
        let (mut admin, mut queue) = connected(target, &Wishes::default());
        let header = H2cData { command: 1, transfer: 0, offset: 0, bytes: 512, is_last: true };
        queue.send(&Body::H2cData(header), &[0; 512]);
        assert_eq!(why(queue.expect_end()), (FatalStatus::InvalidHeaderField, 10));
        admin.send(&Body::H2cData(header), &[0; 512]);
        assert_eq!(why(admin.expect_end()), (FatalStatus::InvalidHeaderField, 10));
    });
}

#[test]
fn more_data_in_one_pdu_than_announced_ends_the_connection() {
    let mut setup = Setup::default();
    setup.limits.h2c_bytes_max = 4096;
    beside_an_honest_host(setup, |target| {
        let (admin, mut queue) = connected(target, &Wishes::default());
        let r2t = asked(&mut queue);
        queue.send(&Body::H2cData(data_of(&r2t, (0, 8192), false)), &[0; 8192]);
        assert_eq!(why(queue.expect_end()), (FatalStatus::LimitExceeded, 0));
        drop(admin);
    });
}

#[test]
fn an_identifier_in_use_is_refused_and_its_first_command_goes_on() {
    beside_an_honest_host(Setup::default(), |target| {
        let (admin, mut queue) = connected(target, &Wishes::default());
        let r2t = asked(&mut queue);
        let sgl = Sgl::Transport { bytes: 512 }.encode();
        let again =
            Submission { command: r2t.command.into(), sgl, ..blocks(io_opcode::READ, 0, 1) };
        queue.send(&Body::CapsuleCmd(again), &[]);
        let status = |queue: &mut Queue| match queue.receive().0 {
            Body::CapsuleResp(completion) => (completion.command.get(), completion.status()),
            other => panic!("{other:?}"),
        };
        assert_eq!(status(&mut queue), (r2t.command, Status::COMMAND_ID_CONFLICT));
        queue.send_asked(&r2t, &[0x11; 65_536], 65_536);
        assert_eq!(status(&mut queue), (r2t.command, Status::SUCCESS));
        assert_eq!(queue.read(0, 1), vec![0x11; 512]);
        drop((admin, queue));
    });
}

#[test]
fn more_commands_than_the_queue_has_room_for_end_it() {
    beside_an_honest_host(Setup::default(), |target| {
        let wishes = Wishes { entries_less_one: 4, ..Wishes::default() };
        let (admin, mut queue) = connected(target, &wishes);
        target.disk().is_held.store(true, Ordering::SeqCst);
        for number in 0..5 {
            queue.start(blocks(io_opcode::WRITE, number, 1), &[1; 512], 0);
        }
        target.until(|it| it.count(|counters| &counters.writes) == 5);
        target.disk().is_held.store(false, Ordering::SeqCst);
        assert_eq!(queue.expect_end(), None);
        drop(admin);
        target.until(|it| it.ends.lock().unwrap().iter().any(|end| end.contains("room for")));
    });
}

/// As many admin queues of events as a host likes: each is bounded.
#[test]
fn requests_for_events_are_bounded() {
    beside_an_honest_host(Setup::default(), |target| {
        let (mut queue, _) = admin(target, &Wishes::default());
        for _ in 0..4 {
            queue.start(of(admin_opcode::ASYNC_EVENT_REQUEST, 0), &[], 0);
        }
        let status = queue.status(of(admin_opcode::ASYNC_EVENT_REQUEST, 0), &[], 0);
        assert_eq!(status, Status::ASYNC_EVENT_LIMIT);
    });
}

fn impatient() -> Setup {
    let mut setup = Setup::default();
    setup.limits.session.handshake_time = Duration::from_secs(2);
    setup.limits.session.payload_time = Duration::from_secs(2);
    setup.limits.session.send_time = Duration::from_secs(2);
    setup
}

fn ended(target: &TestTarget, with: &str) {
    target.until(|it| it.ends.lock().unwrap().iter().any(|end| end.contains(with)));
}

#[test]
fn connections_that_become_no_queue_in_time_are_closed() {
    beside_an_honest_host(impatient(), |target| {
        let silent: Vec<UnixStream> = (0..50).map(|at| target.connect(at % 2)).collect();
        let greeted = Queue::greeted(target.connect(0), &Wishes::default());
        let open = |it: &TestTarget| it.count(|counters| &counters.sessions.open);
        target.until(|it| open(it) == 2);
        ended(target, "no queue was connected in time");
        drop((silent, greeted));
    });
}

#[test]
fn a_host_that_does_not_send_what_was_asked_for_is_dropped_with_its_buffers() {
    let mut setup = impatient();
    setup.buffers = 1;
    beside_an_honest_host(setup, |target| {
        let (admin, mut queue) = connected(target, &Wishes::default());
        // The one buffer of 1 MiB of this worker.
        queue.start(blocks(io_opcode::WRITE, 0, 2048), &vec![0; 1 << 20], 0);
        assert!(matches!(queue.receive().0, Body::R2t(_)));
        let kept = queue.stream.try_clone().unwrap();
        assert_eq!(queue.expect_end(), None);
        ended(target, "data did not arrive in time");
        // Another host gets it.
        let (other_admin, mut other) =
            connected(target, &Wishes { host: host(5), ..Wishes::default() });
        other.write(0, &pattern(5, 1 << 20));
        drop((admin, other_admin, other, kept));
    });
}

#[test]
fn a_host_that_stops_within_a_pdu_is_dropped() {
    beside_an_honest_host(impatient(), |target| {
        let (admin, mut queue) = connected(target, &Wishes::default());
        let sgl = Sgl::InCapsule { offset: 0, bytes: 4096 }.encode();
        let entry = Submission { command: 7.into(), sgl, ..blocks(io_opcode::WRITE, 0, 8) };
        let header = encode(&Body::CapsuleCmd(entry), 4096, &queue.terms);
        queue.stream.write_all(&[header.as_bytes(), &[0; 100]].concat()).unwrap();
        assert_eq!(queue.expect_end(), None);
        ended(target, "data did not arrive in time");
        drop(admin);
    });
}

#[test]
fn a_host_that_does_not_read_is_dropped() {
    beside_an_honest_host(impatient(), |target| {
        let (admin, mut queue) = connected(target, &Wishes::default());
        // More than sockets hold.
        for number in 0..60 {
            queue.start(blocks(io_opcode::READ, number, 1024), &[], 524_288);
        }
        ended(target, "answers were not read in time");
        drop((admin, queue));
    });
}

#[test]
fn connections_that_end_anywhere_leave_nothing() {
    beside_an_honest_host(Setup::default(), |target| {
        let (admin, id) = admin(target, &Wishes::default());
        let sgl = Sgl::InCapsule { offset: 0, bytes: 512 }.encode();
        let entry = Submission { command: 7.into(), sgl, ..blocks(io_opcode::WRITE, 0, 1) };
        for (at, cut) in [0, 1, 7, 8, 50, 72, 73, 300, 583].into_iter().enumerate() {
            let number = u16::try_from(at).unwrap() + 1;
            let mut queue = io(target, &Wishes::default(), (number, id), at % 2);
            let header = encode(&Body::CapsuleCmd(entry), 512, &queue.terms);
            let bytes = [header.as_bytes(), &[0xaa; 512]].concat();
            queue.stream.write_all(&bytes[..cut]).unwrap();
        }
        drop(admin);
    });
}

/// Honest traffic with some of its bytes changed, against the real thing.
#[test]
fn mutated_connections_do_not_reach_others() {
    beside_an_honest_host(impatient(), |target| {
        let (admin, id) = admin(target, &Wishes::default());
        for seed in 0..150 {
            let mut chance = Rng::with_seed(seed);
            let mut queue = Queue::greeted(target.connect(chance.usize(..2)), &Wishes::default());
            let connected = queue.connect(&Wishes::default(), chance.u16(1..60), id);
            if !connected.status().is_success() {
                continue;
            }
            let mut bytes = Vec::new();
            for number in 0..chance.u16(1..8) {
                let count = [1, 8, 16, 128][chance.usize(..4)];
                let opcode = io_opcode::ALL[chance.usize(..10)];
                let is_short = count <= 16;
                let length = if opcode == io_opcode::WRITE && is_short { count * 512 } else { 0 };
                let sgl = match length {
                    0 => Sgl::Transport { bytes: count * 512 },
                    bytes => Sgl::InCapsule { offset: 0, bytes },
                };
                // Far from where the honest host looks.
                let entry = blocks(opcode, 8192 + chance.u32(..4096), count);
                let entry = Submission { command: number.into(), sgl: sgl.encode(), ..entry };
                let header = encode(&Body::CapsuleCmd(entry), length, &queue.terms);
                bytes.extend(header.as_bytes());
                bytes.resize(bytes.len() + usize::try_from(length).unwrap(), 0x5a);
            }
            for _ in 0..chance.usize(..4) {
                // Only what says how long things are and which they are: an address may not change.
                let at = chance.usize(..bytes.len().min(8));
                bytes[at] ^= 1 << chance.usize(..8);
            }
            // It may be closed already.
            let _ = queue.stream.write_all(&bytes);
            drop(queue);
        }
        drop(admin);
    });
}

#[test]
fn a_host_that_gives_up_is_heard() {
    beside_an_honest_host(Setup::default(), |target| {
        let (admin, mut queue) = connected(target, &Wishes::default());
        let term = TermReq { status: Some(FatalStatus::DataOutOfRange), info: 5 };
        queue.send(&Body::H2cTermReq(term), &[]);
        assert_eq!(queue.expect_end(), None);
        ended(target, "the host gave the connection up: Some(DataOutOfRange) 0x5");
        drop(admin);
    });
}

#[test]
fn completions_of_refused_commands_carry_the_head_too() {
    beside_an_honest_host(Setup::default(), |target| {
        let (admin, mut queue) = connected(target, &Wishes::default());
        let heads: Vec<u16> = (0..3)
            .map(|_| {
                let completion: Completion = queue.run(of(0x55, 1), &[], 0).0;
                completion.queue_head.get()
            })
            .collect();
        assert_eq!(heads, [2, 3, 4]);
        drop((admin, queue));
    });
}
