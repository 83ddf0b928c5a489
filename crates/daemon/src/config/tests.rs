//! Configuration files that are accepted, and the refusals of others.

use super::{Config, expand};
use ashlar_engine::{ArrayTuning, SlowReaction};
use ashlar_units::ByteSize;
use std::path::Path;
use std::time::Duration;

const WHOLE: &str = r#"
[serve]
socket = "/run/ashlar/control.sock"
metrics = "127.0.0.1:9309"
workers = 2
pin = false
pool = "256MiB"
kernel = "portable"

[tuning]
read_deadline_ms = 200
slow_member = "avoid"
slow_times = 6
slow_after_s = 60
merge_wait_us = 0
job_floor = "64MiB"
checksum_cache = "16MiB"

[[array]]
name = "tank0"
devices = ["/dev/disk/by-id/nvme-*"]
read_only = true
spare_pools = ["fast", "spares"]
[array.tuning]
job_latency_target_ms = 20

[[nbd]]
listen = "unix:/run/ashlar/nbd.sock"
[[nbd]]
listen = "192.0.2.1:10809"
trusted_network = true

[nbd_limits]
connections = 100
in_flight = "4MiB"
stall_s = 30

[vhost_user]
directory = "/run/ashlar/vhost"

[fuse]
folder = "/run/ashlar/volumes"
io_uring = true
"#;

fn refusal(text: &str) -> String {
    Config::parse("a.toml", text).expect_err(text).to_string()
}

#[test]
fn a_file_that_says_everything_is_understood() {
    let config = Config::parse("a.toml", WHOLE).expect("sound");
    assert_eq!(config.serve.pool, Some(ByteSize(256 << 20)));
    assert_eq!(config.array[0].devices, ["/dev/disk/by-id/nvme-*"]);
    assert!(config.array[0].read_only);
    assert!(config.fuse.is_some_and(|fuse| fuse.io_uring));
    assert_eq!(config.array[0].spare_pools, ["fast", "spares"]);
    let tuning = config.array[0].tuning.over(config.tuning.over(ArrayTuning::default()));
    assert_eq!(tuning.read_deadline, Duration::from_millis(200));
    assert_eq!((tuning.slow.reaction, tuning.slow.times), (SlowReaction::Avoid, 6));
    assert_eq!(tuning.slow.after, Duration::from_secs(60));
    assert_eq!(tuning.job_latency_target, Duration::from_millis(20));
    assert_eq!((tuning.merge_wait_max, tuning.job_floor_bytes), (Duration::ZERO, 64 << 20));
    assert_eq!(tuning.read_errors_max, ArrayTuning::default().read_errors_max);
    assert_eq!(tuning.checksum_cache_bytes, 16 << 20);
    let limits = config.nbd_limits.limits().session;
    assert_eq!((limits.sessions_max, limits.bytes_in_flight_max), (100, 4 << 20));
    assert_eq!(limits.send_time, Duration::from_secs(30));
    assert_eq!(limits.handshake_time, Duration::from_secs(10));
    let folder = config.vhost_user.map(|it| it.folder);
    assert_eq!(folder.as_deref(), Some(Path::new("/run/ashlar/vhost")));
    assert_eq!(Config::parse("a.toml", ""), Ok(Config::default()));
}

#[test]
fn an_unknown_key_is_refused_with_its_line_on_one_line() {
    for section in [
        "[serve]",
        "[[array]]\nname = \"a\"\ndevices = [\"x\"]",
        "[[nbd]]\nlisten = \"x\"",
        "[fuse]\nfolder = \"x\"",
        "[vhost_user]\nfolder = \"x\"",
        "[tuning]",
        "[[array]]\ndevices = [\"x\"]\n[array.tuning]",
        "[nbd_limits]",
    ] {
        let text = format!("# first\n{section}\nspeling = 1\n");
        let refusal = refusal(&text);
        let line = text.lines().count();
        assert!(
            refusal.starts_with(&format!("a.toml line {line}: unknown field `speling`")),
            "{refusal}"
        );
        assert_eq!(refusal.lines().count(), 1, "{refusal}");
    }
    assert!(refusal("[srve]\n").contains("line 1: unknown field `srve`"));
}

