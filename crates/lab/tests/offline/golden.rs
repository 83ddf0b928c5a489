//! Accounts of recorded profiles: what the program says about them, in figures. The files were
//! composed by hand so that every figure can be checked with a pencil: 16 cores x 99 Hz x 10 s are
//! 15,840 samples.

use crate::program::lab;
use serde_json::Value;
use std::path::{Path, PathBuf};

const FULL: f64 = 15_840.0;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn account(file: &Path, more: &[&str]) -> Value {
    let file = file.display().to_string();
    let words =
        ["--json", "cpu", "--from", &file, "--cores", "16", "--hz", "99", "--seconds", "10"];
    let output = lab(&words.into_iter().chain(more.iter().copied()).collect::<Vec<_>>());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn group<'a>(account: &'a Value, name: &str) -> &'a Value {
    let groups = account["groups"].as_array().expect("groups");
    groups.iter().find(|group| group["name"] == name).expect("seen")
}

#[track_caller]
fn is_share(share: &Value, samples: f64) {
    let found = share["share"].as_f64().expect("a share");
    assert!((found - samples / FULL).abs() < 1e-9, "{found} is not {samples} of {FULL}");
}

#[test]
fn mdraid_s_work_is_charged_to_md_wherever_it_runs() {
    let account = account(&golden("mdraid.folded"), &[]);
    let md = group(&account, "md");
    is_share(&md["share"], 5655.0);
    is_share(&md["contexts"]["client"], 3000.0);
    is_share(&md["contexts"]["kernel_thread"], 960.0);
    is_share(&md["contexts"]["kworker"], 1400.0);
    is_share(&md["contexts"]["softirq"], 295.0);
    is_share(&md["useful"], 960.0);
    is_share(&md["overhead"], 4695.0);
    is_share(&account["busy"], 6040.0);
    is_share(&account["client"], 3635.0);
    // The seed's own figure for mdraid under this load.
    let percent = md["share"]["share"].as_f64().expect("a share") * 100.0;
    assert_eq!(format!("{percent:.1} %"), "35.7 %");
    assert_eq!(account["sampling"]["unit"], "samples");
    assert!(account["spread"].is_null(), "a folded file does not say on which cores");
}

#[test]
fn zfs_and_ashlar_are_told_apart_into_useful_work_and_overhead() {
    let account_zfs = account(&golden("zfs.folded"), &[]);
    let zfs = group(&account_zfs, "zfs");
    is_share(&zfs["share"], 1350.0);
    is_share(&zfs["contexts"]["client"], 500.0);
    is_share(&zfs["useful"], 600.0);
    let account_ashlar = account(&golden("ashlar.folded"), &[]);
    let ashlar = group(&account_ashlar, "ashlar");
    is_share(&ashlar["share"], 1000.0);
    is_share(&ashlar["contexts"]["engine_thread"], 1000.0);
    is_share(&ashlar["useful"], 600.0);
    is_share(&ashlar["overhead"], 400.0);
}

#[test]
fn the_text_names_contexts_threads_and_plateaus() {
    let file = golden("mdraid.folded").display().to_string();
    let output = lab(&["cpu", "--from", &file, "--cores", "16", "--seconds", "10"]);
    let text = String::from_utf8(output.stdout).expect("text");
    for part in [
        "engine work done on the client's CPU time",
        "md0_raid6",
        "kworker/u32:4",
        "native_queued_spin_lock_slowpath",
        "stripe cache",
        "function group md version 1",
        "35.7 +-0.4 %",
    ] {
        assert!(text.contains(part), "no '{part}' in\n{text}");
    }
}

#[test]
fn the_same_profile_weighted_by_its_period_gives_the_same_shares() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("weighted.folded");
    let text = std::fs::read_to_string(golden("mdraid.folded")).expect("there");
    let weighted = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (stack, count) = line.rsplit_once(' ').expect("a count");
        format!("{stack} {}\n", count.parse::<u64>().expect("a number") * 10_101_010)
    });
    std::fs::write(&path, weighted.collect::<String>()).expect("written");
    let weighted = account(&path, &[]);
    assert_eq!(weighted["sampling"]["unit"], "nanoseconds");
    let share = group(&weighted, "md")["share"]["share"].as_f64().expect("a share");
    assert!((share - 5655.0 / FULL).abs() < 1e-6, "{share}");
    // Said to be samples, they are refused: no machine has that many.
    let file = path.display().to_string();
    let output =
        lab(&["cpu", "--from", &file, "--cores", "16", "--seconds", "10", "--unit", "samples"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("--unit ns"), "{said}");
}

#[test]
fn bad_input_is_one_clear_line_and_exit_code_two() {
    let folder = tempfile::tempdir().expect("folder");
    let file = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let (empty, garbage) = (file("empty", b""), file("garbage", b"\xff\xfe;;;\nno count here\n"));
    let binary = file("perf.data", b"PERFILE2\0\0\0");
    let golden = golden("mdraid.folded").display().to_string();
    let window = ["--cores", "16", "--seconds", "10"];
    let client = [&window[..], &["--client", "("]].concat();
    for (file, more, why) in [
        (empty.as_str(), &window[..], "no samples"),
        (&garbage, &window, "no samples"),
        (&binary, &window, "perf script"),
        ("/nonexistent/x", &window, "No such file"),
        (&golden, &[], "--cores"),
        (&golden, &["--cores", "0", "--seconds", "10"], "above 0"),
        (&golden, &["--cores", "1", "--seconds", "1"], "can give"),
        (&golden, &client, "--client"),
    ] {
        let words = [&["cpu", "--from", file], more].concat();
        let output = lab(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{words:?}: {said}");
        assert!(said.contains(why) && output.stdout.is_empty(), "{words:?}: {said}");
    }
}

#[test]
fn flame_graphs_are_drawn_from_files() {
    let folder = tempfile::tempdir().expect("folder");
    let out = folder.path().join("out").display().to_string();
    let account = account(&golden("mdraid.folded"), &["--to", &out]);
    for zoom in ["whole", "client", "md"] {
        let file = account["flame_graphs"][zoom].as_str().expect("drawn");
        let picture = std::fs::read_to_string(Path::new(&out).join(file)).expect("there");
        assert!(picture.contains("<svg"), "{zoom}");
    }
    let records = std::fs::read_to_string(Path::new(&out).join("records.jsonl")).expect("kept");
    assert_eq!(records.lines().count(), 1);
}
