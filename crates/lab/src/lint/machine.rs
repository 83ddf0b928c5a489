//! What rules need to know about targets and host, and may not be able to know.
//!
//! What must stay true: a fact that could not be read is an `Err` with the reason; there are no
//! defaults, and no fact of this machine is given for one of theirs.

use std::collections::{BTreeMap, BTreeSet};

pub type Known<T> = Result<T, String>;

pub trait Machine {
    fn target(&self, path: &str) -> TargetFacts;
    fn host(&self) -> HostFacts;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Block,
    File,
    Missing,
    /// Something else: a character device, a directory.
    Other,
}

#[derive(Clone, PartialEq, Debug)]
pub struct TargetFacts {
    pub kind: Known<Kind>,
    pub size_bytes: Known<u64>,
    /// Smallest unit the device takes, bytes.
    pub logical_block_bytes: Known<u64>,
    /// Where the partition begins on its disk, bytes; 0 for a whole disk or file.
    pub start_bytes: Known<u64>,
    pub optimal_bytes: Known<u64>,
    pub rotational: Known<bool>,
    pub serial: Known<String>,
    /// What is in its way: mounted, held, a signature, a partition table.
    pub occupied: Known<Vec<String>>,
    /// Bytes that were never written, or were punched out since.
    pub unwritten_bytes: Known<u64>,
    /// Sectors that were discarded since the machine started.
    pub discarded_sectors: Known<u64>,
    /// Whether samples spread over it read as nothing but zeros.
    pub reads_zeros: Known<bool>,
    pub compresses: Known<bool>,
    pub queue_requests: Known<u64>,
    pub volatile_cache: Known<bool>,
    /// Whether completions can be polled for.
    pub polls: Known<bool>,
    /// NUMA node it is attached to.
    pub node: Known<u64>,
}

impl TargetFacts {
    /// Of which nothing but perhaps its kind can be told, and why.
    pub fn untold(kind: Known<Kind>, why: &str) -> TargetFacts {
        let why = || why.to_owned();
        TargetFacts {
            occupied: if kind == Ok(Kind::Missing) { Ok(Vec::new()) } else { Err(why()) },
            kind,
            size_bytes: Err(why()),
            logical_block_bytes: Err(why()),
            start_bytes: Err(why()),
            optimal_bytes: Err(why()),
            rotational: Err(why()),
            serial: Err(why()),
            unwritten_bytes: Err(why()),
            discarded_sectors: Err(why()),
            reads_zeros: Err(why()),
            compresses: Err(why()),
            queue_requests: Err(why()),
            volatile_cache: Err(why()),
            polls: Err(why()),
            node: Err(why()),
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct HostFacts {
    pub memory_bytes: Known<u64>,
    /// `fs.aio-max-nr`.
    pub aio_max: Known<u64>,
    /// Version of the fio that is installed: 3.33 is (3, 33).
    pub fio: Known<(u32, u32)>,
    /// NUMA node -> its CPUs.
    pub nodes: Known<BTreeMap<u64, BTreeSet<u64>>>,
    /// Background work going on: resync, scrub, lazy initialisation, trim.
    pub background: Known<Vec<String>>,
}

/// Targets on other hosts, or of jobs for another machine: nothing about them can be read here, and
/// what this machine has of the same name is another thing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Away;

impl Machine for Away {
    fn target(&self, _path: &str) -> TargetFacts {
        TargetFacts::untold(Err(AWAY.to_owned()), AWAY)
    }

    fn host(&self) -> HostFacts {
        let why = || AWAY.to_owned();
        HostFacts {
            memory_bytes: Err(why()),
            aio_max: Err(why()),
            fio: Err(why()),
            nodes: Err(why()),
            background: Err(why()),
        }
    }
}

const AWAY: &str = "it is on another host";
