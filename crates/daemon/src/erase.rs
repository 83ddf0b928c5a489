//! Erases the RAID metadata of devices that no array needs any more.
//!
//! What must stay true: a device is held alone while it is looked at and written, so nobody can put
//! it to use in between. Only the metadata at both ends is overwritten; data stays where it is.
//! Not here: which devices may be erased (`arrays/erase.rs`).

use crate::look::{self, Label};
use ashlar_device::{Access, FileDevice, OpenRefusal};
use ashlar_ondisk::examine::examine_ranges;
use ashlar_units::to_usize;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// A device that nobody else has.
pub struct HeldDevice {
    path: String,
    label: Label,
    _alone: FileDevice,
}

impl HeldDevice {
    /// Takes the device and looks at it.
    ///
    /// # Errors
    /// Why it cannot be had; nothing was written.
    pub fn take(path: &str) -> Result<HeldDevice, OpenRefusal> {
        let alone = FileDevice::open(path, Access::Exclusive, Duration::ZERO)?;
        Ok(HeldDevice { path: path.to_owned(), label: look::label(path), _alone: alone })
    }

    /// Its path, as it was named.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What is on it.
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// Overwrites its metadata, durable afterwards.
    ///
    /// # Errors
    /// What the system says; some of the copies may be there still.
    pub fn erase(self) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(&self.path)?;
        let device_bytes = file.seek(SeekFrom::End(0))?;
        for range in examine_ranges(device_bytes).into_iter().flatten() {
            zero(&file, range.offset, range.bytes)?;
        }
        file.sync_all()
    }
}

fn zero(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    file.write_all_at(&vec![0; to_usize(bytes)], offset)
}

#[cfg(test)]
mod tests {
    use super::HeldDevice;
    use crate::look::Label;
    use std::fs;

    #[test]
    fn only_both_ends_of_a_device_are_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("device");
        let len = 8 << 20;
        fs::write(&path, vec![7; len]).expect("written");
        let held = HeldDevice::take(path.to_str().expect("text")).expect("nobody has it");
        assert!(matches!(held.label(), Label::Nothing));
        held.erase().expect("erased");
        let after = fs::read(&path).expect("read");
        let (head, tail) = (256 << 10, len - (128 << 10));
        assert!(after[..head].iter().chain(&after[tail..]).all(|byte| *byte == 0));
        assert!(after.len() == len && after[head..tail].iter().all(|byte| *byte == 7));
    }
}
