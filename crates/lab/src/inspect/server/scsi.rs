//! Drives as `sg_map -i -x` lists them: all that there is, if somebody sent nothing else.
//!
//! What must stay true: only lines with a device, its four numbers and its type count; a transcript
//! that names a device is no list.

use itertools::Itertools;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Row {
    pub host: u64,
    pub device: String,
    pub model: String,
}

/// Disks in `text`: `/dev/sg0  0 0 0 0  0  /dev/sda  VENDOR  MODEL  FIRMWARE`.
pub fn rows(text: &str) -> Vec<Row> {
    text.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<Row> {
    let mut words = line.split_whitespace();
    words.next().filter(|word| word.starts_with("/dev/sg"))?;
    let numbers: Option<Vec<u64>> = words.by_ref().take(5).map(|it| it.parse().ok()).collect();
    let numbers = numbers.filter(|it| it.len() == 5)?;
    let device = words.next().filter(|word| word.starts_with("/dev/sd"))?;
    // Type 0 is a disk.
    let model = words.join(" ");
    (numbers[4] == 0).then(|| Row { host: numbers[0], device: device.to_owned(), model })
}

/// What the list shows, in a sentence; none if it is empty.
pub fn sentence(rows: &[Row]) -> Option<String> {
    let hosts: BTreeMap<u64, usize> =
        rows.iter().map(|row| row.host).counts().into_iter().collect();
    let models: BTreeMap<&String, usize> =
        rows.iter().map(|row| &row.model).counts().into_iter().collect();
    let uneven = if hosts.values().all_equal() { "" } else { ": not balanced" };
    let told = hosts.iter().map(|(host, count)| format!("{count} on host {host}")).join(", ");
    let of = models.iter().map(|(model, count)| format!("{count} x {model}")).join(", ");
    (!rows.is_empty()).then(|| format!("sg_map: {} disks, {told}{uneven}; {of}.", rows.len()))
}
