//! What stays on disk: rotation, the bound, ends cut short, disks that take nothing.

use super::files::{Files, path};
use super::{HistoryKeeper, read};
use crate::events::Ending;
use ashlar_api::v1::event::Event;
use ashlar_api::v1::severity::Severity;
use ashlar_engine::EventLog;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;

fn event(sequence: u64) -> Event {
    Event {
        sequence,
        unix_ms: sequence * 10,
        name: "member.failed".to_owned(),
        severity: Severity::Error,
        array: Some("tank0".to_owned()),
        fields: BTreeMap::from([("slot".to_owned(), "3".to_owned())]),
    }
}

fn sequences(folder: &Path) -> (Vec<u64>, u64) {
    let past = read(folder, |_| true).expect("readable");
    (past.events.iter().map(|event| event.sequence).collect(), past.unreadable)
}

fn ended() -> Ending {
    let ending = Ending::default();
    ending.0.store(true, Ordering::Release);
    ending
}

#[test]
fn events_read_back_as_they_were_written_and_only_those_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut files, is_cut) = Files::open(folder.path(), 1 << 20).expect("new");
    assert!(!is_cut);
    let events: Vec<Event> = (1..=5).map(event).collect();
    files.append(events.iter()).expect("written");
    assert_eq!(read(folder.path(), |_| true).expect("readable").events, events);
    let late = read(folder.path(), |event| event.unix_ms >= 40).expect("readable");
    assert_eq!(late.events, events[3..]);
}

#[test]
fn the_newest_events_stay_and_the_files_keep_within_the_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let limit = 8192;
    let (mut files, _) = Files::open(folder.path(), limit).expect("new");
    for sequence in 1..=1000 {
        files.append([event(sequence)].iter()).expect("written");
    }
    let bytes: u64 = std::fs::read_dir(folder.path())
        .expect("there")
        .map(|it| it.expect("readable").metadata().expect("there").len())
        .sum();
    assert!(bytes <= limit && bytes > limit / 2, "{bytes}");
    assert_eq!(files.bytes(), bytes);
    let (kept, unreadable) = sequences(folder.path());
    assert_eq!(unreadable, 0);
    assert_eq!(kept.last(), Some(&1000));
    assert!(kept.windows(2).all(|two| two[0] + 1 == two[1]), "{kept:?}");
    drop(files);
    let (files, _) = Files::open(folder.path(), limit).expect("there");
    assert_eq!(files.bytes(), bytes, "also for the next daemon");
}

/// One batch may be larger than a file.
#[test]
fn many_events_at_once_are_dealt_out_to_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut files, _) = Files::open(folder.path(), 8192).expect("new");
    let events: Vec<Event> = (1..=40).map(event).collect();
    files.append(events.iter()).expect("written");
    assert!(path(folder.path(), 1).exists());
    let (kept, _) = sequences(folder.path());
    assert_eq!(kept.last(), Some(&40));
    for age in 0..4 {
        let bytes = std::fs::metadata(path(folder.path(), age)).map_or(0, |about| about.len());
        assert!(bytes <= 2048, "{age}: {bytes}");
    }
}

#[test]
fn a_last_line_that_a_crash_cut_short_is_left_out_and_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut files, _) = Files::open(folder.path(), 1 << 20).expect("new");
    files.append([event(1), event(2)].iter()).expect("written");
    drop(files);
    let mut file = OpenOptions::new().append(true).open(path(folder.path(), 0)).expect("there");
    file.write_all(b"{\"sequence\":3,\"uni").expect("written");
    assert_eq!(sequences(folder.path()), (vec![1, 2], 1), "a reader counts it");
    let recorder = HistoryKeeper::new(folder.path(), 1 << 20);
    let line = recorder.open().expect("opened").expect("said");
    assert!(line.contains("was cut short by a crash"), "{line}");
    let log = EventLog::new(16);
    recorder.follow(&log, &ended());
    let past = read(folder.path(), |_| true).expect("readable");
    assert_eq!((past.events.len(), past.unreadable), (3, 0));
    assert_eq!(past.events[2].name, "history.gap");
    assert!(past.events[2].fields["reason"].contains("cut short"), "{past:?}");
}

#[test]
fn a_second_daemon_does_not_write_into_the_same_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = Files::open(folder.path(), 1 << 20).expect("new");
    let error = HistoryKeeper::new(folder.path(), 1 << 20).open().expect_err("taken");
    assert!(error.contains("another daemon writes its history there"), "{error}");
    drop(first);
    assert!(HistoryKeeper::new(folder.path(), 1 << 20).open().is_ok());
}

#[test]
fn a_history_that_cannot_be_written_is_one_event_and_goes_on_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("state");
    std::fs::write(&place, "a file where the folder should be").expect("written");
    let recorder = HistoryKeeper::new(&place, 1 << 20);
    assert!(recorder.open().is_err());
    let log = EventLog::new(16);
    log.record("member.failed", "tank0", Vec::new());
    recorder.follow(&log, &ended());
    recorder.follow(&log, &ended());
    let status = recorder.status();
    assert!(status.error.is_some() && status.written == 0, "{status:?}");
    let names = |log: &EventLog| log.since(0).iter().map(|event| event.name).collect::<Vec<_>>();
    assert_eq!(names(&log), ["member.failed", "history.failed", "history.failed"]);
    std::fs::remove_file(&place).expect("ours");
    recorder.follow(&log, &ended());
    assert_eq!(recorder.status().error, None);
    assert_eq!(sequences(&place), (vec![1, 2, 3], 0));
}

#[test]
fn events_that_were_too_many_leave_a_gap_that_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let recorder = HistoryKeeper::new(folder.path(), 1 << 20);
    recorder.open().expect("opened");
    let log = EventLog::new(2);
    for _ in 0..5 {
        log.record("member.failed", "tank0", Vec::new());
    }
    recorder.follow(&log, &ended());
    let past = read(folder.path(), |_| true).expect("readable");
    let names: Vec<&str> = past.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["history.gap", "member.failed", "member.failed"]);
    assert_eq!(past.events[0].fields["missed"], "3");
    assert_eq!(recorder.status().missed, 3);
}
