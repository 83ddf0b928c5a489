//! `ashlar attach`: a volume as a block device of this machine.
//!
//! The daemon makes it: by ublk, else a loop device over a file of its FUSE directory. Standard
//! output has one path, for scripts; the rest is told on standard error.

use crate::fault::Fault;
use crate::reach::Reach;
use crate::say;
use ashlar_api::v1::export::{Attach, Attached, Via};
use ashlar_daemon::udev;
use std::path::Path;

/// Make a volume a block device and print its path, /dev/ublkbN or /dev/loopN.
///
/// This command needs root. Ashlar uses the kernel's ublk driver if there is one. Otherwise the
/// daemon serves the volume as a file by FUSE, and sets up a loop device on this file.
///
/// From now on, the daemon attaches the volume at each start of the array. With --not-remembered it
/// does not. A daemon that was restarted remembers this only with `remember` in the section
/// `[start]` of the configuration. Debian and RPM packages add the name /dev/ashlar/ARRAY.
///
/// If the daemon dies, requests to a ublk device wait until a daemon runs again. Requests to a loop
/// device wait, too, but at most as long as `keeper_wait_s` in the configuration says [default: one
/// hour]. Before Linux 6.9, requests to a loop device end with I/O errors instead.
///
/// With `io_uring = true` in `[fuse]` of the configuration, the kernel passes requests for a file
/// or a loop device through io_uring. Requests then cost less CPU time. The price: if the daemon
/// dies, programs get I/O errors at once and do not wait. This setting needs Linux 6.14.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the array.
    array: String,

    /// What makes the block device [default: ublk if the kernel has its driver, else loop].
    #[arg(long, value_enum, value_name = "WAY")]
    via: Option<Way>,

    /// Show the volume as a file and print the path of the file, without a block device. This
    /// option needs no root.
    #[arg(long, conflicts_with = "via")]
    file: bool,

    /// Logical block size of a loop device: 512 or 4096 bytes. A ublk device always has the logical
    /// block size of the array [default: that of the array].
    #[arg(long, value_name = "BYTES", value_parser = ["512", "4096"])]
    sector_size: Option<String>,

    /// Do not attach the volume again at later starts of its array.
    #[arg(long)]
    not_remembered: bool,
}

/// What makes the block device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum Way {
    /// The kernel's ublk driver.
    Ublk,
    /// A loop device over a FUSE file that the daemon serves.
    Loop,
}

/// What `--json` prints.
#[derive(serde::Serialize)]
struct Told {
    changed: bool,
    /// What made the device; `None` for a file only.
    via: Option<Way>,
    /// Why that way.
    reason: String,
    file: Option<String>,
    device: Option<String>,
    link: Option<String>,
    /// A daemon that is killed and comes back is a pause and no error for whoever uses it.
    survives: bool,
    /// Requests of the file come over io_uring.
    over_ring: bool,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    let via = match args.via {
        _ if args.file => Some(Via::File),
        Some(Way::Ublk) => Some(Via::Ublk),
        Some(Way::Loop) => Some(Via::Loop),
        None => None,
    };
    let is_chosen = via.is_some();
    let sector_bytes = args.sector_size.and_then(|bytes| bytes.parse().ok());
    let not_remembered = args.not_remembered;
    let attached = reach.call(&Attach { array: args.array, via, sector_bytes, not_remembered })?;
    remark(&attached, is_chosen);
    let told = Told {
        changed: attached.changed,
        via: match attached.via {
            Via::Ublk => Some(Way::Ublk),
            Via::Loop => Some(Way::Loop),
            Via::File => None,
        },
        reason: attached.reason,
        file: attached.file,
        device: attached.device,
        link: attached.link,
        survives: attached.survives,
        over_ring: attached.over_ring,
    };
    reach.print(&told, |it| it.device.clone().or(it.file.clone()).expect("one of them is made"))
}

/// What standard output does not say.
fn remark(attached: &Attached, is_chosen: bool) {
    let Attached { via, reason, file, device, link, lacks, .. } = attached;
    match via {
        Via::Ublk if !is_chosen => say::complain(format_args!("ashlar: by ublk: {reason}")),
        Via::Loop if !is_chosen => {
            say::complain(format_args!("ashlar: by a loop device: {reason}"))
        }
        _ => {}
    }
    if let (Some(file), Some(why)) = (file, &attached.not_over_ring) {
        say::complain(format_args!("ashlar: requests of {file} do not come over io_uring: {why}"));
    }
    if let (Some(file), Some(lacks)) = (file, lacks) {
        say::complain(format_args!(
            "ashlar: if the daemon is killed, whoever has {file} open gets errors: {lacks}"
        ));
    }
    if let (Some(file), Some(device)) = (file, device) {
        say::complain(format_args!(
            "ashlar: the file {file} is faster than {device} on it: let virtual machines and \
             databases open the file"
        ));
    }
    if let Some(link) = link {
        udev::settle();
        match udev::has_made(Path::new(link)) {
            true => say::complain(format_args!("ashlar: for /etc/fstab: {link}")),
            false => say::complain(format_args!(
                "ashlar: udev has not made {link} yet; is its rule 60-ashlar.rules installed?"
            )),
        }
    }
}
