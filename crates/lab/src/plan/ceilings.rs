//! What the raw drives allow an array: its BASELINE and its ceiling, from the runs of all drives at once.
//!
//! What must stay true: a ceiling comes from raw drives with at least as many I/Os in flight; a baseline says which raw run it
//! came from and what the redundancy costs; without a fitting raw run there is neither.

use super::file::Array;
use crate::metrics::baseline::{self, Baseline, Code};
use crate::metrics::latency::to_f64;
use crate::metrics::plausible::Ceiling;
use crate::record::{ArrayCondition, BaselinePoint, Measurement, RateUnit, Workload};
use crate::validity::Mark;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Stage whose figures are taken.
const STAGE: &str = "raw.all";

/// Raw runs of all drives of an array at once.
#[derive(Debug)]
pub struct RawRuns<'a> {
    runs: Vec<Vec<&'a Measurement>>,
    code: Code,
}

impl<'a> RawRuns<'a> {
    /// Those among `known` that belong to `array`; `drives` are the plan's. `None` if its redundancy is not known.
    pub fn of(
        array: &Array,
        drives: &[PathBuf],
        known: impl Iterator<Item = &'a Measurement>,
    ) -> Option<RawRuns<'a>> {
        let members = if array.is_made() { &array.members } else { drives };
        let count = u32::try_from(members.len()).ok()?;
        let code = match array.code().filter(|_| array.is_made()) {
            Some(code) => code,
            None => {
                let data = u32::try_from(array.data_members?).ok()?;
                Code { data, parity: count.checked_sub(data)? }
            }
        };
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
        let runs = runs.into_values().filter(|run| run.len() == members.len()).collect();
        Some(RawRuns { runs, code })
    }

    /// What no figure of `workload` can be above, bytes a second.
    pub fn ceilings(&self, workload: &Workload) -> Vec<Ceiling> {
        let drives = self.code.members();
        let in_flight = u64::from(workload.jobs) * u64::from(workload.depth);
        // Each byte of data brings its part of parity with it.
        let share = f64::from(self.code.data) / f64::from(drives);
        let is_write = workload.mix.trim_start_matches("rand") == "write";
        self.runs
            .iter()
            .filter(|run| {
                let raw = &run[0].workload;
                let own = u64::from(raw.jobs) * u64::from(raw.depth) * u64::from(drives);
                raw.mix == workload.mix
                    && own >= in_flight
                    && raw.block_bytes >= workload.block_bytes.min(1 << 20)
            })
            .map(|run| {
                let sum: f64 = run.iter().map(|measured| measured.bytes_per_s()).sum();
                Ceiling {
                    name: format!("{drives} raw drives at once, {}", run[0].workload.name),
                    value: if is_write { sum * share } else { sum },
                }
            })
            .max_by(|one, other| one.value.total_cmp(&other.value))
            .into_iter()
            .collect()
    }

    /// The raw run of all drives with the same mix as `workload` whose blocks are nearest to a strip.
    pub fn alike(&self, workload: &Workload) -> Option<Vec<&'a Measurement>> {
        let strip = workload.block_bytes / u64::from(self.code.data.max(1));
        let alike = self.runs.iter().filter(|run| run[0].workload.mix == workload.mix);
        alike.min_by_key(|run| run[0].workload.block_bytes.abs_diff(strip)).cloned()
    }

    /// BASELINE of `workload` in `condition`, from the raw run that has nearest to as many I/Os in flight on each drive.
    pub fn baseline(
        &self,
        workload: &Workload,
        condition: ArrayCondition,
    ) -> Option<BaselinePoint> {
        let lost = match condition {
            ArrayCondition::Healthy => 0,
            ArrayCondition::Degraded(lost) => lost,
            ArrayCondition::Rebuilding | ArrayCondition::Raw => return None,
        };
        let (mix, is_block) = match workload.mix.as_str() {
            "randread" => ("randread", true),
            "randwrite" if lost == 0 => ("randrw", true),
            "read" | "write" if lost == 0 => (workload.mix.as_str(), false),
            _ => return None,
        };
        let drives = self.code.members();
        let wanted = f64::from(workload.jobs * workload.depth) / f64::from(drives);
        let distance = |run: &&Vec<&Measurement>| {
            let raw = &run[0].workload;
            (f64::from(raw.jobs * raw.depth).log2() - wanted.max(1.0).log2()).abs()
        };
        let fits = |run: &&Vec<&Measurement>| {
            let raw = &run[0].workload;
            raw.mix == mix && (!is_block || raw.block_bytes == workload.block_bytes)
        };
        let run = self
            .runs
            .iter()
            .filter(fits)
            .min_by(|one, other| distance(one).total_cmp(&distance(other)))?;
        let rates: Vec<f64> = run
            .iter()
            .map(|measured| match workload.unit() {
                RateUnit::Iops => measured.iops(),
                RateUnit::BytesPerS => measured.bytes_per_s(),
            })
            .collect();
        let Baseline { value, derivation } = self.value(mix, lost, &rates)?;
        let raw = &run[0].workload;
        Some(BaselinePoint {
            workload: workload.name.clone(),
            condition,
            value,
            derivation: format!(
                "{derivation}; raw run {} with {} I/Os in flight on each drive, {} asked of the array",
                raw.name,
                raw.jobs * raw.depth,
                workload.jobs * workload.depth
            ),
        })
    }

    fn value(&self, mix: &str, lost: u32, rates: &[f64]) -> Option<Baseline> {
        let left = usize::try_from(self.code.members().checked_sub(lost)?).ok()?;
        Some(match (mix, lost) {
            ("randread", 1..) => {
                let sum = rates.iter().sum::<f64>() * to_f64(u64::try_from(left).ok()?)
                    / f64::from(self.code.members());
                baseline::degraded_random_read(self.code, lost, sum)
            }
            ("randrw", _) => baseline::random_write(self.code, rates.iter().sum()),
            ("write", _) => baseline::sequential_write(self.code, rates, &[]),
            _ => baseline::random_read(rates),
        })
    }
}
