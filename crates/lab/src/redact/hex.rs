//! Identifiers of hexadecimal digits: MAC addresses, WWNs, GUIDs and UUIDs, in every way that tools
//! write them.
//!
//! What must stay true: an identifier is its digits; signs between them and the case of letters are
//! how somebody writes it.

use super::find::{Found, Kind};
use super::hosts::expression;
use regex::Regex;
use std::collections::BTreeSet;
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
pub fn find(text: &str, found: &mut Found) {
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
