//! Identifiers by where they stand: after the name of a field, below the head of a column, at the
//! end of a device's link.
//!
//! What must stay true: what vendors write where a serial number is missing is none, nor is what is
//! too short to be one.

use super::find::{Found, Kind};
use super::hosts;
use crate::fio::value::is_among;
use regex::Regex;
use std::sync::LazyLock;

const NAMES: &str = "\
    serial serialnumber serialno serialnum sn unitserialnumber deviceserialnumber \
    productserial boardserial chassisserial idserial idserialshort idscsiserial assettag wwn \
    wwid idwwn idwwnwithextension luwwndeviceid guid nodeguid portguid systemimageguid \
    sysimageguid nguid eui64 ieeeeui64 subnqn hostnqn nqn logicalunitid hostid";

/// The same of names of hosts.
const HOST_NAMES: &str = "hostname nodename statichostname fqdn domainname systemdhostname";

/// What vendors write where a serial number is missing.
const BLANKS: &str = "|none|unknown|not specified|n/a|no dimm|not available|default string|\
    to be filled by o.e.m.|no asset tag|";

static LINK: LazyLock<Regex> = LazyLock::new(|| {
    let text = r"\b(?:ata|nvme|usb|scsi-S[A-Z0-9]*|virtio|mmc)-([A-Za-z0-9._-]+_[A-Za-z0-9._-]+)";
    hosts::expression(text)
});
static PART: LazyLock<Regex> = LazyLock::new(|| hosts::expression(r"(?:-part\d+|-\d:\d)$"));

fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

pub fn serial(text: &str, found: &mut Found) {
    let text = text.trim().trim_matches(['"', '\'']).trim();
    let is_blank = BLANKS.contains(&format!("|{}|", text.to_ascii_lowercase()));
    let is_filling =
        text.chars().all(|c| matches!(c, '0' | 'F' | 'f' | '-' | 'x' | ' ' | '.' | ':'));
    // Shorter ones are counts, not identifiers: replacing `2` everywhere would destroy every fact.
    let is_short = text.len() < 4 || (text.len() < 6 && text.chars().all(|c| c.is_ascii_digit()));
    // Words of a language are states, not identifiers.
    let is_word = text.chars().all(|c| !c.is_ascii_digit())
        && !(text.len() >= 6 && text.chars().all(|c| c.is_ascii_uppercase() || c == '-'));
    if is_blank || is_filling || is_short || is_word || text.len() > 100 || text.contains('\n') {
        return;
    }
    found.text(text, Kind::Serial);
    // A link to the device has the same without spaces.
    if text.contains(' ') {
        found.text(&text.replace(' ', "_"), Kind::Serial);
    }
}

/// Fields of a line: `name: value`, `name=value`, also several, also of JSON; and a capability of
/// lspci.
pub fn line(line: &str, found: &mut Found) {
    for (at, sign) in line.match_indices([':', '=']) {
        let value = value(&line[at + 1..], sign == "=");
        let before = line[..at].trim_end_matches([' ', '\t', '"', '\'']);
        if let Some(names) = named_before(before) {
            match names {
                Named::Serial => serial(value, found),
                Named::Host => hosts::named(value, found),
            }
        }
    }
    for name in ["Serial Number ", "Serial number "] {
        if let Some((_, rest)) = line.split_once(name) {
            serial(value(rest, true), found);
        }
    }
}

enum Named {
    Serial,
    Host,
}

/// What the last words before a sign name.
fn named_before(before: &str) -> Option<Named> {
    let is_edge =
        |c: char| !(c.is_ascii_alphanumeric() || matches!(c, ' ' | '_' | '-' | '/' | '.'));
    let name = before.rsplit(is_edge).next().unwrap_or_default();
    let words: Vec<&str> = name.split(' ').filter(|word| !word.is_empty()).collect();
    let last = words.len().saturating_sub(4)..words.len();
    last.map(|from| plain(&words[from..].concat())).find_map(|name| match name.as_str() {
        name if is_among(NAMES, name) || name.ends_with("serialnumber") => Some(Named::Serial),
        name if is_among(HOST_NAMES, name) => Some(Named::Host),
        _ => None,
    })
}

