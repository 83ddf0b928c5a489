//! The operations that the kernel has: issue, reap, wait in line, cancel, close.
//!
//! What must stay true: an operation the kernel has sits in its slot, whose memory never moves,
//! until its completion is reaped; a slot has at most one entry with the kernel, so the submission
//! queue, which holds two entries a slot (one to cancel), cannot be full; operations start in the
//! order they came. No user code runs in here: what finished is returned. Not here: sleeping
//! (`parking`), and what an operation looks like to the kernel (`operation`).

use super::operation::{Operation, Outcome, Vectors};
use super::submit::{RingLoad, Sink};
use crate::Completion;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::rc::Rc;

/// Marks the completion of a cancel request, which tells nothing: the cancelled operation has its
/// own.
const CANCEL: u64 = u64::MAX;
/// Marks the completion of the read of the doorbell.
const DOORBELL: u64 = u64::MAX - 1;

/// How long the end of a panicking thread waits for the kernel before it leaks what the kernel has.
const PANIC_PATIENCE_SECONDS: u64 = 5;

/// Device commands that are prepared before the kernel is told, short of the end of a turn. Random reads of
/// 4 KiB on ten files of a virtual disk, two workers with 32 each: 119 k/s with 2, 115 with 4, 112 with 8,
/// 106 with 16, 104 with all of a turn; CPU time did not differ by more than the noise of 10 %.
const BATCH: usize = 2;

/// How often EAGAIN on a file (not a socket) is answered by another try.
const FILE_TRIES_MAX: u32 = 16;

/// The kernel's side and ours of all operations of a ring.
pub(super) struct InFlight {
    uring: IoUring,
    slots: Box<[Slot]>,
    /// Parts of the operation in the slot with the same index.
    vectors: Box<[Vectors]>,
    free: Vec<usize>,
    line: VecDeque<Waiting>,
    tickets: u64,
    in_flight_max: usize,
    /// Entries the kernel was not told of yet.
    unsubmitted: usize,
    /// Where the kernel puts the doorbell's count, which nobody reads.
    bell: Box<UnsafeCell<u64>>,
    bell_armed: bool,
    closing: bool,
}

struct Slot {
    /// Counts the operations that were here, so that a cancel cannot hit the next one.
    generation: u32,
    running: Option<Running>,
}

struct Running {
    ticket: u64,
    operation: Operation,
    done: Done,
    stage: Stage,
    tries: u32,
    cancelled: bool,
}

/// What the kernel was asked last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The operation itself.
    Issued,
    /// When to try it again: a non-blocking file said EAGAIN.
    Polling,
}

struct Waiting {
    ticket: u64,
    operation: Operation,
    done: Done,
}

/// Who is told of an operation's end.
pub(super) enum Done {
    /// Whoever waits for this.
    OneShot(Completion<Outcome>),
    /// This one, at once, under this ticket.
    Sink(Rc<dyn Sink>, usize),
}

/// An operation at its end, to be delivered when nothing is borrowed.
pub(super) struct Finished {
    done: Done,
    outcome: Outcome,
}

impl Finished {
    /// Tells of the end. What is to be started in its place comes back.
    #[must_use]
    pub(super) fn deliver(self) -> Option<(Operation, Done)> {
        match self.done {
            Done::OneShot(completion) => {
                completion.complete(self.outcome);
                None
            }
            Done::Sink(sink, ticket) => {
                let next = sink.take(ticket, self.outcome)?;
                Some((next, Done::Sink(sink, ticket)))
            }
        }
    }

    fn cancelled(operation: Operation, done: Done) -> Self {
        Finished { done, outcome: Outcome { result: Err(Errno::CANCELED.into()), operation } }
    }
}

impl InFlight {
    pub(super) fn new(uring: IoUring, entries: u32) -> Self {
        let slot = |_| Slot { generation: 0, running: None };
        let slots: Box<[Slot]> = (0..entries).map(slot).collect();
        let vectors = (0..entries).map(|_| Vectors::new()).collect();
        InFlight {
            uring,
            vectors,
            free: (0..slots.len()).rev().collect(),
            slots,
            line: VecDeque::new(),
            tickets: 0,
            in_flight_max: 0,
            unsubmitted: 0,
            bell: Box::new(UnsafeCell::new(0)),
            bell_armed: false,
            closing: false,
        }
    }

    pub(super) fn load(&self) -> RingLoad {
        RingLoad {
            in_flight: self.busy(),
            in_flight_max: self.in_flight_max,
            in_line: self.line.len(),
        }
    }

