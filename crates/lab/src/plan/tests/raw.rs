//! What raw runs say of an array: baselines and ceilings, how drives scale.

use super::{MADE, blank, expanded};
use crate::plan::ceilings::RawRuns;
use crate::plan::findings::{scaling, zones};
use crate::plan::points::Target;
use crate::record::{ArrayCondition, Measurement, Workload};
use crate::rules;
use crate::validity::{Outcome, Severity};

/// A raw run of four drives at `rate` bytes a second each, and what it allows RAID 6.
#[test]
fn raw_runs_give_baselines_with_their_penalty_and_ceilings_only_at_enough_depth() {
    let all = expanded(&MADE.replace("kind = \"degraded\"", "kind = \"raw.all\"")).unwrap();
    let point = all.points().find(|point| point.targets.len() == 4).unwrap();
    let measured: Vec<Measurement> = point
        .targets
        .iter()
        .map(|target| {
            let mut one = blank(&point.id(target), &point.workload);
            one.target = target.path.display().to_string();
            one.read.iops = 10_000.0;
            one.read.bytes_per_s = 40_960_000.0;
            one
        })
        .collect();
    let array = &all.arrays[0];
    let raw = RawRuns::of(array, &all.drives, measured.iter()).unwrap();
    let at = |depth| Workload { depth, ..point.workload.clone() };
    let same = at(4 * point.workload.depth);
    let healthy = raw.baseline(&same, ArrayCondition::Healthy).unwrap();
    assert!((healthy.value - 40_000.0).abs() < 1e-6, "{}", healthy.derivation);
    // Two of four out, two data members: half the reads cost two, and half the drives are
    // left.
    let degraded = raw.baseline(&same, ArrayCondition::Degraded(2)).unwrap();
    assert!((degraded.value - 20_000.0 / 1.5).abs() < 1e-6, "{}", degraded.derivation);
    // Four drives with 32 each: a baseline for 64 to 256 in flight on the array, and no other.
    let healthy = |depth| raw.baseline(&at(depth), ArrayCondition::Healthy);
    let found = [1, 8, 32, 63, 64, 256, 257].map(|depth| healthy(depth).is_some());
    assert_eq!(found, [false, false, false, false, true, true, false]);
    assert!(healthy(64).unwrap().derivation.contains("2.00 times what 1 x 64"));
    let blocks = Workload { block_bytes: 8192, ..same.clone() };
    assert!(raw.baseline(&blocks, ArrayCondition::Healthy).is_none(), "other blocks");
    let (ceiling, load) = raw.ceiling(&point.workload).unwrap();
    assert!((ceiling.value - 163_840_000.0).abs() < 1e-3, "{ceiling:?}");
    assert_eq!(load, point.workload.name);
    assert!(raw.ceiling(&at(1024)).is_none(), "the raw drives were not asked for as much");
    let writes = Workload { mix: "randwrite".into(), ..point.workload.clone() };
    assert!(raw.baseline(&writes, ArrayCondition::Healthy).is_none(), "no raw run of its kind");
    let mut sparse = measured;
    sparse[3].findings.push(rules::of("L08").finding_as(Severity::Error, "never written"));
    let raw = RawRuns::of(array, &all.drives, sparse.iter()).unwrap();
    assert!(raw.baseline(&same, ArrayCondition::Healthy).is_none(), "one is INVALID");
    assert!(raw.ceiling(&point.workload).is_none(), "one is INVALID");
}

/// Ten drives at 10,000 IOPS each in blocks of 4 KiB, and an array on them: BASELINE of its small
/// writes, reads, reads with a member out, and the ceiling of its small writes.
fn on_ten_drives(array: &str, mix: &str, read_percent: Option<u32>) -> [Option<f64>; 4] {
    let drives: Vec<String> = (0..10).map(|at| format!("\"d{at}\"")).collect();
    let all = expanded(&format!(
        "question = \"q\"\ndrives = [{}]\n[[arrays]]\npath = \"a\"\n{array}\n[[stages]]\n\
         kind = \"raw.all\"\nprofiles = [\"rr-4k\"]\ndepths = [4]\n",
        drives.join(", ")
    ))
    .unwrap();
    let point = all.points().next().unwrap();
    let load = |mix: &str, read_percent, depth| {
        let mix = mix.to_owned();
        Workload { mix, read_percent, depth, ..point.workload.clone() }
    };
    let one = |target: &Target| {
        let mut one = blank(&point.id(target), &load(mix, read_percent, 4));
        one.target = target.path.display().to_string();
        (one.read.iops, one.write.iops) = (5000.0, 5000.0);
        (one.read.bytes_per_s, one.write.bytes_per_s) = (20e6, 20e6);
        one
    };
    let measured: Vec<Measurement> = point.targets.iter().map(one).collect();
    let raw = RawRuns::of(&all.arrays[0], &all.drives, measured.iter()).unwrap();
    let at = |mix: &str, depth, condition| {
        raw.baseline(&load(mix, None, depth), condition).map(|point| point.value)
    };
    [
        at("randwrite", 16, ArrayCondition::Healthy),
        at("randread", 32, ArrayCondition::Healthy),
        at("randread", 32, ArrayCondition::Degraded(1)),
        raw.ceiling(&load("randwrite", None, 4)).map(|(ceiling, _)| ceiling.value),
    ]
}

