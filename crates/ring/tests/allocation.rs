//! Once warm, nothing allocates: I/O, one-shots, sleeps, messages and local waiting under a
//! counting allocator.

use ashlar_iobuf::BufMut;
use ashlar_ring::local::{Queue, Semaphore, Signal};
use ashlar_ring::{Completions, Executor, Handle, Ring, RingConfig, Schedule, mailbox};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `memory` is from `System`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What a worker's task does over and over: each kind of waiting there is.
async fn one_round(world: &World, mut buf: BufMut, number: u64) -> BufMut {
    let _permit = world.permits.acquire().await;
    let read;
    (read, buf) = world.ring.read_at(&world.file, number % 8, buf).await;
    read.expect("read");
    let (completion, pending) = world.supply.pair();
    world.requests.push(completion);
    assert_eq!(pending.await, Some(()));
    world.handle.sleep(Duration::from_nanos(1)).await;
    world.rounds.set(world.rounds.get() + 1);
    world.changed.notify_all();
    buf
}

struct World {
    handle: Handle,
    ring: Ring,
    file: Arc<OwnedFd>,
    permits: Semaphore,
    supply: Completions<()>,
    requests: Queue<ashlar_ring::Completion<()>>,
    rounds: Cell<u64>,
    changed: Signal,
}

/// Spawns 16 workers and one task that answers their requests, by way of a mailbox.
fn start(world: &Rc<World>) {
    let (sender, mut receiver) = mailbox::mailbox::<u64>(&world.handle);
    let answering = Rc::clone(world);
    world.handle.spawn(async move {
        loop {
            let completion = answering.requests.pop().await;
            sender.send(1);
            assert_eq!(receiver.receive().await, 1);
            completion.complete(());
        }
    });
    for worker in 0..16 {
        let world = Rc::clone(world);
        world.handle.clone().spawn(async move {
            let mut buf = BufMut::zeroed(512);
            loop {
                buf = one_round(&world, buf, worker).await;
            }
        });
    }
}

#[test]
fn warm_executor_and_ring_allocate_nothing() {
    // Fewer entries and permits than workers, so that both lines are in use.
    let ring = Ring::new(RingConfig::of(4)).expect("these tests need io_uring");
    let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
    let world = Rc::new(World {
        handle: executor.handle(),
        ring,
        file: Arc::new(tempfile::tempfile().expect("a file").into()),
        permits: Semaphore::new(10),
        supply: Completions::new(),
        requests: Queue::new(),
        rounds: Cell::new(0),
        changed: Signal::new(),
    });
    start(&world);
    executor.block_on(async {
        let reach = async |rounds| {
            while world.rounds.get() < rounds {
                world.changed.changed().await;
            }
        };
        reach(2_000).await;
        let before = ALLOCATIONS.get();
        assert!(before > 0, "the allocator counts");
        reach(12_000).await;
        assert_eq!(ALLOCATIONS.get() - before, 0);
    });
}
