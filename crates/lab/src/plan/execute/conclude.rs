//! What the points of a group show together, once they have been measured.
//!
//! What must stay true: a conclusion is written down once, also when a run is resumed.

use super::super::ceilings::RawRuns;
use super::super::file::Kind;
use super::super::points::{FIRST_FILL, Group, Point, SECOND_FILL};
use super::super::{alone, findings};
use super::Session;
use crate::Refusal;
use crate::fio::value;
use crate::metrics::{slow_member, steady};
use crate::record::{BaselinePoint, Check, Measurement, Record};
use crate::validity::{Mark, Outcome};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

impl Session<'_> {
    /// Whether the rounds before this one have reached steady state.
    pub(super) fn is_steady_before(&self, point: &Point) -> bool {
        let is_steady = |series: String| steady::reached(&self.rates(&series)).is_some();
        point.until_steady && point.targets.iter().all(|target| is_steady(point.series(target)))
    }

    /// Rates of a series, round by round.
    fn rates(&self, series: &str) -> Vec<f64> {
        let is_own = |it: &&Measurement| it.id.rsplit_once('#').is_some_and(|id| id.0 == series);
        let mut rounds: Vec<&Measurement> = self.known.values().filter(is_own).collect();
        rounds.sort_by_key(|measured| measured.round);
        rounds.iter().map(|measured| measured.rate()).collect()
    }

    /// F19, once the rebuild that `began` has ended.
    pub(super) fn conclude_rebuild(
        &mut self,
        group: &Group,
        began: Duration,
    ) -> Result<(), Refusal> {
        let Some(made) = &self.made else { return Ok(()) };
        if let Some((before, during)) = self.memory.take().zip(findings::memory_now()) {
            let check = findings::memory(&made.name, &before, &during);
            self.run.dir.append(&Record::Check(check))?;
        }
        let seconds = made.await_rebuilt(began)?;
        let during = group.points.first().and_then(|point| self.known.get(point.ids().first()?));
        let took = (made.member_bytes(), seconds);
        let check = findings::rebuild(&made.name, took, during, self.known.values());
        self.run.dir.append(&Record::Check(check))
    }

    /// BASELINE of each point of the group, once.
    pub(super) fn keep_baselines(&mut self, group: &Group) -> Result<(), Refusal> {
        for point in &group.points {
            for target in &point.targets {
                let baseline = self.baseline(point, &target.path);
                if let Some(it) = baseline.filter(|it| self.baselines.insert(baseline_key(it))) {
                    self.run.dir.append(&Record::Baseline(it))?;
                }
            }
        }
        Ok(())
    }

    fn baseline(&self, point: &Point, path: &Path) -> Option<BaselinePoint> {
        let arrays = &self.plan.arrays;
        let array = arrays.iter().find(|array| array.target_path() == path)?;
        let array = Some(array).filter(|array| array.has_its_drives(arrays))?;
        let raw = RawRuns::of(array, &self.plan.drives, self.known.values())?;
        let mut baseline = raw.baseline(&point.workload, point.condition)?;
        if let Some(sum) = &mut baseline.raw {
            let facts = |target: &str| alone::Facts::of(Path::new(target));
            let run = raw.of_load(&sum.workload).unwrap_or_default();
            sum.stated = alone::stated_sum(run, facts, &self.run.models);
        }
        Some(baseline)
    }

    /// That a target was written twice, and what its first writes cost.
    fn filled(&self, second: &Measurement) -> impl Iterator<Item = Check> {
        let is_first =
            |it: &&Measurement| it.workload.name == FIRST_FILL && it.target == second.target;
        let first = self.known.values().find(is_first);
        let cost = first.map(|first| findings::first_write(first, second));
        std::iter::once(findings::filled(second)).chain(cost)
    }

    /// What the way to the drives carries: said at the end, for raw drives may be measured before
    /// it or after it.
    pub(super) fn conclude_paths(&mut self) -> Result<(), Refusal> {
        let facts = |target: &str| alone::Facts::of(Path::new(target));
        let checks = alone::checks(self.known.values(), facts, &self.run.models);
        self.keep_checks(checks)
    }

    /// Write checks down, each once in a run.
    pub(super) fn keep_checks(&mut self, checks: Vec<Check>) -> Result<(), Refusal> {
        for check in checks {
            self.summary.failed += usize::from(check.outcome == Outcome::Fail);
            if self.checked.insert((check.name.clone(), check.target.clone())) {
                self.run.dir.append(&Record::Check(check))?;
            }
        }
        Ok(())
    }

    /// Rates of a working set over its sizes: of each load on each target the median of its rounds,
    /// smallest size first.
    fn working_sets(&self, group: &Group) -> Vec<Check> {
        let mut loads: BTreeMap<String, Vec<(u64, f64)>> = BTreeMap::new();
        for point in group.points.iter().filter(|it| it.kind == Kind::WorkingSet && it.round == 0) {
            let Some((load, size)) = point.workload.name.rsplit_once("-ws") else { continue };
            let Some(bytes) = value::bytes(size) else { continue };
            for target in &point.targets {
                let rates = self.rates(&point.series(target));
                if !rates.is_empty() {
                    let rate = slow_member::median(rates.into_iter());
                    let name = format!("{}, {load}", target.path.display());
                    loads.entry(name).or_default().push((bytes, rate));
                }
            }
        }
        let memory = self.run.machine.host().memory_bytes.ok();
        let check = |(name, mut sizes): (String, Vec<(u64, f64)>)| {
            sizes.sort_by_key(|(bytes, _)| *bytes);
            findings::knee(&name, &sizes, memory)
        };
        loads.into_iter().map(check).collect()
    }

    /// What the points of a group show together.
    pub(super) fn conclude(&mut self, group: &Group) -> Result<(), Refusal> {
        let mut checks: Vec<Check> = Vec::new();
        let mut zones: BTreeMap<String, Vec<(u32, f64)>> = BTreeMap::new();
        let mut scales: BTreeMap<&str, Vec<(usize, f64)>> = BTreeMap::new();
        for point in &group.points {
            let measured: Vec<Measurement> =
                point.ids().iter().filter_map(|id| self.known.get(id).cloned()).collect();
            let is_valid = |it: &Measurement| Mark::of(&it.findings) != Mark::Invalid;
            match point.kind {
                Kind::RawAll if !measured.is_empty() => {
                    checks.push(findings::slow_members(&measured))
                }
                Kind::RawScale if !measured.is_empty() && point.round == 0 => {
                    let load = point.workload.name.rsplit_once("-on").unwrap_or_default().0;
                    let rate = measured.iter().map(Measurement::rate).sum();
                    if measured.iter().all(is_valid) {
                        scales.entry(load).or_default().push((measured.len(), rate));
                    }
                }
                Kind::Cliff => checks.extend(measured.iter().map(findings::cliff_of)),
                Kind::Precondition if point.workload.name == SECOND_FILL => {
                    checks.extend(measured.iter().flat_map(|second| self.filled(second)));
                }
                Kind::Zone => {
                    for one in &measured {
                        let place = one.workload.name.rsplit('-').next();
                        let place = place.and_then(|text| text.parse().ok()).unwrap_or(0);
                        let curve = zones.entry(one.target.clone()).or_default();
                        curve.push((place, one.read.bytes_per_s));
                    }
                }
                _ => {}
            }
            if point.until_steady && point.round == 0 {
                let series = point.targets.iter().map(|target| point.series(target));
                checks.extend(series.map(|it| findings::steadiness(&it, &self.rates(&it))));
            }
        }
        checks.extend(scales.iter().map(|(load, rates)| findings::scaling(load, rates)));
        checks.extend(zones.iter().map(|(drive, places)| findings::zones(drive, places)));
        checks.extend(self.working_sets(group));
        self.keep_checks(checks)
    }
}

pub(super) fn baseline_key(point: &BaselinePoint) -> String {
    format!("{} {} {}", point.target, point.workload, point.condition)
}
