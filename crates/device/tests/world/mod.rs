//! A virtual-clock executor and what every test of a device needs.

use ashlar_device::Outcome;
use ashlar_iobuf::BufMut;
use ashlar_ring::{Completions, Executor, Handle, Schedule, VirtualReactor};

/// Runs `body` on an executor whose clock is virtual.
pub fn run<T>(body: impl AsyncFnOnce(Handle, Completions<Outcome>) -> T) -> T {
    let mut executor = Executor::new(Box::new(VirtualReactor::new()), Schedule::Seeded(1));
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
