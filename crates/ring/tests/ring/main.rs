//! The io_uring of one core on real files, pipes and sockets. Without io_uring these tests fail.
//!
//! - `files`     reads, writes and syncs
//! - `calls`     what is counted of calls of the kernel
//! - `commands`  commands to devices
//! - `cut_off`   operations that nobody waits for any more
//! - `streams`   sockets and pipes
//! - `messages`  descriptors beside messages, sends without a copy, eventfds

mod calls;
mod commands;
mod cut_off;
mod files;
mod messages;
mod streams;

use ashlar_iobuf::{Pool, PoolClass};
use ashlar_ring::{Executor, Handle, Ring, RingConfig, Schedule};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::Poll;

const BLOCK: usize = 4096;

fn world(entries: u32) -> (Executor, Handle, Ring) {
    let ring = Ring::new(RingConfig::of(entries)).expect("these tests need io_uring");
    let executor = Executor::new(ring.reactor(), Schedule::InOrder);
    let handle = executor.handle();
    (executor, handle, ring)
}

fn temporary_file() -> Arc<OwnedFd> {
    Arc::new(tempfile::tempfile().expect("a temporary file").into())
}

fn pipe() -> (Arc<OwnedFd>, io::PipeWriter) {
    let (reader, writer) = io::pipe().expect("a pipe");
    (Arc::new(reader.into()), writer)
}

fn socket_pair() -> (Arc<OwnedFd>, UnixStream) {
    let (near, far) = UnixStream::pair().expect("a socket pair");
    (Arc::new(near.into()), far)
}

fn pool(count: usize) -> Pool {
    let class = PoolClass { buffer_bytes: BLOCK, count };
    Pool::new(&[class]).expect("a pool")
}

fn in_use(pool: &Pool) -> usize {
    pool.usage().classes[0].in_use
}

/// Polls once and says whether it is still waiting.
async fn is_waiting<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
    let mut future = future;
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

#[test]
fn timers_fire_on_the_real_clock() {
    let (mut executor, handle, _ring) = world(8);
    let before = handle.now();
    let wait = std::time::Duration::from_millis(2);
    executor.block_on(handle.sleep(wait));
    assert!(handle.now().since(before) >= wait);
}
