//! Memory modules as the firmware describes them: `dmidecode -t memory`.
//!
//! - boards: how boards name their slots
//!
//! What must stay true: a slot whose name does not tell its socket and channel stays without; it is
//! not guessed. Channels that no board has are a misread name, and nothing is said of them.

mod boards;

use crate::metrics::bandwidth::{Rate, ddr};
use crate::source::Source;
use itertools::Itertools;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Slot {
    pub locator: String,
    /// Its socket, counted from 0 in the order of the board's names.
    pub socket: Option<u64>,
    pub channel: Option<String>,
    /// Bytes of the module; 0 if the slot is empty.
    pub size_bytes: u64,
    pub kind: String,
    /// What the module is made for, mega-transfers a second.
    pub rated: Option<u64>,
    /// What it is clocked at, mega-transfers a second.
    pub configured: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Memory {
    pub slots: Vec<Slot>,
    /// `Multi-bit ECC`, `None`.
    pub error_correction: Option<String>,
    /// Sockets that have processors, as far as the machine says.
    pub socket_count: u64,
}

/// Channels that a processor has: one alone is a name that was misread.
const CHANNELS: [u64; 6] = [2, 3, 4, 6, 8, 12];
/// Slots of a channel at most.
const PER_CHANNEL_MAX: u64 = 3;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Bank {
    pub slots: u64,
    /// Channels that the board has here.
    pub channels: u64,
    pub populated: u64,
    pub modules: u64,
    /// The slowest configured speed, mega-transfers a second.
    pub configured: Option<u64>,
    pub kind: String,
}

impl Bank {
    pub fn rate(&self) -> Option<Rate> {
        Some(ddr(self.configured?, self.populated)).filter(|rate| rate.0 > 0)
    }

    /// What all channels would carry.
    pub fn full_rate(&self) -> Option<Rate> {
        Some(ddr(self.configured?, self.channels))
    }
}

impl Memory {
    /// By socket. None if any slot's place is unknown, or the places are those of no board: then no
    /// sum is right.
    pub fn banks(&self) -> Option<BTreeMap<u64, Bank>> {
        if self.doubt().is_some() { None } else { self.placed() }
    }

    /// Why the places of the slots are not believed, if they are not.
    pub fn doubt(&self) -> Option<String> {
        let unknown = self.slots.iter().find(|it| it.socket.is_none() || it.channel.is_none());
        if let Some(slot) = unknown {
            let name = &slot.locator;
            return Some(format!("the board's name '{name}' does not tell socket and channel"));
        }
        let banks = self.placed().unwrap_or_default();
        let (sockets, has) = (banks.len() as u64, self.socket_count);
        if has > 0 && sockets != has {
            return Some(format!("slots are named for {sockets} sockets, and there are {has}"));
        }
        banks.iter().find_map(|(socket, Bank { slots, channels, .. })| {
            let is_even = *channels > 0 && slots % channels == 0;
            let fits = is_even && slots / channels <= PER_CHANNEL_MAX;
            let noun = if *channels == 1 { "channel" } else { "channels" };
            (!(CHANNELS.contains(channels) && fits)).then(|| {
                format!("by their names the {slots} slots of socket {socket} are {channels} {noun}")
            })
        })
    }

    fn placed(&self) -> Option<BTreeMap<u64, Bank>> {
        let mut all: BTreeMap<u64, Vec<&Slot>> = BTreeMap::new();
        for slot in &self.slots {
            slot.channel.as_ref()?;
            all.entry(slot.socket?).or_default().push(slot);
        }
        let bank = |slots: Vec<&Slot>| {
            let channels = |of: &[&Slot]| of.iter().map(|it| &it.channel).unique().count() as u64;
            let modules: Vec<&Slot> =
                slots.iter().copied().filter(|it| it.size_bytes > 0).collect();
            Bank {
                slots: slots.len() as u64,
                channels: channels(&slots),
                populated: channels(&modules),
                modules: modules.len() as u64,
                configured: modules.iter().filter_map(|it| it.configured.or(it.rated)).min(),
                kind: modules.last().map_or(String::new(), |it| it.kind.clone()),
            }
        };
        let banks = all.into_iter().map(|(socket, slots)| (socket, bank(slots)));
        Some(banks.collect()).filter(|banks: &BTreeMap<u64, Bank>| !banks.is_empty())
    }

    pub fn modules(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| slot.size_bytes > 0)
    }
}

/// Ask the firmware's tables. None if there are none or they may not be read.
pub fn read(source: &Source, socket_count: usize) -> Option<Memory> {
    let text = source.output("dmidecode-memory", &["dmidecode", "-t", "memory"])?;
    parse(&text, socket_count)
}

