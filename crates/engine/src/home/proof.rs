//! Flush marks on the members: the proof that what was flushed is on every one of them, so that a
//! start knows an older copy.
//!
//! What must stay true: a mark is called flushed only if it was written to every device that is in
//! service afterwards, and a flush of all of them that began later went well. A device that joins
//! has a mark before the members list it. No client waits for a proof, and proofs take no more than
//! a twentieth of the time: where flushing is slow, they are rarer.
//!
//! What the next start cannot tell: that a copy lacks what was written after the last proof began.
//! That is what was flushed within [`PROOF_EVERY`], or twenty times what a proof takes, if that is
//! longer; and what nobody flushed, within two seconds.

use super::keeper::{self, Holder};
use super::record::{aligned, all_went_well, ended};
use super::rounds::Rounds;
use crate::shard::Shard;
use ashlar_device::{Command, Device};
use ashlar_iobuf::Buf;
use ashlar_ondisk::format::{FLUSH_MARK_BYTES, FLUSH_MARK_OFFSET, FLUSH_MARK_SEQUENCE_END};
use ashlar_ondisk::{Features, FlushMark, Role, Superblock};
use ashlar_ring::local::Semaphore;
use ashlar_units::{Nanos, to_u64};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Shortest time between the end of a proof and the next one that a client's flush asks for.
const PROOF_EVERY: Duration = Duration::from_millis(50);
/// A proof that took so long is followed by a pause of so many times that.
const PAUSE_FACTOR: u32 = 19;

/// What the home worker knows of the marks of its array.
pub(crate) struct Marks {
    /// The newest mark.
    sequence: Cell<u64>,
    /// The mark that is durable on every device in service.
    flushed: Cell<u64>,
    /// One mark is written at a time, so that each is on every device before the next.
    gate: Semaphore,
    rounds: Rounds,
    /// When a client's flush may ask for the next proof.
    not_before: Cell<Nanos>,
}

impl Marks {
    /// Go on above what the members carry.
    pub(crate) fn after(sequence: u64, flushed: u64) -> Self {
        Marks {
            sequence: Cell::new(sequence),
            flushed: Cell::new(flushed),
            gate: Semaphore::new(1),
            rounds: Rounds::default(),
            not_before: Cell::new(Nanos::default()),
        }
    }
}

/// Whether there is anything to prove; any worker asks.
#[derive(Default)]
pub(crate) struct Unproven {
    /// Writes that had been noted when the last proof began.
    proven: AtomicU64,
    /// How often a job has flushed what it filled.
    filled: AtomicU64,
    /// A proof is on its way.
    is_asked_for: AtomicBool,
}

/// Writes of clients and steps of jobs so far.
fn noted(shard: &Shard) -> u64 {
    shard.array.caches.noted() + shard.array.unproven.filled.load(Ordering::Acquire)
}

/// Whether something was written since the last proof began.
fn is_unproven(shard: &Shard) -> bool {
    shard.array.unproven.proven.load(Ordering::Acquire) < noted(shard)
}

/// A client's flush was answered: the members are told soon what that made durable. Nobody waits.
pub(crate) fn ask_for(shard: &Rc<Shard>) {
    if !is_unproven(shard) || shard.array.unproven.is_asked_for.swap(true, Ordering::AcqRel) {
        return;
    }
    let id = shard.array.identity.id;
    shard.worker.run_on(shard.array.home, move |worker| {
        let Some(shard) = worker.shard(id) else { return };
        worker.handle.spawn(prove_soon(shard));
    });
}

/// The same of what a job has filled and flushed: an older copy of its device is not filled so far.
pub(crate) fn ask_for_filled(shard: &Rc<Shard>) {
    shard.array.unproven.filled.fetch_add(1, Ordering::AcqRel);
    ask_for(shard);
}

async fn prove_soon(shard: Rc<Shard>) {
    let handle = shard.worker.handle.clone();
    let not_before = shard.home().marks.not_before.get();
    let shard = {
        let weak = Rc::downgrade(&shard);
        drop(shard);
        weak
    };
    handle.sleep_until(not_before).await;
    let Some(shard) = shard.upgrade() else { return };
    shard.array.unproven.is_asked_for.store(false, Ordering::Release);
    if !shard.array.is_stopping() {
        prove(&shard).await;
    }
}

/// Prove what was flushed before now, if there is anything. What depends on it goes on all the same
/// if that cannot be: a start then knows less.
pub(crate) async fn prove_if_needed(shard: &Rc<Shard>) {
    if is_unproven(shard) {
        prove(shard).await;
    }
}

/// Prove what was flushed before now; rounds of several callers are shared. On the home worker.
pub(crate) async fn prove(shard: &Rc<Shard>) {
    let rounds = &shard.home().marks.rounds;
    // Without it the next start knows less; nothing is wrong with the array.
    let _is_proven = rounds.join(|| prove_round(Rc::clone(shard))).await;
}

