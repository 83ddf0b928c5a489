//! What the two sides may rely on: names read back, unknown fields are refused, paths are distinct.

use super::array::{Assemble, Create, Policy, Stop};
use super::event::{EVENTS_PATH, FOLLOW_PATH};
use super::export::{FuseAttach, FuseDetach, NbdListen};
use super::growth::Grow;
use super::job::{JobControl, JobKind, JobStatus, ScrubStart};
use super::member::{Fail, ReAdd, Replace};
use super::spare::{SpareAdd, SpareRemove};
use super::status::{GetStatus, METRICS_PATH};
use crate::Call;
use ashlar_layout::Level;

#[test]
fn a_request_names_its_level_as_layout_prints_and_reads_it() {
    for level in Level::all() {
        let name = serde_json::to_string(&level).expect("a name");
        assert_eq!(name, format!("\"{level}\""));
        assert_eq!(serde_json::from_str::<Level>(&name).expect("its own name"), level);
    }
    assert_eq!(serde_json::from_str::<Level>("\"RAID6\"").expect("another spelling"), Level::Raid6);
    let refused = serde_json::from_str::<Level>("\"raid4\"").expect_err("no such level");
    assert!(refused.to_string().contains("7.3"), "{refused}");
}

#[test]
fn policies_read_what_they_print_and_promise_something() {
    for (policy, name, promise) in Policy::NAMES {
        assert_eq!(name.parse(), Ok(policy));
        assert_eq!(policy.to_string(), name);
        assert_eq!(Policy::promise_of(name), promise);
    }
    assert!("journal".parse::<Policy>().expect_err("no such policy").to_string().contains("log"));
    assert_eq!(Policy::promise_of("journal"), "");
    let text = r#"{"name": "a", "level": "6", "devices": ["x"], "policy": "log"}"#;
    let create: Create = serde_json::from_str(text).expect("a request");
    assert_eq!(create.policy, Some(Policy::Log));
}

#[test]
fn a_request_with_an_unknown_field_is_refused() {
    let good = r#"{"name": "a", "level": "raid6", "devices": ["x"]}"#;
    let bad = r#"{"name": "a", "level": "raid6", "devices": ["x"], "discrad": true}"#;
    assert!(serde_json::from_str::<Create>(good).is_ok());
    let refusal = serde_json::from_str::<Create>(bad).expect_err("misspelt").to_string();
    assert!(refusal.contains("discrad"), "{refusal}");
}

#[test]
fn an_optional_field_left_out_is_its_default() {
    let create: Create =
        serde_json::from_str(r#"{"name": "a", "level": "5", "devices": []}"#).expect("short form");
    assert_eq!((create.strip_bytes, create.dry_run, create.spares.len()), (None, false, 0));
}

#[test]
fn every_path_is_versioned_and_used_once() {
    let mut paths = vec![
        Create::PATH,
        Assemble::PATH,
        Stop::PATH,
        Grow::PATH,
        Fail::PATH,
        Replace::PATH,
        ReAdd::PATH,
        SpareAdd::PATH,
        SpareRemove::PATH,
        ScrubStart::PATH,
        JobControl::PATH,
        NbdListen::PATH,
        FuseAttach::PATH,
        FuseDetach::PATH,
        GetStatus::PATH,
        METRICS_PATH,
        EVENTS_PATH,
        FOLLOW_PATH,
    ];
    assert!(paths.iter().all(|path| path.starts_with("/v1/")));
    let all = paths.len();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), all);
}

#[test]
fn a_job_is_at_100_percent_only_when_all_is_done() {
    let at = |done_stripes, total_stripes| {
        let job = JobStatus {
            id: 1,
            kind: JobKind::Scrub,
            slot: None,
            done_stripes,
            total_stripes,
            bytes: 0,
            bytes_per_second: 0,
            left_seconds: None,
            paused: false,
            mismatches: 0,
            repaired: 0,
            unrepairable: 0,
        };
        job.percent()
    };
    assert_eq!((at(0, 0), at(999, 1000), at(1000, 1000)), (0, 99, 100));
    assert_eq!(at(u64::MAX - 1, u64::MAX), 99);
}
