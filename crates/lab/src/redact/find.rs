//! Which words of a capture are identifiers: by the field or column they stand in, or by their
//! shape.

use super::fields;
use super::{hosts, shapes};
use crate::source::Capture;
use crate::source::tree::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// One device, by its vendor.
    Serial,
    Wwn,
    /// Anything, by chance.
    Uuid,
    Mac,
    Ipv4,
    Ipv6,
    /// A host, or a person on it.
    Host,
    /// A domain of hosts.
    Domain,
    /// A qualified name of NVMe or iSCSI.
    Qualified,
}

impl Kind {
    /// In the order of the kinds.
    pub fn plural(self) -> &'static str {
        const NAMES: &str = "serial numbers|WWNs|UUIDs|MAC addresses|IPv4 addresses|IPv6 addresses|\
            host names|domains|qualified names";
        NAMES.split('|').nth(self as usize).unwrap_or_default()
    }
}

#[derive(Debug, Default)]
pub struct Found {
    /// Of hexadecimal digits: the digits alone, in lower case.
    pub hex: BTreeMap<String, Kind>,
    pub v4: BTreeSet<Ipv4Addr>,
    pub v6: BTreeSet<Ipv6Addr>,
    /// The others, as they are written.
    pub texts: BTreeMap<String, Kind>,
}

impl Found {
    pub fn text(&mut self, text: &str, kind: Kind) {
        self.texts.entry(text.to_owned()).or_insert(kind);
    }

    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for kind in self.hex.values().chain(self.texts.values()) {
            *counts.entry(kind.plural()).or_insert(0) += 1;
        }
        let addresses = [(Kind::Ipv4, self.v4.len()), (Kind::Ipv6, self.v6.len())];
        for (kind, count) in addresses.into_iter().filter(|(_, count)| *count > 0) {
            counts.insert(kind.plural(), count);
        }
        counts
    }
}

/// Names of files that hold a serial number.
const SERIAL_FILES: [&str; 6] =
    ["serial", "wwid", "product_serial", "board_serial", "chassis_serial", "enclosure_identifier"];

pub fn identifiers(capture: &Capture) -> Found {
    let mut found = Found::default();
    for (path, entry) in capture.tree.iter() {
        by_shape(path, &mut found);
        let (Entry::Text(text) | Entry::Link(text) | Entry::Unreadable(text)) = entry else {
            continue;
        };
        by_shape(text, &mut found);
        text.lines().for_each(|line| fields::line(line, &mut found));
        let file = path.rsplit('/').next().unwrap_or_default();
        if SERIAL_FILES.contains(&file) {
            fields::serial(text, &mut found);
        }
        if ["hostname", "nodename", "domainname"].contains(&file) {
            hosts::named(text, &mut found);
        }
    }
    for (name, run) in &capture.runs {
        by_shape(name, &mut found);
        run.argv.iter().for_each(|word| by_shape(word, &mut found));
        for text in [&run.stdout, &run.stderr] {
            by_shape(text, &mut found);
            text.lines().for_each(|line| fields::line(line, &mut found));
            fields::tables(text, &mut found);
            // A document, or one on each line, as a run writes them down.
            let documents = std::iter::once(text.as_str()).chain(text.lines());
            let documents = documents.filter(|text| text.trim_start().starts_with('{'));
            documents.filter_map(|text| serde_json::from_str(text).ok()).for_each(|value| {
                fields::json(&value, &mut found);
            });
        }
    }
    found
}

/// Words that are identifiers by their shape.
fn by_shape(text: &str, found: &mut Found) {
    shapes::digits_of(text, found);
    shapes::addresses(text, found);
    hosts::find(text, found);
    fields::device_links(text, found);
}
