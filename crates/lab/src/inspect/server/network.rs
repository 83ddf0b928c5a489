//! Network interfaces and what the network's protocols count: sysfs and procfs first, `ethtool`
//! beside them.
//!
//! What must stay true: a counter that was not read is absent, not zero; a mask that was not read
//! is not an empty mask. Not here: whether any of it is good.

use super::pci::{PciDevice, chain};
use crate::metrics::bandwidth::Rate;
use crate::source::Source;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// One network interface on a PCI device.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Network {
    /// `eth0`.
    pub name: String,
    /// PCI address.
    pub address: String,
    /// NUMA node of that device.
    pub node: Option<u64>,
    /// What the link carries; None if it is down or does not say.
    pub rate: Option<Rate>,
    /// The fastest mode that interface and port can, as `ethtool` says.
    pub capable: Option<Rate>,
    /// Largest packet, bytes.
    pub mtu: Option<u64>,
    /// Receive queues.
    pub receive_queues: u64,
    /// Transmit queues.
    pub transmit_queues: u64,
    /// RPS: CPUs that take over the receiving of each queue; an empty set is off.
    pub receive_cpus: Option<Vec<BTreeSet<u64>>>,
    /// XPS: CPUs that send by each queue; an empty set is off.
    pub transmit_cpus: Option<Vec<BTreeSet<u64>>>,
    /// RSS: queues among which the hardware spreads what it receives, as `ethtool -x` says.
    pub hashed_queues: Option<u64>,
    /// Errors and drops since it was made, by name; those of `ethtool -S` with that in front.
    pub troubles: BTreeMap<String, u64>,
}

/// What protocols and the CPUs' receive work have counted: `Tcp.RetransSegs`, `softnet.dropped`.
pub type Counts = BTreeMap<String, u64>;

/// In which files of `statistics` errors and drops are counted.
const TROUBLES: [&str; 10] = [
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
    "rx_crc_errors",
    "rx_missed_errors",
    "rx_over_errors",
    "rx_fifo_errors",
    "tx_fifo_errors",
    "tx_carrier_errors",
];

/// Words in a driver's own counters that mean that something was lost or wrong.
const TROUBLE_WORDS: [&str; 9] =
    ["error", "drop", "discard", "crc", "miss", "timeout", "no_buf", "out_of_buffer", "fifo"];

/// Network interfaces that sit on PCI devices.
pub fn read(source: &Source, pci: &BTreeMap<String, PciDevice>) -> Vec<Network> {
    let mut networks = Vec::new();
    for name in source.names("/sys/class/net") {
        let folder = format!("/sys/class/net/{name}");
        let link = source.link(&folder).unwrap_or_default();
        let Some(device) = chain(&link).pop().and_then(|address| pci.get(&address)) else {
            continue;
        };
        networks.push(one(source, name, device));
    }
    networks
}

fn one(source: &Source, name: String, device: &PciDevice) -> Network {
    let folder = format!("/sys/class/net/{name}");
    let number = |file: &str| source.number(&format!("{folder}/{file}"));
    let bits = |mega_bits: u64| Rate(Rate::mega(mega_bits).0 / 8);
    let queues = source.names(&format!("{folder}/queues"));
    let queues = |start: &str| -> Vec<&String> {
        queues.iter().filter(|queue| queue.starts_with(start)).collect()
    };
    let masks = |start: &str, file: &str| -> Option<Vec<BTreeSet<u64>>> {
        let queues = queues(start);
        let text = |queue: &&String| source.text(&format!("{folder}/queues/{queue}/{file}"));
        queues.iter().map(|queue| Some(mask(&text(queue)?))).collect::<Option<Vec<_>>>()
    };
    let count = |start: &str| u64::try_from(queues(start).len()).unwrap_or(0);
    let mut troubles = BTreeMap::new();
    for file in TROUBLES {
        if let Some(count) = number(&format!("statistics/{file}")) {
            troubles.insert(file.to_owned(), count);
        }
    }
    let tool = |flag: &str, argv: &[&str]| source.output(&format!("ethtool{flag}-{name}"), argv);
    let own = tool("-S", &["ethtool", "-S", &name]).unwrap_or_default();
    troubles.extend(own_troubles(&own));
    let table = tool("-x", &["ethtool", "-x", &name]);
    let modes = tool("", &["ethtool", &name]);
    Network {
        address: device.address.clone(),
        node: device.node,
        rate: number("speed").filter(|mega_bits| *mega_bits > 0).map(bits),
        capable: modes.and_then(|text| fastest(&text)).map(bits),
        mtu: number("mtu"),
        receive_queues: count("rx-"),
        transmit_queues: count("tx-"),
        receive_cpus: masks("rx-", "rps_cpus").filter(|it| !it.is_empty()),
        transmit_cpus: masks("tx-", "xps_cpus").filter(|it| !it.is_empty()),
        hashed_queues: table.and_then(|text| hashed(&text)),
        troubles,
        name,
    }
}

