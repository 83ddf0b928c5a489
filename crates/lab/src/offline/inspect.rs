//! Inspecting captured servers: every check passes, fails and cannot tell where it must; the first
//! story's server gives the story's answer; damaged captures are survived.
//!
//! - captures: captured servers, and changes to them
//! - drives: what makers state about drives, and drives of several namespaces
//! - outputs: what somebody sent

mod captures;
mod drives;
mod outputs;

use crate::inspect::diagram::Measured;
use crate::inspect::server::Server;
use crate::inspect::topology::{Given, Topology};
use crate::inspect::{Inspection, Verdict, page};
use crate::metrics::bandwidth::Rate;
use crate::qualify::reference::{Reference, SYNTHETIC};
use crate::redact::redact;
use crate::source::{Capture, Source};
use crate::validity::Outcome;
use captures::{
    AFTER, ALL, BEFORE, DESKTOP, Edits, FLASH, JBOD, capture, check, edited, inspection, server,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

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

#[test]
fn the_story_s_server_is_refused_for_its_memory_and_for_nothing_else() {
    let story = inspection(BEFORE);
    assert_eq!(story.verdict, Verdict::NotQualified);
    let wanted =
        ["memory.channels_populated", "memory.bandwidth_for_rebuild", "memory.speed_configured"];
    assert_eq!(all_that(&story, Outcome::Fail), wanted);
    // Reading raw drives hides it, as it did in the story; the rebuild shows it.
    assert_eq!(story.read.carried, Rate::mega(15_900));
    assert!(story.read.is_limited_by_drives());
    assert_eq!(story.rebuild.carried, Rate::mega(2 * 17_064 / 4));
    let narrowest: Vec<&str> =
        story.rebuild.narrowest.iter().map(|at| story.topology.links[*at].id.as_str()).collect();
    assert_eq!(narrowest, ["memory of socket 0>", "memory of socket 1>"]);
    assert!(page::text(&story, false).starts_with("NOT QUALIFIED: 2 checks fail"));
}

#[test]
fn four_modules_in_the_right_slots_qualify_it_and_double_the_rebuild() {
    let (story, repaired) = (inspection(BEFORE), {
        let before = server(capture(BEFORE));
        Inspection::of(server(capture(AFTER)), Some(&before), Given::default())
    });
    assert_eq!(repaired.verdict, Verdict::Qualified);
    assert!(repaired.rebuild.is_limited_by_drives());
    let ratio = repaired.rebuild.carried.share_of(story.rebuild.carried);
    assert!((1.8..2.1).contains(&ratio), "{ratio}");
    // What still could be better is a note, with both figures.
    assert!(
        page::text(&repaired, false).contains("4 modules run at 2133 MT/s and are made for 2400")
    );
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
fn the_story_s_controllers_have_the_room_that_it_computed() {
    let story = inspection(AFTER);
    let links = &story.topology.links;
    let to_sockets: Vec<_> =
        links.iter().enumerate().filter(|(_, it)| it.standard.starts_with("PCIe")).collect();
    assert_eq!(to_sockets.len(), 4);
    let sum: u64 = to_sockets.iter().filter_map(|(_, it)| it.capacity).map(|it| it.0).sum();
    assert_eq!(Rate(sum), Rate::mega(24_000));
    for (at, link) in to_sockets {
        assert_eq!(link.capacity, Some(Rate::mega(6_000)));
        assert_eq!(story.read.by_link[at], Rate::mega(3_975));
    }
}

#[test]
fn a_half_trained_drive_and_a_thin_uplink_are_named() {
    let flash = inspection(FLASH);
    let text = page::text(&flash, false);
    assert!(
        text.contains(
            "0000:48:00.0: 1 of 26 links below what both ends can: PCIe 4.0 x2 of PCIe 4.0 x4"
        ),
        "{text}"
    );
    let jbod = inspection(JBOD);
    assert_eq!(jbod.read.carried, Rate::mega(4 * 2_400));
    assert_eq!(jbod.read.narrowest.len(), 4);
    assert!(page::text(&jbod, false).contains("expander-0:0 to 01:00.0"));
}

#[test]
fn with_few_drives_the_same_uplinks_are_wide_enough() {
    let given = Given { drive_count: Some(8), ..Given::default() };
    let jbod = Inspection::of(server(capture(JBOD)), None, given);
    assert_eq!(jbod.topology.drive_count, 8);
    assert!(jbod.read.is_limited_by_drives());
    assert_eq!(jbod.read.carried, Rate::mega(8 * 270));
}

#[test]
fn what_the_operator_gives_replaces_what_was_assumed() {
    let given = Given { drive_rate: Some(Rate::mega(100)), ..Given::default() };
    let topology = Topology::of(&server(capture(JBOD)), given);
    assert!(topology.assumptions.is_empty(), "{:?}", topology.assumptions);
    let sockets = Given { inter_socket: Some(Rate::mega(32_000)), ..Given::default() };
    let topology = Topology::of(&server(capture(BEFORE)), sockets);
    assert_eq!(topology.links.iter().filter(|it| it.standard == "between sockets").count(), 2);
}

#[test]
fn a_kernel_that_eats_memory_between_two_looks_is_told_with_the_slab_that_grew() {
    let look = |kernel: &str, slab: &str| {
        let files = [("/proc/meminfo", kernel), ("/proc/slabinfo", slab)];
        let set = files.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
        server(edited(&Edits { of: AFTER.into(), set, ..Edits::default() }))
    };
    let before = look(
        "MemTotal: 67108864 kB\nMemAvailable: 50000000 kB\nSUnreclaim: 500000 kB",
        "raid6-md0 1 100 4096\ndentry 1 1000 192",
    );
    let after = look(
        "MemTotal: 67108864 kB\nMemAvailable: 40000000 kB\nSUnreclaim: 9500000 kB",
        "raid6-md0 1 2000000 4096\ndentry 1 1100 192",
    );
    let judge = |now: Server, before: &Server| {
        check(&Inspection::of(now, Some(before), Given::default()), "memory.space")
    };
    let (outcome, found) = judge(after.clone(), &before);
    assert_eq!(outcome, Outcome::Fail);
    assert!(
        found.ends_with("grew by 9.22 GB between the two captures, most raid6-md0 by 8.19 GB"),
        "{found}"
    );
    assert_eq!(judge(after.clone(), &after).0, Outcome::Pass);
}

#[test]
fn empty_cells_of_the_resource_table_are_seen() {
    let text = page::text(&inspection(BEFORE), false);
    let row = text.lines().find(|it| it.contains("memory, bandwidth")).expect("a row");
    assert_eq!(row.matches("[empty]").count(), 3);
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
    assert!(
        !svg.contains("http://www.w3.org/1999/xhtml")
            && !svg.contains("<script")
            && !svg.contains("url(")
    );
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

/// A link that no flow is led over was called too narrow, beside a flow that the drives limit.
#[test]
fn a_link_over_which_nothing_is_led_is_not_judged_and_the_page_says_what_is_left_out() {
    let given = Given { inter_socket: Some(Rate::mega(1_000)), ..Given::default() };
    let after = Inspection::of(server(capture(AFTER)), None, given.clone());
    let (outcome, found) = check(&after, "controller.oversubscribed");
    assert_eq!(outcome, Outcome::Pass, "{found}");
    let left_out = "Not in this figure: what crosses between the sockets.";
    let text = page::text(&after, false);
    assert!(text.contains(left_out), "{text}");
    let desktop = Inspection::of(server(capture(DESKTOP)), None, given);
    assert!(!page::text(&desktop, false).contains(left_out), "it has one socket");
}
