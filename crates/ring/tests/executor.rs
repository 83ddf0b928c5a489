//! The executor in virtual time: order, fairness, timers, dropping, panics, wakes from other
//! threads.

use ashlar_ring::{
    Completions, Executor, Handle, Park, Reactor, Ring, RingConfig, Schedule, Unpark,
    VirtualReactor, contained, is_contained, until, within,
};
use ashlar_units::Nanos;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::{pending, poll_fn, ready};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

fn executor(schedule: Schedule) -> Executor {
    Executor::new(Box::new(VirtualReactor::new()), schedule)
}

/// Ten tasks that each run three times; who ran when.
fn trace(schedule: Schedule) -> Vec<(usize, u64)> {
    let mut executor = executor(schedule);
    let handle = executor.handle();
    let trace = Rc::new(RefCell::new(Vec::new()));
    for task in 0..10 {
        let (handle, trace) = (handle.clone(), Rc::clone(&trace));
        handle.clone().spawn(async move {
            for _ in 0..3 {
                trace.borrow_mut().push((task, handle.random_u64() % 1000));
                handle.yield_now().await;
            }
        });
    }
    executor.block_on(handle.sleep(Duration::from_secs(1)));
    trace.take()
}

#[test]
fn tasks_in_order_run_first_come_first_served() {
    let order: Vec<usize> = trace(Schedule::InOrder).into_iter().map(|(task, _)| task).collect();
    let round: Vec<usize> = (0..10).collect();
    assert_eq!(order, [&round[..], &round[..], &round[..]].concat());
}

#[test]
fn seeded_schedule_is_reproducible_and_differs_between_seeds() {
    assert_eq!(trace(Schedule::Seeded(7)), trace(Schedule::Seeded(7)));
    assert_ne!(trace(Schedule::Seeded(7)), trace(Schedule::Seeded(8)));
    assert_eq!(trace(Schedule::Seeded(7)).len(), 30);
}

/// A caller, a task that it calls, and one that this calls in turn: who said what when.
fn calls(schedule: Schedule) -> Vec<&'static str> {
    let mut executor = executor(schedule);
    let handle = executor.handle();
    let trace = Rc::new(RefCell::new(Vec::new()));
    let ended = handle.spawn_callable(ready(())).expect("it runs");
    let (own, mut is_called) = (Rc::clone(&trace), false);
    let second = poll_fn(move |_| {
        own.borrow_mut().extend(is_called.then_some("second"));
        is_called = true;
        Poll::Pending
    });
    let second = handle.spawn_callable(second).expect("it runs");
    let (own, caller, mut is_called) = (Rc::clone(&trace), handle.clone(), false);
    let first = poll_fn(move |_| {
        if std::mem::replace(&mut is_called, true) {
            own.borrow_mut().push("first");
            caller.call(second);
            own.borrow_mut().push("first ends");
        }
        Poll::Pending
    });
    let first = handle.spawn_callable(first).expect("it runs");
    executor.block_on(async {
        for _ in 0..100 {
            handle.yield_now().await;
        }
        handle.call(ended);
        trace.borrow_mut().push("caller");
        handle.call(first);
        trace.borrow_mut().push("caller ends");
        while trace.borrow().len() < 5 {
            handle.yield_now().await;
        }
    });
    trace.take()
}

#[test]
fn a_called_task_runs_within_its_caller_and_whom_it_calls_itself_runs_later() {
    let within = ["caller", "first", "first ends", "caller ends", "second"];
    assert_eq!(calls(Schedule::InOrder), within);
    let later = ["caller", "caller ends", "first", "first ends", "second"];
    let second_within = ["caller", "caller ends", "first", "second", "first ends"];
    let drawn: BTreeSet<_> = (0..30).map(|seed| calls(Schedule::Seeded(seed))).collect();
    let all: BTreeSet<_> = [within, later, second_within].map(Vec::from).into();
    assert_eq!(drawn, all, "lots say what runs within its caller");
}

#[test]
fn an_hour_of_sleeps_passes_in_virtual_time_in_deadline_order() {
    let reactor = VirtualReactor::starting_at(Nanos(5));
    let clock = reactor.clock();
    let mut executor = Executor::new(Box::new(reactor), Schedule::InOrder);
    let handle = executor.handle();
    let woken = Rc::new(RefCell::new(Vec::new()));
    for minutes in [60_u64, 1, 30, 1] {
        let (sleeper, woken) = (handle.clone(), Rc::clone(&woken));
        handle.spawn(async move {
            sleeper.sleep(Duration::from_secs(60 * minutes)).await;
            woken.borrow_mut().push((minutes, sleeper.now()));
        });
    }
    executor.block_on(handle.sleep(Duration::from_secs(3601)));
    let minute = 60_000_000_000;
    let at = |minutes: u64| (minutes, Nanos(5 + minutes * minute));
    assert_eq!(*woken.borrow(), [at(1), at(1), at(30), at(60)]);
    assert_eq!(clock.now(), Nanos(5 + 60 * minute + 1_000_000_000));
}

