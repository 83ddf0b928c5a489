//! Memory modules as the firmware describes them: `dmidecode -t memory`.
//!
//! What must stay true: a slot whose name does not tell its socket and channel stays without; it is
//! not guessed.

use crate::metrics::bandwidth::{Rate, ddr};
use crate::source::Source;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// One slot.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Slot {
    /// What the board calls it: `P1-DIMMA1`.
    pub locator: String,
    /// Its socket, counted from 0 in the order of the board's names.
    pub socket: Option<u64>,
    /// Its channel: `A`, `2`.
    pub channel: Option<String>,
    /// Bytes of the module; 0 if the slot is empty.
    pub size_bytes: u64,
    /// `DDR4`.
    pub kind: String,
    /// What the module is made for, mega-transfers a second.
    pub rated: Option<u64>,
    /// What it is clocked at, mega-transfers a second.
    pub configured: Option<u64>,
}

/// All slots.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Memory {
    /// In the firmware's order.
    pub slots: Vec<Slot>,
    /// `Multi-bit ECC`, `None`.
    pub error_correction: Option<String>,
}

/// The memory of one socket.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Bank {
    /// Channels that the board has here.
    pub channels: u64,
    /// Channels with at least one module.
    pub populated: u64,
    /// Modules.
    pub modules: u64,
    /// The slowest configured speed, mega-transfers a second.
    pub configured: Option<u64>,
    /// `DDR4`.
    pub kind: String,
}

impl Bank {
    /// What the populated channels carry at their configured speed.
    pub fn rate(&self) -> Option<Rate> {
        Some(ddr(self.configured?, self.populated)).filter(|rate| rate.0 > 0)
    }

    /// What all channels would carry.
    pub fn full_rate(&self) -> Option<Rate> {
        Some(ddr(self.configured?, self.channels))
    }
}

impl Memory {
    /// By socket. None if any slot's place is unknown: then no sum is right.
    pub fn banks(&self) -> Option<BTreeMap<u64, Bank>> {
        let mut all: BTreeMap<u64, (BTreeSet<&str>, BTreeSet<&str>, Bank)> = BTreeMap::new();
        for slot in &self.slots {
            let (channels, used, bank) = all.entry(slot.socket?).or_default();
            let channel = slot.channel.as_deref()?;
            channels.insert(channel);
            if slot.size_bytes > 0 {
                used.insert(channel);
                bank.modules += 1;
                bank.kind.clone_from(&slot.kind);
                let speed = slot.configured.or(slot.rated);
                bank.configured = [bank.configured, speed].into_iter().flatten().min();
            }
        }
        let finish =
            |(socket, (channels, used, bank)): (u64, (BTreeSet<&str>, BTreeSet<&str>, Bank))| {
                let (channels, populated) = (count(&channels), count(&used));
                (socket, Bank { channels, populated, ..bank })
            };
        Some(all.into_iter().map(finish).collect())
            .filter(|banks: &BTreeMap<u64, Bank>| !banks.is_empty())
    }

    /// Modules that are there.
    pub fn modules(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| slot.size_bytes > 0)
    }
}

fn count(set: &BTreeSet<&str>) -> u64 {
    u64::try_from(set.len()).unwrap_or(0)
}

/// Ask the firmware's tables. None if there are none or they may not be read.
pub fn read(source: &Source, socket_count: usize) -> Option<Memory> {
    let text = source.output("dmidecode-memory", &["dmidecode", "-t", "memory"])?;
    parse(&text, socket_count)
}

/// Out of what `dmidecode -t memory` printed.
pub fn parse(text: &str, socket_count: usize) -> Option<Memory> {
    let mut memory = Memory::default();
    let mut places = Vec::new();
    // A block begins with "Handle 0x..." and the next line names its kind.
    for block in text.split("\nHandle ") {
        let kind = block.lines().nth(1).unwrap_or_default().trim();
        let value = |name: &str| super::cpu::field(block, name);
        match kind {
            "Physical Memory Array" => memory.error_correction = value("Error Correction Type"),
            "Memory Device" => {
                let slot = slot(&value);
                places.push(place(&value("Bank Locator").unwrap_or_default(), &slot.locator));
                memory.slots.push(slot);
            }
            _ => {}
        }
    }
    let named: BTreeSet<u64> = places.iter().filter_map(|place| place.0).collect();
    for (slot, (socket, channel)) in memory.slots.iter_mut().zip(places) {
        // Boards count sockets from 0 or from 1: take their order.
        let order = socket.and_then(|socket| named.iter().position(|it| *it == socket));
        let only = (named.is_empty() && socket_count <= 1).then_some(0);
        slot.socket = order.and_then(|order| u64::try_from(order).ok()).or(only);
        slot.channel = channel;
    }
    (!memory.slots.is_empty()).then_some(memory)
}

