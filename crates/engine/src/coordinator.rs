//! The coordinator: the one worker of an array that changes superblocks, write-intent bitmap and
//! written map on the members.
//!
//! What must stay true: one change of the superblocks at a time, each with a generation of its own.
//! A change takes effect in memory only after it is durable on every member that it does not put
//! out. Other workers come here by message.
//!
//! - `join`     a device takes a slot
//! - `proof`    flush marks: what is known to be on every member
//! - `record`   one superblock update on all members
//! - `look`     whether devices are still what was opened
//! - `map_writer`   bitmap and map pages, flush rounds, the sweep that cleans idle regions
//! - `rounds`   many callers, one round of work
//! - `writes`   superblocks and pages on their way to one device

pub(crate) mod join;
pub(crate) mod look;
pub(crate) mod map_writer;
pub(crate) mod proof;
pub(crate) mod record;
mod rounds;
pub(crate) mod writes;

use crate::canary::{Canary, sings};
use crate::error::Refusal;
use crate::event::names;
use crate::local_array::{LocalArray, SlotDevice, SlotDevices, Tags};
use crate::member::{SlotEvent, SlotState};
use crate::slot::MemberDevice;
use crate::watch;
use ashlar_ondisk::Superblock;
use ashlar_ring::local::{Permit, Semaphore};
use ashlar_units::MemberIdx;
use futures_channel::oneshot;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use uuid::Uuid;

/// What the coordinator keeps for an array.
pub(crate) struct Coordinator {
    superblock: RefCell<Superblock>,
    /// The generation that the members had when this start began.
    pub(crate) found_generation: u64,
    gate: Semaphore,
    intent_rounds: rounds::Rounds,
    flush_rounds: rounds::Rounds,
    /// Whose turn it is to write intent pages: two writes of one page under way could land in
    /// either order.
    intent_pages: Semaphore,
    /// A device has joined: the next round of intent pages is to store all that have bits.
    has_joining_device: Cell<bool>,
    page_sequence: Cell<u64>,
    marks: proof::Marks,
    pub(crate) jobs: crate::background::Jobs,
    pub(crate) looks: look::Looks,
    pub(crate) beats: crate::ownership::Beats,
    pub(crate) silences: crate::watch::Silences,
    pub(crate) slow: crate::watch::slow::SlowMembers,
    /// What this start found in the logs; `None` if it did not look.
    pub(crate) replayed: Cell<Option<crate::log::replay::ReplaySummary>>,
}

impl Coordinator {
    /// Start from the superblock as it is on the members; page sequence numbers go on above
    /// `page_sequence`, flush marks above those of `marks`.
    pub(crate) fn new(superblock: Superblock, page_sequence: u64, marks: proof::Marks) -> Self {
        Coordinator {
            found_generation: superblock.generation,
            superblock: RefCell::new(superblock),
            gate: Semaphore::new(1),
            intent_rounds: rounds::Rounds::default(),
            flush_rounds: rounds::Rounds::default(),
            intent_pages: Semaphore::new(1),
            has_joining_device: Cell::new(false),
            page_sequence: Cell::new(page_sequence),
            marks,
            jobs: crate::background::Jobs::default(),
            looks: look::Looks::default(),
            beats: crate::ownership::Beats::default(),
            silences: crate::watch::Silences::default(),
            slow: crate::watch::slow::SlowMembers::default(),
            replayed: Cell::new(None),
        }
    }

    /// Whether a device has joined since this was asked last.
    pub(crate) fn take_joining_device(&self) -> bool {
        self.has_joining_device.take()
    }

    /// The superblock as last recorded.
    pub(crate) fn superblock(&self) -> Superblock {
        self.superblock.borrow().clone()
    }

    /// The array, and the start that runs it.
    fn identity(&self) -> (Uuid, Uuid) {
        let superblock = self.superblock.borrow();
        (superblock.array_uuid, superblock.incarnation)
    }

    /// What the next update starts from: the start, before it is recorded.
    pub(crate) fn set_superblock(&self, superblock: Superblock) {
        *self.superblock.borrow_mut() = superblock;
    }

