//! Takes away the signatures that a prober finds, until it finds none.
//!
//! What must stay true: only the marks themselves are overwritten, and all of them are, or it is an
//! error. One mark hides another: a second header counts only when the first is gone. Not here:
//! whether they may go.

use super::{Signature, look};
use ashlar_units::to_usize;
use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How often to look again. A device has the marks of a few formats, each in a few places.
const LOOKS: u32 = 64;

/// Overwrites every signature on the device or file at `path` with zeros, durably. What was there.
///
/// # Errors
/// If it cannot be read or written, or a signature stays.
pub fn wipe_signatures(path: &Path) -> io::Result<Vec<Signature>> {
    // Somebody who has it alone opens it once more by his own path to it.
    let file = File::from(open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?);
    let mut wiped = Vec::new();
    for _ in 0..LOOKS {
        let found = look(&file)?.signatures;
        if found.is_empty() {
            return Ok(wiped);
        }
        for signature in &found {
            file.write_all_at(&vec![0; to_usize(signature.bytes)], signature.offset)?;
        }
        file.sync_all()?;
        wiped.extend(found);
    }
    let left = look(&file)?.signatures;
    match left.first() {
        None => Ok(wiped),
        Some(left) => Err(io::Error::other(format!("{left} cannot be wiped"))),
    }
}
