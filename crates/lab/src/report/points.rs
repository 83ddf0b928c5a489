//! Rounds of the same workload, engine and condition, as one figure with its samples.
//!
//! What must stay true: the figure is the median of the rounds and every round stays visible;
//! latency bins of rounds are added, never averaged; a point is as invalid as its worst round.

use crate::metrics::baseline::ratio;
use crate::metrics::latency::{self, Bins, percentile};
use crate::metrics::slow_member::median;
use crate::metrics::spread::{SPIKE_POINTS, Spread};
use crate::order::one_of;
use crate::plan::file::Kind;
use crate::record::{
    ArrayCondition, BaselinePoint, CpuCost, Measurement, RateUnit, Record, Workload,
};
use crate::rules;
use crate::units;
use crate::validity::{Finding, Mark, Severity};
use crate::verdict::BASELINE_BELIEVED;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
pub struct Point {
    /// Name, version and whether it was tuned; which array, if it has several.
    pub engine: String,
    pub workload: Workload,
    pub condition: ArrayCondition,
    pub stage: String,
    /// The rate of each round, in the unit of the workload, in order.
    pub samples: Vec<f64>,
    /// Latency of all rounds, reads and writes.
    pub bins: Bins,
    /// CPU of all rounds, if it was taken in all.
    pub cpu: Option<Cpu>,
    /// The thread that burned most of a core, if stacks were taken.
    pub busiest: Option<String>,
    /// The fullest link and its share, the worst of all rounds.
    pub link: Option<(String, f64)>,
    pub baseline: Option<BaselinePoint>,
    /// What rules said, each rule once.
    pub findings: Vec<Finding>,
    pub rounds: Vec<Measurement>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Cpu {
    /// Mean busy share of all cores, 0 to 1.
    pub mean: f64,
    pub per_core: Vec<f64>,
    pub busy_cores: f64,
    pub ns_per_io: Option<f64>,
}

impl Point {
    pub fn rate(&self) -> f64 {
        median(self.samples.iter().copied())
    }

    pub fn target(&self) -> &str {
        self.rounds.first().map_or("", |round| round.target.as_str())
    }

    pub fn unit(&self) -> RateUnit {
        self.workload.unit()
    }

    pub fn mark(&self) -> Mark {
        Mark::of(&self.findings)
    }

    /// RAID efficiency against its BASELINE.
    pub fn efficiency(&self) -> Option<f64> {
        ratio(self.rate(), self.baseline.as_ref()?.value)
    }

    pub fn cpu_efficiency(&self) -> Option<f64> {
        ratio(self.rate(), self.cpu.as_ref()?.busy_cores)
    }

    pub fn percentile(&self, fraction: f64) -> Option<u64> {
        percentile(&self.bins, fraction)
    }

    /// How far the rate of a second is from the mean, as a share of it (one standard deviation),
    /// and of how many seconds; `None` with fewer than ten.
    pub fn unevenness(&self) -> Option<(f64, usize)> {
        let rates = self.rounds.iter().flat_map(Measurement::rate_series);
        let rates: Vec<f64> = rates.map(|(_, rate)| rate).collect();
        let count = Some(rates.len()).filter(|count| *count >= 10)? as f64;
        let mean = rates.iter().sum::<f64>() / count;
        let square = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean > 0.0).then(|| (square.sqrt() / mean, rates.len()))
    }

    /// The same of its worst and its best round, if there are several.
    pub fn efficiencies(&self) -> Option<(f64, f64)> {
        let baseline = self.baseline.as_ref()?.value;
        let shares = || self.samples.iter().filter_map(|it| ratio(*it, baseline));
        let least = shares().min_by(f64::total_cmp)?;
        shares().max_by(f64::total_cmp).filter(|_| self.samples.len() > 1).map(|most| (least, most))
    }

    pub fn is_raw(&self) -> bool {
        self.condition == ArrayCondition::Raw
    }

    /// Its rate for people; a load that ended with an error in every round has none.
    pub fn rate_told(&self) -> String {
        match self.rate() {
            rate if rate > 0.0 => units::rate(rate, self.unit()),
            _ => "failed".to_owned(),
        }
    }

