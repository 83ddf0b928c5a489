//! Tasks that wait for a device's command and pass the answer on.
//!
//! A completion cannot call back, so a task has to wait for it. A task for each command in flight
//! would allocate each time. These tasks stay when they are done and take the next command. What
//! must stay true: there are never fewer tasks than commands in flight, so no command waits for
//! another. There are never more than the most commands that were ever in flight. All end with
//! their device. Not here: the commands.

use std::cell::Cell;
use std::rc::Rc;

use ashlar_ring::Handle;
use ashlar_ring::local::Queue;

/// What is done with each job.
pub(crate) trait Work<J>: 'static {
    /// Sees one job through.
    async fn run(&self, job: J);
}

/// Tasks that wait, for one device on one worker.
pub(crate) struct Forward<J, W> {
    handle: Handle,
    shared: Rc<Shared<J, W>>,
}

struct Shared<J, W> {
    /// A job, or the order to end.
    queue: Queue<Option<J>>,
    work: W,
    /// Tasks without a job, not counting those whose job is still in the queue.
    idle: Cell<usize>,
    is_closed: Cell<bool>,
}

impl<J: 'static, W: Work<J>> Forward<J, W> {
    pub(crate) fn new(handle: &Handle, work: W) -> Forward<J, W> {
        let shared =
            Shared { queue: Queue::new(), work, idle: Cell::new(0), is_closed: Cell::new(false) };
        Forward { handle: handle.clone(), shared: Rc::new(shared) }
    }

    /// What the tasks do, for callers that begin it themselves.
    pub(crate) fn work(&self) -> &W {
        &self.shared.work
    }

    /// Has a task see `job` through.
    pub(crate) fn push(&self, job: J) {
        self.shared.queue.push(Some(job));
        match self.shared.idle.get() {
            0 => self.handle.spawn(serve(Rc::clone(&self.shared))),
            idle => self.shared.idle.set(idle - 1),
        }
    }
}

async fn serve<J: 'static, W: Work<J>>(shared: Rc<Shared<J, W>>) {
    while let Some(job) = shared.queue.pop().await {
        shared.work.run(job).await;
        if shared.is_closed.get() {
            return;
        }
        shared.idle.set(shared.idle.get() + 1);
    }
}

impl<J, W> Drop for Forward<J, W> {
    /// Tasks hold the device's file open; without this they would until the worker stops.
    fn drop(&mut self) {
        self.shared.is_closed.set(true);
        for _ in 0..self.shared.idle.get() {
            self.shared.queue.push(None);
        }
    }
}