/// A value up to its end: a quote, a sign between fields, two spaces, or any space.
fn value(rest: &str, ends_at_space: bool) -> &str {
    let rest = rest.trim_start_matches([' ', '\t']);
    if let Some(quoted) = rest.strip_prefix(['"', '\'']) {
        return quoted.split(['"', '\'']).next().unwrap_or_default();
    }
    let end = rest.find([',', ';', '\t', '"', '}', ']']).unwrap_or(rest.len());
    let gap = rest.find(if ends_at_space { " " } else { "  " }).unwrap_or(end);
    &rest[..end.min(gap)]
}

/// Values of JSON by their keys.
pub fn json(value: &serde_json::Value, found: &mut Found) {
    use serde_json::Value;
    match value {
        Value::Array(values) => values.iter().for_each(|value| json(value, found)),
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = plain(key);
                let is_serial = is_among(NAMES, &key) || key.ends_with("serialnumber");
                match value {
                    Value::String(text) if is_serial => serial(text, found),
                    Value::String(text) if is_among(HOST_NAMES, &key) => {
                        hosts::named(text, found);
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

/// Serial numbers that stand below the head of their column.
pub fn tables(text: &str, found: &mut Found) {
    let mut columns = Columns::default();
    for line in text.lines() {
        if line.trim().is_empty() {
            columns = Columns::default();
            continue;
        }
        let here = Columns::of(line);
        if !here.is_empty() {
            columns = here;
            continue;
        }
        columns.cells(line).into_iter().for_each(|cell| serial(cell, found));
    }
}

/// The columns of a table that hold serial numbers.
#[derive(Default)]
struct Columns {
    /// The sign between cells, and which cells.
    numbered: Option<(char, Vec<usize>)>,
    /// Or from which column of letters to which.
    placed: Vec<(usize, usize)>,
}

impl Columns {
    /// Of a line that is the head of a table; empty if it is none.
    fn of(line: &str) -> Columns {
        let holds = |cell: &str| is_among(NAMES, &plain(cell));
        for sign in ['|', ',', ';', '\t'] {
            let cells = line.split(sign).enumerate().filter(|(_, cell)| holds(cell.trim()));
            let cells: Vec<usize> = cells.map(|(at, _)| at).collect();
            if !cells.is_empty() && line.contains(sign) {
                return Columns { numbered: Some((sign, cells)), placed: Vec::new() };
            }
        }
        let words = placed(line);
        if words.len() < 2 || line.contains([':', '=']) {
            return Columns::default();
        }
        let mut columns = Vec::new();
        for (at, (begin, word)) in words.iter().enumerate() {
            let end = begin + word.len();
            let next = words.get(at + 1).filter(|(next, _)| *next == end + 1);
            let both = next.map(|(_, next)| format!("{word}{next}"));
            if both.as_ref().is_some_and(|both| holds(both)) {
                columns.push((*begin, end + 1 + next.map_or(0, |(_, next)| next.len())));
            } else if holds(word) {
                columns.push((*begin, end));
            }
        }
        Columns { numbered: None, placed: columns }
    }

    fn is_empty(&self) -> bool {
        self.numbered.is_none() && self.placed.is_empty()
    }

    /// What a line has in these columns.
    fn cells<'a>(&self, line: &'a str) -> Vec<&'a str> {
        if let Some((sign, cells)) = &self.numbered {
            let own = line.split(*sign).enumerate().filter(|(at, _)| cells.contains(at));
            return own.map(|(_, cell)| cell.trim()).collect();
        }
        // Left or right of its column, a cell has letters below the head.
        let is_below = |(begin, word): &(usize, &str)| {
            self.placed.iter().any(|(from, to)| *begin < *to && begin + word.len() > *from)
        };
        placed(line).into_iter().filter(is_below).map(|(_, word)| word).collect()
    }
}

/// The words of a line, each with the byte where it begins.
fn placed(line: &str) -> Vec<(usize, &str)> {
    let words = line.split_whitespace();
    words.map(|word| (word.as_ptr().addr() - line.as_ptr().addr(), word)).collect()
}

/// Links to devices have the serial number last: `ata-MODEL_SERIAL-part1`.
pub fn device_links(text: &str, found: &mut Found) {
    for link in LINK.captures_iter(text) {
        let name = link.get(1).map_or("", |it| it.as_str());
        let name = PART.replace(name, "");
        let mut parts = name.rsplit('_');
        let last = parts.next().unwrap_or_default();
        // A namespace may follow.
        let is_namespace = last.len() <= 2 && last.bytes().all(|c| c.is_ascii_digit());
        let own = if is_namespace { parts.next().unwrap_or_default() } else { last };
        serial(own, found);
    }
}