/// CPUs of a mask as the kernel prints it: words of 32 bits, the highest first:
/// `00000001,0000ff00`.
pub fn mask(text: &str) -> BTreeSet<u64> {
    let mut cpus = BTreeSet::new();
    for (word, base) in text.trim().rsplit(',').zip((0..8_192_u64).step_by(32)) {
        let bits = u32::from_str_radix(word.trim(), 16).unwrap_or(0);
        cpus.extend((0..32_u64).filter(|bit| bits >> bit & 1 == 1).map(|bit| base + bit));
    }
    cpus
}

/// `     rx_out_of_buffer: 12` of `ethtool -S`: those that mean trouble.
fn own_troubles(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (name, count) = line.split_once(':')?;
        let name = name.trim().to_ascii_lowercase();
        let is_trouble = TROUBLE_WORDS.iter().any(|word| name.contains(word));
        Some((format!("ethtool {name}"), count.trim().parse().ok()?)).filter(|_| is_trouble)
    };
    text.lines().filter_map(line).collect()
}

/// How many queues stand in the table of `ethtool -x`: lines `    8:      0     1     2     3`.
fn hashed(text: &str) -> Option<u64> {
    let mut queues = BTreeSet::new();
    for line in text.lines() {
        let Some((at, list)) = line.split_once(':') else { continue };
        if at.trim().parse::<u64>().is_ok() {
            queues.extend(list.split_whitespace().filter_map(|word| word.parse::<u64>().ok()));
        }
    }
    u64::try_from(queues.len()).ok().filter(|count| *count > 0)
}

/// The fastest of the supported modes that `ethtool` lists, Mbit/s: `25000baseCR/Full`.
fn fastest(text: &str) -> Option<u64> {
    let from = text.find("Supported link modes:")?;
    let rest = &text[from..];
    let list = rest.find("Supported pause").map_or(rest, |to| &rest[..to]);
    let mode = |word: &str| word.split_once("base")?.0.parse::<u64>().ok();
    list.split_whitespace().filter_map(mode).max()
}

/// What the protocols count, and what receive work the CPUs had to drop or put off.
pub fn counts(source: &Source) -> Counts {
    let mut counts = Counts::new();
    for path in ["/proc/net/snmp", "/proc/net/netstat"] {
        counts.extend(protocols(&source.text(path).unwrap_or_default()));
    }
    let softnet = source.text("/proc/net/softnet_stat").unwrap_or_default();
    for (at, name) in [(1, "softnet.dropped"), (2, "softnet.squeezed")] {
        let column = |line: &str| u64::from_str_radix(line.split_whitespace().nth(at)?, 16).ok();
        let sum: Option<Vec<u64>> = softnet.lines().map(column).collect();
        if let Some(sum) = sum.filter(|it| !it.is_empty()) {
            counts.insert(name.to_owned(), sum.into_iter().fold(0, u64::saturating_add));
        }
    }
    counts
}