fn is_near(found: Option<f64>, wanted: f64) {
    assert!(found.is_some_and(|found| (found / wanted - 1.0).abs() < 1e-9), "{found:?}, {wanted}");
}

/// 70 % reads are no half: they would give an array more small writes than its drives can do. Two
/// groups of 3+2 told by their ten drives: a small write costs 6 member I/Os, not 10 or 16.
#[test]
fn small_writes_need_half_reads_and_drives_without_data_are_no_parity_unless_the_plan_says_so() {
    let half = |array| on_ten_drives(array, "randrw", Some(50))[0];
    assert_eq!(on_ten_drives("data_members = 8", "randrw", Some(70))[0], None);
    is_near(half("data_members = 8"), 100_000.0 / 6.0);
    for unknown in ["data_members = 6", "data_members = 3"] {
        assert_eq!(half(unknown), None, "{unknown}");
        let [_, healthy, degraded, _] = on_ten_drives(unknown, "randread", None);
        is_near(healthy, 100_000.0);
        assert_eq!(degraded, None, "{unknown}");
        // No share that could be too low.
        is_near(on_ten_drives(unknown, "randwrite", None)[3], 400e6);
    }
    let known = "data_members = 3\nparity_members = 2";
    is_near(half(known), 100_000.0 / 6.0);
    is_near(on_ten_drives(known, "randread", None)[2], 90_000.0 / (0.9 + 0.1 * 3.0));
    is_near(on_ten_drives(known, "randwrite", None)[3], 400e6 * 0.6);
    is_near(half("data_members = 7\nparity_members = 2\nspares = 1"), 90_000.0 / 6.0);
}

#[test]
fn drives_are_scaled_by_doubling_and_those_that_share_something_full_do_not_scale() {
    let text = "question = \"q\"\ndrives = [\"a\", \"b\", \"c\", \"d\", \"e\"]\n[[stages]]\n\
                kind = \"raw.scale\"\nprofiles = [\"rr-4k\"]\n";
    let all = expanded(text).unwrap();
    let steps: Vec<(usize, String)> =
        all.points().map(|point| (point.targets.len(), point.workload.name.clone())).collect();
    let wanted = [1, 2, 4, 5].map(|count| (count, format!("rr-4k-j1-q32-on{count}")));
    assert_eq!(steps, wanted);
    let full = scaling("rr-4k", &[(1, 100.0), (2, 190.0), (4, 210.0)]);
    assert_eq!(full.outcome, Outcome::Fail);
    assert!(
        full.found
            .contains("4 drives at once do 2.10 times what one does (1: 1.00, 2: 1.90, 4: 2.10)"),
        "{full:?}"
    );
    assert_eq!(scaling("rr-4k", &[(1, 100.0), (4, 390.0)]).outcome, Outcome::Pass);
    assert_eq!(scaling("rr-4k", &[(1, 100.0)]).outcome, Outcome::CannotTell);
}

#[test]
fn of_a_zone_curve_the_whole_pass_is_expected_and_not_the_outer_edge() {
    let curve = [(0, 265e6), (25, 240.4e6), (50, 213.6e6), (75, 182.5e6), (99, 146.7e6)];
    let check = zones("/dev/sda", &curve);
    let wanted = "expect 206 MB/s of a pass over all of it, 77.7 % of what its outer edge promises";
    assert!(check.found.ends_with(wanted), "{}", check.found);
    assert_eq!(zones("/dev/sda", &curve[..2]).outcome, Outcome::CannotTell);
}
