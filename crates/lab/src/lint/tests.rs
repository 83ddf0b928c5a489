//! Every rule against its two examples, on a machine that is made up, and on real files.

use super::live::Live;
use super::machine::{Away, HostFacts, Kind, Machine, TargetFacts};
use super::rules::LOOKS;
use super::subject::{Intent, Subject};
use super::{Remark, lint};
use crate::metrics::plausible::Ceiling;
use crate::rules::{self, Rule};
use crate::validity::{Mark, Severity};
use std::collections::BTreeMap;

/// A machine on which everything is known and nothing is wrong: `/dev/...` are idle disks, other
/// names are files.
#[derive(Clone)]
struct MadeUp {
    disk: TargetFacts,
    file: TargetFacts,
    host: HostFacts,
}

impl Machine for MadeUp {
    fn target(&self, path: &str) -> TargetFacts {
        if path.starts_with("/dev/") { self.disk.clone() } else { self.file.clone() }
    }

    fn host(&self) -> HostFacts {
        self.host.clone()
    }
}

fn made_up() -> MadeUp {
    let disk = TargetFacts {
        kind: Ok(Kind::Block),
        size_bytes: Ok(1 << 40),
        logical_block_bytes: Ok(512),
        start_bytes: Ok(0),
        optimal_bytes: Ok(0),
        rotational: Ok(false),
        serial: Ok("S1".into()),
        occupied: Ok(Vec::new()),
        unwritten_bytes: Ok(0),
        discarded_sectors: Ok(0),
        reads_zeros: Ok(false),
        compresses: Ok(false),
        queue_requests: Ok(256),
        volatile_cache: Ok(false),
        polls: Ok(true),
        node: Ok(0),
    };
    let file = TargetFacts { kind: Ok(Kind::File), ..disk.clone() };
    let host = HostFacts {
        memory_bytes: Ok(16 << 30),
        aio_max: Ok(65_536),
        fio: Ok((3, 33)),
        nodes: Ok(BTreeMap::from([(0, [0, 1].into()), (1, [2, 3].into())])),
        background: Ok(Vec::new()),
    };
    MadeUp { disk, file, host }
}

/// What has to be so for the bad example of a rule to be bad. The good one is judged on the same
/// machine, unless the machine itself is what is wrong.
fn setting(rule: &str, bad: bool) -> (MadeUp, Intent) {
    let mut machine = made_up();
    let mut intent = Intent::default();
    match rule {
        "L07" => machine.disk.optimal_bytes = Ok(512 << 10),
        "L08" => machine.file.unwritten_bytes = Ok(1 << 20),
        "L16" => machine.file.compresses = Ok(true),
        "L18" => machine.disk.occupied = Ok(vec!["/dev/sdz1 is mounted on /srv".into()]),
        "L20" => machine.disk.polls = Ok(false),
        "L21" => intent.coalescing = Some(true),
        "L23" if bad => machine.host.background = Ok(vec!["md resync (md0_resync)".into()]),
        "L29" => intent.ceilings = vec![Ceiling { name: "PCIe 3.0 x4".into(), value: 3.94e9 }],
        _ => {}
    }
    (machine, intent)
}

fn remarks_of(rule: &str, text: &str, bad: bool) -> Vec<Remark> {
    let (machine, intent) = setting(rule, bad);
    let subject = Subject::read(text.as_bytes(), intent).unwrap();
    lint(&subject, &machine).into_iter().filter(|remark| remark.rule == rule).collect()
}

#[test]
fn every_rule_complains_about_its_bad_example_and_not_about_its_good_one() {
    let all: Vec<&Rule> = LOOKS.iter().map(|(id, _)| rules::of(id)).collect();
    let expected: Vec<String> = (1..=31).map(|number| format!("L{number:02}")).collect();
    assert_eq!(
        all.iter().map(|rule| rule.id.clone()).collect::<Vec<_>>(),
        expected,
        "each rule once, none left out"
    );
    for rule in all {
        assert_ne!(rule.bad, rule.good, "{}", rule.id);
        let bad = remarks_of(&rule.id, &rule.bad, true);
        assert!(!bad.is_empty(), "{} says nothing about its bad example", rule.id);
        for remark in &bad {
            assert!(!remark.cannot_tell, "{}: {}", rule.id, remark.reason);
            assert!(remark.correction.is_some(), "{} gives no correction", rule.id);
            assert!(remark.severity >= rule.weight, "{}", rule.id);
        }
        let good = remarks_of(&rule.id, &rule.good, false);
        assert!(good.is_empty(), "{} complains about its good example: {good:?}", rule.id);
    }
}

