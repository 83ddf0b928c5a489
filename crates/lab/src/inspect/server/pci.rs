//! PCI devices: sysfs for links and places, `lspci -vv -D` for names and packet sizes.

use crate::metrics::bandwidth::{PcieLink, Rate};
use crate::source::Source;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PciDevice {
    pub address: String,
    /// Class code of 24 bits: 0x010700 for a SAS controller.
    pub class: u64,
    /// Vendor and device: (0x1000, 0x0097).
    pub ids: (u64, u64),
    pub name: Option<String>,
    /// NUMA node; None if the firmware does not say.
    pub node: Option<u64>,
    /// The link as it runs.
    pub negotiated: Option<PcieLink>,
    /// The link as the device could run it.
    pub capable: Option<PcieLink>,
    /// Bytes of data a packet may carry on this link.
    pub payload_bytes: Option<u64>,
    /// Addresses from the root to this device, itself last.
    pub chain: Vec<String>,
    pub irqs: Vec<u64>,
}

impl PciDevice {
    pub fn is_bridge(&self) -> bool {
        self.class >> 8 == 0x0604
    }

    pub fn is_storage(&self) -> bool {
        self.class >> 16 == 0x01
    }

    pub fn is_network(&self) -> bool {
        self.class >> 16 == 0x02
    }

    /// What the link carries for data.
    pub fn rate(&self) -> Option<Rate> {
        // 128 bytes is what every device can do and the setting after reset.
        Some(self.negotiated?.payload(self.payload_bytes.unwrap_or(128)))
    }

    pub fn label(&self) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None => format!("{:04x}:{:04x}", self.ids.0, self.ids.1),
        }
    }
}

pub fn read(source: &Source) -> BTreeMap<String, PciDevice> {
    let text = source.output("lspci", &["lspci", "-vv", "-D"]).unwrap_or_default();
    // A device of which only lspci tells: its place among the others is not known.
    let mut devices = spoken(&text);
    for address in source.names("/sys/bus/pci/devices") {
        let folder = format!("/sys/bus/pci/devices/{address}");
        let number = |name: &str| source.number(&format!("{folder}/{name}"));
        let text = |name: &str| source.text(&format!("{folder}/{name}")).unwrap_or_default();
        let device = devices.entry(address.clone()).or_default();
        device.address = address;
        device.class = number("class").unwrap_or(0);
        device.ids = (number("vendor").unwrap_or(0), number("device").unwrap_or(0));
        device.chain = chain(&source.link(&folder).unwrap_or_default());
        device.node = None;
        // Only what carries data is asked for more.
        let is_end = device.is_storage() || device.is_network();
        if is_end || device.is_bridge() {
            device.node = number("numa_node");
            let link = |which: &str| {
                let [speed, width] =
                    ["speed", "width"].map(|it| text(&format!("{which}_link_{it}")));
                PcieLink::parse(&speed, &width)
            };
            device.negotiated = link("current").or(device.negotiated);
            device.capable = link("max").or(device.capable);
        }
        if is_end {
            let irqs = source.names(&format!("{folder}/msi_irqs"));
            device.irqs = irqs.iter().filter_map(|irq| irq.parse().ok()).collect();
        }
    }
    devices
}

/// Class codes by the words of lspci, as far as anybody asks for them here.
fn class_of(words: &str) -> u64 {
    const CLASSES: [(&str, u64); 9] = [
        ("PCI bridge", 0x06_0400),
        ("Non-Volatile memory controller", 0x01_0802),
        ("Serial Attached SCSI controller", 0x01_0700),
        ("SATA controller", 0x01_0601),
        ("RAID bus controller", 0x01_0400),
        ("SCSI storage controller", 0x01_0000),
        ("Ethernet controller", 0x02_0000),
        ("Infiniband controller", 0x02_0700),
        ("Network controller", 0x02_8000),
    ];
    CLASSES.iter().find(|(name, _)| words.starts_with(name)).map_or(0, |(_, class)| *class)
}

pub fn chain(path: &str) -> Vec<String> {
    path.split('/').filter(|part| is_address(part)).map(str::to_owned).collect()
}

/// Whether this is `0000:05:00.0`.
pub fn is_address(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '.']).collect();
    let is_hex = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_hexdigit());
    parts.len() == 4 && parts[0].len() >= 4 && parts[1].len() == 2 && parts.iter().all(is_hex)
}

/// What `lspci -vv -D` says, by address.
fn spoken(text: &str) -> BTreeMap<String, PciDevice> {
    let mut devices: BTreeMap<String, PciDevice> = BTreeMap::new();
    let mut address = String::new();
    for line in text.lines() {
        if !line.starts_with(char::is_whitespace) {
            let (head, rest) = line.split_once(' ').unwrap_or((line, ""));
            address = if is_address(head) { head.to_owned() } else { String::new() };
            // Without -D the domain is left out.
            if address.is_empty() && is_address(&format!("0000:{head}")) {
                address = format!("0000:{head}");
            }
            // "Class: Vendor Device".
            let (class, name) = rest.split_once(": ").unwrap_or(("", rest));
            let device = devices.entry(address.clone()).or_default();
            (device.class, device.name) = (class_of(class), Some(name.trim().to_owned()));
            device.address.clone_from(&address);
            continue;
        }
        let (Some(device), line) = (devices.get_mut(&address), line.trim_start()) else { continue };
        if line.starts_with("MaxPayload ") && !line.contains("PhantFunc") {
            let bytes = line.split_whitespace().nth(1).and_then(|it| it.parse().ok());
            // What the standard has.
            device.payload_bytes = bytes.filter(|bytes| (128..=4_096).contains(bytes));
        } else if let Some(rest) = line.strip_prefix("NUMA node:") {
            device.node = rest.trim().parse().ok();
        } else if let Some(rest) = line.strip_prefix("LnkSta:") {
            device.negotiated = spoken_link(rest);
        } else if let Some(rest) = line.strip_prefix("LnkCap:") {
            device.capable = spoken_link(rest);
        }
    }
    devices.remove("");
    devices
}

/// `Speed 8GT/s (downgraded), Width x4 (ok)`.
fn spoken_link(text: &str) -> Option<PcieLink> {
    let after = |word: &str| {
        let (_, rest) = text.split_once(word)?;
        rest.trim_start().split([' ', ',']).next()
    };
    PcieLink::parse(after("Speed")?, after("Width")?)
}
