//! Where drives are plugged in, as far as the kernel's enclosure driver knows.
//!
//! What must stay true: only links below `/sys` are read; no device is asked. What was found is
//! kept until the path is no member's any more.

use ashlar_api::v1::event::one_line;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The places of drives, by path of the device.
#[derive(Clone, Debug, Default)]
pub struct Bays(BTreeMap<String, Option<String>>);

impl Bays {
    /// The place of a device, if it is known.
    pub fn of(&self, device: &str) -> Option<String> {
        self.0.get(device).cloned().flatten()
    }

    /// Whether all these devices, and no others, were looked for.
    pub fn covers(&self, devices: &BTreeSet<String>) -> bool {
        self.0.len() == devices.len() && devices.iter().all(|it| self.0.contains_key(it))
    }

    /// Look for these devices below `sys`, but not again for those that were looked for before.
    #[must_use]
    pub fn with(mut self, devices: BTreeSet<String>, sys: &Path) -> Bays {
        let known = |device: String| {
            let place = self.0.remove(&device).unwrap_or_else(|| place(&device, sys));
            (device, place)
        };
        Bays(devices.into_iter().map(known).collect())
    }
}

/// `enclosure 6:0:24:0, bay Slot 07`: the driver links a disk to its bay.
fn place(device: &str, sys: &Path) -> Option<String> {
    if !device.starts_with('/') {
        return None;
    }
    let path = std::fs::canonicalize(device).unwrap_or_else(|_| PathBuf::from(device));
    let disk = sys.join("class/block").join(path.file_name()?).join("device");
    let links = std::fs::read_dir(disk).ok()?.flatten();
    links.into_iter().find_map(|link| {
        let name = link.file_name().into_string().ok()?;
        let bay = name.strip_prefix("enclosure_device:")?.to_owned();
        // .../enclosure/6:0:24:0/Slot 07
        let target = std::fs::canonicalize(link.path()).ok()?;
        let enclosure = target.parent()?.file_name()?.to_str()?.to_owned();
        Some(one_line(&format!("enclosure {enclosure}, bay {bay}")))
    })
}

#[cfg(test)]
mod tests {
    use super::Bays;
    use std::collections::BTreeSet;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_disk_in_an_enclosure_has_a_place_and_others_have_none() {
        let sys = tempfile::tempdir().expect("a folder");
        let bay = sys.path().join("devices/enclosure/6:0:24:0/Slot 07");
        let disk = sys.path().join("class/block/sdq/device");
        for folder in [&bay, &disk, &sys.path().join("class/block/sdr/device")] {
            std::fs::create_dir_all(folder).expect("made");
        }
        symlink(&bay, disk.join("enclosure_device:Slot 07")).expect("a link");
        let devices: BTreeSet<String> =
            ["/dev/sdq", "/dev/sdr", "memory:tank0-0", "/nowhere/x"].map(str::to_owned).into();
        let bays = Bays::default().with(devices.clone(), sys.path());
        assert_eq!(bays.of("/dev/sdq").as_deref(), Some("enclosure 6:0:24:0, bay Slot 07"));
        assert!(devices.iter().skip(1).all(|device| bays.of(device).is_none()));
        assert!(bays.covers(&devices));
        // What was found is not looked for again; what left is forgotten.
        std::fs::remove_dir_all(sys.path().join("class")).expect("gone");
        let one: BTreeSet<String> = ["/dev/sdq".to_owned()].into();
        assert!(!bays.covers(&one));
        assert!(bays.with(one, sys.path()).of("/dev/sdq").is_some());
    }
}
