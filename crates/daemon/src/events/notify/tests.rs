//! The queue with a clock of its own, and deliveries to stand-ins.

use super::http::{self, Address};
use super::outbox::{Next, Outbox};
use super::{Way, ways};
use crate::config::NotifyConfig;
use crate::events::Ending;
use ashlar_api::v1::event::Event;
use ashlar_api::v1::severity::Severity;
use ashlar_engine::EventLog;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

fn event(sequence: u64, severity: Severity) -> Event {
    Event {
        sequence,
        unix_ms: 0,
        name: "member.failed".to_owned(),
        severity,
        array: Some("tank0".to_owned()),
        fields: BTreeMap::new(),
    }
}

fn sent(next: Next) -> Option<Event> {
    match next {
        Next::Send(event) => Some(*event),
        Next::Wait(_) => None,
    }
}

#[test]
fn a_flood_is_a_few_messages_and_a_summary_that_counts_the_rest() {
    let now = Instant::now();
    let mut outbox = Outbox::new(3, now);
    for sequence in 1..=500 {
        let is_worst = sequence == 400;
        outbox.push(event(sequence, if is_worst { Severity::Critical } else { Severity::Error }));
    }
    let mut messages = Vec::new();
    while let Some(event) = sent(outbox.next(now)) {
        messages.push(event);
        outbox.delivered();
    }
    assert_eq!(messages.len(), 3);
    assert_eq!((messages[0].sequence, messages[1].sequence), (1, 2));
    let summary = &messages[2];
    assert_eq!(summary.name, "notify.summary");
    assert_eq!(summary.severity, Severity::Critical);
    assert_eq!(summary.fields["count"], "498");
    assert_eq!(summary.fields["names"], "498 member.failed");
    assert_eq!(outbox.figures(), (0, 498));
    outbox.push(event(501, Severity::Error));
    assert!(sent(outbox.next(now)).is_none(), "the rate holds");
    let later = now + Duration::from_secs(20);
    assert_eq!(sent(outbox.next(later)).expect("allowed again").sequence, 501);
}

#[test]
fn a_failed_delivery_is_tried_again_later_and_later_and_at_last_counted() {
    let mut now = Instant::now();
    let mut outbox = Outbox::new(10, now);
    outbox.push(event(1, Severity::Error));
    let mut pauses = Vec::new();
    let mut attempts = 0;
    while outbox.figures().1 == 0 {
        attempts += 1;
        assert!(attempts < 100, "it is given up at last");
        assert_eq!(sent(outbox.next(now)).expect("it is due").sequence, 1);
        outbox.failed(now);
        let Next::Wait(pause) = outbox.next(now) else { panic!("it waits") };
        pauses.push(pause.as_secs());
        now += pause;
    }
    assert_eq!(pauses[..4], [1, 2, 4, 8]);
    assert_eq!(pauses.iter().max(), Some(&300));
    let summary = sent(outbox.next(now)).expect("what was given up is counted");
    assert_eq!((summary.name.as_str(), summary.fields["count"].as_str()), ("notify.summary", "1"));
    outbox.delivered();
    assert_eq!(outbox.figures(), (0, 1));
}

#[test]
fn the_queue_is_bounded_and_events_that_were_missed_are_counted() {
    let now = Instant::now();
    let mut outbox = Outbox::new(1000, now);
    for sequence in 1..=10_000 {
        outbox.push(event(sequence, Severity::Error));
    }
    outbox.missed(5);
    assert_eq!(outbox.figures(), (65, 10_000 - 64 + 5));
    let mut told = 0;
    while let Some(event) = sent(outbox.next(now)) {
        told += event.fields.get("count").map_or(1, |count| count.parse::<u64>().expect("sound"));
        outbox.delivered();
    }
    assert_eq!(told, 10_005);
}

#[test]
fn urls_that_can_be_used_and_those_that_cannot() {
    for (url, name) in [
        ("http://localhost", "http://localhost:80/"),
        ("http://host:8080/a/b?token=x#y", "http://host:8080/a/b"),
        ("http://[::1]:99?x", "http://[::1]:99/"),
    ] {
        assert_eq!(Address::parse(url).expect(url).name(), name);
    }
    for (url, why) in [
        ("https://host/", "run = [\"curl\""),
        ("ftp://host/", "is not a URL like"),
        ("http://", "is not a URL like"),
        ("http://host:0/", "is not a URL like"),
        ("http://host:x/", "is not a URL like"),
        ("http://ho st/", "is not a URL like"),
        ("http://host/\r\nX: y", "is not a URL like"),
        ("http://user:word@host/", "no user and password"),
    ] {
        let told = Address::parse(url).expect_err(url);
        assert!(told.contains(why), "{url}: {told}");
    }
}

/// A server that reads one request whole and says this.
fn server(answer: &'static str) -> (Address, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let serve = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let (mut text, mut bytes) = (String::new(), [0; 4096]);
        while !text.ends_with("{\"a\":1}") {
            let count = stream.read(&mut bytes).expect("a request");
            text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        stream.write_all(answer.as_bytes()).expect("answered");
        text
    });
    (Address::parse(&format!("http://127.0.0.1:{port}/hook?key=1")).expect("sound"), serve)
}

