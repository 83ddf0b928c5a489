//! The page of made-up statuses: what it says, and what nobody can make it say.

use super::frame::{Frame, Seen};
use super::history::History;
use super::made_up::{array, job, member, status};
use super::{SCRIPT, STYLE, Whole, hash, look, policy};
use ashlar_api::v1::array::{ArrayState, Pause};
use ashlar_api::v1::check::{Finding, Health, Verdict};
use ashlar_api::v1::event::Event;
use ashlar_api::v1::member::{Bay, LastDevice, MemberState};
use ashlar_api::v1::severity::Severity;
use ashlar_api::v1::spare::{Spare, SparePool};
use ashlar_api::v1::status::{AbsentArray, Status};
use askama::Template;

fn frame(status: &Status, events: &[&Event]) -> Frame {
    let history = History::default();
    Frame::of(Seen { status, history: &history, events, unix_ms: 951_782_400_000 })
}

fn page(status: &Status, events: &[&Event]) -> String {
    let frame = frame(status, events);
    Whole { host: "<host>&", look: look(), frame: &frame }.render().expect("a page")
}

fn bay(enclosure: &str, name: &str) -> Bay {
    let (enclosure, name) = (Some(enclosure.to_owned()), Some(name.to_owned()));
    Bay { enclosure, name, ..Bay::default() }
}

fn event(name: &str, severity: Severity, reason: &str) -> Event {
    Event {
        sequence: 1,
        unix_ms: 951_782_400_000,
        name: name.to_owned(),
        severity,
        array: Some("tank0".to_owned()),
        fields: [("reason".to_owned(), reason.to_owned())].into(),
    }
}

#[test]
fn each_state_of_an_array_has_its_word_and_its_sign() {
    use ArrayState::{Clean, Degraded, Failed, ReadOnly, Resyncing};
    let mut signs = std::collections::BTreeSet::new();
    for (state, sign) in [
        (Clean, "clean"),
        (Resyncing, "resyncing"),
        (Degraded, "attention"),
        (ReadOnly, "read-only"),
        (Failed, "failed"),
    ] {
        let mut one = array("tank0");
        one.state = state;
        let drawn = frame(&status(vec![one]), &[]);
        let wanted = format!("#sign-{sign}\"/></svg>{state}</p>");
        assert!(drawn.part("arrays-now").contains(&wanted), "{wanted}: {drawn:?}");
        assert!(drawn.part("said").contains(&format!("tank0 is {state}.")), "{drawn:?}");
        assert!(signs.insert(sign), "{sign} means two states");
        assert!(page(&status(Vec::new()), &[]).contains(&format!("id=\"sign-{sign}\"")));
    }
    let mut one = array("tank0");
    one.taken_over_by = Some("in process 7 on host 'a'".to_owned());
    let drawn = frame(&status(vec![one]), &[]);
    assert!(drawn.part("arrays-now").contains("</svg>TAKEN OVER</p>"), "{drawn:?}");
    assert!(drawn.part("arrays-now").contains("in process 7 on host"), "{drawn:?}");
}

#[test]
fn each_state_of_a_slot_has_its_word_and_a_frame_of_its_own() {
    for (state, class, word) in [
        ("in_sync", "in-sync", "in sync"),
        ("rebuilding", "rebuilding", "rebuilding"),
        ("replacing", "replacing", "replacing"),
        ("failing", "failing", "FAILING"),
        ("out", "out", "OUT"),
    ] {
        let mut one = array("tank0");
        one.members = vec![member(3, state, "/dev/sdx")];
        if state == "rebuilding" {
            one.jobs = vec![job("rebuild", Some(3))];
        }
        let drawn = frame(&status(vec![one]), &[]);
        let slot = drawn.part("arrays-now");
        assert!(slot.contains(&format!("<li class=\"slot {class}\">")), "{slot}");
        assert!(slot.contains(&format!("</svg>{word}</span>")), "{word}: {slot}");
        let filled = slot.contains("value=\"41\"") && slot.contains("</progress> 41 %");
        assert_eq!(filled, state == "rebuilding", "{slot}");
        // The style draws a frame that no other state has.
        let rule = format!(".slot.{class} {{ border");
        assert_eq!(STYLE.matches(&rule).count(), 1, "{rule}");
    }
    assert_eq!(STYLE.matches(".slot.spare { border").count(), 1);
}

