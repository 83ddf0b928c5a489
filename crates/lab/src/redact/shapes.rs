//! Identifiers by their shape: MAC addresses, WWNs, GUIDs and UUIDs of hexadecimal digits, in every
//! way that tools write them; and IP addresses, with ports, in ranges and networks, with dashes in
//! names of hosts, and backwards in those of zones.
//!
//! What must stay true: an identifier is its digits, an address its value, however they are
//! written; versions of more or fewer than four numbers are no address.

use super::find::{Found, Kind};
use super::hosts::expression;
use regex::Regex;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

/// Shapes with signs between their digits. What has no dash must have as many different digits as
/// chance makes.
static SHAPES: LazyLock<Vec<(Regex, Kind)>> = LazyLock::new(|| {
    let shapes = [
        ("X{8}-X{4}-X{4}-X{4}-X{12}", Kind::Uuid),
        ("X{8}:X{8}:X{8}:X{8}", Kind::Uuid),
        (r"X{4}\.X{4}\.X{4}", Kind::Mac),
        ("X{4}:X{4}:X{4}:X{4}", Kind::Wwn),
        ("X{4}-X{4}-X{4}-X{4}", Kind::Wwn),
        // smartctl: the digit of its kind, the vendor, the rest.
        ("X X{6} X{9}", Kind::Wwn),
    ];
    shapes.map(|(text, kind)| (of_hex(text), kind)).into()
});
/// Six pairs are a MAC address, more are a WWN.
static PAIRS: LazyLock<[Regex; 3]> =
    LazyLock::new(|| [":", "-", r"\."].map(|sign| of_hex(&format!("XX(?:{sign}XX){{5,}}"))));
/// A word that is one by itself, perhaps behind what tells that it is; names of network cards go on
/// behind it.
static WORD: LazyLock<Regex> = LazyLock::new(|| {
    of_hex("(?:(enx|wlx|wwx|slx|ibx)(X{12})[0-9a-z]*|(0x|eui|naa|wwn)?(X{12}|X{16}|X{32}))")
});

/// An expression between signs in which `X` is a hexadecimal digit.
fn of_hex(text: &str) -> Regex {
    expression(&format!(r"(?i)\b(?:{})\b", text.replace('X', "[0-9a-f]")))
}

/// Every identifier of a text.
pub fn digits_of(text: &str, found: &mut Found) {
    // To an expression the underscore is a letter.
    let text = &text.replace('_', " ");
    for (shape, kind) in SHAPES.iter() {
        let all = shape.find_iter(text).map(|it| it.as_str());
        all.filter(|it| it.contains('-') || is_various(it)).for_each(|it| insert(it, *kind, found));
    }
    for pairs in PAIRS.iter().flat_map(|pairs| pairs.find_iter(text)) {
        let pairs: Vec<&str> = pairs.as_str().split([':', '-', '.']).collect();
        insert(&pairs.concat(), if pairs.len() == 6 { Kind::Mac } else { Kind::Wwn }, found);
        // It may have been run together with what stands around it.
        pairs.windows(6).for_each(|window| insert(&window.concat(), Kind::Mac, found));
    }
    for word in WORD.captures_iter(text) {
        let part = |at| word.get(at).map_or("", |it| it.as_str());
        let (of_card, prefix) = (part(2), part(3));
        let digits = if of_card.is_empty() { part(4) } else { of_card };
        let (is_various, is_number) = (is_various(digits), digits.parse::<u128>().is_ok());
        let is_told = !of_card.is_empty() || !prefix.is_empty() && is_various;
        // Sizes have as many digits and no letters; masks have few different ones.
        let is_one = is_told || is_various && (!is_number || digits.starts_with('5'));
        match digits.len() {
            12 if is_told || is_various && !is_number => insert(digits, Kind::Mac, found),
            16 if is_one => insert(digits, Kind::Wwn, found),
            32 if is_told || is_various && !is_number => insert(digits, Kind::Wwn, found),
            _ => {}
        }
    }
}

fn insert(written: &str, kind: Kind, found: &mut Found) {
    let digits: String = written.chars().filter(char::is_ascii_hexdigit).collect();
    let digits = digits.to_ascii_lowercase();
    // All zeros and all ones are nobody's.
    if digits.contains(|c| c != '0') && digits.contains(|c| c != 'f') {
        found.hex.entry(digits).or_insert(kind);
    }
}

/// Whether there are as many different digits as chance would make.
fn is_various(written: &str) -> bool {
    let digits = written.bytes().filter(u8::is_ascii_hexdigit).map(|c| c.to_ascii_lowercase());
    digits.collect::<BTreeSet<u8>>().len() >= 5
}

