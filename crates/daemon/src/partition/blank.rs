//! That a drive may get a table of partitions: it is whole, free and blank.
//!
//! What must stay true: it is only read. A drive that lost its table may still hold a member where
//! the partition was; that is not blank.

use super::{EDGE_BYTES, drive, refused};
use crate::nested;
use ashlar_api::{ApiError, codes};
use ashlar_device::{Access, FileDevice, open_to_look, signatures};
use ashlar_ondisk::assembly::{MemberReading, ReadLabel};
use ashlar_ondisk::examine::{DeviceEnds, examine_ranges, split_copies};
use ashlar_ondisk::{Choice, SuperblockCopies};
use ashlar_units::{Extent, to_usize};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// That the drive may get a table. With `may_destroy` it need not be blank.
///
/// # Errors
/// One line that says what it is instead; nothing was written.
pub fn check(path: &str, may_destroy: bool) -> Result<(), ApiError> {
    if let Err(error) = std::fs::metadata(path) {
        return Err(ApiError::new(
            codes::SYSTEM_FAULT,
            format!("{path}: {error}"),
            "check the name",
        ));
    }
    if !drive::is_whole(path) {
        return Err(refused(path, "is no whole drive", "name whole drives"));
    }
    if !may_destroy && !drive::partitions(path).is_empty() {
        return Err(refused(path, "has partitions", "use one of them, or clear it with wipefs"));
    }
    let opened = nested::check(path)
        .and_then(|()| FileDevice::open(path, Access::Exclusive, Duration::ZERO));
    if let Err(refusal) = opened {
        return Err(ApiError::new("device.not_opened", refusal.to_string(), "nothing was written"));
    }
    match if may_destroy { None } else { carries(path)? } {
        None => Ok(()),
        Some(found) => {
            let hint = "clear it first, if it may go";
            Err(refused(path, &format!("carries {found}"), hint))
        }
    }
}

/// Whose the drive is, if it is anybody's.
fn carries(path: &str) -> Result<Option<String>, ApiError> {
    let complain = |error: std::io::Error| {
        ApiError::new(codes::SYSTEM_FAULT, format!("{path}: {error}"), "nothing was written")
    };
    let found = signatures(Path::new(path)).map_err(complain)?;
    if let Some(first) = found.signatures.first() {
        return Ok(Some(first.to_string()));
    }
    let mut file = open_to_look(Path::new(path)).map_err(complain)?;
    let bytes = file.seek(SeekFrom::End(0)).map_err(complain)?;
    if is_ours(path, DeviceEnds::read(bytes, |extent| read(&file, extent)).choice) {
        return Ok(Some("a member or spare of Ashlar".to_owned()));
    }
    let lost = examine_ranges(bytes)
        .and_then(|[head, _]| read(&file, Extent::new(head.offset + EDGE_BYTES, head.bytes)));
    let lost = SuperblockCopies::choose(&split_copies(lost.as_deref(), None));
    let what = "a member or spare of Ashlar in a partition whose table is lost";
    Ok(is_ours(path, lost).then(|| what.to_owned()))
}

/// Whether a superblock of ours is there, whole or not.
fn is_ours(path: &str, choice: Choice) -> bool {
    let label = MemberReading::new(path, 0, "", choice).label;
    !matches!(label, ReadLabel::Blank | ReadLabel::Foreign)
}

fn read(file: &File, extent: Extent) -> Option<Vec<u8>> {
    let mut bytes = vec![0; to_usize(extent.bytes)];
    file.read_exact_at(&mut bytes, extent.offset).ok()?;
    Some(bytes)
}
