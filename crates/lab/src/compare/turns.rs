//! The plan that a comparison is: the raw devices, then A, B, B, A.
//!
//! What must stay true: a raw load has as much in flight as the array's load puts on its members;
//! of an engine with several settings only the best are compared, and all that were tried are told.

use super::cli::Args;
use crate::record::{ArrayCondition, Check, Record};
use crate::refusal::Refusal;
use crate::rules;
use crate::units;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const STRIP_KIB: u64 = 64;
const DEPTH_MAX: u32 = 256;
/// Least depth at which it is found out what all devices carry at once in blocks of 1 MiB.
const STREAM_DEPTH: u32 = 4;

/// Loads of a comparison and the profiles that they are.
const LOADS: [(&str, &str); 4] = [
    ("write", "full-stripe"),
    ("read", "stripe-read"),
    ("randread", "rr-4k"),
    ("randwrite", "rw-4k"),
];

/// Members of a stripe, and how many are taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Losses {
    data: u32,
    parity: u32,
    out: u32,
}

impl Losses {
    pub fn of(args: &Args) -> Result<Losses, Refusal> {
        let parity = match args.level.as_str() {
            "raid5" => 1,
            "raid6" => 2,
            other => {
                let said = format!("level '{other}' is not compared; nothing was done");
                return Err(Refusal::cannot_run("level.unknown", said).hint("say raid5 or raid6"));
            }
        };
        let handed_over = [&args.a, &args.b].iter().filter(|it| device(it).is_some()).count();
        let members = u32::try_from(args.members.len()).unwrap_or(u32::MAX);
        let out = args.losses.unwrap_or(if handed_over > 0 { 0 } else { parity });
        let is_without = handed_over == 2 && members == 0;
        if (members < parity + 2 && !is_without) || out > parity {
            let said =
                format!("{members} members with {out} out are no {}; nothing was done", args.level);
            let hint = "name more with --member, or fewer --losses";
            return Err(Refusal::cannot_run("members.wrong_number", said).hint(hint));
        }
        Ok(Losses { data: members.saturating_sub(parity).max(1), parity, out })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    A,
    B,
}

impl Side {
    pub const BOTH: [Side; 2] = [Side::A, Side::B];

