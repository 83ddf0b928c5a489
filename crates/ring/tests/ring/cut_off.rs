//! Operations that nobody waits for any more: dropped futures, rings that close, threads that
//! panic.
//!
//! What must stay true: a buffer stays alive until the kernel is done with it, and every one comes
//! back.

use crate::{BLOCK, in_use, is_waiting, pipe, pool, socket_pair, temporary_file, world};
use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::{Executor, Operation, OperationOutcome, Schedule, Sink};
use ashlar_units::to_u64;
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;

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
    fn take(&self, ticket: usize, outcome: OperationOutcome) -> Option<Operation> {
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

/// Counts what comes, and starts nothing.
#[derive(Default)]
struct Counting {
    ended: Cell<usize>,
    cancelled: Cell<usize>,
}

impl Sink for Counting {
    fn take(&self, _ticket: usize, outcome: OperationOutcome) -> Option<Operation> {
        self.ended.set(self.ended.get() + 1);
        if outcome.result.is_err() {
            self.cancelled.set(self.cancelled.get() + 1);
        }
        None
    }
}

#[test]
fn operations_that_were_given_up_end_once_each_and_their_buffers_are_stood_in_for_meanwhile() {
    let (mut executor, handle, ring) = world(1);
    let (reader, mut writer) = pipe();
    let pool = pool(3);
    let (sink, other) = (Rc::new(Counting::default()), Rc::new(Counting::default()));
    let read = || Operation::Read {
        file: Arc::clone(&reader),
        at: 0,
        buf: pool.try_get(BLOCK).expect("one is free"),
    };
    executor.block_on(async {
        let given_up: Rc<dyn Sink> = Rc::<Counting>::clone(&sink);
        let stays: Rc<dyn Sink> = Rc::<Counting>::clone(&other);
        ring.start_for(read(), Rc::clone(&given_up), 0);
        ring.start_for(read(), Rc::clone(&given_up), 1);
        ring.start_for(read(), stays, 2);
        assert!(pool.try_get(BLOCK).is_none());
        assert_eq!((ring.load().in_flight, ring.load().in_line), (1, 2));
        ring.give_up(&given_up);
        assert_eq!(sink.ended.get(), 1, "what was in line never starts");
        assert_eq!((ring.load().in_flight, ring.load().in_line), (1, 1));
        assert_eq!(in_use(&pool), 1, "of the one that stays");
        let others = (pool.try_get(BLOCK), pool.try_get(BLOCK));
        assert!(others.0.is_some() && others.1.is_some() && pool.try_get(BLOCK).is_none());
        drop(others);
        while sink.ended.get() < 2 {
            handle.yield_now().await;
        }
        writer.write_all(b"for the next").expect("write");
        while other.ended.get() == 0 {
            handle.yield_now().await;
        }
    });
    assert_eq!((sink.ended.get(), sink.cancelled.get()), (2, 2));
    assert_eq!((other.ended.get(), other.cancelled.get()), (1, 0));
    assert_eq!((in_use(&pool), pool.usage().classes[0].written_off), (0, 0));
}
