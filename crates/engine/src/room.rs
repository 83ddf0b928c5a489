//! Members without space: sparse files on a full file system, thin devices of an empty pool.
//!
//! What must stay true:
//! - If more members of a group have no space for a write than the group can do without, the write
//!   is repeated with the same bytes until there is space. It keeps its locks meanwhile. No member
//!   is put out for it, and new writes of clients wait before they take anything.
//! - A member that alone has no space goes out like a failed one, but not at once: the others may
//!   be about to report the same.
//! - Such a write may leave blocks half old and half new. Until that is put right, reads go to the
//!   stripe's owner, who has its rows locked.
//! - If the operator does not want to wait any more, the waiting writes end with errors. Still no
//!   member is put out for them.
//!
//! Not here: the writes (`datapath/store.rs`, `log/log_ring.rs`, `coordinator/writes.rs`).

use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::event::names;
use crate::member::SlotState;
use ashlar_device::{DeviceFacts, Fault, FaultKind};
use ashlar_ring::{Handle, within};
use ashlar_units::{MemberIdx, Nanos};
use ashlar_volume::VolumeErrorKind;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Time between two attempts while the array is paused.
pub(crate) const RETRY_EVERY: Duration = Duration::from_millis(500);
/// How long a member that alone has no room is waited for, and how often it is asked meanwhile. An
/// array that stops waits no longer for room either.
const PATIENCE_MAX: Duration = Duration::from_secs(2);
const ALONE_RETRY_EVERY: Duration = Duration::from_millis(100);

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

    /// Whether some stripe of the member lacks more than it can do without, full members included.
    fn is_short(&self, array: &Array, member: MemberIdx) -> bool {
        let lacks = |other| array.slot(other).state() != SlotState::InSync || self.is_full(other);
        array.layouts.is_beyond(member, lacks)
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

/// One command that met no room, from then until it ends.
pub(crate) struct Patience<'a> {
    array: &'a Array,
    handle: &'a Handle,
    member: MemberIdx,
    /// Since when its member alone has no room, or the array stops without room.
    since: Option<Nanos>,
    is_waiting: bool,
}

impl<'a> Patience<'a> {
    /// Of a command to a device of this slot.
    pub(crate) fn new(array: &'a Array, handle: &'a Handle, member: MemberIdx) -> Patience<'a> {
        Patience { array, handle, member, since: None, is_waiting: false }
    }

    /// The command ended with `fault`. Whether it is to be tried again, once it is time for that.
    /// `is_gone`: its device has left the slot.
    pub(crate) async fn may_try_again(&mut self, fault: Fault, is_gone: impl Fn() -> bool) -> bool {
        let room = &self.array.room;
        let is_over = || room.is_given_up() || is_gone();
        if fault.kind != FaultKind::NoSpace || is_over() {
            return false;
        }
        room.note_full(self.member);
        if room.is_short(self.array, self.member) && !sings(Canary::FullMembersPutOut) {
            if room.is_starting() || self.array.is_stopping() && self.is_late() {
                room.give_up();
                return false;
            }
            self.wait();
            self.handle.sleep(RETRY_EVERY).await;
        } else {
            if self.is_late() {
                return false;
            }
            self.handle.sleep(ALONE_RETRY_EVERY).await;
        }
        !is_over()
    }

    fn is_late(&mut self) -> bool {
        let now = self.handle.now();
        now.since(*self.since.get_or_insert(now)) >= PATIENCE_MAX
    }

    fn wait(&mut self) {
        if !self.array.is_stopping() {
            self.since = None;
        }
        let is_first = !std::mem::replace(&mut self.is_waiting, true)
            && self.array.room.waiting.fetch_add(1, Ordering::AcqRel) == 0;
        if is_first {
            let full = self.array.room.full();
            let slots: Vec<String> = full.iter().map(ToString::to_string).collect();
            self.array.record(names::ARRAY_PAUSED, vec![("slots", slots.join(","))]);
        }
    }
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        let room = &self.array.room;
        if !room.is_given_up() {
            // Other writes to the same device report it again with their next attempt.
            room.slots[self.member.at()].is_full.store(false, Ordering::Release);
        }
        let is_last = self.is_waiting && room.waiting.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last && !room.is_given_up() {
            self.array.record(names::ARRAY_RESUMED, Vec::new());
        }
    }
}

/// A write of a client waits here while the array is paused: it has taken nothing yet.
///
/// # Errors
/// `NoSpace` if nobody is to wait any more.
pub(crate) async fn admitted(array: &Array, handle: &Handle) -> Result<(), VolumeErrorKind> {
    while array.room.waiting() != 0 {
        if array.room.is_given_up() {
            return Err(VolumeErrorKind::NoSpace);
        }
        handle.sleep(ALONE_RETRY_EVERY).await;
    }
    Ok(())
}

/// A write of a client, answered with an error if it waits for space longer than configured. Its
/// parts under way go on, and end when there is space. Until then its rows are locked.
///
/// # Errors
/// Those of `write`; `NoSpace` if that takes too long.
pub(crate) async fn answered_in_time<T>(
    array: &Array,
    handle: &Handle,
    write: impl Future<Output = Result<T, VolumeErrorKind>>,
) -> Result<T, VolumeErrorKind> {
    let Some(limit) = array.tuning.no_room_wait_max else { return write.await };
    let mut write = pin!(write);
    loop {
        match within(handle, limit, write.as_mut()).await {
            Some(done) => return done,
            None if array.room.waiting() != 0 => return Err(VolumeErrorKind::NoSpace),
            None => {}
        }
    }
}
