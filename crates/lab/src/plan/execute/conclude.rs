//! What the points of a group show together, once they have been measured.
//!
//! What must stay true: a conclusion is written down once, also when a run is resumed.

use super::super::alone;
use super::super::ceilings::RawRuns;
use super::super::file::Kind;
use super::super::findings;
use super::super::made::Rebuilding;
use super::super::memory;
use super::super::points::{FIRST_FILL, Group, Point, SECOND_FILL};
use super::super::width;
use super::Session;
use crate::Refusal;
use crate::fio::value;
use crate::metrics::{slow_member, steady};
use crate::record::{ArrayCondition, BaselinePoint, Check, Measurement, Record};
use crate::rules;
use crate::units;
use crate::validity::{Mark, Outcome};
use std::collections::BTreeMap;
use std::path::Path;

impl Session<'_> {
    /// Whether the rounds before this one have reached steady state.
    pub(super) fn is_steady_before(&self, point: &Point) -> bool {
        point.until_steady
            && point
                .targets
                .iter()
                .all(|target| steady::reached(&self.rates(&point.series(target))).is_some())
    }

    /// Rates of a series, round by round.
    fn rates(&self, series: &str) -> Vec<f64> {
        let rounds = self
            .known
            .values()
            .filter(|measured| measured.id.rsplit_once('#').is_some_and(|(own, _)| own == series));
        let mut rounds: Vec<&Measurement> = rounds.collect();
        rounds.sort_by_key(|measured| measured.round);
        rounds.iter().map(|measured| measured.rate()).collect()
    }

    /// F19, once the rebuild has ended.
    pub(super) fn conclude_rebuild(
        &mut self,
        group: &Group,
        rebuilding: Rebuilding,
    ) -> Result<(), Refusal> {
        let Some(made) = &self.made else { return Ok(()) };
        if let Some((before, during)) = self.memory.take().zip(memory::now()) {
            let check = memory::of_rebuild(made.name(), &before, &during);
            self.run.dir.append(&Record::Check(check))?;
        }
        let seconds = made.await_rebuilt(rebuilding)?;
        let during = group.points.first().and_then(|point| {
            let target = point.targets.first()?;
            self.known.get(&point.id(target))
        });
        let check = findings::rebuild(
            made.name(),
            (made.member_bytes(), seconds),
            during,
            self.known.values(),
        );
        self.run.dir.append(&Record::Check(check))
    }

    /// BASELINE of each point of the group, once.
    pub(super) fn keep_baselines(&mut self, group: &Group) -> Result<(), Refusal> {
        let mut all =
            group.points.iter().flat_map(|point| point.targets.iter().map(move |it| (point, it)));
        all.try_for_each(|(point, target)| self.keep_baseline(point, &target.path))
    }

    fn keep_baseline(&mut self, point: &Point, path: &Path) -> Result<(), Refusal> {
        let arrays = &self.plan.arrays;
        let array = arrays.iter().find(|array| array.target_path() == path);
        let array = array.filter(|array| array.has_its_drives(arrays));
        let raw = array.and_then(|it| RawRuns::of(it, &self.plan.drives, self.known.values()));
        let Some(raw) = raw else { return Ok(()) };
        let baseline = raw.baseline(&point.workload, point.condition);
        let Some(mut baseline) = baseline else { return Ok(()) };
        if let Some(sum) = &mut baseline.raw {
            let facts = |target: &str| alone::Facts::of(Path::new(target));
            let run = raw.of_load(&sum.workload).unwrap_or_default();
            sum.stated = alone::stated_sum(run, facts, &self.run.models);
        }
        match self.baselines.insert(baseline_key(&baseline)) {
            true => self.run.dir.append(&Record::Baseline(baseline)),
            false => Ok(()),
        }
    }

    /// That a target was written twice, and what its first writes cost.
    fn filled(&self, second: &Measurement) -> Vec<Check> {
        let is_first =
            |it: &&Measurement| it.workload.name == FIRST_FILL && it.target == second.target;
        let first = self.known.values().find(is_first);
        let cost = first.map(|first| findings::first_write(first, second));
        std::iter::once(filled(second)).chain(cost).collect()
    }

    /// What waiting for the slowest member costs a healthy array's full stripes, if its raw
    /// drives were measured.
    fn stripe_wait(&self, point: &Point, measured: &[Measurement]) -> Option<Check> {
        let [measured] = measured else { return None };
        let array = self.array_of(point).filter(|it| it.has_its_drives(&self.plan.arrays))?;
        let is_full = Some(point.workload.block_bytes) == array.stripe_data_bytes();
        if point.condition != ArrayCondition::Healthy || !is_full || point.round > 0 {
            return None;
        }
        let raw = RawRuns::of(array, &self.plan.drives, self.known.values())?;
        findings::stripe_wait(measured, &raw.alike(&point.workload)?)
    }

    /// What the way to the drives carries: said at the end, for raw drives may be measured before
    /// it or after it.
    pub(super) fn conclude_paths(&mut self) -> Result<(), Refusal> {
        let facts = |target: &str| alone::Facts::of(Path::new(target));
        let mut checks = alone::checks(self.known.values(), facts, &self.run.models);
        checks.extend(width::checks(&self.plan.arrays, &self.plan.drives, self.known.values()));
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
        let mut loads: BTreeMap<(String, String), Vec<(u64, f64)>> = BTreeMap::new();
        let of_sizes =
            group.points.iter().filter(|it| it.kind == Kind::WorkingSet && it.round == 0);
        for point in of_sizes {
            let Some((load, size)) = point.workload.name.rsplit_once("-ws") else { continue };
            let Some(bytes) = value::bytes(size) else { continue };
            for target in &point.targets {
                let rates = self.rates(&point.series(target));
                if !rates.is_empty() {
                    let key = (target.path.display().to_string(), load.to_owned());
                    let rate = slow_member::median(rates.into_iter());
                    loads.entry(key).or_default().push((bytes, rate));
                }
            }
        }
        let memory = self.run.machine.host().memory_bytes.ok();
        let check = |((target, load), mut sizes): ((String, String), Vec<(u64, f64)>)| {
            sizes.sort_by_key(|(bytes, _)| *bytes);
            findings::knee(&format!("{target}, {load}"), &sizes, memory)
        };
        loads.into_iter().map(check).collect()
    }

    /// What the points of a group show together.
    pub(super) fn conclude(&mut self, group: &Group) -> Result<(), Refusal> {
        let mut checks: Vec<Check> = Vec::new();
        let mut zones: BTreeMap<String, Vec<(u32, f64)>> = BTreeMap::new();
        let mut scales: BTreeMap<String, Vec<(usize, f64)>> = BTreeMap::new();
        for point in &group.points {
            let measured: Vec<Measurement> = point
                .targets
                .iter()
                .filter_map(|target| self.known.get(&point.id(target)).cloned())
                .collect();
            match point.kind {
                Kind::RawAll if !measured.is_empty() => {
                    checks.push(findings::slow_members(&measured))
                }
                Kind::RawScale if !measured.is_empty() && point.round == 0 => {
                    if measured.iter().any(|one| Mark::of(&one.findings) == Mark::Invalid) {
                        continue;
                    }
                    let load = point.workload.name.rsplit_once("-on").unwrap_or_default().0;
                    let rate = measured.iter().map(Measurement::rate).sum();
                    scales.entry(load.to_owned()).or_default().push((measured.len(), rate));
                }
                Kind::Cliff => checks.extend(measured.iter().map(findings::cliff_of)),
                Kind::Precondition if point.workload.name == SECOND_FILL => {
                    checks.extend(measured.iter().flat_map(|second| self.filled(second)));
                }
                Kind::Precondition => {}
                Kind::Zone => {
                    for one in &measured {
                        let place =
                            one.workload.name.rsplit('-').next().and_then(|text| text.parse().ok());
                        zones
                            .entry(one.target.clone())
                            .or_default()
                            .push((place.unwrap_or(0), one.read.bytes_per_s));
                    }
                }
                _ => checks.extend(self.stripe_wait(point, &measured)),
            }
            if point.until_steady && point.round == 0 {
                let series = point.targets.iter().map(|target| point.series(target));
                checks.extend(
                    series.map(|series| findings::steadiness(&series, &self.rates(&series))),
                );
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

/// The record of a preconditioning.
fn filled(measured: &Measurement) -> Check {
    let bytes = units::bytes(crate::metrics::latency::to_f64(measured.write.bytes));
    let rate = units::bytes_per_s(measured.write.bytes_per_s);
    let said = format!(
        "written whole twice by sequential 1 MiB writes, the second time {bytes} at {rate}"
    );
    rules::of("drive.preconditioned").pass(&measured.target, said)
}
