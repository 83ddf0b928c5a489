//! Identifiers and the names they get.
//!
//! What must stay true: the same identifier gets the same name, however it is written; a name has
//! the shape of what it stands for; without the salt nobody can try names until one fits.

use super::find::{Found, Kind};
use super::shapes;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

pub struct Names {
    found: Found,
    salt: String,
    /// Texts by their first byte: most places of a text begin none.
    by_first: BTreeMap<u8, Vec<(String, String)>>,
    /// Lengths of hexadecimal ones, the longest first.
    lengths: Vec<usize>,
    heads: BTreeSet<[u8; 4]>,
}

impl Names {
    pub fn new(found: Found, salt: &str) -> Names {
        let mut by_first: BTreeMap<u8, Vec<(String, String)>> = BTreeMap::new();
        let mut add = |text: String, name: String| {
            if let Some(first) = text.bytes().next() {
                by_first.entry(first.to_ascii_lowercase()).or_default().push((text, name));
            }
        };
        for (text, kind) in &found.texts {
            let name = text_name(text, *kind, salt);
            // Names of NVMe devices have it in hexadecimal.
            if *kind == Kind::Serial && text.len() >= 6 {
                add(in_hex(text), in_hex(&name));
            }
            add(text.clone(), name);
        }
        // The longest first: one may be the beginning of another.
        for names in by_first.values_mut() {
            names.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        }
        let lengths: BTreeSet<usize> = found.hex.keys().map(String::len).collect();
        let lengths = lengths.into_iter().rev().collect();
        let heads = found.hex.keys().filter_map(|it| it.as_bytes().get(..4)?.try_into().ok());
        let heads = heads.collect();
        Names { salt: salt.to_owned(), by_first, lengths, heads, found }
    }

    pub fn clean(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            match self.at(text, at) {
                Some((name, end)) => {
                    out.push_str(&name);
                    at = end;
                }
                None => {
                    out.push(c);
                    at += c.len_utf8();
                }
            }
        }
        out
    }

    fn at(&self, text: &str, at: usize) -> Option<(String, usize)> {
        let all = [self.v4_at(text, at), self.v6_at(text, at), self.hex_at(text, at)];
        let all = all.into_iter().chain([self.text_at(text, at)]).flatten();
        // The longest, and of equals the last.
        all.max_by_key(|(_, end)| *end)
    }

    fn text_at(&self, text: &str, at: usize) -> Option<(String, usize)> {
        let names = self.by_first.get(&text.as_bytes()[at].to_ascii_lowercase())?;
        let fits = |(own, _): &&(String, String)| {
            let end = at + own.len();
            let is_it = text.get(at..end).is_some_and(|it| it.eq_ignore_ascii_case(own));
            is_it && (is_distinct(own) || stands_alone(text, at, end))
        };
        let (own, name) = names.iter().find(fits)?;
        Some((name.clone(), at + own.len()))
    }

    fn hex_at(&self, text: &str, at: usize) -> Option<(String, usize)> {
        let most = *self.lengths.first()?;
        let rest = &text[at..];
        let head: [u8; 4] =
            shapes::digits(rest, 4).iter().map(|it| it.0).collect::<Vec<_>>().try_into().ok()?;
        if !self.heads.contains(&head) {
            return None;
        }
        let digits = shapes::digits(rest, most);
        let (known, kind, length) = self.lengths.iter().find_map(|length| {
            let own: Vec<u8> = digits.get(..*length)?.iter().map(|it| it.0).collect();
            let own = String::from_utf8(own).ok()?;
            let kind = *self.found.hex.get(&own)?;
            Some((own, kind, *length))
        })?;
        let end = digits[length - 1].1;
        let name = hex_name(&known, kind, &self.salt);
        Some((written_as(&rest[..end], &name), at + end))
    }

    fn v4_at(&self, text: &str, at: usize) -> Option<(String, usize)> {
        if !text.as_bytes()[at].is_ascii_digit() {
            return None;
        }
        let it = shapes::v4_at(text, at)?;
        let turned = |address| if it.is_backwards { shapes::backwards(address) } else { address };
        let own = turned(it.address);
        if !self.found.v4.contains(&own) {
            return None;
        }
        let name = turned(v4_name(own, &self.salt)).to_string();
        Some((name.replace('.', &it.sign.to_string()), it.end))
    }

    fn v6_at(&self, text: &str, at: usize) -> Option<(String, usize)> {
        if !shapes::is_of_v6(char::from(text.as_bytes()[at])) {
            return None;
        }
        let (own, end) = shapes::v6_at(text, at)?;
        let is_known = self.found.v6.contains(&own);
        is_known.then(|| (v6_name(own, &self.salt), end))
    }
}

