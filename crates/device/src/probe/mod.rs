//! Finds foreign data on a device before anything is overwritten.
//!
//! The answer comes from util-linux's `wipefs`, the front of libblkid. udev, mkfs and users of
//! mdadm rely on the same prober. It knows hundreds of formats and is on every Debian system. It is
//! run as a program and not linked, because the library is C under the LGPL, and a probe is rare
//! and not urgent. Without it, a minimal check of our own looks for the formats that cost most to
//! lose. With it, that check adds what `wipefs` leaves out: it lists one label of ZFS, and there
//! are four. What must stay true: looking writes nothing. An unreadable device is an error, not an
//! empty answer. Not here: our own signature, which the on-disk format knows, and what to do about
//! a foreign one.
//!
//! - `program`: asking `wipefs`
//! - `magic`: the check of our own
//! - `wipe`: takes away what they find

mod magic;
mod program;
mod wipe;

pub use wipe::wipe_signatures;

use crate::file::{open_to_look, path_for_others};
use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

/// What a prober found on a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Who looked.
    pub by: Prober,
    /// What is there, in order of offsets.
    pub signatures: Vec<Signature>,
}

/// Who looked at a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prober {
    /// libblkid, through `wipefs`.
    Program,
    /// The minimal check of our own: tables of partitions, the usual file systems, md and other
    /// metadata of arrays, LVM, LUKS, swap, ZFS.
    BuiltIn,
}

/// A mark that somebody else's data is here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// Whose, in libblkid's words: `ext4`, `gpt`, `linux_raid_member`, ...
    pub kind: String,
    /// Where the mark is, in bytes from the start.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    /// Its identity, if it has one.
    pub uuid: Option<String>,
    /// What somebody called it.
    pub label: Option<String>,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if let Some(label) = &self.label {
            write!(f, " '{}'", on_one_line(label))?;
        }
        if let Some(uuid) = &self.uuid {
            write!(f, " {}", on_one_line(uuid))?;
        }
        write!(f, " at byte {}", self.offset)
    }
}

/// A device may hold anything where a name should be.
fn on_one_line(name: &str) -> String {
    let shown = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    name.chars().map(shown).collect()
}

/// Looks for signatures on the device or file at `path`. Blocks while it reads.
///
/// # Errors
/// If it cannot be read.
pub fn signatures(path: &Path) -> io::Result<Probe> {
    // Opened first, so that a device that cannot be read is told apart from a program that cannot
    // be run.
    let file = open_to_look(path)?;
    look(&file)
}

fn look(file: &File) -> io::Result<Probe> {
    let Some(mut signatures) = program::signatures(&path_for_others(file)) else {
        return built_in(file);
    };
    let is_new = |found: &Signature| {
        !signatures.iter().any(|known| known.offset == found.offset) && magic::is_distinct(found)
    };
    let more: Vec<Signature> = magic::signatures(file)?.into_iter().filter(is_new).collect();
    signatures.extend(more);
    signatures.sort_by_key(|signature| signature.offset);
    Ok(Probe { by: Prober::Program, signatures })
}

/// As [`signatures`], but by the check of our own in any case.
///
/// # Errors
/// If it cannot be read.
pub fn signatures_built_in(path: &Path) -> io::Result<Probe> {
    built_in(&open_to_look(path)?)
}

fn built_in(file: &File) -> io::Result<Probe> {
    Ok(Probe { by: Prober::BuiltIn, signatures: magic::signatures(file)? })
}

#[cfg(test)]
mod tests {
    use super::Signature;

    /// An `XFSB` over another superblock: bytes of chance are its label.
    #[test]
    fn a_signature_is_one_line_whatever_its_label_holds() {
        let label = Some("day\n\u{1b}[2J \u{e9}t\u{e9}".to_owned());
        let own = Signature { kind: "xfs".to_owned(), offset: 0, bytes: 4, uuid: None, label };
        assert_eq!(own.to_string(), "xfs 'day\\n\\u{1b}[2J \u{e9}t\u{e9}' at byte 0");
    }
}
