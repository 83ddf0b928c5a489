//! The commands, one file each: `Args` is what can be typed, `run` does it.

pub mod assemble;
pub mod attach;
pub mod bench;
pub mod completions;
pub mod create;
pub mod create_declustered;
pub mod create_domains;
pub mod destroy;
pub mod detach;
pub mod events;
pub mod examine;
pub mod fail;
pub mod grow;
pub mod job;
pub mod keeper;
pub mod lab;
pub mod locate;
pub mod man;
pub mod metrics;
pub mod notify;
pub mod openapi;
pub mod partition;
pub mod re_add;
pub mod rebuild;
pub mod rename;
pub mod replace;
pub mod salvage;
pub mod scrub;
pub mod serve;
pub mod set;
pub mod spare;
pub mod status;
pub mod stop;
pub mod top;
pub mod volumes;
pub mod wipe;

use crate::fault::Fault;
use crate::reach::device;
use ashlar_daemon::partition::inside;
use ashlar_units::ByteSize;
use std::path::{Path, PathBuf};

/// What is stated of a device as the daemon wants it.
fn atomic_write(size: ByteSize) -> Result<u32, Fault> {
    let bytes = u32::try_from(size.0).ok().filter(|bytes| bytes.is_power_of_two());
    bytes.ok_or_else(|| {
        Fault::usage(format!("{size} cannot be stated"), "take a power of two from 4K to 1G")
    })
}

/// A member as the daemon must see it: a slot number or serial as it is, a path in full.
fn member_name(typed: String) -> Result<String, Fault> {
    let is_slot = typed.parse::<u16>().is_ok();
    let is_path = !is_slot && (typed.contains('/') || Path::new(&typed).exists());
    if is_path { device(Path::new(&typed)) } else { Ok(typed) }
}

/// Whether the operator named the device to be overwritten. Naming another one is a slip, not
/// consent.
fn may_destroy(named: Option<&Path>, given: &str) -> Result<bool, Fault> {
    let Some(named) = named else { return Ok(false) };
    if device(named)? == given {
        return Ok(true);
    }
    let message = format!(
        "--destroy names {}, and the device is {given}; nothing was changed",
        named.display()
    );
    Err(Fault::usage(message, "name the same device in both places"))
}

/// The partition that a drive stands for; else the path itself. Needs no daemon.
fn partition_on(path: &Path) -> PathBuf {
    path.to_str().and_then(inside).map_or_else(|| path.to_owned(), PathBuf::from)
}
