//! What a run writes down: lines of JSON, one record each, beside the untouched outputs they were
//! read from.
//!
//! A run is a directory:
//! - `run.json`: which plan, which lab, when, hash of the plan
//! - `evidence.jsonl`: every command in order, with its outputs' names and SHA-256 (forensic log)
//! - `evidence/`: those outputs, untouched
//! - `records.jsonl`: the records of this file
//!
//! What must stay true: a report is made from these files alone; a record names its evidence;
//! unknown fields of a newer lab are passed over, a record of an unknown kind is counted and said.

use crate::cpu::CpuAccount;
use crate::inspect::resources::Row;
use crate::meter::PathLoad;
use crate::metrics::latency::{self, Bins};
use crate::validity::{Finding, Outcome};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One line of `records.jsonl`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    Measurement(Box<Measurement>),
    Check(Check),
    /// What the raw drives allow at one workload point.
    Baseline(BaselinePoint),
    /// Who used the CPU, and in whose context.
    Cpu(Box<CpuAccount>),
    /// Utilisation, saturation and errors of the server's resources before anything was measured.
    Resources(ResourceTable),
}

impl Record {
    pub fn measurement(&self) -> Option<&Measurement> {
        if let Record::Measurement(measured) = self { Some(measured) } else { None }
    }

    pub fn check(&self) -> Option<&Check> {
        if let Record::Check(check) = self { Some(check) } else { None }
    }
}

/// The USE checklist of the server, before the first load.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ResourceTable {
    pub rows: Vec<Row>,
}

/// What the raw drives allow at one workload point, in one condition of the array.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BaselinePoint {
    /// The array that it is of, as its measurements name it; older runs do not say it.
    #[serde(default)]
    pub target: String,
    pub workload: String,
    pub condition: ArrayCondition,
    /// In the unit of the workload: see [`Workload::unit`].
    pub value: f64,
    /// Its arithmetic and the raw runs it came from.
    pub derivation: String,
    /// The raw run it came from; older runs do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<RawSum>,
}

/// What all raw drives of an array did together, at the load that a baseline came from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RawSum {
    pub workload: String,
    /// Of all drives, in the unit of the array's workload.
    pub value: f64,
    pub drives: u32,
    /// Of these, how many hold data of a stripe.
    pub data_drives: u32,
    /// What their makers state for this load, of all drives. `None` if nobody says so of one of
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stated: Option<f64>,
}

/// What a rate counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateUnit {
    /// Bytes a second, printed as MB/s or GB/s (10^6, 10^9).
    BytesPerS,
    Iops,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Check {
    /// Stable name: `memory.channels_populated`.
    pub name: String,
    /// What was looked at: `socket 0`, `sda`.
    pub target: String,
    pub outcome: Outcome,
    /// What was found, with units, one sentence.
    pub found: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which engine was measured: kernel and tunables make it another one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct EngineIdentity {
    /// `ashlar`, `mdadm`, `btrfs`, `device`, `raw`.
    pub name: String,
    /// Its own version, as it says it.
    pub version: String,
    pub kernel: String,
    /// What was set away from the default, by name.
    pub tunables: BTreeMap<String, String>,
}

impl EngineIdentity {
    /// Name, version and what was set: `mdadm 6.12 (group_thread_cnt 8)`.
    pub fn label(&self) -> String {
        let mut label = self.name.clone();
        if !self.version.is_empty() {
            label.push(' ');
            label.push_str(&self.version);
        }
        let set: Vec<String> =
            self.tunables.iter().map(|(name, value)| format!("{name} {value}")).collect();
        if !set.is_empty() {
            label.push_str(&format!(" ({})", set.join(", ")));
        }
        label
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrayCondition {
    /// All members in sync, nothing going on.
    #[default]
    Healthy,
    Degraded(u32),
    /// Being rebuilt while it was measured.
    Rebuilding,
    /// All members in sync, reached through a file on a file system on the array.
    FileSystem,
    Raw,
}

impl std::fmt::Display for ArrayCondition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ArrayCondition::Healthy => f.write_str("healthy"),
            ArrayCondition::Degraded(out) => write!(f, "{out} out"),
            ArrayCondition::Rebuilding => f.write_str("rebuilding"),
            ArrayCondition::FileSystem => f.write_str("through a file system"),
            ArrayCondition::Raw => f.write_str("raw"),
        }
    }
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Workload {
    pub name: String,
    /// fio's `rw`: `randread`, `write`, `randrw`.
    pub mix: String,
    /// Share of reads in a mixed load, percent.
    pub read_percent: Option<u32>,
    pub block_bytes: u64,
    pub jobs: u32,
    pub depth: u32,
}

impl Workload {
    /// For people: `4K random reads, 2 x 16`: jobs times depth.
    pub fn describe(&self) -> String {
        let order = if self.mix.starts_with("rand") { "random" } else { "sequential" };
        let what = match self.mix.trim_start_matches("rand") {
            "read" => "reads".to_owned(),
            "write" => "writes".to_owned(),
            _ => format!("mix with {} % reads", self.read_percent.unwrap_or(50)),
        };
        let block = crate::units::block(self.block_bytes);
        format!("{block} {order} {what}, {} x {}", self.jobs, self.depth)
    }

    /// Small blocks count I/Os, larger ones bytes.
    pub fn unit(&self) -> RateUnit {
        if self.block_bytes < 64 << 10 { RateUnit::Iops } else { RateUnit::BytesPerS }
    }
}

/// Reads or writes of a measurement.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Direction {
    pub bytes: u64,
    pub ios: u64,
    pub bytes_per_s: f64,
    pub iops: f64,
    pub latency_mean_ns: f64,
    /// Completion latency, nanoseconds -> I/Os: fio's `json+` bins, added over jobs. In JSON a list
    /// of pairs.
    #[serde(default, with = "pairs")]
    pub latency_bins: BTreeMap<u64, u64>,
    /// Bandwidth over time: milliseconds since the start -> bytes a second, summed over jobs.
    #[serde(default)]
    pub series: Vec<(u64, f64)>,
    /// Mean completion latency over time: milliseconds since the start -> nanoseconds, mean over
    /// jobs.
    #[serde(default)]
    pub latency_series: Vec<(u64, f64)>,
}