#[test]
fn time_stands_still_while_tasks_are_ready() {
    let mut executor = executor(Schedule::InOrder);
    let handle = executor.handle();
    executor.block_on(async {
        let _timer = pin!(handle.sleep(Duration::from_nanos(1)));
        for _ in 0..1000 {
            handle.yield_now().await;
            assert_eq!(handle.now(), Nanos(0));
        }
    });
}

#[test]
fn other_tasks_go_on_in_the_next_block_on() {
    let mut executor = executor(Schedule::InOrder);
    let handle = executor.handle();
    let done = Rc::new(Cell::new(false));
    let (sleeper, set) = (handle.clone(), Rc::clone(&done));
    handle.spawn(async move {
        sleeper.sleep(Duration::from_secs(2)).await;
        set.set(true);
    });
    executor.block_on(handle.sleep(Duration::from_secs(1)));
    assert!(!done.get());
    executor.block_on(handle.sleep(Duration::from_secs(3)));
    assert!(done.get());
}

/// Counts its turns.
struct CountingReactor {
    turns: Rc<Cell<u32>>,
    inner: VirtualReactor,
}

impl Reactor for CountingReactor {
    fn now(&self) -> Nanos {
        self.inner.now()
    }

    fn turn(&mut self, park: Park) -> Nanos {
        self.turns.set(self.turns.get() + 1);
        self.inner.turn(park)
    }

    fn unparker(&self) -> Arc<dyn Unpark> {
        self.inner.unparker()
    }
}

#[test]
fn busy_tasks_do_not_keep_the_reactor_from_turning() {
    let turns = Rc::new(Cell::new(0));
    let reactor = CountingReactor { turns: Rc::clone(&turns), inner: VirtualReactor::new() };
    let mut executor = Executor::new(Box::new(reactor), Schedule::InOrder);
    let handle = executor.handle();
    let busy = handle.clone();
    handle.spawn(async move {
        loop {
            busy.yield_now().await;
        }
    });
    executor.block_on(async {
        for _ in 0..1000 {
            handle.yield_now().await;
        }
    });
    assert!(turns.get() >= 10, "2000 task runs made only {} turns", turns.get());
}

#[test]
fn dropped_sleep_wakes_nobody() {
    let turns = Rc::new(Cell::new(0));
    let reactor = CountingReactor { turns: Rc::clone(&turns), inner: VirtualReactor::new() };
    let mut executor = Executor::new(Box::new(reactor), Schedule::InOrder);
    let handle = executor.handle();
    executor.block_on(async {
        let mut short = Box::pin(handle.sleep(Duration::from_secs(1)));
        assert!(poll_fn(|cx| Poll::Ready(short.as_mut().poll(cx))).await.is_pending());
        drop(short);
        handle.sleep(Duration::from_secs(2)).await;
    });
    assert_eq!(handle.now(), Nanos(2_000_000_000));
    assert_eq!(turns.get(), 1, "the clock went to the second deadline at once");
}

#[test]
fn work_has_its_time_and_no_more_and_wins_a_tie() {
    let mut executor = executor(Schedule::InOrder);
    let handle = executor.handle();
    let second = Duration::from_secs(1);
    executor.block_on(async {
        let short = async {
            handle.sleep(second).await;
            7
        };
        assert_eq!(within(&handle, second * 2, short).await, Some(7));
        assert_eq!(handle.now(), Nanos(1_000_000_000), "the limit was not waited for");
        assert_eq!(within(&handle, second, handle.sleep(second * 2)).await, None);
        assert_eq!(handle.now(), Nanos(2_000_000_000));
        assert_eq!(until(ready(1), ready(2)).await, Some(1), "both are ready: the work wins");
        assert_eq!(until(pending::<()>(), ready(2)).await, None);
    });
}

#[test]
fn one_shot_wakes_the_task_that_waits() {
    let mut executor = executor(Schedule::InOrder);
    let handle = executor.handle();
    let supply = Completions::new();
    let (completion, pending) = supply.pair();
    let sleeper = handle.clone();
    handle.spawn(async move {
        sleeper.sleep(Duration::from_secs(1)).await;
        completion.complete("value");
    });
    assert_eq!(executor.block_on(pending), Some("value"));
}

