//! Flush marks on the members: they prove that every member has the flushed data, so that a start
//! recognises an older copy.
//!
//! What must stay true: a mark is called flushed only if it was written to every device in service,
//! and a later flush of all of them went well. A device that joins has a mark before the members
//! list it. While a member is failing, and the others do not say yet that it is out, no mark is
//! called flushed. No client waits for a proof. Proofs take at most a twentieth of the time, so
//! they are rarer where flushing is slow.
//!
//! A start does not notice a copy that lacks only writes since the last proof began. These are
//! writes that were flushed within [`PROOF_EVERY`], or within twenty times what a proof takes if
//! that is longer, and unflushed writes of two seconds.

use super::record::{all_went_well, ended};
use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::control_io::aligned;
use crate::coordinator::holders::{Holder, devices_in_service, lose};
use crate::coordinator::state::Coordinator;
use crate::local_array::LocalArray;
use ashlar_device::{Command, Device};
use ashlar_iobuf::Buf;
use ashlar_ondisk::format::{FLUSH_MARK_BYTES, FLUSH_MARK_OFFSET, FLUSH_MARK_SEQUENCE_END};
use ashlar_ondisk::{Features, FlushMark, Role, Superblock};
use ashlar_units::to_u64;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Shortest time between the end of a proof and the next one that a client's flush asks for.
const PROOF_EVERY: Duration = Duration::from_millis(50);
/// A proof is followed by a pause of this many times its duration.
const PAUSE_FACTOR: u32 = 19;

/// Writes of clients and steps of jobs so far.
fn noted(array: &Array) -> u64 {
    array.caches.noted() + array.unproven.filled.load(Ordering::Acquire)
}

/// Whether something was written since the last proof began.
fn is_unproven(array: &Array) -> bool {
    array.unproven.proven.load(Ordering::Acquire) < noted(array)
}

/// A client's flush was answered: the members record soon what that made durable. No request waits.
pub(crate) fn ask_for(local: &Rc<LocalArray>) {
    if !is_unproven(&local.array) || local.array.unproven.is_asked_for.swap(true, Ordering::AcqRel)
    {
        return;
    }
    let id = local.array.identity.id;
    local.worker.run_on(local.array.coordinator, move |worker| {
        let Some(local) = worker.local(id) else { return };
        worker.handle.spawn(prove_soon(local));
    });
}

/// The same of what a job has filled and flushed: an older copy of its device is not filled so far.
pub(crate) fn ask_for_filled(local: &Rc<LocalArray>) {
    local.array.unproven.filled.fetch_add(1, Ordering::AcqRel);
    ask_for(local);
}

async fn prove_soon(local: Rc<LocalArray>) {
    let handle = local.worker.handle.clone();
    let not_before = local.coordinator().marks.not_before.get();
    let local = {
        let weak = Rc::downgrade(&local);
        drop(local);
        weak
    };
    handle.sleep_until(not_before).await;
    let Some(local) = local.upgrade() else { return };
    local.array.unproven.is_asked_for.store(false, Ordering::Release);
    if !local.array.is_stopping() {
        prove(&local).await;
    }
}

/// Prove what was flushed before now, if there is anything. What depends on it goes on all the same
/// if that cannot be: a start then knows less.
pub(crate) async fn prove_if_needed(local: &Rc<LocalArray>) {
    if is_unproven(&local.array) {
        prove(local).await;
    }
}

/// Prove what was flushed before now; rounds of several callers are shared. On the coordinator.
pub(crate) async fn prove(local: &Rc<LocalArray>) {
    let rounds = &local.coordinator().marks.rounds;
    // Without it the next start knows less; nothing is wrong with the array.
    let _is_proven = rounds.join(|| prove_round(Rc::clone(local))).await;
}

async fn prove_round(local: Rc<LocalArray>) -> bool {
    let handle = &local.worker.handle;
    let (began, noted) = (handle.now(), noted(&local.array));
    let is_proven = mark_and_flush(&local).await;
    if is_proven {
        local.array.unproven.proven.fetch_max(noted, Ordering::AcqRel);
    }
    let now = handle.now();
    let pause = (now.since(began) * PAUSE_FACTOR).max(PROOF_EVERY);
    local.coordinator().marks.not_before.set(now.after(pause));
    is_proven
}

async fn mark_and_flush(local: &Rc<LocalArray>) -> bool {
    let Some((sequence, marked)) = mark(local).await else { return false };
    if !flush(local, &marked).await {
        return false;
    }
    let has_it = |(holder, _): &(Holder, Rc<dyn Device>)| {
        marked.iter().any(|(it, _)| it.owner() == holder.owner())
    };
    if !devices_in_service(local).iter().all(has_it) {
        return false;
    }
    // To the others a member on its way out is in service until they record that it goes, and it
    // may lack this mark: then it would look like an older copy of itself.
    if local.array.has_failing_slots() && !sings(Canary::ProvenWithoutFailing) {
        return false;
    }
    local.coordinator().marks.flushed.set(sequence);
    match mark(local).await {
        Some((_, marked)) => flush(local, &marked).await,
        None => false,
    }
}

/// The devices that have a mark.
type Marked = Vec<(Holder, Rc<dyn Device>)>;

