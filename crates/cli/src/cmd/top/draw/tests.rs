//! The screen on a made-up terminal: what it shows, and what the keys change.

use super::super::view::View;
use super::draw;
use ashlar_api::v1::event::Event;
use ashlar_api::v1::status::Status;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

fn latency(count: u64, sum: u64) -> Value {
    json!({"count": count, "us_p50": 1, "us_p99": 1, "us_max": 1, "us_sum": sum})
}

fn member(slot: u16, state: &str, path: &str, reads: u64) -> Value {
    json!({
        "slot": slot, "path": path, "state": state, "device_bytes": 0, "read_errors": 0,
        "write_errors": 0, "repaired_blocks": 0, "slow_reads": 0, "in_flight": 0, "reads": reads,
        "read_bytes": reads * 4096, "writes": 0, "write_bytes": 0,
        "read_latency": latency(reads, reads * 150), "write_latency": latency(0, 0)
    })
}

/// A daemon with two arrays: a degraded one that is being rebuilt, and a clean one with `slots`.
fn status(reads: u64, slots: u16) -> Status {
    let mut gone = member(1, "out", "", 0);
    gone["last_device"] = json!({
        "path": "/dev/sdq", "serial": "Z1", "bay": {"enclosure": "0x5003", "name": "Slot 07"}
    });
    let mut unwell = member(2, "in_sync", "/dev/sdc", reads);
    unwell["health"] = json!({"source": "nvme", "age_seconds": 1, "passed": false});
    let members: Vec<Value> =
        (0..slots).map(|slot| member(slot, "in_sync", &format!("/dev/nvme{slot}n1"), 0)).collect();
    let array = |name: &str, state: &str, members: Value, jobs: Value| {
        json!({
            "name": name, "uuid": name, "level": "6", "data_strips": 2, "parity_strips": 2,
            "groups": 1, "strip_bytes": 65_536, "volume_bytes": 1u64 << 40, "state": state,
            "tolerates": 1, "policy": "log", "kernel": "none", "generation": 1,
            "intent": {"count": 0, "of": 1}, "written_stripes": {"count": 0, "of": 1},
            "members": members, "jobs": jobs,
            "counters": {"reads": reads, "read_bytes": reads * 4096},
            "read_latency": latency(reads, reads * 200), "write_latency": latency(0, 0)
        })
    };
    let rebuild = json!([{
        "kind": "rebuild", "slot": 3, "done_stripes": 41, "total_stripes": 100, "bytes": 0,
        "bytes_per_second": 641_728_512, "left_seconds": 7500, "paused": false
    }]);
    let own = json!([
        member(0, "in_sync", "/dev/sda", reads),
        gone,
        unwell,
        member(3, "rebuilding", "/dev/sdd", 0)
    ]);
    serde_json::from_value(json!({
        "version": "7", "uptime_seconds": 7500, "process_id": 1, "resident_bytes": 1 << 20,
        "arrays": [
            array("tank0", "degraded", own, rebuild),
            array("tank1", "clean", json!(members), json!([]))
        ],
        "spare_pools": [], "exports": [], "workers": [], "pools": []
    }))
    .expect("a status as the daemon sends it")
}

fn event(sequence: u64, severity: &str, reason: &str) -> Event {
    serde_json::from_value(json!({
        "sequence": sequence, "unix_ms": 951_782_400_000u64 + sequence, "name": "member.failed",
        "severity": severity, "array": "tank0", "fields": {"slot": "1", "reason": reason}
    }))
    .expect("an event")
}