#[test]
fn a_slot_names_the_drive_to_pull_and_what_fills_it() {
    let mut one = array("tank0");
    let mut gone = member(0, "out", "");
    gone.last_device = Some(LastDevice {
        path: "/dev/sdq".to_owned(),
        serial: Some("S1".to_owned()),
        model: Some("M2".to_owned()),
        bay: bay("0x5003", "Slot 07"),
        host: Some("store1".to_owned()),
    });
    let mut leaving = member(1, "replacing", "/dev/sdr");
    leaving.replacement = Some("/dev/sds".to_owned());
    (leaving.read_errors, leaving.silent_ms) = (3, 7400);
    one.members = vec![gone, leaving, member(2, "out", "")];
    let drawn = frame(&status(vec![one]), &[]);
    let slots = drawn.part("arrays-now");
    for words in [
        "/dev/sdq",
        "S1",
        "M2",
        "was here last, on host store1",
        "filling /dev/sds",
        "3 errors",
        "SILENT for 7 s",
    ] {
        assert!(slots.contains(&format!("<bdi>{words}</bdi>")), "{words}: {slots}");
    }
    assert!(slots.contains("no device"), "{slots}");
    assert!(slots.contains("enclosure 0x5003, bay Slot 07"), "{slots}");
}

#[test]
fn slots_stand_group_by_group_and_spares_by_themselves() {
    let mut one = array("tank0");
    one.groups = 2;
    let path = |slot: u16| format!("/dev/sd{slot}");
    one.members = (0..6).map(|slot| member(slot, "in_sync", &path(slot))).collect();
    let mut all = status(vec![one]);
    let spare = Spare {
        path: "/dev/waits".to_owned(),
        serial: Some("S9".to_owned()),
        bay: bay("0x5003", "Slot 09"),
        health: None,
        device_bytes: 1 << 40,
        atomic_write_bytes: None,
    };
    all.spare_pools = vec![SparePool { name: "shelf".to_owned(), spares: vec![spare] }];
    let drawn = frame(&all, &[]);
    let html = drawn.part("arrays-now");
    let at = |words: &str| html.find(words).unwrap_or_else(|| panic!("{words}: {html}"));
    let order = [
        "Group 0",
        "/dev/sd2",
        "Group 1",
        "/dev/sd3",
        "/dev/sd5",
        "shelf",
        "/dev/waits",
        "Slot 09",
    ];
    assert!(order.windows(2).all(|two| at(two[0]) < at(two[1])), "{html}");
    assert!(html.contains("slot spare") && html.contains("</svg>spare</span>"), "{html}");
}

/// Blocks of a member that were repaired thousands of times were nothing wrong for monitoring.
#[test]
fn repaired_blocks_count_as_errors_of_their_member() {
    let mut one = array("tank0");
    let mut worn = member(0, "in_sync", "/dev/sdx");
    (worn.repaired_blocks, worn.read_errors) = (5, 2);
    one.members = vec![worn];
    let verdict = Verdict::of(&status(vec![one]));
    let is_told = |it: &&Finding| it.what.contains("slot 0 has 5 errors");
    let told = verdict.findings.iter().find(is_told).expect("told");
    assert_eq!(told.health, Health::Attention);
}