#[test]
fn values_that_make_no_sense_are_refused() {
    for (text, says) in [
        ("[serve]\npool = \"12Q\"", "line 2: '12Q' is not a size"),
        (
            "[serve]\nmetrics = \"nowhere\"",
            "line 2: not an address; write for example \"127.0.0.1:9309\"",
        ),
        ("[serve]\nworkers = 0", "0 workers are not possible"),
        ("[serve]\nworkers = 1000", "take 1 to"),
        ("[serve]\nworkers = 2\npool = \"1K\"", "a pool of 1 KiB is not possible for 2 workers"),
        ("[serve]\nworkers = -1", "neither a number nor a list"),
        ("[serve]\nworkers = \"3-1\"", "neither a number nor a list"),
        ("[serve]\nworkers = true", "expected a number or a text"),
        ("[serve]\nspin_us = \"never\"", "nor always"),
        ("[[array]]\nname = \"a\"\ndevices = []", "without devices"),
        ("[[array]]\ndevices = [\"x\"]\nspare_pools = [\"\"]", "a spare pool cannot be called"),
        ("[tuning]\njob_floor = \"0\"", "job_floor must be more than 0"),
        ("[tuning]\nchecksum_cache = \"0\"", "checksum_cache must be more than 0"),
        ("[nbd_limits]\nstall_s = 0", "stall_s must be more than 0"),
        ("[[nbd]]\nlisten = \"0.0.0.0:10809\"", "trusted_network = true"),
        ("[[nbd]]\nlisten = \"127.0.0.1:10809\"", "trusted_network = true"),
        ("[[nbd]]\nlisten = \"0.0.0.0:10809\"\ntls = {}", "tls wants a directory, or all of"),
        (
            "[[nbd]]\nlisten = \"[::]:10809\"\ntls = { folder = \"a\", ca = \"b\" }",
            "tls wants a directory, or all of",
        ),
        ("[[nbd]]\nlisten = \"here\"", "'here' is not an address"),
        ("[[array]]\nname = \"a\"", "missing field `devices`"),
        ("[serve\n", "line 1"),
    ] {
        let refusal = refusal(text);
        assert!(refusal.contains(says), "{text}: {refusal}");
        assert_eq!(refusal.lines().count(), 1, "{refusal}");
    }
}

#[test]
fn patterns_stand_for_what_is_there_and_names_for_themselves() {
    let folder = tempfile::tempdir().expect("temporary folder");
    for name in ["m1", "m0", "x"] {
        std::fs::write(folder.path().join(name), "").expect("write");
    }
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let found = expand(&[path("m*"), path("m0"), path("gone"), path("none*")]).expect("sound");
    assert_eq!(found, [path("gone"), path("m0"), path("m1")]);
    assert!(expand(&["/dev/***".to_owned()]).is_err());
}

/// The file of the package, as it is and with every key that it shows.
#[test]
fn the_packaged_configuration_is_accepted_with_and_without_what_it_shows() {
    let text = include_str!("../../../../packaging/ashlar.toml");
    let plain = Config::parse("ashlar.toml", text).expect("accepted");
    assert!(plain.start.scan && plain.start.remember && plain.array.is_empty());
    let shown: Vec<&str> = text
        .lines()
        .map(|line| line.strip_prefix('#').filter(|it| !it.starts_with(' ')).unwrap_or(line))
        .collect();
    let shown = Config::parse("ashlar.toml", &shown.join("\n")).expect("accepted");
    assert!(shown.array[0].attach && shown.nbd.len() == 1 && shown.start.devices.len() == 1);
}

/// A key that no page names cannot be found by whoever needs it.
#[test]
fn the_manual_page_names_every_key_of_the_packaged_configuration() {
    let text = include_str!("../../../../packaging/ashlar.toml");
    let page = include_str!("../../../../packaging/man/ashlar.toml.5");
    let lines = text.lines().map(|line| line.trim_start_matches('#'));
    let keys =
        lines.filter_map(|line| Some(line.split_once(" = ")?.0)).filter(|key| !key.contains(' '));
    let keys: Vec<&str> = keys.collect();
    assert!(keys.len() > 12, "{keys:?}");
    for key in keys {
        assert!(page.contains(key), "the page does not name {key}");
    }
}
