//! What a worker gives to an export: its executor, its ring, and the volumes of its arrays.

use crate::entrance::Entrance;
use crate::volume::ArrayVolume;
use crate::worker::Worker;
use ashlar_ring::{Handle, Ring};
use std::rc::Rc;

/// What an export gets to start its tasks on a worker.
pub struct WorkerContext {
    pub(crate) worker: Rc<Worker>,
}

impl WorkerContext {
    /// The worker's number.
    pub fn index(&self) -> usize {
        self.worker.index
    }

    /// The worker's executor.
    pub fn handle(&self) -> Handle {
        self.worker.handle.clone()
    }

    /// The worker's ring; `None` in a simulation.
    pub fn ring(&self) -> Option<Ring> {
        self.worker.handle.ring()
    }

    /// The buffers for payloads of this worker: so many of each size in bytes, sizes rising.
    pub fn payload_buffers(&self) -> Vec<(usize, usize)> {
        let usage = self.worker.payload.usage();
        usage.classes.iter().map(|class| (class.buffer_bytes, class.count)).collect()
    }

    /// The volume of a running array, on this worker.
    pub fn volume(&self, name: &str) -> Option<ArrayVolume> {
        let mut entrances = self.worker.entrances().into_iter();
        let is_it = |it: &Rc<Entrance>| it.name() == name && it.is_to_be_found();
        entrances.find(is_it).map(ArrayVolume::new)
    }

    /// Names of the arrays that run here.
    pub fn names(&self) -> Vec<String> {
        let entrances = self.worker.entrances().into_iter();
        let found = entrances.filter(|entrance| entrance.is_to_be_found());
        found.map(|entrance| entrance.name().to_owned()).collect()
    }

    /// Another handle to the same context.
    #[must_use]
    pub fn again(&self) -> WorkerContext {
        WorkerContext { worker: Rc::clone(&self.worker) }
    }
}
