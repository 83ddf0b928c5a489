//! The io_uring of one core on real files, pipes and sockets. Without io_uring these tests fail.

use ashlar_iobuf::{Buf, BufMut, Pool, PoolClass};
use ashlar_ring::{
    Executor, Handle, Operation, Outcome, Ring, RingConfig, Schedule, Sink, local::Semaphore,
};
use ashlar_units::to_u64;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

const BLOCK: usize = 4096;

fn world(entries: u32) -> (Executor, Handle, Ring) {
    let ring = Ring::new(RingConfig { entries }).expect("these tests need io_uring");
    let executor = Executor::new(ring.reactor(), Schedule::InOrder);
    let handle = executor.handle();
    (executor, handle, ring)
}

fn temporary_file() -> Arc<OwnedFd> {
    Arc::new(tempfile::tempfile().expect("a temporary file").into())
}

fn pipe() -> (Arc<OwnedFd>, io::PipeWriter) {
    let (reader, writer) = io::pipe().expect("a pipe");
    (Arc::new(reader.into()), writer)
}

fn socket_pair() -> (Arc<OwnedFd>, UnixStream) {
    let (near, far) = UnixStream::pair().expect("a socket pair");
    (Arc::new(near.into()), far)
}

fn pool(count: usize) -> Pool {
    let class = PoolClass { buffer_bytes: BLOCK, count };
    Pool::new(&[class]).expect("a pool")
}

fn in_use(pool: &Pool) -> usize {
    pool.usage().classes[0].in_use
}

/// Polls once and says whether it is still waiting.
async fn is_waiting<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
    let mut future = future;
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

#[test]
fn written_data_is_read_back_and_synced_and_punched() {
    let (mut executor, _, ring) = world(8);
    let file = temporary_file();
    executor.block_on(async {
        let (wrote, _) = ring.write_at(&file, 8192, Buf::copied(&[7; BLOCK])).await;
        assert_eq!(wrote.expect("write"), BLOCK);
        let (wrote, _) = ring.write_at_durably(&file, 4096, Buf::copied(&[6; BLOCK])).await;
        assert_eq!(wrote.expect("durable write"), BLOCK);
        ring.fsync(&file, true).await.expect("data sync");
        ring.fsync(&file, false).await.expect("sync");
        let (read, buf) = ring.read_at(&file, 4096, BufMut::zeroed(3 * BLOCK)).await;
        assert_eq!(read.expect("read up to the end of the file"), 2 * BLOCK);
        assert_eq!(&buf[..BLOCK], [6; BLOCK]);
        assert_eq!(&buf[BLOCK..2 * BLOCK], [7; BLOCK]);
        let zero_range_keeping_size = 0x10 | 0x01;
        ring.fallocate(&file, zero_range_keeping_size, 8192, 4096).await.expect("zero range");
        let (read, buf) = ring.read_at(&file, 8192, BufMut::copied(&[1; BLOCK])).await;
        assert_eq!(read.expect("read"), BLOCK);
        assert_eq!(&buf[..], [0; BLOCK]);
        ring.fallocate(&file, 0, 0, 1 << 20).await.expect("grow");
        let (read, _) = ring.read_at(&file, 1 << 20, BufMut::zeroed(BLOCK)).await;
        assert_eq!(read.expect("read at the end"), 0);
    });
}

#[test]
fn errors_of_the_kernel_come_back_with_the_buffer() {
    let (mut executor, _, ring) = world(8);
    let read_only = Arc::new(OwnedFd::from(std::fs::File::open("/dev/null").expect("/dev/null")));
    executor.block_on(async {
        let (wrote, buf) = ring.write_at(&read_only, 0, Buf::copied(b"data")).await;
        assert_eq!(wrote.expect_err("not writable").raw_os_error(), Some(9));
        assert_eq!(&buf[..], b"data");
        let punch_without_keeping_size = 0x02;
        let file = temporary_file();
        let error = ring.fallocate(&file, punch_without_keeping_size, 0, 4096).await;
        assert!(error.is_err());
    });
}

#[test]
fn ten_thousand_operations_go_through_a_ring_of_64() {
    const OPERATIONS: u64 = 10_000;
    let (mut executor, handle, ring) = world(64);
    let file = temporary_file();
    let done = Rc::new(Cell::new(0));
    let all = Semaphore::new(1);
    let last = Rc::new(Cell::new(all.try_acquire()));
    for number in 0..OPERATIONS {
        let (ring, file) = (ring.clone(), Arc::clone(&file));
        let (done, last) = (Rc::clone(&done), Rc::clone(&last));
        handle.spawn(async move {
            let (wrote, buf) =
                ring.write_at(&file, number * 8, Buf::copied(&number.to_le_bytes())).await;
            assert_eq!(wrote.expect("write"), 8);
            drop(buf);
            let (read, buf) = ring.read_at(&file, number * 8, BufMut::zeroed(8)).await;
            assert_eq!(read.expect("read"), 8);
            assert_eq!(buf[..], number.to_le_bytes());
            done.set(done.get() + 1);
            if done.get() == OPERATIONS {
                drop(last.take());
            }
        });
    }
    executor.block_on(all.acquire());
    let load = ring.load();
    assert_eq!((load.in_flight, load.in_flight_max, load.in_line), (0, 64, 0));
}

