//! Counts the commands of a device, around any other.
//!
//! What must stay true: every command is counted once when it starts and once when it ends. All
//! workers share the counts, and any thread may read them at any time. Not here: their use.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ashlar_ring::Handle;
use ashlar_units::Nanos;

use crate::device::{Command, CommandKind, Device, DeviceFacts, Opened, Outcome};
use crate::fault::Fault;
use crate::noted::{NotedDevice, Notes};

/// Counts of one device, kept while it works.
#[derive(Default)]
pub struct DeviceStats {
    kinds: [KindStats; CommandKind::ALL.len()],
    in_flight: AtomicU64,
    in_flight_max: AtomicU64,
}

#[derive(Default)]
struct KindStats {
    done: AtomicU64,
    bytes: AtomicU64,
    faults: AtomicU64,
    latency_ns_sum: AtomicU64,
    latency_ns_max: AtomicU64,
}

/// Counts of one kind of command at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KindCounts {
    /// Commands that were done.
    pub done: u64,
    /// Bytes they moved, zeroed or discarded.
    pub bytes: u64,
    /// Commands that failed.
    pub faults: u64,
    /// Time that all of these took together, in nanoseconds.
    pub latency_ns_sum: u64,
    /// The longest that one took.
    pub latency_ns_max: u64,
}

impl DeviceStats {
    /// Counts of commands of `kind` that have ended.
    pub fn of(&self, kind: CommandKind) -> KindCounts {
        let stats = &self.kinds[kind.at()];
        KindCounts {
            done: stats.done.load(Ordering::Relaxed),
            bytes: stats.bytes.load(Ordering::Relaxed),
            faults: stats.faults.load(Ordering::Relaxed),
            latency_ns_sum: stats.latency_ns_sum.load(Ordering::Relaxed),
            latency_ns_max: stats.latency_ns_max.load(Ordering::Relaxed),
        }
    }

    /// Commands that have begun and not ended.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The most there ever were at once.
    pub fn in_flight_max(&self) -> u64 {
        self.in_flight_max.load(Ordering::Relaxed)
    }

    fn begin(&self) {
        let now = 1 + self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.in_flight_max.fetch_max(now, Ordering::Relaxed);
    }

    fn end(&self, began: &Began, now: Nanos, result: Result<(), Fault>) {
        let stats = &self.kinds[began.kind.at()];
        match result {
            Ok(()) => {
                stats.done.fetch_add(1, Ordering::Relaxed);
                stats.bytes.fetch_add(began.bytes, Ordering::Relaxed);
            }
            Err(_) => {
                stats.faults.fetch_add(1, Ordering::Relaxed);
            }
        }
        let took = now.0.saturating_sub(began.at.0);
        stats.latency_ns_sum.fetch_add(took, Ordering::Relaxed);
        stats.latency_ns_max.fetch_max(took, Ordering::Relaxed);
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A device around another one, counting.
pub struct CountedDevice {
    inner: Arc<dyn Opened>,
    stats: Arc<DeviceStats>,
}

impl CountedDevice {
    /// Counts what `inner` does.
    pub fn new(inner: Arc<dyn Opened>) -> CountedDevice {
        CountedDevice { inner, stats: Arc::default() }
    }

    /// The counts; they go on after the device is closed.
    pub fn stats(&self) -> Arc<DeviceStats> {
        Arc::clone(&self.stats)
    }
}

impl Opened for CountedDevice {
    fn facts(&self) -> &DeviceFacts {
        self.inner.facts()
    }

    fn descriptor_path(&self) -> Option<String> {
        self.inner.descriptor_path()
    }

    fn attach(&self, handle: &Handle) -> Rc<dyn Device> {
        let counter = Counter { stats: Arc::clone(&self.stats), handle: handle.clone() };
        Rc::new(NotedDevice::new(self.inner.attach(handle), handle, counter))
    }
}

struct Counter {
    stats: Arc<DeviceStats>,
    handle: Handle,
}

struct Began {
    kind: CommandKind,
    bytes: u64,
    at: Nanos,
}

impl Notes for Counter {
    type Began = Began;

    fn begins(&self, _offset: u64, command: &Command) -> Result<Option<Began>, Fault> {
        let at = self.handle.now();
        self.stats.begin();
        Ok(Some(Began { kind: command.kind(), bytes: command.bytes(), at }))
    }

    fn ends(&self, began: Began, outcome: Option<Outcome>) -> Option<Outcome> {
        let result = outcome.as_ref().map_or(Err(Fault::GONE), |outcome| outcome.result);
        self.stats.end(&began, self.handle.now(), result);
        outcome
    }
}
