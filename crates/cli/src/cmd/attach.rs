//! `ashlar attach`: a volume as a block device of this machine.
//!
//! The daemon shows the volume as a file of its FUSE folder, and util-linux's losetup makes a loop device
//! of that file with direct I/O. Nothing is remembered here: the daemon finds the loop device by the file.

use crate::fault::Fault;
use crate::reach::Reach;
use ashlar_api::codes;
use ashlar_api::v1::export::FuseAttach;
use ashlar_daemon::loops;
use std::process::Command;

/// Attach a volume as a block device. Prints /dev/loopN.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the array.
    array: String,

    /// Attach the volume as a file only, without a loop device. Prints the path of the file. Needs
    /// no root.
    #[arg(long)]
    file: bool,

    /// Logical block size of the loop device, in bytes.
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = ["512", "4096"])]
    sector_size: String,
}

/// What `--json` prints.
#[derive(serde::Serialize)]
struct Attached {
    changed: bool,
    file: String,
    device: Option<String>,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    let shown = reach.call(&FuseAttach { array: args.array })?;
    let mut attached = Attached { changed: shown.changed, file: shown.file, device: None };
    if !args.file {
        let device = match loops::over(&attached.file).pop() {
            Some(device) => device,
            None => {
                attached.changed = true;
                set_up(&attached.file, &args.sector_size)?
            }
        };
        attached.device = Some(device);
    }
    reach.print(&attached, |it| it.device.clone().unwrap_or_else(|| it.file.clone()))
}

fn set_up(file: &str, sector_size: &str) -> Result<String, Fault> {
    let options = ["--find", "--show", "--direct-io=on", "--sector-size", sector_size, file];
    Ok(losetup(&options)?.trim().to_owned())
}

/// Run util-linux's losetup and return what it prints.
fn losetup(options: &[&str]) -> Result<String, Fault> {
    let refuse = |message: String| {
        let hint = "the volume is served as a file; see 'ashlar volumes', or use NBD";
        Fault::new(codes::SYSTEM_FAULT, message, hint)
    };
    let output = Command::new("losetup")
        .args(options)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .map_err(|error| refuse(format!("losetup (package util-linux) cannot be run: {error}")))?;
    if !output.status.success() {
        return Err(refuse(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
