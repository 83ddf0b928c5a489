//! Files and devices: read, write, sync, allocate, commands; and waiting until anything is
//! readable.
//!
//! Each is one operation and may move less than was asked for. Not here: sockets.

use super::command::{DeviceCommand, WideCommand};
use super::operation::Operation;
use super::submit::{BufResult, Ring, another_operation, size};
use ashlar_iobuf::{Buf, BufMut};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl Ring {
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

    /// As [`Ring::write_at`], and what was written is on stable media when it resolves (as after
    /// fdatasync).
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
        let write = Operation::Write { file: Arc::clone(file), at, buf, durable, whole: false };
        let outcome = self.run(write).await;
        let Operation::Write { buf, .. } = outcome.operation else { another_operation() };
        (outcome.result.map(size), buf)
    }

    /// Reads one message into two buffers, in order (FUSE: header and payload in one call). Open
    /// such a device non-blocking, else the kernel may read it blockingly on this thread. File
    /// position is not used.
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

    /// Makes stable what was written before; with `data_only`, without metadata that reading does
    /// not need.
    ///
    /// # Errors
    /// What fsync(2) says. An error means that data may be lost for good: a second try proves
    /// nothing.
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

    /// Waits until the descriptor is readable (eventfd, signalfd, ...), or in error or hung up,
    /// which reading then tells.
    ///
    /// # Errors
    /// What poll(2) says.
    pub async fn readable(&self, file: &Arc<OwnedFd>) -> io::Result<()> {
        self.run(Operation::Readable { file: Arc::clone(file) }).await.result.map(drop)
    }

    /// Waits until an eventfd's count is not zero, and takes it.
    ///
    /// # Errors
    /// What read(2) says; `UnexpectedEof` if this is no eventfd.
    pub async fn read_count(&self, file: &Arc<OwnedFd>) -> io::Result<u64> {
        let outcome = self.run(Operation::ReadCount { file: Arc::clone(file), count: 0 }).await;
        outcome.result?;
        let Operation::ReadCount { count, .. } = outcome.operation else { another_operation() };
        Ok(count)
    }

    /// Gives a device a command; resolves when the device says so. Its memory comes back.
    ///
    /// # Errors
    /// What the device says.
    pub async fn command(
        &self,
        device: &Arc<OwnedFd>,
        command: DeviceCommand,
    ) -> BufResult<u32, Option<BufMut>> {
        let outcome = self.run(Operation::Command { file: Arc::clone(device), command }).await;
        let Operation::Command { command, .. } = outcome.operation else { another_operation() };
        (outcome.result, command.memory)
    }

    /// As [`Ring::command`], on a ring of wide entries.
    ///
    /// # Errors
    /// What the device says.
    ///
    /// # Panics
    /// If the ring has narrow ones.
    pub async fn wide_command(
        &self,
        device: &Arc<OwnedFd>,
        command: WideCommand,
    ) -> BufResult<u32, Option<BufMut>> {
        let (file, command) = (Arc::clone(device), Box::new(command));
        let outcome = self.run(Operation::WideCommand { file, command }).await;
        let Operation::WideCommand { command, .. } = outcome.operation else { another_operation() };
        (outcome.result, command.memory)
    }
}
