//! One member: a block device, partition, file or memory behind one trait.  (INTERFACE STUB: bodies to be filled.)
#![allow(missing_docs, clippy::unimplemented, unused)]
use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::{Completion, Handle};
use std::rc::Rc;
use std::sync::Arc;

/// What to do at an offset. Offsets and lengths are multiples of `DeviceFacts::logical_block_bytes`.
#[derive(Debug)]
pub enum Command {
    Read(BufMut),
    Write(Buf),
    Flush,
    Discard { bytes: u64 },
    WriteZeroes { bytes: u64 },
}

/// How it went; a read's buffer comes back in either case.
#[derive(Debug)]
pub struct Outcome {
    pub result: Result<(), Fault>,
    pub buffer: Option<BufMut>,
}

/// A device fault, told apart by what the engine does about it. Copy, no allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind:?} (errno {errno})")]
pub struct Fault {
    pub kind: FaultKind,
    pub errno: i32,
}
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// These blocks cannot be read (EIO, EILSEQ, ENODATA, short read): others may.
    Media,
    /// The device is gone or broken as a whole (ENODEV, ENXIO, ESHUTDOWN, EBADF).
    Gone,
    NoSpace,
    Unsupported,
    TimedOut,
}

/// What is fixed about an opened device.
#[derive(Clone, Debug)]
pub struct DeviceFacts {
    /// Path or name, for people.
    pub path: String,
    /// Usable size in bytes.
    pub size_bytes: u64,
    pub logical_block_bytes: u32,
    /// Memory alignment that direct I/O needs, in bytes.
    pub memory_alignment: u32,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub is_rotational: bool,
    pub has_volatile_cache: bool,
    /// `Discard` is there and afterwards the range reads as zeros.
    pub discard_reads_zeros: bool,
    pub kind: DeviceKind,
}
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceKind {
    Block,
    File,
    Memory,
    Null,
    Simulated,
}

/// An opened device on one worker. Object-safe; submission never blocks and never allocates once warm.
pub trait Device {
    fn facts(&self) -> &DeviceFacts;
    /// Start `command` at `offset` (bytes from the device's start; ignored by Flush); `done` is completed later or at once.
    fn submit(&self, offset: u64, command: Command, done: Completion<Outcome>);
}

/// An opened device before it is placed on workers: holds the exclusive open. Send + Sync.
pub trait Opened: Send + Sync {
    fn facts(&self) -> &DeviceFacts;
    /// A handle to it for the worker behind `handle`.
    fn attach(&self, handle: &Handle) -> Rc<dyn Device>;
}

/// How devices are found by name: real paths in life, memory or simulated ones in tests.
pub trait Opener: Send + Sync {
    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn Opened>, OpenRefusal>;
}
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    ReadOnly,
    Exclusive,
}

/// Why a device was not opened. Its text is one line for the operator: what happened, to what, what to do.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct OpenRefusal {
    pub path: String,
    pub reason: String,
}