#[test]
fn a_document_is_posted_and_the_answer_decides() {
    let time = Duration::from_secs(120);
    for (answer, is_good) in [
        ("HTTP/1.1 204 No Content\r\n\r\n", true),
        ("HTTP/1.0 200 OK\r\n\r\n", true),
        ("HTTP/1.1 302 Found\r\n\r\n", false),
        ("HTTP/1.1 500 No\r\n\r\n", false),
        ("SSH-2.0\r\n", false),
        ("", false),
    ] {
        let (address, serving) = server(answer);
        let posted = http::post(&address, b"{\"a\":1}", time);
        assert_eq!(posted.is_ok(), is_good, "{answer}: {posted:?}");
        let request = serving.join().expect("served");
        assert!(request.starts_with("POST /hook?key=1 HTTP/1.1\r\nHost: 127.0.0.1:"), "{request}");
        assert!(request.contains("\r\nContent-Length: 7\r\n"), "{request}");
        assert!(posted.err().is_none_or(|told| !told.contains("key=1")), "no secrets");
    }
}

#[test]
fn a_server_that_says_nothing_is_given_up_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let address = Address::parse(&format!("http://127.0.0.1:{port}/")).expect("sound");
    let told = http::post(&address, b"{}", Duration::from_millis(100)).expect_err("in vain");
    assert!(told.contains("timed out"), "{told}");
}

fn only(config: &NotifyConfig) -> Way {
    ways(config).next().expect("one way")
}

fn running(script: &str) -> NotifyConfig {
    let run = ["sh", "-c", script].map(str::to_owned).to_vec();
    NotifyConfig { run, timeout_s: Some(120), ..NotifyConfig::default() }
}

#[test]
fn a_program_that_hangs_or_fails_is_a_failed_test_with_the_reason() {
    let hangs = NotifyConfig { timeout_s: Some(1), ..running("sleep 1000 & sleep 1000") };
    let hung = only(&hangs).test();
    assert_eq!(hung.error.as_deref(), Some("sh did not end within 1 s"));
    let failed = only(&running("exit 3")).test();
    assert_eq!(failed.error.as_deref(), Some("sh ended with exit status: 3"));
    let absent = NotifyConfig { run: vec!["/no/such".to_owned()], ..NotifyConfig::default() };
    let absent = only(&absent).test().error.expect("it is not there");
    assert!(absent.starts_with("/no/such: No such file"), "{absent}");
}

/// A failure that is an event that is delivered in vain would go on for ever.
#[test]
fn a_way_that_fails_tells_so_once_and_does_not_tell_itself() {
    let log = EventLog::new(64);
    for _ in 0..3 {
        log.record("member.failed", "tank0", Vec::new());
    }
    let ending = Ending::default();
    ending.0.store(true, Ordering::Release);
    let way = only(&running("exit 1"));
    way.follow(&log, &ending);
    let names: Vec<&str> = log.since(0).iter().map(|event| event.name).collect();
    assert_eq!(names.iter().filter(|name| **name == "notify.failed").count(), 1, "{names:?}");
    assert_eq!(names.len(), 4);
    let status = way.status();
    assert!(status.failed >= 1 && status.delivered == 0, "{status:?}");
    assert_eq!(status.error.as_deref(), Some("sh ended with exit status: 1"));
}

#[test]
fn only_what_matters_enough_is_told_with_its_fields_and_its_document() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("told").display().to_string();
    let log = EventLog::new(64);
    log.record("spare.added", "", Vec::new());
    let fields = vec![("slot", "3".to_owned()), ("path", "/dev/sdc".to_owned())];
    log.record("member.failed", "tank0", fields);
    let ending = Ending::default();
    ending.0.store(true, Ordering::Release);
    let script =
        format!("echo \"$ASHLAR_EVENT $ASHLAR_SLOT $ASHLAR_DEVICE\" >>{place}; cat >>{place}");
    let way = only(&running(&script));
    way.follow(&log, &ending);
    assert_eq!(way.status().delivered, 1);
    let told = std::fs::read_to_string(place).expect("told");
    let (line, document) = told.split_once('\n').expect("two parts");
    assert_eq!(line, "member.failed 3 /dev/sdc");
    let document: serde_json::Value = serde_json::from_str(document).expect("JSON");
    assert_eq!(document["severity"], "error");
    assert_eq!(document["fields"]["path"], "/dev/sdc");
    assert!(document["message"].as_str().expect("text").starts_with("tank0: a member was taken"));
}

#[test]
fn a_mail_has_a_head_that_no_field_can_add_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let (sendmail, place) = (folder.path().join("sendmail"), folder.path().join("mail"));
    let script = format!("#!/bin/sh\necho \"$@\" >{0}\ncat >>{0}\n", place.display());
    std::fs::write(&sendmail, script).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&sendmail, mode).expect("ours");
    let log = EventLog::new(4);
    let fields = vec![("reason", "x\nBcc: everybody@example.org\n\nü".to_owned())];
    log.record("member.failed", "tank0", fields);
    let ending = Ending::default();
    ending.0.store(true, Ordering::Release);
    let mail = vec!["admin@example.org".to_owned(), "root".to_owned()];
    let config = NotifyConfig { mail, sendmail: Some(sendmail), ..NotifyConfig::default() };
    let way = only(&config);
    // A script that was just written is busy for a moment if another test forks just then.
    let is_sent = (0..100).any(|_| {
        way.follow(&log, &ending);
        way.status().delivered > 0
    });
    assert!(is_sent, "{:?}", way.status());
    let mail = std::fs::read_to_string(place).expect("sent");
    let (head, body) = mail.split_once("\n\n").expect("a head and a body");
    assert!(
        head.starts_with("-i -- admin@example.org root\nTo: admin@example.org, root\n"),
        "{head}"
    );
    assert!(head.contains("\nSubject: [ashlar "), "{head}");
    assert!(head.is_ascii() && !head.contains("\nBcc:"), "{head}");
    assert!(body.contains("severity  error") && body.contains('ü'), "{body}");
}