    /// Its name, and its shell commands: before it is made, and after it was taken away.
    pub fn of(self, args: &Args) -> (&'static str, [&[String]; 2]) {
        match self {
            Side::A => ("a", [&args.set_a, &args.unset_a]),
            Side::B => ("b", [&args.set_b, &args.unset_b]),
        }
    }
}

fn device(engine: &str) -> Option<&str> {
    engine.strip_prefix("device:")
}

/// The plan of a comparison of `engines`, in TOML.
pub fn plan(args: &Args, engines: &[(&String, Side)], losses: Losses) -> Result<String, Refusal> {
    if args.jobs.iter().chain(&args.depths).any(|count| !(1..=1024).contains(count)) {
        let said = "jobs and depths are 1 to 1024; nothing was done";
        return Err(Refusal::cannot_run("load.queues", said).hint("say for example --jobs 1,2,4,8"));
    }
    let question = format!(
        "{}: {} on the same {} devices",
        engines.iter().map(|it| it.0.as_str()).collect::<Vec<_>>().join(" against "),
        args.level,
        args.members.len()
    );
    let is_twice = |engine| engines.iter().filter(|it| it.0 == engine).count() > 1;
    let arrays = engines.iter().map(|(engine, side)| {
        let mut array = array(args, (engine, *side), losses);
        if is_twice(*engine) {
            array["name"] = side.of(args).0.into();
        }
        array
    });
    let mut plan = head(args, &question, losses);
    plan["drives"] = json!(args.members);
    plan["arrays"] = arrays.collect();
    let raw = if args.members.is_empty() { Vec::new() } else { raw(args, losses) };
    plan["stages"] = raw.into_iter().chain([turns(args, args.rounds, losses.out)]).collect();
    Ok(in_toml(&plan))
}

/// A plan's text. It has strings, numbers, lists and tables only, all of which TOML can say.
fn in_toml(plan: &Value) -> String {
    toml::to_string(plan).unwrap_or_default()
}

fn head(args: &Args, question: &str, losses: Losses) -> Value {
    let span_mib = (args.span / u64::from(losses.data)).max(1);
    json!({
        "question": question,
        "runtime_s": args.seconds,
        "ramp_s": (args.seconds / 10).min(5),
        "drive_span": format!("{span_mib}m"),
    })
}

fn array(args: &Args, (engine, side): (&str, Side), losses: Losses) -> Value {
    let shell = |line: &String| json!(["sh", "-c", line]);
    let [set, unset] = side.of(args).1.map(|lines| lines.iter().map(shell).collect::<Value>());
    let mut array = json!({
        "engine": engine,
        "level": args.level,
        "strip": format!("{STRIP_KIB}k"),
        "span": format!("{}m", args.span),
        "members": args.members,
        "set": set,
        "unset": unset,
    });
    if let Some(path) = device(engine) {
        array["members"] = json!([path]);
        array["data_members"] = losses.data.into();
        array["parity_members"] = losses.parity.into();
    }
    array
}

fn profiles(args: &Args) -> Vec<&str> {
    if args.loads.is_empty() {
        return LOADS.iter().map(|it| it.1).collect();
    }
    let profile = |load| LOADS.iter().find(|it| it.0 == load).map_or(load, |it| it.1);
    args.loads.iter().map(|load| profile(load.as_str())).collect()
}

fn turns(args: &Args, rounds: u32, losses: u32) -> Value {
    json!({
        "kind": "compare",
        "profiles": profiles(args),
        "jobs": args.jobs,
        "depths": args.depths,
        "rounds": rounds,
        "losses": losses,
    })
}

/// Raw loads of all devices at once: streams in both directions, and for each load of the array
/// what it is to its members, as deep as it puts it there.
fn raw(args: &Args, losses: Losses) -> Vec<Value> {
    let mut wanted: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    let mut ask = |profile, depth: u32| {
        wanted.entry(profile).or_default().insert(depth.clamp(1, DEPTH_MAX));
    };
    let members = losses.data + losses.parity;
    let products = args.jobs.iter().flat_map(|jobs| args.depths.iter().map(move |it| jobs * it));
    let all_in_flight: Vec<u32> = products.collect();
    // A ceiling comes from at least as many I/Os in flight.
    let deepest = all_in_flight.iter().copied().max().unwrap_or(1);
    let stream = deepest.div_ceil(members).max(STREAM_DEPTH);
    ask("seq-write-1m", stream);
    let penalty = if losses.parity == 1 { 4 } else { 6 };
    for profile in profiles(args) {
        if profile == "stripe-read" {
            ask("seq-read-1m", stream);
        }
        for in_flight in all_in_flight.iter().copied() {
            match profile {
                "full-stripe" => ask("seq-write-64k", in_flight),
                "stripe-read" => ask("seq-read-64k", (in_flight * losses.data).div_ceil(members)),
                "rr-4k" => ask("rr-4k", in_flight.div_ceil(members)),
                "rw-4k" => ask("mixed-4k-half", (in_flight * penalty / 2).div_ceil(members)),
                _ => {}
            }
        }
    }
    let stages = wanted.iter().rev().map(
        |(profile, depths)| json!({ "kind": "raw.all", "profiles": [profile], "depths": depths }),
    );
    std::iter::once(json!({ "kind": "precondition" })).chain(stages).collect()
}

/// The engine with the best of several settings: each is made once and measured healthy by
/// `measure`, which gives the records of a plan. The best one has the highest geometric mean of its
/// rates.
pub fn tuned(
    args: &Args,
    (variants, side): (&[String], Side),
    measure: impl FnOnce(&str) -> Result<Vec<Record>, Refusal>,
) -> Result<(String, Option<Record>), Refusal> {
    let [_, _, ..] = variants else { return Ok((variants.concat(), None)) };
    let losses = Losses::of(args)?;
    let mut plan = head(args, "which settings are best?", losses);
    plan["arrays"] = variants.iter().map(|engine| array(args, (engine, side), losses)).collect();
    plan["stages"] = json!([turns(args, 1, 0)]);
    let records = measure(&in_toml(&plan))?;
    let mut rates: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let measured = records.iter().filter_map(Record::measurement);
    for it in measured.filter(|it| it.condition == ArrayCondition::Healthy) {
        rates.entry(&it.target).or_default().push(it.rate());
    }
    let mean = |name: &String| {
        let target = Path::new("made").join(name).join(&args.level);
        rates.get(target.to_str().unwrap_or_default()).map_or(0.0, |it| geometric_mean(it))
    };
    let mut tried: Vec<(f64, &String)> = variants.iter().map(|name| (mean(name), name)).collect();
    tried.sort_by(|one, other| other.0.total_cmp(&one.0));
    Ok((tried[0].1.clone(), Some(Record::Check(told(&tried)))))
}

/// 0 if one of the loads failed.
fn geometric_mean(rates: &[f64]) -> f64 {
    let count = f64::from(u32::try_from(rates.len()).unwrap_or(1)).max(1.0);
    (rates.iter().map(|rate| rate.max(0.0).ln()).sum::<f64>() / count).exp()
}

/// Which settings were tried, the best first.
fn told(tried: &[(f64, &String)]) -> Check {
    let best = tried.first().map_or(0.0, |it| it.0);
    let share = |mean: f64| units::percent(if best > 0.0 { mean / best } else { 0.0 });
    let all: Vec<String> =
        tried.iter().map(|(mean, name)| format!("{name} {}", share(*mean))).collect();
    let target = tried.first().map_or_else(String::new, |it| it.1.clone());
    let said = format!("best of {} settings, each tried once: {}", tried.len(), all.join(", "));
    rules::of("engine.tuned").judge(best > 0.0, target, said)
}

#[cfg(test)]
mod tests {
    use super::{Losses, Side, geometric_mean, plan, told};
    use crate::Refusal;
    use crate::compare::cli::Args;
    use crate::metrics::latency::to_f64;
    use crate::plan::ceilings::RawRuns;
    use crate::plan::file::{Kind, Plan};
    use crate::plan::points::{Expanded, Point, expand};
    use crate::record::{ArrayCondition, Measurement};
    use crate::validity::Outcome;
    use clap::Parser;
    use std::path::Path;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &str) -> Args {
        Line::parse_from(["compare"].into_iter().chain(words.split(' '))).args
    }

