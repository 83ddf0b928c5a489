//! One member's device: a block device, partition, file or memory behind one trait.
//!
//! What must stay true: nobody above this crate knows what kind of device it talks to; a device that is opened
//! for use is opened exclusively; faults come back as values.
//! Not here: RAID, formats, retries.
//!
//! Map, in reading order:
//! - `device`: [`Device`], [`Opened`], [`Opener`] and the [`Command`]s
//! - `fault`: [`Fault`], and which errno is which
//! - `start`: starting commands and waiting for them
//! - `mem`, `null`: [`MemDevice`] and [`NullDevice`]
#![forbid(unsafe_code)]

mod device;
mod fault;
mod mem;
mod null;
mod start;

pub use device::{
    Access, Command, CommandKind, Device, DeviceFacts, DeviceKind, OpenRefusal, Opened, Opener,
    Outcome,
};
pub use fault::{Fault, FaultKind};
pub use mem::MemDevice;
pub use null::NullDevice;
pub use start::{Doing, ReadFailed, Reading, discard, flush, read, write, write_zeroes};
