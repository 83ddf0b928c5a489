//! Members without space: sparse files on a full file system, thin devices of an empty pool.
//!
//! What must stay true:
//! - If more members of a group have no space for a write than the group can do without, the write
//!   is repeated with the same bytes until there is space. It keeps its locks meanwhile. No member
//!   is put out for it, and new writes of clients wait before they take anything.
//! - A member that alone has no space goes out like a failed one, but not at once: the others may
//!   be about to report the same.
//! - Such a write may leave blocks half old and half new. From when its worker knows until that is
//!   put right, reads go to the stripe's owner, who has its rows locked. A read that is answered
//!   before has crossed a write under way: it may show pieces of it.
//! - If the operator does not want to wait any more, the waiting writes end with errors. Still no
//!   member is put out for them.
//!
//! Not here: the writes (`datapath/store.rs`, `log/log_ring.rs`, `coordinator/writes.rs`).

pub(crate) mod patience;

use ashlar_device::DeviceFacts;
use ashlar_units::MemberIdx;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// An array whose writes wait for room.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pause {
    /// Members that have none, or draw from a store that has none.
    pub slots: Vec<MemberIdx>,
    /// Commands to members that wait.
    pub waiting: usize,
}

/// The members without space, and the writes that wait for it.
pub(crate) struct Room {
    slots: Box<[SlotRoom]>,
    /// Commands that wait because the array is paused.
    waiting: AtomicUsize,
    /// Writes to members' data that met no room and are not put right yet.
    torn: AtomicUsize,
    stage: AtomicU8,
}

#[derive(Default)]
struct SlotRoom {
    /// Its device had no room for a write that is being tried again.
    is_full: AtomicBool,
    /// The store that its device draws from, as the device's facts have it; 0: it is not known.
    store: AtomicU64,
}

/// What is done when there is no room.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    /// The array starts: it does not wait for room, the start is refused.
    Starting,
    /// Writes that need space wait for it.
    Running,
    /// Nobody waits any more.
    GivenUp,
}

impl Room {
    /// Of an array that starts.
    pub(crate) fn new(slots: usize) -> Room {
        Room {
            slots: (0..slots).map(|_| SlotRoom::default()).collect(),
            waiting: AtomicUsize::new(0),
            torn: AtomicUsize::new(0),
            stage: AtomicU8::new(Stage::Starting as u8),
        }
    }

    /// The start is recorded.
    pub(crate) fn begin(&self) {
        let starting = Stage::Starting as u8;
        let running = Stage::Running as u8;
        // One that was given up stays so.
        let _either =
            self.stage.compare_exchange(starting, running, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Nobody is to wait for room any more.
    pub(crate) fn give_up(&self) {
        self.stage.store(Stage::GivenUp as u8, Ordering::Release);
    }

    /// Whether that was said. What fails from then on puts no member out.
    pub(crate) fn is_given_up(&self) -> bool {
        self.stage.load(Ordering::Acquire) == Stage::GivenUp as u8
    }

    fn is_starting(&self) -> bool {
        self.stage.load(Ordering::Acquire) == Stage::Starting as u8
    }

    /// Commands that wait for room; the array is paused while there are any.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Whether blocks on members may be half written. A reader must then hold the lock of their
    /// rows.
    pub(crate) fn has_torn(&self) -> bool {
        self.torn.load(Ordering::Acquire) != 0
    }

    /// Data on members may be half written until this is dropped.
    pub(crate) fn tear(&self) -> Torn<'_> {
        self.torn.fetch_add(1, Ordering::AcqRel);
        Torn { room: self }
    }

    /// A device has the slot from now on.
    pub(crate) fn joins(&self, member: MemberIdx, facts: &DeviceFacts) {
        let slot = &self.slots[member.at()];
        slot.store.store(facts.store.unwrap_or(0), Ordering::Release);
        slot.is_full.store(false, Ordering::Release);
    }

    /// A write met no room.
    pub(crate) fn note_full(&self, member: MemberIdx) {
        self.slots[member.at()].is_full.store(true, Ordering::Release);
    }

    /// Members that have no room: those that said so, and those that draw from the same store.
    pub(crate) fn full(&self) -> Vec<MemberIdx> {
        let all = (0..self.slots.len()).map(MemberIdx::from_at);
        all.filter(|member| self.is_full(*member)).collect()
    }

    fn is_full(&self, member: MemberIdx) -> bool {
        let slot = &self.slots[member.at()];
        let store = slot.store.load(Ordering::Acquire);
        let said = |slot: &SlotRoom| slot.is_full.load(Ordering::Acquire);
        let shares = |other: &&SlotRoom| other.store.load(Ordering::Acquire) == store;
        said(slot) || store != 0 && self.slots.iter().filter(shares).any(said)
    }
}

/// Writes that met no room: their blocks are old, new, or half of each.
pub(crate) struct Torn<'a> {
    room: &'a Room,
}

impl Drop for Torn<'_> {
    fn drop(&mut self) {
        self.room.torn.fetch_sub(1, Ordering::AcqRel);
    }
}