#[test]
fn what_cannot_be_told_is_said_and_weighs_nothing() {
    let text = "[wal]\nfilename=/dev/sdz\ndirect=1\nrw=rw\nfsync=1\nhipri\nioengine=libblkio\n\
                cpus_allowed=0\n";
    let no = || "it is not there".to_owned();
    let known = made_up();
    let blind = MadeUp {
        disk: TargetFacts {
            logical_block_bytes: Ok(512),
            ..TargetFacts::untold(Ok(Kind::Block), &no())
        },
        host: HostFacts {
            fio: Err(no()),
            nodes: Err(no()),
            background: Err(no()),
            ..known.host.clone()
        },
        ..known
    };
    let subject = Subject::read(text.as_bytes(), Intent::default()).unwrap();
    let untold: Vec<_> =
        lint(&subject, &blind).into_iter().filter(|remark| remark.cannot_tell).collect();
    let rules: Vec<_> = untold.iter().map(|remark| remark.rule).collect();
    for rule in ["L04", "L06", "L08", "L16", "L18", "L19", "L20", "L22", "L23", "L24", "L25", "L27"]
    {
        assert!(rules.contains(&rule), "{rule} passes over what it could not find out: {rules:?}");
    }
    // The rule that keeps data from being destroyed: the others weigh nothing.
    let weight = |rule: &str| if rule == "L18" { Severity::Warning } else { Severity::Info };
    assert!(untold.iter().all(|remark| remark.severity == weight(remark.rule)));
    let findings: Vec<_> = untold.iter().map(Remark::finding).collect();
    assert_eq!(Mark::of(&findings), Mark::ValidWithNotes);
}

#[test]
fn a_named_target_may_be_destroyed_and_no_other() {
    let text = b"[a]\nfilename=/dev/sdz\ndirect=1\nrw=write\n";
    let (machine, _) = setting("L18", true);
    let says = |named: &str| {
        let intent = Intent { named: vec![named.to_owned()], ..Intent::default() };
        let subject = Subject::read(text, intent).unwrap();
        lint(&subject, &machine).iter().any(|remark| remark.rule == "L18")
    };
    assert!(!says("S1"));
    assert!(says("S2"));
    assert!(says("/dev/sdz"), "a device with a serial is named by it: paths move between boots");
}

fn judged(text: &str, machine: &dyn Machine) -> Vec<Remark> {
    lint(&Subject::read(text.as_bytes(), Intent::default()).unwrap(), machine)
}

/// fio writes to each of them, whatever the later line says, and makes files of those that are not
/// there.
#[test]
fn every_filename_of_a_job_is_judged_and_a_device_that_is_not_there_is_refused() {
    let text = "[global]\nfilename=/dev/no-first\n[a]\nfilename=/dev/no-second\n\
                filename=/dev/no-third\nrw=write\ndirect=1\n";
    let remarks = judged(text, &Live);
    let refused = remarks.iter().filter(|it| it.rule == "L18" && it.severity == Severity::Error);
    let refused: String = refused.map(|it| it.reason.as_str()).collect();
    for name in ["/dev/no-first", "/dev/no-second", "/dev/no-third"] {
        assert!(refused.contains(name), "{name}: {remarks:?}");
    }
}

/// fio 3.33 ends at once; `--parse-only` does not see it.
#[test]
fn a_file_that_is_not_there_needs_a_size() {
    let reason = |name: &str, line: &str| {
        let remarks = judged(&format!("[a]\nfilename={name}\nrw=write\n{line}\n"), &Live);
        remarks.into_iter().find(|it| it.rule == "L18").map(|it| it.reason).unwrap_or_default()
    };
    let name = "/nowhere-at-all/file";
    assert!(reason(name, "runtime=9").contains("you need to specify size="));
    assert!(reason(name, "io_size=1m").contains("the job has no size"));
    assert!(reason("<raid1 block device>", "").contains("is a placeholder"));
    for given in ["size=1m", "filesize=1m", "fill_device=1"] {
        assert_eq!(reason(name, given), "", "{given}");
    }
}

