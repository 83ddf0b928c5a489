//! Kinds of stages.
//!
//! What must stay true: the name in a plan is the name in records.

use serde::Deserialize;

/// Kinds of stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Write every drive and array whole, twice.
    Precondition,
    /// Drives one by one.
    #[serde(rename = "raw.each")]
    RawEach,
    /// All drives at once, one job each.
    #[serde(rename = "raw.all")]
    RawAll,
    /// 1, 2, 4 and so on drives at once, and all of them.
    #[serde(rename = "raw.scale")]
    RawScale,
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
    /// Arrays that the lab makes, in turns: each made anew, filled, measured whole and degraded.
    Compare,
    /// With one, two, ... members out.
    Degraded,
    /// While a member is rebuilt.
    Rebuild,
    /// Zipf over a range of sizes, to find caches.
    WorkingSet,
    /// The same load in blocks of several sizes.
    BlockSizes,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Precondition => "precondition",
            Kind::RawEach => "raw.each",
            Kind::RawAll => "raw.all",
            Kind::RawScale => "raw.scale",
            Kind::Zone => "zone",
            Kind::Cliff => "cliff",
            Kind::ArraySweep => "array.sweep",
            Kind::ArraysAll => "arrays.all",
            Kind::FileSystem => "file-system",
            Kind::Compare => "compare",
            Kind::Degraded => "degraded",
            Kind::Rebuild => "rebuild",
            Kind::WorkingSet => "working-set",
            Kind::BlockSizes => "block-sizes",
        }
    }
}
