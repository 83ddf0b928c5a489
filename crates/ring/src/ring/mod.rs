//! The io_uring of one core, as async functions.
//!
//! In reading order:
//! - `submit`: [`Ring`]: start an operation, wait for it, cancel it, close the ring
//! - `file`, `stream`: its functions for files and for sockets
//! - `operation`: what can be asked of the kernel ([`Operation`]), and how that is written into a
//!   submission entry
//! - `in_flight`: which operations the kernel has; issue, reap, cancel, close
//! - `parking`: the reactor of the ring, and the doorbell that wakes it from other threads
//! - `setup`: making the kernel's side with the best flags it knows
//!
//! What must stay true: an operation owns its buffers and its file until its completion is reaped,
//! so dropping a future is always safe. Registered files and buffers would come in at `operation`;
//! there are none yet.

mod file;
mod in_flight;
mod operation;
mod parking;
mod setup;
mod stream;
mod submit;

pub use operation::{Operation, Outcome, PARTS_MAX};
pub use submit::{BufResult, Ring, RingConfig, RingLoad, Sink};
