//! The operations that the kernel has: issue, reap, wait in line, cancel, close.
//!
//! What must stay true: an operation the kernel has sits in its slot, whose memory never moves,
//! until its completion is reaped; a slot has at most one entry with the kernel, so the submission
//! queue, which holds two entries a slot (one to cancel), cannot be full; operations start in the
//! order they came. No user code runs in here: what finished is returned. Not here: sleeping
//! (`parking`), and what an operation looks like to the kernel (`operation`).

use super::operation::{Operation, OperationOutcome, Vectors};
use super::submit::{KernelCalls, RingLoad, Sink};
use super::uring::Uring;
use crate::Completion;
use io_uring::{cqueue, opcode, squeue, types};
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::rc::Rc;

/// Marks completions that tell nothing: of a cancel request (the cancelled operation has its own),
/// of a nudge.
const CANCEL: u64 = u64::MAX;
/// Marks the completion of the read of the doorbell.
const DOORBELL: u64 = u64::MAX - 1;

/// How often the end of a ring waits for a second in which nothing ends, before it leaks what the
/// kernel has: a drive that does not answer must not keep a process from its end.
const CLOSE_PATIENCE: u32 = 10;
/// The same while a panic unwinds.
const PANIC_PATIENCE: u32 = 5;

/// Device commands that are prepared before the kernel is told, short of the end of a turn. Random
/// reads of 4 KiB on ten files of a virtual disk, two workers with 32 each: 119 k/s with 2, 115
/// with 4, 112 with 8, 106 with 16, 104 with all of a turn; CPU time did not differ by more than
/// the noise of 10 %.
const BATCH: usize = 2;

/// How often EAGAIN on a file (not a socket) is answered by another try.
const FILE_TRIES_MAX: u32 = 16;

/// The kernel's side and ours of all operations of a ring.
pub(super) struct InFlight {
    uring: Uring,
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
    calls: KernelCalls,
    closing: bool,
    /// Seconds without an end, while it closes.
    seconds_in_vain: u32,
    /// Kernel threads there may be for operations that block: what the kernel allows by itself, and
    /// how many more.
    threads: Option<(u32, u32)>,
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
    /// What the first of two completions said.
    first: i32,
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
    /// Nothing more: it is queued, and the kernel tells when it is done with the buffers.
    Queued,
}

struct Waiting {
    ticket: u64,
    operation: Operation,
    done: Done,
}

/// Who is told of an operation's end.
pub(super) enum Done {
    /// Whoever waits for this.
    OneShot(Completion<OperationOutcome>),
    /// This one, at once, under this ticket.
    Sink(Rc<dyn Sink>, usize),
    /// The same, of an operation that a thread of the kernel is to begin.
    SinkOfSlow(Rc<dyn Sink>, usize),
}

/// What somebody waits for, to be delivered when nothing is borrowed.
pub(super) enum Finished {
    /// An operation is at its end.
    End { done: Done, outcome: OperationOutcome },
    /// An operation is queued, and its buffers are not free yet.
    Queued { told: Completion<io::Result<u32>>, result: io::Result<u32> },
}

impl Finished {
    /// Tells of it. What is to be started in its place comes back.
    #[must_use]
    pub(super) fn deliver(self) -> Option<(Operation, Done)> {
        let (done, mut outcome) = match self {
            Finished::End { done, outcome } => (done, outcome),
            Finished::Queued { told, result } => {
                told.complete(result);
                return None;
            }
        };
        // Dropped after the outcome is there: whoever waits to hear that it is queued looks there
        // then.
        let _never_queued = outcome.operation.take_queued();
        match done {
            Done::OneShot(completion) => {
                completion.complete(outcome);
                None
            }
            Done::SinkOfSlow(sink, ticket) => {
                let next = sink.take(ticket, outcome)?;
                Some((next, Done::SinkOfSlow(sink, ticket)))
            }
            Done::Sink(sink, ticket) => {
                let next = sink.take(ticket, outcome)?;
                Some((next, Done::Sink(sink, ticket)))
            }
        }
    }

    fn cancelled(operation: Operation, done: Done) -> Self {
        let outcome = OperationOutcome { result: Err(Errno::CANCELED.into()), operation };
        Finished::End { done, outcome }
    }
}

