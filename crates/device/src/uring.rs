//! A block device or file on one worker's io_uring.
//!
//! What must stay true: `submit` asks the kernel at once. A command that was done in part is
//! continued until it is done, fails or is given up. Memory that the device cannot take is copied,
//! never refused. The ring hands outcomes over as they come, so no task waits for a command. The
//! ring owns an operation and its buffers until the kernel is done with it, even when no task
//! awaits it any more. Not here: opening (`file`), the ring itself.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::{Completion, Handle, Operation, OperationOutcome, Ring, Sink};
use ashlar_units::{to_u64, to_usize};
use rustix::fs::FallocateFlags;

use crate::device::{Command, CommandKind, Device, DeviceFacts, Look, Outcome};
use crate::fault::{Fault, FaultKind};
use crate::flights::{Flights, Owed};
use crate::identity::Identity;
use crate::mem::beyond_the_end;

/// A device on one worker.
pub(crate) struct UringDevice {
    facts: DeviceFacts,
    ring: Ring,
    kernel: Rc<Kernel>,
}

/// The kernel's side of a device: what it has been asked for. Lives until all of that has ended;
/// knows the file and not the ring, which holds it.
struct Kernel {
    file: Arc<OwnedFd>,
    identity: Arc<Identity>,
    block_bytes: usize,
    zeros: Buf,
    /// The file system or driver cannot zero ranges; remembered so that it is asked once.
    must_write_zeros: Cell<bool>,
    /// Blocks are handed to the device as commands that it writes whole.
    takes_whole: Cell<bool>,
    flights: Flights<Job>,
    /// Looks one after the other since it answered.
    quiet_looks: Cell<u32>,
}

/// After this many looks a command may never end: it must not keep others from the kernel's
/// threads.
const LOOKS_TO_EXPECT_THE_WORST: u32 = 2;
/// The same where the kernel has one thread for all that blocks: what is in line for it is slow,
/// and another thread may be made at the wrong time. Of looks without any answer of the device, and
/// of all looks.
const LOOKS_AT_ONE_THREAD: (u32, u32) = (12, 24);

/// A command that the kernel has been asked for.
struct Job {
    /// Where the operation under way begins.
    at: u64,
    kind: Kind,
}

enum Kind {
    Read {
        /// What earlier operations brought.
        filled: Option<BufMut>,
        /// The client's buffer, if it is not aligned and the kernel has one of ours.
        copied_to: Option<BufMut>,
    },
    Write,
    /// A write in parts, with their total bytes.
    WriteParts {
        bytes: usize,
    },
    /// A flush or a discard: one operation.
    Plain,
    /// Asked to be made; if nobody can, they are written.
    MakeZeroes {
        bytes: u64,
    },
    /// Being written, the operation under way included.
    WriteZeroes {
        left: u64,
    },
}

impl Kind {
    /// Whether it stores something or not is all that matters here.
    fn of_command(&self) -> CommandKind {
        match self {
            Kind::Read { .. } => CommandKind::Read,
            _ => CommandKind::Write,
        }
    }
}

/// How a write is to reach the media.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Media {
    /// With the next flush.
    Later,
    /// Before it completes.
    Now,
    /// With the next flush, whole or not at all.
    Whole,
}

/// What follows on an outcome.
enum Next {
    Ask(Operation),
    Answer(Outcome),
}

impl UringDevice {
    /// # Panics
    /// If the executor has no io_uring.
    pub(crate) fn new(
        handle: &Handle,
        (file, identity): (Arc<OwnedFd>, Arc<Identity>),
        facts: DeviceFacts,
        zeros: Buf,
    ) -> UringDevice {
        let ring = handle.ring().expect("a real device needs an executor with an io_uring");
        let block_bytes = to_usize(u64::from(facts.logical_block_bytes));
        let must_write_zeros = Cell::new(false);
        let takes_whole = Cell::new(facts.takes_whole_blocks);
        let flights = Flights::default();
        let kernel = Kernel {
            file,
            identity,
            block_bytes,
            zeros,
            must_write_zeros,
            takes_whole,
            flights,
            quiet_looks: Cell::default(),
        };
        UringDevice { facts, ring, kernel: Rc::new(kernel) }
    }

    fn is_aligned(&self, address: usize) -> bool {
        let alignment = to_usize(u64::from(self.facts.memory_alignment));
        !self.facts.is_direct || address.is_multiple_of(alignment)
    }

