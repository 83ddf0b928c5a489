//! Memory beside the disks that outlives a killed program: files in the memory of the machine.
//!
//! What must stay true: a kill changes nothing in it. A power cut takes all of it away, and from
//! then on it is the memory of another boot. Its bytes are part of no trace: what a program makes
//! of them shows on the disks.

use std::collections::BTreeMap;
use std::sync::Arc;

use ashlar_units::{to_u64, to_usize};

use crate::world::World;

/// What lies in memory, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Memory {
    files: BTreeMap<String, Vec<u8>>,
    boot: u64,
}

impl Memory {
    pub(crate) fn lose_power(&mut self) {
        self.files.clear();
        self.boot += 1;
    }
}

/// The memory of a world. Clones are the same memory.
#[derive(Clone)]
pub struct SimMemory(Arc<World>);

/// All of it at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryImage(Memory);

impl SimMemory {
    pub(crate) fn of(world: &Arc<World>) -> SimMemory {
        SimMemory(Arc::clone(world))
    }

    fn with<T>(&self, look: impl FnOnce(&mut Memory) -> T) -> T {
        look(&mut self.0.lock().memory)
    }

    /// Counts boots, from 1 on.
    pub fn boot(&self) -> u64 {
        self.with(|memory| memory.boot + 1)
    }

    /// A new file of zeros. One of that name is lost.
    pub fn make(&self, name: &str, bytes: u64) {
        self.with(|memory| memory.files.insert(name.to_owned(), vec![0; to_usize(bytes)]));
    }

    /// How many bytes the file has; `None` if there is none of that name.
    pub fn bytes(&self, name: &str) -> Option<u64> {
        self.with(|memory| memory.files.get(name).map(|file| to_u64(file.len())))
    }

    /// Fill `target` with what lies at `offset`. False if the file has no such bytes.
    pub fn read(&self, name: &str, offset: u64, target: &mut [u8]) -> bool {
        self.with(|memory| {
            let range = to_usize(offset)..to_usize(offset) + target.len();
            let bytes = memory.files.get(name).and_then(|file| file.get(range));
            bytes.map(|bytes| target.copy_from_slice(bytes)).is_some()
        })
    }

    /// Put bytes at `offset`. False if the file has no such bytes.
    pub fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> bool {
        self.with(|memory| {
            let range = to_usize(offset)..to_usize(offset) + bytes.len();
            let target = memory.files.get_mut(name).and_then(|file| file.get_mut(range));
            target.map(|target| target.copy_from_slice(bytes)).is_some()
        })
    }

    /// The names of all files.
    pub fn names(&self) -> Vec<String> {
        self.with(|memory| memory.files.keys().cloned().collect())
    }

    /// Take the file of that name away.
    pub fn forget(&self, name: &str) {
        self.with(|memory| memory.files.remove(name));
    }

    /// All of it as it is now.
    pub fn keep(&self) -> MemoryImage {
        MemoryImage(self.with(|memory| memory.clone()))
    }

    /// As it was then, also if power was lost since.
    pub fn put_back(&self, kept: &MemoryImage) {
        self.with(|memory| memory.clone_from(&kept.0));
    }
}
