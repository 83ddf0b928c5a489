//! A file whose bytes are in the kernel's memory (tmpfs), on one worker.
//!
//! Such a file waits for no device but swap, so a command is a copy. io_uring cannot tell: this
//! file system has no non-blocking reads, and the kernel would hand each command to a thread of its
//! own, one write of a file at a time. Here a command is one system call of the worker.
//!
//! What must stay true: a command is done within `submit`; a file that was cut short is never
//! written to again. Not here: durability. Nothing on such a file outlives the host.

use std::cell::Cell;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ashlar_iobuf::Buf;
use ashlar_ring::{Completion, PARTS_MAX};
use ashlar_units::{to_u64, to_usize};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, pread, pwrite, pwritev, retry_on_intr};

use crate::device::{Command, Device, DeviceFacts, Look, Outcome};
use crate::fault::Fault;
use crate::flights::Owed;
use crate::identity::Identity;
use crate::mem::beyond_the_end;

/// A file in memory on one worker.
pub(crate) struct MemoryFile {
    pub(crate) facts: DeviceFacts,
    pub(crate) file: Arc<OwnedFd>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) zeros: Buf,
    pub(crate) is_given_up: Cell<bool>,
}

impl MemoryFile {
    fn run(&self, offset: u64, command: Command) -> Outcome {
        if !self.facts.contains(offset, &command) {
            let fault = beyond_the_end(&command);
            return Outcome::refused(command, fault);
        }
        if self.is_given_up.get() {
            return Outcome::refused(command, Fault::TIMED_OUT);
        }
        // A write would make a file grow that was cut short.
        if self.identity.must_refuse(command.kind()) {
            return Outcome::refused(command, Fault::SHORTER);
        }
        self.carry_out(offset, command)
    }

    fn carry_out(&self, offset: u64, command: Command) -> Outcome {
        let result = match command {
            Command::Read(mut buffer) => {
                let result = self.read(offset, &mut buffer);
                return Outcome { result, buffer: Some(buffer) };
            }
            Command::Write(buffer)
            | Command::WriteWhole(buffer)
            | Command::WriteDurable(buffer) => self.write(offset, &buffer),
            Command::WriteParts { parts, .. } => self.write_parts(offset, &parts),
            // The kernel takes a length of nothing for a mistake.
            Command::Flush | Command::Discard { bytes: 0 } => Ok(()),
            Command::Discard { bytes } => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.file, mode, offset, bytes).map_err(fault_of)
            }
            Command::WriteZeroes { bytes } => self.write_zeros(offset, bytes),
        };
        Outcome { result, buffer: None }
    }

    fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), Fault> {
        let mut filled = 0;
        while filled < target.len() {
            let at = offset + to_u64(filled);
            let read = retry_on_intr(|| pread(&self.file, &mut target[filled..], at));
            match read.map_err(fault_of)? {
                0 => {
                    self.identity.note_shorter();
                    return Err(Fault::SHORTER);
                }
                bytes => filled += bytes,
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, source: &[u8]) -> Result<(), Fault> {
        let mut stored = 0;
        while stored < source.len() {
            let at = offset + to_u64(stored);
            stored += some(retry_on_intr(|| pwrite(&self.file, &source[stored..], at)))?;
        }
        Ok(())
    }

    fn write_parts(&self, mut offset: u64, parts: &[Buf]) -> Result<(), Fault> {
        for parts in parts.chunks(PARTS_MAX) {
            let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let bytes = parts.iter().map(|part| part.len()).sum();
            let stored = some(retry_on_intr(|| pwritev(&self.file, &slices, offset)))?;
            if stored < bytes {
                self.write_rest(offset, parts, stored)?;
            }
            offset += to_u64(bytes);
        }
        Ok(())
    }

    /// The parts without their first `stored` bytes.
    fn write_rest(&self, offset: u64, parts: &[Buf], stored: usize) -> Result<(), Fault> {
        let mut begin = 0;
        for part in parts {
            let skip = stored.saturating_sub(begin).min(part.len());
            self.write(offset + to_u64(begin + skip), &part[skip..])?;
            begin += part.len();
        }
        Ok(())
    }

    /// Zeros that take space, as those of other devices do.
    fn write_zeros(&self, offset: u64, bytes: u64) -> Result<(), Fault> {
        let mut done = 0;
        while done < bytes {
            let piece = (bytes - done).min(to_u64(self.zeros.len()));
            self.write(offset + done, &self.zeros[..to_usize(piece)])?;
            done += piece;
        }
        Ok(())
    }
}

impl Device for MemoryFile {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn submit(&self, offset: u64, command: Command, done: Completion<Outcome>) {
        done.complete(self.run(offset, command));
    }

    /// Nothing is ever under way here.
    fn look_at_commands(&self) -> Owed {
        Owed::default()
    }

    fn give_up(&self) {
        self.is_given_up.set(true);
    }

    fn look(&self) -> Option<Look> {
        let identity = Arc::clone(&self.identity);
        Some(Box::new(move || identity.look()))
    }

    fn runs_now(&self) -> bool {
        true
    }

    fn run_now(&self, offset: u64, command: Command) -> Result<Outcome, Command> {
        Ok(self.run(offset, command))
    }
}

/// A write that stored nothing met no room.
fn some(stored: Result<usize, Errno>) -> Result<usize, Fault> {
    match stored.map_err(fault_of)? {
        0 => Err(Fault::NO_SPACE),
        bytes => Ok(bytes),
    }
}

fn fault_of(errno: Errno) -> Fault {
    Fault::from_errno(errno.raw_os_error())
}