/// Write the next mark to every device in service; `None` if one does not take it. That puts no
/// device out: it says so where data goes to it.
pub(crate) async fn mark(local: &Rc<LocalArray>) -> Option<(u64, Marked)> {
    let marks = &local.coordinator().marks;
    let _turn = marks.gate.acquire().await;
    let sequence = marks.sequence.get() + 1;
    if local.array.is_read_only() || sequence >= FLUSH_MARK_SEQUENCE_END {
        return None;
    }
    marks.sequence.set(sequence);
    let follows_change = local.array.written.begin_mark();
    let (offset, block) = newest_mark(local.coordinator());
    let devices = devices_in_service(local);
    let start = |(_, device): &(Holder, Rc<dyn Device>)| {
        local.start_on(device.as_ref(), offset, Command::Write(block.clone()))
    };
    let writes = devices.iter().map(start).collect();
    let is_marked = all_went_well(writes).await;
    local.array.written.end_mark(is_marked.then_some(sequence), follows_change);
    is_marked.then_some((sequence, devices))
}

/// The written map changed: if that is kept, a mark follows soon, by which a start tells members
/// that were rolled back to a time before. It is not flushed: no kept map outlives a power cut.
pub(crate) fn ask_for_mark(local: &LocalArray) {
    let unproven = &local.array.unproven;
    if !local.array.written.lacks_mark() || unproven.is_mark_asked_for.swap(true, Ordering::AcqRel)
    {
        return;
    }
    let id = local.array.identity.id;
    local.worker.run_on(local.array.coordinator, move |worker| {
        let Some(local) = worker.local(id) else { return };
        worker.handle.spawn(mark_soon(local));
    });
}

async fn mark_soon(local: Rc<LocalArray>) {
    let handle = local.worker.handle.clone();
    let not_before = local.coordinator().marks.no_mark_before.get();
    let local = {
        let weak = Rc::downgrade(&local);
        drop(local);
        weak
    };
    handle.sleep_until(not_before).await;
    let Some(local) = local.upgrade() else { return };
    local.array.unproven.is_mark_asked_for.store(false, Ordering::Release);
    // A proof may have come first.
    if local.array.is_stopping() || !local.array.written.lacks_mark() {
        return;
    }
    let began = handle.now();
    let _marked = mark(&local).await;
    let now = handle.now();
    let pause = (now.since(began) * PAUSE_FACTOR).max(PROOF_EVERY);
    local.coordinator().marks.no_mark_before.set(now.after(pause));
}

/// The newest mark as it lies on a member, and where.
fn newest_mark(coordinator: &Coordinator) -> (u64, Buf) {
    let marks = &coordinator.marks;
    let (array_uuid, incarnation) = coordinator.identity();
    let (sequence, flushed) = (marks.sequence.get(), marks.flushed.get());
    let mark = FlushMark { array_uuid, incarnation, sequence, flushed };
    (FLUSH_MARK_OFFSET + to_u64(mark.slot()) * FLUSH_MARK_BYTES, aligned(&mark.encode()))
}

/// A device joins, and takes part in every mark from now on: it gets the newest there is, alone, so
/// that nobody waits for others. One that does not take it cannot be listed either.
pub(crate) async fn greet(local: &Rc<LocalArray>, device: &dyn Device) {
    if local.coordinator().marks.sequence.get() == 0 {
        return;
    }
    let (offset, block) = newest_mark(local.coordinator());
    let _written = all_went_well(vec![local.start_on(device, offset, Command::Write(block))]).await;
    let _flushed = all_went_well(vec![local.start_on(device, 0, Command::Flush)]).await;
}

/// Flush these devices; one that cannot is out, for it may have forgotten what others wait for.
async fn flush(local: &Rc<LocalArray>, marked: &Marked) -> bool {
    let start =
        |(_, device): &(Holder, Rc<dyn Device>)| local.start_on(device.as_ref(), 0, Command::Flush);
    let flushes: Vec<_> = marked.iter().map(start).collect();
    let mut went_well = true;
    for ((holder, _), flush) in marked.iter().zip(flushes) {
        if let Err(fault) = ended(vec![flush]).await {
            went_well = false;
            lose(local, *holder, "a flush", fault).await;
        }
    }
    went_well
}

/// The array starts: from now on its marks count. If they did not before, every device gets one
/// first, and nothing is known to be flushed.
pub(crate) async fn begin(local: &Rc<LocalArray>, next: &mut Superblock) {
    if next.has_flush_marks() {
        return;
    }
    if let Some((_, marked)) = mark(local).await
        && flush(local, &marked).await
    {
        next.features.compatible |= Features::FLUSH_MARKS;
    }
}

/// What is known to be on members that `next` puts out, and `before` did not yet.
pub(crate) fn note_in_table(coordinator: &Coordinator, before: &Superblock, next: &mut Superblock) {
    let flushed = coordinator.marks.flushed.get();
    let is_out = |role: Option<Role>| role == Some(Role::Out);
    let was_out = |uuid| is_out(before.member(uuid).map(|entry| entry.role));
    if next.has_flush_marks() {
        let went = next.members.iter_mut().filter(|it| is_out(Some(it.role)) && !was_out(it.uuid));
        went.for_each(|entry| entry.out_flushed = flushed);
    }
}
