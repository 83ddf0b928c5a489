//! One core's single-threaded executor: runs ready tasks, then lets the reactor turn, and parks in
//! it when idle.
//!
//! What must stay true: at most [`TASKS_PER_TURN`] task runs pass between two looks at the reactor
//! and the timers, each with the tasks that it calls; no internal cell is borrowed while a task, a
//! waker or a value of the user runs or is dropped; a panic of a task goes through `block_on`. Not
//! here: I/O (the reactor's), what other threads may do (see [`mailbox`](crate::mailbox)).

use crate::Ring;
use crate::random::Random;
use crate::reactor::{Park, Reactor};
use crate::tasks::{Entered, Inbox, Next, Task, TaskId, TaskWaker, Tasks};
use crate::timer::{Sleep, Timers};
use ashlar_units::Nanos;
use std::cell::{Cell, RefCell};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Task runs between two looks at completions and timers. At some 100 ns a run this is about 6 us:
/// below the latency of any drive, and enough to spread the cost of a turn (a clock read, and a
/// system call when there is I/O).
const TASKS_PER_TURN: usize = 64;

/// Order in which ready tasks run: first come first served, or drawn from a seed (simulation).
#[derive(Clone, Copy, Debug)]
pub enum Schedule {
    /// First ready, first run.
    InOrder,
    /// The next of the ready tasks is drawn by a generator with this seed: the same seed, the same
    /// order.
    Seeded(u64),
}

/// Single-threaded executor; not Send.
///
/// Dropping it drops all its tasks; I/O that they had begun is finished or cancelled when the ring
/// is dropped.
pub struct Executor {
    core: Rc<Core>,
}

/// What the executor, its handles, its sleeps and the wakers of this thread share.
pub(crate) struct Core {
    pub(crate) tasks: RefCell<Tasks>,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) turn_now: Cell<Nanos>,
    reactor: RefCell<Box<dyn Reactor>>,
    random: RefCell<Random>,
    woken: RefCell<Vec<Arc<TaskWaker>>>,
    closed: Cell<bool>,
    /// A task runs within another one.
    is_nested: Cell<bool>,
}

impl Executor {
    /// An executor without tasks, whose time and events come from `reactor`.
    pub fn new(reactor: Box<dyn Reactor>, schedule: Schedule) -> Executor {
        // Two generators from one seed: a task that draws a number must not change who runs next.
        let (lots, random) = match schedule {
            Schedule::InOrder => (None, Random::from_entropy()),
            Schedule::Seeded(seed) => (Some(Random::from_seed(seed)), Random::from_seed(!seed)),
        };
        let core = Core {
            tasks: RefCell::new(Tasks::new(lots)),
            timers: RefCell::new(Timers::new()),
            inbox: Arc::new(Inbox::new(reactor.unparker())),
            turn_now: Cell::new(reactor.now()),
            reactor: RefCell::new(reactor),
            random: RefCell::new(random),
            woken: RefCell::new(Vec::new()),
            closed: Cell::new(false),
            is_nested: Cell::new(false),
        };
        Executor { core: Rc::new(core) }
    }

    /// A handle for tasks to hold.
    pub fn handle(&self) -> Handle {
        Handle { core: Rc::clone(&self.core) }
    }

    /// Runs tasks until `main` is done; the other tasks stay and go on in the next call.
    ///
    /// # Panics
    /// With the panic of any task: it is not caught.
    pub fn block_on<T>(&mut self, main: impl Future<Output = T>) -> T {
        let core = &self.core;
        let _entered = Entered::new(core);
        // A panic may have ended the last call within a task within another.
        core.is_nested.set(false);
        let mut main = pin!(main);
        let waker = core.tasks.borrow_mut().begin_main(&core.inbox);
        let mut cx = Context::from_waker(&waker);
        core.read_clock();
        loop {
            core.collect_wakes();
            for _ in 0..TASKS_PER_TURN {
                let next = core.tasks.borrow_mut().next();
                match next {
                    None => break,
                    Some(Next::Task(id, task)) => core.run(id, task),
                    Some(Next::Main) => {
                        if let Poll::Ready(value) = main.as_mut().poll(&mut cx) {
                            return value;
                        }
                    }
                }
            }
            core.turn();
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.core.closed.set(true);
        // Dropping a task may wake others or spawn (which now does nothing), never bring back a
        // task.
        let tasks = self.core.tasks.borrow_mut().take_all();
        drop(tasks);
        self.core.inbox.close();
    }
}

impl Core {
    fn run(&self, id: TaskId, mut task: Task) {
        match task.future.as_mut().poll(&mut Context::from_waker(&task.waker)) {
            Poll::Pending => self.tasks.borrow_mut().put_back(id, task),
            Poll::Ready(()) => {
                self.tasks.borrow_mut().finish(id);
                drop(task);
            }
        }
    }

