//! A device around another one that notes how commands begin and end.
//!
//! What must stay true: the beginning is noted before the inner device gets the command, the end
//! before any task learns of it. Not here: what is noted (`record`, `stats`).

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use ashlar_ring::{Completion, Completions, Handle, Pending};

use crate::device::{Command, Device, DeviceFacts, Look, Outcome};
use crate::fault::Fault;
use crate::flights::Owed;
use crate::forward::{Forward, Work};

/// What is noted of commands.
pub(crate) trait Notes: 'static {
    /// What is kept of a command until it ends.
    type Began: 'static;

    /// A command begins. `None` if its end is not noted.
    ///
    /// # Errors
    /// It must not begin.
    fn begins(&self, offset: u64, command: &Command) -> Result<Option<Self::Began>, Fault>;

    /// It has ended; `None` if no answer will come. The answer to pass on.
    fn ends(&self, began: Self::Began, outcome: Option<Outcome>) -> Option<Outcome>;
}

/// A device whose commands are noted.
pub(crate) struct NotedDevice<N: Notes> {
    inner: Rc<dyn Device>,
    supply: Completions<Outcome>,
    forward: Forward<Job<N>, Ends<N>>,
}

struct Job<N: Notes> {
    began: N::Began,
    pending: Pending<Outcome>,
    done: Completion<Outcome>,
}

struct Ends<N>(N);

impl<N: Notes> NotedDevice<N> {
    pub(crate) fn new(inner: Rc<dyn Device>, handle: &Handle, notes: N) -> NotedDevice<N> {
        let forward = Forward::new(handle, Ends(notes));
        NotedDevice { inner, supply: Completions::new(), forward }
    }
}

impl<N: Notes> Device for NotedDevice<N> {
    fn facts(&self) -> &DeviceFacts {
        self.inner.facts()
    }

    fn look(&self) -> Option<Look> {
        self.inner.look()
    }

    fn look_at_commands(&self) -> Owed {
        self.inner.look_at_commands()
    }

    fn give_up(&self) {
        self.inner.give_up();
    }

    fn submit(&self, offset: u64, command: Command, done: Completion<Outcome>) {
        let ends = self.forward.work();
        let began = match ends.0.begins(offset, &command) {
            Ok(Some(began)) => began,
            Ok(None) => return self.inner.submit(offset, command, done),
            Err(fault) => return done.complete(Outcome::refused(command, fault)),
        };
        let (inner_done, mut pending) = self.supply.pair();
        self.inner.submit(offset, command, inner_done);
        // Memory is done at once: then nobody has to wait.
        match Pin::new(&mut pending).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => ends.pass_on(began, outcome, done),
            Poll::Pending => self.forward.push(Job { began, pending, done }),
        }
    }
}

impl<N: Notes> Work<Job<N>> for Ends<N> {
    async fn run(&self, job: Job<N>) {
        let Job { began, pending, done } = job;
        let outcome = pending.await;
        self.pass_on(began, outcome, done);
    }
}

impl<N: Notes> Ends<N> {
    fn pass_on(&self, began: N::Began, outcome: Option<Outcome>, done: Completion<Outcome>) {
        // An answer that will not come is passed on as just that, by dropping `done`.
        if let Some(outcome) = self.0.ends(began, outcome) {
            done.complete(outcome);
        }
    }
}
