//! No original identifier survives, wherever it stands; facts stay.

use super::redact;
use crate::offline::Chance;
use crate::source::Capture;
use crate::source::folder;
use crate::source::tool::{Ending, Run};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Invented; every form in which tools print identifiers.
const PLANTED: [&str; 13] = [
    "5000C500DEAD0001",
    "5000c500dead0002",
    "ZQX1B2C3D4",
    "S4N0QRS7T",
    "93817265",
    "stable7-rack12",
    "stable7-rack12.lab.example",
    "192.0.2.77",
    "2001:db8::7:1",
    "02:1a:2b:3c:4d:5e",
    "c7a1f0e2-1b2c-4d3e-8f90-a1b2c3d4e5f6",
    "50-06-05-b0-0a-1b-2c-30",
    "nqn.2019-08.com.example:nvme:ZQX1B2C3D4",
];

fn run(stdout: &str) -> Run {
    let argv = vec!["smartctl".into(), "/dev/disk/by-id/wwn-0x5000c500dead0002".into()];
    Run {
        argv,
        ending: Ending::Exit(1),
        stdout: stdout.into(),
        stderr: "stable7-rack12: no".into(),
    }
}

fn planted() -> Capture {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/planted");
    let (capture, odd) = folder::read(&place).expect("a capture");
    assert_eq!((odd, capture.runs.len()), (0, 4));
    capture
}

/// Everything a written capture consists of: names of files and what they hold.
fn all_text(capture: &Capture) -> String {
    fn walk(folder: &std::path::Path, out: &mut String) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("readable").path();
            out.push_str(&path.file_name().expect("a name").to_string_lossy());
            out.push('\n');
            match path.is_dir() {
                true => walk(&path, out),
                false => out.push_str(&std::fs::read_to_string(&path).expect("text")),
            }
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    folder::write(capture, folder.path()).expect("written");
    let mut out = String::new();
    walk(folder.path(), &mut out);
    out
}

#[test]
fn no_identifier_survives_facts_stay_and_one_salt_gives_one_name() {
    let before = all_text(&planted()).to_lowercase();
    let (redacted, counts) = redact(&planted(), "salt");
    let text = all_text(&redacted);
    for identifier in PLANTED.map(str::to_lowercase) {
        assert!(before.contains(&identifier), "{identifier} is not planted");
        assert!(!text.to_lowercase().contains(&identifier), "{identifier} survives in\n{text}");
    }
    assert_eq!(counts["host names"], 2);
    for fact in ["27344764928", "0000:05:00.0", "2400 MT/s", "Not Specified", "phy-1:0/", "12 Gbps"]
        .into_iter()
        .chain(["0x010700", "\"is_redacted\": true"])
    {
        assert!(text.contains(fact), "{fact} is gone from\n{text}");
    }
    let again = |salt| all_text(&redact(&planted(), salt).0);
    assert_eq!(text, again("salt"));
    assert_ne!(text, again("b"));
    // One WWN printed by two tools is still one WWN.
    let (_, rest) = text.split_once("sas_address = 0x").expect("there");
    assert!(text.matches(&rest[..16]).count() >= 3, "{text}");
}

/// A kind of secret, every way to write one, and texts around it: `tests/data/secrets.toml`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Secret {
    letters: String,
    count: usize,
    ways: Vec<String>,
    frames: Vec<String>,
    #[serde(default)]
    traces: Vec<usize>,
}

impl Secret {
    /// One of its kind in all the ways to write it, and what must not be left of it.
    fn made(&self, chance: &mut Chance) -> (Vec<String>, Vec<String>) {
        let letters: Vec<char> = self.letters.chars().collect();
        let own = loop {
            let own: String = (0..self.count).map(|_| *chance.pick(&letters)).collect();
            let various: BTreeSet<char> = own.chars().collect();
            // Chance makes such a one nearly always; others are told from masks and counts by
            // nobody.
            let is_told = various.len() >= 5 && own.chars().any(|c| c.is_ascii_alphabetic());
            if is_told || !self.letters.starts_with('0') {
                break own;
            }
        };
        let written = |way: &String| {
            let mut rest = own.chars();
            let filled = |c| if c == '#' { rest.next().expect("as many as counted") } else { c };
            let text: String = way.trim_start_matches('^').chars().map(filled).collect();
            if way.starts_with('^') { text.to_uppercase() } else { text }
        };
        let ways: Vec<String> = self.ways.iter().map(written).collect();
        let mut rest = own.as_str();
        let mut traces: Vec<String> = Vec::new();
        for length in &self.traces {
            let (trace, after) = rest.split_at(*length);
            traces.push(trace.to_lowercase());
            rest = after;
        }
        if traces.is_empty() {
            traces.push(without_signs(&ways[0]));
        }
        (ways, traces)
    }
}

