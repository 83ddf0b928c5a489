//! The same load by two load generators: which of them was the limit.
//!
//! What must stay true: two figures are set side by side only for the same target in the same
//! condition at the same load; an INVALID one says nothing; a difference that the way to the engine
//! explains is no failure.

use crate::metrics::slow_member::median;
use crate::record::{ArrayCondition, Check, Generator, Measurement, RateUnit};
use crate::units;
use crate::validity::{Mark, Outcome};
use std::collections::BTreeMap;

/// Two generators this near to each other agree.
const ALIKE: f64 = 0.10;

/// One load on one target, by both.
#[derive(Clone, PartialEq, Debug)]
pub struct Pair {
    /// The target.
    pub target: String,
    /// Name of its engine.
    pub engine: String,
    /// State of the array.
    pub condition: ArrayCondition,
    /// Name of the load, as fio has it.
    pub load: String,
    /// For people, without the generator.
    pub told: String,
    /// What the rates count.
    pub unit: RateUnit,
    /// The median of fio's rounds, if there are any.
    pub fio: Option<f64>,
    /// The median of bdevperf's.
    pub bdevperf: f64,
}

impl Pair {
    /// bdevperf's rate over fio's.
    pub fn ratio(&self) -> Option<f64> {
        self.fio.filter(|rate| *rate > 0.0).map(|rate| self.bdevperf / rate)
    }
}

/// All loads that bdevperf made, each with what fio did there.
pub fn pairs<'a>(known: impl Iterator<Item = &'a Measurement>) -> Vec<Pair> {
    let mut rounds: BTreeMap<(String, ArrayCondition, String), [Vec<&Measurement>; 2]> =
        BTreeMap::new();
    for one in known.filter(|it| Mark::of(&it.findings) != Mark::Invalid) {
        let name = one.workload.name.as_str();
        let (load, side) = match one.workload.generator {
            Generator::Fio => (name, 0),
            Generator::Bdevperf => (name.trim_end_matches("-bdevperf"), 1),
            Generator::Ior => continue,
        };
        // Raw drives are loaded one by one and all at once: only alone they are the same load.
        if ["raw.all", "raw.scale", "path"].contains(&one.stage.as_str()) {
            continue;
        }
        let key = (one.target.clone(), one.condition, load.to_owned());
        rounds.entry(key).or_default()[side].push(one);
    }
    let middle = |of: &[&Measurement]| median(of.iter().map(|it| it.rate()));
    rounds
        .into_iter()
        .filter_map(|((target, condition, load), [fio, bdevperf])| {
            let first = bdevperf.first()?;
            let mut workload = first.workload.clone();
            workload.generator = Generator::Fio;
            Some(Pair {
                target,
                engine: first.engine.name.clone(),
                condition,
                load,
                told: workload.describe(),
                unit: workload.unit(),
                fio: (!fio.is_empty()).then(|| middle(&fio)),
                bdevperf: middle(&bdevperf),
            })
        })
        .collect()
}

/// A check for each load that bdevperf made.
pub fn checks<'a>(known: impl Iterator<Item = &'a Measurement>) -> Vec<Check> {
    pairs(known).iter().map(check).collect()
}