    fn planned(words: &str) -> Result<String, Refusal> {
        let args = args(words);
        plan(&args, &[(&args.a, Side::A), (&args.b, Side::B)], Losses::of(&args)?)
    }

    fn expanded(words: &str) -> Expanded {
        let text = planned(words).expect("a plan");
        expand(&Plan::parse(&text).expect("understood"), Path::new(""), &|_| 1 << 30).expect("ok")
    }

    #[test]
    fn one_device_is_compared_with_itself_under_two_settings() {
        let all = expanded("device:/dev/x device:/dev/x --set-a one --unset-a two --rounds 2");
        let shell = |line: &str| ["sh", "-c", line].map(str::to_owned).to_vec();
        let [a, b] = &all.arrays[..] else { panic!("{:?}", all.arrays) };
        assert_eq!((a.target_path(), b.target_path()), ("made/a".into(), "made/b".into()));
        assert_eq!((a.set.concat(), a.unset.concat()), (shell("one"), shell("two")));
        assert!(b.set.is_empty() && b.unset.is_empty());
    }

    const SIX: &str = "--member a --member b --member c --member d --member e --member f";

    #[test]
    fn a_comparison_measures_raw_devices_and_then_both_in_turns() {
        let all = expanded(&format!("btrfs mdadm {SIX} --rounds 2 --span 256"));
        let turns: Vec<_> = all.groups.iter().filter(|it| it.points[0].is_of_array()).collect();
        let of = |at: usize| (turns[at].points[0].targets[0].engine.name.as_str(), turns[at].out);
        assert_eq!((of(0), of(1), of(2)), (("btrfs", 0), ("btrfs", 2), ("mdadm", 0)));
        assert_eq!((of(4), of(6)), (("mdadm", 0), ("btrfs", 0)), "A B B A");
        assert!(turns.iter().all(|it| it.is_fresh == (it.out == 0) && it.points.len() == 4));
        assert_eq!(turns[3].points[0].condition, ArrayCondition::Degraded(2));
        let raw: Vec<_> = all.points().filter(|it| it.condition == ArrayCondition::Raw).collect();
        let names: Vec<&str> = raw.iter().map(|it| it.workload.name.as_str()).collect();
        for name in ["fill-second", "seq-write-1m-j1-q6", "seq-write-64k-j1-q32", "rr-4k-j1-q6"] {
            assert!(names.contains(&name), "{names:?}");
        }
        let reaches = |at: usize| raw[at].jobs.jobs()[0].bytes("size");
        assert!((0..raw.len()).all(|at| reaches(at) == Some(64 << 20)), "a quarter of the span");
    }