    /// The same bytes where the device can take them from.
    fn aligned(&self, buffer: Buf) -> Buf {
        if self.is_aligned(buffer.address()) { buffer } else { Buf::copied(&buffer) }
    }
}

impl Device for UringDevice {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn look(&self) -> Option<Look> {
        let identity = Arc::clone(&self.kernel.identity);
        Some(Box::new(move || identity.look()))
    }

    fn look_at_commands(&self) -> Owed {
        let owed = self.kernel.flights.look();
        let quiet = &self.kernel.quiet_looks;
        let is_quiet = owed.under_way > 0 && !owed.has_answered;
        quiet.set(if is_quiet { quiet.get().saturating_add(1) } else { 0 });
        let is_stuck = if self.ring.keeps_one_thread() {
            let (without_answer, all) = LOOKS_AT_ONE_THREAD;
            quiet.get() >= without_answer || owed.oldest_looks >= all
        } else {
            owed.oldest_looks >= LOOKS_TO_EXPECT_THE_WORST
        };
        if is_stuck {
            self.ring.allow_blocked(u32::try_from(owed.under_way).unwrap_or(u32::MAX));
        }
        owed
    }

    fn give_up(&self) {
        let kept = self.kernel.flights.give_up();
        self.kernel.identity.owes_more(kept);
        let kernel: Rc<dyn Sink> = Rc::<Kernel>::clone(&self.kernel);
        self.ring.give_up(&kernel);
    }

    fn submit(&self, offset: u64, command: Command, done: Completion<Outcome>) {
        if !self.facts.contains(offset, &command) {
            let fault = beyond_the_end(&command);
            return done.complete(Outcome::refused(command, fault));
        }
        let kernel = &self.kernel;
        if kernel.flights.is_given_up() {
            return done.complete(Outcome::refused(command, Fault::TIMED_OUT));
        }
        // A write would make a file grow that was cut short.
        if kernel.identity.must_refuse(command.kind()) {
            return done.complete(Outcome::refused(command, Fault::SHORTER));
        }
        let (operation, kind) = match command {
            Command::Read(buffer) if self.is_aligned(buffer.address()) => {
                (kernel.read(offset, buffer), Kind::Read { filled: None, copied_to: None })
            }
            Command::Read(buffer) => {
                let own = BufMut::zeroed(buffer.len());
                (kernel.read(offset, own), Kind::Read { filled: None, copied_to: Some(buffer) })
            }
            Command::Write(buffer) => {
                (kernel.write(offset, self.aligned(buffer), Media::Later), Kind::Write)
            }
            Command::WriteWhole(buffer) => {
                let media = if kernel.takes_whole.get() { Media::Whole } else { Media::Later };
                (kernel.write(offset, self.aligned(buffer), media), Kind::Write)
            }
            Command::WriteDurable(buffer) => {
                (kernel.write(offset, self.aligned(buffer), Media::Now), Kind::Write)
            }
            Command::WriteParts { mut parts, is_durable: durable } => {
                for part in &mut parts {
                    if !self.is_aligned(part.address()) {
                        *part = Buf::copied(part);
                    }
                }
                let bytes = parts.iter().map(|part| part.len()).sum();
                let (file, skip) = (Arc::clone(&kernel.file), 0);
                let write = Operation::WriteJoined { file, at: offset, parts, skip, durable };
                (write, Kind::WriteParts { bytes })
            }
            Command::Flush => (kernel.flush(), Kind::Plain),
            // The kernel takes a length of nothing for a mistake.
            Command::Discard { bytes: 0 } | Command::WriteZeroes { bytes: 0 } => {
                return done.complete(Outcome::done(None));
            }
            Command::Discard { bytes } => {
                (kernel.fallocate(FallocateFlags::PUNCH_HOLE, offset, bytes), Kind::Plain)
            }
            Command::WriteZeroes { bytes } if kernel.must_write_zeros.get() => {
                let piece = kernel.zeros_up_to(bytes);
                (kernel.write(offset, piece, Media::Later), Kind::WriteZeroes { left: bytes })
            }
            Command::WriteZeroes { bytes } => {
                let made = kernel.fallocate(FallocateFlags::ZERO_RANGE, offset, bytes);
                (made, Kind::MakeZeroes { bytes })
            }
        };
        let ticket = kernel.flights.begin(Job { at: offset, kind }, done);
        let sink: Rc<dyn Sink> = Rc::<Kernel>::clone(kernel);
        match kernel.identity.may_block() {
            false => self.ring.start_for(operation, sink, ticket),
            true => self.ring.start_slow_for(operation, sink, ticket),
        }
    }
}