    /// Makes ready whom other threads woke and whose time has come.
    fn collect_wakes(&self) {
        let mut woken = self.woken.take();
        self.inbox.drain(&mut woken);
        for task in woken.drain(..) {
            self.tasks.borrow_mut().queue(task.id());
        }
        self.woken.replace(woken);
        let now = self.turn_now.get();
        loop {
            let due = self.timers.borrow_mut().pop_due(now);
            let Some(waker) = due else { break };
            waker.wake();
        }
    }

    /// Lets the reactor turn; it may park only if nobody is ready. A wake that another thread sends
    /// from here on unparks it.
    fn turn(&self) {
        let park = if self.tasks.borrow().any_ready() {
            Park::No
        } else {
            Park::Until(self.timers.borrow().next_deadline())
        };
        let now = self.reactor.borrow_mut().turn(park);
        self.turn_now.set(now);
    }

    fn read_clock(&self) {
        let now = self.reactor.borrow().now();
        self.turn_now.set(now);
    }
}

/// What tasks of an executor hold to reach it. Clone, not Send.
#[derive(Clone)]
pub struct Handle {
    core: Rc<Core>,
}

impl Handle {
    /// Starts a task. Allocates: not for each request; tasks of the data path stay and take one
    /// after the other. After the executor was dropped the task is dropped unrun.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let _nobody_calls = self.spawn_callable(task);
    }

    /// The same of a task that others [`call`](Handle::call). `None` after the executor was
    /// dropped.
    pub fn spawn_callable(&self, task: impl Future<Output = ()> + 'static) -> Option<Callable> {
        if self.core.closed.get() {
            return None;
        }
        Some(Callable(self.core.tasks.borrow_mut().insert(Box::pin(task), &self.core.inbox)))
    }

    /// Wakes a task, and lets it run at once where that may be: within the task that runs, until it
    /// waits. It costs less than a turn of its own, and what it answers is there on return.
    ///
    /// # Ordering
    /// The task runs later, as after any wake, if it is ready already, within a task that was
    /// called itself, and every other time under [`Schedule::Seeded`], by lot.
    pub fn call(&self, task: Callable) {
        if self.core.is_nested.get() {
            return self.core.tasks.borrow_mut().queue(task.0);
        }
        let waiting = self.core.tasks.borrow_mut().take_waiting(task.0);
        if let Some(waiting) = waiting {
            self.core.is_nested.set(true);
            self.core.run(task.0, waiting);
            self.core.is_nested.set(false);
        }
    }

    /// The clock, read afresh.
    pub fn now(&self) -> Nanos {
        // The reactor is borrowed only during its turn, where values of dropped operations may be
        // dropped.
        match self.core.reactor.try_borrow() {
            Ok(reactor) => reactor.now(),
            Err(_) => self.turn_now(),
        }
    }

    /// The clock as of the start of this turn: free of cost.
    pub fn turn_now(&self) -> Nanos {
        self.core.turn_now.get()
    }

    /// Resolves once `wait` has passed from this call on.
    pub fn sleep(&self, wait: Duration) -> Sleep {
        self.sleep_until(self.now().after(wait))
    }

    /// Resolves once the clock has reached `at`; at once if it has.
    pub fn sleep_until(&self, at: Nanos) -> Sleep {
        Sleep::new(Rc::clone(&self.core), at)
    }

    /// Goes to the end of the line: every other ready task runs once before this one goes on (under
    /// [`Schedule::Seeded`], this one is merely put among the ready again).
    pub fn yield_now(&self) -> YieldNow {
        YieldNow { yielded: false }
    }

    /// A number from the executor's generator: reproducible under [`Schedule::Seeded`]. Not for
    /// secrets.
    pub fn random_u64(&self) -> u64 {
        self.core.random.borrow_mut().next_u64()
    }

    /// Whether a task runs within another one, which called it.
    pub(crate) fn is_nested(&self) -> bool {
        self.core.is_nested.get()
    }

    /// The io_uring, if the reactor is one.
    pub fn ring(&self) -> Option<Ring> {
        self.core.reactor.try_borrow().ok()?.ring()
    }
}

/// Names a task of one executor that others [`call`](Handle::call). One that has ended is not
/// called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Callable(TaskId);

/// Lets the other ready tasks run; see [`Handle::yield_now`].
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
