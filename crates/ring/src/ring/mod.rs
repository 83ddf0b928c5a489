//! Stub: the io_uring of one core; bodies follow.
#![allow(missing_docs, clippy::unimplemented, unused)]
use crate::Reactor;
use ashlar_iobuf::{Buf, BufMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
/// io_uring of one core. Clone, not Send. Every operation owns its buffers until its completion is reaped; a dropped
/// future orphans the operation safely.
#[derive(Clone)]
pub struct Ring(());
#[derive(Clone, Copy, Debug)]
pub struct RingConfig {
    pub entries: u32,
}
pub type BufResult<T, B> = (std::io::Result<T>, B);
impl Ring {
    pub fn new(config: RingConfig) -> std::io::Result<Ring> {
        unimplemented!()
    }
    /// The reactor that drives this ring; give it to `Executor::new`.
    pub fn reactor(&self) -> Box<dyn Reactor> {
        unimplemented!()
    }
    pub async fn read_at(
        &self,
        file: &Arc<OwnedFd>,
        at: u64,
        buf: BufMut,
    ) -> BufResult<usize, BufMut> {
        unimplemented!()
    }
    pub async fn write_at(&self, file: &Arc<OwnedFd>, at: u64, buf: Buf) -> BufResult<usize, Buf> {
        unimplemented!()
    }
    /// Vectored forms, for FUSE: header and payload in one call. File position is not used.
    pub async fn read_parts(
        &self,
        file: &Arc<OwnedFd>,
        parts: [BufMut; 2],
    ) -> BufResult<usize, [BufMut; 2]> {
        unimplemented!()
    }
    pub async fn write_parts(
        &self,
        file: &Arc<OwnedFd>,
        parts: [Buf; 2],
    ) -> BufResult<usize, [Buf; 2]> {
        unimplemented!()
    }
    pub async fn fsync(&self, file: &Arc<OwnedFd>, data_only: bool) -> std::io::Result<()> {
        unimplemented!()
    }
    /// fallocate(2) with raw mode bits.
    pub async fn fallocate(
        &self,
        file: &Arc<OwnedFd>,
        mode: i32,
        at: u64,
        bytes: u64,
    ) -> std::io::Result<()> {
        unimplemented!()
    }
    pub async fn accept(&self, listener: &Arc<OwnedFd>) -> std::io::Result<OwnedFd> {
        unimplemented!()
    }
    /// Receive once, up to the buffer's length; 0 is end of stream.
    pub async fn receive(&self, socket: &Arc<OwnedFd>, buf: BufMut) -> BufResult<usize, BufMut> {
        unimplemented!()
    }
    /// Fill the whole buffer, or fail with UnexpectedEof.
    pub async fn receive_all(&self, socket: &Arc<OwnedFd>, buf: BufMut) -> BufResult<(), BufMut> {
        unimplemented!()
    }
    /// Send all bytes of all parts, in order, as one message where the kernel can.
    pub async fn send_all(
        &self,
        socket: &Arc<OwnedFd>,
        parts: Vec<Buf>,
    ) -> BufResult<(), Vec<Buf>> {
        unimplemented!()
    }
    /// Wait until the descriptor is readable (eventfd, signalfd, ...).
    pub async fn readable(&self, file: &Arc<OwnedFd>) -> std::io::Result<()> {
        unimplemented!()
    }
}
