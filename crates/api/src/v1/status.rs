//! Everything at one moment: arrays, spares, exports, and what the process itself uses.

use super::array::ArrayStatus;
use super::export::ExportStatus;
use super::notify::{HistoryStatus, NotifyStatus};
use super::spare::SparePool;
use crate::{Call, Method};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Metrics as OpenMetrics text.
pub const METRICS_PATH: &str = "/v1/metrics";

/// Show the state of the daemon: arrays, spares, exports and resources.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetStatus {}

impl Call for GetStatus {
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/v1/status";
    type Answer = Status;
}

/// The state of the daemon at one moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Version of the daemon.
    pub version: String,
    /// How long it runs, in seconds.
    pub uptime_seconds: u64,
    /// Its process.
    pub process_id: u32,
    /// The parity kernel of arrays that start now.
    #[serde(default)]
    pub kernel: String,
    /// Memory it has resident, in bytes.
    pub resident_bytes: u64,
    /// The arrays.
    pub arrays: Vec<ArrayStatus>,
    /// The pools of spares.
    pub spare_pools: Vec<SparePool>,
    /// The ways to the volumes.
    pub exports: Vec<ExportStatus>,
    /// The workers.
    pub workers: Vec<WorkerStatus>,
    /// Everything that was sized at start.
    pub pools: Vec<PoolStatus>,
    /// Memory devices: what they hold is lost when the daemon ends.
    #[serde(default)]
    pub memory: MemoryStatus,
    /// Faults of which one cause makes many: how often each happened, whether told one by one or
    /// counted.
    #[serde(default)]
    pub repeated_events: Vec<RepeatedEvent>,
    /// Arrays that the configuration names, or that are remembered, and that do not run.
    #[serde(default)]
    pub absent: Vec<AbsentArray>,
    /// Arrays that were found on devices of this machine and are not started, though nobody stopped
    /// them here; none of `absent`.
    #[serde(default)]
    pub found: Vec<FoundArray>,
    /// What the daemon should do beside running arrays, and cannot now. It tries again.
    #[serde(default)]
    pub missing: Vec<MissingService>,
    /// The arrays of the configuration are still being started.
    #[serde(default)]
    pub starting: bool,
    /// The ways by which operators are told of events.
    #[serde(default)]
    pub notify: Vec<NotifyStatus>,
    /// Why the health of some drives is not known: programs that are missing.
    #[serde(default)]
    pub health_unknown: Option<String>,
    /// The history of events on disk; left out if there is none.
    #[serde(default)]
    pub history: Option<HistoryStatus>,
}

/// An array that should run and does not.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AbsentArray {
    /// Its name; its UUID if the configuration gives no name; its patterns if it gives neither.
    pub name: String,
    /// Where its members were looked for.
    pub devices: Vec<String>,
    /// Why it does not run, as far as it is known.
    pub reason: String,
    /// It is being started, or its devices are being looked at.
    #[serde(default)]
    pub starting: bool,
}

/// An array that was found on devices of this machine and does not run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct FoundArray {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// Its devices that were found.
    pub devices: Vec<String>,
    /// Why it is not started.
    pub reason: String,
    /// It belongs to this host and should run; else another host ran it last and may run it now,
    /// or nobody asked for it.
    pub should_run: bool,
}

/// Something beside the arrays that the daemon should do and cannot now.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct MissingService {
    /// What it is, for example `NBD at 192.0.2.1:10809`.
    pub name: String,
    /// Why it cannot.
    pub reason: String,
    /// It is a way to volumes: clients do without it.
    pub is_way: bool,
}

/// The memory devices of the daemon. Their memory is part of what it has resident, and of no pool.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct MemoryStatus {
    /// Each of them, those of stopped arrays included.
    pub devices: Vec<MemoryDevice>,
    /// The most that they may have together, in bytes.
    pub limit_bytes: u64,
}

/// One memory device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MemoryDevice {
    /// What commands call it: `memory:NAME`.
    pub path: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Memory that it takes now, in bytes.
    pub used_bytes: u64,
    /// The running array that has it.
    pub array: Option<String>,
}

/// How often something happened since the daemon began.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RepeatedEvent {
    /// For example `member.checksum_mismatch`.
    pub name: String,
    /// How often.
    pub count: u64,
    /// When last, in milliseconds since 1970. For people; nothing is decided by it.
    pub last_unix_ms: u64,
}

/// One worker at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WorkerStatus {
    /// Number of the worker.
    pub worker: u16,
    /// The core that its thread is bound to; none if it may run on several.
    #[serde(default)]
    pub core: Option<u16>,
    /// The NUMA node of that core; none on a machine with one node.
    #[serde(default)]
    pub node: Option<u32>,
    /// Client requests that arrived at it.
    pub requests: u64,
    /// Pieces of stripe work it did, for its own clients and for other workers.
    pub pieces: u64,
    /// Requests and pieces that it has in hand.
    pub in_flight: u64,
    /// The most that it had in hand at once.
    #[serde(default)]
    pub in_flight_max: u64,
    /// Messages that it sent to other workers: stripe work for its owner, and answers to such work.
    #[serde(default)]
    pub hops: u64,
    /// System calls by which its io_uring handed over operations or waited for them. With
    /// `requests` they say what a request costs when few are under way.
    #[serde(default)]
    pub system_calls: u64,
    /// How often it went to sleep because it had nothing to do.
    #[serde(default)]
    pub sleeps: u64,
    /// How often another thread woke it, each time with a system call of that thread.
    #[serde(default)]
    pub wake_ups: u64,
    /// How often it looked for work for a while before it slept.
    #[serde(default)]
    pub looks: u64,
    /// How often such a look found some, so that it did not sleep.
    #[serde(default)]
    pub looks_of_use: u64,
    /// CPU time of all looks, in nanoseconds.
    #[serde(default)]
    pub look_ns: u64,
    /// Operations that it asked of the kernel: on members, sockets, files and devices of exports.
    #[serde(default)]
    pub operations: u64,
}

/// Something of which there is a fixed number; when it is empty, requests wait.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PoolStatus {
    /// Whose it is and what is in it: `worker0.payload 64 KiB`.
    pub name: String,
    /// How many there are.
    pub limit: u64,
    /// How many are taken now.
    pub in_use: u64,
    /// The most that were taken at once.
    pub high_water: u64,
    /// How often a request had to wait.
    pub waits: u64,
    /// The pages its memory is on: `reserved huge`, `transparent huge` (as far as the system finds
    /// free ones) or `small`; empty if it is not a pool of buffers.
    #[serde(default)]
    pub pages: String,
    /// The NUMA node that its memory is taken from; none if it is not settled on one.
    #[serde(default)]
    pub node: Option<u32>,
}
