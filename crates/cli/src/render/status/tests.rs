//! What the screen shows of a healthy array, a degraded one, and none.

use super::screen;
use ashlar_api::v1::array::Replayed;
use ashlar_api::v1::status::Status;
use ashlar_layout::Level;

/// A RAID 6 of `members` with the given states, as the daemon would send it.
pub(crate) fn status(states: &[&str], jobs: &str) -> Status {
    let latency = r#"{"count": 1, "us_p50": 80, "us_p99": 1200, "us_max": 9000}"#;
    let members: Vec<String> = states
        .iter()
        .enumerate()
        .map(|(slot, state)| {
            format!(
                r#"{{"slot": {slot}, "path": "/dev/sd{slot}", "serial": "Z{slot}",
                "state": "{state}", "device_bytes": 1099511627776, "read_errors": 0,
                "write_errors": 0, "slow_reads": 0, "repaired_blocks": 0,
                "in_flight": 0, "reads": 0, "read_bytes": 0, "writes": 0, "write_bytes": 0,
                "read_latency": {latency}, "write_latency": {latency}}}"#
            )
        })
        .collect();
    let state = if states.iter().all(|state| *state == "in_sync") { "clean" } else { "degraded" };
    let text = format!(
        r#"{{"version": "0", "uptime_seconds": 7500, "process_id": 1, "resident_bytes": 1048576,
        "arrays": [{{"name": "tank0", "uuid": "u", "level": "raid6", "data_strips": 2,
          "parity_strips": 2, "groups": 1, "strip_bytes": 65536,
          "volume_bytes": 2199023255552, "state": "{state}",
          "tolerates": 1, "policy": "resync", "kernel": "avx2", "generation": 1,
          "intent": {{"count": 128, "of": 1048576}}, "written_stripes": {{"count": 1, "of": 2}},
          "members": [{members}], "jobs": [{jobs}],
          "last_scrub": {{"mismatches": 0, "age_seconds": 259200}},
          "counters": {{"writes": 10, "member_reads": 30, "member_writes": 30, "rmw_writes": 10}},
          "read_latency": {latency}, "write_latency": {latency}}}],
        "spare_pools": [{{"name": "tank0", "spares": []}}],
        "exports": [{{"protocol": "nbd", "requests": 0, "address": "127.0.0.1:10809",
          "clients": 0}}],
        "workers": [{{"worker": 0, "in_flight": 0, "requests": 1000, "pieces": 12345}}],
        "pools": [{{"name": "buffers_bytes", "limit": 1048576, "in_use": 0, "high_water": 4096,
          "waits": 0}}]}}"#,
        members = members.join(",")
    );
    serde_json::from_str(&text).expect("a status as the daemon sends it")
}

#[test]
fn limits_of_the_volume_are_told_with_what_waited_for_them() {
    let mut all = status(&["in_sync"; 4], "");
    let array = &mut all.arrays[0];
    array.tuning.read_iops_max = Some(0);
    array.tuning.write_iops_max = Some(1500);
    array.tuning.write_rate_max = Some(200 << 20);
    (array.counters.limit_waits, array.counters.limit_wait_us) = (1234, 56_789_000);
    let wanted =
        "limits writes 200 MiB/s and 1,500 a second; 1,234 requests have waited, 56 s in all";
    assert!(screen(&all, false, false).lines().any(|line| line == wanted));
    all.arrays[0].tuning = ashlar_api::v1::tuning::Tuning::default();
    assert!(!screen(&all, false, false).contains("limits"));
}

#[test]
fn a_healthy_array_takes_six_lines() {
    let screen = screen(&status(&["in_sync"; 4], ""), false, false);
    let lines: Vec<&str> = screen.lines().collect();
    assert_eq!(lines[0], "array  tank0    raid6 2+2  strip 64 KiB   clean");
    assert_eq!(lines[1], "volume 2 TiB  exported as nbd:127.0.0.1:10809      kernel avx2");
    assert_eq!(lines[2], "slots  4 of 4 in sync, 0 device errors     policy resync");
    assert_eq!(
        lines[3],
        "intent 128 of 1,048,576 regions dirty     last scrub 3 d 00 h ago, 0 mismatches"
    );
    assert!(
        lines[5].ends_with("10 rmw, 0 rcw, 0 decoded; 3.00 member writes a write"),
        "{}",
        lines[5]
    );
    assert_eq!(lines[6], "");
}

