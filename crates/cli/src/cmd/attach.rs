//! `ashlar attach`: a volume as a block device of this machine.
//!
//! By ublk the daemon makes the device itself. Else the daemon shows the volume as a file of its
//! FUSE folder, and util-linux's losetup makes a loop device of that file with direct I/O. Nothing
//! is remembered here: the daemon finds the loop device by the file. Standard output has one path,
//! for scripts; the file under a loop device is told on standard error.

use crate::fault::Fault;
use crate::reach::Reach;
use crate::say;
use ashlar_api::v1::export::{FuseAttach, FuseAttached, UblkAttach, UblkAttached};
use ashlar_api::v1::status::GetStatus;
use ashlar_api::{ClientError, codes};
use ashlar_daemon::loops;
use std::process::Command;

/// Make a volume a block device: prints /dev/ublkbN or /dev/loopN.
///
/// Ashlar uses the kernel's ublk driver if there is one, else a loop device over a file. If the
/// daemon dies, requests then wait for the next daemon.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the array.
    array: String,

    /// Use this way instead of the best one available.
    #[arg(long, value_enum, value_name = "WAY")]
    via: Option<Via>,

    /// Show the volume as a file and print its path. Makes no block device and needs no root.
    #[arg(long, conflicts_with = "via")]
    file: bool,

    /// Logical block size of a loop device, in bytes.
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = ["512", "4096"])]
    sector_size: String,
}

/// What makes the block device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum Via {
    /// The kernel's ublk driver.
    Ublk,
    /// A loop device over a file.
    Loop,
}

/// What `--json` prints.
#[derive(serde::Serialize)]
struct Attached {
    changed: bool,
    /// What made the device; `None` for a file only.
    via: Option<Via>,
    /// Why that way.
    reason: String,
    file: Option<String>,
    device: Option<String>,
    /// A daemon that is killed and comes back is a pause and no error for whoever uses it.
    survives: bool,
}

/// The reason of whoever said `--via`.
const AS_ASKED: &str = "as asked for";

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    let attached = match args.via {
        _ if args.file => as_file(&args, reach, "a file was asked for".to_owned())?,
        Some(Via::Ublk) => by_ublk(reach.call(&ublk(&args))?, AS_ASKED),
        Some(Via::Loop) => by_loop(&args, reach, AS_ASKED.to_owned())?,
        None => by_the_best(&args, reach)?,
    };
    reach.print(&attached, |it| it.device.clone().or(it.file.clone()).expect("one of them is made"))
}

/// As it is attached already, else by ublk, else by a loop device; says why on stderr.
fn by_the_best(args: &Args, reach: &Reach) -> Result<Attached, Fault> {
    let exports = reach.call(&GetStatus {})?.exports;
    let own = |export: &&_| of(export, &args.array);
    if exports.iter().filter(own).any(|export| export.protocol == "fuse") {
        return by_loop(args, reach, "the volume is shown as a file already".to_owned());
    }
    match reach.client()?.call(&ublk(args)) {
        Ok(made) => {
            let attached = by_ublk(made, "the kernel has the driver");
            say::complain(format_args!("ashlar: by ublk: {}", attached.reason));
            Ok(attached)
        }
        Err(ClientError::Refused(refusal)) if refusal.code == codes::EXPORT_IMPOSSIBLE => {
            say::complain(format_args!("ashlar: by a loop device: {}", refusal.message));
            by_loop(args, reach, refusal.message)
        }
        Err(error) => Err(error.into()),
    }
}

fn of(export: &ashlar_api::v1::export::ExportStatus, array: &str) -> bool {
    export.array.as_deref() == Some(array)
}

fn ublk(args: &Args) -> UblkAttach {
    UblkAttach { array: args.array.clone() }
}

fn by_ublk(made: UblkAttached, reason: &str) -> Attached {
    let UblkAttached { changed, device } = made;
    let reason = reason.to_owned();
    let (via, device) = (Some(Via::Ublk), Some(device));
    Attached { changed, via, reason, file: None, device, survives: true }
}

fn as_file(args: &Args, reach: &Reach, reason: String) -> Result<Attached, Fault> {
    let shown = reach.call(&FuseAttach { array: args.array.clone() })?;
    let FuseAttached { changed, file, survives, lacks } = shown;
    if let Some(lacks) = lacks {
        say::complain(format_args!(
            "ashlar: if the daemon is killed, whoever has {file} open gets errors: {lacks}"
        ));
    }
    Ok(Attached { changed, via: None, reason, file: Some(file), device: None, survives })
}

fn by_loop(args: &Args, reach: &Reach, reason: String) -> Result<Attached, Fault> {
    let mut attached = as_file(args, reach, reason)?;
    attached.via = Some(Via::Loop);
    let file = attached.file.clone().unwrap_or_default();
    let device = match loops::over(&file).pop() {
        Some(device) => device,
        None => {
            attached.changed = true;
            set_up(&file, &args.sector_size)?
        }
    };
    say::complain(format_args!(
        "ashlar: the file {file} is faster than {device} on it: let virtual machines and databases \
         open the file"
    ));
    attached.device = Some(device);
    Ok(attached)
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