fn secrets() -> BTreeMap<String, Secret> {
    toml::from_str(include_str!("../../tests/data/secrets.toml")).expect("a table of secrets")
}

fn without_signs(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase()
}

/// A serial number that a table of drives named in one file was once left in all the others.
#[test]
fn nothing_of_a_secret_is_left_however_it_is_written_and_its_name_is_always_the_same() {
    for seed in 1..=100_u64 {
        let mut chance = Chance::of(seed);
        let mut capture = Capture::default();
        let mut traces = Vec::new();
        for secret in secrets().values() {
            let (ways, more) = secret.made(&mut chance);
            for at in 0..6 {
                let (way, frame) = (chance.pick(&ways), chance.pick(&secret.frames));
                let text = format!("fact 27344764928\n{}\n\nx {at}\n", frame.replace('@', way));
                capture.runs.insert(format!("tool-{}", capture.runs.len()), run(&text));
            }
            traces.extend(more);
        }
        let before = without_signs(&all_text(&capture));
        let (redacted, _) = redact(&capture, "salt");
        let text = all_text(&redacted);
        let after = without_signs(&text);
        // Not all ways of writing one show all of it.
        let planted = traces.iter().filter(|trace| before.contains(trace.as_str()));
        assert!(planted.clone().count() >= 8, "seed {seed}: {traces:?} are not there");
        for trace in planted {
            assert!(!after.contains(trace.as_str()), "seed {seed}: {trace} is left in\n{text}");
        }
        let facts = text.matches("fact 27344764928").count();
        assert_eq!(facts, capture.runs.len(), "seed {seed}: a fact is gone from\n{text}");
    }
}

/// One secret in all the ways to write it is one secret afterwards.
#[test]
fn one_secret_has_one_name_in_every_way_of_writing() {
    for seed in 1..=200_u64 {
        let mut chance = Chance::of(seed);
        for kind in ["mac", "guid", "uuid"] {
            let (ways, _) = secrets()[kind].made(&mut chance);
            let mut capture = Capture::default();
            capture.runs.insert("all".into(), run(&ways.join("\n")));
            let (redacted, _) = redact(&capture, "salt");
            let digits = |line: &str| {
                let plain = without_signs(line);
                ["enx", "0x", "eui"].iter().fold(plain, |it, name| it.replacen(name, "", 1))
            };
            let names: BTreeSet<String> = redacted.runs["all"].stdout.lines().map(digits).collect();
            assert_eq!(names.len(), 1, "seed {seed}: {ways:?} became {names:?}");
        }
    }
}

/// What has the look of an identifier to somebody in a hurry and is a fact.
#[test]
fn facts_of_tools_stay_as_they_are() {
    let facts = "\
        Kernel 6.1.0-18-amd64, firmware 24.15.0-0021, driver 5.4.0\n\
        0000:05:00.0 Non-Volatile memory controller: Intel Corporation NVMe\n\
        cpu mask 00000000,ffffffff node0 0-15 size 4000787030016 bytes\n\
        Capabilities: [100 v2] LnkSta: Speed 8GT/s, Width x4\n\
        irq 129 at 12:34:56 on 2024-05-06, 0x010700, 255.255.255.0\n\
        NAME KNAME SIZE MODEL\n\
        sda  sda   3.6T ST4000DM004-2CV104\n\
        Serial Attached SCSI controller: Broadcom SAS3008\n\
        Serial: none\n\
        rx_packets: 1234567890123456\n";
    let mut capture = Capture::default();
    capture.runs.insert("tool".into(), Run { stderr: String::new(), ..run(facts) });
    let (redacted, _) = redact(&capture, "salt");
    assert_eq!(redacted.runs["tool"].stdout, facts);
}
