//! How operators hear of events: the history on disk, the journal, notifications, and the one line
//! for monitoring.

use crate::tools::{SmallRoom, run, wait_for};
use crate::world::World;
use std::fs::{OpenOptions, Permissions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::Output;
use std::sync::{Arc, Mutex};

/// Start with this configuration.
fn start_with(world: &mut World, config: &str) {
    let file = world.path("ashlar.toml");
    std::fs::write(&file, config).expect("written");
    // Whatever the umask of the tests is.
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
    world.start(&["--config", file.to_str().expect("text")]);
}

fn with(config: &str) -> World {
    let mut world = World::without_daemon();
    start_with(&mut world, config);
    world
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A program that appends what it gets to `NAME.got`.
fn stand_in(world: &World, name: &str, script: &str) -> String {
    let path = world.path(name);
    let draft = world.path(&format!("{name}.draft"));
    std::fs::write(&draft, format!("#!/bin/sh\n{script}\n")).expect("written");
    // By another process: one that a test beside starts meanwhile would have it open (ETXTBSY).
    run("cp", &[draft.to_str().expect("text"), path.to_str().expect("text")]);
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("ours");
    path.to_str().expect("text").to_owned()
}

fn read(world: &World, name: &str) -> String {
    std::fs::read_to_string(world.path(name)).unwrap_or_default()
}

#[test]
fn the_history_survives_a_kill_and_is_read_without_a_daemon() {
    let mut world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    world.ok(&["fail", "tank0", "2"]);
    let history = world.path("state/events/events.jsonl");
    let is_kept =
        || std::fs::read_to_string(&history).is_ok_and(|text| text.contains("member.failed"));
    wait_for("the event on disk", is_kept);
    world.kill();
    let told = world.run(&["events", "--since", "1h"]);
    assert!(told.status.success(), "{}", stderr(&told));
    let line = stdout(&told);
    let line = line.lines().find(|line| line.contains("member.failed")).expect("told");
    assert!(line.contains(" error ") && line.contains("m2") && line.contains("slot 2"), "{line}");
    assert_eq!(stdout(&world.run(&["events", "--since", "1h", "--array", "other"])), "");
    assert_eq!(stdout(&world.run(&["events", "--since", "2200-01-01"])), "");
    let json = world.ok(&["events", "--since", "2 days", "--array", "tank0", "--json"]);
    for line in json.lines() {
        let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(event["array"], "tank0");
    }
    assert!(!world.run(&["events"]).status.success(), "without --since a daemon is needed");
    let mut file = OpenOptions::new().append(true).open(&history).expect("there");
    file.write_all(b"{\"sequence\":77,\"uni").expect("written");
    let told = world.run(&["events", "--since", "1h"]);
    assert!(told.status.success() && stdout(&told).contains("member.failed"));
    assert!(stderr(&told).contains("1 line of the history"), "{}", stderr(&told));
    world.start(&[]);
    let said = world.said.lock().expect("ours").clone();
    assert!(said.contains("was cut short by a crash; it is left out"), "{said}");
    let told = world.run(&["events", "--since", "1h"]);
    assert_eq!(stderr(&told), "");
    let count = |name: &str| stdout(&told).matches(name).count();
    assert_eq!((count("member.failed"), count("daemon.started")), (1, 2), "{}", stdout(&told));
    assert!(world.end().success());
    let told = world.ok(&["events", "--since", "1h"]);
    assert!(told.lines().last().is_some_and(|line| line.contains("daemon.stopped")), "{told}");
}

#[test]
fn times_that_make_no_sense_and_folders_without_a_history_are_refused() {
    let world = World::without_daemon();
    let told = world.run(&["events", "--since", "yesterday"]);
    assert_eq!(told.status.code(), Some(2), "{}", stderr(&told));
    assert!(stderr(&told).contains("2 days"), "{}", stderr(&told));
    let told = world.run(&["events", "--since", "1h"]);
    assert_eq!(told.status.code(), Some(1));
    assert!(stderr(&told).contains("there is no history of events in"), "{}", stderr(&told));
}

#[test]
fn the_journal_gets_every_event_with_its_fields() {
    let mut world = World::without_daemon();
    let journal = UnixDatagram::bind(world.path("journal")).expect("ours");
    let place = world.path("journal").display().to_string();
    start_with(&mut world, &format!("[events]\njournal = \"{place}\"\n"));
    world.create("tank0", 4, &["--level", "6"]);
    world.ok(&["fail", "tank0", "2"]);
    let timeout = std::time::Duration::from_secs(120);
    journal.set_read_timeout(Some(timeout)).expect("set");
    let mut bytes = [0; 65_536];
    let entry = loop {
        let length = journal.recv(&mut bytes).expect("an event in time");
        let entry = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if entry.contains("ASHLAR_EVENT=member.failed\n") {
            break entry;
        }
    };
    for line in ["PRIORITY=3\n", "ASHLAR_ARRAY=tank0\n", "ASHLAR_SLOT=2\n", "MESSAGE_ID=8de1b09e"] {
        assert!(entry.contains(line), "{line} is missing in {entry}");
    }
    assert!(entry.contains(&format!("ASHLAR_DEVICE={}\n", world.path("m2").display())), "{entry}");
    drop(journal);
    // Without a journal the rest goes on.
    world.ok(&["scrub", "tank0", "--wait"]);
    assert!(world.end().success());
}

/// An HTTP server that answers each request and keeps what it got.
fn sink() -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
    let got = Arc::new(Mutex::new(String::new()));
    let keep = Arc::clone(&got);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let (mut text, mut bytes) = (String::new(), [0; 8192]);
            // Until the document is whole.
            while !text.ends_with("}") {
                let Ok(count @ 1..) = stream.read(&mut bytes) else { break };
                text.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            let _gone = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
            keep.lock().expect("ours").push_str(&format!("{text}\n"));
        }
    });
    (url, got)
}

