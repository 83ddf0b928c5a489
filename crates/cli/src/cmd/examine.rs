//! `ashlar examine`: what a device says about itself. Reads only; needs no daemon.

use crate::fault::Fault;
use crate::reach::Reach;
use ashlar_device::{holders, open_to_look};
use ashlar_ondisk::examine::{DeviceEnds, Examination};
use ashlar_ondisk::log::{LogScan, MemberLog};
use ashlar_units::{Extent, to_usize};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Print the RAID metadata of devices, healthy or damaged. The command changes nothing and needs no
/// daemon.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Devices to read.
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

pub fn run(args: &Args, reach: &Reach) -> Result<(), Fault> {
    let mut found = Vec::new();
    for path in args.devices.iter().map(|path| super::partition_on(path)) {
        let it = examine(&path)?;
        found.push((path, it));
    }
    let list: Vec<Value> = found.iter().map(|(path, it)| value(path, it)).collect();
    reach.print(&list, |_| {
        let texts: Vec<String> = found.iter().map(|(path, it)| text(path, it)).collect();
        texts.join("\n")
    })
}

/// What a device says, and its log, if it has one: the last is `Err` where it cannot be read.
type Found = (Examination, Option<Result<MemberLog, String>>);

fn text(path: &Path, (it, log): &Found) -> String {
    let log = match log {
        None => String::new(),
        Some(Ok(log)) => log.to_string(),
        Some(Err(why)) => format!("{:<14} unreadable: {why}\n", "log"),
    };
    format!("{}\n{}{it}{log}", path.display(), in_use(path, it))
}

/// Who has a member: what its superblock calls unclean is then an array that runs.
fn in_use(path: &Path, it: &Examination) -> String {
    if it.label.is_none() {
        return String::new();
    }
    let who: Vec<String> =
        holders(path).unwrap_or_default().iter().map(ToString::to_string).collect();
    if who.is_empty() { String::new() } else { format!("{:<14} {}\n", "in use", who.join(", ")) }
}

fn examine(path: &Path) -> Result<Found, Fault> {
    let hint = "see that it is there, and that you may read it (root, or group disk)";
    let complain = |error: std::io::Error| Fault::file(path, &error, hint);
    let mut file = open_to_look(path).map_err(complain)?;
    // Block devices have no length in their metadata; both kinds can be sought to their end.
    let device_bytes = file.seek(SeekFrom::End(0)).map_err(complain)?;
    let ends = DeviceEnds::read(device_bytes, |extent| read(&file, extent));
    let it = Examination::of(device_bytes, &ends);
    let log = it.superblock().and_then(|superblock| {
        let scan = LogScan::of_member(superblock)?;
        Some(read_log(&file, superblock.areas.intent_log.offset, scan))
    });
    Ok((it, log))
}

fn read_log(file: &File, area_offset: u64, mut scan: LogScan) -> Result<MemberLog, String> {
    while let Some(Extent { offset, bytes }) = scan.wanted() {
        let mut piece = vec![0; to_usize(bytes)];
        let read = file.read_exact_at(&mut piece, area_offset + offset);
        read.map_err(|error| error.to_string())?;
        scan.take(&piece);
    }
    Ok(scan.finish())
}

fn log_value(log: &Result<MemberLog, String>) -> Value {
    let log = match log {
        Ok(log) => log,
        Err(why) => return json!({"unreadable": why}),
    };
    let log_rings: Vec<Value> = log
        .log_rings
        .iter()
        .map(|(number, log_ring)| {
            json!({
                "log_ring": number,
                "batches": log_ring.batches,
                "records": log_ring.records,
                "bytes": log_ring.bytes,
                "settled_below": log_ring.settled_below,
            })
        })
        .collect();
    json!({
        "batches": log.batches(),
        "records": log.records_written(),
        "counting": log.records.len(),
        "full": log.counting("full"),
        "in_doubt": log.counting("in doubt"),
        "first_writes": log.counting("first write"),
        "parity_only": log.counting("parity-only"),
        "older_batches": log.other_batches,
        "older_records": log.other_records,
        "fault": log.fault.map(|fault| fault.to_string()),
        "log_rings": log_rings,
    })
}

/// A part that cannot be read is part of the answer, not the end of it.
fn read(file: &File, extent: Extent) -> Option<Vec<u8>> {
    let mut bytes = vec![0; to_usize(extent.bytes)];
    file.read_exact_at(&mut bytes, extent.offset).ok()?;
    Some(bytes)
}

fn value(path: &Path, (it, log): &Found) -> Value {
    let copies: Vec<Value> = it
        .copies
        .iter()
        .map(|copy| json!({"offset": copy.offset, "state": copy.state.to_string()}))
        .collect();
    let member = it.superblock().map(|superblock| {
        let geometry = &superblock.geometry;
        json!({
            "array": superblock.array_name.to_string(),
            "array_uuid": superblock.array_uuid.to_string(),
            "member_uuid": superblock.member_uuid.to_string(),
            "slot": superblock.slot.0,
            "level": geometry.level_name(),
            "data_strips": geometry.data_strips,
            "parity_strips": geometry.parity_strips,
            "groups": geometry.groups,
            "slots": geometry.slots(),
            "is_declustered": geometry.is_declustered(),
            "strip_bytes": geometry.strip_bytes,
            "volume_bytes": geometry.volume_bytes(),
            "generation": superblock.generation,
            "incarnation": superblock.incarnation,
            "unclean": superblock.unclean,
        })
    });
    json!({
        "device": path.display().to_string(),
        "device_bytes": it.device_bytes,
        "healthy": it.is_healthy(),
        "recorded_bytes": it.recorded_bytes,
        "copies": copies,
        "member": member,
        "log": log.as_ref().map(log_value),
        "text": it.to_string(),
    })
}
