//! Inspecting captured servers: every check passes, fails and cannot tell where it must; the first
//! story's server gives the story's answer; damaged captures are survived.

use crate::inspect::diagram::Measured;
use crate::inspect::models::Library;
use crate::inspect::server::Server;
use crate::inspect::topology::Given;
use crate::inspect::{Inspection, Verdict, page};
use crate::metrics::bandwidth::Rate;
use crate::qualify::reference::{Reference, SYNTHETIC};
use crate::redact::redact;
use crate::source::tree::Entry;
use crate::source::{Capture, Source, bare, folder};
use crate::validity::Outcome;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const BEFORE: &str = "story-before-repair";
const AFTER: &str = "story-after-repair";
const FLASH: &str = "nvme-24-dual-socket";
const JBOD: &str = "jbod-60-four-hba";
const DESKTOP: &str = "desktop";
const ALL: [&str; 5] = [BEFORE, AFTER, FLASH, JBOD, DESKTOP];

/// A capture and what is changed in it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Edits {
    of: String,
    /// Files that hold something else.
    set: BTreeMap<String, String>,
    /// Paths that are not there, with all below them.
    gone: Vec<String>,
    /// Everything with this in its path is not there.
    gone_with: Option<String>,
    /// Programs that are not installed.
    no_tool: Vec<String>,
    /// In a program's output the first of these words are others.
    say: Vec<[String; 3]>,
}

fn capture(name: &str) -> Capture {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let (capture, odd) = folder::read(&folder).expect("a capture");
    assert_eq!(odd, 0, "{name}");
    capture
}

/// The capture with its changes, each of which must change something.
fn edited(edits: &Edits) -> Capture {
    let name = &edits.of;
    let mut capture = capture(name);
    for (path, value) in &edits.set {
        capture.tree.insert(path.clone(), Entry::Text(value.clone()));
    }
    let mut gone = edits.gone.clone();
    if let Some(part) = &edits.gone_with {
        let paths = capture.tree.iter().map(|it| it.0.clone());
        gone.extend(paths.filter(|path| path.contains(part)));
        assert!(gone.len() > edits.gone.len(), "{part} is not in {name}");
    }
    for path in gone {
        assert!(capture.tree.remove(&path) > 0, "{path} is not in {name}");
    }
    for tool in &edits.no_tool {
        assert!(capture.runs.remove(tool).is_some(), "{tool} is not in {name}");
    }
    for [tool, from, to] in &edits.say {
        let run = capture.runs.get_mut(tool).expect("a tool");
        assert!(run.stdout.contains(from), "{tool} does not say {from:?}");
        run.stdout = run.stdout.replacen(from, to, 1);
    }
    capture
}

fn server(capture: Capture) -> Server {
    Server::read(&Source::captured(capture))
}

fn inspection(name: &str) -> Inspection {
    Inspection::of(server(capture(name)), None, Given::default())
}

fn check(inspection: &Inspection, name: &str) -> (Outcome, String) {
    let found = inspection.checks.iter().find(|it| it.name == name).expect("a check of this name");
    (found.outcome, found.found.clone())
}

/// A check with a capture on which it passes, one on which it fails, and one on which it cannot
/// tell: `tests/data/checks.toml`.
#[derive(Deserialize)]
struct Case {
    pass: Edits,
    fail: Edits,
    cannot_tell: Edits,
}

#[test]
fn every_check_passes_fails_and_cannot_tell_where_it_must() {
    let cases: BTreeMap<String, Case> =
        toml::from_str(include_str!("../../tests/data/checks.toml")).expect("a table of cases");
    let mut told: Vec<String> = inspection(AFTER).checks.into_iter().map(|it| it.name).collect();
    told.sort();
    assert_eq!(told, cases.keys().cloned().collect::<Vec<_>>(), "no check is without its captures");
    for (name, case) in cases {
        for (edits, wanted) in [
            (&case.pass, Outcome::Pass),
            (&case.fail, Outcome::Fail),
            (&case.cannot_tell, Outcome::CannotTell),
        ] {
            // The capture before the load is the unedited one.
            let before = server(capture(&edits.of));
            let now = Inspection::of(server(edited(edits)), Some(&before), Given::default());
            let (outcome, found) = check(&now, &name);
            assert_eq!(outcome, wanted, "{name} on {edits:?}: {found}");
            assert!(!found.is_empty(), "{name} on {edits:?}");
        }
    }
}

/// What is said of a server, sentence by sentence: `tests/data/servers.toml`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Said {
    now: Edits,
    before: Option<Edits>,
    sent: Option<String>,
    refused: Option<String>,
    drives: Option<u64>,
    /// MB/s, as the next one.
    drive_rate: Option<u64>,
    inter_socket: Option<u64>,
    models: Option<String>,
    fails: Option<Vec<String>>,
    checks: BTreeMap<String, (Outcome, String)>,
    says: Vec<String>,
    never: Vec<String>,
}

