//! Executors and what every test of a device needs.

use ashlar_device::Outcome;
use ashlar_iobuf::BufMut;
use ashlar_ring::{
    Completions, Executor, Handle, Reactor, Ring, RingConfig, Schedule, VirtualReactor,
};

/// Runs `body` on an executor whose clock is virtual.
pub fn run<T>(body: impl AsyncFnOnce(Handle, Completions<Outcome>) -> T) -> T {
    run_on(Box::new(VirtualReactor::new()), body)
}

/// Runs `body` on an executor with an io_uring.
pub fn run_on_ring<T>(body: impl AsyncFnOnce(Handle, Completions<Outcome>) -> T) -> T {
    let ring = Ring::new(RingConfig::of(64)).expect("io_uring is allowed here");
    run_on(ring.reactor(), body)
}

fn run_on<T>(
    reactor: Box<dyn Reactor>,
    body: impl AsyncFnOnce(Handle, Completions<Outcome>) -> T,
) -> T {
    let mut executor = Executor::new(reactor, Schedule::Seeded(1));
    let handle = executor.handle();
    executor.block_on(body(handle, Completions::new()))
}

/// A buffer in which every byte tells where it is and which `version` it belongs to.
pub fn pattern(bytes: usize, version: u8) -> BufMut {
    let mut buffer = BufMut::zeroed(bytes);
    for (at, byte) in buffer.iter_mut().enumerate() {
        *byte = u8::try_from((at / 7 + at) % 256).expect("below 256") ^ version;
    }
    buffer
}
