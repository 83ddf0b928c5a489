//! Targets on other hosts, or of jobs for another machine: nothing about them can be read here, and
//! what this machine has of the same name is another thing.
//!
//! What must stay true: no fact of this machine is given for one of theirs.

use super::machine::{HostFacts, Machine, TargetFacts};

#[derive(Clone, Copy, Debug, Default)]
pub struct Away;

const WHY: &str = "it is on another host";

fn untold<T>() -> Result<T, String> {
    Err(WHY.to_owned())
}

impl Machine for Away {
    fn target(&self, _path: &str) -> TargetFacts {
        TargetFacts::untold(untold(), WHY)
    }

    fn host(&self) -> HostFacts {
        HostFacts {
            memory_bytes: untold(),
            aio_max: untold(),
            fio: untold(),
            nodes: untold(),
            background: untold(),
        }
    }
}
