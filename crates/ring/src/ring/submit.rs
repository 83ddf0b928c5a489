//! A ring and what its operations have in common: start, wait, cancel when no task waits, close.
//!
//! What must stay true: nothing is borrowed while a one-shot is completed, because that wakes tasks
//! and may drop buffers. A ring ends only when the kernel is done with all its operations. Not
//! here: the operations one by one (`file`, `stream`).

use super::in_flight::{Done, Finished, InFlight};
use super::operation::{Operation, OperationOutcome};
use super::parking::{Doorbell, UringReactor};
use super::setup::{self, EntryBytes};
use super::uring::Uring;
use crate::{Completion, Completions, Pending, Reactor};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How large a ring is.
#[derive(Clone, Copy, Debug)]
pub struct RingConfig {
    /// Operations the kernel may have at once, 1 to 8,192; more wait in line. All memory for them
    /// is allocated at start.
    pub entries: u32,
    /// How large an entry is.
    pub entry_bytes: EntryBytes,
}

impl RingConfig {
    /// A ring for so many operations at once, of narrow entries.
    #[must_use]
    pub fn of(entries: u32) -> RingConfig {
        RingConfig { entries, entry_bytes: EntryBytes::Narrow }
    }
}

/// A result, and the buffers that came back from the kernel with it.
pub type BufResult<T, B> = (io::Result<T>, B);

/// io_uring of one core. Clone, not Send. Every operation owns its buffers until its completion is
/// reaped; a dropped future orphans the operation safely.
///
/// # Cancellation
/// Files: an operation on a file goes on after its future was dropped, and what it brings is
/// dropped. Sockets, [`Ring::readable`] and [`Ring::read_parts`], which may wait for ever, are
/// cancelled when their future is dropped; bytes that had arrived by then are lost. Commands go on,
/// and only their device ends them.
///
/// # Dropping
/// When the last clone is dropped, all operations are cancelled and their ends awaited, so that the
/// kernel never writes to freed memory. Operations that have not ended after ten seconds without
/// any end (a drive that hangs) are left to the kernel, and their memory is leaked on purpose. Not
/// awaited are narrow commands, wide ones without memory, and what was queued without a copy: their
/// memory is leaked if the kernel still has it.
#[derive(Clone)]
pub struct Ring {
    pub(super) shared: Rc<Shared>,
}

pub(super) struct Shared {
    pub(super) in_flight: RefCell<InFlight>,
    pub(super) one_shots: Completions<OperationOutcome>,
    pub(super) queued: Completions<io::Result<u32>>,
    pub(super) doorbell: Arc<Doorbell>,
}

impl Ring {
    /// A new ring of the calling thread.
    ///
    /// # Errors
    /// `InvalidInput` if `entries` is out of range; `Unsupported` or what io_uring_setup(2) says if
    /// the kernel is too old (before 5.11) or forbids io_uring here.
    pub fn new(config: RingConfig) -> io::Result<Ring> {
        Ring::on(setup::build(config.entries, config.entry_bytes)?, config.entries)
    }

    pub(super) fn on(uring: Uring, entries: u32) -> io::Result<Ring> {
        let doorbell = Arc::new(Doorbell::new()?);
        let mut in_flight = InFlight::new(uring, entries);
        in_flight.make_records();
        let in_flight = RefCell::new(in_flight);
        let (one_shots, queued) = (Completions::new(), Completions::new());
        let shared = Shared { in_flight, one_shots, queued, doorbell };
        Ok(Ring { shared: Rc::new(shared) })
    }

    /// The reactor that drives this ring; give it to `Executor::new`.
    pub fn reactor(&self) -> Box<dyn Reactor> {
        self.spinning_reactor(Duration::ZERO)
    }

    /// As [`Ring::reactor`]; before it sleeps it looks for completions for at most `spin_most`,
    /// as long as waits are mostly shorter than that. With [`Duration::MAX`] it never sleeps.
    pub fn spinning_reactor(&self, spin_most: Duration) -> Box<dyn Reactor> {
        Box::new(UringReactor::new(self.clone(), spin_most))
    }

    /// Starts an operation; the low-level form, without allocation. If the ring is full it waits in
    /// line. The outcome always comes (never `None`) while the ring lives, and brings the operation
    /// back with its buffers.
    ///
    /// # Panics
    /// If a [`Operation::Receive`] has more bytes filled than its buffer holds, or a
    /// [`Operation::WideCommand`] is for a ring of narrow entries.
    ///
    /// # Cancellation
    /// Dropping the `Pending` orphans the operation; it is not cancelled.
    pub fn start(&self, operation: Operation) -> Pending<OperationOutcome> {
        let (done, pending) = self.shared.one_shots.pair();
        self.start_into(operation, done);
        pending
    }

    /// As [`Ring::start`], but completes a one-shot of the caller's.
    pub fn start_into(&self, operation: Operation, done: Completion<OperationOutcome>) {
        self.shared.in_flight.borrow_mut().start(operation, Done::OneShot(done));
    }

    /// As [`Ring::start`], but hands the outcome to `sink` as soon as it is there: no task waits
    /// for it.
    pub fn start_for(&self, operation: Operation, sink: Rc<dyn Sink>, ticket: usize) {
        let mut in_flight = self.shared.in_flight.borrow_mut();
        in_flight.start(operation, Done::Sink(sink, ticket));
        in_flight.submit_batch();
    }

