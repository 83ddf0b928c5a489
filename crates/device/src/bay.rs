//! Where a drive is plugged in, as the kernel's enclosure driver and udev tell, and the light of
//! its bay.
//!
//! What must stay true: only files and links below the handed-in roots are read, and no device is
//! asked. Nothing but the file `locate` of a bay is written. Not here: lights that a program has to
//! switch.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::shared_part::adapter;
use crate::sysfs::{self, text};

/// Where a drive is, or was, plugged in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bay {
    /// Name of the disk in `/dev/disk/by-path`.
    pub by_path: Option<String>,
    /// The enclosure: its id, which survives a reboot, or else the kernel's name for it.
    pub enclosure: Option<String>,
    /// The bay, as the enclosure calls it.
    pub name: Option<String>,
    /// PCI address of the host bus adapter; see [`SharedPart::Adapter`](crate::SharedPart).
    pub adapter: Option<String>,
    /// The NUMA node that it hangs on.
    pub node: Option<u32>,
}

/// What is in a bay now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Occupant {
    /// The kernel's name of the disk.
    pub disk: String,
    /// Its serial.
    pub serial: Option<String>,
}

impl Bay {
    /// Where the disk of block device `major:minor` is plugged in.
    pub(crate) fn of(sys: &Path, dev: &Path, major: u32, minor: u32) -> Bay {
        let Some(own) = sysfs::directory(sys, major, minor) else { return Bay::default() };
        let disk = sysfs::whole_disk(&own);
        let component = component_of(&disk);
        Bay {
            by_path: by_path(&disk, dev),
            enclosure: component.as_ref().and_then(|it| enclosure(it.parent()?)),
            name: component.as_deref().and_then(file_name),
            adapter: adapter(&disk),
            node: sysfs::node(sys, &own),
        }
    }

    /// Where the block device at this path is plugged in. Files are nowhere.
    pub fn at(path: &Path) -> Bay {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        let block = fs::metadata(path).ok().filter(|it| it.file_type().is_block_device());
        block.map_or_else(Bay::default, |it| {
            let (major, minor) = (rustix::fs::major(it.rdev()), rustix::fs::minor(it.rdev()));
            Bay::of(Path::new(sysfs::SYS), Path::new("/dev"), major, minor)
        })
    }

    /// The bay's directory below `sys`, if the kernel has its enclosure now.
    pub fn directory(&self, sys: &Path) -> Option<PathBuf> {
        let (wanted, bay) = (self.enclosure.as_ref()?, self.name.as_ref()?);
        let all = fs::read_dir(sys.join("class/enclosure")).ok()?.flatten();
        let mut all = all.map(|entry| entry.path());
        let own = all.find(|it| enclosure(it).as_ref() == Some(wanted))?;
        Some(own.join(bay)).filter(|bay| bay.join("locate").exists())
    }
}

/// The disk in the bay with this directory.
pub fn occupant(bay: &Path) -> Option<Occupant> {
    let disk = fs::read_dir(bay.join("device/block")).ok()?.flatten().next()?.path();
    Some(Occupant { disk: file_name(&disk)?, serial: sysfs::serial(&disk) })
}

/// Switch the light of the bay with this directory.
///
/// # Errors
/// If the enclosure refuses, or its file cannot be written.
pub fn set_light(bay: &Path, is_on: bool) -> io::Result<()> {
    fs::write(bay.join("locate"), if is_on { "1" } else { "0" })
}

/// `.../enclosure/6:0:24:0/Slot 07`: the driver links a disk to its bay.
fn component_of(disk: &Path) -> Option<PathBuf> {
    let links = fs::read_dir(disk.join("device")).ok()?.flatten();
    let mut links = links.filter(|link| {
        link.file_name().to_str().is_some_and(|name| name.starts_with("enclosure_device:"))
    });
    fs::canonicalize(links.next()?.path()).ok()
}

fn enclosure(directory: &Path) -> Option<String> {
    text(&directory.join("id")).or_else(|| file_name(directory))
}

/// The shortest of the names that lead to the disk.
fn by_path(disk: &Path, dev: &Path) -> Option<String> {
    let links = fs::read_dir(dev.join("disk/by-path")).ok()?.flatten();
    let leads_here =
        |link: &PathBuf| fs::read_link(link).is_ok_and(|to| to.file_name() == disk.file_name());
    let names = links.map(|link| link.path()).filter(leads_here).filter_map(|it| file_name(&it));
    names.min_by_key(|name| (name.len(), name.clone()))
}

