//! What drives have in common that can fail: their enclosure, their port, their host bus adapter.
//!
//! What must stay true: pure functions of names that the kernel gave. Two drives share a part
//! exactly if it has one name for both. A drive for which the kernel names no such part has none.
//!
//! Not here: reading these names (`bay`), and what an array makes of them.

use std::path::Path;

use crate::bay::Bay;

/// A part that several drives hang on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SharedPart {
    /// The enclosure, as the kernel's enclosure driver names it.
    Enclosure,
    /// The port that leads to the drives: the front of their names in `/dev/disk/by-path`.
    Path,
    /// The host bus adapter: its PCI address; for NVMe drives the root port.
    Adapter,
}

impl Bay {
    /// The part that the drive hangs on; `None` if the kernel does not say.
    pub fn part(&self, part: SharedPart) -> Option<String> {
        match part {
            SharedPart::Enclosure => self.enclosure.clone(),
            SharedPart::Path => self.by_path.as_deref().and_then(port),
            SharedPart::Adapter => self.adapter.clone(),
        }
    }
}

/// The front of a name by path that drives on one port share. A name is bus, address and protocol;
/// then follow the expander or the remote port, if there is one, and what belongs to the drive.
fn port(by_path: &str) -> Option<String> {
    let words: Vec<&str> = by_path.split('-').collect();
    let (bus, protocol) = (words.get(..3)?, words[2]);
    let further = words.get(3).filter(|word| word.starts_with("exp") || protocol == "fc");
    Some(bus.iter().chain(further).copied().collect::<Vec<_>>().join("-"))
}

/// The adapter of the disk with this directory in sysfs: the last PCI function on the way to it. An
/// NVMe drive is such a function itself, so the first one counts, its root port.
pub(crate) fn adapter(disk: &Path) -> Option<String> {
    let names = disk.iter().filter_map(|name| name.to_str());
    let mut functions = names.filter(|name| is_pci_function(name));
    let is_nvme = disk.iter().any(|name| name == "nvme");
    let own = if is_nvme { functions.next() } else { functions.next_back() };
    own.map(str::to_owned)
}

/// `0000:5e:00.0`
fn is_pci_function(name: &str) -> bool {
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_hexdigit());
    let parts: Vec<&str> = name.split([':', '.']).collect();
    name.ends_with(|it: char| it.is_ascii_digit())
        && parts.len() == 4
        && [4, 2, 2, 1].iter().zip(&parts).all(|(length, part)| part.len() >= *length)
        && parts.iter().all(|part| is_hex(part))
}

#[cfg(test)]
mod tests {
    use super::{SharedPart, adapter, port};
    use crate::bay::Bay;
    use std::path::Path;

    #[test]
    fn drives_share_a_port_if_only_what_belongs_to_the_drive_differs() {
        for (name, wanted) in [
            (
                "pci-0000:5e:00.0-sas-exp0x500304801f2a8d3f-phy7-lun-0",
                Some("pci-0000:5e:00.0-sas-exp0x500304801f2a8d3f"),
            ),
            ("pci-0000:5e:00.0-sas-phy7-lun-0", Some("pci-0000:5e:00.0-sas")),
            ("pci-0000:5e:00.0-sas-0x5000c500a1b2c3d4-lun-0", Some("pci-0000:5e:00.0-sas")),
            ("pci-0000:00:17.0-ata-3", Some("pci-0000:00:17.0-ata")),
            ("pci-0000:05:00.0-fc-0x5006016-lun-1", Some("pci-0000:05:00.0-fc-0x5006016")),
            ("pci-0000:81:00.0-nvme-1", Some("pci-0000:81:00.0-nvme")),
            ("something", None),
        ] {
            assert_eq!(port(name).as_deref(), wanted, "{name}");
        }
    }

    #[test]
    fn the_adapter_is_the_pci_function_that_the_drive_hangs_on() {
        for (path, wanted) in [
            (
                "/sys/devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0/host6/port-6:0/expander-6:0/\
                 port-6:0:7/end_device-6:0:7/target6:0:7/6:0:7:0/block/sdq",
                Some("0000:5e:00.0"),
            ),
            (
                "/sys/devices/pci0000:80/0000:80:01.1/0000:81:00.0/0000:82:04.0/0000:85:00.0/nvme/\
                 nvme3/nvme3n1",
                Some("0000:80:01.1"),
            ),
            ("/sys/devices/virtual/block/loop3", None),
        ] {
            assert_eq!(adapter(Path::new(path)).as_deref(), wanted, "{path}");
        }
    }

    #[test]
    fn a_drive_of_which_nothing_is_known_has_no_part() {
        for part in [SharedPart::Enclosure, SharedPart::Path, SharedPart::Adapter] {
            assert_eq!(Bay::default().part(part), None);
        }
        let bay = Bay { adapter: Some("0000:5e:00.0".to_owned()), ..Bay::default() };
        assert_eq!(bay.part(SharedPart::Adapter).as_deref(), Some("0000:5e:00.0"));
    }
}
