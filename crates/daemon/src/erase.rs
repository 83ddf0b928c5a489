//! Erases the RAID metadata of devices that no array needs any more.
//!
//! What must stay true: a device is held alone while it is looked at and written, so nobody puts
//! it to use in between. What was looked at is written, wherever its path leads by then. Only the
//! metadata at both ends is overwritten; data stays where it is.
//! Not here: which devices may be erased (`arrays/erase.rs`).

use crate::look::{self, Label};
use ashlar_device::{Access, FileDevice, OpenRefusal, Opened, exclusion_of};
use ashlar_ondisk::examine::{DeviceEnds, examine_ranges, recorded_tail};
use ashlar_units::to_usize;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// A device that nobody else has.
pub struct HeldDevice {
    path: String,
    label: Label,
    file: File,
    _alone: FileDevice,
}

impl HeldDevice {
    /// Takes the device and looks at it.
    ///
    /// # Errors
    /// Why it cannot be had; nothing was written.
    pub fn take(path: &str) -> Result<HeldDevice, OpenRefusal> {
        let alone = FileDevice::open(path, Access::Exclusive, Duration::ZERO)?;
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let file = opened.map_err(|error| OpenRefusal::new(path, error.to_string()))?;
        // From here on by what is held: the path may lead elsewhere at any time.
        let held = format!("/proc/self/fd/{}", file.as_raw_fd());
        if exclusion_of(&held) != alone.facts().exclusion {
            return Err(OpenRefusal::new(path, "its path led to another device in between"));
        }
        let label = look::label(&held);
        Ok(HeldDevice { path: path.to_owned(), label, file, _alone: alone })
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
    pub fn erase(mut self) -> io::Result<()> {
        let device_bytes = self.file.seek(SeekFrom::End(0))?;
        let ends = DeviceEnds::read(device_bytes, |range| {
            let mut bytes = vec![0; to_usize(range.bytes)];
            self.file.read_exact_at(&mut bytes, range.offset).ok().map(|()| bytes)
        });
        // Of a device that grew, the copies where it ended before, too.
        let before = recorded_tail(&ends.choice, device_bytes);
        for range in before.into_iter().chain(examine_ranges(device_bytes).into_iter().flatten()) {
            self.file.write_all_at(&vec![0; to_usize(range.bytes)], range.offset)?;
        }
        self.file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::HeldDevice;
    use crate::look::Label;
    use std::fs;

    #[test]
    fn what_was_looked_at_is_erased_wherever_its_path_leads_by_then() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, first] = ["device", "first"].map(|name| folder.path().join(name));
        fs::write(&path, vec![7; 8 << 20]).expect("written");
        let held = HeldDevice::take(path.to_str().expect("text")).expect("nobody has it");
        fs::rename(&path, &first).expect("renamed");
        fs::write(&path, vec![9; 8 << 20]).expect("written");
        held.erase().expect("erased");
        assert!(fs::read(&path).expect("read").iter().all(|byte| *byte == 9));
        assert_eq!(fs::read(&first).expect("read")[..4096], [0; 4096]);
    }

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
