//! Plans, expanded and run on small files.
//!
//! - again: figures above what the raw drives gave
//! - profiles: job files of one's own, names and spans of arrays
//! - raw: what raw runs say of an array
//! - stages: stages whose points the lab makes up

mod again;
mod profiles;
mod raw;
mod stages;

use super::execute::{Run, Summary, execute};
use super::file::Plan;
use super::points::{Expanded, expand};
use super::progress::Progress;
use crate::Refusal;
use crate::evidence::{Evidence, Interrupt, verify};
use crate::fio::tests::needs_fio;
use crate::inspect::models::Library;
use crate::lint::live::Live;
use crate::lint::subject::{Intent, Subject};
use crate::record::{ArrayCondition, Measurement, Record};
use crate::store::{RunDir, RunFacts};
use crate::validity::{Outcome, Severity};
use crate::watch::Watch;
use std::path::Path;

fn expanded(text: &str) -> Result<Expanded, Refusal> {
    expand(&Plan::parse(text)?, Path::new("."), &|_| 1_000_000_000)
}

const WHOLE: &str = include_str!("../../tests/data/plans/whole.toml");

#[test]
fn a_plan_becomes_points_with_everything_filled_in() {
    let all = expanded(WHOLE).unwrap();
    let ids: Vec<String> = all
        .points()
        .flat_map(|point| point.targets.iter().map(|target| point.id(target)))
        .collect();
    assert_eq!(ids.len(), 2 * 2 + 2 + 5 * 2 + 2, "{ids:?}");
    assert!(ids.contains(&"raw.each//dev/b:c/rr-4k-j1-q16#0".to_owned()), "{ids:?}");
    let mut unique = ids.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), ids.len(), "identities are unique");
    let all_at_once = all.points().find(|point| point.targets.len() == 2).unwrap();
    let jobs = all_at_once.jobs.jobs();
    assert_eq!(jobs.len(), 2, "one job for each drive");
    assert_eq!(jobs[1].filenames(), ["/dev/b:c"]);
    assert!(jobs.iter().all(|job| job.is_direct() && job.is_on("time_based")));
    let full = all.points().find(|point| point.workload.name == "full-stripe-j4-q32").unwrap();
    assert_eq!(full.workload.block_bytes, 4 * 65_536);
    assert_eq!(full.jobs.jobs()[0].get("offset_increment"), Some("25%"));
    let burst = all.points().find(|point| point.workload.name == "burst-1m-j1-q32").unwrap();
    assert_eq!(burst.jobs.jobs()[0].count("iodepth_batch_complete_min", 1), 32);
    assert_eq!(all.written(), [Path::new("/dev/md9")], "reads destroy nothing");
    assert!(
        all.left_out["rebuild"].contains("no array has rebuild commands, and the lab makes none")
    );
    // Each degraded condition takes one more member out, and the last puts them back.
    let degraded: Vec<_> = all.groups.iter().filter(|group| !group.before.is_empty()).collect();
    let counts = degraded.iter().map(|group| (group.before.len(), group.after.len()));
    assert_eq!(counts.collect::<Vec<_>>(), [(1, 0), (2, 1)]);
    assert_eq!(degraded[1].points[0].condition, ArrayCondition::Degraded(2));
}