/// The digits that begin at the start of `text`, each with where it ends; single signs between them
/// do not count.
pub fn digits(text: &str, most: usize) -> Vec<(u8, usize)> {
    let bytes = text.as_bytes();
    let mut digits = Vec::new();
    let mut at = 0;
    while digits.len() < most {
        let is_sign = matches!(bytes.get(at), Some(b':' | b'-' | b'.' | b' '));
        let here = if is_sign && at > 0 { at + 1 } else { at };
        let Some(digit) = bytes.get(here).filter(|c| c.is_ascii_hexdigit()) else { break };
        digits.push((digit.to_ascii_lowercase(), here + 1));
        at = here + 1;
    }
    digits
}

pub fn addresses(text: &str, found: &mut Found) {
    for (at, _) in text.match_indices(|c: char| c.is_ascii_digit()) {
        if let Some(it) = v4_at(text, at) {
            let is_told = it.sign == '.' || ends_with_ip(&text[..at]);
            let address = if it.is_backwards { backwards(it.address) } else { it.address };
            let [first, ..] = address.octets();
            if is_told && ![0, 127, 255].contains(&first) {
                found.v4.insert(address);
            }
        }
    }
    let mut at = 0;
    while let Some(begin) = text[at..].find(is_of_v6) {
        let begin = at + begin;
        match v6_at(text, begin) {
            Some((address, end)) => {
                if !address.is_loopback() && !address.is_unspecified() {
                    found.v6.insert(address);
                }
                at = end;
            }
            None => at = begin + 1,
        }
    }
}

fn ends_with_ip(before: &str) -> bool {
    let parts = before.len().checked_sub(3).and_then(|at| before.split_at_checked(at));
    parts.is_some_and(|(rest, ip)| {
        ip.eq_ignore_ascii_case("ip-") && !rest.ends_with(|c: char| c.is_ascii_alphanumeric())
    })
}

pub struct V4 {
    pub address: Ipv4Addr,
    pub end: usize,
    /// What is between its numbers.
    pub sign: char,
    /// Whether it is the name of a zone.
    pub is_backwards: bool,
}

/// The same with its numbers in the other order.
pub fn backwards(address: Ipv4Addr) -> Ipv4Addr {
    let [a, b, c, d] = address.octets();
    Ipv4Addr::new(d, c, b, a)
}

/// The address whose first digit is at `at`.
pub fn v4_at(text: &str, at: usize) -> Option<V4> {
    let before = text[..at].chars().next_back();
    let is_version = before.is_some_and(|c| c.is_ascii_digit() || c == 'v' || c == 'V');
    let is_longer = before == Some('.') && text[..at - 1].ends_with(|c: char| c.is_ascii_digit());
    if is_version || is_longer {
        return None;
    }
    let rest = &text[at..];
    let sign = rest[rest.find(|c: char| !c.is_ascii_digit())?..].chars().next()?;
    if sign != '.' && sign != '-' {
        return None;
    }
    let mut octets = [0_u8; 4];
    let mut end = at;
    for (number, octet) in octets.iter_mut().enumerate() {
        if number > 0 {
            end += usize::from(text[end..].starts_with(sign));
        }
        let digits = text[end..].bytes().take_while(u8::is_ascii_digit).count();
        *octet = text[end..end + digits].parse().ok()?;
        end += digits;
    }
    let after = &text[end..];
    let goes_on =
        after.strip_prefix('.').is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit()));
    if goes_on {
        return None;
    }
    let is_backwards = sign == '.' && after.starts_with(".in-addr");
    Some(V4 { address: Ipv4Addr::from(octets), end, sign, is_backwards })
}

/// What an address of version 6 consists of.
pub fn is_of_v6(c: char) -> bool {
    c.is_ascii_hexdigit() || c == ':'
}

/// The longest address of version 6 that begins at `at`, and where it ends.
pub fn v6_at(text: &str, at: usize) -> Option<(Ipv6Addr, usize)> {
    if text[..at].ends_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let run = text[at..].bytes().take_while(|c| is_of_v6(char::from(*c)) || *c == b'.').count();
    // The longest has 45 letters.
    let run = &text[at..at + run.min(64)];
    if run.matches(':').count() < 2 {
        return None;
    }
    let is_end = |end: &usize| {
        let goes_on = text[at + end..].starts_with(|c: char| c.is_ascii_alphanumeric());
        run.is_char_boundary(*end) && !goes_on
    };
    let ends = (6..=run.len()).rev().filter(is_end);
    ends.filter_map(|end| Some((run[..end].parse().ok()?, at + end))).next()
}