fn check(pair: &Pair) -> Check {
    let rate = |value: f64| units::rate(value, pair.unit);
    let own = rate(pair.bdevperf);
    let is_spdk = pair.engine == "spdk";
    let (outcome, found, next) = match (pair.fio, pair.ratio()) {
        (Some(fio), Some(ratio)) => {
            let said = format!("bdevperf {own}, fio {}: {ratio:.2} times fio's", rate(fio));
            match ratio {
                _ if (ratio - 1.0).abs() <= ALIKE => (Outcome::Pass, said, None),
                _ if is_spdk => (
                    Outcome::Pass,
                    format!(
                        "{said}; fio reaches the engine through a block device, \
                         bdevperf is inside it"
                    ),
                    Some("judge the engine by bdevperf's figure, and what a client gets by fio's"),
                ),
                _ if ratio > 1.0 => (
                    Outcome::Fail,
                    format!("{said}: fio, or the way through the kernel, was the limit"),
                    Some("more jobs for fio, or judge the target by bdevperf's figure"),
                ),
                _ => (
                    Outcome::Fail,
                    format!(
                        "{said}: bdevperf, or its way to the target (Linux AIO), was the limit"
                    ),
                    Some("judge the target by fio's figure"),
                ),
            }
        }
        _ => (
            Outcome::CannotTell,
            format!("bdevperf {own}; fio has no usable figure at this load"),
            Some("the same stage without generator, if fio sees the target"),
        ),
    };
    Check {
        name: "generators.agree".to_owned(),
        target: format!("{}, {}, {}", pair.target, pair.condition, pair.load),
        outcome,
        found,
        next: next.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::{checks, pairs};
    use crate::record::{Generator, Measurement, Record};
    use crate::validity::{Finding, Outcome, Severity};

    fn sample() -> Measurement {
        let text = include_str!("../../tests/data/two-engines/records.jsonl");
        let measured = |record| if let Record::Measurement(it) = record { Some(*it) } else { None };
        let mut all = text.lines().map(|line| serde_json::from_str::<Record>(line).unwrap());
        all.find_map(measured).unwrap()
    }

    fn at(generator: Generator, stage: &str, iops: f64) -> Measurement {
        let mut one = sample();
        let suffix = if generator == Generator::Bdevperf { "-bdevperf" } else { "" };
        one.workload.name = format!("rr-4k-j1-q32{suffix}");
        one.workload.mix = "randread".into();
        one.workload.block_bytes = 4096;
        one.workload.generator = generator;
        (one.read.iops, one.write.iops) = (iops, 0.0);
        one.stage = stage.into();
        one.findings.clear();
        one
    }

    fn outcome(all: &[Measurement]) -> (Outcome, String) {
        let checks = checks(all.iter());
        assert_eq!(checks.len(), 1, "{checks:?}");
        (checks[0].outcome, checks[0].found.clone())
    }

    #[test]
    fn the_faster_generator_tells_which_one_was_the_limit() {
        let fio = at(Generator::Fio, "array.sweep", 100e3);
        let of = |iops| at(Generator::Bdevperf, "array.sweep", iops);
        assert_eq!(outcome(&[fio.clone(), of(105e3)]).0, Outcome::Pass);
        let (fast, said) = outcome(&[fio.clone(), of(180e3)]);
        assert_eq!(fast, Outcome::Fail);
        assert!(said.contains("1.80 times") && said.contains("fio, or the way"), "{said}");
        let (slow, said) = outcome(&[fio.clone(), of(50e3)]);
        assert!(slow == Outcome::Fail && said.contains("bdevperf, or its way"), "{said}");
        let mut inside = [fio, of(180e3)];
        inside.iter_mut().for_each(|one| one.engine.name = "spdk".into());
        let (spdk, said) = outcome(&inside);
        assert!(spdk == Outcome::Pass && said.contains("inside it"), "{said}");
    }

    #[test]
    fn without_a_usable_figure_of_fio_nothing_is_told() {
        let own = at(Generator::Bdevperf, "raw.each", 100e3);
        assert_eq!(outcome(std::slice::from_ref(&own)).0, Outcome::CannotTell);
        let together = at(Generator::Fio, "raw.all", 100e3);
        assert_eq!(outcome(&[own.clone(), together]).0, Outcome::CannotTell, "all at once");
        let mut invalid = at(Generator::Fio, "raw.each", 100e3);
        let (rule, reason) = ("L29".to_owned(), String::new());
        invalid.findings =
            vec![Finding { rule, severity: Severity::Error, reason, correction: None }];
        assert_eq!(outcome(&[own, invalid]).0, Outcome::CannotTell);
        assert!(pairs([at(Generator::Fio, "raw.each", 1.0)].iter()).is_empty());
    }
}
