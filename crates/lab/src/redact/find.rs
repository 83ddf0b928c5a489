//! Which words of a capture are identifiers: by the field they stand in, or by their shape.

use crate::source::Capture;
use crate::source::tree::Entry;
use std::collections::BTreeMap;

/// What an identifier names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// One device, by its vendor.
    Serial,
    /// A port or device of a fabric.
    Wwn,
    /// Anything, by chance.
    Uuid,
    /// A network card.
    Mac,
    /// An address of version 4.
    Ipv4,
    /// An address of version 6.
    Ipv6,
    /// A host.
    Host,
}

impl Kind {
    /// For counting them.
    pub fn plural(self) -> &'static str {
        match self {
            Kind::Serial => "serial numbers",
            Kind::Wwn => "WWNs",
            Kind::Uuid => "UUIDs",
            Kind::Mac => "MAC addresses",
            Kind::Ipv4 => "IPv4 addresses",
            Kind::Ipv6 => "IPv6 addresses",
            Kind::Host => "host names",
        }
    }
}

/// Fields of lines `NAME: value` that hold a serial number.
const SERIAL_FIELDS: [&str; 4] =
    ["Serial Number", "Serial number", "Asset Tag", "Device Serial Number"];

/// Keys of JSON whose text is a serial number.
const SERIAL_KEYS: [&str; 9] =
    ["serial_number", "serial", "sn", "subnqn", "nqn", "eui64", "nguid", "logical_unit_id", "wwid"];

/// Names of files that hold one.
const SERIAL_FILES: [&str; 6] =
    ["serial", "wwid", "product_serial", "board_serial", "chassis_serial", "enclosure_identifier"];

/// What vendors write where a serial number is missing.
const BLANKS: [&str; 9] = [
    "none",
    "unknown",
    "not specified",
    "n/a",
    "no dimm",
    "not available",
    "default string",
    "to be filled by o.e.m.",
    "no asset tag",
];

/// Every identifier of a capture.
pub fn identifiers(capture: &Capture) -> BTreeMap<String, Kind> {
    let mut found = BTreeMap::new();
    for (path, entry) in capture.tree.iter() {
        shapes(path, &mut found);
        let (Entry::Text(text) | Entry::Link(text) | Entry::Unreadable(text)) = entry else {
            continue;
        };
        shapes(text, &mut found);
        let file = path.rsplit('/').next().unwrap_or_default();
        if SERIAL_FILES.contains(&file) {
            serial(text, &mut found);
        }
        if ["hostname", "nodename"].contains(&file) {
            host(text, &mut found);
        }
    }
    for (name, run) in &capture.runs {
        shapes(name, &mut found);
        run.argv.iter().for_each(|word| shapes(word, &mut found));
        for text in [&run.stdout, &run.stderr] {
            shapes(text, &mut found);
            text.lines().for_each(|line| field(line, &mut found));
            if let Ok(value) = serde_json::from_str(text) {
                json(&value, &mut found);
            }
        }
    }
    found
}

fn serial(text: &str, found: &mut BTreeMap<String, Kind>) {
    let text = text.trim();
    let is_blank = BLANKS.contains(&text.to_ascii_lowercase().as_str());
    let is_filling = text.chars().all(|c| matches!(c, '0' | 'F' | 'f' | '-' | 'x' | ' ' | '.'));
    // Shorter ones are counts, not identifiers: replacing `2` everywhere would destroy every fact.
    let is_short = text.len() < 4 || (text.len() < 6 && text.chars().all(|c| c.is_ascii_digit()));
    if !is_blank && !is_filling && !is_short {
        found.entry(text.to_owned()).or_insert(Kind::Serial);
    }
}

fn host(text: &str, found: &mut BTreeMap<String, Kind>) {
    for name in [text, text.split('.').next().unwrap_or_default()] {
        if name.len() > 2 && !["localhost", "(none)"].contains(&name) {
            found.insert(name.to_owned(), Kind::Host);
        }
    }
}

fn field(line: &str, found: &mut BTreeMap<String, Kind>) {
    let line = line.trim_start();
    for name in SERIAL_FIELDS {
        // A capability of lspci has it within the line and without a colon.
        let rest = line.split_once(name).map(|(_, rest)| rest.trim_start_matches([':', ' ', '\t']));
        if let Some(rest) = rest {
            serial(rest, found);
        }
    }
}

fn json(value: &serde_json::Value, found: &mut BTreeMap<String, Kind>) {
    use serde_json::Value;
    match value {
        Value::Array(values) => values.iter().for_each(|value| json(value, found)),
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if SERIAL_KEYS.contains(&key.as_str()) => {
                        serial(text, found)
                    }
                    // smartctl prints a WWN in parts.
                    Value::Object(parts) if key == "wwn" => {
                        if let Some(id) = parts.get("id") {
                            serial(&id.to_string(), found);
                        }
                    }
                    value => json(value, found),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Words that are identifiers by their shape.
fn shapes(text: &str, found: &mut BTreeMap<String, Kind>) {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '.' | '-');
    for word in text.split(|c: char| !is_part(c)) {
        let word = word.trim_matches(['.', ':', '-']);
        if let Some(kind) = shape(word) {
            found.insert(word.to_owned(), kind);
            continue;
        }
        for part in word.split(['.', ':', '-']) {
            let part = part.strip_prefix("0x").unwrap_or(part);
            if is_wwn(part) {
                found.insert(part.to_owned(), Kind::Wwn);
            }
        }
    }
}

fn shape(word: &str) -> Option<Kind> {
    let parts = |sign: char| word.split(sign).collect::<Vec<_>>();
    let is_hex = |part: &&str| part.chars().all(|c| c.is_ascii_hexdigit());
    let has = |parts: &[&str], lengths: &[usize]| {
        parts.iter().map(|part| part.len()).eq(lengths.iter().copied()) && parts.iter().all(is_hex)
    };
    let (colons, dashes) = (parts(':'), parts('-'));
    if has(&colons, &[2; 6]) {
        return Some(Kind::Mac);
    }
    if has(&dashes, &[8, 4, 4, 4, 12]) {
        return Some(Kind::Uuid);
    }
    if has(&dashes, &[2; 8]) || has(&colons, &[2; 8]) {
        return Some(Kind::Wwn);
    }
    if parts('.').len() == 4 && word.parse::<std::net::Ipv4Addr>().is_ok() {
        let is_nobody = word.starts_with("127.") || word.starts_with("0.");
        return (!is_nobody).then_some(Kind::Ipv4);
    }
    let is_long = word.len() > 5 && word.contains(':');
    (is_long && word.parse::<std::net::Ipv6Addr>().is_ok()).then_some(Kind::Ipv6)
}

/// Sixteen hexadecimal digits that begin as names of ports, devices and namespaces do, or thirty-two.
fn is_wwn(part: &str) -> bool {
    let starts = part.starts_with(['5', '3', '2', '1', '6', '0']) || part.starts_with("eui");
    let hex = part.strip_prefix("eui").unwrap_or(part);
    let is_hex = hex.chars().all(|c| c.is_ascii_hexdigit());
    let is_zero = hex.chars().all(|c| c == '0');
    let has_letter_or_is_naa =
        part.starts_with('5') || hex.chars().any(|c| c.is_ascii_alphabetic());
    (hex.len() == 16 || hex.len() == 32) && is_hex && !is_zero && starts && has_letter_or_is_naa
}
