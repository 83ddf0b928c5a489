//! What raw runs say of an array: baselines and ceilings, how drives scale, what waiting for the
//! slowest costs.

use super::{MADE, blank, expanded};
use crate::record::{ArrayCondition, Measurement};
use crate::rules;
use crate::validity::{Outcome, Severity};

/// A raw run of four drives at `rate` bytes a second each, and what it allows RAID 6.
#[test]
fn raw_runs_give_baselines_with_their_penalty_and_ceilings_only_at_enough_depth() {
    use crate::plan::ceilings::RawRuns;
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
    let at = |depth| crate::record::Workload { depth, ..point.workload.clone() };
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
    let blocks = crate::record::Workload { block_bytes: 8192, ..same.clone() };
    assert!(raw.baseline(&blocks, ArrayCondition::Healthy).is_none(), "other blocks");
    let (ceiling, load) = raw.ceiling(&point.workload).unwrap();
    assert!((ceiling.value - 163_840_000.0).abs() < 1e-3, "{ceiling:?}");
    assert_eq!(load, point.workload.name);
    assert!(raw.ceiling(&at(1024)).is_none(), "the raw drives were not asked for as much");
    let writes = crate::record::Workload { mix: "randwrite".into(), ..point.workload.clone() };
    assert!(raw.baseline(&writes, ArrayCondition::Healthy).is_none(), "no raw run of its kind");
    let mut sparse = measured;
    sparse[3].findings.push(rules::of("L08").finding_as(Severity::Error, "never written"));
    let raw = RawRuns::of(array, &all.drives, sparse.iter()).unwrap();
    assert!(raw.baseline(&same, ArrayCondition::Healthy).is_none(), "one is INVALID");
    assert!(raw.ceiling(&point.workload).is_none(), "one is INVALID");
}

/// Ten drives at `rate` IOPS each in blocks of 4 KiB, and an array on them.
fn on_ten_drives(array: &str, (mix, read_percent): (&str, Option<u32>)) -> Vec<Option<f64>> {
    use crate::plan::ceilings::RawRuns;
    let drives: Vec<String> = (0..10).map(|at| format!("\"d{at}\"")).collect();
    let all = expanded(&format!(
        "question = \"q\"\ndrives = [{}]\n[[arrays]]\npath = \"a\"\n{array}\n[[stages]]\n\
         kind = \"raw.all\"\nprofiles = [\"rr-4k\"]\ndepths = [4]\n",
        drives.join(", ")
    ))
    .unwrap();
    let point = all.points().next().unwrap();
    let load = |mix: &str, read_percent| {
        let mix = mix.to_owned();
        crate::record::Workload { mix, read_percent, ..point.workload.clone() }
    };
    let raw = load(mix, read_percent);
    let one = |target: &crate::plan::points::Target| {
        let mut one = blank(&point.id(target), &raw);
        one.target = target.path.display().to_string();
        (one.read.iops, one.write.iops) = (5000.0, 5000.0);
        (one.read.bytes_per_s, one.write.bytes_per_s) = (20e6, 20e6);
        one
    };
    let measured: Vec<Measurement> = point.targets.iter().map(one).collect();
    let raw = RawRuns::of(&all.arrays[0], &all.drives, measured.iter()).unwrap();
    let at = |mix: &str, condition| {
        let depth = if mix == "randwrite" { 16 } else { 32 };
        let asked = crate::record::Workload { depth, ..load(mix, None) };
        raw.baseline(&asked, condition).map(|point| point.value)
    };
    vec![
        at("randwrite", ArrayCondition::Healthy),
        at("randread", ArrayCondition::Healthy),
        at("randread", ArrayCondition::Degraded(1)),
        raw.ceiling(&load("randwrite", None)).map(|(ceiling, _)| ceiling.value),
    ]
}

/// 70 % reads are no half: they would give an array more small writes than its drives can do.
#[test]
fn small_writes_need_a_raw_run_of_half_reads_and_half_writes() {
    let of = |percent| on_ten_drives("data_members = 8", ("randrw", Some(percent)))[0];
    assert_eq!(of(70), None);
    assert!((of(50).unwrap() - 100_000.0 / 6.0).abs() < 1e-6);
}

/// Two groups of 3+2 told by their ten drives: a small write costs 6 member I/Os, not 10 or 16.
#[test]
fn drives_without_data_are_no_parity_of_one_stripe_unless_the_plan_says_so() {
    let half = ("randrw", Some(50));
    for unknown in ["data_members = 6", "data_members = 3"] {
        assert_eq!(on_ten_drives(unknown, half)[0], None, "{unknown}");
        let reads = on_ten_drives(unknown, ("randread", None));
        assert!((reads[1].unwrap() - 100_000.0).abs() < 1e-6, "healthy reads need no parity");
        assert_eq!(reads[2], None, "{unknown}");
        let writes = on_ten_drives(unknown, ("randwrite", None));
        assert!((writes[3].unwrap() - 400e6).abs() < 1.0, "no share that could be too low");
    }
    let known = "data_members = 3\nparity_members = 2";
    assert!((on_ten_drives(known, half)[0].unwrap() - 100_000.0 / 6.0).abs() < 1e-6);
    let reads = on_ten_drives(known, ("randread", None))[2].unwrap();
    assert!((reads - 90_000.0 / (0.9 + 0.1 * 3.0)).abs() < 1e-6, "{reads}");
    let writes = on_ten_drives(known, ("randwrite", None))[3].unwrap();
    assert!((writes - 400e6 * 0.6).abs() < 1.0, "{writes}");
    let spare = "data_members = 7\nparity_members = 2\nspares = 1";
    assert!((on_ten_drives(spare, half)[0].unwrap() - 90_000.0 / 6.0).abs() < 1e-6);
}

#[test]
fn drives_are_scaled_by_doubling_and_those_that_share_something_full_do_not_scale() {
    use crate::plan::findings::scaling;
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

/// Half of the I/Os of each drive take 100 us, half 300: of two drives the slower takes 300 in
/// three of four stripes.
#[test]
fn what_waiting_for_the_slowest_member_costs_comes_from_the_raw_drives() {
    use crate::plan::findings::stripe_wait;
    let mut one = crate::record::sample();
    one.write.latency_bins.clear();
    one.read.latency_bins = [(100_000, 50), (300_000, 50)].into();
    one.workload.name = "seq-read-64k-j1-q4".to_owned();
    let array = one.clone();
    let check = stripe_wait(&array, &[&one, &one]).unwrap();
    assert!(check.found.contains("the slowest of 2 takes 300 us"), "{check:?}");
    assert!(check.found.contains("costs 3.00 times"), "{check:?}");
    one.read.latency_bins.clear();
    assert_eq!(stripe_wait(&array, &[&one]), None);
}

#[test]
fn of_a_zone_curve_the_whole_pass_is_expected_and_not_the_outer_edge() {
    use crate::plan::findings::zones;
    let curve = [(0, 265e6), (25, 240.4e6), (50, 213.6e6), (75, 182.5e6), (99, 146.7e6)];
    let check = zones("/dev/sda", &curve);
    let wanted = "expect 206 MB/s of a pass over all of it, 77.7 % of what its outer edge promises";
    assert!(check.found.ends_with(wanted), "{}", check.found);
    assert_eq!(zones("/dev/sda", &curve[..2]).outcome, Outcome::CannotTell);
}