#[test]
fn a_start_that_looked_at_the_log_says_what_it_made_of_it() {
    let mut status = status(&["in_sync"; 4], "");
    assert!(!screen(&status, false, false).contains("rolled forward"));
    let replayed = r#"{"rolled_forward": 1234, "dropped": 2, "rows_in_doubt": 16, "bytes": 8388608,
        "duration_us": 2034567}"#;
    status.arrays[0].replayed =
        Some(serde_json::from_str(replayed).expect("as the daemon sends it"));
    let screen = screen(&status, false, false);
    let line = "log    1,234 updates rolled forward (8 MiB), 2 dropped, 16 rows in doubt, \
                at the last start in 2.034 s";
    assert_eq!(screen.lines().nth(3), Some(line), "{screen}");
}

#[test]
fn blocks_that_a_start_put_back_and_rows_that_it_left_are_in_its_line_if_there_are_any() {
    let mut status = status(&["in_sync"; 4], "");
    let replayed = Replayed { rows_in_doubt: 2000, put_back: 1025, ..Replayed::default() };
    status.arrays[0].replayed = Some(replayed);
    let line = "log    0 updates rolled forward (0 B), 0 dropped, 2,000 rows in doubt, \
                1,025 blocks put back by their checksums, at the last start in 0.000 s";
    assert_eq!(screen(&status, false, false).lines().nth(3), Some(line));
    status.arrays[0].replayed = Some(Replayed { put_back: 0, rows_left: 3, ..replayed });
    assert!(screen(&status, false, false).contains("in doubt, 3 of them left as they were, at"));
}

#[test]
fn a_slow_member_is_seen_with_how_slow_it_is() {
    let mut status = status(&["in_sync"; 4], "");
    assert!(!screen(&status, false, false).contains("slot 2"));
    let slow = r#"{"commands": "writes", "own_us": 20480, "peers_us": 150, "seconds": 7500}"#;
    status.arrays[0].members[2].slow = Some(serde_json::from_str(slow).expect("as it is sent"));
    let screen = screen(&status, false, false);
    let line =
        "slot 2  in sync  SLOW for 2 h 05 m: writes take 20,480 us, its peers' 150 us     /dev/sd2";
    assert!(screen.contains(line), "{screen}");
}

#[test]
fn an_empty_slot_names_the_drive_to_pull_and_where_it_was() {
    let mut status = status(&["in_sync", "out", "in_sync", "in_sync"], "");
    let member = &mut status.arrays[0].members[1];
    member.path.clear();
    let last = r#"{"path": "/dev/sdq", "serial": "Z1", "model": "Drive 9000", "host": "store1",
        "bay": {"enclosure": "0x5003", "name": "Slot 07",
          "by_path": "pci-0000:5e:00.0-sas-phy7"}}"#;
    member.last_device = Some(serde_json::from_str(last).expect("as it is sent"));
    let told = screen(&status, false, false);
    let line = "slot 1  OUT     was /dev/sdq on host store1, serial Z1, Drive 9000, enclosure \
                0x5003, bay Slot 07, pci-0000:5e:00.0-sas-phy7; give it a device: ashlar replace";
    assert!(told.contains(line), "{told}");
}