#[test]
fn notifications_arrive_by_program_mail_and_url() {
    let mut world = World::without_daemon();
    let program =
        stand_in(&world, "program", "cat >>program.got; echo \" $ASHLAR_EVENT\" >>program.got");
    let sendmail = stand_in(&world, "sendmail", "echo \"$@\" >>mail.got; cat >>mail.got");
    let (url, got) = sink();
    start_with(
        &mut world,
        &format!(
            "[notify]\nrun = [\"{program}\", \"argument\"]\nmail = [\"admin@example.org\"]\n\
             sendmail = \"{sendmail}\"\nurl = \"{url}\"\n"
        ),
    );
    let told = world.ok(&["notify", "test"]);
    assert_eq!(told.matches(": arrived").count(), 3, "{told}");
    let tested = read(&world, "program.got");
    assert!(tested.contains("\"name\":\"notify.test\""), "{tested}");
    world.create("tank0", 4, &["--level", "6"]);
    world.ok(&["fail", "tank0", "2"]);
    let wait = |what: &str, read: &dyn Fn() -> String| {
        wait_for(what, || read().contains("member.failed"));
        read()
    };
    let by_program = wait("the program", &|| read(&world, "program.got"));
    assert!(by_program.contains("a member was taken out of service (slot 2, "), "{by_program}");
    assert!(!by_program.contains("array.created"), "it matters too little: {by_program}");
    let mail = wait("the mail", &|| read(&world, "mail.got"));
    assert!(mail.contains("-i -- admin@example.org\nTo: admin@example.org\n"), "{mail}");
    assert!(mail.contains("] error: tank0: a member was taken out of service"), "{mail}");
    let posted = wait("the post", &|| got.lock().expect("ours").clone());
    assert!(posted.contains("POST /hook HTTP/1.1"), "{posted}");
    let metrics = || world.ok(&["metrics"]);
    for way in ["run", "mail", "url"] {
        let line = format!("ashlar_notify_delivered_total{{way=\"{way}\"}} ");
        let is_counted = |told: &str| told.contains(&line) && !told.contains(&format!("{line}0\n"));
        wait_for(&line, || is_counted(&metrics()));
    }
    assert!(world.end().success());
}