/// Letters and digits mixed: no fact is written so, wherever it stands.
fn is_distinct(text: &str) -> bool {
    let has = |is: fn(&u8) -> bool| text.bytes().any(|c| is(&c));
    text.len() >= 6 && has(u8::is_ascii_alphabetic) && has(u8::is_ascii_digit)
}

/// Whether a word begins and ends here: after nothing, after a sign, or after the `0x` of a number.
fn stands_alone(text: &str, at: usize, end: usize) -> bool {
    let before = &text[..at];
    let begins = !before.ends_with(|c: char| c.is_ascii_alphanumeric()) || before.ends_with("0x");
    begins && !text[end..].starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// Bytes by chance that the salt and the identifier alone decide.
fn chance(seed: &str, salt: &str, count: usize) -> Vec<u8> {
    // In lower case, so that one is the same whoever prints it.
    let seed = format!("{salt}\0{}", seed.to_ascii_lowercase());
    let mut bytes = Vec::new();
    let mut round = 0_u8;
    while bytes.len() < count {
        bytes.extend(Sha256::digest(format!("{seed}\0{round}")));
        round = round.wrapping_add(1);
    }
    bytes
}

fn token(seed: &str, salt: &str) -> String {
    chance(seed, salt, 3).iter().take(3).map(|byte| format!("{byte:02x}")).collect()
}

fn text_name(text: &str, kind: Kind, salt: &str) -> String {
    match kind {
        Kind::Host => match text.split_once('.') {
            Some((first, domain)) => {
                let domain = text_name(domain, Kind::Domain, salt);
                format!("host-{}.{domain}", token(first, salt))
            }
            None => format!("host-{}", token(text, salt)),
        },
        Kind::Domain => format!("net-{}.invalid", token(text, salt)),
        Kind::Qualified => {
            let kind = text.get(..3).unwrap_or("nqn");
            format!("{kind}.2000-01.invalid:{}", token(text, salt))
        }
        _ => {
            let bytes = chance(text, salt, text.len());
            text.chars().zip(bytes).map(|(c, byte)| letter(c, byte)).collect()
        }
    }
}

/// Of a network that is reserved for private use.
fn v4_name(address: Ipv4Addr, salt: &str) -> Ipv4Addr {
    let bytes = chance(&address.to_string(), salt, 3);
    Ipv4Addr::new(10, bytes[0], bytes[1], bytes[2])
}

fn v6_name(address: Ipv6Addr, salt: &str) -> String {
    let bytes = chance(&address.to_string(), salt, 4);
    format!("fd00::{:x}{:02x}:{:x}{:02x}", bytes[0] | 1, bytes[1], bytes[2] | 1, bytes[3])
}

fn hex_name(digits: &str, kind: Kind, salt: &str) -> String {
    let bytes = chance(digits, salt, digits.len());
    let pick = |byte: &u8| char::from(b"0123456789abcdef"[usize::from(byte % 16)]);
    let mut name: String = bytes.iter().take(digits.len()).map(pick).collect();
    if kind == Kind::Wwn && digits.starts_with('5') {
        // The kind of address that every SAS device has.
        name.replace_range(..1, "5");
    }
    name
}

/// `name` with the signs and the case of `text`.
fn written_as(text: &str, name: &str) -> String {
    let is_large = text.bytes().any(|c| c.is_ascii_uppercase());
    let mut digits = name.chars();
    let written = text.chars().map(|c| match c.is_ascii_hexdigit() {
        true => digits.next().unwrap_or('0'),
        false => c,
    });
    let written: String = written.collect();
    if is_large { written.to_ascii_uppercase() } else { written }
}

fn in_hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Digits stay digits, letters letters, signs stay where they are.
fn letter(c: char, byte: u8) -> char {
    let pick = |letters: &[u8]| char::from(letters[usize::from(byte) % letters.len()]);
    match c {
        _ if !c.is_ascii_alphanumeric() => c,
        // No zero, so that a number keeps its length.
        '0'..='9' => pick(b"123456789"),
        'a'..='z' => pick(b"abcdefghjkmnpqrstuvwxyz"),
        _ => pick(b"ABCDEFGHJKMNPQRSTUVWXYZ"),
    }
}
