//! Sockets and pipes: what is sent arrives whole and in order, and who waits wakes up.

use crate::{is_waiting, pipe, socket_pair, world};
use ashlar_iobuf::{Buf, BufMut};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::sync::Arc;

#[test]
fn parts_longer_than_the_socket_buffer_arrive_whole_and_in_order() {
    const PARTS: u8 = 40;
    let (mut executor, handle, ring) = world(8);
    let (near, far) = socket_pair();
    let far = Arc::new(OwnedFd::from(far));
    let part_bytes = |part: u8| 1 + usize::from(part) * 5000;
    let total: usize = (0..PARTS).map(part_bytes).sum();
    let sender = ring.clone();
    handle.spawn(async move {
        let mut parts: Vec<Buf> =
            (0..PARTS).map(|part| Buf::copied(&vec![part; part_bytes(part)])).collect();
        parts.insert(3, Buf::copied(b""));
        let (sent, parts) = sender.send_all(&near, parts).await;
        sent.expect("send");
        assert_eq!(parts.len(), usize::from(PARTS) + 1);
    });
    executor.block_on(async {
        let (header, first) = ring.receive_all(&far, BufMut::zeroed(1)).await;
        header.expect("the first part");
        assert_eq!(&first[..], [0]);
        let (rest, buf) = ring.receive_all(&far, BufMut::zeroed(total - 1)).await;
        rest.expect("the other parts");
        let mut bytes = &buf[..];
        for part in 1..PARTS {
            let this = bytes.split_off(..part_bytes(part)).expect("enough bytes");
            assert!(this.iter().all(|&byte| byte == part), "part {part}");
        }
        assert!(bytes.is_empty());
        let (end, _) = ring.receive_all(&far, BufMut::zeroed(1)).await;
        assert_eq!(end.expect_err("the sender is done").kind(), io::ErrorKind::UnexpectedEof);
    });
}

#[test]
fn receive_all_fills_its_buffer_from_dribbles() {
    let (mut executor, handle, ring) = world(8);
    let (near, mut far) = socket_pair();
    let dribbler = handle.clone();
    handle.spawn(async move {
        for byte in 0..100_u8 {
            far.write_all(&[byte]).expect("send");
            for _ in 0..byte % 5 {
                dribbler.yield_now().await;
            }
        }
    });
    executor.block_on(async {
        let (received, buf) = ring.receive_all(&near, BufMut::zeroed(100)).await;
        received.expect("receive");
        assert!(buf.iter().copied().eq(0..100_u8));
    });
}

#[test]
fn non_blocking_sockets_wait_like_others() {
    let (mut executor, handle, ring) = world(8);
    let (near, mut far) = socket_pair();
    rustix::io::ioctl_fionbio(near.as_fd(), true).expect("non-blocking");
    executor.block_on(async {
        let mut receive = pin!(ring.receive(&near, BufMut::zeroed(5)));
        for _ in 0..10 {
            assert!(is_waiting(receive.as_mut()).await);
            handle.yield_now().await;
        }
        far.write_all(b"hello").expect("send");
        let (received, buf) = receive.await;
        assert_eq!((received.expect("receive"), &buf[..]), (5, &b"hello"[..]));
        // More than fits the socket buffer, while the other side reads only from time to time.
        let sender = (ring.clone(), Arc::clone(&near));
        handle.spawn(async move {
            let (sent, _) = sender.0.send_all(&sender.1, vec![Buf::copied(&[9; 1 << 20])]).await;
            sent.expect("send");
        });
        let mut left = 1 << 20;
        let mut bytes = vec![0; 1 << 16];
        far.set_nonblocking(true).expect("non-blocking");
        while left > 0 {
            match far.read(&mut bytes) {
                Ok(got) => left -= got,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            handle.yield_now().await;
        }
    });
}

#[test]
fn accepted_connection_talks_both_ways() {
    let (mut executor, handle, ring) = world(8);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a listener");
    let listener = Arc::new(OwnedFd::from(listener));
    let server = ring.clone();
    handle.spawn(async move {
        let accepted = Arc::new(server.accept(&listener).await.expect("accept"));
        let (received, buf) = server.receive_all(&accepted, BufMut::zeroed(4)).await;
        received.expect("receive");
        server.send_all(&accepted, vec![buf.into(), Buf::copied(b"pong")]).await.0.expect("send");
    });
    executor.block_on(async {
        handle.yield_now().await;
        let client = Arc::new(OwnedFd::from(UnixStream::connect(&path).expect("connect")));
        ring.send_all(&client, vec![Buf::copied(b"ping")]).await.0.expect("send");
        let (received, buf) = ring.receive_all(&client, BufMut::zeroed(8)).await;
        received.expect("receive");
        assert_eq!(&buf[..], b"pingpong");
    });
}

#[test]
fn sending_to_a_closed_socket_is_an_error_not_a_signal() {
    let (mut executor, _, ring) = world(8);
    let (near, far) = socket_pair();
    drop(far);
    executor.block_on(async {
        let (sent, parts) = ring.send_all(&near, vec![Buf::copied(b"lost")]).await;
        assert_eq!(sent.expect_err("closed").kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(parts.len(), 1);
    });
}

#[test]
fn messages_in_two_parts_keep_their_boundary() {
    let (mut executor, _, ring) = world(8);
    let (reader, writer) = pipe();
    let writer = Arc::new(OwnedFd::from(writer));
    executor.block_on(async {
        let parts = [Buf::copied(b"head"), Buf::copied(b"payload")];
        assert_eq!(ring.write_parts(&writer, parts).await.0.expect("write"), 11);
        let (read, parts) =
            ring.read_parts(&reader, [BufMut::zeroed(4), BufMut::zeroed(100)]).await;
        assert_eq!(read.expect("read"), 11);
        assert_eq!((&parts[0][..], &parts[1][..7]), (&b"head"[..], &b"payload"[..]));
    });
}

#[test]
fn readable_resolves_when_there_is_something_to_read() {
    let (mut executor, handle, ring) = world(8);
    let (reader, mut writer) = pipe();
    executor.block_on(async {
        let mut readable = pin!(ring.readable(&reader));
        for _ in 0..5 {
            assert!(is_waiting(readable.as_mut()).await);
            handle.yield_now().await;
        }
        writer.write_all(b"x").expect("write");
        readable.await.expect("readable");
        assert!(handle.ring().is_some());
    });
}
