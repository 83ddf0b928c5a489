//! What the raw drives allow an array: its BASELINE and its ceiling, from the runs of all drives at
//! once.
//!
//! What must stay true: a ceiling comes from raw drives with at least as many I/Os in flight; a
//! baseline says which raw run it came from and what the redundancy costs; without a fitting raw
//! run there is neither; what the redundancy costs is never guessed.

use super::file::Array;
use super::stripes::Stripes;
use crate::metrics::baseline::{self, Baseline};
use crate::metrics::latency::to_f64;
use crate::metrics::plausible::Ceiling;
use crate::record::{ArrayCondition, BaselinePoint, Measurement, RateUnit, RawSum, Workload};
use crate::units;
use crate::validity::Mark;
use std::collections::BTreeMap;
use std::path::PathBuf;

const STAGE: &str = "raw.all";
/// By how much a raw run may have more or less in flight than the array it is the baseline of.
const FACTOR: f64 = 2.0;
/// Reads among a raw run's I/Os that stand for small writes, percent: each is as many reads as
/// writes on the members.
const HALF: u32 = 50;

/// Raw runs of all drives of an array at once.
#[derive(Debug)]
pub struct RawRuns<'a> {
    /// The array, as its measurements name it.
    target: String,
    runs: Vec<Vec<&'a Measurement>>,
    stripes: Stripes,
}

