//! Kinds of stages.
//!
//! What must stay true: the name in a plan is the name in records.

use serde::Deserialize;

/// Kinds of stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Purge every drive.
    Purge,
    /// Write every drive and array whole, twice.
    Precondition,
    /// Writes without and with flushes and FUA, with each drive's write cache on and off.
    WriteCache,
    /// Drives one by one.
    #[serde(rename = "raw.each")]
    RawEach,
    /// All drives at once, one job each.
    #[serde(rename = "raw.all")]
    RawAll,
    /// 1, 2, 4 and so on drives at once, and all of them.
    #[serde(rename = "raw.scale")]
    RawScale,
    /// What the way to the drives carries, with as little work for their media as possible.
    Path,
    /// Bandwidth over the whole width of each drive.
    Zone,
    /// Sequential writing until a drive's fast cache is full.
    Cliff,
    /// One array after the other, over depths and jobs.
    #[serde(rename = "array.sweep")]
    ArraySweep,
    /// All arrays at once.
    #[serde(rename = "arrays.all")]
    ArraysAll,
    /// Through a file on a file system that the lab makes on each array that names one.
    FileSystem,
    /// With one, two, ... members out.
    Degraded,
    /// While a member is rebuilt.
    Rebuild,
    /// Each load from the CPUs of each NUMA node in turn.
    Numa,
    /// Zipf over a range of sizes, to find caches.
    WorkingSet,
    /// The same load in blocks of several sizes.
    BlockSizes,
}

impl Kind {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Purge => "purge",
            Kind::Precondition => "precondition",
            Kind::WriteCache => "write-cache",
            Kind::RawEach => "raw.each",
            Kind::RawAll => "raw.all",
            Kind::RawScale => "raw.scale",
            Kind::Path => "path",
            Kind::Zone => "zone",
            Kind::Cliff => "cliff",
            Kind::ArraySweep => "array.sweep",
            Kind::ArraysAll => "arrays.all",
            Kind::FileSystem => "file-system",
            Kind::Degraded => "degraded",
            Kind::Rebuild => "rebuild",
            Kind::Numa => "numa",
            Kind::WorkingSet => "working-set",
            Kind::BlockSizes => "block-sizes",
        }
    }
}