    /// CPU time for people: mean of all cores, the busiest cores, time of an I/O.
    pub fn cpu_told(&self) -> [String; 3] {
        let not_taken = || "not taken".to_owned();
        let Some(cpu) = &self.cpu else { return [not_taken(), not_taken(), not_taken()] };
        let us = |ns: f64| format!("{} us", units::three_digits(ns / 1e3));
        let each = cpu.ns_per_io.map_or_else(not_taken, us);
        [units::percent(cpu.mean), cores(&cpu.per_core), each]
    }

    /// What it is, without the engine: `4K random reads, 2 x 16, healthy`.
    pub fn case(&self) -> String {
        format!("{}, {}", self.workload.describe(), self.condition)
    }
}

impl Measurement {
    /// Reads and writes, added: milliseconds since the beginning -> bytes a second.
    pub fn rate_series(&self) -> BTreeMap<u64, f64> {
        let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
        let both = self.read.series.iter().chain(&self.write.series);
        both.for_each(|(at_ms, rate)| *sums.entry(*at_ms).or_default() += rate);
        sums
    }
}

pub fn of_arrays(points: &[Point]) -> impl Iterator<Item = &Point> {
    points.iter().filter(|point| !point.is_raw())
}

/// Points of arrays that were measured in turns: only these are compared.
pub fn in_turns(points: &[Point]) -> impl Iterator<Item = &Point> {
    of_arrays(points).filter(|point| point.stage == Kind::Compare.name())
}

/// All points of a run, in the order in which they were first measured.
pub fn of(records: &[Record]) -> Vec<Point> {
    let mut baselines = BTreeMap::new();
    let mut busiest = BTreeMap::new();
    let mut points: Vec<Point> = Vec::new();
    for record in records {
        match record {
            Record::Measurement(measurement) => add(&mut points, measurement),
            Record::Baseline(it) => {
                baselines.insert((it.target.as_str(), it.workload.as_str(), it.condition), it);
            }
            Record::Cpu(account) => {
                let most = account.threads.iter().max_by(|a, b| a.cores.total_cmp(&b.cores));
                busiest.extend(most.map(|thread| (account.of.clone(), thread.name.clone())));
            }
            _ => {}
        }
    }
    for point in &mut points {
        point.cpu = cpu_of(&point.rounds);
        point.busiest = point.rounds.iter().find_map(|round| busiest.get(&round.id).cloned());
        point.link = fullest(&point.rounds);
        let of = |target| baselines.get(&(target, point.workload.name.as_str(), point.condition));
        // Older runs do not say which array a BASELINE is of.
        let own = of(point.target()).or_else(|| of("")).filter(|_| !point.is_raw());
        point.baseline = own.map(|it| (*it).clone());
    }
    for point in &mut points {
        point.findings.extend(above_baseline(point));
    }
    tell_apart(&mut points);
    points
}

/// An engine with several arrays in a run is several: each is called by its array, too.
fn tell_apart(points: &mut [Point]) {
    let mut arrays: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for point in of_arrays(points) {
        arrays.entry(point.engine.clone()).or_default().insert(point.target().to_owned());
    }
    for point in points.iter_mut().filter(|point| !point.is_raw()) {
        if arrays.get(&point.engine).is_some_and(|arrays| arrays.len() > 1) {
            point.engine = format!("{} {}", point.engine, point.target());
        }
    }
}

/// A figure far above what the raw drives did at the same load is not about the drives any more
/// (F14).
fn above_baseline(point: &Point) -> Option<Finding> {
    let share = point.efficiency().filter(|share| *share > BASELINE_BELIEVED)?;
    let reason = format!(
        "{} of what the raw drives did at the same load: \
         a cache answers, or the machine was busier while the drives were measured",
        units::percent(share)
    );
    let next = "a span beyond every cache, on an idle machine";
    Some(rules::of("F14").finding_as(Severity::Warning, reason).but(next))
}

fn add(points: &mut Vec<Point>, measurement: &Measurement) {
    let engine = measurement.engine.label();
    let is_it = |point: &Point| {
        point.engine == engine
            && point.workload == measurement.workload
            && point.condition == measurement.condition
            && point.stage == measurement.stage
            && point.target() == measurement.target
    };
    let point = one_of(points, is_it, || Point {
        engine: engine.clone(),
        workload: measurement.workload.clone(),
        condition: measurement.condition,
        stage: measurement.stage.clone(),
        ..Point::default()
    });
    point.samples.push(measurement.rate());
    latency::merge(&mut point.bins, &measurement.latency_bins());
    for finding in &measurement.findings {
        if !point.findings.iter().any(|known| known.rule == finding.rule) {
            point.findings.push(finding.clone());
        }
    }
    point.rounds.push(measurement.clone());
}