    /// The raw loads of a comparison, 1 GB/s a drive.
    fn raw_runs(all: &Expanded) -> Vec<Measurement> {
        let one = |point: &Point, target| {
            let mut it = point.blank(target);
            let iops = 1e9 / to_f64(it.workload.block_bytes);
            (it.read.bytes_per_s, it.read.iops) = (1e9, iops);
            it
        };
        let raw = all.points().filter(|it| it.kind == Kind::RawAll);
        raw.flat_map(|point| point.targets.iter().map(move |it| one(point, it))).collect()
    }

    /// A baseline is no single number, and engines may make large writes of small ones.
    #[test]
    fn every_load_has_a_baseline_at_its_own_depth_and_a_ceiling_less_the_part_of_parity() {
        let all = expanded(&format!("btrfs mdadm {SIX} --rounds 1"));
        let known = raw_runs(&all);
        let raw = RawRuns::of(&all.arrays[0], &all.drives, known.iter()).expect("stripes");
        let turn = all.groups.iter().find(|it| it.is_fresh).expect("a turn");
        for (point, highest) in turn.points.iter().zip([4e9, 6e9, 6e9, 4e9]) {
            let load = &point.workload;
            assert!(raw.baseline(load, ArrayCondition::Healthy).is_some(), "{load:?}");
            let (ceiling, _) = raw.ceiling(load).expect("a ceiling");
            assert!((ceiling.value - highest).abs() < 1.0, "{load:?}: {ceiling:?}");
        }
        let thin = expanded(&format!("btrfs mdadm {SIX} --rounds 1 --jobs 1 --depth 1"));
        let known = raw_runs(&thin);
        let raw = RawRuns::of(&thin.arrays[0], &thin.drives, known.iter()).expect("stripes");
        let of = |name: &str| {
            let point = thin.points().find(|it| it.is_of_array() && it.workload.name == name);
            raw.baseline(&point.expect(name).workload, ArrayCondition::Healthy)
        };
        assert!(of("rr-4k-j1-q1").is_none(), "one random read, six drives with one each");
        assert!(of("full-stripe-j1-q1").is_some(), "a stripe is on all of them");
    }

    /// Seed 000's table: 1, 2, 4 and 8 queues, 32 deep.
    #[test]
    fn a_table_of_queues_and_any_profile_are_asked_for_in_one_line() {
        let words = "--load write,unaligned --jobs 1,2,4,8 --depth 32 --rounds 1 --losses 0";
        let all = expanded(&format!("btrfs mdadm {SIX} {words}"));
        let turn = all.groups.last().expect("turns");
        let names: Vec<&str> = turn.points.iter().map(|it| it.workload.name.as_str()).collect();
        assert_eq!(names[..2], ["full-stripe-j1-q32", "full-stripe-j2-q32"]);
        assert_eq!((names.len(), names[7]), (8, "unaligned-j8-q32"));
    }

    #[test]
    fn two_devices_need_no_members_and_what_is_no_array_is_refused() {
        let all = expanded("device:/dev/x device:/dev/y --rounds 1");
        assert_eq!(all.written(), [Path::new("/dev/x"), Path::new("/dev/y")]);
        assert!(all.points().all(|it| it.condition == ArrayCondition::Healthy));
        for (more, code) in [
            ("", "members.wrong_number"),
            (" --losses 3", "members.wrong_number"),
            (" --level raid1", "level.unknown"),
            (" --jobs 0", "load.queues"),
        ] {
            let six = if more.is_empty() { "" } else { SIX };
            let words = format!("mdadm btrfs {six}{more}");
            assert_eq!(planned(words.trim()).expect_err("refused").code, code, "{words}");
        }
    }

    /// The first seed's engine did three times as much with 64 threads.
    #[test]
    fn the_settings_with_the_best_rates_come_first_and_all_are_told() {
        assert!((geometric_mean(&[100.0, 400.0]) - 200.0).abs() < 1e-9);
        assert!(geometric_mean(&[100.0, 0.0]).abs() < 1e-9, "a load that failed");
        let (many, few) = ("mdadm:n=64".to_owned(), "mdadm:n=8".to_owned());
        let check = told(&[(300.0, &many), (100.0, &few)]);
        assert_eq!((check.target.as_str(), check.outcome), ("mdadm:n=64", Outcome::Pass));
        assert!(check.found.ends_with("mdadm:n=64 100 %, mdadm:n=8 33.3 %"), "{}", check.found);
        assert_eq!(told(&[(0.0, &few)]).outcome, Outcome::Fail);
    }
}