/// CPU time around a measurement, seconds over all cores.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CpuCost {
    pub cores: u32,
    /// Wall time, seconds: of what the load measured, without its start and its end.
    pub wall_s: f64,
    /// Busy time of all cores, seconds, without that of strangers.
    pub busy_s: f64,
    pub per_core: Vec<f64>,
    /// The load generator's own user and system time, seconds: a column of its own, never the
    /// engine's cost.
    pub client_s: f64,
    /// Time of programs that are neither the load nor the engine, seconds.
    #[serde(default)]
    pub foreign_s: f64,
    /// Time that a hypervisor took, seconds.
    #[serde(default)]
    pub stolen_s: f64,
}

impl CpuCost {
    /// Busy share of the machine, 0 to 1.
    pub fn share(&self) -> Option<f64> {
        let all_s = self.wall_s * f64::from(self.cores);
        (all_s > 0.0).then(|| self.busy_s / all_s)
    }
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Measurement {
    /// Unique within the run: `stage/target/workload#round`.
    pub id: String,
    /// Stage of the plan: `raw.each`, `raw.all`, `array.sweep`, `degraded`, `rebuild`.
    pub stage: String,
    /// Which round of how many alternations this is, from 0.
    pub round: u32,
    pub target: String,
    pub engine: EngineIdentity,
    pub condition: ArrayCondition,
    pub workload: Workload,
    pub read: Direction,
    pub write: Direction,
    /// CPU over the same time, if it was taken.
    pub cpu: Option<CpuCost>,
    /// What drives and links carried over the same time, if it was taken.
    pub path: Option<PathLoad>,
    #[serde(default)]
    pub findings: Vec<Finding>,
    pub argv: Vec<String>,
    /// Number of its line in `evidence.jsonl`.
    pub evidence: Option<u64>,
    /// Beginning, seconds since 1970, UTC.
    pub began_unix_s: u64,
}

impl Measurement {
    pub fn bytes_per_s(&self) -> f64 {
        self.read.bytes_per_s + self.write.bytes_per_s
    }

    pub fn iops(&self) -> f64 {
        self.read.iops + self.write.iops
    }

    pub fn latency_bins(&self) -> Bins {
        let mut bins = self.read.latency_bins.clone();
        latency::merge(&mut bins, &self.write.latency_bins);
        bins
    }

    pub fn rate(&self) -> f64 {
        match self.workload.unit() {
            RateUnit::BytesPerS => self.bytes_per_s(),
            RateUnit::Iops => self.iops(),
        }
    }
}

/// A measurement of the made-up run, for unit tests to change.
#[cfg(test)]
pub(crate) fn sample() -> Measurement {
    let text = include_str!("../tests/data/two-engines/records.jsonl");
    let mut all = text.lines().filter_map(|line| serde_json::from_str::<Record>(line).ok());
    all.find_map(|record| record.measurement().cloned()).expect("one")
}

/// A map of numbers as a list of pairs: JSON's keys are strings, which a tagged record cannot turn
/// back into numbers.
pub(crate) mod pairs {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;

    pub(crate) fn serialize<S: Serializer>(
        bins: &BTreeMap<u64, u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        bins.iter().collect::<Vec<_>>().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<u64, u64>, D::Error> {
        Ok(Vec::<(u64, u64)>::deserialize(deserializer)?.into_iter().collect())
    }
}