#[test]
fn a_drive_with_a_concern_is_seen_and_members_have_their_health() {
    let mut status = status(&["in_sync"; 4], "");
    let health = r#"{"source": "smartctl", "age_seconds": 1, "passed": false, "media_errors": 3}"#;
    status.arrays[0].members[2].health = Some(serde_json::from_str(health).expect("as sent"));
    let told = screen(&status, false, false);
    assert!(told.contains("slot 2  in sync  says that it is failing     /dev/sd2"), "{told}");
    assert!(!told.contains("slot 1"), "{told}");
    status.health_unknown = Some("no program".to_owned());
    let told = screen(&status, true, false);
    assert!(told.contains("FAILING, media errors 3") && told.contains("no program"), "{told}");
}

#[test]
fn of_mirrors_the_copies_are_counted() {
    let mut mirror = status(&["in_sync"; 4], "");
    let array = &mut mirror.arrays[0];
    (array.level, array.data_strips, array.parity_strips) = (Level::Raid10, 1, 1);
    array.groups = 2;
    let told = screen(&mirror, false, false);
    assert!(told.starts_with("array  tank0    raid10 2 x 2 copies  strip"), "{told}");
}

#[test]
fn a_degraded_array_says_which_slot_and_how_far_its_rebuild_is() {
    let job = r#"{"kind": "rebuild", "slot": 3, "done_stripes": 41, "total_stripes": 100,
        "bytes": 0, "bytes_per_second": 641728512, "left_seconds": 7500, "paused": false}"#;
    let states = ["in_sync", "out", "in_sync", "rebuilding"];
    let screen = screen(&status(&states, job), false, false);
    assert!(screen.contains("DEGRADED (2 members out, 1 more tolerated)"), "{screen}");
    assert!(screen.contains("slot 1  OUT     /dev/sd1  serial Z1"), "{screen}");
    assert!(
        screen.contains("slot 3  rebuilding  41 %  612 MiB/s  left 2 h 05 m     /dev/sd3"),
        "{screen}"
    );
}

#[test]
fn what_is_tolerated_is_said_of_the_group_that_lost_most() {
    let told = |states: &[&str]| {
        let mut grouped = status(states, "");
        let array = &mut grouped.arrays[0];
        (array.level, array.groups, array.parity_strips, array.tolerates) =
            (Level::Raid50, 2, 1, 0);
        screen(&grouped, false, false)
    };
    let (whole, out) = ("in_sync", "out");
    let one = told(&[whole, whole, whole, whole, out, "replacing"]);
    let says = "DEGRADED (1 member out, 0 more tolerated in group 1, slots 3 to 5)";
    assert!(one.contains(says), "{one}");
    let both = told(&[out, whole, whole, whole, whole, out]);
    assert!(both.contains("(2 members out, 0 more tolerated in groups 0, 1)"), "{both}");
}

#[test]
fn members_and_limits_are_shown_when_asked_for() {
    let status = status(&["in_sync"; 4], "");
    let short = screen(&status, false, false);
    let long = screen(&status, true, true);
    for text in ["80/1200/9000", "buffers_bytes", "12,345", "high water", "up 2 h 05 m"] {
        assert!(long.contains(text) && !short.contains(text), "{text}");
    }
}

#[test]
fn nodes_of_workers_pools_and_drives_are_shown_where_there_are_several() {
    let mut status = status(&["in_sync"; 4], "");
    let place = |status: &_| screen(status, true, true).matches("(node 1)").count();
    assert_eq!(place(&status), 0);
    status.workers[0].core = Some(4);
    assert!(screen(&status, true, true).contains(" 4 "), "bound, on a machine with one node");
    status.workers[0].node = Some(1);
    status.pools[0].node = Some(1);
    assert_eq!(place(&status), 2);
    let drives = |status: &_| screen(status, true, true).contains("by-path-of-it, node 1");
    assert!(!drives(&status));
    let bay = &mut status.arrays[0].members[0].bay;
    (bay.by_path, bay.node) = (Some("by-path-of-it".to_owned()), Some(1));
    assert!(drives(&status));
}

#[test]
fn without_an_array_the_screen_says_how_to_go_on() {
    let mut status = status(&["in_sync"; 4], "");
    status.arrays.clear();
    assert!(screen(&status, false, false).contains("ashlar assemble"));
}
