//! The same load by two load generators, side by side.
//!
//! What must stay true: a load that only one of them made has no ratio.

use super::sections::Section;
use crate::plan::generators::{Pair, pairs};
use crate::record::Record;
use crate::units;

/// The table.
pub fn section(records: &[Record]) -> Section {
    let measured = records.iter().filter_map(|record| match record {
        Record::Measurement(it) => Some(it.as_ref()),
        _ => None,
    });
    let row = |pair: &Pair| {
        let rate = |value: f64| units::rate(value, pair.unit);
        vec![
            pair.target.clone(),
            pair.engine.clone(),
            format!("{}, {}", pair.told, pair.condition),
            pair.fio.map_or_else(|| "no usable figure".to_owned(), rate),
            rate(pair.bdevperf),
            pair.ratio().map_or_else(String::new, |ratio| format!("\u{d7}{ratio:.2}")),
        ]
    };
    Section {
        word: "generators",
        title: "Do two load generators say the same?",
        head: vec!["target", "engine", "load", "fio", "bdevperf", "bdevperf over fio"],
        rows: pairs(measured).iter().map(row).collect(),
        notes: vec![
            "bdevperf polls in SPDK's own process: it has no system calls and no interrupts to pay \
             for, takes whole cores, and prints means only."
                .to_owned(),
        ],
    }
}
