//! Names of hosts, domains and people, and the qualified names of NVMe and iSCSI that have them
//! within.
//!
//! What must stay true: a name that is known is found in every longer one; the names of NVMe that
//! say nothing stay.

use super::find::{Found, Kind};
use itertools::Itertools;
use regex::Regex;
use std::sync::LazyLock;

/// What only names of hosts end with. The countries that are also endings of files are not here.
const ZONES: &str = "com|net|org|edu|gov|mil|int|info|biz|cloud|dev|app|tech|online|site|local|lan|\
    internal|intranet|intra|corp|home|private|localdomain|arpa|example|test|invalid|\
    at|au|be|br|ca|ch|cn|cz|de|dk|es|eu|fi|fr|gr|hu|ie|il|in|io|it|jp|kr|mx|nl|no|nz|pt|ro|ru|se|\
    sg|sk|tr|tw|ua|uk|us|za";

static FULL_NAME: LazyLock<Regex> = LazyLock::new(|| {
    let label = "[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9])?";
    expression(&format!(r"(?:{label}\.)+(?i:{ZONES})\b"))
});
static QUALIFIED: LazyLock<Regex> = LazyLock::new(|| {
    expression(r#"(?i)\b([ni]qn)\.\d{4}-\d{2}\.([a-z0-9.-]+)(:[^\s"'\\,;|<>()\[\]{}]*)?"#)
});
static AT_HOST: LazyLock<Regex> =
    LazyLock::new(|| expression(r"([A-Za-z0-9._%+-]+)@([A-Za-z0-9][A-Za-z0-9.-]*[A-Za-z0-9])"));
static NODE: LazyLock<Regex> =
    LazyLock::new(|| expression(r"(?m)^Linux ([A-Za-z0-9][A-Za-z0-9.-]+) \d+\.\d"));

/// What tells nothing of a host: the name of every machine, the authority of NVMe, the maker of a
/// tool.
const NOBODY: [&str; 6] = [
    "localhost",
    "(none)",
    "root",
    "localhost.localdomain",
    "nvmexpress.org",
    "www.smartmontools.org",
];

pub fn expression(text: &str) -> Regex {
    Regex::new(text).expect("it is an expression")
}

pub fn find(text: &str, found: &mut Found) {
    for name in FULL_NAME.find_iter(text) {
        full_name(name.as_str(), found);
    }
    for name in QUALIFIED.captures_iter(text) {
        let part = |at| name.get(at).map_or("", |it| it.as_str());
        qualified(part(0), part(2), part(3), found);
    }
    for name in AT_HOST.captures_iter(text) {
        for part in [1, 2] {
            name.get(part).into_iter().for_each(|it| named(it.as_str(), found));
        }
    }
    for name in NODE.captures_iter(text) {
        name.get(1).into_iter().for_each(|it| named(it.as_str(), found));
    }
}

fn is_nobody(name: &str) -> bool {
    NOBODY.contains(&name.to_ascii_lowercase().as_str())
}

pub fn named(text: &str, found: &mut Found) {
    let name = text.trim().trim_matches(['.', '"', '\'']);
    if name.len() < 3 || is_nobody(name) || name.parse::<f64>().is_ok() {
        return;
    }
    if name.parse::<std::net::IpAddr>().is_ok() || name.contains(char::is_whitespace) {
        return;
    }
    match name.split_once('.') {
        None => found.text(name, Kind::Host),
        Some((first, domain)) => {
            if first.len() > 2 {
                found.text(first, Kind::Host);
            }
            full_name(name, found);
            if domain.contains('.') {
                found.text(domain, Kind::Domain);
            }
        }
    }
}

/// A name with its domain: the two get names of their own, so that hosts of one domain still show
/// it.
fn full_name(name: &str, found: &mut Found) {
    if is_nobody(name) {
        return;
    }
    // Its own authority, of NVMe, and programs' home pages by that name.
    let Some((first, domain)) = name.split_once('.') else { return };
    if first.eq_ignore_ascii_case("nqn") || first.eq_ignore_ascii_case("iqn") {
        return;
    }
    if domain.contains('.') {
        found.text(domain, Kind::Domain);
        found.text(name, Kind::Host);
    } else {
        found.text(name, Kind::Domain);
    }
    if is_telling(first) {
        found.text(first, Kind::Host);
    }
}

/// Whether a word is one name and no word of a language.
fn is_telling(word: &str) -> bool {
    let has = |is: fn(&u8) -> bool| word.bytes().any(|c| is(&c));
    word.len() >= 4 && has(u8::is_ascii_alphabetic) && has(|c| c.is_ascii_digit() || *c == b'-')
}

/// A qualified name: all of it, its domain, and its parts as far as they tell something.
fn qualified(whole: &str, authority: &str, own: &str, found: &mut Found) {
    let own = own.trim_start_matches(':').trim_end_matches(['.', ':']);
    for part in own.split([':', '.', '/', '_']).filter(|part| is_telling(part) && part.len() >= 5) {
        if !part.eq_ignore_ascii_case("uuid") && part.parse::<f64>().is_err() {
            found.text(part, Kind::Serial);
        }
    }
    if authority.trim_start_matches("org.").starts_with("nvmexpress") {
        return;
    }
    found.text(whole.trim_end_matches(['.', ':']), Kind::Qualified);
    let labels: Vec<&str> = authority.trim_matches('.').split('.').collect();
    if labels.len() >= 2 {
        found.text(&labels.iter().rev().join("."), Kind::Domain);
        found.text(&labels.join("."), Kind::Domain);
    }
}
