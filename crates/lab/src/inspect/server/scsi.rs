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

#[cfg(test)]
mod tests {
    use super::{rows, sentence};

    #[test]
    fn disks_are_counted_by_host_and_a_transcript_is_no_list() {
        let text = "/dev/sg0  0 0 0 0  0  /dev/sda  TOSHIBA   MG07SCA14TA       0101\n\
                    /dev/sg1  0 0 1 0  0  /dev/sdb  TOSHIBA   MG07SCA14TA       0101\n\
                    /dev/sg2  1 0 8 0  0  /dev/sdi  TOSHIBA   MG07SCA14TA       0102\n\
                    /dev/sg3  1 0 9 0  13  NEWISYS   NDS-4602-CS       0112\n";
        let said = sentence(&rows(text)).unwrap();
        assert_eq!(
            said,
            "sg_map: 3 disks, 2 on host 0, 1 on host 1: not balanced; \
             2 x TOSHIBA MG07SCA14TA 0101, 1 x TOSHIBA MG07SCA14TA 0102."
        );
        assert!(rows("# sg_senddiag /dev/sg30  --pf --raw=04,00,00,01,53\n").is_empty());
        assert!(rows("/dev/sg30  NEWISYS   NDS-4602-CS       0112\n").is_empty());
        assert_eq!(sentence(&[]), None);
    }
}