impl Sink for Kernel {
    fn take(&self, ticket: usize, outcome: OperationOutcome) -> Option<Operation> {
        let mut flight = self.flights.take(ticket);
        if flight.is_given_up() {
            // What it did is nobody's business any more; its buffers are let go here and not
            // before.
            self.flights.free(ticket);
            self.identity.owes_one_less();
            return None;
        }
        match self.next(&mut flight.job, outcome) {
            Next::Ask(operation) => {
                self.flights.put_back(ticket, flight);
                Some(operation)
            }
            Next::Answer(answer) => {
                self.flights.free(ticket);
                flight.answer(answer);
                None
            }
        }
    }
}

impl Kernel {
    fn read(&self, at: u64, buf: BufMut) -> Operation {
        Operation::Read { file: Arc::clone(&self.file), at, buf }
    }

    fn write(&self, at: u64, buf: Buf, media: Media) -> Operation {
        let (durable, whole) = (media == Media::Now, media == Media::Whole);
        Operation::Write { file: Arc::clone(&self.file), at, buf, durable, whole }
    }

    fn flush(&self) -> Operation {
        Operation::Fsync { file: Arc::clone(&self.file), data_only: true }
    }

    fn fallocate(&self, what: FallocateFlags, at: u64, bytes: u64) -> Operation {
        let mode = (what | FallocateFlags::KEEP_SIZE).bits().cast_signed();
        Operation::Fallocate { file: Arc::clone(&self.file), mode, at, bytes }
    }

    fn zeros_up_to(&self, bytes: u64) -> Buf {
        let bytes = to_u64(self.zeros.len()).min(bytes);
        self.zeros.slice(0..to_usize(bytes))
    }

    fn next(&self, job: &mut Job, outcome: OperationOutcome) -> Next {
        let OperationOutcome { result, operation } = outcome;
        let result = result.map_err(|error| Fault::from_io(&error));
        // Cut short while the command was under way: a write may have made the file grow again.
        let kind = job.kind.of_command();
        let result = if self.identity.must_refuse(kind) { Err(Fault::SHORTER) } else { result };
        match (&mut job.kind, operation) {
            (Kind::Read { filled, copied_to }, Operation::Read { buf, .. }) => {
                match self.after_read(&mut job.at, filled, (result, buf)) {
                    Next::Answer(answer) => Next::Answer(copied_over(copied_to.take(), answer)),
                    again @ Next::Ask(_) => again,
                }
            }
            (Kind::Write, Operation::Write { buf, whole: true, .. }) if is_unsupported(&result) => {
                // The device takes no such writes any more: it has the block as it has all others.
                self.takes_whole.set(false);
                Next::Ask(self.write(job.at, buf, Media::Later))
            }
            (Kind::Write, Operation::Write { buf, durable, .. }) => {
                let media = if durable { Media::Now } else { Media::Later };
                self.after_write(&mut job.at, (result, buf), media)
            }
            (
                Kind::WriteParts { bytes },
                Operation::WriteJoined { file, at, parts, skip, durable },
            ) => match result.map(|written| to_usize(u64::from(written))) {
                Err(fault) => Next::ended(Err(fault)),
                Ok(written) if skip + written == *bytes => Next::ended(Ok(())),
                Ok(0) => Next::ended(Err(Fault::NO_SPACE)),
                Ok(written) => {
                    let (at, skip) = (at + to_u64(written), skip + written);
                    Next::Ask(Operation::WriteJoined { file, at, parts, skip, durable })
                }
            },
            (Kind::Plain, _) => Next::ended(result.map(drop)),
            (Kind::MakeZeroes { bytes }, _) => match result {
                Err(_) if is_unsupported(&result) => {
                    self.must_write_zeros.set(true);
                    let left = *bytes;
                    job.kind = Kind::WriteZeroes { left };
                    Next::Ask(self.write(job.at, self.zeros_up_to(left), Media::Later))
                }
                ended => Next::ended(ended.map(drop)),
            },
            (Kind::WriteZeroes { left }, Operation::Write { buf, .. }) => {
                let before = job.at;
                let next = self.after_write(&mut job.at, (result, buf), Media::Later);
                *left -= job.at - before;
                match next {
                    Next::Answer(Outcome { result: Ok(()), .. }) if *left > 0 => {
                        Next::Ask(self.write(job.at, self.zeros_up_to(*left), Media::Later))
                    }
                    next => next,
                }
            }
            _ => unreachable!("an outcome brings back the operation it was started with"),
        }
    }

