//! Stages that cannot be done here, and why.
//!
//! What must stay true: a stage that is left out says so with its reason; it is never passed over
//! in silence.

use super::{Maker, raw};
use crate::adapter::{bdevperf, is_there};
use crate::plan::file::{Array, Kind};
use crate::record::Generator;
use std::path::PathBuf;

impl Maker<'_> {
    /// Why the stage cannot be done, if it cannot.
    pub(super) fn missing(&self) -> Option<String> {
        self.kind_missing().or_else(|| self.generator_missing().map(str::to_owned))
    }

    /// Why its load generator cannot do it.
    fn generator_missing(&self) -> Option<&'static str> {
        let inside = |array: &Array| array.is_inside(self.stage.generator);
        let mut arrays = self.plan.arrays.iter().filter(|_| self.stage.kind != Kind::RawEach);
        match self.stage.generator {
            Generator::Bdevperf if !is_there(bdevperf::PROGRAM) => {
                Some("bdevperf is not installed: it comes with SPDK's sources, in build/examples")
            }
            _ if arrays.any(|array| inside(array) && array.level != "raid5") => {
                Some("SPDK has no RAID but RAID 5")
            }
            _ => None,
        }
    }

    /// Why there is nothing to do for a stage of its kind.
    fn kind_missing(&self) -> Option<String> {
        let arrays = &self.plan.arrays;
        let makes = arrays.iter().any(Array::is_made);
        let hooked = |commands: fn(&Array) -> &Vec<Vec<String>>| {
            arrays.iter().any(|array| !commands(array).is_empty())
        };
        let missing = match self.stage.kind {
            Kind::Precondition if self.plan.drives.is_empty() && arrays.is_empty() => {
                "no drives and no arrays are named"
            }
            Kind::RawEach
            | Kind::RawAll
            | Kind::RawScale
            | Kind::Path
            | Kind::Zone
            | Kind::Cliff
            | Kind::Purge
            | Kind::WriteCache
            | Kind::Coalescing
                if self.plan.drives.is_empty() =>
            {
                "no drives are named"
            }
            Kind::ArraySweep | Kind::ArraysAll | Kind::WorkingSet if arrays.is_empty() => {
                "no arrays are named"
            }
            Kind::Ior if !is_there("ior") => "ior is not installed",
            Kind::Ior if self.stage.jobs.iter().any(|jobs| *jobs > 1) && !is_there("mpirun") => {
                "several tasks need mpirun, which is not installed"
            }
            Kind::FileSystem | Kind::Ior
                if arrays.iter().all(|array| array.file_system.is_none()) =>
            {
                "no array names a file_system"
            }
            Kind::Degraded if !hooked(|array| &array.take_out) && !makes => {
                "no array has take_out commands, and the lab makes none"
            }
            Kind::Rebuild if !hooked(|array| &array.rebuild) && !makes => {
                "no array has rebuild commands, and the lab makes none"
            }
            Kind::Numa if self.nodes.len() < 2 => {
                "this machine has one NUMA node: nothing lies between its sockets"
            }
            Kind::BlockSizes | Kind::Numa if self.plan.drives.is_empty() && arrays.is_empty() => {
                "no drives and no arrays are named"
            }
            Kind::ArraysAll if makes => "arrays that the lab makes are measured one at a time",
            Kind::Coalescing => {
                let has_none = |drive: &PathBuf| self.coalescing(&raw(drive)).is_empty();
                if !self.plan.drives.iter().all(has_none) {
                    return None;
                }
                "no drive has a queue that joins, or interrupts that can be coalesced"
            }
            Kind::Precondition
            | Kind::Ior
            | Kind::Path
            | Kind::Zone
            | Kind::Cliff
            | Kind::Purge
            | Kind::WriteCache => return None,
            _ if self.stage.profiles.is_empty() => "it names no profiles",
            _ => return None,
        };
        Some(missing.to_owned())
    }
}
