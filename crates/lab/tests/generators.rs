//! The real binary with a second load generator: a made-up program called `bdevperf`, which no
//! package here has.
//!
//! What must stay true: the made-up program writes down how it was called and what it was told to
//! open; nothing here says that the real one would answer alike; a test that cannot run says why
//! and is counted by name.
#![forbid(unsafe_code)]

use ashlar_lab::record::{Check, Generator, Measurement, Record};
use ashlar_lab::store::RunDir;
use ashlar_lab::validity::{Mark, Outcome};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LAB: &str = env!("CARGO_BIN_EXE_ashlar-lab");

/// Keeps its words and its configuration, and prints a table of the real one's form: a million I/Os
/// a second.
const MADE_UP: &str = "#!/bin/sh\nplace=$(dirname \"$0\")\necho \"$@\" >> \"$place/called\"\n\
    for last; do :; done\ncat \"$last\" >> \"$place/opened\"\necho >> \"$place/opened\"\n\
    echo ' Device Information : runtime(s) IOPS MiB/s Fail/s TO/s Average min max'\n\
    echo ' lab : 1.00 1000000.00 3906.25 0.00 0.00 32.00 1.00 99.00'\n\
    echo ' Total : 1000000.00 3906.25 0.00 0.00 32.00 1.00 99.00'\n";

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// With three files to measure, and the made-up program.
    fn new() -> Place {
        let dir = tempfile::tempdir().expect("a directory");
        let tools = dir.path().join("tools");
        std::fs::create_dir(&tools).expect("made");
        std::fs::write(tools.join("bdevperf"), MADE_UP).expect("written");
        let runs = Command::new("chmod").arg("+x").arg(tools.join("bdevperf")).status();
        assert!(runs.is_ok_and(|status| status.success()));
        for name in ["a", "b", "c"] {
            std::fs::write(dir.path().join(name), vec![0x5a; 4 << 20]).expect("written");
        }
        Place { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// A plan for the three files.
    fn plan(&self, rest: &str) -> PathBuf {
        let drives: Vec<String> =
            ["a", "b", "c"].map(|name| format!("{:?}", self.path(name))).into();
        let drives = drives.join(", ");
        let text = format!(
            "question = \"is fio the limit?\"\nruntime_s = 1\nramp_s = 0\nioengine = \"psync\"\n\
             drives = [{drives}]\n{}",
            rest.replace("MEMBERS", &drives)
        );
        std::fs::write(self.path("plan.toml"), text).expect("written");
        self.path("plan.toml")
    }

    fn lab(&self, words: &[&str], with_tools: bool) -> Output {
        let path = std::env::var("PATH").expect("a path");
        let tools = format!("{}:{path}", self.path("tools").display());
        let path = if with_tools { tools } else { path };
        Command::new(LAB).args(words).env("PATH", path).output().expect("started")
    }

    fn records(&self) -> Vec<Record> {
        RunDir::open(&self.path("run")).expect("a run").read().expect("readable").records
    }

    fn measured(&self, generator: Generator) -> Vec<Measurement> {
        let only = |record| match record {
            Record::Measurement(it) if it.workload.generator == generator => Some(*it),
            _ => None,
        };
        self.records().into_iter().filter_map(only).collect()
    }

    fn agree(&self) -> Vec<Check> {
        let only = |record| match record {
            Record::Check(check) if check.name == "generators.agree" => Some(check),
            _ => None,
        };
        self.records().into_iter().filter_map(only).collect()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat())
        .into_owned()
}

fn word(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn has_fio(test: &str) -> bool {
    let has = Command::new("fio").arg("--version").output().is_ok();
    if !has {
        let line = format!("skipped: {test}: no fio\n");
        let _unseen_at_worst = std::io::stderr().write_all(line.as_bytes());
    }
    has
}

const EACH: &str = "[[stages]]\nkind = \"raw.each\"\nprofiles = [\"rr-4k\"]\ndepths = [1]\n";

#[test]
fn bdevperf_is_started_on_what_fio_measured_and_stands_beside_it() {
    if !has_fio("bdevperf_is_started_on_what_fio_measured_and_stands_beside_it") {
        return;
    }
    let place = Place::new();
    let plan = place.plan(&format!("{EACH}{EACH}generator = \"bdevperf\"\n"));
    let run = place.path("run");
    let output = place.lab(&["run", word(&plan), "--to", word(&run), "--no-stacks"], true);
    let own = place.measured(Generator::Bdevperf);
    assert_eq!(own.len(), 3, "one for each drive: {}", said(&output));
    assert_eq!(place.measured(Generator::Fio).len(), 3);
    assert_eq!(own[0].read.iops, 1e6);
    assert_eq!(Mark::of(&own[0].findings), Mark::ValidWithNotes, "{:?}", own[0].findings);
    assert!(own[0].findings.iter().any(|it| it.rule == "A14"), "that it polls is said");
    let called = place.text("tools/called");
    let wanted = "-m [0] -q 1 -o 4096 -w randread -t 1 -T lab -c ";
    assert!(called.lines().count() == 3 && called.starts_with(wanted), "{called}");
    let opened = place.text("tools/opened");
    let first: serde_json::Value =
        serde_json::from_str(opened.lines().next().unwrap_or_default()).expect("JSON");
    let step = &first["subsystems"][0]["config"][0];
    assert_eq!(step["method"], "bdev_aio_create");
    assert_eq!(step["params"]["filename"].as_str(), Some(word(&place.path("a"))));
    let agree = place.agree();
    assert_eq!(agree.len(), 3, "{agree:?}");
    assert!(agree.iter().all(|it| it.outcome == Outcome::Fail), "far from fio: {agree:?}");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let log = place.text("run/evidence.jsonl");
    assert!(log.contains("-bdevperf.json"), "what it opened is evidence");
    let report = place.path("report.md");
    let output = place.lab(&["report", word(&run), "--markdown", word(&report)], false);
    assert!(output.status.success(), "{}", said(&output));
    let text = std::fs::read_to_string(report).expect("written");
    assert!(text.contains("Do two load generators say the same?"), "{text}");
    assert!(text.contains("4K random reads, 1 x 1 by bdevperf"), "{text}");
    // A second time nothing is left to measure, and it is not started again.
    let again = place.lab(&["run", word(&plan), "--resume", word(&run), "--no-stacks"], true);
    assert_eq!(place.text("tools/called"), called, "{}", said(&again));
}

#[test]
fn an_array_of_spdk_is_made_inside_bdevperf_and_cannot_be_faster_than_its_drives() {
    let test = "an_array_of_spdk_is_made_inside_bdevperf_and_cannot_be_faster_than_its_drives";
    if !has_fio(test) {
        return;
    }
    let place = Place::new();
    let plan = place.plan(
        "[[arrays]]\nengine = \"spdk\"\nlevel = \"raid5\"\nmembers = [MEMBERS]\nstrip = \"64k\"\n\
         [profiles]\nslow = \"slow.fio\"\n\
         [[stages]]\nkind = \"raw.all\"\nprofiles = [\"slow\"]\ndepths = [1]\n\
         [[stages]]\nkind = \"array.sweep\"\nprofiles = [\"rr-4k\"]\ndepths = [1]\n\
         generator = \"bdevperf\"\n",
    );
    std::fs::write(place.path("slow.fio"), "[raw]\nrw=randread\nbs=4k\nrate_iops=100\n")
        .expect("written");
    let run = place.path("run");
    let dry = place.lab(&["run", word(&plan), "--dry-run"], true);
    let shown = said(&dry);
    assert!(shown.contains("$ bdevperf -m [0] -q 1 -o 4096 -w randread"), "{shown}");
    assert!(shown.contains("bdev_raid_create") && shown.contains("will be overwritten"), "{shown}");
    let output = place.lab(&["run", word(&plan), "--to", word(&run), "--no-stacks"], true);
    let own = place.measured(Generator::Bdevperf);
    assert_eq!((own.len(), own[0].engine.name.as_str()), (1, "spdk"), "{}", said(&output));
    assert_eq!(
        Mark::of(&own[0].findings),
        Mark::Invalid,
        "above its drives: {:?}",
        own[0].findings
    );
    assert!(own[0].findings.iter().any(|it| it.rule == "L29"), "{:?}", own[0].findings);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let opened = place.text("tools/opened");
    assert!(opened.contains("\"raid5f\"") && opened.contains("\"strip_size_kb\":64"), "{opened}");
    assert_eq!(opened.matches("bdev_aio_create").count(), 3, "{opened}");
    let log = place.text("run/evidence.jsonl");
    assert!(!log.contains("spdk_tgt"), "no target of its own is started beside it");
}

#[test]
fn what_bdevperf_cannot_do_is_refused_or_left_out_with_the_reason() {
    let place = Place::new();
    let of = |stage: &str, with_tools: bool| {
        let plan = place.plan(&format!("{stage}generator = \"bdevperf\"\n"));
        said(&place.lab(&["run", word(&plan), "--dry-run"], with_tools))
    };
    let said = of(EACH, false);
    assert!(said.contains("left out: raw.each: bdevperf is not installed"), "{said}");
    let said = of(&EACH.replace("raw.each", "raw.all"), true);
    assert!(said.contains("bdevperf does not do the stage raw.all"), "{said}");
    let said = of(&EACH.replace("rr-4k", "sync-4k"), true);
    assert!(said.contains("no word for fio's sync"), "{said}");
}
