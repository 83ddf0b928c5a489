//! One ring in the guest's memory: requests that are available, answers that were given.
//!
//! What must stay true: every number of the ring is loaded once and judged as it was loaded; an
//! answer is stored before the number that says that it is there; whether the other side wants to
//! hear is looked at after that number was stored, and the other way round for requests: so no
//! signal is lost. Not here: when to look (`queue`).

use crate::chain::{DESCRIPTOR_BYTES, Fault, RING_ENTRIES_MAX, Table};
use crate::config::feature;
use crate::memory::{GuestMemory, Part};
use crate::wire::RingAddresses;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Where the entries of the two rings begin, and how long they are.
const ENTRIES_AT: usize = 4;
const AVAILABLE_BYTES: usize = 2;
const USED_BYTES: usize = 8;
/// Where the index of a ring is, behind its flags.
const INDEX_AT: usize = 2;

/// The driver does not want to hear of answers.
const NO_INTERRUPT: u16 = 1;

/// A ring.
pub struct Vring {
    memory: Arc<GuestMemory>,
    table: Table,
    available: Part,
    used: Part,
    entries: u16,
    has_event_index: bool,
}

/// What a ring is made of.
#[derive(Clone, Copy, Debug)]
pub struct RingShape {
    /// How many entries.
    pub entries: u16,
    /// Where they are.
    pub addresses: RingAddresses,
    /// What the driver uses.
    pub features: u64,
}

const GONE: Fault = Fault("a ring outside the guest's memory");

impl Vring {
    /// A ring, if it lies where the guest has memory.
    ///
    /// # Errors
    /// It does not, or its length or its places are none that the specification allows.
    pub fn new(memory: &Arc<GuestMemory>, shape: &RingShape) -> Result<Vring, Fault> {
        let RingShape { entries, addresses, features } = *shape;
        if !entries.is_power_of_two() || entries > RING_ENTRIES_MAX {
            return Err(Fault("a ring of a length that there is not"));
        }
        let RingAddresses { descriptors, available, used, .. } = addresses;
        let are_aligned =
            descriptors.is_multiple_of(16) && available.is_multiple_of(2) && used.is_multiple_of(4);
        if !are_aligned {
            return Err(Fault("a ring at an odd place"));
        }
        let has_event_index = features & feature::EVENT_INDEX != 0;
        let event_bytes = if has_event_index { 2 } else { 0 };
        let count = usize::from(entries);
        let part = |at, entry_bytes, more| memory.part(at, count * entry_bytes + more).ok_or(GONE);
        let descriptors = part(descriptors, DESCRIPTOR_BYTES, 0)?;
        let may_be_indirect = features & feature::INDIRECT != 0;
        Ok(Vring {
            memory: Arc::clone(memory),
            table: Table { at: descriptors.guest, entries, may_be_indirect },
            available: part(available, AVAILABLE_BYTES, ENTRIES_AT + event_bytes)?,
            used: part(used, USED_BYTES, ENTRIES_AT + event_bytes)?,
            entries,
            has_event_index,
        })
    }

    /// The guest's memory.
    pub fn memory(&self) -> &GuestMemory {
        &self.memory
    }

    /// Its descriptors.
    pub fn table(&self) -> Table {
        self.table
    }

    /// How many entries it has.
    pub fn entries(&self) -> u16 {
        self.entries
    }

    /// How many requests there ever were, in the 16 bits that are kept. Behind this, their entries
    /// can be loaded.
    ///
    /// # Errors
    /// The ring is not where it was.
    pub fn available_index(&self) -> Result<u16, Fault> {
        self.available.load_index(INDEX_AT).ok_or(GONE)
    }

    /// How many answers there ever were, as above.
    ///
    /// # Errors
    /// As above.
    pub fn used_index(&self) -> Result<u16, Fault> {
        self.used.load_index(INDEX_AT).ok_or(GONE)
    }

    /// The descriptor with which request `index` begins.
    ///
    /// # Errors
    /// There is no such descriptor.
    pub fn head(&self, index: u16) -> Result<u16, Fault> {
        let head = self.available.load_index(self.entry(index, AVAILABLE_BYTES)).ok_or(GONE)?;
        let is_there = head < self.entries;
        is_there.then_some(head).ok_or(Fault("a request begins beyond the end of the ring"))
    }

    /// Answer `index`: the request of `head`, of which `bytes` were written.
    ///
    /// # Errors
    /// The ring is not where it was.
    pub fn put_answer(&self, index: u16, head: u16, bytes: u32) -> Result<(), Fault> {
        let mut entry = [0; USED_BYTES];
        entry[..4].copy_from_slice(&u32::from(head).to_le_bytes());
        entry[4..].copy_from_slice(&bytes.to_le_bytes());
        self.used.store(self.entry(index, USED_BYTES), &entry).ok_or(GONE)
    }

    /// There are answers up to `index` now.
    ///
    /// # Errors
    /// The ring is not where it was.
    pub fn show_answers(&self, index: u16) -> Result<(), Fault> {
        self.used.store_index(INDEX_AT, index).ok_or(GONE)
    }

    /// Whether the driver wants to hear of answers from `before` up to `now`, which were shown.
    ///
    /// # Errors
    /// The ring is not where it was.
    pub fn wants_to_hear(&self, before: u16, now: u16) -> Result<bool, Fault> {
        fence(Ordering::SeqCst);
        if !self.has_event_index {
            return Ok(self.available.load_index(0).ok_or(GONE)? & NO_INTERRUPT == 0);
        }
        let event = self.available.load_index(self.behind(AVAILABLE_BYTES)).ok_or(GONE)?;
        Ok(is_passed(event, before, now))
    }

    /// Ask to hear of request `index`. Whoever calls looks once more whether it is there.
    ///
    /// # Errors
    /// The ring is not where it was.
    pub fn ask_to_hear(&self, index: u16) -> Result<(), Fault> {
        if self.has_event_index {
            self.used.store_index(self.behind(USED_BYTES), index).ok_or(GONE)?;
        }
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn entry(&self, index: u16, entry_bytes: usize) -> usize {
        ENTRIES_AT + usize::from(index % self.entries) * entry_bytes
    }

    fn behind(&self, entry_bytes: usize) -> usize {
        ENTRIES_AT + usize::from(self.entries) * entry_bytes
    }
}

/// Whether going from `before` to `now` passes `event`, in 16 bits.
fn is_passed(event: u16, before: u16, now: u16) -> bool {
    now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
}

#[cfg(test)]
mod tests {
    use super::is_passed;

    #[test]
    fn an_event_is_passed_once_also_where_the_numbers_wrap() {
        for before in [0_u16, 7, u16::MAX - 1, u16::MAX] {
            for steps in 0..5 {
                let now = before.wrapping_add(steps);
                for event in 0..8 {
                    let event_at = before.wrapping_add(event);
                    assert_eq!(is_passed(event_at, before, now), event < steps);
                }
            }
        }
    }
}
