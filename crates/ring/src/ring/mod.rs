//! The io_uring of one core, as async functions.
//!
//! In reading order:
//! - `submit`: [`Ring`]: start an operation, wait for it, cancel it, close the ring
//! - `file`, `stream`, `message`: its functions for files, for sockets, and for what goes over
//!   sockets without a copy or with descriptors
//! - `operation`: what can be asked of the kernel ([`Operation`]), and how that is written into a
//!   submission entry; `command`, `descriptors` and `fuse_entry` are
//!   parts of it
//! - `in_flight`: which operations the kernel has; issue, reap, cancel, close
//! - `parking`: the reactor of the ring, and the doorbell that wakes it from other threads;
//!   `spinning`: how long it looks for completions before it sleeps
//! - `uring`, `setup`: the kernel's side, with entries of either size; making it with the best
//!   flags it knows
//!
//! What must stay true: an operation owns its buffers and its file until its completion is reaped,
//! so dropping a future is always safe. Registered files and buffers would come in at `operation`;
//! there are none yet.

mod command;
mod descriptors;
mod file;
mod fuse_entry;
mod in_flight;
mod message;
mod operation;
mod parking;
mod setup;
mod spinning;
mod stream;
mod submit;
mod uring;

pub use command::{AREA_BYTES, DeviceCommand, WIDE_AREA_BYTES, WideCommand};
pub use descriptors::{DESCRIPTORS_MAX, ReceivedDescriptors, SentDescriptors};
pub use fuse_entry::FuseEntry;
pub use message::SendHold;
pub use operation::{Operation, OperationOutcome, PARTS_MAX};
pub use setup::EntryBytes;
pub use submit::{BufResult, KernelCalls, Ring, RingConfig, RingLoad, Sink};