#[test]
fn what_is_no_plan_is_refused_in_one_line_with_its_place() {
    let array = |engine: &str, members: &str| {
        format!("[[arrays]]\nengine = \"{engine}\"\n{members}[[stages]]\nkind = \"rebuild\"\n")
    };
    let two = "members = [\"a\", \"b\"]\n";
    let raw = |profile: &str| {
        let stage = "[[stages]]\nkind = \"raw.each\"\nprofiles";
        format!("drives = [\"d\"]\n{stage} = [\"{profile}\"]\n")
    };
    let cliff = |line: &str| format!("[[stages]]\nkind = \"cliff\"\n{line}\n");
    for (text, what) in [
        ("question = 1\n".to_owned(), "line 1"),
        ("stages = []\n".to_owned(), "needs a stage"),
        ("rutime_s = 5\nstages = []\n".to_owned(), "rutime_s"),
        ("[[stages]]\nkind = \"raw\"\n".to_owned(), "raw"),
        (cliff("depths = [0]"), "1 or more"),
        (array("btrfs", ""), "either a path or members"),
        (array("btrfs", two), "2 members are no raid6"),
        (array("ext4", two), "no engine"),
        (cliff("sizes = [\"big\"]"), "'big' is no size"),
        (raw("no"), "no profile 'no'"),
        (raw("unaligned"), "needs the stripe"),
    ] {
        let head = if text.starts_with("question") { "" } else { "question = \"a\"\n" };
        let line = expanded(&format!("{head}{text}")).unwrap_err().to_string();
        assert!(line.contains(what) && !line.contains('\n'), "{text}: {line}");
    }
}

#[test]
fn every_profile_that_ships_passes_its_own_rules() {
    let text = "question = \"a\"\n[[arrays]]\npath = \"f\"\nstrip = \"64k\"\ndata_members = 4\n\
                [[stages]]\nkind = \"array.sweep\"\n\
                profiles = [\"buffered-1m\", \"burst-1m\", \"full-stripe\", \"mixed-4k\", \
                \"rr-4k\", \"rw-4k\", \"seq-read-1m\", \"seq-write-1m\", \"sync-4k\", \
                \"unaligned\"]\njobs = [1, 4]\n";
    for point in expanded(text).unwrap().points() {
        let intent = Intent { preconditioned: true, ..Intent::default() };
        let subject = Subject { jobs: point.jobs.jobs(), result: None, intent };
        let said = crate::lint::lint(&subject, &Live);
        // The target is made up, and work in the background is this machine's.
        let is_error = |it: &&crate::lint::Remark| {
            it.severity == Severity::Error && !["L18", "L23"].contains(&it.rule)
        };
        let errors: Vec<_> = said.iter().filter(is_error).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", point.workload.name);
    }
}

struct Place {
    dir: tempfile::TempDir,
    plan: Expanded,
}

/// Three drives of 4 MiB and an array that is a file, too.
fn place(stages: &str) -> Place {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c", "array"] {
        std::fs::write(dir.path().join(name), vec![7; 4 << 20]).unwrap();
    }
    let at = dir.path().display();
    let text = format!(
        "question = \"q\"\nruntime_s = 1\nramp_s = 0\nioengine = \"psync\"\n\
         drives = [\"{at}/a\", \"{at}/b\", \"{at}/c\"]\n\
         [[arrays]]\npath = \"{at}/array\"\ntake_out = [[\"sh\", \"-c\", \
         \"echo out >> {at}/hooks\"]]\n\
         restore = [[\"sh\", \"-c\", \"echo back >> {at}/hooks\"]]\n{stages}"
    );
    let plan = expanded(&text).unwrap();
    RunDir::create(&dir.path().join("run"), &RunFacts::default()).unwrap();
    Place { dir, plan }
}

impl Place {
    fn run(&self, interrupt: Interrupt) -> Result<Summary, Refusal> {
        let path = self.dir.path().join("run");
        let dir = RunDir::open(&path).unwrap();
        let evidence = Evidence::open(&path, interrupt)?;
        let watch = Watch::new(&dir, false, 100.0, &Library::default()).expect("watched");
        let (machine, models) = (&Live, Library::default());
        let run =
            Run { dir: &dir, watch: &watch, evidence: &evidence, machine, named: &[], models };
        execute(&self.plan, &run, &mut Progress::new(1, 1.0, true))
    }

    fn records(&self) -> Vec<Record> {
        RunDir::open(&self.dir.path().join("run")).unwrap().read().unwrap().records
    }