/// Pairs of lines, names and then values: `Tcp: InSegs OutSegs` and `Tcp: 10 20`.
fn protocols(text: &str) -> Counts {
    let lines: Vec<&str> = text.lines().collect();
    let mut counts = Counts::new();
    for pair in lines.chunks_exact(2) {
        let (Some((protocol, names)), Some((again, values))) =
            (pair[0].split_once(':'), pair[1].split_once(':'))
        else {
            continue;
        };
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            if let Some(value) = value.parse().ok().filter(|_| protocol == again) {
                counts.insert(format!("{protocol}.{name}"), value);
            }
        }
    }
    counts
}

/// How much each counter has grown since `before`, of those that both looks have. One that fell was
/// set back: what it shows has grown since then.
pub fn grown(now: &Counts, before: &Counts) -> Counts {
    let since = |(name, now): (&String, &u64)| {
        let before = before.get(name)?;
        Some((name.clone(), now.checked_sub(*before).unwrap_or(*now)))
    };
    now.iter().filter_map(since).collect()
}

/// CPUs that serve the interrupts of the device at `address`; None if they are not known.
pub fn interrupt_cpus(
    pci: &BTreeMap<String, PciDevice>,
    irqs: &BTreeMap<u64, BTreeSet<u64>>,
    address: &str,
) -> Option<BTreeSet<u64>> {
    let own = &pci.get(address)?.irqs;
    let cpus: BTreeSet<u64> =
        own.iter().filter_map(|irq| irqs.get(irq)).flatten().copied().collect();
    (!cpus.is_empty()).then_some(cpus)
}

/// CPUs as the kernel lists them, for a sentence.
pub fn listed(cpus: &BTreeSet<u64>) -> String {
    let list: Vec<String> = cpus.iter().take(4).map(u64::to_string).collect();
    let more = if cpus.len() > 4 { format!(" and {} more", cpus.len() - 4) } else { String::new() };
    format!("{}{more}", list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{Counts, fastest, grown, hashed, mask, own_troubles, protocols};

    #[test]
    fn masks_have_their_highest_word_first() {
        assert_eq!(mask("00000001,00000003").into_iter().collect::<Vec<_>>(), [0, 1, 32]);
        assert!(mask("0").is_empty() && mask("").is_empty() && mask("x,y").is_empty());
    }

    #[test]
    fn protocols_are_pairs_of_lines_of_the_same_name() {
        let text =
            "Tcp: InSegs OutSegs RetransSegs\nTcp: 10 20 3\nUdp: A\nIcmp: 1\nIp: Short\nIp: -1\n";
        let counts: Vec<(String, u64)> = protocols(text).into_iter().collect();
        let wanted = [("Tcp.InSegs", 10), ("Tcp.OutSegs", 20), ("Tcp.RetransSegs", 3)];
        assert_eq!(counts, wanted.map(|(name, count)| (name.to_owned(), count)));
    }

    #[test]
    fn counters_that_were_set_back_have_grown_by_what_they_show() {
        let counts = |pairs: &[(&str, u64)]| -> Counts {
            pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        let now = counts(&[("a", 5), ("b", 2), ("new", 9)]);
        assert_eq!(grown(&now, &counts(&[("a", 3), ("b", 7)])), counts(&[("a", 2), ("b", 2)]));
    }

    #[test]
    fn ethtool_tells_troubles_queues_and_modes() {
        let own =
            "NIC statistics:\n     rx_packets: 10\n     rx_out_of_buffer: 4\n     tx_timeout: 0\n";
        let troubles: Vec<(String, u64)> = own_troubles(own).into_iter().collect();
        assert_eq!(troubles.len(), 2);
        assert_eq!(troubles[0], ("ethtool rx_out_of_buffer".to_owned(), 4));
        let table = "RX flow hash indirection table for eth0 with 8 RX ring(s):\n    \
            0:      0     1     2     3\n    \
            8:      0     1     2     3\nRSS hash key:\n1a:2b:3c\n";
        assert_eq!(hashed(table), Some(4));
        let modes = "Settings for eth0:\n\tSupported link modes:   10000baseT/Full\n\
            \t                        25000baseCR/Full\n\t\
            Supported pause frame use: No\n\tAdvertised link modes:  100000baseCR4/Full\n";
        assert_eq!(fastest(modes), Some(25_000));
        assert_eq!((hashed(""), fastest("")), (None, None));
    }
}