impl<'a> RawRuns<'a> {
    /// Those among `known` that belong to `array`; `drives` are the plan's. `None` if nothing is
    /// known of its stripes.
    pub fn of(
        array: &Array,
        drives: &[PathBuf],
        known: impl Iterator<Item = &'a Measurement>,
    ) -> Option<RawRuns<'a>> {
        let is_own = array.is_made() && !array.is_handed_over();
        let members = if is_own { &array.members } else { drives };
        let stripes = Stripes::of(array, drives)?;
        let mut runs: BTreeMap<(String, u32), Vec<&Measurement>> = BTreeMap::new();
        // What was read of a sparse area would allow an array anything.
        let usable = |measured: &&Measurement| {
            measured.stage == STAGE && Mark::of(&measured.findings) != Mark::Invalid
        };
        for measured in known.filter(usable) {
            if members.iter().any(|member| member.display().to_string() == measured.target) {
                let key = (measured.workload.name.clone(), measured.round);
                runs.entry(key).or_default().push(measured);
            }
        }
        runs.retain(|_, run| run.len() == members.len());
        let target = array.target_path().display().to_string();
        Some(RawRuns { target, runs: runs.into_values().collect(), stripes })
    }

    /// What no figure of `workload` can be above, bytes a second, and the raw load that showed it:
    /// the best that raw drives did with at least as many I/Os in flight.
    pub fn ceiling(&self, workload: &Workload) -> Option<(Ceiling, String)> {
        let drives = self.stripes.drives;
        let in_flight = u64::from(workload.jobs) * u64::from(workload.depth);
        // Each byte of data brings its part of parity with it; if that is not known, a figure may
        // be as high as the drives'.
        let share = self.stripes.share().unwrap_or(1.0);
        let is_write = workload.mix.trim_start_matches("rand") == "write";
        let fits = |run: &&Vec<&Measurement>| {
            let raw = &run[0].workload;
            let own = u64::from(raw.jobs) * u64::from(raw.depth) * u64::from(drives);
            let is_alike = (&raw.mix, raw.read_percent) == (&workload.mix, workload.read_percent);
            // An engine may make large writes of small ones.
            let is_stream = workload.mix == "randwrite" && raw.mix == "write";
            (is_alike && own >= in_flight || is_stream)
                && raw.block_bytes >= workload.block_bytes.min(1 << 20)
        };
        let ceiling = |run: &Vec<&Measurement>| {
            let sum: f64 = run.iter().map(|measured| measured.bytes_per_s()).sum();
            let raw = &run[0].workload.name;
            let name = format!("{drives} raw drives at once, {raw}");
            (Ceiling { name, value: if is_write { sum * share } else { sum } }, raw.clone())
        };
        let all = self.runs.iter().filter(fits).map(ceiling);
        all.max_by(|one, other| one.0.value.total_cmp(&other.0.value))
    }

    pub fn of_load(&self, name: &str) -> Option<&[&'a Measurement]> {
        let is_it = |run: &&Vec<&Measurement>| run[0].workload.name == name;
        self.runs.iter().find(is_it).map(Vec::as_slice)
    }

    /// BASELINE of `workload` in `condition`, from the raw run of the same mix and blocks that has
    /// nearest to as much in flight; `None` if none is within the factor: a baseline is no single
    /// number.
    pub fn baseline(
        &self,
        workload: &Workload,
        condition: ArrayCondition,
    ) -> Option<BaselinePoint> {
        let lost = match condition {
            ArrayCondition::Healthy => 0,
            ArrayCondition::Degraded(lost) => lost,
            _ => return None,
        };
        let is_known = self.stripes.code.is_some();
        let (mix, is_block) = match workload.mix.as_str() {
            "randread" if lost == 0 || is_known => ("randread", true),
            "randwrite" if lost == 0 && is_known => ("randrw", true),
            "write" if lost == 0 && is_known => ("write", false),
            "read" if lost == 0 => ("read", false),
            _ => return None,
        };
        let drives = self.stripes.drives;
        let distance = |run: &&Vec<&Measurement>| {
            self.share_in_flight(&run[0].workload, workload).log2().abs()
        };
        let fits = |run: &&Vec<&Measurement>| {
            let raw = &run[0].workload;
            raw.mix == mix
                && (mix != "randrw" || raw.read_percent == Some(HALF))
                && self.is_of_blocks(raw, workload, is_block)
                && distance(run) <= FACTOR.log2()
        };
        let rate = |run: &Vec<&Measurement>| run.iter().map(|it| it.rate()).sum::<f64>();
        // Of several rounds of the same load the best: what the drives allow is not what a bad
        // moment left of it.
        let run = self.runs.iter().filter(fits).min_by(|one, other| {
            distance(one).total_cmp(&distance(other)).then(rate(other).total_cmp(&rate(one)))
        })?;
        let rounds = self.runs.iter().filter(|it| it[0].workload.name == run[0].workload.name);
        let best = match rounds.count() {
            1 => String::new(),
            rounds => format!(" (the best of {rounds} rounds)"),
        };
        let of = match workload.unit() {
            RateUnit::Iops => Measurement::iops,
            RateUnit::BytesPerS => Measurement::bytes_per_s,
        };
        let rates: Vec<f64> = run.iter().map(|measured| of(measured)).collect();
        let Baseline { value, derivation } = self.value(mix, lost, &rates)?;
        let raw = &run[0].workload;
        let share = self.share_in_flight(raw, workload);
        let data = self.stripes.data_drives().unwrap_or(f64::from(self.stripes.active));
        Some(BaselinePoint {
            target: self.target.clone(),
            workload: workload.name.clone(),
            condition,
            value,
            derivation: format!(
                "{derivation}; raw run {}{best} in blocks of {}, {} in flight on {drives} drives: \
                 {share:.2} times what {} x {} on the array put there",
                raw.name,
                units::block(raw.block_bytes),
                raw.jobs * raw.depth * drives,
                workload.jobs,
                workload.depth
            ),
            raw: Some(RawSum {
                workload: raw.name.clone(),
                value: rates.iter().sum(),
                drives,
                data_drives: u32::try_from(units::whole(data)).unwrap_or(self.stripes.data),
                stated: None,
            }),
        })
    }

    /// What a raw run had in flight on all drives, over what `workload` puts there, in bytes: a
    /// small write reads old data and parity first, a large one brings its parity.
    fn share_in_flight(&self, raw: &Workload, workload: &Workload) -> f64 {
        let on_members = match workload.mix.as_str() {
            "randwrite" => {
                self.stripes.code.map_or(1.0, |code| f64::from(code.write_penalty()) / 2.0)
            }
            "write" => 1.0 / self.stripes.share().unwrap_or(1.0),
            _ => 1.0,
        };
        let bytes =
            |of: &Workload| f64::from(of.jobs) * f64::from(of.depth) * to_f64(of.block_bytes);
        bytes(raw) * f64::from(self.stripes.drives) / (bytes(workload) * on_members)
    }

    /// Whether a raw run had the blocks of `workload`; of whole stripes (`is_block` is not set),
    /// those of the array or its strips, within the factor.
    fn is_of_blocks(&self, raw: &Workload, workload: &Workload, is_block: bool) -> bool {
        let strip = to_f64(workload.block_bytes) / f64::from(self.stripes.data.max(1));
        let is_near = |of: f64| {
            let share = to_f64(raw.block_bytes) / of;
            (1.0 / FACTOR..=FACTOR).contains(&share)
        };
        match is_block {
            true => raw.block_bytes == workload.block_bytes,
            false => is_near(to_f64(workload.block_bytes)) || is_near(strip),
        }
    }

    fn value(&self, mix: &str, lost: u32, rates: &[f64]) -> Option<Baseline> {
        let stripes = &self.stripes;
        let at_work: Vec<f64> = rates.iter().map(|rate| rate * stripes.at_work(lost)).collect();
        let sum = at_work.iter().sum();
        let over = stripes.code.map(|code| (code, stripes.active));
        let mut found = match (mix, lost) {
            ("randread", 1..) => baseline::degraded_random_read_over(over?, lost, sum),
            ("randrw", _) => baseline::random_write(over?.0, sum),
            ("write", _) => baseline::sequential_write_over(over?, rates),
            _ => baseline::random_read(&at_work),
        };
        if stripes.active < stripes.drives {
            found.derivation += &format!(", {} of them at work", stripes.active);
        }
        Some(found)
    }
}
