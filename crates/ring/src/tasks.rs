//! The tasks of one executor, which of them are ready, and the wakers that make them so.
//!
//! What must stay true: a task is in the ready list at most once; a waker that outlives its task
//! wakes nobody (ids carry a generation); a wake on the executor's own thread takes no lock and
//! makes no system call; a wake from elsewhere goes to the locked inbox, and only the first one
//! since the inbox was emptied unparks the reactor. Not here: polling, which is the executor's.

use crate::executor::Core;
use crate::random::Random;
use crate::reactor::Unpark;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// A task of one executor; index 0 is the main future of `block_on`, which the executor does not
/// own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskId {
    index: usize,
    generation: u32,
}

/// A future and its one waker, out of the slot while it is polled.
pub(crate) struct Task {
    pub(crate) future: Pin<Box<dyn Future<Output = ()>>>,
    pub(crate) waker: Waker,
}

/// What to run next.
pub(crate) enum Next {
    Main,
    Task(TaskId, Task),
}

struct Slot {
    generation: u32,
    queued: bool,
    task: Option<Task>,
}

/// All tasks, and the ready ones among them.
pub(crate) struct Tasks {
    slots: Vec<Slot>,
    free: Vec<usize>,
    ready: VecDeque<TaskId>,
    /// Draws the next ready task; `None` runs them in order.
    lots: Option<Random>,
}

const MAIN: usize = 0;

impl Tasks {
    pub(crate) fn new(lots: Option<Random>) -> Self {
        let main = Slot { generation: 0, queued: false, task: None };
        Tasks { slots: vec![main], free: Vec::new(), ready: VecDeque::new(), lots }
    }

    /// A new, ready main: wakers of the last one wake nobody from here on.
    pub(crate) fn begin_main(&mut self, inbox: &Arc<Inbox>) -> Waker {
        self.slots[MAIN].generation = self.slots[MAIN].generation.wrapping_add(1);
        self.slots[MAIN].queued = false;
        let id = TaskId { index: MAIN, generation: self.slots[MAIN].generation };
        self.queue(id);
        TaskWaker::for_task(id, inbox)
    }

    /// Adds a task and makes it ready.
    pub(crate) fn insert(
        &mut self,
        future: Pin<Box<dyn Future<Output = ()>>>,
        inbox: &Arc<Inbox>,
    ) -> TaskId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, queued: false, task: None });
            self.slots.len() - 1
        });
        let id = TaskId { index, generation: self.slots[index].generation };
        self.slots[index].task = Some(Task { future, waker: TaskWaker::for_task(id, inbox) });
        self.queue(id);
        id
    }

    /// Makes a task ready, unless it is already or is no more.
    pub(crate) fn queue(&mut self, id: TaskId) {
        let slot = &mut self.slots[id.index];
        if slot.generation == id.generation && !slot.queued {
            slot.queued = true;
            self.ready.push_back(id);
        }
    }

    /// Takes the next ready task out to be polled.
    pub(crate) fn next(&mut self) -> Option<Next> {
        loop {
            let id = match &mut self.lots {
                Some(lots) if self.ready.len() > 1 => {
                    let drawn = lots.below(self.ready.len());
                    self.ready.swap_remove_back(drawn)?
                }
                _ => self.ready.pop_front()?,
            };
            let slot = &mut self.slots[id.index];
            if slot.generation != id.generation {
                continue;
            }
            slot.queued = false;
            if id.index == MAIN {
                return Some(Next::Main);
            }
            return Some(Next::Task(id, slot.task.take().expect("a ready task is in its slot")));
        }
    }

    /// Takes a task out to be polled at once, though it is not ready. `None` if it is to wait for
    /// its turn: it is ready by then, is being polled, or lots are drawn and say so.
    pub(crate) fn take_waiting(&mut self, id: TaskId) -> Option<Task> {
        let slot = &mut self.slots[id.index];
        let is_waiting = slot.generation == id.generation && !slot.queued;
        let is_drawn = |lots: &mut Random| lots.next_u64().is_multiple_of(2);
        let may_run = is_waiting && self.lots.as_mut().is_none_or(is_drawn);
        let task = if may_run { slot.task.take() } else { None };
        if task.is_none() {
            self.queue(id);
        }
        task
    }

    /// Puts an unfinished task back.
    pub(crate) fn put_back(&mut self, id: TaskId, task: Task) {
        self.slots[id.index].task = Some(task);
    }

    /// Frees the slot of a finished task.
    pub(crate) fn finish(&mut self, id: TaskId) {
        let slot = &mut self.slots[id.index];
        slot.generation = slot.generation.wrapping_add(1);
        slot.queued = false;
        self.free.push(id.index);
    }

    pub(crate) fn any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes every task out, for the executor to drop.
    pub(crate) fn take_all(&mut self) -> Vec<Task> {
        self.ready.clear();
        self.slots.iter_mut().filter_map(|slot| slot.task.take()).collect()
    }
}