#[test]
fn buffer_of_a_dropped_read_stays_alive_until_the_kernel_is_done() {
    let (mut executor, handle, ring) = world(8);
    let (reader, mut writer) = pipe();
    let pool = pool(1);
    let buf = pool.try_get(BLOCK).expect("a buffer");
    executor.block_on(async {
        let mut read = Box::pin(ring.read_at(&reader, 0, buf));
        assert!(is_waiting(read.as_mut()).await);
        // Another operation goes round, so that the kernel has the read for sure.
        ring.fsync(&temporary_file(), true).await.expect("sync");
        assert!(is_waiting(read.as_mut()).await);
        drop(read);
        assert!(pool.try_get(BLOCK).is_none(), "the kernel may still write to the buffer");
        writer.write_all(b"late data").expect("somebody holds the pipe open");
        while in_use(&pool) > 0 {
            handle.yield_now().await;
        }
    });
    assert_eq!(ring.load().in_flight, 0);
}

#[test]
fn dropped_receive_is_cancelled_and_leaves_later_data_to_the_next() {
    let (mut executor, handle, ring) = world(8);
    let (near, mut far) = socket_pair();
    let pool = pool(1);
    let buf = pool.try_get(BLOCK).expect("a buffer");
    executor.block_on(async {
        let mut receive = Box::pin(ring.receive(&near, buf));
        assert!(is_waiting(receive.as_mut()).await);
        ring.fsync(&temporary_file(), true).await.expect("sync");
        drop(receive);
        while in_use(&pool) > 0 {
            handle.yield_now().await;
        }
        far.write_all(b"for the next").expect("send");
        let (received, buf) = ring.receive(&near, BufMut::zeroed(BLOCK)).await;
        assert_eq!(&buf[..received.expect("receive")], b"for the next");
    });
    assert_eq!(ring.load().in_flight, 0);
}

#[test]
fn receive_dropped_while_in_line_never_starts() {
    let (mut executor, _, ring) = world(1);
    let (near, mut far) = socket_pair();
    let (reader, mut writer) = pipe();
    executor.block_on(async {
        let mut first = Box::pin(ring.read_at(&reader, 0, BufMut::zeroed(1)));
        assert!(is_waiting(first.as_mut()).await);
        let mut in_line = Box::pin(ring.receive(&near, BufMut::zeroed(1)));
        assert!(is_waiting(in_line.as_mut()).await);
        assert_eq!(ring.load().in_line, 1);
        drop(in_line);
        assert_eq!(ring.load().in_line, 0);
        writer.write_all(b"x").expect("write");
        assert_eq!(first.await.0.expect("read"), 1);
        far.write_all(b"y").expect("send");
        let (received, buf) = ring.receive(&near, BufMut::zeroed(1)).await;
        assert_eq!((received.expect("receive"), &buf[..]), (1, &b"y"[..]));
    });
}

#[test]
fn ring_dropped_with_operations_in_flight_gives_every_buffer_back() {
    let pool = pool(6);
    let (reader, writer) = pipe();
    let (near, far) = socket_pair();
    {
        let (mut executor, handle, ring) = world(4);
        executor.block_on(async {
            for _ in 0..3 {
                let (ring, file) = (ring.clone(), Arc::clone(&reader));
                let buf = pool.try_get(BLOCK).expect("a buffer");
                handle.spawn(async move {
                    let _ = ring.read_at(&file, 0, buf).await;
                    unreachable!("the pipe stays empty");
                });
            }
            for _ in 0..3 {
                let (ring, socket) = (ring.clone(), Arc::clone(&near));
                let buf = pool.try_get(BLOCK).expect("a buffer");
                handle.spawn(async move {
                    let _ = ring.receive(&socket, buf).await;
                    unreachable!("the socket stays silent");
                });
            }
            for _ in 0..10 {
                handle.yield_now().await;
            }
            let load = ring.load();
            assert_eq!((load.in_flight, load.in_line), (4, 2));
        });
        assert_eq!(in_use(&pool), 6);
    }
    assert_eq!(in_use(&pool), 0);
    assert_eq!((Arc::strong_count(&reader), Arc::strong_count(&near)), (1, 1));
    drop((writer, far));
}