    /// Leave to change the superblocks, one at a time.
    pub(crate) async fn gate(&self) -> Permit {
        self.gate.acquire().await
    }

    fn next_page_sequence(&self) -> u64 {
        self.page_sequence.set(self.page_sequence.get() + 1);
        self.page_sequence.get()
    }
}

/// More members of a group are gone than its parity replaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("more members are missing than the parity can replace")]
pub(crate) struct ArrayLost;

/// Run `action` on the array's coordinator; `None` if the array is gone there.
pub(crate) async fn on_coordinator<T, A, F>(local: &Rc<LocalArray>, action: A) -> Option<T>
where
    T: Send + 'static,
    A: FnOnce(Rc<LocalArray>) -> F + Send + 'static,
    F: Future<Output = T> + 'static,
{
    let coordinator = local.array.coordinator;
    if coordinator == local.worker.index {
        return Some(action(Rc::clone(local)).await);
    }
    let (answer, answered) = oneshot::channel();
    let id = local.array.identity.id;
    local.worker.run_on(coordinator, move |worker| {
        let Some(local) = worker.local(id) else { return };
        worker.handle.spawn(async move {
            // The caller may have gone, and then the answer is dropped.
            let _unwanted = answer.send(action(local).await);
        });
    });
    answered.await.ok()
}

/// Put a member out of service: the survivors say so when this returns.
///
/// # Errors
/// [`ArrayLost`] if its group could not do without it: then nothing is recorded.
pub(crate) async fn take_out(
    local: &Rc<LocalArray>,
    member: MemberIdx,
    why: String,
) -> Result<(), ArrayLost> {
    let taken = on_coordinator(local, async move |local: Rc<LocalArray>| {
        let _gate = local.coordinator().gate.acquire().await;
        take_out_alone(&local, member, &why).await
    });
    taken.await.unwrap_or(Err(ArrayLost))
}

/// The reason that an operator needs not give.
const BY_HAND: &str = "put out by the operator";

/// The same because the operator says so. Nothing is wrong with the array if that cannot be: no
/// event is recorded.
///
/// # Errors
/// If the group cannot do without the member, or the others could not be told.
pub(crate) async fn take_out_by_hand(
    local: &Rc<LocalArray>,
    member: MemberIdx,
) -> Result<(), Refusal> {
    let (array, name) = (&local.array, local.array.name());
    let is_there = array.slot(member).state() != SlotState::Out;
    if is_there && array.is_needed(member) {
        return Err(Refusal::new(
            "member.needed",
            format!("slot {member} of array '{name}' cannot go: its group has no redundancy left"),
            "replace the missing members first; nothing was changed",
        ));
    }
    // Requests that are stuck on it are released before this task waits for the gate: the gate's
    // holder may be one of them.
    watch::put_out(local, member, BY_HAND);
    let _gate = local.coordinator().gate.acquire().await;
    let taken = take_out_alone(local, member, BY_HAND).await;
    taken.map_err(|_| {
        Refusal::new(
            "array.failed",
            format!("the other members of array '{name}' could not record that slot {member} goes"),
            "look at its members with `ashlar status`",
        )
    })
}

/// The same for the device that had the slot in that device epoch. If it has left the slot
/// meanwhile there is nothing to do: the others say so, and whatever was missed goes to its
/// successor by the job that fills that one, since the job waits for the row locks of every write
/// that was planned without it.
///
/// # Errors
/// As [`take_out`].
pub(crate) async fn take_out_holder(
    local: &Rc<LocalArray>,
    MemberDevice { member, device_epoch }: MemberDevice,
    why: String,
) -> Result<(), ArrayLost> {
    let taken = on_coordinator(local, async move |local: Rc<LocalArray>| {
        let _gate = local.coordinator().gate.acquire().await;
        if local.array.slot(member).device_epoch() != device_epoch {
            return Ok(());
        }
        take_out_alone(&local, member, &why).await
    });
    taken.await.unwrap_or(Err(ArrayLost))
}

/// The same in the background, for callers that need not wait.
pub(crate) fn take_out_soon(local: &Rc<LocalArray>, device: MemberDevice, why: String) {
    let local = Rc::clone(local);
    let handle = local.worker.handle.clone();
    handle.spawn(async move {
        // A member whose group cannot do without it stays: the event says so.
        let _stays = take_out_holder(&local, device, why).await;
    });
}

