//! Targets on other hosts, or of jobs for another machine: nothing about them can be read here, and
//! what this machine has of the same name is another thing.
//!
//! What must stay true: no fact of this machine is given for one of theirs.

use super::machine::{HostFacts, Machine, TargetFacts};

/// Machines that are not this one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Away;

fn untold<T>() -> Result<T, String> {
    Err("it is on another host".to_owned())
}

impl Machine for Away {
    fn target(&self, _path: &str) -> TargetFacts {
        TargetFacts {
            kind: untold(),
            size_bytes: untold(),
            logical_block_bytes: untold(),
            start_bytes: untold(),
            optimal_bytes: untold(),
            rotational: untold(),
            serial: untold(),
            occupied: untold(),
            unwritten_bytes: untold(),
            discarded_sectors: untold(),
            reads_zeros: untold(),
            compresses: untold(),
            queue_requests: untold(),
            volatile_cache: untold(),
            polls: untold(),
            node: untold(),
        }
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