impl Said {
    /// What was sent as a file; refused if that is what is wanted.
    fn sent(&self, text: &str, file: &Path) -> Option<Server> {
        std::fs::write(file, text).expect("written");
        match (bare::read(&[file.to_owned()]), &self.refused) {
            (Ok((capture, _)), None) => Some(Server { is_partial: true, ..server(capture) }),
            (Err(refusal), Some(code)) if refusal.code == *code => None,
            (other, _) => panic!("{text}: {other:?}"),
        }
    }

    fn inspected(&self) -> Option<Inspection> {
        let place = tempfile::tempdir().expect("a folder");
        let now = match &self.sent {
            Some(text) => self.sent(text, &place.path().join("sent"))?,
            None => server(edited(&self.now)),
        };
        let before = self.before.as_ref().map(|edits| server(edited(edits)));
        let own = place.path().join("ours.toml");
        let own: Vec<PathBuf> = self
            .models
            .iter()
            .map(|text| {
                std::fs::write(&own, text).expect("written");
                own.clone()
            })
            .collect();
        let given = Given {
            models: Library::with(&own).expect("good"),
            drive_rate: self.drive_rate.map(Rate::mega),
            inter_socket: self.inter_socket.map(Rate::mega),
            drive_count: self.drives,
        };
        Some(Inspection::of(now, before.as_ref(), given))
    }
}

#[test]
fn servers_are_told_what_is_wrong_with_them_and_what_limits_them() {
    let cases: BTreeMap<String, Said> =
        toml::from_str(include_str!("../../tests/data/servers.toml")).expect("a table of cases");
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (sentence, said) in cases {
        let Some(inspection) = said.inspected() else { continue };
        let page = plain(&page::text(&inspection, false));
        if let Some(fails) = said.fails {
            assert_eq!(all_that(&inspection, Outcome::Fail), fails, "{sentence}");
        }
        for (name, (outcome, wanted)) in said.checks {
            let (own, found) = check(&inspection, &name);
            assert!(
                own == outcome && found.contains(&plain(&wanted)),
                "{sentence}: {own:?} {found}"
            );
        }
        for wanted in said.says.iter().map(|it| plain(it)) {
            assert!(page.contains(&wanted), "{sentence}: there is no {wanted} in {page}");
        }
        for never in &said.never {
            assert!(!page.contains(never), "{sentence}: {never} is in {page}");
        }
    }
}

fn all_that(inspection: &Inspection, outcome: Outcome) -> Vec<&str> {
    let checks = inspection.checks.iter().filter(|it| it.outcome == outcome);
    checks.map(|it| it.name.as_str()).collect()
}

#[test]
fn a_server_of_which_nothing_is_known_passes_no_check() {
    let nothing = Inspection::of(Server::default(), None, Given::default());
    assert_eq!(all_that(&nothing, Outcome::Pass), [""; 0]);
    assert_eq!(nothing.verdict, Verdict::Undecided);
    assert!(page::headline(&nothing).starts_with("CANNOT SAY"));
}

/// References that ship with the lab are computed from made-up captures, and say so.
#[test]
fn references_of_the_lab_are_what_its_made_up_servers_offer_in_good_order() {
    let link = "/sys/bus/pci/devices/0000:48:00.0/current_link_width";
    let whole =
        Edits { of: FLASH.into(), set: [(link.into(), "4".into())].into(), ..Edits::default() };
    let flash = Inspection::of(server(edited(&whole)), None, Given::default());
    let made = [inspection(AFTER), flash];
    let shipped = Reference::shipped();
    assert_eq!(shipped.len(), made.len());
    for (shipped, made) in shipped.iter().zip(&made) {
        assert!(shipped.name.starts_with(SYNTHETIC));
        assert_eq!(*shipped, Reference::of(&shipped.name, made));
    }
}

#[test]
fn the_diagram_names_every_bandwidth_and_takes_measured_flows() {
    let story = inspection(BEFORE);
    let link =
        story.topology.links.iter().find(|it| it.standard == "SAS 12G x4").expect("an uplink");
    let measured = Measured::from([(link.id.clone(), Rate::mega(3_210))]);
    let svg = story.svg(&measured);
    for text in [
        "Narrowest for a rebuild: memory. 8.53 GB/s of 15.9 GB/s",
        "17.1 GB/s",
        "4.80 GB/s",
        "6.00 GB/s",
        "measured 3.21 GB/s",
    ] {
        assert!(svg.contains(text), "{text} is missing");
    }
    for text in ["http://www.w3.org/1999/xhtml", "<script", "url("] {
        assert!(!svg.contains(text), "{text}");
    }
    assert!(!story.svg(&Measured::new()).contains("measured"));
}

