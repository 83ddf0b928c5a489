//! Waits of writes while members have no room (`room.rs` has the rules).

use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::event::names;
use crate::member::SlotState;
use crate::room::Pause;
use ashlar_device::{Fault, FaultKind};
use ashlar_ring::{Handle, within};
use ashlar_units::{MemberIdx, Nanos};
use ashlar_volume::VolumeErrorKind;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time between two attempts while the array is paused.
pub(crate) const RETRY_EVERY: Duration = Duration::from_millis(500);

/// How long a member that alone has no room is waited for, and how often it is asked meanwhile. An
/// array that stops waits no longer for room either.
const PATIENCE_MAX: Duration = Duration::from_secs(2);

const ALONE_RETRY_EVERY: Duration = Duration::from_millis(100);

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
        if is_short(self.array, self.member) && !sings(Canary::FullMembersPutOut) {
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

impl Array {
    /// Members without room for writes, if writes wait for that, and how many of them do.
    pub fn pause(&self) -> Option<Pause> {
        let waiting = self.room.waiting();
        (waiting != 0).then(|| Pause { slots: self.room.full(), waiting })
    }

    /// Whether blocks on members may be half written, for a write met no room: reads wait then for
    /// the stripe's owner.
    pub fn has_half_written(&self) -> bool {
        self.room.has_torn()
    }
}

/// Whether some stripe of the member lacks more than it can do without, full members included, or
/// the member could not be put out: a spare table may be full although every stripe lacks less
/// (seed 914409492 of declustered universes).
fn is_short(array: &Array, member: MemberIdx) -> bool {
    let lacks = |other| array.slot(other).state() != SlotState::InSync || array.room.is_full(other);
    array.is_beyond(member, lacks) || array.is_needed(member)
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
    let Some(limit) = array.tuning.no_room_wait_max() else { return write.await };
    let mut write = pin!(write);
    loop {
        match within(handle, limit, write.as_mut()).await {
            Some(done) => return done,
            None if array.room.waiting() != 0 => return Err(VolumeErrorKind::NoSpace),
            None => {}
        }
    }
}