#[test]
fn sinks_that_fail_hold_nothing_up_and_are_told_of() {
    let mut world = World::without_daemon();
    let program = stand_in(&world, "program", "sleep 600");
    let config = format!(
        "[notify]\nrun = [\"{program}\"]\nmail = [\"root\"]\nsendmail = \"/no/such/sendmail\"\n\
         url = \"http://127.0.0.1:9/\"\ntimeout_s = 2\n"
    );
    start_with(&mut world, &config);
    let told = world.run(&["notify", "test"]);
    assert_eq!(told.status.code(), Some(1), "{}", stderr(&told));
    assert!(stdout(&told).contains("program: FAILED: "), "{}", stdout(&told));
    assert!(stdout(&told).contains("did not end within 2 s"), "{}", stdout(&told));
    assert!(stdout(&told).contains("/no/such/sendmail: No such file"), "{}", stdout(&told));
    assert!(stderr(&told).contains("3 of 3 ways failed"), "{}", stderr(&told));
    world.create("tank0", 4, &["--level", "6"]);
    for slot in ["2", "3"] {
        world.ok(&["fail", "tank0", slot]);
    }
    // They hang or fail; the array works all the same.
    world.ok(&["scrub", "tank0", "--wait"]);
    let failing = || {
        let metrics = world.ok(&["metrics"]);
        let is_failing =
            |way: &str| metrics.contains(&format!("ashlar_notify_failing{{way=\"{way}\"}} 1\n"));
        ["run", "mail", "url"].into_iter().all(is_failing)
    };
    wait_for("all ways to fail", failing);
    let times = || world.ok(&["events"]).matches("notify.failed").count();
    wait_for("what is told of it", || times() >= 3);
    let events = world.ok(&["events"]);
    assert_eq!(events.matches("notify.failed").count(), 3, "once for each way: {events}");
    let screen = world.ok(&["status"]);
    assert!(screen.contains("notify mail FAILS"), "{screen}");
    let ended = world.end();
    assert!(ended.success(), "a sink that hangs does not stop the end");
    let events = world.ok(&["events", "--since", "1h"]);
    assert!(events.contains("member.failed") && events.contains("daemon.stopped"), "{events}");
}

#[test]
fn a_notification_that_is_not_configured_is_refused() {
    let world = World::new();
    let told = world.run(&["notify", "test"]);
    assert_eq!(told.status.code(), Some(1));
    assert!(stderr(&told).contains("no notification is configured"), "{}", stderr(&told));
}

/// The exit code and the line of `ashlar status --check`.
fn check(world: &World, arguments: &[&str]) -> (i32, String) {
    let told = world.run(&[&["status", "--check"], arguments].concat());
    assert_eq!(stderr(&told), "");
    let line = stdout(&told);
    assert_eq!(line.lines().count(), 1, "{line}");
    (told.status.code().expect("it ends"), line)
}

