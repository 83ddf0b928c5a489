//! One member's device: a block device, partition, file or memory behind one trait.
//!
//! What must stay true: nobody above this crate knows what kind of device it talks to; a device
//! that is opened for use is opened exclusively; faults come back as values. Not here: RAID,
//! formats, retries.
//!
//! Map, in reading order:
//! - `device`: [`Device`], [`Opened`], [`Opener`] and the [`Command`]s
//! - `fault`: [`Fault`], and which errno is which
//! - `flights`: [`Flights`], commands under way, what they owe, and giving them up
//! - `start`: starting commands and waiting for them
//! - `file`, `uring`: [`FileDevice`], real devices and files, opened and in use
//! - `memory_file`: files in the kernel's memory, in use
//! - `mem`, `null`: [`MemDevice`] and [`NullDevice`]
//! - `open_paths`: [`PathOpener`], which finds all of these by name
//! - `faulty`, `stats`: [`FaultyDevice`] and [`CountedDevice`], around any other device
//!   waits for that one
//! - `record`: [`RecordingOpener`], a record of everything that changes devices
//! - `noted`: what counting and recording share; `forward`: tasks that pass answers on
//! - `probe`: [`signatures`], whose data is on a device; [`holders`], who has it
//! - `ground`: what a path lies on; whether two overlap
//! - `sysfs`: what the kernel tells about a block device; `store`: where a thin one takes space
//!   from; `bay`: where a drive is plugged in, and the light there; `shared_part`:
//!   what it hangs on
#![forbid(unsafe_code)]

mod bay;
mod device;
mod fault;
mod faulty;
mod file;
mod flights;
mod forward;
mod ground;
mod holders;
mod identity;
mod mem;
mod memory_file;
mod noted;
mod null;
mod open_paths;
mod probe;
mod record;
mod shared_part;
mod start;
mod stats;
mod store;
mod sysfs;
mod uring;

pub use bay::{Bay, Occupant, occupant, set_light};
pub use device::{
    Access, Change, Command, CommandKind, Device, DeviceFacts, DeviceKind, Look, OpenRefusal,
    Opened, Opener, Outcome,
};
pub use fault::{Fault, FaultKind};
pub use faulty::{FaultControl, FaultyDevice, FaultyOpener};
pub use file::{FileDevice, open_to_look};
pub use flights::{Flight, Flights, Owed};
pub use ground::{HeldGround, overlap};
pub use holders::{Holder, holders};
pub use identity::{Physical, disk_at, exclusion_of, serial_at};
pub use mem::MemDevice;
pub use null::NullDevice;
pub use open_paths::PathOpener;
pub use probe::{Probe, Prober, Signature, signatures, signatures_built_in, wipe_signatures};
pub use record::{RecordEntry, RecordKind, Recorder, RecordingOpener, read_record};
pub use shared_part::SharedPart;
pub use start::{
    Doing, ReadFailed, Reading, discard, flush, read, write, write_durable, write_zeroes,
};
pub use stats::{CountedDevice, DeviceStats, KindCounts};