/// Spawns when dropped: what a task's cleanup might do.
struct SpawnOnDrop(Handle, Rc<()>);

impl Drop for SpawnOnDrop {
    fn drop(&mut self) {
        let held = Rc::clone(&self.1);
        self.0.spawn(async move { drop(held) });
    }
}

#[test]
fn dropping_the_executor_drops_its_tasks_and_what_they_spawn() {
    let mut executor = executor(Schedule::InOrder);
    let handle = executor.handle();
    let held = Rc::new(());
    let guard = SpawnOnDrop(handle.clone(), Rc::clone(&held));
    let sleeper = handle.clone();
    handle.spawn(async move {
        let _guard = guard;
        sleeper.sleep(Duration::from_secs(1000)).await;
    });
    executor.block_on(handle.sleep(Duration::from_secs(1)));
    assert!(Rc::strong_count(&held) > 1);
    drop(executor);
    assert_eq!(Rc::strong_count(&held), 1);
    handle.spawn(async { unreachable!("the executor is gone") });
}

#[test]
fn panic_of_contained_work_ends_that_work_alone() {
    let mut executor = executor(Schedule::InOrder);
    let handle = executor.handle();
    let own = handle.clone();
    let ended = executor.block_on(async move {
        let dropped = Rc::new(());
        let held = Rc::clone(&dropped);
        let broken = contained(&own, async {
            let _held = held;
            assert!(is_contained());
            own.yield_now().await;
            panic!("a bug in {}", "this work")
        });
        let whole = contained(&own, async { 7 });
        let ended: (Result<u32, _>, _) = (broken.await, whole.await);
        assert!(!is_contained() && Rc::strong_count(&dropped) == 1);
        ended
    });
    assert_eq!(ended, (Err("a bug in this work".to_owned()), Ok(7)));
}

#[test]
#[should_panic(expected = "a bug in another task")]
fn panic_of_a_task_that_contained_work_calls_goes_through_block_on() {
    let mut executor = executor(Schedule::InOrder);
    let handle = executor.handle();
    let mut is_first = true;
    let other = handle.spawn_callable(poll_fn(move |_| match std::mem::take(&mut is_first) {
        true => Poll::Pending,
        false => panic!("a bug in another task"),
    }));
    let own = handle.clone();
    executor
        .block_on(async move {
            own.yield_now().await;
            let call = async { own.call(other.expect("it runs")) };
            contained(&own, call).await
        })
        .expect("never");
}

#[test]
#[should_panic(expected = "a bug in a task")]
fn panic_of_a_task_goes_through_block_on() {
    let mut executor = executor(Schedule::InOrder);
    let handle = executor.handle();
    handle.spawn(async { panic!("a bug in a task") });
    executor.block_on(handle.sleep(Duration::from_secs(1)));
}

#[test]
#[should_panic(expected = "deadlock")]
fn waiting_for_nothing_in_virtual_time_is_a_deadlock() {
    executor(Schedule::InOrder).block_on(std::future::pending::<()>());
}

#[test]
fn executor_inside_a_task_of_another_leaves_both_working() {
    let mut outer = executor(Schedule::InOrder);
    let handle = outer.handle();
    outer.block_on(async {
        let mut inner = executor(Schedule::InOrder);
        let sleeper = inner.handle();
        inner.block_on(async { sleeper.sleep(Duration::from_secs(1)).await });
        handle.sleep(Duration::from_secs(2)).await;
    });
    assert_eq!(handle.now(), Nanos(2_000_000_000));
}

#[test]
fn wakes_from_another_thread_reach_a_parked_executor() {
    let ring = Ring::new(RingConfig::of(8)).expect("these tests need io_uring");
    let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
    let (to_thread, wakers) = std::sync::mpsc::channel::<std::task::Waker>();
    let (confirm, confirmed) = std::sync::mpsc::channel::<u32>();
    let waking = std::thread::spawn(move || {
        for (count, waker) in (0..).zip(wakers) {
            confirm.send(count).expect("the test goes on");
            waker.wake();
        }
    });
    executor.block_on(async {
        for round in 0..1000 {
            let mut asked = false;
            poll_fn(|cx| {
                if !std::mem::replace(&mut asked, true) {
                    to_thread.send(cx.waker().clone()).expect("the thread goes on");
                    return Poll::Pending;
                }
                match confirmed.try_recv() {
                    Ok(count) => {
                        assert_eq!(count, round);
                        Poll::Ready(())
                    }
                    Err(_) => panic!("woken before the thread did"),
                }
            })
            .await;
        }
    });
    drop(to_thread);
    waking.join().expect("the thread ended well");
}
