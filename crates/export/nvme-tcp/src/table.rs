//! The namespaces of the subsystem, and the state that all workers share of each.
//!
//! What must stay true: the table changes as a whole and keeps the state of a namespace that stays.
//! Users of a namespace are counted, so that a stopped array knows when the last one has let go.

use crate::reservations::Fence;
use ashlar_nvme_protocol::identify::NamespaceFacts;
use ashlar_volume::VolumeFacts;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A volume as a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// NSID: from 1 on. The same volume has the same one over restarts, or hosts take it for
    /// another.
    pub id: u32,
    /// What the volume is.
    pub facts: VolumeFacts,
}

impl Namespace {
    /// As Identify tells it. NGUID and UUID are both the volume's UUID.
    pub fn told(&self) -> NamespaceFacts {
        let facts = &self.facts;
        let block_bytes = facts.logical_block_bytes.max(1);
        let blocks_of = |bytes: u32| u16::try_from(bytes / block_bytes).unwrap_or(u16::MAX).max(1);
        NamespaceFacts {
            id: self.id,
            nguid: facts.uuid,
            uuid: facts.uuid,
            blocks: facts.size_bytes / u64::from(block_bytes),
            block_power: u8::try_from(block_bytes.ilog2()).unwrap_or(9),
            physical_blocks: blocks_of(facts.physical_block_bytes),
            optimal_blocks: blocks_of(facts.optimal_bytes),
            read_only: facts.read_only,
        }
    }
}

/// One row of the table.
#[derive(Clone)]
pub(crate) struct NamespaceEntry {
    pub namespace: Namespace,
    pub told: NamespaceFacts,
    pub state: Arc<State>,
}

/// What outlives a change of the table.
pub(crate) struct State {
    /// NGUID.
    pub nguid: [u8; 16],
    pub fence: Fence,
    users: AtomicUsize,
}

impl State {
    pub fn new(nguid: [u8; 16], fence: Fence) -> Arc<State> {
        Arc::new(State { nguid, fence, users: AtomicUsize::new(0) })
    }

    /// Queues that have the volume open.
    pub fn users(&self) -> usize {
        self.users.load(Ordering::Acquire)
    }

    pub fn begin_use(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    pub fn end_use(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// All rows, by rising identifiers.
#[derive(Clone, Default)]
pub(crate) struct Table {
    pub entries: Arc<[NamespaceEntry]>,
    /// As Identify tells them, in the same order.
    pub told: Arc<[NamespaceFacts]>,
}

impl Table {
    pub fn new(mut entries: Vec<NamespaceEntry>) -> Table {
        entries.sort_by_key(|entry| entry.namespace.id);
        let told = entries.iter().map(|entry| entry.told.clone()).collect();
        Table { entries: entries.into(), told }
    }

    pub fn entry(&self, id: u32) -> Option<&NamespaceEntry> {
        let at = self.entries.binary_search_by_key(&id, |entry| entry.namespace.id).ok()?;
        self.entries.get(at)
    }

    pub fn named(&self, name: &str) -> Option<&NamespaceEntry> {
        self.entries.iter().find(|entry| entry.namespace.facts.name == name)
    }

    /// Identifiers that are in one table and not in the other, or told differently.
    pub fn differences(&self, other: &Table) -> Vec<u32> {
        let told = |table: &Table, id| table.entry(id).map(|entry| entry.told.clone());
        let ids = self.entries.iter().chain(other.entries.iter()).map(|it| it.namespace.id);
        let mut ids: Vec<u32> = ids.filter(|id| told(self, *id) != told(other, *id)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}