impl InFlight {
    pub(super) fn new(uring: Uring, entries: u32) -> Self {
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
            calls: KernelCalls::default(),
            closing: false,
            seconds_in_vain: 0,
            threads: None,
        }
    }

    pub(super) fn load(&self) -> RingLoad {
        RingLoad {
            in_flight: self.busy(),
            in_flight_max: self.in_flight_max,
            in_line: self.line.len(),
            calls: self.calls,
        }
    }

    fn busy(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Prepares an operation for the next submission, or puts it in line. Returns its ticket, for
    /// `cancel`.
    ///
    /// # Panics
    /// If the operation skips more bytes than it has, or needs a ring of wide entries; checked
    /// here, before it has a slot to leave in disorder.
    pub(super) fn start(&mut self, operation: Operation, done: Done) -> u64 {
        match &operation {
            Operation::Receive { buf, filled, .. } => {
                assert!(*filled <= buf.len(), "receive past the end of the buffer");
            }
            Operation::WideCommand { .. } | Operation::FuseEntry { .. } => {
                assert!(self.uring.is_wide(), "a wide command on a ring of narrow entries");
            }
            _ => {}
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
        let running =
            Running { ticket, operation, done, stage, first: 0, tries: 0, cancelled: false };
        self.slots[index].running = Some(running);
        self.in_flight_max = self.in_flight_max.max(self.busy());
        self.issue(index);
    }

    fn issue(&mut self, index: usize) {
        self.calls.operations += 1;
        let slot = &mut self.slots[index];
        let key = key_of(index, slot.generation);
        let running = slot.running.as_mut().expect("an occupied slot is issued");
        let entry = match running.stage {
            Stage::Polling => running.operation.poll_entry(),
            Stage::Issued | Stage::Queued => match running.operation.wide_entry() {
                Some(wide) => return self.push_wide(&wide.user_data(key)),
                None => running.operation.entry(&mut self.vectors[index]),
            },
        };
        let entry = match running.done {
            Done::SinkOfSlow(..) => entry.flags(squeue::Flags::ASYNC),
            _ => entry,
        };
        self.push(&entry.user_data(key));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: what the entry points at is owned by its slot (or is `bell`), stays in place, and
        // is given up only when the completion is reaped or leaked for good
        // (`next_finished_while_closing`, `let_go`).
        unsafe { self.uring.push(entry) };
        self.unsubmitted += 1;
    }

    fn push_wide(&mut self, entry: &squeue::Entry128) {
        // SAFETY: as in `push`.
        unsafe { self.uring.push_wide(entry) };
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

    /// Hands over what was prepared if that is a batch: a device should not wait for its first
    /// command until the last one of a long turn is prepared.
    pub(super) fn submit_batch(&mut self) {
        if self.unsubmitted >= BATCH {
            self.submit();
        }
    }

    /// Hands over what was prepared, and lets the kernel deliver; no system call if there is
    /// nothing to do.
    pub(super) fn submit(&mut self) {
        self.unsubmitted = 0;
        if !self.uring.is_idle() {
            self.calls.enters += 1;
            check_entered(self.uring.submitter().submit());
        }
    }

    /// Hands over what was prepared and sleeps until something completes or `timeout` has passed.
    pub(super) fn submit_and_wait(&mut self, timeout: Option<types::Timespec>) {
        self.unsubmitted = 0;
        self.calls.enters += 1;
        self.calls.sleeps += 1;
        let args = types::SubmitArgs::new();
        let submitter = self.uring.submitter();
        check_entered(match &timeout {
            Some(timeout) => submitter.submit_with_args(1, &args.timespec(timeout)),
            None => submitter.submit_with_args(1, &args),
        });
    }

    /// Whether there is something that the kernel was not told of yet.
    pub(super) fn has_unsubmitted(&self) -> bool {
        self.unsubmitted > 0
    }

    /// Whether completions are there.
    pub(super) fn has_completions(&mut self) -> bool {
        self.uring.has_completions()
    }

    /// Whether the kernel may have completions that are there once it is asked for them.
    pub(super) fn may_keep_completions(&mut self) -> bool {
        self.uring.may_keep_completions()
    }

    /// Counts a look for completions.
    pub(super) fn note_look(&mut self, is_hit: bool, nanos: u64) {
        self.calls.looks += 1;
        self.calls.looks_of_use += u64::from(is_hit);
        self.calls.look_nanos += nanos;
    }

    /// Takes completions off the queue until there is somebody to tell.
    pub(super) fn next_finished(&mut self) -> Option<Finished> {
        loop {
            let completion: cqueue::Entry = self.uring.completion().next()?;
            match completion.user_data() {
                CANCEL => {}
                DOORBELL => {
                    self.bell_armed = false;
                    self.calls.bells += 1;
                }
                key => {
                    if let Some(finished) = self.settle(key, &completion) {
                        return Some(finished);
                    }
                }
            }
        }
    }

    /// The kernel is done with a slot's entry: asks again, or frees the slot and starts the next in
    /// line.
    fn settle(&mut self, key: u64, completion: &cqueue::Entry) -> Option<Finished> {
        let (index, generation) = slot_of(key);
        let slot = &mut self.slots[index];
        if self.closing && slot.generation != generation {
            // It was let go.
            return None;
        }
        assert_eq!(slot.generation, generation, "completion for a slot that moved on");
        let running = slot.running.as_mut().expect("completion for an empty slot");
        let (flags, mut result) = (completion.flags(), completion.result());
        if cqueue::more(flags) {
            return running.note_queued(result);
        }
        if cqueue::notif(flags) {
            running.note_usage(result);
            result = running.first;
        }
        if let Some(stage) = running.again_after(result)
            && !self.closing
        {
            running.stage = stage;
            self.issue(index);
            return None;
        }
        slot.generation = slot.generation.wrapping_add(1);
        let Running { mut operation, done, .. } = slot.running.take()?;
        let result = settle_result(&mut operation, result, &self.vectors[index]);
        match self.line.pop_front() {
            Some(waiting) => self.place(index, waiting),
            None => self.free.push(index),
        }
        Some(Finished::End { done, outcome: OperationOutcome { result, operation } })
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
        // What is queued cannot be taken back, and what a device has only the device ends.
        let is_beyond = running.stage == Stage::Queued || running.operation.is_command();
        if !is_beyond && !std::mem::replace(&mut running.cancelled, true) {
            self.push(&opcode::AsyncCancel::new(key).build().user_data(CANCEL));
        }
    }

    /// Whoever waits for the operations of `sink` does so no longer: those in line come back, never
    /// started; the kernel is asked to end the others soon, and their buffers are written off until
    /// they do.
    pub(super) fn give_up(&mut self, sink: &Rc<dyn Sink>) -> Vec<Finished> {
        let is_its = |done: &Done| match done {
            Done::Sink(own, _) | Done::SinkOfSlow(own, _) => {
                std::ptr::addr_eq(Rc::as_ptr(own), Rc::as_ptr(sink))
            }
            Done::OneShot(_) => false,
        };
        let mut never_started = Vec::new();
        for waiting in std::mem::take(&mut self.line) {
            if is_its(&waiting.done) {
                never_started.push(Finished::cancelled(waiting.operation, waiting.done));
            } else {
                self.line.push_back(waiting);
            }
        }
        for index in 0..self.slots.len() {
            let running = self.slots[index].running.as_ref();
            let Some(running) = running.filter(|running| is_its(&running.done)) else { continue };
            running.operation.write_off();
            self.cancel_slot(index);
        }
        never_started
    }

    /// So many operations may block kernel threads for long: there may be that many more threads
    /// from now on, so that others' operations (every sync needs one) do not stand in line behind
    /// them.
    pub(super) fn allow_blocked(&mut self, count: u32) {
        let (base, more) = self.threads.unwrap_or_else(|| {
            let mut now = [0, 0];
            let told = self.uring.submitter().register_iowq_max_workers(&mut now);
            // A kernel that has no such limit to set (before 5.15) keeps its own.
            (if told.is_ok() { now[0] } else { 0 }, 0)
        });
        self.threads = Some((base, more));
        if base == 0 || count <= more {
            return;
        }
        let mut wanted = [base.saturating_add(count), 0];
        if self.uring.submitter().register_iowq_max_workers(&mut wanted).is_ok() {
            self.threads = Some((base, count));
            // Threads are made when something is put in line: what stands there already needs a
            // push.
            self.submit();
            self.nudge();
        }
    }

    /// Has the kernel make its record of each operation now: it keeps them for the ring. Made
    /// later, while memory is short, one may wait for the write-back that this thread is to carry
    /// out.
    pub(super) fn make_records(&mut self) {
        // One for each operation, one to cancel each, one each for reading the doorbell and
        // cancelling that.
        for _ in 0..2 * self.slots.len() + 2 {
            self.push(&opcode::Nop::new().build().user_data(CANCEL));
        }
        self.submit();
        let nobody = self.next_finished();
        debug_assert!(nobody.is_none(), "nothing else was asked for yet");
        self.calls = KernelCalls::default();
    }

    /// One thread of the kernel is made now, stays, and alone carries out what blocks, until
    /// [`InFlight::allow_blocked`].
    pub(super) fn keep_one_thread(&mut self) {
        let mut wanted = [1, 0];
        if self.uring.submitter().register_iowq_max_workers(&mut wanted).is_ok() {
            self.threads = Some((1, 0));
        }
        self.nudge();
    }

    pub(super) fn keeps_one_thread(&self) -> bool {
        matches!(self.threads, Some((1, _)))
    }

    /// Something for a thread of the kernel, which makes one if it may.
    pub(super) fn nudge(&mut self) {
        let nudge = opcode::Nop::new().build().flags(squeue::Flags::ASYNC).user_data(CANCEL);
        self.push(&nudge);
        self.submit();
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
            if let Some(finished) = self.let_go() {
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

    /// While closing: ends an operation that is not waited for, because that may be for ever. A
    /// device's command is ended by the kernel when the ring is gone. Parts that are queued wait
    /// for a peer. Memory of either is leaked, so that nothing else is ever in its place.
    fn let_go(&mut self) -> Option<Finished> {
        let is_let_go = |slot: &Slot| {
            let of = |run: &Running| run.stage == Stage::Queued || run.operation.is_let_go();
            slot.running.as_ref().is_some_and(of)
        };
        let index = self.slots.iter().position(is_let_go)?;
        let slot = &mut self.slots[index];
        slot.generation = slot.generation.wrapping_add(1);
        let Running { mut operation, done, .. } = slot.running.take()?;
        operation.leak_memory();
        self.free.push(index);
        Some(Finished::cancelled(operation, done))
    }

    /// Whether more may complete. A broken ring has no future, and what did not end for long may
    /// never.
    fn wait_while_closing(&mut self) -> bool {
        let second = types::Timespec::new().sec(1);
        let args = types::SubmitArgs::new();
        match self.uring.submitter().submit_with_args(1, &args.timespec(&second)) {
            Ok(_) => true,
            Err(error) if Errno::from_io_error(&error) == Some(Errno::TIME) => {
                self.seconds_in_vain += 1;
                // While a panic unwinds our own books may be wrong: it may have come from in here.
                let is_unwinding = std::thread::panicking();
                let patience = if is_unwinding { PANIC_PATIENCE } else { CLOSE_PATIENCE };
                self.seconds_in_vain < patience
            }
            Err(error) => is_passing(&error),
        }
    }
}

impl Running {
    /// The first of two completions has come: the buffers are the kernel's until the second. Whom
    /// to tell already.
    fn note_queued(&mut self, result: i32) -> Option<Finished> {
        (self.first, self.stage) = (result, Stage::Queued);
        let result = Ok(u32::try_from(result).ok()?);
        Some(Finished::Queued { told: self.operation.take_queued()?, result })
    }

    /// The second says how it went about the parts.
    fn note_usage(&mut self, usage: i32) {
        if let Operation::SendUncopied { was_copied, .. } = &mut self.operation {
            *was_copied = usage < 0;
        }
    }

    /// What to ask next if `result` is not the end.
    fn again_after(&mut self, result: i32) -> Option<Stage> {
        if self.cancelled || self.operation.is_command() {
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

fn settle_result(operation: &mut Operation, result: i32, vectors: &Vectors) -> io::Result<u32> {
    if let Operation::FuseEntry { entry } = operation {
        entry.settle(result >= 0);
    }
    let Ok(value) = u32::try_from(result) else {
        return Err(io::Error::from_raw_os_error(-result));
    };
    operation.take_over(vectors)?;
    match operation {
        Operation::Accept { accepted, .. } => {
            // SAFETY: a successful accept makes a new descriptor, which the kernel gave to nobody
            // but this completion.
            *accepted = Some(unsafe { OwnedFd::from_raw_fd(result) });
            Ok(0)
        }
        Operation::Readable { .. } | Operation::ReadCount { .. } => Ok(0),
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
