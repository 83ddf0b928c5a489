//! A block device or file on one worker's io_uring.
//!
//! What must stay true: the kernel is asked within `submit`; what it does only in part is asked for again until it
//! is done or fails; memory that the device cannot take is copied, never refused.
//! Not here: opening (`file`), the ring itself.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::{Completion, Handle, Operation, Outcome as RingOutcome, Pending, Ring};
use ashlar_units::{to_u64, to_usize};
use rustix::fs::FallocateFlags;

use crate::device::{Command, Device, DeviceFacts, Outcome};
use crate::fault::{Fault, FaultKind};
use crate::forward::{Forward, Work};
use crate::mem::beyond_the_end;

/// A device on one worker.
pub(crate) struct UringDevice {
    facts: DeviceFacts,
    forward: Forward<Job, Kernel>,
}

/// The kernel's side of a device.
struct Kernel {
    ring: Ring,
    file: Arc<OwnedFd>,
    block_bytes: usize,
    zeros: Buf,
    /// The file system or driver cannot zero ranges; remembered so that it is asked once.
    must_write_zeros: Cell<bool>,
}

/// A command that the kernel has been asked for.
struct Job {
    offset: u64,
    pending: Pending<RingOutcome>,
    started: Started,
    done: Completion<Outcome>,
}

/// When a write is on stable media.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Media {
    /// With the next flush.
    Later,
    /// Before it completes.
    Now,
}

enum Started {
    Read,
    /// Into memory of our own, because this buffer is not aligned.
    ReadForCopy(BufMut),
    Write,
    Flush,
    Discard,
    /// Asked to be made; if nobody can, they are written.
    MakeZeroes {
        bytes: u64,
    },
    /// The first of them are being written.
    WriteZeroes {
        bytes: u64,
    },
}

impl UringDevice {
    /// # Panics
    /// If the executor has no io_uring.
    pub(crate) fn new(
        handle: &Handle,
        file: Arc<OwnedFd>,
        facts: DeviceFacts,
        zeros: Buf,
    ) -> UringDevice {
        let ring = handle.ring().expect("a real device needs an executor with an io_uring");
        let block_bytes = to_usize(u64::from(facts.logical_block_bytes));
        let kernel = Kernel { ring, file, block_bytes, zeros, must_write_zeros: Cell::new(false) };
        UringDevice { facts, forward: Forward::new(handle, kernel) }
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

    fn submit(&self, offset: u64, command: Command, done: Completion<Outcome>) {
        if !self.facts.contains(offset, &command) {
            let fault = beyond_the_end(&command);
            return done.complete(Outcome::refused(command, fault));
        }
        let kernel = self.forward.work();
        let (pending, started) = match command {
            Command::Read(buffer) if self.is_aligned(buffer.address()) => {
                (kernel.read(offset, buffer), Started::Read)
            }
            Command::Read(buffer) => {
                let copy = BufMut::zeroed(buffer.len());
                (kernel.read(offset, copy), Started::ReadForCopy(buffer))
            }
            Command::Write(buffer) => {
                (kernel.write(offset, self.aligned(buffer), Media::Later), Started::Write)
            }
            Command::WriteDurable(buffer) => {
                (kernel.write(offset, self.aligned(buffer), Media::Now), Started::Write)
            }
            Command::Flush => (kernel.flush(), Started::Flush),
            // The kernel takes a length of nothing for a mistake.
            Command::Discard { bytes: 0 } | Command::WriteZeroes { bytes: 0 } => {
                return done.complete(Outcome::done(None));
            }
            Command::Discard { bytes } => {
                (kernel.fallocate(FallocateFlags::PUNCH_HOLE, offset, bytes), Started::Discard)
            }
            Command::WriteZeroes { bytes } if kernel.must_write_zeros.get() => {
                let piece = kernel.zeros_up_to(bytes);
                (kernel.write(offset, piece, Media::Later), Started::WriteZeroes { bytes })
            }
            Command::WriteZeroes { bytes } => {
                let made = kernel.fallocate(FallocateFlags::ZERO_RANGE, offset, bytes);
                (made, Started::MakeZeroes { bytes })
            }
        };
        self.forward.push(Job { offset, pending, started, done });
    }
}

impl Work<Job> for Kernel {
    async fn run(&self, job: Job) {
        let Job { offset, pending, started, done } = job;
        let outcome = match started {
            Started::Read => self.finish_read(offset, pending).await,
            Started::ReadForCopy(wanted) => {
                copied_over(wanted, self.finish_read(offset, pending).await)
            }
            Started::Write => no_buffer(self.finish_write(offset, pending).await),
            Started::Flush | Started::Discard => no_buffer(finish(pending).await),
            Started::MakeZeroes { bytes } => {
                no_buffer(self.finish_made_zeroes(offset, bytes, pending).await)
            }
            Started::WriteZeroes { bytes } => {
                no_buffer(self.finish_written_zeroes(offset, bytes, pending).await)
            }
        };
        done.complete(outcome);
    }
}

impl Kernel {
    fn read(&self, at: u64, buf: BufMut) -> Pending<RingOutcome> {
        self.ring.start(Operation::Read { file: Arc::clone(&self.file), at, buf })
    }

