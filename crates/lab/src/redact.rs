//! `lab redact`: a capture without what names its owner: serial numbers, WWNs, UUIDs, host names, IP and MAC addresses.
//!
//! - find: which words are identifiers, by the field they stand in or by their shape
//!
//! What must stay true: every identifier that was found is replaced everywhere, in contents and in names; the same
//! identifier and salt give the same name, so two redacted captures still compare; without the salt nobody can try
//! names until one fits.

mod find;

use crate::Refusal;
use crate::source::tool::Run;
use crate::source::tree::{Entry, Tree};
use crate::source::{Capture, folder};
use find::Kind;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// Copy a capture without serial numbers, WWNs, UUIDs, host names, IP and MAC addresses.
///
/// Each is replaced by a made-up one of the same shape, everywhere and always by the same, so the copy can still be
/// inspected and compared. Look through files.txt and commands/ before you send them: what has no shape of its own, like the
/// name of a pool, is not found.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: ashlar lab redact before-repair to-send --salt 'a sentence of yours'"
)]
pub struct Args {
    /// The capture; it is not changed.
    from: PathBuf,

    /// The copy; it is made, and must be empty if it is there.
    to: PathBuf,

    /// A secret that makes the new names; the same secret gives the same names. Without it a random one is used once.
    #[arg(long, value_name = "TEXT")]
    salt: Option<String>,
}

#[derive(serde::Serialize)]
struct Answer {
    folder: PathBuf,
    replaced: BTreeMap<&'static str, usize>,
}