#[test]
fn the_check_says_right_attention_degraded_and_failed() {
    let mut world = World::without_daemon();
    let (code, line) = check(&world, &[]);
    assert_eq!(code, 3);
    assert!(line.starts_with("FAILED: no daemon answers at "), "{line}");
    world.start(&[]);
    assert_eq!(check(&world, &[]), (0, "RIGHT: nothing is wrong\n".to_owned()));
    world.create("tank0", 4, &["--level", "6"]);
    assert_eq!(check(&world, &[]).0, 0);
    world.ok(&["fail", "tank0", "2"]);
    let (code, line) = check(&world, &[]);
    assert_eq!(code, 2, "{line}");
    let place = world.path("m2").display().to_string();
    assert_eq!(line, format!("DEGRADED: tank0 slot 2 is out ({place})\n"));
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&world.run(&["status", "--check", "--json"]))).expect("JSON");
    assert_eq!(json["health"], "degraded");
    // The drive to pull stays known.
    assert_eq!(world.array()["members"][2]["last_device"]["path"], place.as_str());
    assert!(world.ok(&["status"]).contains(&format!("was {place}; give it a device")));
    let bay = "by_path=\"\",enclosure=\"\",bay=\"\"";
    let label =
        format!("slot=\"2\",device=\"{place}\",serial=\"\",model=\"\",{bay},state=\"out\"}} 1\n");
    assert!(world.ok(&["metrics"]).contains(&label));
    assert!(world.end().success());
    let config = |name: &str| {
        let folder = world.folder.path().display().to_string();
        format!("[[array]]\nname = \"{name}\"\ndevices = [\"{folder}/m[0-9]\"]\n")
    };
    let both = config("tank0") + &config("tank1") + "[notify]\nrun = [\"false\"]\n";
    start_with(&mut world, &both);
    let (code, line) = check(&world, &[]);
    assert_eq!(code, 3, "{line}");
    let out = format!("; tank0 slot 2 is out ({place})");
    assert!(line.contains("tank1 should run and does not: no member of array tank1"), "{line}");
    assert!(line.contains(&out), "the members kept which drive it was: {line}");
    assert_eq!(world.array()["members"][2]["last_device"]["path"], place.as_str());
    assert_eq!(check(&world, &["tank0"]).0, 2);
    let (code, line) = check(&world, &["tank1"]);
    assert!(code == 3 && line.contains("tank1 should run"), "{line}");
    assert_eq!(check(&world, &["tank7"]).0, 3, "an array that nobody knows");
    let screen = world.ok(&["status"]);
    assert!(screen.contains("array  tank1    ABSENT: it should run and does not: "), "{screen}");
    assert!(world.ok(&["metrics"]).contains("ashlar_array_absent{array=\"tank1\"} 1\n"));
    world.ok(&["stop", "tank0"]);
    let screen = world.ok(&["status"]);
    assert!(
        screen.contains("tank0    ABSENT: it should run and does not: it was stopped"),
        "{screen}"
    );
}

/// What is not lost and not redundant less, but wrong all the same.
#[test]
fn notifications_that_do_not_arrive_want_attention() {
    let world = with("[notify]\nseverity = \"info\"\nrun = [\"false\"]\n");
    wait_for("attention", || check(&world, &[]).0 == 1);
    assert!(check(&world, &[]).1.starts_with("ATTENTION: notifications by run do not arrive"));
}

#[test]
fn a_full_disk_is_told_once_and_the_history_goes_on_when_there_is_room() {
    let test = "a_full_disk_is_told_once_and_the_history_goes_on_when_there_is_room";
    let mut world = World::without_daemon();
    let Some(room) = SmallRoom::at(test, world.path("state")) else { return };
    world.start(&[]);
    wait_for("the first event", || {
        read(&world, "state/events/events.jsonl").contains("daemon.started")
    });
    room.fill();
    world.create("tank0", 4, &["--level", "6"]);
    for round in 0..40 {
        let change = if round % 2 == 0 { "scrub" } else { "fail" };
        let _either = world.run(&[change, "tank0", "0"]);
    }
    wait_for("the fault", || world.ok(&["events"]).contains("history.failed"));
    assert_eq!(check(&world, &[]).0, 2, "degraded, and nothing hangs");
    room.make_room();
    wait_for("the history", || world.ok(&["events"]).contains("history.resumed"));
    let events = world.ok(&["events"]);
    assert_eq!(events.matches("history.failed").count(), 1, "{events}");
    // Nobody writes it any more.
    assert!(world.end().success());
    let kept = read(&world, "state/events/events.jsonl");
    assert!(kept.contains("array.created") && kept.contains("history.failed"), "{kept}");
    for line in kept.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }
}