/// Wait until no member is out without the others saying so.
///
/// # Errors
/// [`ArrayLost`] if the array is gone.
pub(crate) async fn all_recorded(local: &Rc<LocalArray>) -> Result<(), ArrayLost> {
    let recorded = on_coordinator(local, async |local: Rc<LocalArray>| {
        let _gate = local.coordinator().gate.acquire().await;
    });
    recorded.await.ok_or(ArrayLost)
}

/// A write ended halfway, or its records did, and no member could be put out for it: the next start
/// is to resync what is dirty, whatever the log says. The members say so when this returns. If they
/// cannot, the array takes no more writes: nothing could vouch for them.
pub(crate) async fn record_doubt(local: &Rc<LocalArray>) {
    let recorded = on_coordinator(local, async |local: Rc<LocalArray>| {
        let _gate = local.coordinator().gate.acquire().await;
        if local.coordinator().superblock.borrow().resync_dirty_regions {
            return Ok(());
        }
        record::update(&local, |superblock| superblock.resync_dirty_regions = true).await
    });
    if !matches!(recorded.await, Some(Ok(()))) {
        local.array.set_read_only(true);
    }
}

/// The device that was being filled to replace a member failed: the member goes on without it. If
/// that device has been made current meanwhile, the member is out. The members say so when this
/// returns.
pub(crate) async fn replacement_failed(
    local: &Rc<LocalArray>,
    MemberDevice { member, device_epoch }: MemberDevice,
    why: String,
) {
    let dropped = on_coordinator(local, async move |local: Rc<LocalArray>| {
        let _gate = local.coordinator().gate.acquire().await;
        let slot = local.array.slot(member);
        if slot.device_epoch() == device_epoch {
            // A member whose group cannot do without it stays: the event says so.
            let _stays = take_out_alone(&local, member, &why).await;
        } else if slot.replacement_device_epoch() == device_epoch {
            drop_replacement(&local, member, &why).await;
        }
    });
    // The array may have stopped meanwhile: then there is nothing to drop.
    let _gone = dropped.await;
}

/// The coordinator's part of taking a member out. The caller holds the gate.
pub(crate) async fn take_out_alone(
    local: &Rc<LocalArray>,
    member: MemberIdx,
    why: &str,
) -> Result<(), ArrayLost> {
    let array = &local.array;
    let state = array.slot(member).state();
    if state == SlotState::Out {
        return Ok(());
    }
    if array.room.is_given_up() {
        return Err(ArrayLost);
    }
    let has_replacement = local.replacement(member).is_some();
    let says_out =
        record::says_out(&local.coordinator().superblock.borrow(), member, has_replacement);
    if state == SlotState::Failing && says_out {
        // It failed while the superblocks were being written, and they say so already.
        finish_taking_out(local, member).await;
        return Ok(());
    }
    let device_epoch = array.slot(member).device_epoch();
    let device = MemberDevice { member, device_epoch };
    let why = local.coordinator().silences.reason(device, why);
    let mut fields = vec![("slot", member.to_string()), ("reason", why)];
    fields.extend(local.device(member).map(|device| ("path", device.facts().path.clone())));
    if array.is_needed(member) {
        array.set_fails(member);
        array.record(names::ARRAY_FAILED, fields);
        return Err(ArrayLost);
    }
    array.set_slot_state(member, state.next(SlotEvent::Fault).expect("any state can fail"));
    if !sings(Canary::TakeOutNotRecorded) {
        record::update(local, |superblock| record::hand_over(superblock, member)).await?;
    }
    array.record(names::MEMBER_FAILED, fields);
    finish_taking_out(local, member).await;
    Ok(())
}

/// The superblocks say that the slot, which was failing, is out: make it so. The caller holds the
/// gate.
async fn finish_taking_out(local: &Rc<LocalArray>, member: MemberIdx) {
    let out = SlotState::Failing.next(SlotEvent::OutRecorded).expect("it was failing");
    local.array.set_slot_state(member, out);
    hand_over_to_replacement(local, member).await;
    crate::background::member_went_out(local, member);
}