    fn measured(&self) -> Vec<Measurement> {
        self.records().iter().filter_map(Record::measurement).cloned().collect()
    }
}

const STAGES: &str = "[[stages]]\nkind = \"precondition\"\n[[stages]]\nkind = \"raw.all\"\n\
                      profiles = [\"rr-4k\"]\ndepths = [1]\n\
                      [[stages]]\nkind = \"degraded\"\nprofiles = [\"rw-4k\"]\ndepths = [1]\n";

#[test]
fn a_run_measures_each_point_once_and_goes_on_where_it_was_interrupted() {
    needs_fio!();
    let place = place(STAGES);
    let interrupt = Interrupt::default();
    interrupt.raise();
    let refusal = place.run(interrupt).unwrap_err();
    assert_eq!(refusal.code, "run.interrupted", "{refusal}");
    assert!(place.measured().is_empty());

    let first = place.run(Interrupt::default()).unwrap();
    assert_eq!((first.measured, first.resumed), (6 + 3 + 1, 0));
    let measured = place.measured();
    let raw: Vec<_> = measured.iter().filter(|measured| measured.stage == "raw.all").collect();
    assert_eq!(raw.len(), 3, "each drive by itself");
    assert!(raw.iter().all(|measured| measured.read.ios > 0
        && measured.write.ios == 0
        && !measured.read.latency_bins.is_empty()));
    for (fill, name) in measured.iter().zip(["fill-first", "fill-second"].iter().cycle()).take(6) {
        let told = (fill.stage.as_str(), fill.workload.name.as_str(), fill.write.bytes);
        assert_eq!(told, ("precondition", *name, 4 << 20), "written whole twice, each a record");
    }
    let degraded = measured.last().unwrap();
    assert_eq!(degraded.condition, ArrayCondition::Degraded(1));
    assert!(degraded.cpu.as_ref().is_some_and(|cpu| cpu.wall_s > 0.0 && cpu.cores > 0));
    let hooks = || std::fs::read_to_string(place.dir.path().join("hooks")).unwrap();
    assert_eq!(hooks(), "out\nback\n");
    let records = place.records();
    let checks: Vec<_> = records.iter().filter_map(Record::check).collect();
    let names: Vec<&str> = checks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names.iter().filter(|name| **name == "drive.preconditioned").count(), 3);
    assert!(names.contains(&"drives.slow_member"));
    let own = |name: &str| ["drives.slow_member", "drive.preconditioned"].contains(&name);
    assert!(
        checks.iter().all(|check| !own(&check.name) || check.outcome != Outcome::CannotTell),
        "{checks:?}"
    );

    let again = place.run(Interrupt::default()).unwrap();
    assert_eq!((again.measured, again.resumed), (0, 8));
    assert_eq!(
        (place.measured().len(), hooks().as_str()),
        (10, "out\nback\n"),
        "nothing is done twice"
    );
    assert_eq!(verify(&place.dir.path().join("run")).unwrap().problems, Vec::<String>::new());
}

const MADE: &str = include_str!("../../tests/data/plans/made.toml");

#[test]
fn an_array_that_the_lab_makes_is_degraded_by_as_many_as_its_parity_and_its_members_are_written() {
    let all = expanded(MADE).unwrap();
    let shape: Vec<_> = all.groups.iter().map(|group| (group.out, group.is_rebuild)).collect();
    assert_eq!(shape, [(0, false), (1, false), (2, false), (1, true)]);
    let members = ["/dev/a", "/dev/b", "/dev/c", "/dev/d"].map(Path::new);
    assert_eq!(all.written(), members, "its own path is no file");
    assert!(all.left_out["arrays.all"].contains("one at a time"));
    let full = &all.groups[0].points[0];
    assert_eq!(full.workload.block_bytes, 2 * 65_536, "two data members of 64 KiB");
    assert_eq!(full.ids(), ["array.sweep/made/btrfs/raid6/full-stripe-j1-q32#0"]);
    let made: Vec<bool> = all.groups.iter().map(|group| group.made_s > 0.0).collect();
    assert_eq!(made, [true, false, false, true], "a rebuild follows two members out");
}