    fn busy(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Prepares an operation for the next submission, or puts it in line. Returns its ticket, for
    /// `cancel`.
    ///
    /// # Panics
    /// If the operation skips more bytes than it has; checked here, before it has a slot to leave
    /// in disorder.
    pub(super) fn start(&mut self, operation: Operation, done: Done) -> u64 {
        if let Operation::Receive { buf, filled, .. } = &operation {
            assert!(*filled <= buf.len(), "receive past the end of the buffer");
        }
        self.tickets += 1;
        let waiting = Waiting { ticket: self.tickets, operation, done };
        // What is started while the ring closes ends in line, as if it had been there before.
        let free = if self.closing { None } else { self.free.pop() };
        match free {
            Some(index) => self.place(index, waiting),
            None => self.line.push_back(waiting),
        }
        self.tickets
    }

    fn place(&mut self, index: usize, waiting: Waiting) {
        let Waiting { ticket, operation, done } = waiting;
        let stage = Stage::Issued;
        let running = Running { ticket, operation, done, stage, tries: 0, cancelled: false };
        self.slots[index].running = Some(running);
        self.in_flight_max = self.in_flight_max.max(self.busy());
        self.issue(index);
    }

    fn issue(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let key = key_of(index, slot.generation);
        let running = slot.running.as_mut().expect("an occupied slot is issued");
        let entry = match running.stage {
            Stage::Issued => running.operation.entry(&mut self.vectors[index]),
            Stage::Polling => running.operation.poll_entry(),
        };
        self.push(&entry.user_data(key));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: what the entry points at is owned by its slot (or is `bell`), stays in place, and
        // is given up only when the completion is reaped or leaked for good
        // (`next_finished_while_closing`).
        let pushed = unsafe { self.uring.submission().push(entry) };
        pushed.expect("the submission queue has two places for each slot");
        self.unsubmitted += 1;
    }

    /// Asks the kernel to read the doorbell, unless it does already.
    pub(super) fn arm_bell(&mut self, bell: BorrowedFd<'_>) {
        if self.bell_armed {
            return;
        }
        self.bell_armed = true;
        let count = self.bell.get().cast();
        let read = opcode::Read::new(types::Fd(bell.as_raw_fd()), count, 8).build();
        self.push(&read.user_data(DOORBELL));
    }

    /// Hands over what was prepared if that is a batch: a device should not wait for its first command
    /// until the last one of a long turn is prepared.
    pub(super) fn submit_batch(&mut self) {
        if self.unsubmitted >= BATCH {
            self.submit();
        }
    }

    /// Hands over what was prepared, and lets the kernel deliver; no system call if there is
    /// nothing to do.
    pub(super) fn submit(&mut self) {
        let queue = self.uring.submission();
        let idle = queue.is_empty() && !queue.taskrun() && !queue.cq_overflow();
        drop(queue);
        self.unsubmitted = 0;
        if !idle {
            check_entered(self.uring.submit());
        }
    }

    /// Hands over what was prepared and sleeps until something completes or `timeout` has passed.
    pub(super) fn submit_and_wait(&mut self, timeout: Option<types::Timespec>) {
        self.unsubmitted = 0;
        let args = types::SubmitArgs::new();
        let submitter = self.uring.submitter();
        check_entered(match &timeout {
            Some(timeout) => submitter.submit_with_args(1, &args.timespec(timeout)),
            None => submitter.submit_with_args(1, &args),
        });
    }

    /// Takes completions off the queue until an operation is at its end.
    pub(super) fn next_finished(&mut self) -> Option<Finished> {
        loop {
            let completion: cqueue::Entry = self.uring.completion().next()?;
            match completion.user_data() {
                CANCEL => {}
                DOORBELL => self.bell_armed = false,
                key => {
                    if let Some(finished) = self.settle(key, completion.result()) {
                        return Some(finished);
                    }
                }
            }
        }
    }

    /// The kernel is done with a slot's entry: asks again, or frees the slot and starts the next in
    /// line.
    fn settle(&mut self, key: u64, result: i32) -> Option<Finished> {
        let (index, generation) = slot_of(key);
        let slot = &mut self.slots[index];
        assert_eq!(slot.generation, generation, "completion for a slot that moved on");
        let running = slot.running.as_mut().expect("completion for an empty slot");
        if let Some(stage) = running.again_after(result)
            && !self.closing
        {
            running.stage = stage;
            self.issue(index);
            return None;
        }
        slot.generation = slot.generation.wrapping_add(1);
        let Running { mut operation, done, .. } = slot.running.take()?;
        match self.line.pop_front() {
            Some(waiting) => self.place(index, waiting),
            None => self.free.push(index),
        }
        let result = settle_result(&mut operation, result);
        Some(Finished { done, outcome: Outcome { result, operation } })
    }

    /// Asks the kernel to end an operation soon; it still completes in its own time. One that never
    /// left the line is returned at its end.
    pub(super) fn cancel(&mut self, ticket: u64) -> Option<Finished> {
        if let Some(place) = self.line.iter().position(|waiting| waiting.ticket == ticket) {
            let Waiting { operation, done, .. } = self.line.remove(place)?;
            return Some(Finished::cancelled(operation, done));
        }
        let holds = |slot: &Slot| slot.running.as_ref().is_some_and(|run| run.ticket == ticket);
        if let Some(index) = self.slots.iter().position(holds) {
            self.cancel_slot(index);
        }
        None
    }

    fn cancel_slot(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let key = key_of(index, slot.generation);
        let Some(running) = &mut slot.running else { return };
        if !std::mem::replace(&mut running.cancelled, true) {
            self.push(&opcode::AsyncCancel::new(key).build().user_data(CANCEL));
        }
    }

    /// Asks the kernel to end everything; nothing in line is started any more.
    pub(super) fn begin_close(&mut self) {
        self.closing = true;
        for index in 0..self.slots.len() {
            self.cancel_slot(index);
        }
        if self.bell_armed {
            self.push(&opcode::AsyncCancel::new(DOORBELL).build().user_data(CANCEL));
        }
    }

    /// The next operation at its end; waits for it. `None` once the kernel has none of our memory
    /// any more.
    pub(super) fn next_finished_while_closing(&mut self) -> Option<Finished> {
        if let Some(Waiting { operation, done, .. }) = self.line.pop_front() {
            return Some(Finished::cancelled(operation, done));
        }
        loop {
            if let Some(finished) = self.next_finished() {
                return Some(finished);
            }
            if self.busy() == 0 && !self.bell_armed {
                return None;
            }
            if !self.wait_while_closing() {
                // Operations may still be running: their memory is leaked on purpose, for the
                // kernel may yet write to it.
                std::mem::forget(std::mem::take(&mut self.slots));
                std::mem::forget(std::mem::take(&mut self.vectors));
                std::mem::forget(std::mem::take(&mut self.bell));
                return None;
            }
        }
    }

    /// Whether more may complete. A broken ring has no future; and while a panic unwinds, our own
    /// books may be wrong (it may have come from in here), so nothing is waited for without end.
    fn wait_while_closing(&mut self) -> bool {
        let panicking = std::thread::panicking();
        let patience = types::Timespec::new().sec(PANIC_PATIENCE_SECONDS);
        let args = types::SubmitArgs::new();
        let submitter = self.uring.submitter();
        let entered = if panicking {
            submitter.submit_with_args(1, &args.timespec(&patience))
        } else {
            submitter.submit_with_args(1, &args)
        };
        match entered {
            Ok(_) => true,
            Err(error) if Errno::from_io_error(&error) == Some(Errno::TIME) => !panicking,
            Err(error) => is_passing(&error),
        }
    }
}

impl Running {
    /// What to ask next if `result` is not the end.
    fn again_after(&mut self, result: i32) -> Option<Stage> {
        if self.cancelled {
            return None;
        }
        if self.stage == Stage::Polling {
            return (result >= 0).then_some(Stage::Issued);
        }
        if result >= 0 {
            return None;
        }
        match Errno::from_raw_os_error(-result) {
            Errno::INTR => Some(Stage::Issued),
            Errno::AGAIN if self.operation.waits_for_peer() => Some(Stage::Polling),
            Errno::AGAIN if self.tries < FILE_TRIES_MAX => {
                self.tries += 1;
                Some(Stage::Polling)
            }
            _ => None,
        }
    }
}

fn settle_result(operation: &mut Operation, result: i32) -> io::Result<u32> {
    let Ok(value) = u32::try_from(result) else {
        return Err(io::Error::from_raw_os_error(-result));
    };
    match operation {
        Operation::Accept { accepted, .. } => {
            // SAFETY: a successful accept makes a new descriptor, which the kernel gave to nobody
            // but this completion.
            *accepted = Some(unsafe { OwnedFd::from_raw_fd(result) });
            Ok(0)
        }
        Operation::Readable { .. } => Ok(0),
        _ => Ok(value),
    }
}

fn key_of(index: usize, generation: u32) -> u64 {
    let index = u64::try_from(index).expect("usize fits 64 bits");
    (u64::from(generation) << 32) | index
}

fn slot_of(key: u64) -> (usize, u32) {
    let index = usize::try_from(key & u64::from(u32::MAX)).expect("32 bits");
    (index, u32::try_from(key >> 32).expect("32 bits"))
}

/// Errors of io_uring_enter(2) that pass by themselves: timeout, signal, completion queue full,
/// memory short.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN)
    )
}

/// # Panics
/// If the kernel refused the ring itself: a bug here, and nothing could ever complete again.
fn check_entered(entered: io::Result<usize>) {
    if let Err(error) = entered {
        assert!(is_passing(&error), "io_uring_enter failed: {error}");
    }
}