#[test]
fn a_redacted_capture_gives_the_same_answers_and_none_of_the_names() {
    for name in ALL {
        let original = capture(name);
        let (redacted, counts) = redact(&original, "a salt");
        let (first, second) = (server(original.clone()), server(redacted.clone()));
        let judge = |server: Server| {
            let inspection = Inspection::of(server, None, Given::default());
            (inspection.checks, inspection.topology, inspection.rebuild)
        };
        assert_eq!(judge(first), judge(second), "{name}");
        let text = |capture: &Capture| {
            let runs = capture.runs.values().map(|run| run.stdout.as_str()).collect::<String>();
            capture.tree.print() + &runs
        };
        let (before, after) = (text(&original), text(&redacted));
        assert!(counts["host names"] > 0 && counts["serial numbers"] > 0, "{name}: {counts:?}");
        for word in before.split(|c: char| !c.is_ascii_alphanumeric()) {
            let is_wwn = word.len() == 16 && word.starts_with('5');
            let is_serial = word.len() == 12
                && word.chars().all(|c| c.is_ascii_hexdigit() && !c.is_lowercase())
                && word.chars().any(|c| c.is_ascii_uppercase());
            assert!(!(is_wwn || is_serial) || !after.contains(word), "{name}: {word} survives");
        }
        assert!(!after.contains("storage.example"), "{name}");
    }
}

#[test]
fn a_capture_of_this_machine_gives_the_same_server() {
    let source = Source::live(Duration::from_secs(120));
    let live = Server::read(&source);
    assert_eq!(server(source.into_capture()), live);
}

/// The first drive has two ports with two lanes each, of which one is used, and two namespaces.
fn divided() -> Capture {
    let mut capture = capture(FLASH);
    let (one, other) = ("/sys/block/nvme0n1", "/sys/block/nvme0n2");
    let of_first = |path: &str| {
        path.strip_prefix(one).filter(|rest| rest.is_empty() || rest.starts_with('/')).is_some()
    };
    let copied: Vec<(String, Entry)> = capture
        .tree
        .iter()
        .filter(|(path, _)| of_first(path))
        .map(|(path, entry)| (path.replacen(one, other, 1), entry.clone()))
        .collect();
    for (path, entry) in copied {
        let entry = match entry {
            Entry::Link(to) => Entry::Link(to.replacen("nvme0n1", "nvme0n2", 1)),
            entry => entry,
        };
        capture.tree.insert(path, entry);
    }
    for name in [one, other] {
        capture.tree.insert(format!("{name}/size"), Entry::Text("3750738264".to_owned()));
    }
    let run = capture.runs.get_mut("nvme_id_ctrl-nvme0").expect("asked");
    run.stdout = run.stdout.replacen("\"cmic\": 0", "\"cmic\": 3", 1);
    capture
}

/// Two namespaces counted as two drives with a link each.
#[test]
fn namespaces_of_one_drive_share_its_link_its_media_and_its_capacity() {
    let whole = Inspection::of(server(capture(FLASH)), None, Given::default());
    let divided = Inspection::of(server(divided()), None, Given::default());
    assert_eq!(divided.server.drives.len(), 25, "both namespaces are devices");
    assert_eq!(divided.topology.drive_count, 24);
    assert_eq!(divided.read.demand, whole.read.demand, "no link was added");
    let text = page::text(&divided, false);
    assert!(text.contains("24 x EXAMPLE EX7 3840GB: not in the library"), "{text}");
    assert!(text.contains("; 24 drives on 24 controllers"), "{text}");
    let names = divided.topology.drive_names.iter().flat_map(|(_, names)| names);
    assert_eq!(names.filter(|name| name.starts_with("nvme0n")).count(), 2, "I/O of both counts");
    assert_eq!(divided.server.drives[0].drive_bytes, 2 * 3_750_738_264 * 512);
    let (outcome, found) = check(&divided, "dual_port.second_host");
    assert_eq!(outcome, Outcome::Fail);
    assert!(found.contains("1 NVMe drives have a second port"), "{found}");
}

#[test]
fn a_drive_that_says_its_capacity_is_known_by_that() {
    let mut capture = divided();
    let run = capture.runs.get_mut("nvme_id_ctrl-nvme0").expect("asked");
    run.stdout = run.stdout.replacen("\"cmic\"", "\"tnvmcap\": 7681501126656, \"cmic\"", 1);
    let drives = server(capture).drives;
    let bytes = |name: &str| drives.iter().find(|it| it.name == name).unwrap().drive_bytes;
    assert_eq!((bytes("nvme0n1"), bytes("nvme0n2")), (7_681_501_126_656, 7_681_501_126_656));
    assert_eq!(bytes("nvme1n1"), 7_501_476_528 * 512, "one that does not say it");
}
