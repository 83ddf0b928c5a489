//! IP addresses: with ports, in ranges and networks, with dashes in names of hosts, and backwards
//! in those of zones.
//!
//! What must stay true: an address is its value, however it is written; versions of more or fewer
//! than four numbers are none.

use super::find::Found;
use std::net::{Ipv4Addr, Ipv6Addr};

pub fn find(text: &str, found: &mut Found) {
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
