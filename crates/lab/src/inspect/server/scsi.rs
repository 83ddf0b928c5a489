//! Drives as `sg_map -i -x` lists them: all that there is, if somebody sent nothing else.
//!
//! What must stay true: only lines with a device, its four numbers and its type count; a transcript
//! that names a device is no list.

use serde::Serialize;
use std::collections::BTreeMap;

/// One disk of the list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Row {
    /// SCSI host: a controller, or a part of one.
    pub host: u64,
    /// `/dev/sda`.
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
    let model = words.collect::<Vec<_>>().join(" ");
    (numbers[4] == 0).then(|| Row { host: numbers[0], device: device.to_owned(), model })
}

/// What the list shows, in a sentence; none if it is empty.
pub fn sentence(rows: &[Row]) -> Option<String> {
    let (mut hosts, mut models) = (BTreeMap::new(), BTreeMap::new());
    for row in rows {
        *hosts.entry(row.host).or_insert(0_u64) += 1;
        *models.entry(row.model.as_str()).or_insert(0_u64) += 1;
    }
    let (least, most) = (hosts.values().min()?, hosts.values().max()?);
    let uneven = if least == most { "" } else { ": not balanced" };
    let told: Vec<String> =
        hosts.iter().map(|(host, count)| format!("{count} on host {host}")).collect();
    let of: Vec<String> =
        models.iter().map(|(model, count)| format!("{count} x {model}")).collect();
    Some(format!("sg_map: {} disks, {}{uneven}; {}.", rows.len(), told.join(", "), of.join(", ")))
}