#[test]
fn absent_arrays_pauses_jobs_and_exports_are_told() {
    let mut one = array("tank0");
    one.pause = Some(Pause { slots: vec![1, 2], waiting: 5 });
    one.jobs = vec![job("scrub", None)];
    let mut all = status(vec![one]);
    all.absent = vec![AbsentArray {
        name: "tank7".to_owned(),
        devices: vec!["/dev/disk/by-id/x*".to_owned()],
        reason: "too few members".to_owned(),
        starting: false,
    }];
    all.exports = vec![
        serde_json::from_value(serde_json::json!({
            "protocol": "nbd", "requests": 12_345, "address": "unix:/run/x", "clients": 3
        }))
        .expect("an export"),
    ];
    let page = page(&all, &[&event("job.started", Severity::Notice, "by hand")]);
    for words in [
        "ABSENT",
        "too few members",
        "/dev/disk/by-id/x*",
        "no space under slots 1, 2; 5 writes wait",
        "2 h 05 m",
        "1 MiB/s",
        "41 %",
        "unix:/run/x",
        "12,345",
        "02-29 00:00:00",
        "notice",
        "tank0: a job began: by hand",
        "FAILED",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

#[test]
fn what_stripes_of_a_pool_survive_is_told() {
    let mut one = array("pool0");
    one.lost_members = vec![
        serde_json::from_value(serde_json::json!({
            "slot": 1, "missing_cells": 1, "spare_cells": 2, "in_place_cells": 0
        }))
        .expect("a lost member"),
    ];
    let mut told = |exposure: serde_json::Value| {
        one.exposure = serde_json::from_value(exposure).expect("as it is sent");
        page(&status(vec![one.clone()]), &[])
    };
    let critical =
        serde_json::json!({"survive": 0, "stripes": 1234, "waiting": 0, "left_seconds": 245});
    let exposed = told(serde_json::json!({
        "surviving": [1234, 0, 98766], "beyond_parity": 7, "critical": critical
    }));
    let words = "stripes: 7 cannot be read, 1,234 survive no more loss, 98,766 survive 2 more \
                 losses   critical: rebuilt in about 4 m 05 s";
    assert!(exposed.contains(&format!(r#"<p class="warning"><bdi>{words}"#)), "{exposed}");
    let whole =
        told(serde_json::json!({"surviving": [0, 0, 7], "beyond_parity": 0, "critical": null}));
    assert!(whole.contains("<li>all stripes survive 2 more losses</li>"), "{whole}");
}

#[test]
fn nothing_that_a_device_or_a_peer_says_becomes_markup() {
    let evil = "<img src=x onerror=alert(1)>\"'&</script>\n\u{1b}[2J";
    let mut one = array(evil);
    one.uuid = evil.to_owned();
    one.policy = evil.to_owned();
    one.checksums = evil.to_owned();
    one.taken_over_by = Some(evil.to_owned());
    let mut bad = member(0, "out", evil);
    bad.serial = Some(evil.to_owned());
    bad.model = Some(evil.to_owned());
    bad.replacement = Some(evil.to_owned());
    let mut gone = member(1, "out", "");
    let last = Some(evil.to_owned());
    gone.last_device = Some(LastDevice {
        path: evil.to_owned(),
        serial: last.clone(),
        model: last.clone(),
        bay: bay(evil, evil),
        host: last,
    });
    one.members = vec![bad, gone];
    one.jobs = vec![job("scrub", None)];
    let mut all = status(vec![one]);
    all.version = evil.to_owned();
    all.kernel = evil.to_owned();
    all.absent = vec![AbsentArray {
        name: evil.to_owned(),
        devices: vec![evil.to_owned()],
        reason: evil.to_owned(),
        starting: false,
    }];
    all.spare_pools = vec![SparePool {
        name: evil.to_owned(),
        spares: vec![Spare {
            path: evil.to_owned(),
            serial: Some(evil.to_owned()),
            bay: bay(evil, evil),
            health: None,
            device_bytes: 1,
            atomic_write_bytes: None,
        }],
    }];
    all.exports = vec![
        serde_json::from_value(serde_json::json!({
            "protocol": evil, "requests": 1, "address": evil, "clients": 1, "array": evil
        }))
        .expect("an export"),
    ];
    let events = [event(evil, Severity::Critical, evil)];
    let page = page(&all, &[&events[0]]);
    let hostile = page.matches("&#60;img src=x onerror=alert(1)&#62;").count();
    assert!(hostile >= 25, "{hostile} of them are there, escaped: {page}");
    assert!(!page.contains("<img"), "{page}");
    let control = page.find(|it: char| it.is_control() && it != '\n');
    assert_eq!(control.map(|at| &page[at.saturating_sub(200)..at]), None);
    assert!(page.contains("<bdi>&#60;host&#62;&#38;</bdi>"), "{page}");
    // One script, and its end is its own.
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (1, 1));
    // No attribute is left by a quote: each is followed by what the templates have there.
    let quoted = page.matches("&#34;&#39;&#38;&#60;/script&#62;").count();
    assert_eq!(quoted, hostile, "{page}");
}

#[test]
fn only_parts_that_changed_are_sent() {
    let mut one = array("tank0");
    one.members = vec![member(0, "in_sync", "/dev/sda"), member(1, "in_sync", "/dev/sdb")];
    let mut all = status(vec![one]);
    let before = frame(&all, &[]);
    assert!(frame(&all, &[]).since(&before).is_empty());
    assert_eq!(before.since(&Frame::default()).len(), before.0.len(), "at first, all of them");
    all.arrays[0].state = ArrayState::Degraded;
    all.arrays[0].members[1].state = MemberState::Out;
    let after = frame(&all, &[]);
    let names: Vec<&str> = after.since(&before).iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["said", "verdict", "arrays-now"]);
    // What runs, as the time of silence does, is no news for those who hear the page.
    all.arrays[0].members[0].silent_ms = 9000;
    let names = frame(&all, &[]);
    assert!(names.since(&after).iter().all(|(name, _)| *name != "said"));
}

#[test]
fn the_page_holds_all_parts_and_its_policy_names_what_it_holds() {
    let all = status(vec![array("tank0")]);
    let page = page(&all, &[]);
    for (name, _) in &frame(&all, &[]).0 {
        assert_eq!(page.matches(&format!("id=\"{name}\"")).count(), 1, "{name}");
    }
    assert_eq!(hash(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    for (open, text, close) in [("<style>", STYLE, "</style>"), ("<script>", SCRIPT, "</script>")] {
        let held = page.split_once(open).and_then(|(_, rest)| rest.split_once(close));
        assert_eq!(held.expect("it is there").0, text);
        assert!(policy().contains(&hash(text)));
    }
    // Neither attribute would be let through by the policy.
    assert!(!page.contains(" style=") && !page.contains(" onclick="));
    let said = policy();
    assert!(said.starts_with("default-src 'none';") && !said.contains("unsafe"), "{said}");
}

#[test]
fn without_arrays_the_page_says_how_to_begin() {
    let page = page(&status(Vec::new()), &[]);
    for words in ["No array runs", "ashlar create", "No job runs", "No volume is exported"] {
        assert!(page.contains(words), "{words}: {page}");
    }
}
