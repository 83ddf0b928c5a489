//! Identifiers of hexadecimal digits: MAC addresses, WWNs, GUIDs and UUIDs, in every way that tools
//! write them.
//!
//! What must stay true: an identifier is its digits; signs between them and the case of letters are
//! how somebody writes it.

use super::find::{Found, Kind};

/// What a card's name by its MAC address begins with.
const CARD_NAMES: [&str; 5] = ["enx", "wlx", "wwx", "slx", "ibx"];

struct Word<'a> {
    at: usize,
    text: &'a str,
    is_hex: bool,
}

fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut at = 0;
    for part in text.split(|c: char| !c.is_ascii_alphanumeric()) {
        if !part.is_empty() {
            let is_hex = part.bytes().all(|c| c.is_ascii_hexdigit());
            words.push(Word { at, text: part, is_hex });
        }
        // What splits may be longer than a byte.
        at += part.len();
        at += text[at..].chars().next().map_or(0, char::len_utf8);
    }
    words
}

pub fn find(text: &str, found: &mut Found) {
    let words = words(text);
    for word in &words {
        single(word.text, found);
    }
    for sign in [':', '-', '.', ' '] {
        let is_next = |pair: &[Word<'_>]| {
            let end = pair[0].at + pair[0].text.len();
            end + 1 == pair[1].at && text[end..].starts_with(sign) && pair[1].is_hex
        };
        let mut rest = words.as_slice();
        while let Some(first) = rest.iter().position(|word| word.is_hex) {
            rest = &rest[first..];
            let more = rest.windows(2).take_while(|pair| is_next(pair)).count();
            chain(&rest[..=more], sign, found);
            rest = &rest[more + 1..];
        }
    }
}

fn insert(parts: &[Word<'_>], kind: Kind, found: &mut Found) {
    let digits: String = parts.iter().map(|part| part.text).collect();
    let digits = digits.to_ascii_lowercase();
    if is_nobody(&digits) {
        return;
    }
    found.hex.entry(digits).or_insert(kind);
}

/// All zeros, all ones, and what else counts nothing.
fn is_nobody(digits: &str) -> bool {
    digits.bytes().all(|c| c == b'0') || digits.bytes().all(|c| c == b'f')
}

/// Hexadecimal words with `sign` between them.
fn chain(words: &[Word<'_>], sign: char, found: &mut Found) {
    const SHAPES: [(char, &[usize], Kind); 6] = [
        ('-', &[8, 4, 4, 4, 12], Kind::Uuid),
        (':', &[8, 8, 8, 8], Kind::Uuid),
        ('.', &[4, 4, 4], Kind::Mac),
        (':', &[4, 4, 4, 4], Kind::Wwn),
        ('-', &[4, 4, 4, 4], Kind::Wwn),
        // smartctl: the digit of its kind, the vendor, the rest.
        (' ', &[1, 6, 9], Kind::Wwn),
    ];
    for (own, lengths, kind) in SHAPES.iter().filter(|(own, ..)| *own == sign) {
        for window in words.windows(lengths.len()) {
            let fits = window.iter().map(|word| word.text.len()).eq(lengths.iter().copied());
            let all: String = window.iter().map(|word| word.text).collect();
            if fits && (*own == '-' || is_various(&all)) {
                insert(window, *kind, found);
            }
        }
    }
    if sign == ' ' {
        return;
    }
    for pairs in words.split(|word| word.text.len() != 2).filter(|pairs| pairs.len() >= 6) {
        insert(pairs, if pairs.len() == 6 { Kind::Mac } else { Kind::Wwn }, found);
        // It may have been run together with what stands around it.
        pairs.windows(6).for_each(|window| insert(window, Kind::Mac, found));
    }
}

/// A word that is one by itself.
fn single(word: &str, found: &mut Found) {
    let lower = word.to_ascii_lowercase();
    let of_card = CARD_NAMES.iter().find_map(|name| lower.strip_prefix(name));
    let of_card = of_card.and_then(|rest| rest.get(..12));
    let prefixed = ["0x", "eui", "naa", "wwn"].iter().find_map(|name| lower.strip_prefix(name));
    let digits = of_card.or(prefixed).unwrap_or(&lower);
    if !digits.bytes().all(|c| c.is_ascii_hexdigit()) || is_nobody(digits) {
        return;
    }
    let has_letter = digits.bytes().any(|c| c.is_ascii_alphabetic());
    let is_told = of_card.is_some() || prefixed.is_some() && is_various(digits);
    let kind = match digits.len() {
        12 if is_told || has_letter && is_various(digits) => Kind::Mac,
        // Sizes have as many digits and no letters; masks have few different ones.
        16 if is_told || is_various(digits) && (has_letter || digits.starts_with('5')) => Kind::Wwn,
        32 if is_various(digits) && (has_letter || is_told) => Kind::Wwn,
        _ => return,
    };
    found.hex.entry(digits.to_owned()).or_insert(kind);
}

/// Whether there are as many different digits as chance would make.
fn is_various(digits: &str) -> bool {
    let mut different: Vec<u8> = digits.bytes().map(|c| c.to_ascii_lowercase()).collect();
    different.sort_unstable();
    different.dedup();
    different.len() >= 5
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