/// The screen as text, a line each.
fn screen(view: &View, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(frame, view)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

/// A view that was fed twice, two seconds apart: a thousand reads between.
fn fed() -> View {
    let mut view = View::default();
    view.take(status(1000, 30), 5000);
    view.take(status(2000, 30), 7000);
    view
}

fn press(view: &mut View, code: KeyCode) -> bool {
    view.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn arrays_slots_jobs_and_events_are_on_one_screen() {
    let mut view = fed();
    view.hear(event(1, "error", "it failed a write"));
    let shown = screen(&view, 160, 40);
    for words in [
        "DEGRADED  tank0 slot 1 is out",
        "ashlar 7, up 2 h 05 m, 1 MiB of memory",
        "> tank0",
        "DEGRADED",
        "  tank1",
        "Slots of tank0",
        "was /dev/sdq",
        "serial Z1, enclosure 0x5003, bay Slot 07",
        "says that it is failing",
        "rebuild    slot 3",
        "41 %  612 MiB/s  left 2 h 05 m",
        "2000-02-29 00:00:00.001Z error    tank0: a member was taken out of service (slot 1): it \
         failed a write",
        "q end",
    ] {
        assert!(shown.contains(words), "{words} is missing in\n{shown}");
    }
}

#[test]
fn rates_are_those_between_two_answers_of_one_daemon() {
    let mut view = fed();
    let line = |view: &View, word: &str| {
        let shown = screen(view, 160, 40);
        shown.lines().find(|line| line.contains(word)).expect("its line").to_owned()
    };
    assert!(line(&view, "> tank0").contains("500"), "{}", line(&view, "> tank0"));
    assert!(line(&view, "> tank0").contains("1.95 MiB/s  200"), "{}", line(&view, "> tank0"));
    assert!(line(&view, "/dev/sda").contains("150"), "{}", line(&view, "/dev/sda"));
    let mut restarted = status(0, 30);
    restarted.process_id = 2;
    view.take(restarted, 9000);
    assert!(!line(&view, "> tank0").contains("/s"), "{}", line(&view, "> tank0"));
}

#[test]
fn keys_choose_an_array_move_through_its_slots_and_end() {
    let mut view = fed();
    assert!(!press(&mut view, KeyCode::Down) && !press(&mut view, KeyCode::Down));
    let shown = screen(&view, 160, 60);
    assert!(shown.contains("> tank1") && shown.contains("Slots of tank1"), "{shown}");
    assert!(shown.contains("/dev/nvme0n1"), "{shown}");
    for _ in 0..5 {
        assert!(!press(&mut view, KeyCode::Right));
    }
    let shown = screen(&view, 160, 60);
    assert!(shown.contains("/dev/nvme20n1") && !shown.contains("/dev/nvme9n1"), "{shown}");
    press(&mut view, KeyCode::Left);
    assert!(screen(&view, 160, 60).contains("/dev/nvme10n1"));
    press(&mut view, KeyCode::Up);
    assert!(screen(&view, 160, 60).contains("Slots of tank0"));
    assert!(press(&mut view, KeyCode::Char('q')) && press(&mut view, KeyCode::Esc));
    assert!(view.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
}

#[test]
fn a_daemon_that_is_gone_is_said_and_what_it_said_last_stays() {
    let mut view = View::default();
    assert!(screen(&view, 80, 10).contains("asking the daemon"));
    view.lose("nobody there".to_owned());
    assert!(screen(&view, 80, 10).contains("nobody there"));
    let mut view = fed();
    view.lose("nobody there".to_owned());
    let shown = screen(&view, 160, 40);
    assert!(shown.starts_with("NO ANSWER  nobody there") && shown.contains("> tank0"), "{shown}");
}

#[test]
fn an_event_is_shown_once_the_newest_first_and_moves_no_cursor() {
    let mut view = fed();
    for one in [
        event(1, "notice", "first"),
        event(2, "error", "second\u{1b}[2J"),
        event(1, "notice", "first"),
    ] {
        view.hear(one);
    }
    let shown = screen(&view, 160, 40);
    let at = |word: &str| shown.find(word).expect("there");
    assert!(at("second") < at("first") && shown.matches("first").count() == 1, "{shown}");
    assert!(!shown.contains('\u{1b}'));
}

#[test]
fn a_small_terminal_shows_what_fits() {
    for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
        let shown = screen(&fed(), width, height);
        assert_eq!(shown.lines().count(), usize::from(height));
    }
    assert!(screen(&fed(), 80, 24).contains("> tank0"));
    let mut none = View::default();
    let mut empty = status(0, 0);
    empty.arrays.clear();
    none.take(empty, 0);
    assert!(!press(&mut none, KeyCode::Down) && !press(&mut none, KeyCode::Right));
    assert!(screen(&none, 80, 24).contains("RIGHT"));
}
