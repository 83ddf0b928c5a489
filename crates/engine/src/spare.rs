//! Spare devices in named pools, shared between arrays.
//!
//! What must stay true: a spare is in at most one pool and is handed out at most once. The smallest
//! one that fits is handed out, so that large ones stay for large members.
//!
//! Not here: joining a spare to a slot (`coordinator/join.rs`). The superblock of a spare is
//! written by the code that adds it.

use ashlar_device::{Bay, DeviceFacts, Opened};
use ashlar_ondisk::SpareSuperblock;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device that waits for a slot.
#[derive(Clone)]
pub(crate) struct Spare {
    pub(crate) opened: Arc<dyn Opened>,
    /// As on the device.
    pub(crate) record: SpareSuperblock,
}

impl fmt::Debug for Spare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spare({}, {} bytes)", self.opened.facts().path, self.record.member_bytes)
    }
}

/// A spare as operators see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpareStatus {
    /// The pool it waits in.
    pub pool: String,
    /// Its path.
    pub path: String,
    /// Its serial, if it has one.
    pub serial: Option<String>,
    /// Where it is plugged in.
    pub bay: Bay,
    /// Its usable size, bytes.
    pub bytes: u64,
    /// Bytes that it was stated to write whole or not at all; 0: nothing was.
    pub stated_atomic_bytes: u32,
}

/// Pools of spares by name.
#[derive(Debug, Default)]
pub(crate) struct SparePools {
    pools: Mutex<BTreeMap<String, Vec<Spare>>>,
}

impl SparePools {
    /// Put a spare into the pool its record names.
    pub(crate) fn add(&self, spare: Spare) {
        let pool = spare.record.pool_name.as_str().to_owned();
        self.pools().entry(pool).or_default().push(spare);
    }

    /// The smallest spare of the pool with at least `bytes_min` usable bytes; it is the caller's
    /// now.
    pub(crate) fn take(&self, pool: &str, bytes_min: u64) -> Option<Spare> {
        let mut pools = self.pools();
        let spares = pools.get_mut(pool)?;
        let fitting = spares.iter().enumerate().filter(|(_, s)| s.record.member_bytes >= bytes_min);
        let (at, _) = fitting.min_by_key(|(_, spare)| spare.record.member_bytes)?;
        Some(spares.remove(at))
    }

    /// Take the spare at this path out of whatever pool it is in.
    pub(crate) fn remove(&self, path: &str) -> Option<Spare> {
        let mut pools = self.pools();
        pools.values_mut().find_map(|spares| {
            let at = spares.iter().position(|spare| spare.opened.facts().path == path)?;
            Some(spares.remove(at))
        })
    }

    /// What the spare at this path says of itself, if there is one.
    pub(crate) fn facts(&self, path: &str) -> Option<DeviceFacts> {
        let pools = self.pools();
        let facts = pools.values().flatten().map(|spare| spare.opened.facts());
        facts.into_iter().find(|facts| facts.path == path).cloned()
    }

    /// All spares, by pool.
    pub(crate) fn list(&self) -> Vec<SpareStatus> {
        let status = |(pool, spare): (&String, &Spare)| SpareStatus {
            pool: pool.clone(),
            path: spare.opened.facts().path.clone(),
            serial: spare.opened.facts().serial.clone(),
            bay: spare.opened.facts().bay.clone(),
            bytes: spare.record.member_bytes,
            stated_atomic_bytes: spare.record.stated_atomic_bytes,
        };
        let pools = self.pools();
        let all = pools.iter().flat_map(|(pool, spares)| spares.iter().map(move |s| (pool, s)));
        all.map(status).collect()
    }

    fn pools(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Spare>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Spare, SparePools};
    use ashlar_device::MemDevice;
    use ashlar_ondisk::{ArrayName, Features, SpareSuperblock, Text};
    use std::sync::Arc;

    fn spare(pool: &str, name: &str, mib: u64) -> Spare {
        Spare {
            opened: Arc::new(MemDevice::new(name, mib << 20)),
            record: SpareSuperblock {
                features: Features::NONE,
                generation: 1,
                member_uuid: uuid::Uuid::from_u128(u128::from(mib) + 1),
                member_bytes: mib << 20,
                created_at_s: 0,
                pool_name: ArrayName::new(pool).unwrap(),
                serial: Text::EMPTY,
                stated_atomic_bytes: 0,
            },
        }
    }

    #[test]
    fn the_smallest_spare_that_fits_is_handed_out_once() {
        let pools = SparePools::default();
        for (name, mib) in [("a", 64), ("b", 16), ("c", 32)] {
            pools.add(spare("fast", name, mib));
        }
        let path = |spare: Option<Spare>| spare.map(|spare| spare.opened.facts().path.clone());
        assert_eq!(path(pools.take("fast", 17 << 20)).as_deref(), Some("c"));
        assert_eq!(path(pools.take("fast", 17 << 20)).as_deref(), Some("a"));
        assert_eq!(path(pools.take("fast", 17 << 20)), None);
        assert_eq!(path(pools.take("fast", 16 << 20)).as_deref(), Some("b"));
        assert!(pools.list().is_empty());
    }

    #[test]
    fn pools_do_not_lend_to_each_other_and_a_removed_spare_is_gone() {
        let pools = SparePools::default();
        pools.add(spare("fast", "a", 16));
        pools.add(spare("slow", "b", 16));
        assert!(pools.take("none", 1).is_none());
        assert_eq!(pools.list().len(), 2);
        assert!(pools.remove("b").is_some());
        assert!(pools.remove("b").is_none());
        assert!(pools.take("slow", 1).is_none());
        assert_eq!(pools.list()[0].pool, "fast");
    }
}