async fn prove_round(shard: Rc<Shard>) -> bool {
    let handle = &shard.worker.handle;
    let (began, noted) = (handle.now(), noted(&shard));
    let is_proven = mark_and_flush(&shard).await;
    if is_proven {
        shard.array.unproven.proven.fetch_max(noted, Ordering::AcqRel);
    }
    let now = handle.now();
    let pause = (now.since(began) * PAUSE_FACTOR).max(PROOF_EVERY);
    shard.home().marks.not_before.set(now.after(pause));
    is_proven
}

async fn mark_and_flush(shard: &Rc<Shard>) -> bool {
    let Some((sequence, marked)) = mark(shard).await else { return false };
    if !flush(shard, &marked).await {
        return false;
    }
    let has_it = |(holder, _): &(Holder, Rc<dyn Device>)| {
        marked.iter().any(|(it, _)| it.owner() == holder.owner())
    };
    if !keeper::devices_in_service(shard).iter().all(has_it) {
        return false;
    }
    shard.home().marks.flushed.set(sequence);
    match mark(shard).await {
        Some((_, marked)) => flush(shard, &marked).await,
        None => false,
    }
}

/// The devices that have a mark.
type Marked = Vec<(Holder, Rc<dyn Device>)>;

/// Write the next mark to every device in service; `None` if one does not take it. That puts no
/// device out: it says so where data goes to it.
pub(crate) async fn mark(shard: &Rc<Shard>) -> Option<(u64, Marked)> {
    let marks = &shard.home().marks;
    let _turn = marks.gate.acquire().await;
    let sequence = marks.sequence.get() + 1;
    if shard.array.is_read_only() || sequence >= FLUSH_MARK_SEQUENCE_END {
        return None;
    }
    marks.sequence.set(sequence);
    let (offset, block) = newest_mark(shard);
    let devices = keeper::devices_in_service(shard);
    let start = |(_, device): &(Holder, Rc<dyn Device>)| {
        shard.start_on(device.as_ref(), offset, Command::Write(block.clone()))
    };
    let writes = devices.iter().map(start).collect();
    all_went_well(writes).await.then_some((sequence, devices))
}

/// The newest mark as it lies on a member, and where.
fn newest_mark(shard: &Shard) -> (u64, Buf) {
    let marks = &shard.home().marks;
    let (array_uuid, incarnation) = shard.home().identity();
    let (sequence, flushed) = (marks.sequence.get(), marks.flushed.get());
    let mark = FlushMark { array_uuid, incarnation, sequence, flushed };
    (FLUSH_MARK_OFFSET + to_u64(mark.slot()) * FLUSH_MARK_BYTES, aligned(&mark.encode()))
}

/// A device joins, and takes part in every mark from now on: it gets the newest there is, alone, so
/// that nobody waits for others. One that does not take it cannot be listed either.
pub(crate) async fn greet(shard: &Rc<Shard>, device: &dyn Device) {
    if shard.home().marks.sequence.get() == 0 {
        return;
    }
    let (offset, block) = newest_mark(shard);
    let _written = all_went_well(vec![shard.start_on(device, offset, Command::Write(block))]).await;
    let _flushed = all_went_well(vec![shard.start_on(device, 0, Command::Flush)]).await;
}

/// Flush these devices; one that cannot is out, for it may have forgotten what others wait for.
async fn flush(shard: &Rc<Shard>, marked: &Marked) -> bool {
    let start =
        |(_, device): &(Holder, Rc<dyn Device>)| shard.start_on(device.as_ref(), 0, Command::Flush);
    let flushes: Vec<_> = marked.iter().map(start).collect();
    let mut went_well = true;
    for ((holder, _), flush) in marked.iter().zip(flushes) {
        if let Err(fault) = ended(vec![flush]).await {
            went_well = false;
            keeper::lose(shard, *holder, ("a flush", fault)).await;
        }
    }
    went_well
}

/// The array starts: from now on its marks count. If they did not before, every device gets one
/// first, and nothing is known to be flushed.
pub(crate) async fn begin(shard: &Rc<Shard>, next: &mut Superblock) {
    if next.has_flush_marks() {
        return;
    }
    if let Some((_, marked)) = mark(shard).await
        && flush(shard, &marked).await
    {
        next.features.compatible |= Features::FLUSH_MARKS;
    }
}

/// What is known to be on members that `next` puts out, and `before` did not yet.
pub(crate) fn note_in_table(shard: &Shard, before: &Superblock, next: &mut Superblock) {
    let flushed = shard.home().marks.flushed.get();
    let is_out = |role: Option<Role>| role == Some(Role::Out);
    let was_out = |uuid| is_out(before.member(uuid).map(|entry| entry.role));
    if next.has_flush_marks() {
        let went = next.members.iter_mut().filter(|it| is_out(Some(it.role)) && !was_out(it.uuid));
        went.for_each(|entry| entry.out_flushed = flushed);
    }
}
