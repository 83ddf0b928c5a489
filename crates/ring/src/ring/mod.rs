//! The io_uring of one core, as async functions.
//!
//! In reading order:
//! - `mod.rs`: [`Ring`]: files; `stream`: its functions for sockets
//! - `operation`: what can be asked of the kernel ([`Operation`]), and how it is written into a submission entry
//! - `in_flight`: which operations the kernel has; issue, reap, cancel, close
//! - `parking`: the reactor of the ring, and the doorbell that wakes it from other threads
//! - `setup`: making the kernel's side with the best flags it knows
//!
//! What must stay true: an operation owns its buffers and its file until its completion is reaped, so dropping a future is always
//! safe. Registered files and buffers would come in at `operation`; there are none yet.

mod in_flight;
mod operation;
mod parking;
mod setup;
mod stream;

pub use operation::{Operation, Outcome};

use crate::{Completion, Completions, Pending, Reactor};
use ashlar_iobuf::{Buf, BufMut};
use in_flight::InFlight;
use parking::{Doorbell, UringReactor};
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// How large a ring is.
#[derive(Clone, Copy, Debug)]
pub struct RingConfig {
    /// Operations the kernel may have at once, 1 to 8,192; more wait in line. All memory for them is allocated at start.
    pub entries: u32,
}

/// A result, and the buffers that came back from the kernel with it.
pub type BufResult<T, B> = (io::Result<T>, B);

/// io_uring of one core. Clone, not Send. Every operation owns its buffers until its completion is reaped; a dropped
/// future orphans the operation safely.
///
/// # Cancellation
/// Files: an operation on a file goes on after its future was dropped, and what it brings is dropped. Sockets,
/// [`Ring::readable`] and [`Ring::read_parts`], which may wait for ever, are cancelled when their future is dropped; bytes that
/// had arrived by then are lost.
///
/// # Dropping
/// When the last clone is dropped, all operations are cancelled and their ends awaited, so that the kernel never
/// writes to freed memory. A drive that hangs makes that wait as long as the kernel's own timeout.
#[derive(Clone)]
pub struct Ring {
    shared: Rc<Shared>,
}

struct Shared {
    in_flight: RefCell<InFlight>,
    one_shots: Completions<Outcome>,
    doorbell: Arc<Doorbell>,
}

impl Ring {
    /// A new ring of the calling thread.
    ///
    /// # Errors
    /// `InvalidInput` if `entries` is out of range; `Unsupported` or what io_uring_setup(2) says if the kernel is
    /// too old (before 5.11) or forbids io_uring here.
    pub fn new(config: RingConfig) -> io::Result<Ring> {
        let doorbell = Arc::new(Doorbell::new()?);
        let in_flight = InFlight::new(setup::build(config.entries)?, config.entries);
        let shared =
            Shared { in_flight: RefCell::new(in_flight), one_shots: Completions::new(), doorbell };
        Ok(Ring { shared: Rc::new(shared) })
    }

    /// The reactor that drives this ring; give it to `Executor::new`.
    pub fn reactor(&self) -> Box<dyn Reactor> {
        Box::new(UringReactor::new(self.clone()))
    }

    /// Starts an operation; the low-level form, without allocation. If the ring is full it waits in line. The outcome always comes
    /// (never `None`) while the ring lives, and brings the operation back with its buffers.
    ///
    /// # Cancellation
    /// Dropping the `Pending` orphans the operation; it is not cancelled.
    pub fn start(&self, operation: Operation) -> Pending<Outcome> {
        let (done, pending) = self.shared.one_shots.pair();
        self.start_into(operation, done);
        pending
    }

    /// As [`Ring::start`], but completes a one-shot of the caller's.
    pub fn start_into(&self, operation: Operation, done: Completion<Outcome>) {
        self.shared.in_flight.borrow_mut().start(operation, done);
    }

    /// Operations the kernel has, and operations that wait in line for a place.
    pub fn load(&self) -> RingLoad {
        self.shared.in_flight.borrow().load()
    }

    /// Runs an operation to its end; cancels it when dropped if it could wait for ever.
    async fn run(&self, operation: Operation) -> Outcome {
        let waits_for_peer = operation.waits_for_peer();
        let (done, pending) = self.shared.one_shots.pair();
        let ticket = self.shared.in_flight.borrow_mut().start(operation, done);
        let mut guard = CancelOnDrop { ring: self, ticket: waits_for_peer.then_some(ticket) };
        let outcome = pending.await.expect("this future keeps the ring, and a ring reaps all");
        guard.ticket = None;
        outcome
    }