#[test]
fn of_another_machine_s_devices_nothing_is_claimed_and_what_is_missing_is_said() {
    let remarks = judged("[a]\nfilename=/dev/md0\nrw=write\nbs=128k\ndirect=1\n", &Away);
    let of = |rule: &str| remarks.iter().filter(|it| it.rule == rule).collect::<Vec<_>>();
    assert!(of("L18").iter().all(|it| it.cannot_tell) && !of("L18").is_empty(), "{remarks:?}");
    let stripe = of("L07");
    assert!(stripe[0].cannot_tell && stripe[0].reason.contains("/dev/md0"), "{stripe:?}");
    assert!(stripe[0].reason.contains("give --stripe-data"), "{stripe:?}");
    let remarks = judged("[a]\nfilename=/dev/no-such\nrw=write\n", &Live);
    let is_it = |it: &Remark| it.rule == "L07" && it.reason.contains("give --stripe-data");
    assert!(remarks.iter().any(is_it), "a device that is missing here is one: {remarks:?}");
}

#[test]
fn of_alternatives_all_runs_are_named_and_fio_s_other_complaints_stay() {
    let complaints =
        vec!["failed parsing rw=(write|randwrite)".to_owned(), "Bad option <iodepht=4>".to_owned()];
    let intent = Intent { complaints, ..Intent::default() };
    let text = b"[a]\nfilename=f\nrw=(write|randwrite)\niodepht=4\n";
    let remarks = lint(&Subject::read(text, intent).unwrap(), &made_up());
    let said: Vec<_> = remarks.iter().filter(|remark| remark.rule == "L30").collect();
    let better = said[0].correction.as_deref();
    assert_eq!(better, Some("rw=write and rw=randwrite, each in a run of its own"));
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[1].reason.contains("iodepht"), "{said:?}");
}

#[test]
fn a_sparse_file_is_refused_as_a_read_benchmark_and_a_written_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("target");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(8 << 20).unwrap();
    let says = || {
        let remarks = judged(&format!("[a]\nfilename={}\nrw=randread\n", path.display()), &Live);
        remarks.into_iter().filter(|remark| remark.rule == "L08").collect::<Vec<_>>()
    };
    assert!(says().iter().any(|remark| remark.severity == Severity::Error), "{:?}", says());
    std::fs::write(&path, vec![7; 8 << 20]).unwrap();
    file.sync_all().unwrap();
    assert!(says().is_empty(), "{:?}", says());
}

#[test]
fn options_of_a_command_line_are_judged_like_those_of_a_file() {
    let line = "fio --direct=1 --name=a --filename=/dev/sdz --rw=write --numjobs=4 \
                --ioengine=psync --iodepth=8";
    let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let read = |_: &str| unreachable!("no file is named");
    let subject = Subject::from_arguments(&arguments, Intent::default(), read).unwrap();
    let found: Vec<_> = lint(&subject, &made_up()).iter().map(|remark| remark.rule).collect();
    assert!(
        found.contains(&"L09") && found.contains(&"L10") && !found.contains(&"L01"),
        "{found:?}"
    );
}

#[test]
fn published_figures_are_held_to_more() {
    let text = b"[a]\nfilename=/dev/sdz\ndirect=1\nrw=randwrite\ntime_based\nruntime=120\n";
    let worst = |publish: bool, rule: &str| {
        let subject = Subject::read(text, Intent { publish, ..Intent::default() }).unwrap();
        let remarks = lint(&subject, &made_up());
        remarks.into_iter().filter(|remark| remark.rule == rule).map(|remark| remark.severity).max()
    };
    assert_eq!((worst(false, "L03"), worst(true, "L03")), (None, Some(Severity::Error)));
    assert_eq!(
        (worst(false, "L22"), worst(true, "L22")),
        (Some(Severity::Warning), Some(Severity::Error))
    );
}

#[test]
fn the_list_of_the_documentation_names_every_rule_as_the_program_does() {
    let text = include_str!("../../../../docs/lab/fio.md");
    for rule in LOOKS.iter().map(|(id, _)| rules::of(id)) {
        let line = format!("- {}: {}.\n", rule.id, rule.title);
        assert!(text.contains(&line), "{line}");
    }
}
