//! Semaphore, signal, queue and mailbox: order, and that dropped waiters pass their turn on.

use ashlar_ring::local::{Queue, Semaphore, Signal};
use ashlar_ring::{Executor, Ring, RingConfig, Schedule, VirtualReactor, mailbox, within};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

fn executor(schedule: Schedule) -> Executor {
    Executor::new(Box::new(VirtualReactor::new()), schedule)
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn ready<F: Future + Unpin>(future: &mut F) -> F::Output {
    match poll(future) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("still waiting"),
    }
}

#[test]
fn permits_go_round_in_the_order_of_asking() {
    let semaphore = Semaphore::new(1);
    let held = semaphore.try_acquire().expect("free");
    let (mut first, mut second) = (semaphore.acquire(), semaphore.acquire());
    assert!(poll(&mut first).is_pending());
    assert!(poll(&mut second).is_pending());
    drop(held);
    assert!(semaphore.try_acquire().is_none(), "the permit is promised to the first in line");
    assert!(poll(&mut second).is_pending());
    let held = ready(&mut first);
    drop(held);
    drop(ready(&mut second));
    assert_eq!((semaphore.in_use(), semaphore.in_use_max(), semaphore.permits()), (0, 1, 1));
}

#[test]
fn dropped_acquire_passes_its_permit_on() {
    let semaphore = Semaphore::new(1);
    let held = semaphore.try_acquire().expect("free");
    let mut waiters: Vec<_> = (0..4).map(|_| semaphore.acquire()).collect();
    for waiter in &mut waiters {
        assert!(poll(waiter).is_pending());
    }
    drop(waiters.remove(1)); // Leaves the middle of the line.
    drop(held); // Grants the first, which is dropped before it runs.
    drop(waiters.remove(0));
    drop(ready(&mut waiters.remove(0)));
    drop(ready(&mut waiters.remove(0)));
    assert_eq!(semaphore.in_use(), 0);
}

#[test]
fn semaphore_never_admits_more_than_its_permits_under_any_of_many_schedules() {
    for seed in 0..50 {
        let mut executor = executor(Schedule::Seeded(seed));
        let handle = executor.handle();
        let semaphore = Semaphore::new(3);
        let (inside, passed) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        for task in 0..40_u64 {
            let (handle, semaphore) = (handle.clone(), semaphore.clone());
            let (inside, passed) = (Rc::clone(&inside), Rc::clone(&passed));
            handle.clone().spawn(async move {
                let _permit = semaphore.acquire().await;
                inside.set(inside.get() + 1);
                assert!(inside.get() <= 3, "seed {seed}");
                handle.sleep(Duration::from_millis(handle.random_u64() % 5 * task)).await;
                inside.set(inside.get() - 1);
                passed.set(passed.get() + 1);
            });
        }
        executor.block_on(handle.sleep(Duration::from_secs(100)));
        assert_eq!((passed.get(), semaphore.in_use()), (40, 0), "seed {seed}");
        assert_eq!(semaphore.in_use_max(), 3, "seed {seed}");
    }
}

#[test]
fn signal_wakes_all_who_waited_and_none_who_came_later() {
    let signal = Signal::new();
    let (mut polled, mut unpolled) = (signal.changed(), signal.changed());
    assert!(poll(&mut polled).is_pending());
    signal.notify_all();
    let mut later = signal.changed();
    ready(&mut polled);
    ready(&mut unpolled);
    assert!(poll(&mut later).is_pending());
}

#[test]
fn dropped_waiter_of_a_signal_leaves_the_others_waiting() {
    let mut executor = executor(Schedule::InOrder);
    let handle = executor.handle();
    let signal = Signal::new();
    let woken = Rc::new(Cell::new(0));
    let mut gone = signal.changed();
    for _ in 0..3 {
        let (signal, woken) = (signal.clone(), Rc::clone(&woken));
        handle.spawn(async move {
            signal.changed().await;
            woken.set(woken.get() + 1);
        });
    }
    assert!(poll(&mut gone).is_pending());
    executor.block_on(handle.sleep(Duration::from_secs(1)));
    drop(gone);
    signal.notify_all();
    executor.block_on(handle.sleep(Duration::from_secs(1)));
    assert_eq!(woken.get(), 3);
}

#[test]
fn queue_hands_items_to_waiters_in_order() {
    let queue = Queue::new();
    let (mut first, mut second) = (queue.pop(), queue.pop());
    assert!(poll(&mut first).is_pending());
    assert!(poll(&mut second).is_pending());
    queue.push('a');
    queue.push('b');
    queue.push('c');
    assert_eq!(queue.len(), 3);
    assert_eq!(queue.try_pop(), Some('a'));
    assert_eq!(queue.try_pop(), None, "two items are promised");
    assert_eq!(ready(&mut first), 'b');
    assert_eq!(ready(&mut second), 'c');
    assert!(queue.is_empty());
}

