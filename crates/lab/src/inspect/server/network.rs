//! Network interfaces: what each carries, and what it has counted as lost.
//!
//! What must stay true: a counter that was not read is absent, not zero. Not here: whether any of
//! it is good.

use super::pci::{PciDevice, chain};
use crate::metrics::bandwidth::Rate;
use crate::source::Source;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Network {
    pub name: String,
    /// What the link carries; None if it is down or does not say.
    pub rate: Option<Rate>,
    /// Errors and drops since it was made, over all of its counters.
    pub troubles: Option<u64>,
}

/// In which files of `statistics` errors and drops are counted.
const TROUBLES: [&str; 4] = ["rx_errors", "tx_errors", "rx_dropped", "tx_dropped"];

pub fn read(source: &Source, pci: &BTreeMap<String, PciDevice>) -> Vec<Network> {
    let is_real = |name: &String| {
        let link = source.link(&format!("/sys/class/net/{name}")).unwrap_or_default();
        chain(&link).pop().is_some_and(|address| pci.contains_key(&address))
    };
    let names = source.names("/sys/class/net").into_iter().filter(is_real);
    names.map(|name| one(source, name)).collect()
}

fn one(source: &Source, name: String) -> Network {
    let number = |file: &str| source.number(&format!("/sys/class/net/{name}/{file}"));
    let rate = number("speed").filter(|mega_bits| *mega_bits > 0);
    let counts = TROUBLES.iter().filter_map(|file| number(&format!("statistics/{file}")));
    Network {
        rate: rate.map(|mega_bits| Rate(Rate::mega(mega_bits).0 / 8)),
        troubles: counts.reduce(u64::saturating_add),
        name,
    }
}