    /// Reads up to the buffer's length at byte `at`; may read less, 0 at the end of the file.
    ///
    /// # Errors
    /// What pread(2) says.
    pub async fn read_at(
        &self,
        file: &Arc<OwnedFd>,
        at: u64,
        buf: BufMut,
    ) -> BufResult<usize, BufMut> {
        let outcome = self.run(Operation::Read { file: Arc::clone(file), at, buf }).await;
        let Operation::Read { buf, .. } = outcome.operation else { another_operation() };
        (outcome.result.map(size), buf)
    }

    /// Writes the buffer at byte `at`; may write less.
    ///
    /// # Errors
    /// What pwrite(2) says.
    pub async fn write_at(&self, file: &Arc<OwnedFd>, at: u64, buf: Buf) -> BufResult<usize, Buf> {
        self.write_with(file, at, buf, false).await
    }

    /// As [`Ring::write_at`], and what was written is on stable media when it resolves (as after fdatasync).
    ///
    /// # Errors
    /// What pwritev2(2) with RWF_DSYNC says.
    pub async fn write_at_durably(
        &self,
        file: &Arc<OwnedFd>,
        at: u64,
        buf: Buf,
    ) -> BufResult<usize, Buf> {
        self.write_with(file, at, buf, true).await
    }

    async fn write_with(
        &self,
        file: &Arc<OwnedFd>,
        at: u64,
        buf: Buf,
        durable: bool,
    ) -> BufResult<usize, Buf> {
        let write = Operation::Write { file: Arc::clone(file), at, buf, durable };
        let outcome = self.run(write).await;
        let Operation::Write { buf, .. } = outcome.operation else { another_operation() };
        (outcome.result.map(size), buf)
    }

    /// Reads one message into two buffers, in order (FUSE: header and payload in one call). File position is not used.
    ///
    /// # Errors
    /// What readv(2) says.
    pub async fn read_parts(
        &self,
        file: &Arc<OwnedFd>,
        parts: [BufMut; 2],
    ) -> BufResult<usize, [BufMut; 2]> {
        let outcome = self.run(Operation::ReadParts { file: Arc::clone(file), parts }).await;
        let Operation::ReadParts { parts, .. } = outcome.operation else { another_operation() };
        (outcome.result.map(size), parts)
    }

    /// Writes one message from two buffers, in order. File position is not used.
    ///
    /// # Errors
    /// What writev(2) says.
    pub async fn write_parts(
        &self,
        file: &Arc<OwnedFd>,
        parts: [Buf; 2],
    ) -> BufResult<usize, [Buf; 2]> {
        let outcome = self.run(Operation::WriteParts { file: Arc::clone(file), parts }).await;
        let Operation::WriteParts { parts, .. } = outcome.operation else { another_operation() };
        (outcome.result.map(size), parts)
    }

    /// Makes stable what was written before; with `data_only`, without metadata that reading does not need.
    ///
    /// # Errors
    /// What fsync(2) says. An error means that data may be lost for good: a second try proves nothing.
    pub async fn fsync(&self, file: &Arc<OwnedFd>, data_only: bool) -> io::Result<()> {
        let fsync = Operation::Fsync { file: Arc::clone(file), data_only };
        self.run(fsync).await.result.map(drop)
    }

    /// fallocate(2) with raw mode bits.
    ///
    /// # Errors
    /// What fallocate(2) says.
    pub async fn fallocate(
        &self,
        file: &Arc<OwnedFd>,
        mode: i32,
        at: u64,
        bytes: u64,
    ) -> io::Result<()> {
        let fallocate = Operation::Fallocate { file: Arc::clone(file), mode, at, bytes };
        self.run(fallocate).await.result.map(drop)
    }

    /// Waits until the descriptor is readable (eventfd, signalfd, ...), or in error or hung up, which reading then tells.
    ///
    /// # Errors
    /// What poll(2) says.
    pub async fn readable(&self, file: &Arc<OwnedFd>) -> io::Result<()> {
        self.run(Operation::Readable { file: Arc::clone(file) }).await.result.map(drop)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let in_flight = self.in_flight.get_mut();
        in_flight.begin_close();
        while let Some(finished) = in_flight.next_finished_while_closing() {
            finished.deliver();
        }
    }
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
}

/// Cancels an operation whose future is dropped before its end.
struct CancelOnDrop<'ring> {
    ring: &'ring Ring,
    ticket: Option<u64>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let never_issued = self.ring.shared.in_flight.borrow_mut().cancel(ticket);
        if let Some(finished) = never_issued {
            finished.deliver();
        }
    }
}

fn size(bytes: u32) -> usize {
    usize::try_from(bytes).expect("usize has at least 32 bits on Linux")
}

fn another_operation() -> ! {
    unreachable!("an outcome brings back the operation it was started with")
}