#[test]
fn dropped_pop_loses_no_item_and_passes_its_turn_on() {
    let queue = Queue::new();
    let (mut first, mut second) = (queue.pop(), queue.pop());
    assert!(poll(&mut first).is_pending());
    assert!(poll(&mut second).is_pending());
    queue.push(1);
    drop(first);
    assert_eq!(queue.try_pop(), None, "the item is promised to the second now");
    assert_eq!(ready(&mut second), 1);
    let mut third = queue.pop();
    assert!(poll(&mut third).is_pending());
    queue.push(2);
    drop(third);
    assert_eq!(queue.try_pop(), Some(2));
}

#[test]
fn queue_delivers_every_item_once_when_consumers_give_up_at_random() {
    for seed in 0..50 {
        let mut executor = executor(Schedule::Seeded(seed));
        let handle = executor.handle();
        let queue = Queue::new();
        let got = Rc::new(RefCell::new(Vec::new()));
        for _ in 0..5 {
            let (handle, queue, got) = (handle.clone(), queue.clone(), Rc::clone(&got));
            handle.clone().spawn(async move {
                loop {
                    let mut pop = queue.pop();
                    for _ in 0..handle.random_u64() % 4 {
                        let polled =
                            std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut pop).poll(cx)));
                        if let Poll::Ready(item) = polled.await {
                            got.borrow_mut().push(item);
                            pop = queue.pop();
                        }
                        handle.yield_now().await;
                    }
                    drop(pop);
                    handle.sleep(Duration::from_millis(1)).await;
                }
            });
        }
        let producer = handle.clone();
        let source = queue.clone();
        handle.spawn(async move {
            for item in 0..200 {
                source.push(item);
                if producer.random_u64().is_multiple_of(3) {
                    producer.sleep(Duration::from_millis(1)).await;
                }
            }
        });
        executor.block_on(handle.sleep(Duration::from_secs(10)));
        let mut got = got.take();
        got.sort_unstable();
        assert_eq!(got, (0..200).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn mailbox_keeps_each_senders_order_and_loses_nothing() {
    const SENDERS: usize = 4;
    const MESSAGES: u32 = 20_000;
    let ring = Ring::new(RingConfig::of(8)).expect("these tests need io_uring");
    let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
    let (sender, mut receiver) = mailbox::mailbox::<(usize, u32)>(&executor.handle());
    let threads: Vec<_> = (0..SENDERS)
        .map(|who| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                (0..MESSAGES).for_each(|message| sender.send((who, message)))
            })
        })
        .collect();
    let next = executor.block_on(async {
        let mut next = HashMap::<usize, u32>::new();
        while next.values().sum::<u32>() < MESSAGES * u32::try_from(SENDERS).expect("few") {
            let (who, message) = receiver.receive().await;
            let expected = next.entry(who).or_default();
            assert_eq!(message, *expected, "sender {who}");
            *expected += 1;
        }
        next
    });
    assert_eq!(next.len(), SENDERS);
    assert!(receiver.try_receive().is_none());
    for thread in threads {
        thread.join().expect("sender ended well");
    }
}

/// How long a message may take on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// Two executors on two threads, each with this longest look for work before it sleeps, send a
/// number there and back.
fn ping_pong(rounds: u32, [near_spin, far_spin]: [Duration; 2]) {
    let (give, take) = std::sync::mpsc::channel();
    let (to_home, home) = std::sync::mpsc::channel();
    let far = std::thread::spawn(move || {
        let ring = Ring::new(RingConfig::of(8)).expect("these tests need io_uring");
        let mut executor = Executor::new(ring.spinning_reactor(far_spin), Schedule::InOrder);
        let (sender, mut receiver) = mailbox::mailbox::<u32>(&executor.handle());
        give.send(sender).expect("the near end lives");
        let back: mailbox::Sender<u32> = home.recv().expect("the near end lives");
        let handle = executor.handle();
        executor.block_on(async {
            for _ in 0..rounds {
                let message = within(&handle, PATIENCE, receiver.receive()).await;
                back.send(message.expect("no wake-up is lost") + 1);
            }
        });
    });
    let ring = Ring::new(RingConfig::of(8)).expect("these tests need io_uring");
    let mut executor = Executor::new(ring.spinning_reactor(near_spin), Schedule::InOrder);
    let (sender, mut receiver) = mailbox::mailbox::<u32>(&executor.handle());
    to_home.send(sender).expect("the far end lives");
    let there = take.recv().expect("the far end lives");
    let handle = executor.handle();
    executor.block_on(async {
        for round in 0..rounds {
            there.send(round);
            let message = within(&handle, PATIENCE, receiver.receive()).await;
            assert_eq!(message, Some(round + 1), "a wake-up was lost");
        }
    });
    far.join().expect("the far end ended well");
}