thread_local! {
    /// The executor inside whose `block_on` this thread is.
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

/// While it lives, wakes on this thread for that executor are local.
pub(crate) struct Entered(Option<Rc<Core>>);

impl Entered {
    pub(crate) fn new(core: &Rc<Core>) -> Self {
        Entered(CURRENT.replace(Some(Rc::clone(core))))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// The one waker of a task.
pub(crate) struct TaskWaker {
    id: TaskId,
    inbox: Arc<Inbox>,
    /// In the inbox already, so that the inbox holds each task at most once.
    in_inbox: AtomicBool,
}

impl TaskWaker {
    fn for_task(id: TaskId, inbox: &Arc<Inbox>) -> Waker {
        let inbox = Arc::clone(inbox);
        Waker::from(Arc::new(TaskWaker { id, inbox, in_inbox: AtomicBool::new(false) }))
    }

    /// Whether this is the executor's own thread; then the task is ready now.
    fn wake_here(&self) -> bool {
        CURRENT
            .try_with(|current| match &*current.borrow() {
                Some(core) if Arc::ptr_eq(&core.inbox, &self.inbox) => {
                    core.tasks.borrow_mut().queue(self.id);
                    true
                }
                _ => false,
            })
            .unwrap_or(false)
    }

    fn wake_there(self: Arc<Self>) {
        if !self.in_inbox.swap(true, Ordering::AcqRel) {
            let inbox = Arc::clone(&self.inbox);
            inbox.push(self);
        }
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.wake_here() {
            self.wake_there();
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.wake_here() {
            Arc::clone(self).wake_there();
        }
    }
}

/// Wakes from other threads, waiting for the executor to look.
pub(crate) struct Inbox {
    woken: Mutex<Woken>,
    /// Whether `woken` holds anything; read without the lock, so that an idle inbox costs one load
    /// a turn.
    full: AtomicBool,
    unparker: Arc<dyn Unpark>,
}

struct Woken {
    tasks: Vec<Arc<TaskWaker>>,
    closed: bool,
}

impl Inbox {
    pub(crate) fn new(unparker: Arc<dyn Unpark>) -> Self {
        let woken = Mutex::new(Woken { tasks: Vec::new(), closed: false });
        Inbox { woken, full: AtomicBool::new(false), unparker }
    }

    fn push(&self, task: Arc<TaskWaker>) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        if woken.closed {
            return;
        }
        woken.tasks.push(task);
        let first = woken.tasks.len() == 1;
        self.full.store(true, Ordering::Release);
        drop(woken);
        if first {
            self.unparker.unpark();
        }
    }

    /// Moves all wakes into `tasks`, which recycles its memory.
    pub(crate) fn drain(&self, tasks: &mut Vec<Arc<TaskWaker>>) {
        if !self.full.load(Ordering::Acquire) {
            return;
        }
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut woken.tasks, tasks);
        self.full.store(false, Ordering::Release);
        drop(woken);
        for task in &*tasks {
            // Not a store: reading what a waker wrote last makes what it did before its wake
            // visible to the task, also if it found the flag set and pushed nothing.
            task.in_inbox.swap(false, Ordering::AcqRel);
        }
    }

    /// The executor is gone: forget what is there and take nothing more (a waker in here would own
    /// its own inbox).
    pub(crate) fn close(&self) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        woken.closed = true;
        let tasks = std::mem::take(&mut woken.tasks);
        drop(woken);
        drop(tasks);
    }
}

impl TaskWaker {
    pub(crate) fn id(&self) -> TaskId {
        self.id
    }
}
