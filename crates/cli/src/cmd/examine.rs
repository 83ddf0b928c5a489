//! `ashlar examine`: what a device says about itself. Reads only; needs no daemon.

use crate::fault::Fault;
use crate::reach::Reach;
use ashlar_ondisk::examine::{Examination, examine_ranges};
use ashlar_units::{Extent, to_usize};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Print what devices say about themselves, healthy or damaged. Changes nothing and needs no daemon.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Devices to look at.
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

pub fn run(args: &Args, reach: &Reach) -> Result<(), Fault> {
    let mut found = Vec::new();
    for path in &args.devices {
        found.push((path, examine(path)?));
    }
    let list: Vec<Value> = found.iter().map(|(path, it)| value(path, it)).collect();
    reach.print(&list, |_| {
        let texts: Vec<String> =
            found.iter().map(|(path, it)| format!("{}\n{it}", path.display())).collect();
        texts.join("\n")
    })
}

fn examine(path: &Path) -> Result<Examination, Fault> {
    let hint = "see that it is there, and that you may read it (root, or group disk)";
    let complain = |error: std::io::Error| Fault::file(path, &error, hint);
    let mut file = File::open(path).map_err(complain)?;
    // Block devices have no length in their metadata; both kinds can be sought to their end.
    let device_bytes = file.seek(SeekFrom::End(0)).map_err(complain)?;
    let Some([head, tail]) = examine_ranges(device_bytes) else {
        return Ok(Examination::new(device_bytes, None, None));
    };
    let (head, tail) = (read(&file, head), read(&file, tail));
    Ok(Examination::new(device_bytes, head.as_deref(), tail.as_deref()))
}

/// A part that cannot be read is part of the answer, not the end of it.
fn read(file: &File, extent: Extent) -> Option<Vec<u8>> {
    let mut bytes = vec![0; to_usize(extent.bytes)];
    file.read_exact_at(&mut bytes, extent.offset).ok()?;
    Some(bytes)
}

fn value(path: &Path, it: &Examination) -> Value {
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
        "text": it.to_string(),
    })
}