fn fullest(rounds: &[Measurement]) -> Option<(String, f64)> {
    let shares = rounds.iter().filter_map(|round| round.path.as_ref()?.fullest());
    let worst = shares.max_by(|one, other| one.1.total_cmp(&other.1))?;
    Some((worst.0.name.clone(), worst.1))
}

fn cpu_of(rounds: &[Measurement]) -> Option<Cpu> {
    let costs: Vec<_> = rounds.iter().map(|round| round.cpu.as_ref()).collect::<Option<_>>()?;
    let cores = costs.iter().map(|cost| cost.per_core.len()).min().filter(|cores| *cores > 0)?;
    let sum = |of: fn(&CpuCost) -> f64| costs.iter().map(|cost| of(cost)).sum::<f64>();
    let (wall_s, busy_s) = (sum(|cost| cost.wall_s), sum(|cost| cost.busy_s));
    // I/Os were counted in the time that the load measured, and CPU time perhaps in more.
    let ios: f64 = rounds.iter().zip(&costs).map(|(round, cost)| round.iops() * cost.wall_s).sum();
    let mean =
        |core| costs.iter().map(|cost| cost.per_core[core]).sum::<f64>() / costs.len() as f64;
    let per_core: Vec<f64> = (0..cores).map(mean).collect();
    let busy_cores = busy_s / wall_s;
    (wall_s > 0.0).then(|| Cpu {
        mean: busy_cores / cores as f64,
        busy_cores,
        ns_per_io: (ios > 0.0).then(|| busy_s * 1e9 / ios),
        per_core,
    })
}

/// For people: the hot cores as `N x M %`, the others after them.
pub fn cores(per_core: &[f64]) -> String {
    let percents: Vec<f64> = per_core.iter().map(|share| share * 100.0).collect();
    let Some(spread) = Spread::of(&percents, SPIKE_POINTS) else { return "not taken".to_owned() };
    let told = |percents: &[f64]| {
        let count = percents.len();
        format!("{count} x {:.0} %", percents.iter().sum::<f64>() / count as f64)
    };
    let mut sorted = percents;
    sorted.sort_by(|one, other| other.total_cmp(one));
    match sorted.split_at(spread.hot_cores) {
        ([], all) => format!("{}, no spikes", told(all)),
        (hot, others) => format!("{}, {}", told(hot), told(others)),
    }
}

#[cfg(test)]
mod tests {
    use super::{cores, cpu_of};
    use crate::record::CpuCost;

    /// Two cores busy for 1.3 s around a load that counted 50,000 I/Os in one of these seconds.
    #[test]
    fn cpu_time_an_io_is_not_dearer_because_a_load_takes_time_to_begin_and_end() {
        let mut round = crate::record::sample();
        (round.read.ios, round.read.iops) = (50_000, 50_000.0);
        (round.write.ios, round.write.iops) = (0, 0.0);
        let per_core = vec![1.0; 2];
        round.cpu =
            Some(CpuCost { cores: 2, wall_s: 1.3, busy_s: 2.6, per_core, ..CpuCost::default() });
        let ns = cpu_of(&[round]).expect("taken").ns_per_io.expect("I/Os");
        assert!((ns - 40_000.0).abs() < 1e-6, "2 cores over 50,000 I/Os a second, not {ns}");
    }

    #[test]
    fn hot_cores_stand_apart_as_the_seed_writes_them() {
        let mut shares = vec![0.08; 16];
        shares[3] = 1.0;
        assert_eq!(cores(&shares), "1 x 100 %, 15 x 8 %");
        assert_eq!(cores(&[0.5, 0.52, 0.48, 0.5]), "4 x 50 %, no spikes");
        assert_eq!(cores(&[1.0, 0.2]), "1 x 100 %, 1 x 20 %");
        assert_eq!(cores(&[]), "not taken");
    }
}