/// Each array of 1 GiB is written before it is measured: at 500 MB/s, and two seconds to start.
#[test]
fn an_estimate_knows_how_often_an_array_is_made_and_filled() {
    let once = f64::from(1_u32 << 30) / 500e6 + 2.0;
    let turns = MADE.split("[[stages]]").next().unwrap().to_owned()
        + "[[stages]]\nkind = \"compare\"\nprofiles = [\"rr-4k\"]\nrounds = 6\nlosses = 1\n";
    let all = expanded(&turns).unwrap();
    let loads: f64 = all.points().map(|point| point.expected_s).sum();
    let more = all.expected_s() - loads;
    assert!((more - 6.0 * once).abs() < 1e-6, "{more} s and not 6 times {once}");
}

/// The job of the first seed: 20 minutes a point, at 1, 2, 4 and 8 queues, written and read.
#[test]
fn a_profile_s_own_time_counts_in_the_estimate_and_the_plan_s_wins() {
    let place = tempfile::tempdir().unwrap();
    let job = |mix: &str| {
        format!(
            "[global]\nioengine=libaio\ndirect=1\nbs=128k\nrw={mix}\niodepth=32\nruntime=1200\n\
             time_based=1\nnorandommap\noffset_increment=10%\n[job]\nstonewall\n"
        )
    };
    for mix in ["write", "read"] {
        std::fs::write(place.path().join(format!("{mix}.fio")), job(mix)).unwrap();
    }
    let expand_at = |line: &str| {
        let text = format!(
            "question = \"q\"\n{line}ramp_s = 0\n[profiles]\nw = \"write.fio\"\nr = \"read.fio\"\n\
             [[arrays]]\npath = \"/dev/md0\"\n[[stages]]\nkind = \"array.sweep\"\n\
             profiles = [\"w\", \"r\"]\njobs = [1, 2, 4, 8]\nrounds = 3\n"
        );
        expand(&Plan::parse(&text).unwrap(), place.path(), &|_| 1 << 40).unwrap()
    };
    let (own, given) = (expand_at(""), expand_at("runtime_s = 10\n"));
    let hours = own.expected_s() / 3600.0;
    assert!((8.0..8.1).contains(&hours), "2 x 4 x 3 points of 20 minutes, not {hours} h");
    let seconds = |all: &Expanded| all.points().next().unwrap().jobs.jobs()[0].seconds("runtime");
    assert_eq!((seconds(&own), seconds(&given)), (Some(1200.0), Some(10.0)));
    assert!((given.expected_s() - 24.0 * 12.0).abs() < 1e-6, "{}", given.expected_s());
}

/// Jobs that wait for others come after them; those without a time end with their size.
#[test]
fn an_estimate_knows_jobs_that_wait_and_jobs_that_end_by_themselves() {
    let jobs = "[a]\nrw=write\nbs=1m\nsize=5g\ntime_based=0\nruntime=0\n[b]\nstonewall\nrw=read\n\
                bs=1m\ntime_based\nruntime=30\nramp_time=5\n";
    let all = profiles::filled(jobs, "depths = [1]\n").unwrap();
    let moved_s = f64::from(5_u32 << 10) * 1024.0 * 1024.0 / 500e6;
    let expected = moved_s + 35.0 + 2.0;
    assert!((all.expected_s() - expected).abs() < 1e-6, "{} and not {expected}", all.expected_s());
}

fn blank(id: &str, workload: &crate::record::Workload) -> Measurement {
    Measurement {
        id: id.to_owned(),
        stage: "raw.all".to_owned(),
        condition: ArrayCondition::Raw,
        workload: workload.clone(),
        ..Measurement::default()
    }
}
