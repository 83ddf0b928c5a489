//! Stages that cannot be done here, and why.
//!
//! What must stay true: a stage that is left out says so with its reason; it is never passed over
//! in silence.

use super::super::file::{Array, Kind};
use super::Maker;

impl Maker<'_> {
    /// Why the stage cannot be done, if it cannot.
    pub(super) fn missing(&self) -> Option<String> {
        let arrays = &self.plan.arrays;
        let makes = arrays.iter().any(Array::is_made);
        let hooked = |commands: fn(&Array) -> &Vec<Vec<String>>| {
            arrays.iter().any(|array| !commands(array).is_empty())
        };
        let missing = match self.stage.kind {
            Kind::Precondition if self.plan.drives.is_empty() && arrays.is_empty() => {
                "no drives and no arrays are named"
            }
            Kind::RawEach | Kind::RawAll | Kind::RawScale | Kind::Zone | Kind::Cliff
                if self.plan.drives.is_empty() =>
            {
                "no drives are named"
            }
            Kind::ArraySweep | Kind::ArraysAll | Kind::WorkingSet if arrays.is_empty() => {
                "no arrays are named"
            }
            Kind::Compare if !makes => "no array is one that the lab makes",
            Kind::FileSystem if arrays.iter().all(|array| array.file_system.is_none()) => {
                "no array names a file_system"
            }
            Kind::Degraded if !hooked(|array| &array.take_out) && !makes => {
                "no array has take_out commands, and the lab makes none"
            }
            Kind::Rebuild if !hooked(|array| &array.rebuild) && !makes => {
                "no array has rebuild commands, and the lab makes none"
            }
            Kind::BlockSizes if self.plan.drives.is_empty() && arrays.is_empty() => {
                "no drives and no arrays are named"
            }
            Kind::ArraysAll if makes => "arrays that the lab makes are measured one at a time",
            Kind::Precondition | Kind::Zone | Kind::Cliff => return None,
            _ if self.stage.profiles.is_empty() => "it names no profiles",
            _ => return None,
        };
        Some(missing.to_owned())
    }
}