    /// A read goes on to a full buffer, the end of the device or a fault.
    fn after_read(
        &self,
        at: &mut u64,
        filled: &mut Option<BufMut>,
        (result, mut buf): (Result<u32, Fault>, BufMut),
    ) -> Next {
        let fault = match result {
            Err(fault) => fault,
            Ok(bytes) => {
                let bytes = to_usize(u64::from(bytes));
                if bytes == buf.len() {
                    return Next::Answer(Outcome::done(Some(joined(filled.take(), buf))));
                }
                if bytes > 0 && bytes.is_multiple_of(self.block_bytes) {
                    *at += to_u64(bytes);
                    *filled = Some(joined(filled.take(), buf.split_to(bytes)));
                    return Next::Ask(self.read(*at, buf));
                }
                self.identity.note_shorter();
                Fault::SHORTER
            }
        };
        Next::Answer(Outcome { result: Err(fault), buffer: Some(joined(filled.take(), buf)) })
    }

    /// A write goes on to its last byte or a fault. `at` moves on by what was written.
    fn after_write(
        &self,
        at: &mut u64,
        (result, buf): (Result<u32, Fault>, Buf),
        media: Media,
    ) -> Next {
        let bytes = match result {
            Err(fault) => return Next::ended(Err(fault)),
            Ok(bytes) => u64::from(bytes),
        };
        *at += bytes;
        let written = to_usize(bytes);
        if written == buf.len() {
            return Next::ended(Ok(()));
        }
        if written == 0 {
            return Next::ended(Err(Fault::NO_SPACE));
        }
        Next::Ask(self.write(*at, buf.slice(written..buf.len()), media))
    }
}

impl Next {
    /// The end of a command that brings no buffer back.
    fn ended(result: Result<(), Fault>) -> Next {
        Next::Answer(Outcome { result, buffer: None })
    }
}

fn is_unsupported(result: &Result<u32, Fault>) -> bool {
    matches!(result, Err(fault) if fault.kind == FaultKind::Unsupported)
}

fn joined(front: Option<BufMut>, back: BufMut) -> BufMut {
    match front {
        None => back,
        Some(front) => front.try_join(back).expect("they were split from one buffer"),
    }
}

fn copied_over(wanted: Option<BufMut>, read: Outcome) -> Outcome {
    let Some(mut wanted) = wanted else { return read };
    if let (Ok(()), Some(read)) = (read.result, read.buffer) {
        wanted.copy_from_slice(&read);
    }
    Outcome { result: read.result, buffer: Some(wanted) }
}

#[cfg(test)]
mod tests {
    use super::UringDevice;
    use crate::device::{Access, Command, Device, DeviceFacts, Opened};
    use crate::file::FileDevice;
    use crate::start::read;
    use ashlar_iobuf::BufMut;
    use ashlar_ring::{Completions, Executor, Ring, RingConfig, Schedule};
    use std::os::fd::OwnedFd;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_device_that_takes_no_whole_blocks_any_more_is_given_them_as_all_others() {
        let file = tempfile::NamedTempFile::new().expect("a file for the test");
        file.as_file().set_len(1 << 20).expect("sparse");
        let path = file.path().to_str().expect("a plain name");
        let opened = FileDevice::open(path, Access::Exclusive, Duration::ZERO).expect("free");
        assert!(!opened.facts().takes_whole_blocks, "no file is on a drive of its own");
        let again = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("there");
        let ring = Ring::new(RingConfig::of(8)).expect("io_uring is allowed here");
        let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
        let handle = executor.handle();
        // What the drive reported when it was opened, and does not any more.
        let facts = DeviceFacts { takes_whole_blocks: true, ..opened.facts().clone() };
        let held = (Arc::new(OwnedFd::from(again)), Arc::clone(opened.identity()));
        let device = UringDevice::new(&handle, held, facts, BufMut::zeroed(4096).freeze());
        executor.block_on(async {
            let supply = Completions::new();
            for version in 1..3 {
                let mut block = BufMut::zeroed(4096);
                block.fill(version);
                let (done, pending) = supply.pair();
                device.submit(8192, Command::WriteWhole(block.freeze()), done);
                assert_eq!(pending.await.expect("it is answered").result, Ok(()));
                assert!(!device.kernel.takes_whole.get());
                let got = read(&device, &supply, 8192, BufMut::zeroed(4096)).await.expect("read");
                assert!(got.iter().all(|byte| *byte == version));
            }
        });
    }
}
