//! Drives, the controllers they hang on, and what stands between: the path of a block device in
//! sysfs tells it.
//!
//! ```text
//! ../devices/pci0000:00/0000:00:03.0/0000:05:00.0/host1/port-1:0/expander-1:0/port-1:0:4/
//!     end_device-1:0:4/.../block/sde
//! ../devices/pci0000:40/0000:40:01.1/0000:41:00.0/nvme/nvme0/nvme0n1
//! ```

use super::pci::{PciDevice, chain};
use super::sas::{Lanes, Sas};
use crate::metrics::bandwidth::sas_mega_bits;
use crate::order::one_of;
use crate::source::Source;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// By what a drive speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DriveKind {
    Nvme,
    /// SAS, or SATA behind SAS.
    Sas,
    /// SATA on an AHCI controller.
    Sata,
    Virtual,
    Other,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Attachment {
    /// PCI address of the controller.
    pub controller: String,
    /// The expander nearest to the drive, if there is one.
    pub expander: Option<String>,
    /// The link from the controller to the first expander.
    pub uplink: Option<Lanes>,
    /// The drive's own link, SAS or SATA.
    pub link: Option<Lanes>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Drive {
    /// `sda`, `nvme0n1`.
    pub name: String,
    pub kind: DriveKind,
    pub model: String,
    pub firmware: Option<String>,
    pub size_bytes: u64,
    /// Bytes of the whole drive, of which an NVMe namespace may be a part.
    pub drive_bytes: u64,
    pub is_rotational: Option<bool>,
    /// Ways to it; two for a drive with two ports that this server uses both.
    pub attachments: Vec<Attachment>,
    pub node: Option<u64>,
    /// Logical and physical block, bytes.
    pub blocks: Option<(u64, u64)>,
    /// `write back`: the kernel flushes it because it has a volatile cache.
    pub write_cache: Option<String>,
    pub scheduler: Option<String>,
    pub nr_requests: Option<u64>,
    /// Largest request now, and what the hardware takes, KiB.
    pub request_kib: Option<(u64, u64)>,
    pub queue_count: Option<u64>,
    /// Partitions: name and first byte.
    pub partitions: Vec<(String, u64)>,
    /// What the drive says of its own health; None if nobody could ask.
    pub is_healthy: Option<bool>,
    /// Whether other hosts may be attached as well, as an NVMe controller says.
    pub is_shared: Option<bool>,
    /// I/Os in flight when it was looked at.
    pub in_flight: Option<u64>,
}

impl Drive {
    /// Whether both are one drive: namespaces behind the same NVMe controllers.
    fn is_of(&self, other: &Drive) -> bool {
        let controllers = |drive: &Drive| -> BTreeSet<String> {
            drive.attachments.iter().map(|way| way.controller.clone()).collect()
        };
        let is_nvme = [self, other].iter().all(|drive| drive.kind == DriveKind::Nvme);
        self.name == other.name || (is_nvme && controllers(self) == controllers(other))
    }
}

/// The drives behind `devices`: each with its namespaces, the first one first.
pub fn whole(devices: &[Drive]) -> Vec<Vec<&Drive>> {
    let mut all: Vec<Vec<&Drive>> = Vec::new();
    for device in devices {
        one_of(&mut all, |drive| drive[0].is_of(device), Vec::new).push(device);
    }
    all
}

pub fn read(
    source: &Source,
    pci: &BTreeMap<String, PciDevice>,
    sas: &Sas,
) -> (Vec<Drive>, Vec<String>) {
    let mut drives = Vec::new();
    for name in source.names("/sys/block") {
        let Some(path) = source.link(&format!("/sys/block/{name}")) else { continue };
        let paths = paths(source, &path);
        let ways = paths.iter().filter_map(|path| attachment(source, path, pci, sas));
        let attachments: Vec<Attachment> = ways.collect();
        // Without hardware below it, it is no drive: loop, RAM, md, dm.
        if attachments.is_empty() {
            continue;
        }
        let drive = drive(source, &name, &path, attachments, pci);
        // Drives without a medium: an empty optical drive.
        if drive.size_bytes > 0 && !name.starts_with("sr") {
            drives.push(drive);
        }
    }
    size_whole_drives(source, &mut drives);
    let used = |address: &str| {
        let mut ways = drives.iter().flat_map(|drive| &drive.attachments);
        ways.any(|way| way.controller == address)
    };
    let controllers = pci.keys().filter(|address| used(address)).cloned().collect();
    (drives, controllers)
}

/// What the controller says, or all namespaces that are here.
fn size_whole_drives(source: &Source, drives: &mut [Drive]) {
    let mut sizes = BTreeMap::new();
    for all in whole(drives) {
        let sum = all.iter().map(|it| it.size_bytes).fold(0, u64::saturating_add);
        let told = capacity(source, all[0]).filter(|bytes| *bytes >= sum).unwrap_or(sum);
        sizes.extend(all.iter().map(|it| (it.name.clone(), told)));
    }
    for drive in drives {
        drive.drive_bytes = sizes.get(&drive.name).copied().unwrap_or(drive.size_bytes);
    }
}

/// `tnvmcap`: NVMe controllers without namespace management say 0.
fn capacity(source: &Source, drive: &Drive) -> Option<u64> {
    let told = id_ctrl(source, &drive.name, drive.kind)?.get("tnvmcap")?.clone();
    let number = told.as_u64().or_else(|| told.as_str()?.parse().ok());
    number.filter(|bytes| *bytes > 0)
}

/// The hardware paths behind a block device. With NVMe multipath the device hangs on a subsystem,
/// which has controllers.
fn paths(source: &Source, path: &str) -> Vec<String> {
    let Some((_, rest)) = path.split_once("/nvme-subsystem/") else { return vec![path.to_owned()] };
    let subsystem = rest.split('/').next().unwrap_or_default();
    let is_controller = |name: &String| {
        let digits = name.strip_prefix("nvme");
        digits.is_some_and(|it| !it.is_empty() && it.chars().all(|c| c.is_ascii_digit()))
    };
    let names = source.names(&format!("/sys/class/nvme-subsystem/{subsystem}"));
    let links = names.iter().filter(|it| is_controller(it));
    links.filter_map(|name| source.link(&format!("/sys/class/nvme/{name}"))).collect()
}

fn attachment(
    source: &Source,
    path: &str,
    pci: &BTreeMap<String, PciDevice>,
    sas: &Sas,
) -> Option<Attachment> {
    let controller = chain(path).pop().filter(|address| pci.contains_key(address))?;
    let parts =
        |start: &str| path.split('/').filter(|it| it.starts_with(start)).collect::<Vec<_>>();
    let (ports, expanders, ata) = (parts("port-"), parts("expander-"), parts("ata"));
    let lanes = |port: &str| sas.ports.get(port).copied();
    let sata = ata.first().and_then(|ata| {
        let speed = source.text(&format!("/sys/class/ata_link/link{}/sata_spd", &ata[3..]))?;
        Some(Lanes { mega_bits: sas_mega_bits(&speed)?, count: 1 })
    });
    Some(Attachment {
        controller,
        expander: expanders.last().map(|name| (*name).to_owned()),
        uplink: ports.first().filter(|_| !expanders.is_empty()).and_then(|port| lanes(port)),
        link: ports.last().and_then(|port| lanes(port)).or(sata),
    })
}

fn drive(
    source: &Source,
    name: &str,
    path: &str,
    attachments: Vec<Attachment>,
    pci: &BTreeMap<String, PciDevice>,
) -> Drive {
    let at = |file: &str| format!("/sys/block/{name}/{file}");
    let number = |file: &str| source.number(&at(file));
    let text = |file: &str| source.text(&at(file)).filter(|text| !text.is_empty());
    let words = ["device/vendor", "device/model"].map(|file| text(file).unwrap_or_default());
    // Virtio has a number for a vendor.
    let words = words.iter().map(|word| word.trim());
    let words: Vec<&str> = words.filter(|it| !it.is_empty() && !it.starts_with("0x")).collect();
    let kind = kind(name, path);
    let node = attachments.first().and_then(|way| pci.get(&way.controller)).and_then(|it| it.node);
    let scheduler = text("queue/scheduler").map(|list| {
        let chosen = list.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        chosen.map_or(list.clone(), |(chosen, _)| chosen.to_owned())
    });
    Drive {
        name: name.to_owned(),
        kind,
        // libata's word for the vendor of every SATA drive.
        model: words.strip_prefix(&["ATA"]).unwrap_or(&words).join(" "),
        firmware: text("device/rev").or_else(|| text("device/firmware_rev")),
        size_bytes: number("size").unwrap_or(0).saturating_mul(512),
        drive_bytes: 0,
        is_rotational: number("queue/rotational").map(|it| it != 0),
        node,
        blocks: number("queue/logical_block_size").zip(number("queue/physical_block_size")),
        write_cache: text("queue/write_cache"),
        scheduler,
        nr_requests: number("queue/nr_requests"),
        request_kib: number("queue/max_sectors_kb").zip(number("queue/max_hw_sectors_kb")),
        queue_count: queues(source, &at("mq")),
        partitions: partitions(source, name),
        is_healthy: health(source, name, kind),
        is_shared: shared(source, name, kind),
        // Reads and writes.
        in_flight: text("inflight").and_then(|it| {
            let mut parts = it.split_whitespace().map(|part| part.parse::<u64>().ok());
            parts.try_fold(0, |sum: u64, part| Some(sum.saturating_add(part?)))
        }),
        attachments,
    }
}

fn kind(name: &str, path: &str) -> DriveKind {
    let has = |part: &str| path.contains(part);
    match () {
        () if name.starts_with("nvme") => DriveKind::Nvme,
        () if has("/end_device-") => DriveKind::Sas,
        () if has("/ata") => DriveKind::Sata,
        () if has("/virtio") || name.starts_with("xvd") => DriveKind::Virtual,
        () => DriveKind::Other,
    }
}

fn queues(source: &Source, folder: &str) -> Option<u64> {
    let count = source.names(folder).len();
    u64::try_from(count).ok().filter(|count| *count > 0)
}

fn partitions(source: &Source, name: &str) -> Vec<(String, u64)> {
    let inside = source.names(&format!("/sys/block/{name}"));
    let start = |part: String| {
        let sectors = source.number(&format!("/sys/block/{name}/{part}/start"))?;
        Some((part, sectors.saturating_mul(512)))
    };
    inside.into_iter().filter(|part| part.starts_with(name)).filter_map(start).collect()
}

/// `smartctl -j -H`; a drive that sleeps is not woken.
fn health(source: &Source, name: &str, kind: DriveKind) -> Option<bool> {
    if matches!(kind, DriveKind::Virtual | DriveKind::Other) {
        return None;
    }
    let device = format!("/dev/{name}");
    let argv = ["smartctl", "-j", "-H", "-n", "standby", &device];
    // Its exit code is a set of bits of which most do not mean that it failed.
    let run = source.run(&format!("smartctl-{name}"), &argv);
    let answer: serde_json::Value = serde_json::from_str(&run.stdout).ok()?;
    answer.get("smart_status")?.get("passed")?.as_bool()
}

/// Bit 1 of CMIC: the subsystem may have two or more controllers, so another host may use the other
/// port.
fn shared(source: &Source, name: &str, kind: DriveKind) -> Option<bool> {
    Some(id_ctrl(source, name, kind)?.get("cmic")?.as_u64()? & 2 != 0)
}

fn id_ctrl(source: &Source, name: &str, kind: DriveKind) -> Option<serde_json::Value> {
    if kind != DriveKind::Nvme {
        return None;
    }
    let controller = name.split_at_checked(4)?.1.split('n').next()?;
    let device = format!("/dev/nvme{controller}");
    let argv = ["nvme", "id-ctrl", &device, "-o", "json"];
    let text = source.output(&format!("nvme_id_ctrl-nvme{controller}"), &argv)?;
    serde_json::from_str(&text).ok()
}
