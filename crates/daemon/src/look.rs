//! What devices hold, without taking them: for dry runs.
//!
//! What must stay true: devices are only read, and the judgement is the one that the real start makes.

use crate::config;
use ashlar_api::ApiError;
use ashlar_ondisk::SuperblockCopies;
use ashlar_ondisk::assembly::{
    AssemblyRequest, MemberReading, ReadLabel, Start, Verdict, assemble,
};
use ashlar_ondisk::examine::{examine_ranges, split_copies};
use ashlar_units::{Extent, to_usize};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// What would happen if these devices were assembled.
///
/// # Errors
/// The refusal that the start would end in.
pub fn would_assemble(devices: &[String], request: &AssemblyRequest) -> Result<String, ApiError> {
    let readings: Vec<MemberReading> = devices.iter().filter_map(|path| reading(path)).collect();
    let verdict = assemble(&readings, request);
    let start = match &verdict.start {
        Start::Whole => "all members there".to_owned(),
        Start::Degraded => format!("degraded, {} missing", missing(&verdict)),
        Start::ReadOnly(reason) => format!("read-only ({reason:?})"),
        Start::Refused(refusal) => {
            let hint = "nothing was written; look closer with 'ashlar examine'";
            return Err(ApiError::new("array.not_started", refusal.line.clone(), hint));
        }
    };
    let name = verdict.newest.as_ref().map_or(String::new(), |it| it.array_name.to_string());
    Ok(format!("array '{name}' would start: {start}; nothing was written"))
}

/// That this device may be written: it is there, and nobody's, unless the operator said it may be destroyed.
///
/// # Errors
/// The refusal that taking it would end in.
pub fn may_take(path: &str, may_destroy: bool) -> Result<(), ApiError> {
    let refuse =
        |code: &str, message: String, hint: String| Err(ApiError::new(code, message, hint));
    if let Err(error) = File::open(path) {
        let message = format!("{path}: {error}; nothing was written");
        return refuse("device.not_opened", message, "check the name".to_owned());
    }
    if may_destroy {
        return Ok(());
    }
    let consent = format!("if its content may go, say so by name: --destroy {path}");
    if let Some(signature) = config::foreign_signatures()(path).first() {
        let message = format!("{path} carries {signature}; nothing was written");
        return refuse("device.has_signature", message, consent);
    }
    match reading(path).map(|reading| reading.label) {
        Some(
            ReadLabel::Member(_)
            | ReadLabel::Spare(_)
            | ReadLabel::Damaged
            | ReadLabel::Unsupported { .. },
        ) => {
            let message = format!("{path} is a member or spare already; nothing was written");
            refuse("device.has_signature", message, consent)
        }
        _ => Ok(()),
    }
}

fn missing(verdict: &Verdict) -> String {
    let slots: Vec<String> = verdict.missing().map(|slot| format!("slot {}", slot.slot)).collect();
    slots.join(", ")
}

/// `None` for what cannot be read at all: the real start would leave it out too.
fn reading(path: &str) -> Option<MemberReading> {
    let mut file = File::open(path).ok()?;
    let device_bytes = file.seek(SeekFrom::End(0)).ok()?;
    let ranges = examine_ranges(device_bytes).map(|ranges| ranges.map(|range| read(&file, range)));
    let [head, tail] = ranges.unwrap_or([None, None]);
    let choice = SuperblockCopies::choose(&split_copies(head.as_deref(), tail.as_deref()));
    Some(MemberReading::new(path, device_bytes, "", choice))
}

fn read(file: &File, range: Extent) -> Option<Vec<u8>> {
    let mut bytes = vec![0; to_usize(range.bytes)];
    file.read_exact_at(&mut bytes, range.offset).ok()?;
    Some(bytes)
}
