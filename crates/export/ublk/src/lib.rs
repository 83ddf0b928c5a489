//! The ublk export: a volume as a block device of this machine, `/dev/ublkbN`.
//!
//! The kernel's driver `ublk_drv` hands each request to this process through io_uring, and the
//! process answers it there. Each place of a queue has a buffer: the driver copies a write's data
//! into it before it hands the request over, and takes a read's data from it with the answer. One
//! queue belongs to one worker.
//!
//! What must stay true: this crate knows [`Volume`](ashlar_volume::Volume) and nothing else of the
//! engine; a request is answered exactly once by this process; a device whose server died waits for
//! the next one, which gets every unanswered request again (`UBLK_F_USER_RECOVERY_REISSUE`).
//! Not here: which volume is attached, and when a device is taken over. The daemon says so.
//!
//! Map, in reading order:
//! - `device`: one device from its making to its end; how a dead server's device is taken over
//! - `limits`: pure; what the device says of itself
//! - `queue`: the requests of one queue, on one worker; `carry_out`: what they do
//! - `request`: pure; what a request asks for
//! - `control`: commands to the driver
//! - `wire`: pure; the driver's bytes
//! - `counters`; `hostile`: descriptors at random, for tests

#![forbid(unsafe_code)]

mod carry_out;
mod control;
mod counters;
mod device;
#[doc(hidden)]
pub mod hostile;
mod limits;
mod queue;
mod request;
mod wire;

pub use control::{Control, DeviceState, Found, Unavailable, check_available};
pub use counters::UblkCounters;
pub use device::{Device, DeviceSetting, Owner, QueuePlace, delete_dead};
pub use queue::QueueServer;