/// Do it.
///
/// # Errors
/// The capture cannot be read or the copy not written.
pub fn run(args: &Args, json: bool) -> Result<ExitCode, Refusal> {
    let (capture, _) = folder::read(&args.from)?;
    let salt = match &args.salt {
        Some(salt) => salt.clone(),
        None => random()?,
    };
    let (redacted, replaced) = redact(&capture, &salt);
    folder::write(&redacted, &args.to)?;
    let answer = Answer { folder: args.to.clone(), replaced };
    if json {
        println!("{}", serde_json::to_string(&answer).unwrap_or_default());
        return Ok(ExitCode::SUCCESS);
    }
    let counts: Vec<String> =
        answer.replaced.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let told = match counts.as_slice() {
        [] => "no identifier was found in it, so nothing is replaced: look yourself before you send it".to_owned(),
        counts => format!("replaced {}", counts.join(", ")),
    };
    println!("{}: {told}", args.to.display());
    if args.salt.is_none() {
        println!(
            "with a salt that is forgotten now; to compare two captures, redact both with --salt"
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn random() -> Result<String, Refusal> {
    let path = std::path::Path::new("/dev/urandom");
    let mut bytes = [0; 16];
    let read =
        std::fs::File::open(path).and_then(|mut it| std::io::Read::read_exact(&mut it, &mut bytes));
    read.map_err(|error| Refusal::file(path, &error, "give a --salt"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The capture without identifiers, and how many of each kind there were.
pub fn redact(capture: &Capture, salt: &str) -> (Capture, BTreeMap<&'static str, usize>) {
    let found = find::identifiers(capture);
    let mut counts = BTreeMap::new();
    for kind in found.values() {
        *counts.entry(kind.plural()).or_insert(0) += 1;
    }
    let names = Names::new(found, salt);
    let mut tree = Tree::default();
    for (path, entry) in capture.tree.iter() {
        let entry = match entry {
            Entry::Text(text) => Entry::Text(names.clean(text)),
            Entry::Link(target) => Entry::Link(names.clean(target)),
            Entry::Unreadable(why) => Entry::Unreadable(names.clean(why)),
            Entry::Present => Entry::Present,
        };
        tree.insert(names.clean(path), entry);
    }
    let clean = |run: &Run| Run {
        argv: run.argv.iter().map(|word| names.clean(word)).collect(),
        ending: run.ending.clone(),
        stdout: names.clean(&run.stdout),
        stderr: names.clean(&run.stderr),
    };
    let runs = capture.runs.iter().map(|(name, run)| (names.clean(name), clean(run))).collect();
    let mut origin = capture.origin.clone();
    origin.is_redacted = true;
    (Capture { tree, runs, origin, speeds: capture.speeds.clone() }, counts)
}

/// Identifiers with the names they get, by their first byte: most places of a text begin none.
struct Names {
    by_first: BTreeMap<u8, Vec<(String, String)>>,
}

impl Names {
    fn new(found: BTreeMap<String, Kind>, salt: &str) -> Names {
        let mut by_first: BTreeMap<u8, Vec<(String, String)>> = BTreeMap::new();
        for (identifier, kind) in found {
            let name = renamed(&identifier, kind, salt);
            if let Some(first) = identifier.bytes().next() {
                by_first.entry(first.to_ascii_lowercase()).or_default().push((identifier, name));
            }
        }
        // The longest first: one may be the beginning of another.
        for names in by_first.values_mut() {
            names.sort_by_key(|(identifier, _)| std::cmp::Reverse(identifier.len()));
        }
        Names { by_first }
    }

    fn clean(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        while let Some(first) = text.as_bytes().get(at) {
            let rest = &text[at..];
            let names = self.by_first.get(&first.to_ascii_lowercase()).filter(|_| begins(text, at));
            let fits = |(identifier, _): &&(String, String)| {
                let head = rest.get(..identifier.len());
                head.is_some_and(|head| head.eq_ignore_ascii_case(identifier))
                    && !rest[identifier.len()..].starts_with(|c: char| c.is_ascii_alphanumeric())
            };
            match names.and_then(|names| names.iter().find(fits)) {
                Some((identifier, name)) => {
                    out.push_str(name);
                    at += identifier.len();
                }
                None => {
                    let c = rest.chars().next().unwrap_or(' ');
                    out.push(c);
                    at += c.len_utf8();
                }
            }
        }
        out
    }
}

/// Whether a word may begin here: after nothing, after a sign, or after the `0x` of a number.
fn begins(text: &str, at: usize) -> bool {
    let before = &text[..at];
    !before.ends_with(|c: char| c.is_ascii_alphanumeric()) || before.ends_with("0x")
}

/// A name of the same shape: digits stay digits, letters letters, signs stay where they are.
fn renamed(identifier: &str, kind: Kind, salt: &str) -> String {
    // In lower case, so that a WWN is the same whoever prints it.
    let seed = format!("{salt}\0{}", identifier.to_ascii_lowercase());
    let mut bytes = Vec::new();
    let mut round = 0_u8;
    while bytes.len() < identifier.len() {
        bytes.extend(Sha256::digest(format!("{seed}\0{round}")));
        round = round.wrapping_add(1);
    }
    match kind {
        // Of the network that is reserved for private use.
        Kind::Ipv4 => return format!("10.{}.{}.{}", bytes[0], bytes[1], bytes[2]),
        Kind::Ipv6 => {
            return format!(
                "fd00::{:x}{:02x}:{:x}{:02x}",
                bytes[0] | 1,
                bytes[1],
                bytes[2] | 1,
                bytes[3]
            );
        }
        Kind::Host => return format!("host-{:02x}{:02x}{:02x}", bytes[0], bytes[1], bytes[2]),
        Kind::Serial | Kind::Wwn | Kind::Uuid | Kind::Mac => {}
    }
    let is_hex = matches!(kind, Kind::Wwn | Kind::Uuid | Kind::Mac);
    let mut name: String =
        identifier.chars().zip(bytes).map(|(c, byte)| letter(c, byte, is_hex)).collect();
    if kind == Kind::Wwn && identifier.starts_with('5') {
        // The kind of address that every SAS device has.
        name.replace_range(..1, "5");
    }
    name
}

fn letter(c: char, byte: u8, is_hex: bool) -> char {
    let pick = |letters: &[u8]| char::from(letters[usize::from(byte) % letters.len()]);
    match c {
        _ if !c.is_ascii_alphanumeric() => c,
        'A'..='F' | 'a'..='f' | '0'..='9' if is_hex => pick(b"0123456789abcdef"),
        // No zero, so that a number keeps its length.
        '0'..='9' => pick(b"123456789"),
        'a'..='z' => pick(b"abcdefghjkmnpqrstuvwxyz"),
        _ => pick(b"ABCDEFGHJKMNPQRSTUVWXYZ"),
    }
}

#[cfg(test)]
mod tests;
