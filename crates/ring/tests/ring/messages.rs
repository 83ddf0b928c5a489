//! Messages with descriptors, sends without a copy, and eventfds.
//!
//! What must stay true: a descriptor that arrives has an owner at once; parts that were sent
//! without a copy are nobody else's until the kernel is done with them.

use crate::{BLOCK, in_use, is_waiting, pipe, pool, socket_pair, temporary_file, world};
use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::{DESCRIPTORS_MAX, EntryBytes, Executor, Ring, RingConfig, Schedule};
use rustix::event::{EventfdFlags, eventfd};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;

/// A connection over TCP on this machine.
fn connection() -> (Arc<OwnedFd>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
    let (far, _) = listener.accept().expect("accept");
    (Arc::new(near.into()), far)
}

#[test]
fn descriptors_arrive_with_their_message_and_work() {
    let (mut executor, _, ring) = world(8);
    let (near, far) = socket_pair();
    let far = Arc::new(OwnedFd::from(far));
    let (reader, mut writer) = pipe();
    let file = temporary_file();
    executor.block_on(async {
        let descriptors = vec![Arc::clone(&reader), Arc::clone(&file)];
        let parts = vec![Buf::copied(b"two "), Buf::copied(b"files")];
        let (sent, parts) = ring.send_with(&near, parts, descriptors).await;
        assert_eq!((sent.expect("send"), parts.len()), (9, 2));
        let (received, buf) = ring.receive_with(&far, BufMut::zeroed(100)).await;
        let (bytes, mut descriptors) = received.expect("receive");
        assert_eq!((&buf[..bytes], descriptors.len()), (&b"two files"[..], 2));
        for descriptor in &descriptors {
            let flags = rustix::io::fcntl_getfd(descriptor).expect("an open descriptor");
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
        writer.write_all(b"through the pipe").expect("write");
        let mut read = [0; 16];
        File::from(descriptors.remove(0)).read_exact(&mut read).expect("the same pipe");
        assert_eq!(&read, b"through the pipe");
        // And a message without any, in the same slot.
        let (sent, _) = ring.send_with(&near, vec![Buf::copied(b"none")], Vec::new()).await;
        sent.expect("send");
        let (received, _) = ring.receive_with(&far, BufMut::zeroed(100)).await;
        let (bytes, descriptors) = received.expect("receive");
        assert_eq!((bytes, descriptors.len()), (4, 0));
        ring.send_all(&near, vec![Buf::copied(b"plain")]).await.0.expect("send");
        let (received, _) = ring.receive_with(&far, BufMut::zeroed(100)).await;
        assert_eq!(received.expect("receive").1.len(), 0);
    });
}

/// How many descriptors of this process refer to `pipe`'s writing end: when all are closed, reading
/// it ends.
fn is_closed(reader: &Arc<OwnedFd>) -> bool {
    let reader = reader.try_clone().expect("a duplicate");
    rustix::io::ioctl_fionbio(reader.as_fd(), true).expect("non-blocking");
    matches!(File::from(reader).read(&mut [0; 1]), Ok(0))
}

#[test]
fn descriptors_that_nobody_asks_for_are_closed() {
    let (mut executor, handle, ring) = world(8);
    let (near, far) = socket_pair();
    let far = Arc::new(OwnedFd::from(far));
    let (reader, writer) = pipe();
    let writer = Arc::new(OwnedFd::from(writer));
    executor.block_on(async {
        let mut receive = Box::pin(ring.receive_with(&far, BufMut::zeroed(8)));
        assert!(is_waiting(receive.as_mut()).await);
        ring.send_with(&near, vec![Buf::copied(b"x")], vec![writer]).await.0.expect("send");
        // It has arrived, and whoever waited goes without looking.
        drop(receive);
        while ring.load().in_flight > 0 {
            handle.yield_now().await;
        }
    });
    drop((executor, handle, ring, near, far));
    assert!(is_closed(&reader));
}

#[test]
fn more_descriptors_than_there_is_room_for_are_an_error_and_none_of_them_stays() {
    let (mut executor, _, ring) = world(8);
    let (near, far) = socket_pair();
    let far = Arc::new(OwnedFd::from(far));
    let (reader, writer) = pipe();
    let many: Vec<_> = (0..=DESCRIPTORS_MAX).map(|_| writer.as_fd()).collect();
    let mut space = vec![std::mem::MaybeUninit::uninit(); 1024];
    let mut with = rustix::net::SendAncillaryBuffer::new(&mut space);
    assert!(with.push(rustix::net::SendAncillaryMessage::ScmRights(&many)));
    let parts = [io::IoSlice::new(b"many")];
    let flags = rustix::net::SendFlags::empty();
    rustix::net::sendmsg(&near, &parts, &mut with, flags).expect("the kernel allows 253");
    executor.block_on(async {
        let (received, _) = ring.receive_with(&far, BufMut::zeroed(8)).await;
        assert_eq!(received.expect_err("too many").kind(), io::ErrorKind::InvalidData);
    });
    drop(writer);
    assert!(is_closed(&reader));
}

#[test]
fn parts_sent_without_a_copy_arrive_and_come_back() {
    let (mut executor, _, ring) = world(8);
    let (near, mut far) = connection();
    let reading = std::thread::spawn(move || {
        let mut all = Vec::new();
        far.read_to_end(&mut all).expect("read");
        all
    });
    let pool = pool(2);
    executor.block_on(async {
        for round in 0..10_u8 {
            let mut head = pool.try_get(BLOCK).expect("both are back");
            let mut body = pool.try_get(BLOCK).expect("both are back");
            head.fill(round);
            body.fill(100 + round);
            let parts = vec![head.freeze(), body.freeze()];
            let mut sent = 0;
            let mut holds = Vec::new();
            while sent < 2 * BLOCK {
                let (result, hold) = ring.send_uncopied(&near, parts.clone(), sent).await;
                sent += result.expect("send");
                holds.push(hold);
            }
            drop(parts);
            for hold in holds {
                let (parts, _was_copied) = hold.released().await;
                assert_eq!((parts.len(), parts[1][0]), (2, 100 + round));
            }
            assert_eq!(in_use(&pool), 0, "round {round}");
        }
        rustix::net::shutdown(&near, rustix::net::Shutdown::Write).expect("shut down");
    });
    let all = reading.join().expect("the reader ends");
    let expected = (0..10_u8).flat_map(|round| {
        std::iter::repeat_n(round, BLOCK).chain(std::iter::repeat_n(100 + round, BLOCK))
    });
    assert!(all.iter().copied().eq(expected));
}

#[test]
fn parts_stay_the_kernels_while_the_peer_does_not_read_and_the_next_send_need_not_wait() {
    let (mut executor, handle, ring) = world(8);
    let (near, mut far) = connection();
    let pool = pool(2);
    executor.block_on(async {
        let mut holds = Vec::new();
        for _ in 0..2 {
            let part = pool.try_get(BLOCK).expect("a buffer").freeze();
            let (sent, hold) = ring.send_uncopied(&near, vec![part], 0).await;
            assert_eq!(sent.expect("queued"), BLOCK);
            holds.push(hold);
        }
        let mut all = vec![0; 2 * BLOCK];
        far.read_exact(&mut all).expect("read");
        // Nobody waits for the parts; they come back all the same.
        drop(holds);
        while in_use(&pool) > 0 {
            handle.yield_now().await;
        }
    });
}

#[test]
fn sending_without_a_copy_to_a_closed_socket_is_an_error_and_the_parts_are_free() {
    let (mut executor, _, ring) = world(8);
    let (near, _far) = connection();
    rustix::net::shutdown(&near, rustix::net::Shutdown::Write).expect("shut down");
    executor.block_on(async {
        let (sent, hold) = ring.send_uncopied(&near, vec![Buf::copied(b"lost")], 0).await;
        assert_eq!(sent.expect_err("closed").kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(hold.released().await.0.len(), 1);
    });
    assert_eq!(ring.load().in_flight, 0);
}

/// Unix sockets cannot do it: the error comes at once, and so do the parts.
#[test]
fn a_socket_that_cannot_send_without_a_copy_says_so() {
    let (mut executor, _, ring) = world(8);
    let (near, _far) = socket_pair();
    executor.block_on(async {
        let (sent, hold) = ring.send_uncopied(&near, vec![Buf::copied(b"lost")], 0).await;
        assert!(sent.is_err());
        assert_eq!(hold.released().await.0.len(), 1);
    });
    assert_eq!(ring.load().in_flight, 0);
}

#[test]
fn a_full_non_blocking_socket_is_waited_for_without_a_copy_too() {
    let (mut executor, handle, ring) = world(8);
    let (near, mut far) = connection();
    rustix::io::ioctl_fionbio(near.as_fd(), true).expect("non-blocking");
    const BYTES: usize = 16 << 20;
    let reading = std::thread::spawn(move || {
        let mut all = vec![0; BYTES];
        far.read_exact(&mut all).expect("read");
        all.iter().all(|byte| *byte == 7)
    });
    executor.block_on(async {
        let part = Buf::copied(&vec![7; BYTES]);
        let mut sent = 0;
        while sent < BYTES {
            let (result, _hold) = ring.send_uncopied(&near, vec![part.clone()], sent).await;
            sent += result.expect("send");
        }
        while ring.load().in_flight > 0 {
            handle.yield_now().await;
        }
    });
    assert!(reading.join().expect("the reader ends"));
}

#[test]
fn ring_that_closes_does_not_wait_for_a_peer_that_does_not_read() {
    let (mut executor, handle, ring) = world(8);
    let (near, _far) = connection();
    executor.block_on(async {
        // Until nothing more can be queued: what is, waits for the peer.
        for _ in 0..200 {
            let mut send = pin!(ring.send_uncopied(&near, vec![Buf::copied(&[1; 1 << 16])], 0));
            for _ in 0..20 {
                if !is_waiting(send.as_mut()).await {
                    break;
                }
                handle.yield_now().await;
            }
        }
        for _ in 0..20 {
            handle.yield_now().await;
        }
        assert!(ring.load().in_flight > 0, "the kernel still has parts");
    });
    drop((executor, handle, ring));
}

#[test]
fn count_of_an_eventfd_is_waited_for_and_taken() {
    let (mut executor, handle, ring) = world(8);
    for flags in [EventfdFlags::CLOEXEC, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK] {
        let event = Arc::new(eventfd(0, flags).expect("an eventfd"));
        executor.block_on(async {
            let mut count = pin!(ring.read_count(&event));
            for _ in 0..5 {
                assert!(is_waiting(count.as_mut()).await);
                handle.yield_now().await;
            }
            rustix::io::write(&event, &7_u64.to_ne_bytes()).expect("ring it");
            assert_eq!(count.await.expect("a count"), 7);
            // Whoever goes away leaves the next count to others.
            let mut count = Box::pin(ring.read_count(&event));
            assert!(is_waiting(count.as_mut()).await);
            drop(count);
            while ring.load().in_flight > 0 {
                handle.yield_now().await;
            }
            rustix::io::write(&event, &9_u64.to_ne_bytes()).expect("ring it");
            assert_eq!(ring.read_count(&event).await.expect("a count"), 9);
        });
    }
}

#[test]
fn wide_rings_do_all_of_it_too() {
    let config = RingConfig { entries: 8, entry_bytes: EntryBytes::Wide };
    let ring = Ring::new(config).expect("a ring of wide entries");
    let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
    let (near, far) = socket_pair();
    let far = Arc::new(OwnedFd::from(far));
    executor.block_on(async {
        for round in 0..100_u8 {
            let (sent, _) = ring.send_with(&near, vec![Buf::copied(&[round])], Vec::new()).await;
            sent.expect("send");
            let (received, buf) = ring.receive(&far, BufMut::zeroed(8)).await;
            assert_eq!((received.expect("receive"), buf[0]), (1, round));
        }
    });
}
