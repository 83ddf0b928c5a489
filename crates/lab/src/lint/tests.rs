//! Every rule against its two examples, on a machine that is made up, and on real files.

use super::live::Live;
use super::machine::{Away, HostFacts, Kind, Machine, TargetFacts};
use super::rules::LOOKS;
use super::subject::{Intent, Subject};
use super::{Remark, lint};
use crate::metrics::plausible::Ceiling;
use crate::rules::{self, Rule};
use crate::validity::{Mark, Severity};
use serde::Deserialize;
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

/// A sentence of `tests/data/lints.toml`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Case {
    job: String,
    line: String,
    on: String,
    busy: bool,
    publish: bool,
    complaints: Vec<String>,
    destroy: Vec<String>,
    says: Vec<[String; 3]>,
    silent: Vec<String>,
}

impl Case {
    fn remarks(&self) -> Vec<Remark> {
        let (complaints, named) = (self.complaints.clone(), self.destroy.clone());
        let intent = Intent { publish: self.publish, complaints, named, ..Intent::default() };
        let words: Vec<String> = self.line.split(' ').map(str::to_owned).collect();
        let subject = match self.line.as_str() {
            "" => Subject::read(self.job.as_bytes(), intent),
            _ => Subject::from_arguments(&words, intent, |_| unreachable!("no file is named")),
        };
        let made_up = setting(if self.busy { "L18" } else { "" }, true).0;
        let machine: &dyn Machine = match self.on.as_str() {
            "here" => &Live,
            "away" => &Away,
            _ => &made_up,
        };
        lint(&subject.unwrap(), machine)
    }
}

#[test]
fn jobs_are_told_what_is_wrong_with_them_where_they_are_judged() {
    let cases: BTreeMap<String, Case> =
        toml::from_str(include_str!("../../tests/data/lints.toml")).unwrap();
    for (sentence, case) in cases {
        let remarks = case.remarks();
        for [rule, severity, words] in &case.says {
            let is_it = |it: &Remark| {
                let told = format!("{} {:?}", it.reason, it.correction);
                let own = format!("{:?}", it.severity).to_lowercase();
                let is_so = if severity == "untold" { it.cannot_tell } else { own == *severity };
                it.rule == rule && is_so && told.contains(words)
            };
            assert!(remarks.iter().any(is_it), "{sentence}: {rule} {words}: {remarks:?}");
        }
        for rule in &case.silent {
            assert!(remarks.iter().all(|it| it.rule != rule), "{sentence}: {rule}: {remarks:?}");
        }
    }
}

#[test]
fn a_sparse_file_is_refused_as_a_read_benchmark_and_a_written_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("target");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(8 << 20).unwrap();
    let says = || {
        let job = format!("[a]\nfilename={}\nrw=randread\n", path.display());
        let remarks = Case { job, on: "here".to_owned(), ..Case::default() }.remarks();
        remarks.into_iter().filter(|remark| remark.rule == "L08").collect::<Vec<_>>()
    };
    assert!(says().iter().any(|remark| remark.severity == Severity::Error), "{:?}", says());
    std::fs::write(&path, vec![7; 8 << 20]).unwrap();
    file.sync_all().unwrap();
    assert!(says().is_empty(), "{:?}", says());
}

#[test]
fn the_list_of_the_documentation_names_every_rule_as_the_program_does() {
    let text = include_str!("../../../../docs/lab/fio.md");
    for rule in LOOKS.iter().map(|(id, _)| rules::of(id)) {
        let line = format!("- {}: {}.\n", rule.id, rule.title);
        assert!(text.contains(&line), "{line}");
    }
}