/// The slot's device is let go everywhere; if one was being filled to replace it, that one takes
/// over, to be rebuilt: it missed what was written since the slot was failing. (The superblock says
/// so already.)
async fn hand_over_to_replacement(local: &Rc<LocalArray>, member: MemberIdx) {
    let array = &local.array;
    let log_tag =
        local.coordinator().superblock.borrow().joining_device(member).map(|entry| entry.log_tag);
    let Some(log_tag) = log_tag.filter(|_| local.replacement(member).is_some()) else {
        on_every_local(local, move |local| {
            // Its open commands do not matter any more, whether it ever answers or not.
            local.give_up(member);
            local.set_devices(member, SlotDevices::default());
        });
        return;
    };
    let slot = array.slot(member);
    let copied_below = slot.whole_below();
    slot.set_nothing_rebuilt();
    let device_epoch = slot.replacement_device_epoch();
    array.set_device_epoch(member, device_epoch);
    // On every worker before the slot may be written again: a write must not go to the device that
    // went.
    everywhere(local, move |local| {
        local.give_up(member);
        let taking_over = local.slot_devices(member).replacement;
        let current = taking_over.map(|SlotDevice { device, tags }| {
            let tags = Tags { log: log_tag, ..tags };
            SlotDevice { device, tags }
        });
        let devices = SlotDevices { current, replacement: None };
        local.set_devices(member, devices);
        local.set_device_epochs(member, (device_epoch, device_epoch));
    })
    .await;
    let joined = SlotState::Out.next(SlotEvent::DeviceJoined).expect("the slot is out");
    array.set_slot_state(member, joined);
    crate::background::replacement_took_over(local, member, copied_below);
}

async fn drop_replacement(local: &Rc<LocalArray>, member: MemberIdx, why: &str) {
    if local.replacement(member).is_none() {
        return;
    }
    detach_replacement(local, member);
    let dropped =
        record::update(local, |superblock| record::drop_joining_device(superblock, member)).await;
    let mut fields = vec![("slot", member.to_string()), ("reason", why.to_owned())];
    fields.push(("role", "replacement".to_owned()));
    if dropped.is_err() {
        fields.push(("recorded", "no".to_owned()));
    }
    local.array.record(names::MEMBER_FAILED, fields);
    crate::background::notify(local);
}

fn detach_replacement(local: &Rc<LocalArray>, member: MemberIdx) {
    on_every_local(local, move |local| {
        // It failed: its waiters need not wait any more.
        local.replacement(member).into_iter().for_each(|device| device.give_up());
        let devices = SlotDevices { replacement: None, ..local.slot_devices(member) };
        local.set_devices(member, devices);
    });
}

/// Run `action` on the array's share of every worker, and wait until all have run it. What those
/// workers do afterwards sees whatever was changed here before.
pub(crate) async fn everywhere(
    local: &Rc<LocalArray>,
    action: impl Fn(&Rc<LocalArray>) + Clone + Send + 'static,
) {
    let id = local.array.identity.id;
    let mut under_way = Vec::new();
    for worker in 0..local.worker.worker_count() {
        if worker == local.worker.index {
            action(local);
            continue;
        }
        let action = action.clone();
        let (done, is_done) = oneshot::channel::<()>();
        local.worker.run_on(worker, move |worker| {
            if let Some(local) = worker.local(id) {
                action(&local);
            }
            drop(done);
        });
        under_way.push(is_done);
    }
    for is_done in under_way {
        // The sender is dropped when the action has run, or when the worker has ended.
        let _ran_or_gone = is_done.await;
    }
}

/// Run `action` on the array's share of every worker: here at once, elsewhere soon.
pub(crate) fn on_every_local(
    local: &Rc<LocalArray>,
    action: impl Fn(&Rc<LocalArray>) + Clone + Send + 'static,
) {
    let id = local.array.identity.id;
    for worker in 0..local.worker.worker_count() {
        if worker == local.worker.index {
            action(local);
            continue;
        }
        let action = action.clone();
        local.worker.run_on(worker, move |worker| {
            if let Some(local) = worker.local(id) {
                action(&local);
            }
        });
    }
}