    /// Nobody waits for the operations of `sink` any more. Those that wait in line are handed to it
    /// now, as cancelled; the kernel is asked to end the others soon, and each is handed to it when
    /// it has. Until then the pools of their buffers lend others in their place.
    pub fn give_up(&self, sink: &Rc<dyn Sink>) {
        let never_started = self.shared.in_flight.borrow_mut().give_up(sink);
        never_started.into_iter().for_each(|finished| self.shared.deliver(finished));
    }

    /// So many operations have been under way for long and may block threads of the kernel: it may
    /// have that many more, for others that need one.
    pub fn allow_blocked(&self, count: u32) {
        self.shared.in_flight.borrow_mut().allow_blocked(count);
    }

    /// The kernel makes a thread for what blocks, now. It lets the last one of them live: while
    /// memory is short and it cannot make one, what blocks is not cancelled.
    pub fn make_thread(&self) {
        self.shared.in_flight.borrow_mut().nudge();
    }

    /// One thread of the kernel, made now, is to carry out all that blocks: to make another takes
    /// memory.
    pub fn keep_one_thread(&self) {
        self.shared.in_flight.borrow_mut().keep_one_thread();
    }

    /// Whether [`Ring::keep_one_thread`] was asked for.
    pub fn keeps_one_thread(&self) -> bool {
        self.shared.in_flight.borrow().keeps_one_thread()
    }

    /// As [`Ring::start_for`], on a file whose file system may block whoever begins an operation,
    /// though it was asked not to: a thread of the kernel begins it.
    pub fn start_slow_for(&self, operation: Operation, sink: Rc<dyn Sink>, ticket: usize) {
        let mut in_flight = self.shared.in_flight.borrow_mut();
        in_flight.start(operation, Done::SinkOfSlow(sink, ticket));
        in_flight.submit_batch();
    }

    /// Operations the kernel has, and operations that wait in line for a place.
    pub fn load(&self) -> RingLoad {
        self.shared.in_flight.borrow().load()
    }

    /// Runs an operation to its end; cancels it when dropped if it could wait for ever.
    pub(super) async fn run(&self, operation: Operation) -> OperationOutcome {
        let waits_for_peer = operation.waits_for_peer();
        let (done, pending) = self.shared.one_shots.pair();
        let done = Done::OneShot(done);
        let ticket = self.shared.in_flight.borrow_mut().start(operation, done);
        let mut guard = CancelOnDrop { ring: self, ticket: waits_for_peer.then_some(ticket) };
        let outcome = pending.await.expect("this future keeps the ring, and a ring reaps all");
        guard.ticket = None;
        outcome
    }
}

impl Shared {
    pub(super) fn deliver(&self, finished: Finished) {
        if let Some((operation, done)) = finished.deliver() {
            self.in_flight.borrow_mut().start(operation, done);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let in_flight = self.in_flight.get_mut();
        in_flight.begin_close();
        while let Some(finished) = in_flight.next_finished_while_closing() {
            if let Some((operation, done)) = finished.deliver() {
                in_flight.start(operation, done);
            }
        }
    }
}

/// Takes the outcomes of operations as they come, instead of a task that waits for each.
///
/// What must stay true: it is called while the ring looks for completions, once for each operation,
/// also for those that are cut off by the end of the ring; so it passes on, and does no work of its
/// own.
pub trait Sink {
    /// The operation that was started under `ticket` has ended. An operation that is returned is
    /// started in its place, under the same ticket; while the ring closes, that one ends at once.
    fn take(&self, ticket: usize, outcome: OperationOutcome) -> Option<Operation>;
}

/// How full a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLoad {
    /// Operations the kernel has.
    pub in_flight: usize,
    /// The most it ever had.
    pub in_flight_max: usize,
    /// Operations that wait in line for a place.
    pub in_line: usize,
    /// Calls of the kernel since the ring was made.
    pub calls: KernelCalls,
}

/// How often a ring called the kernel. Plain numbers of its thread: counting costs an addition
/// beside each system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KernelCalls {
    /// System calls that handed over operations or waited: io_uring_enter.
    pub enters: u64,
    /// Those of them that were let sleep until something ends.
    pub sleeps: u64,
    /// Sleeps that other threads ended, each with a system call of theirs.
    pub bells: u64,
    /// Operations that the kernel was asked for, repetitions included.
    pub operations: u64,
    /// Times that it looked for completions before it slept.
    pub looks: u64,
    /// Those of them that found something, so that it did not sleep.
    pub looks_of_use: u64,
    /// Time of all looks, in nanoseconds.
    pub look_nanos: u64,
}

/// Cancels an operation whose future is dropped before its end.
pub(super) struct CancelOnDrop<'ring> {
    pub(super) ring: &'ring Ring,
    pub(super) ticket: Option<u64>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let never_issued = self.ring.shared.in_flight.borrow_mut().cancel(ticket);
        if let Some(finished) = never_issued {
            self.ring.shared.deliver(finished);
        }
    }
}

pub(super) fn size(bytes: u32) -> usize {
    usize::try_from(bytes).expect("usize has at least 32 bits on Linux")
}

pub(super) fn another_operation() -> ! {
    unreachable!("an outcome brings back the operation it was started with")
}