#[test]
fn thread_that_panics_with_operations_in_flight_ends_and_gives_its_buffers_back() {
    let pool = pool(1);
    let (reader, writer) = pipe();
    let buf = pool.try_get(BLOCK).expect("a buffer");
    let panicking = std::thread::spawn(move || {
        let (mut executor, handle, ring) = world(4);
        let reading = ring.clone();
        handle.spawn(async move { drop(reading.read_at(&reader, 0, buf).await) });
        executor.block_on(async {
            ring.fsync(&temporary_file(), true).await.expect("sync");
            panic!("a bug in a task");
        });
    });
    assert!(panicking.join().is_err());
    assert_eq!(in_use(&pool), 0);
    drop(writer);
}

#[test]
fn outcome_of_an_operation_cut_off_by_the_end_of_its_ring_still_comes() {
    let (mut executor, handle, ring) = world(4);
    let (reader, _writer) = pipe();
    let pending = ring.start(Operation::Read { file: reader, at: 0, buf: BufMut::zeroed(8) });
    executor.block_on(async { ring.fsync(&temporary_file(), true).await.expect("sync") });
    drop((executor, handle, ring));
    let mut quiet = Executor::new(Box::new(ashlar_ring::VirtualReactor::new()), Schedule::InOrder);
    let outcome = quiet.block_on(pending).expect("an outcome");
    assert!(outcome.result.is_err());
    assert!(matches!(outcome.operation, Operation::Read { buf, .. } if buf.len() == 8));
}

/// Reads on for as long as `again` says, and notes what came under which ticket.
#[derive(Default)]
struct Reader {
    again: Cell<usize>,
    seen: RefCell<Vec<(usize, bool, usize)>>,
}

impl Sink for Reader {
    fn take(&self, ticket: usize, outcome: Outcome) -> Option<Operation> {
        let Operation::Read { file, at, buf } = outcome.operation else { panic!("a read") };
        self.seen.borrow_mut().push((ticket, outcome.result.is_ok(), usize::from(buf[0])));
        let left = self.again.get().checked_sub(1)?;
        self.again.set(left);
        Some(Operation::Read { file, at: at + to_u64(BLOCK), buf })
    }
}

#[test]
fn a_sink_gets_every_outcome_under_its_ticket_and_may_ask_again() {
    let (mut executor, handle, ring) = world(2);
    let file = temporary_file();
    let reader = Rc::new(Reader::default());
    reader.again.set(3);
    executor.block_on(async {
        for number in 0..4_u8 {
            let content = Buf::copied(&[number + 1; BLOCK]);
            let (wrote, _) = ring.write_at(&file, u64::from(number) * 4096, content).await;
            wrote.expect("write");
        }
        let buf = BufMut::zeroed(BLOCK);
        let read = Operation::Read { file: Arc::clone(&file), at: 0, buf };
        ring.start_for(read, Rc::<Reader>::clone(&reader), 7);
        while reader.seen.borrow().len() < 4 {
            handle.yield_now().await;
        }
    });
    assert_eq!(*reader.seen.borrow(), [(7, true, 1), (7, true, 2), (7, true, 3), (7, true, 4)]);
    drop((executor, handle, ring));
    assert_eq!((Rc::strong_count(&reader), Arc::strong_count(&file)), (1, 1));
}

#[test]
fn a_sink_that_asks_again_while_its_ring_closes_gets_that_outcome_too_and_the_ring_ends() {
    let (mut executor, handle, ring) = world(4);
    let (pipe, _writer) = pipe();
    let reader = Rc::new(Reader::default());
    reader.again.set(2);
    for ticket in 0..3 {
        let read = Operation::Read { file: Arc::clone(&pipe), at: 0, buf: BufMut::zeroed(8) };
        ring.start_for(read, Rc::<Reader>::clone(&reader), ticket);
    }
    executor.block_on(async { handle.yield_now().await });
    drop((executor, handle, ring));
    let seen = reader.seen.borrow();
    assert_eq!(seen.len(), 5, "three reads and two more: {seen:?}");
    assert!(seen.iter().all(|(_, is_ok, _)| !is_ok), "{seen:?}");
    assert_eq!((Rc::strong_count(&reader), Arc::strong_count(&pipe)), (1, 1));
}

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

#[test]
fn timers_fire_on_the_real_clock() {
    let (mut executor, handle, _ring) = world(8);
    let before = handle.now();
    let wait = std::time::Duration::from_millis(2);
    executor.block_on(handle.sleep(wait));
    assert!(handle.now().since(before) >= wait);
}

#[test]
fn ring_of_impossible_size_is_refused() {
    for entries in [0, 8193, u32::MAX] {
        let refused = Ring::new(RingConfig { entries }).err().expect("refused");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
    assert!(Ring::new(RingConfig { entries: 8192 }).is_ok());
}
