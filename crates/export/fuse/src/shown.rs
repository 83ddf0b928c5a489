//! The volume as the one file of a mount: its facts as of the last look, and its attributes.
//!
//! What must stay true: the file is the root of the mount, so its node is the same on every worker
//! and in every process that serves it. Not here: the bytes of the file (`io`).

use crate::wire::{Attr, ROOT_NODE};
use ashlar_volume::{Volume, VolumeFacts};
use rustix::io::Errno;
use std::cell::RefCell;
use std::rc::Rc;

const MODE_FILE: u32 = 0o100_000;

/// What one worker knows of the file.
pub struct Shown<V> {
    pub volume: V,
    facts: RefCell<Rc<VolumeFacts>>,
}

impl<V: Volume> Shown<V> {
    pub fn new(volume: V) -> Shown<V> {
        let facts = RefCell::new(Rc::new(volume.facts()));
        Shown { volume, facts }
    }

    /// As of the last look: for reads and writes.
    pub fn facts(&self) -> Rc<VolumeFacts> {
        self.facts.borrow().clone()
    }

    /// Afresh: the volume may have grown.
    pub fn refreshed(&self) -> Rc<VolumeFacts> {
        let facts = Rc::new(self.volume.facts());
        self.facts.replace(facts.clone());
        facts
    }

    /// # Errors
    /// `ENOENT`: there is no other node.
    pub fn check(&self, node: u64) -> Result<(), Errno> {
        if node == ROOT_NODE { Ok(()) } else { Err(Errno::NOENT) }
    }
}

/// Attributes of a volume's file.
pub fn file_attr(facts: &VolumeFacts) -> Attr {
    Attr {
        ino: ROOT_NODE,
        size_bytes: facts.size_bytes,
        sectors: facts.size_bytes / 512,
        mode: MODE_FILE | if facts.read_only { 0o400 } else { 0o600 },
        link_count: 1,
        block_bytes: facts.physical_block_bytes,
        ..Attr::default()
    }
}
