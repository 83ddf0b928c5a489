//! Made-up runs against each other.

use super::{differences, judge};
use crate::record::{ArrayCondition, Direction, EngineIdentity, Measurement, Record, Workload};
use crate::report::points;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Which of a few targets, engines, settings, loads, conditions and stages; and the rates of its
/// rounds.
type Case = ([usize; 6], Vec<u32>);

fn measurement(case: [usize; 6], round: usize, rate: u32) -> Record {
    let [target, engine, setting, load, condition, stage] = case;
    let workload = Workload {
        name: format!("load-{load}"),
        mix: ["randread", "write"][load].into(),
        block_bytes: [4096, 1 << 20][load],
        ..Workload::default()
    };
    let rates =
        Direction { iops: rate.into(), bytes_per_s: f64::from(rate) * 9.0, ..Direction::default() };
    Record::Measurement(Box::new(Measurement {
        id: format!("{case:?}#{round}"),
        stage: ["raw.each", "sweep"][stage].into(),
        round: u32::try_from(round).expect("few"),
        target: ["sda", "sdb", "sdc"][target].into(),
        engine: EngineIdentity {
            name: ["ashlar", "md"][engine].into(),
            tunables: [("policy".to_owned(), ["log", "bitmap"][setting].to_owned())].into(),
            ..EngineIdentity::default()
        },
        condition: [ArrayCondition::Healthy, ArrayCondition::Degraded(1)][condition],
        workload,
        read: rates,
        ..Measurement::default()
    }))
}

fn case() -> impl Strategy<Value = Case> {
    let which = (0..3usize, 0..2usize, 0..2usize, 0..2usize, 0..2usize, 0..2usize);
    let rates = prop::collection::vec(1..1_000_000u32, 1..9);
    (which.prop_map(|(a, b, c, d, e, f)| [a, b, c, d, e, f]), rates)
}

proptest! {
    #[test]
    fn a_run_is_not_worse_than_itself(cases in prop::collection::vec(case(), 1..40)) {
        let records: Vec<Record> = cases
            .iter()
            .flat_map(|(case, rates)| {
                rates.iter().enumerate().map(|(round, rate)| measurement(*case, round, *rate))
            })
            .collect();
        let points = points::of(&records);
        let stored = judge(&points, &points, 1.0);
        prop_assert_eq!(stored.pairs.len(), points.len());
        prop_assert!(stored.left_out.is_empty());
        for pair in stored.pairs {
            prop_assert!(!pair.is_worse && (pair.ratio - 1.0).abs() < 1e-12, "{:?}", pair);
        }
    }
}

/// A run of one case, with these rates.
fn run(case: [usize; 6], rates: &[u32]) -> Vec<Record> {
    rates.iter().enumerate().map(|(round, rate)| measurement(case, round, *rate)).collect()
}

const OTHER: [usize; 6] = [0, 0, 1, 0, 0, 0];

#[test]
fn another_setting_is_compared_only_if_nothing_else_has_the_name() {
    let (one, other) = (run([0; 6], &[100; 6]), run(OTHER, &[50; 6]));
    let both = points::of(&[one.clone(), other.clone()].concat());
    let one = points::of(&one);
    assert!(judge(&points::of(&other), &one, 0.9).pairs[0].is_worse);
    let stored = judge(&both, &one, 0.9);
    assert_eq!((stored.pairs.len(), stored.left_out.len()), (1, 1));
    assert!(!stored.pairs[0].is_worse);
}

#[test]
fn neither_fewer_than_six_rounds_nor_a_side_that_drifted_decide() {
    let old = points::of(&run([0; 6], &[100; 6]));
    let against = |rates: &[u32]| judge(&points::of(&run([0; 6], rates)), &old, 0.9);
    for rounds in 1..6 {
        let stored = against(&[50; 6][..rounds]);
        assert_eq!((stored.counts(), stored.code()), ((0, 1), 2), "{rounds} rounds");
        assert!(stored.pairs[0].sentence.contains("six decide"), "{:?}", stored.pairs);
    }
    assert_eq!((against(&[50; 6]).code(), against(&[99; 6]).code()), (1, 0));
    let drifted = against(&[60, 58, 56, 54, 52, 50]);
    assert_eq!(drifted.code(), 2, "{:?}", drifted.pairs);
    assert!(drifted.pairs[0].sentence.contains("drifted"), "{:?}", drifted.pairs);
}

fn facts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, fact)| ((*name).to_owned(), (*fact).to_owned())).collect()
}

const SAME: [(&str, &str); 5] = [
    ("cpu", "A"),
    ("cores", "0-1"),
    ("memory", "24000000 kB"),
    ("devices", "4 x file, 1.07 GB"),
    ("kernel", "6.1"),
];

#[test]
fn another_kernel_is_software_and_another_processor_is_another_machine() {
    let old = facts(&SAME);
    let mut new = old.clone();
    new.insert("memory".into(), "23900000 kB".into());
    new.insert("kernel".into(), "6.18".into());
    let told = differences(&old, &new);
    assert!(told.machine.is_empty(), "{told:?}");
    assert!(told.software.contains(&"kernel: 6.1 -> 6.18".to_owned()), "{told:?}");
    new.insert("cpu".into(), "B".into());
    new.insert("memory".into(), "12000000 kB".into());
    let told = differences(&old, &new);
    assert_eq!(told.machine, ["cpu: A -> B", "memory: 24000000 kB -> 12000000 kB"]);
    // What was not recorded is no match.
    let old = facts(&SAME[1..]);
    assert_eq!(differences(&old, &facts(&SAME)).machine, ["cpu: not recorded -> A"]);
    assert_eq!(differences(&old, &old).machine, ["cpu: not recorded -> not recorded"]);
}