#[test]
fn two_executors_on_two_threads_play_ping_pong() {
    ping_pong(2_000, [Duration::ZERO; 2]);
}

#[test]
fn no_wake_up_is_lost_between_a_look_for_work_and_a_sleep() {
    // Short looks end in vain most of the time, so that the next message finds the thread at any
    // step between looking and sleeping; long ones nearly never sleep.
    let spins = [Duration::ZERO, Duration::from_micros(2), Duration::from_millis(1)];
    for near in spins {
        for far in spins {
            ping_pong(1_000, [near, far]);
        }
    }
}

/// Looks for work of an executor that has this to wait for, and those of use.
fn looks(waits: u32, each: Duration) -> (u64, u64) {
    let ring = Ring::new(RingConfig::of(8)).expect("these tests need io_uring");
    let reactor = ring.spinning_reactor(Duration::from_micros(50));
    let mut executor = Executor::new(reactor, Schedule::InOrder);
    let handle = executor.handle();
    executor.block_on(async {
        for _ in 0..waits {
            handle.sleep(each).await;
        }
    });
    let calls = ring.load().calls;
    (calls.looks, calls.looks_of_use)
}

#[test]
fn a_thread_whose_waits_are_long_never_looks_for_work() {
    assert_eq!(looks(50, Duration::from_millis(10)), (0, 0));
}

#[test]
fn a_thread_that_always_looks_never_sleeps() {
    let ring = Ring::new(RingConfig::of(8)).expect("these tests need io_uring");
    let mut executor = Executor::new(ring.spinning_reactor(Duration::MAX), Schedule::InOrder);
    let handle = executor.handle();
    let (sender, mut receiver) = mailbox::mailbox(&handle);
    let far = std::thread::spawn(move || {
        for message in 0..100_u32 {
            sender.send(message);
        }
    });
    executor.block_on(async {
        for message in 0..100_u32 {
            handle.sleep(Duration::from_micros(100)).await;
            assert_eq!(receiver.receive().await, message);
        }
    });
    far.join().expect("the thread ended well");
    let calls = ring.load().calls;
    assert!(calls.looks >= 100 && calls.sleeps == 0, "{calls:?}");
}

#[test]
fn a_look_for_work_ends_with_the_time_that_is_waited_for() {
    let ring = Ring::new(RingConfig::of(8)).expect("these tests need io_uring");
    let mut executor =
        Executor::new(ring.spinning_reactor(Duration::from_millis(500)), Schedule::InOrder);
    let handle = executor.handle();
    let begun = handle.now();
    executor.block_on(async {
        for _ in 0..200 {
            handle.sleep(Duration::from_micros(100)).await;
        }
    });
    let calls = ring.load().calls;
    assert!(calls.looks > 0 && calls.looks_of_use == 0, "{calls:?}");
    let took = u64::try_from(handle.now().since(begun).as_nanos()).expect("short");
    assert!(calls.look_nanos <= took, "{calls:?} in {took} ns");
}

#[test]
fn a_message_is_found_by_a_look_for_work() {
    let ring = Ring::new(RingConfig::of(8)).expect("these tests need io_uring");
    let reactor = ring.spinning_reactor(Duration::from_secs(1));
    let mut executor = Executor::new(reactor, Schedule::InOrder);
    let (sender, mut receiver) = mailbox::mailbox(&executor.handle());
    let (ready, go) = std::sync::mpsc::channel();
    let far = std::thread::spawn(move || {
        while let Ok(message) = go.recv() {
            sender.send(message);
        }
    });
    executor.block_on(async {
        for message in 0..1_000_u32 {
            ready.send(message).expect("the thread lives");
            assert_eq!(receiver.receive().await, message);
        }
    });
    drop(ready);
    far.join().expect("the thread ended well");
    let calls = ring.load().calls;
    assert!(calls.looks_of_use > 0, "{calls:?}");
}

#[test]
fn messages_to_a_dropped_receiver_are_dropped() {
    let executor = executor(Schedule::InOrder);
    let (sender, receiver) = mailbox::mailbox(&executor.handle());
    let message = std::sync::Arc::new(());
    sender.send(std::sync::Arc::clone(&message));
    drop(receiver);
    sender.send(std::sync::Arc::clone(&message));
    assert_eq!(std::sync::Arc::strong_count(&message), 1);
}