pub fn parse(text: &str, socket_count: usize) -> Option<Memory> {
    let mut memory = Memory { socket_count: socket_count as u64, ..Memory::default() };
    let mut places = Vec::new();
    // A block begins with "Handle 0x..." and the next line names its kind.
    for block in text.split("\nHandle ") {
        let kind = block.lines().nth(1).unwrap_or_default().trim();
        let value = |name: &str| super::cpu::field(block, name);
        match kind {
            "Physical Memory Array" => memory.error_correction = value("Error Correction Type"),
            "Memory Device" => {
                let slot = slot(&value);
                // The firmware's own chip is no module.
                if slot.kind == "Flash" {
                    continue;
                }
                let bank = value("Bank Locator").unwrap_or_default();
                places.push(boards::place(&bank, &slot.locator));
                memory.slots.push(slot);
            }
            _ => {}
        }
    }
    let named: BTreeSet<u64> = places.iter().filter_map(|place| place.socket).collect();
    let of_kind = memory.modules().map(|slot| slot.kind.clone()).next().unwrap_or_default();
    for (slot, place) in memory.slots.iter_mut().zip(&places) {
        // Boards count sockets from 0 or from 1: take their order.
        let order = place.socket.and_then(|socket| named.iter().position(|it| *it == socket));
        let only = (named.is_empty() && socket_count <= 1).then_some(0);
        slot.socket = order.map(|order| order as u64).or(only);
        let alike = places.iter().filter(|it| it.socket == place.socket && it.number.is_some());
        let slots = alike.count() as u64;
        let is_interleaved = !slot.locator.starts_with("PROC");
        let by_number = || boards::numbered(place.number?, slots, &of_kind, is_interleaved);
        slot.channel = place.channel.clone().or_else(by_number);
    }
    (!memory.slots.is_empty()).then_some(memory)
}

fn slot(value: &impl Fn(&str) -> Option<String>) -> Slot {
    let speed = |names: &[&str]| {
        let text = names.iter().find_map(|name| value(name))?;
        let rate = text.split_whitespace().next()?.parse().ok()?;
        (100..50_000).contains(&rate).then_some(rate)
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
        "kB" | "KiB" => 10,
        "MB" | "MiB" => 20,
        "GB" | "GiB" => 30,
        "TB" | "TiB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::{Memory, parse};

    /// What dmidecode prints for slots of these names: (bank, locator, whether a module is in it).
    fn table(slots: &[(&str, &str, bool)]) -> String {
        let one = |(bank, locator, has): &(&str, &str, bool)| {
            let size = if *has { "32 GB" } else { "No Module Installed" };
            format!(
                "\nHandle 0x0011, DMI type 17, 84 bytes\nMemory Device\n\tSize: {size}\n\
                 \tLocator: {locator}\n\tBank Locator: {bank}\n\tType: DDR4\n\
                 \tSpeed: 2400 MT/s\n\tConfigured Memory Speed: 2133 MT/s\n"
            )
        };
        slots.iter().map(one).collect()
    }

    fn memory(sockets: usize, slots: &[(&str, &str, bool)]) -> Memory {
        parse(&table(slots), sockets).expect("slots")
    }

    /// The story's fault, one module a processor, on a board that names its slots otherwise; and
    /// two memory controllers, which have channels of their own.
    #[test]
    fn one_module_of_eight_channels_is_one_of_eight_whatever_the_board_calls_them() {
        let sockets = ["P0", "P1"].iter();
        let names: Vec<String> = sockets
            .flat_map(|socket| "ABCDEFGH".chars().map(move |it| format!("DIMM_{socket}_{it}0")))
            .collect();
        let slots: Vec<_> =
            names.iter().map(|name| ("BANK 0", name.as_str(), name.ends_with("A0"))).collect();
        let banks = memory(2, &slots).banks().expect("places");
        assert_eq!(banks.len(), 2);
        assert!(banks.values().all(|bank| (bank.channels, bank.populated) == (8, 1)), "{banks:?}");
        let name = |at: usize| format!("P0_Node{}_Channel{}_Dimm0", at / 3, at % 3);
        let slots: Vec<String> = (0..6).map(name).collect();
        let slots: Vec<_> = slots.iter().map(|bank| (bank.as_str(), "x", true)).collect();
        assert_eq!(memory(1, &slots).banks().expect("places")[&0].channels, 6);
    }

    #[test]
    fn channels_that_no_board_has_are_not_believed() {
        for (sockets, names, why) in [
            (1, "DIMM_P0_A0", "the 1 slots of socket 0 are 1 channel"),
            (1, "DIMM_A1 DIMM_A2 DIMM_B1", "the 3 slots of socket 0 are 2 channels"),
            (1, "DIMM_A1 DIMM_B1 DIMM_C1 DIMM_D1 DIMM_E1", "are 5 channels"),
            (2, "DIMM_P0_A0 DIMM_P0_B0", "for 1 sockets, and there are 2"),
        ] {
            let slots: Vec<_> = names.split(' ').map(|name| ("", name, true)).collect();
            let memory = memory(sockets, &slots);
            assert_eq!(memory.banks(), None, "{names}");
            assert!(memory.doubt().is_some_and(|it| it.ends_with(why)), "{:?}", memory.doubt());
        }
    }
}