    fn write(&self, at: u64, buf: Buf, media: Media) -> Pending<RingOutcome> {
        let file = Arc::clone(&self.file);
        self.ring.start(Operation::Write { file, at, buf, durable: media == Media::Now })
    }

    fn flush(&self) -> Pending<RingOutcome> {
        self.ring.start(Operation::Fsync { file: Arc::clone(&self.file), data_only: true })
    }

    fn fallocate(&self, what: FallocateFlags, at: u64, bytes: u64) -> Pending<RingOutcome> {
        let mode = (what | FallocateFlags::KEEP_SIZE).bits().cast_signed();
        self.ring.start(Operation::Fallocate { file: Arc::clone(&self.file), mode, at, bytes })
    }

    fn zeros_up_to(&self, bytes: u64) -> Buf {
        let bytes = to_u64(self.zeros.len()).min(bytes);
        self.zeros.slice(0..to_usize(bytes))
    }

    /// Sees a read through to a full buffer, the end of the device or a fault.
    async fn finish_read(&self, offset: u64, first: Pending<RingOutcome>) -> Outcome {
        let mut pending = first;
        let mut filled = None;
        let mut at = offset;
        loop {
            let Some(RingOutcome { result, operation }) = pending.await else { return lost() };
            let Operation::Read { mut buf, .. } = operation else { another_operation() };
            let fault = match result {
                Err(error) => Fault::from_io(&error),
                Ok(bytes) => {
                    let bytes = to_usize(u64::from(bytes));
                    if bytes == buf.len() {
                        return Outcome::done(Some(joined(filled, buf)));
                    }
                    if bytes > 0 && bytes.is_multiple_of(self.block_bytes) {
                        at += to_u64(bytes);
                        filled = Some(joined(filled, buf.split_to(bytes)));
                        pending = self.read(at, buf);
                        continue;
                    }
                    Fault::SHORT_READ
                }
            };
            return Outcome { result: Err(fault), buffer: Some(joined(filled, buf)) };
        }
    }

    /// Sees a write through to its last byte or a fault.
    async fn finish_write(&self, offset: u64, first: Pending<RingOutcome>) -> Result<(), Fault> {
        let mut pending = first;
        let mut at = offset;
        loop {
            let outcome = pending.await.ok_or(Fault::GONE)?;
            let Operation::Write { buf, durable, .. } = outcome.operation else {
                another_operation()
            };
            let bytes = outcome.result.map_err(|error| Fault::from_io(&error))?;
            let written = to_usize(u64::from(bytes));
            if written == buf.len() {
                return Ok(());
            }
            if written == 0 {
                return Err(Fault::NO_SPACE);
            }
            at += u64::from(bytes);
            let media = if durable { Media::Now } else { Media::Later };
            pending = self.write(at, buf.slice(written..buf.len()), media);
        }
    }

    /// Sees zeros through that somebody below was asked to make; writes them if nobody can.
    async fn finish_made_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        made: Pending<RingOutcome>,
    ) -> Result<(), Fault> {
        match finish(made).await {
            Err(fault) if fault.kind == FaultKind::Unsupported => {
                self.must_write_zeros.set(true);
                let first = self.write(offset, self.zeros_up_to(bytes), Media::Later);
                self.finish_written_zeroes(offset, bytes, first).await
            }
            ended => ended,
        }
    }

    /// Writes zeros piece by piece, the first of which has been begun.
    async fn finish_written_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        first: Pending<RingOutcome>,
    ) -> Result<(), Fault> {
        let mut pending = first;
        let mut written = 0;
        loop {
            self.finish_write(offset + written, pending).await?;
            written += to_u64(self.zeros_up_to(bytes - written).len());
            if written == bytes {
                return Ok(());
            }
            let piece = self.zeros_up_to(bytes - written);
            pending = self.write(offset + written, piece, Media::Later);
        }
    }
}

/// The worker stops: neither the answer nor the buffer will come.
fn lost() -> Outcome {
    Outcome { result: Err(Fault::GONE), buffer: Some(BufMut::zeroed(0)) }
}

fn joined(front: Option<BufMut>, back: BufMut) -> BufMut {
    match front {
        None => back,
        Some(front) => front.try_join(back).expect("they were split from one buffer"),
    }
}

fn copied_over(mut wanted: BufMut, read: Outcome) -> Outcome {
    if let (Ok(()), Some(read)) = (read.result, read.buffer) {
        wanted.copy_from_slice(&read);
    }
    Outcome { result: read.result, buffer: Some(wanted) }
}

fn no_buffer(result: Result<(), Fault>) -> Outcome {
    Outcome { result, buffer: None }
}

async fn finish(pending: Pending<RingOutcome>) -> Result<(), Fault> {
    let outcome = pending.await.ok_or(Fault::GONE)?;
    outcome.result.map(drop).map_err(|error| Fault::from_io(&error))
}

fn another_operation() -> ! {
    unreachable!("an outcome brings back the operation it was started with")
}