fn file_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Bay, Occupant, occupant, set_light};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    /// A made-up machine: disk 65:0 `sdq` with a partition, in bay 07 of an enclosure.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        let at = |path: &str| root.path().join(path);
        let (disk, bay) =
            ("sys/devices/host6/sdq/block/sdq", "sys/class/enclosure/6:0:24:0/Slot 07");
        for folder in [&format!("{disk}/sdq1"), &format!("{disk}/device"), "sys/dev/block", bay] {
            fs::create_dir_all(at(folder)).expect("made");
        }
        fs::create_dir_all(at("dev/disk/by-path")).expect("made");
        for (file, content) in [("sdq1/partition", "1\n"), ("device/serial", "Z1\n")] {
            fs::write(at(disk).join(file), content).expect("written");
        }
        fs::write(at(bay).join("locate"), "0\n").expect("written");
        for (to, from) in [
            (at(disk), "sys/dev/block/65:0"),
            (at(disk).join("sdq1"), "sys/dev/block/65:1"),
            (at(bay), &*format!("{disk}/device/enclosure_device:Slot 07")),
            (at("sys/devices/host6/sdq"), &*format!("{bay}/device")),
        ] {
            symlink(to, at(from)).expect("linked");
        }
        for (name, to) in [
            ("pci-0000:5e:00.0-sas-phy7-lun-0", "../../sdq"),
            ("pci-0000:5e:00.0-sas-0x5000c500a1b2c3d4-lun-0", "../../sdq"),
            ("pci-0000:5e:00.0-sas-phy7-lun-0-part1", "../../sdq1"),
        ] {
            symlink(Path::new(to), at("dev/disk/by-path").join(name)).expect("linked");
        }
        root
    }

    fn bay_of(root: &Path, minor: u32) -> Bay {
        Bay::of(&root.join("sys"), &root.join("dev"), 65, minor)
    }

    #[test]
    fn a_disk_and_its_partition_are_in_the_bay_that_the_enclosure_names() {
        let root = machine();
        let bay = Bay {
            by_path: Some("pci-0000:5e:00.0-sas-phy7-lun-0".to_owned()),
            enclosure: Some("6:0:24:0".to_owned()),
            name: Some("Slot 07".to_owned()),
            adapter: None,
            node: None,
        };
        assert_eq!(bay_of(root.path(), 0), bay);
        assert_eq!(bay_of(root.path(), 1), bay, "of the whole disk: that is what is pulled");
        assert_eq!(bay_of(root.path(), 9), Bay::default(), "a device that sysfs does not know");
        let id = root.path().join("sys/class/enclosure/6:0:24:0/id");
        fs::write(id, "0x500304801f2a8d3f\n").expect("written");
        let enclosure = Some("0x500304801f2a8d3f".to_owned());
        assert_eq!(bay_of(root.path(), 0), Bay { enclosure, ..bay });
    }

    #[test]
    fn the_light_of_a_bay_is_found_by_its_name_and_switched() {
        let root = machine();
        let sys = root.path().join("sys");
        let bay = bay_of(root.path(), 0);
        let directory = bay.directory(&sys).expect("it is there");
        let light = || fs::read_to_string(directory.join("locate")).expect("read");
        set_light(&directory, true).expect("written");
        assert_eq!(light(), "1");
        set_light(&directory, false).expect("written");
        assert_eq!(light(), "0");
        let other = Bay { name: Some("Slot 08".to_owned()), ..bay.clone() };
        assert_eq!(other.directory(&sys), None);
        assert_eq!(Bay { enclosure: None, ..bay }.directory(&sys), None);
    }

    #[test]
    fn what_is_in_a_bay_now_is_told_by_its_serial() {
        let root = machine();
        let directory = bay_of(root.path(), 0).directory(&root.path().join("sys")).expect("there");
        let drive = Occupant { disk: "sdq".to_owned(), serial: Some("Z1".to_owned()) };
        assert_eq!(occupant(&directory), Some(drive));
        fs::remove_file(directory.join("device")).expect("pulled");
        assert_eq!(occupant(&directory), None);
    }
}
