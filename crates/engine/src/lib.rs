//! The array: workers, stripe owners, the path of reads and writes, background work, and the
//! control side.
//!
//! What must stay true: the world (devices, clock, scheduling, randomness) is handed in; the same
//! code runs on io_uring and in a simulation. One owner for each stripe, no locks on the data path.
//!
//! In reading order:
//! - `engine`      the entry of the control side; `config`   its configuration;
//!   `engine_state`   its arrays and the way onto its workers; `thread`, `context`   a worker's
//!   thread, and what an export gets of it
//! - `create`, `assemble`, `stop`   the life of an array; `joining_device`   a device to be
//!   written; `stated`   what devices are said to write whole; `grow`   more members for a pool
//! - `service`     replace, re-add, spares, scrub, pause: what an operator asks of a running array
//! - `array`       an array as all workers share it; `layouts`   its geometries
//! - `worker`      one core and everything it owns; messages between workers
//! - `room`        members without space: the array waits; `limits`   of a volume's requests
//! - `read_only`   why an array takes no changes, and what ends that
//! - `local_array` an array on one worker; `devices`   of its slots; `pools`   its lists;
//!   `in_flight`   commands under way
//! - `volume`      what exports see; `entrance`   their way in, also while an array starts again
//! - `datapath`    the path of every request
//! - `stripe_tasks`   hands stripe work to the data path and to jobs
//! - `blame`       which device failed, and what the others record before the client is answered
//! - `stripe`      stripe work, row locks; `rows`   buffers that hold rows of strips
//! - `scratch`     stripe buffers
//! - `lists`       short lists that are used again
//! - `intent`, `written`   the maps in memory; `map_pages`   from the members when an array starts
//! - `log`         the stripe intent log; `caches`   writes that no log and no media hold yet
//! - `checksums`   checksums of data blocks
//! - `coordinator` what one worker does for all: superblocks, map pages, flushes
//! - `background`  rebuild, resync, scrub
//! - `watch`       devices that do not answer: which are given up, and which requests wait for
//! - `slot`        a member slot, and which of its devices is meant; `member`   states of a slot;
//!   `identity`   which drive that is
//! - `ownership`   a heartbeat, so that no other host starts the array
//! - `canary`      faults planted on purpose, for tests of tests
//! - `status`, `event`, `metrics`, `error`   what operators see
#![forbid(unsafe_code)]

mod appearances;
mod array;
mod aside;
mod assemble;
mod background;
mod blame;
mod blank;
mod caches;
mod canary;
mod checksums;
mod config;
mod context;
mod control_io;
mod coordinator;
mod create;
mod datapath;
mod devices;
mod ends;
mod engine;
mod engine_state;
mod entrance;
mod error;
mod event;
mod exposure;
mod grow;
mod identity;
mod in_flight;
mod intent;
mod joining_device;
mod layouts;
mod limits;
mod lists;
mod local_array;
mod log;
mod map_pages;
mod member;
mod metrics;
mod ownership;
mod pools;
mod read_only;
mod room;
mod rows;
mod scratch;
mod service;
mod slot;
mod spare;
mod spare_cells;
mod spare_pages;
mod stated;
mod status;
mod stop;
mod stripe;
mod stripe_tasks;
mod thread;
mod volume;
mod watch;
mod worker;
mod written;

pub use array::Array;
pub use aside::Aside;
pub use assemble::{AssembleSpec, MayBeOld, WouldStart, next_after};
pub use background::{JobEnd, JobStatus, ScrubEnd};
#[cfg(debug_assertions)]
pub use canary::plant_panic;
#[cfg(feature = "canaries")]
pub use canary::{Canary, set_canary};
pub use checksums::cache::CacheUsage;
pub use config::{
    ArrayTuning, Ends, EngineConfig, ForeignSignature, ProcessState, Runner, Signatures, Wiper,
};
pub use context::WorkerContext;
pub use coordinator::state::HowStarted;
pub use create::{CreateReport, CreateSpec};
pub use engine::Engine;
pub use error::Refusal;
pub use event::{Event, EventLog, Occurrences, names as event_names};
pub use exposure::{ArrayExposure, CriticalStripes};
pub use grow::{GrowReport, GrowSpec};
pub use identity::DeviceIdentity;
pub use limits::{RateLimit, VolumeLimits};
pub use log::replay::summary::ReplaySummary;
pub use member::{BadTransition, SlotEvent, SlotState};
pub use metrics::{
    ArrayCounters, ArrayCounts, Counter, Latency, LatencySummary, MemberCounters, MemberCounts,
    POWERS, STAGE_SAMPLE_EVERY, StageLatencies, WriteStage,
};
pub use read_only::WhyReadOnly;
pub use room::Pause;
pub use service::NewDevice;
pub use spare::SpareStatus;
pub use spare_cells::LostMember;
pub use status::{ArrayState, ArrayStatus, EngineStatus, MemberStatus, PoolStatus, WorkerStatus};
pub use stop::Stopped;
pub use volume::ArrayVolume;
pub use watch::silence::SilenceLimits;
pub use watch::slow::{CommandsKind, SlowFigures, SlowLimits, SlowReaction};
pub use worker::{Worker, WorkerLoad};
pub use written::kept::{KeptMemory, KeptPlace};
