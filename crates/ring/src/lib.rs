//! One core: executor, reactor, timers, messages between cores.  (INTERFACE STUB: bodies to be filled.)
#![allow(missing_docs, clippy::unimplemented, unused)]
use ashlar_iobuf::{Buf, BufMut};
use ashlar_units::Nanos;
use std::future::Future;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Where events come from: io_uring in life, a simulated world in tests.
pub trait Reactor {
    /// Now, by this world's clock.
    fn now(&self) -> Nanos;
    /// Hand over what was prepared, deliver completions (by completing `Pending`s). `Park::Until(d)`: if nothing
    /// is there, sleep until a completion, an unpark or deadline `d` (None: for ever).
    fn turn(&mut self, park: Park);
    /// Wakes a parked turn from another thread.
    fn unparker(&self) -> Arc<dyn Unpark>;
}
#[derive(Clone, Copy, Debug)]
pub enum Park {
    No,
    Until(Option<Nanos>),
}
pub trait Unpark: Send + Sync {
    fn unpark(&self);
}

/// Order in which ready tasks run: first come first served, or drawn from a seed (simulation).
#[derive(Clone, Copy, Debug)]
pub enum Schedule {
    InOrder,
    Seeded(u64),
}

/// Single-threaded executor; not Send.
pub struct Executor(());
impl Executor {
    pub fn new(reactor: Box<dyn Reactor>, schedule: Schedule) -> Executor {
        unimplemented!()
    }
    pub fn handle(&self) -> Handle {
        unimplemented!()
    }
    /// Run until `main` is done; other tasks stay and go on in the next call.
    pub fn block_on<T>(&mut self, main: impl Future<Output = T>) -> T {
        unimplemented!()
    }
}
/// What tasks of an executor hold to reach it. Clone, not Send.
#[derive(Clone)]
pub struct Handle(());
impl Handle {
    /// Start a task. Allocates: not for the data path, which uses task pools made at start.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        unimplemented!()
    }
    /// The clock, read afresh.
    pub fn now(&self) -> Nanos {
        unimplemented!()
    }
    /// The clock as of the start of this turn: free of cost.
    pub fn turn_now(&self) -> Nanos {
        unimplemented!()
    }
    pub fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + use<> {
        async { unimplemented!() }
    }
    pub fn sleep_until(&self, at: Nanos) -> impl Future<Output = ()> + use<> {
        async { unimplemented!() }
    }
    /// Let every other ready task run once.
    pub fn yield_now(&self) -> impl Future<Output = ()> + use<> {
        async { unimplemented!() }
    }
    pub fn random_u64(&self) -> u64 {
        unimplemented!()
    }
    /// The io_uring, if the reactor is one.
    pub fn ring(&self) -> Option<Ring> {
        unimplemented!()
    }
}

/// One half of a local (same executor) one-shot: pooled, no allocation once warm.
pub struct Completion<T>(std::marker::PhantomData<T>);
pub struct Pending<T>(std::marker::PhantomData<T>);
impl<T> Completion<T> {
    pub fn complete(self, value: T) {
        unimplemented!()
    }
}
/// Resolves with the value. If the `Completion` is dropped unfinished it resolves with `None`.
impl<T> Future for Pending<T> {
    type Output = Option<T>;
    fn poll(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        unimplemented!()
    }
}
/// A supply of one-shots that recycles them. Clone shares it.
#[derive(Clone)]
pub struct Completions<T>(std::marker::PhantomData<T>);
impl<T> Completions<T> {
    pub fn new() -> Self {
        unimplemented!()
    }
    pub fn pair(&self) -> (Completion<T>, Pending<T>) {
        unimplemented!()
    }
}

/// Messages to one executor from any thread.
pub mod mailbox {
    use super::*;
    pub struct Sender<M>(std::marker::PhantomData<M>); // Clone, Send + Sync when M: Send
    impl<M> Clone for Sender<M> {
        fn clone(&self) -> Self {
            unimplemented!()
        }
    }
    pub struct Receiver<M>(std::marker::PhantomData<M>); // lives on the executor
    /// `handle` is the receiving executor.
    pub fn mailbox<M: Send + 'static>(handle: &Handle) -> (Sender<M>, Receiver<M>) {
        unimplemented!()
    }
    impl<M> Sender<M> {
        pub fn send(&self, message: M) {
            unimplemented!()
        }
    }
    impl<M> Receiver<M> {
        pub async fn receive(&mut self) -> M {
            unimplemented!()
        }
        pub fn try_receive(&mut self) -> Option<M> {
            unimplemented!()
        }
    }
}

/// Waiting within one executor, without threads.
pub mod local {
    use super::*;
    /// Counted permits, first come first served.
    #[derive(Clone)]
    pub struct Semaphore(());
    pub struct Permit(());
    impl Semaphore {
        pub fn new(permits: usize) -> Self {
            unimplemented!()
        }
        pub async fn acquire(&self) -> Permit {
            unimplemented!()
        }
        pub fn try_acquire(&self) -> Option<Permit> {
            unimplemented!()
        }
        pub fn in_use(&self) -> usize {
            unimplemented!()
        }
    }
    /// Wakes everybody who waits: re-check your condition after `changed().await`.
    #[derive(Clone)]
    pub struct Signal(());
    impl Signal {
        pub fn new() -> Self {
            unimplemented!()
        }
        pub fn notify_all(&self) {
            unimplemented!()
        }
        pub async fn changed(&self) {
            unimplemented!()
        }
    }
    /// First in first out, unbounded only in type: callers hold credits.
    #[derive(Clone)]
    pub struct Queue<T>(std::marker::PhantomData<T>);
    impl<T> Queue<T> {
        pub fn new() -> Self {
            unimplemented!()
        }
        pub fn push(&self, item: T) {
            unimplemented!()
        }
        pub async fn pop(&self) -> T {
            unimplemented!()
        }
        pub fn try_pop(&self) -> Option<T> {
            unimplemented!()
        }
        pub fn len(&self) -> usize {
            unimplemented!()
        }
    }
}

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