fn slot(value: &impl Fn(&str) -> Option<String>) -> Slot {
    let speed = |names: &[&str]| {
        let text = names.iter().find_map(|name| value(name))?;
        text.split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()
            .filter(|rate| (100..50_000).contains(rate))
    };
    Slot {
        locator: value("Locator").unwrap_or_default(),
        socket: None,
        channel: None,
        size_bytes: value("Size").and_then(|text| size(&text)).unwrap_or(0),
        kind: value("Type").unwrap_or_default(),
        rated: speed(&["Speed"]),
        // dmidecode before 3.2 says clock.
        configured: speed(&["Configured Memory Speed", "Configured Clock Speed"]),
    }
}

fn size(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ')?;
    let shift = match unit {
        "kB" => 10,
        "MB" => 20,
        "GB" => 30,
        "TB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Socket and channel out of a board's names for a slot: `P1-DIMMA1`, `CPU1_DIMM_A1`,
/// `P0_Node0_Channel2_Dimm0`, `P0 CHANNEL A`, `ChannelA-DIMM0`.
fn place(bank: &str, locator: &str) -> (Option<u64>, Option<String>) {
    let (banks, locators) = (tokens(bank), tokens(locator));
    let socket = socket(&banks).or_else(|| socket(&locators));
    (socket, channel(&banks).or_else(|| channel(&locators)))
}

fn tokens(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut kind = None;
    for c in text.to_ascii_uppercase().chars() {
        let this = (c.is_ascii_alphabetic(), c.is_ascii_digit());
        if this == (false, false) {
            kind = None;
            continue;
        }
        match found.last_mut() {
            Some(last) if kind == Some(this) => last.push(c),
            _ => found.push(c.to_string()),
        }
        kind = Some(this);
    }
    found
}

fn socket(tokens: &[String]) -> Option<u64> {
    let names = |word: &str| ["P", "CPU", "PROC", "SOCKET", "NODE"].contains(&word);
    tokens.windows(2).find(|pair| names(&pair[0]))?[1].parse().ok()
}

fn channel(tokens: &[String]) -> Option<String> {
    for (at, token) in tokens.iter().enumerate() {
        if let Some(rest) = token.strip_prefix("CHANNEL") {
            return if rest.is_empty() { tokens.get(at + 1).cloned() } else { letter(rest) };
        }
    }
    for (at, token) in tokens.iter().enumerate() {
        let Some(rest) = token.strip_prefix("DIMM") else { continue };
        return if rest.is_empty() { letter(tokens.get(at + 1)?) } else { letter(rest) };
    }
    None
}

fn letter(text: &str) -> Option<String> {
    let is_letter = text.len() == 1 && text.chars().all(|c| c.is_ascii_alphabetic());
    is_letter.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{place, size};

    #[test]
    fn boards_name_their_slots_in_many_ways() {
        let found = |bank, locator| {
            let (socket, channel) = place(bank, locator);
            (socket, channel.unwrap_or_default())
        };
        assert_eq!(found("P0_Node0_Channel0_Dimm0", "P1-DIMMA1"), (Some(0), "0".into()));
        assert_eq!(found("", "P2-DIMMF1"), (Some(2), "F".into()));
        assert_eq!(found("NODE 1", "CPU1_DIMM_A1"), (Some(1), "A".into()));
        assert_eq!(found("P0 CHANNEL A", "DIMM 0"), (Some(0), "A".into()));
        assert_eq!(found("BANK 0", "ChannelA-DIMM0"), (None, "A".into()));
        assert_eq!(found("NODE 2 CHANNEL 1 DIMM 0", "x"), (Some(2), "1".into()));
    }

    #[test]
    fn names_that_do_not_tell_the_channel_give_none() {
        // These count slots, and which channel a slot is on stands in the board's manual only.
        assert_eq!(place("Not Specified", "A1").1, None);
        assert_eq!(place("", "PROC 1 DIMM 3"), (Some(1), None));
    }

    #[test]
    fn sizes_have_units_of_1024() {
        assert_eq!(size("16 GB"), Some(16 << 30));
        assert_eq!(size("16384 MB"), Some(16 << 30));
        assert_eq!(size("No Module Installed"), None);
    }
}
