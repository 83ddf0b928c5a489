//! The most frequent small write, in as few steps as it takes: one block of a healthy stripe, with
//! all parity.
//!
//! What must stay true: it does what steps 5 to 12 of [`write_stripe`](super::write) would do, in
//! their order and under the same lock. The plan is the general one
//! ([`plan_block`]). It reads its members as one group and writes them as one group, so that its
//! task is woken twice at most. If a read fails, nothing has changed, and the general path goes on
//! with what is known of the stripe.
//!
//! Not here: everything else, which is the general path's.

use super::clock::StageClock;
use super::gather::{NotRead, judge};
use super::store::{NoRoom, Writes};
use super::{block_sums, log, parity_only};
use crate::blame::{FailedMembers, blame};
use crate::canary::{Canary, sings};
use crate::checksums::pins::Pins;
use crate::datapath::payload::Payload;
use crate::local_array::{LocalArray, Starter};
use crate::log::update::{NewUpdate, Piece};
use crate::log::updates::Update;
use crate::metrics::WriteStage;
use crate::scratch::Leave;
use crate::slot::{MemberDevice, WriteTarget};
use crate::stripe::work::Missing;
use ashlar_device::{Command, Fault, FaultKind, Outcome};
use ashlar_iobuf::{Buf, BufMut};
use ashlar_layout::{BlockUpdate, Stripe, plan_block};
use ashlar_ondisk::log::RecordKind;
use ashlar_parity::{Change, Locality};
use ashlar_ring::{GROUP_MAX, Group};
use ashlar_units::{BLOCK_BYTES, BLOCK_BYTES_USIZE, MemberIdx, Nanos, StripIdx, to_u64};
use ashlar_volume::VolumeErrorKind;
use smallvec::SmallVec;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

/// One write in this many of an array without log is timed answer by answer, so that members can be
/// compared.
const TIMED_EVERY: u64 = 4;

/// What came of it.
pub(super) enum Written {
    /// Every write has ended; these members failed theirs, if any did. The update that the log
    /// has, if there is one, ends when it drops.
    Stored(Option<Box<FailedMembers>>, Option<Update>),
    /// Its record is on some devices and not on others, and no member could be put out for that.
    /// Nothing is in place.
    Unrecorded(VolumeErrorKind),
    /// Nothing has changed: the array cannot do without a device whose checksums cannot be had.
    Refused(VolumeErrorKind),
    /// Nothing has changed: these strips could not be read.
    Unread(Missing),
}

/// One thing for each strip of the update: the data strip first, then parity, rising.
type PerStrip<T> = [Option<T>; GROUP_MAX];

/// Commands of one update under way, and when they began.
struct Commands {
    group: Group<Outcome>,
    /// Where each goes.
    places: StripPlaces,
    owners: PerStrip<MemberDevice>,
    began: Nanos,
    is_timed: bool,
    /// When each was answered; if they are not timed, when all were.
    answered: [Nanos; GROUP_MAX],
}

impl Commands {
    #[inline]
    fn new(local: &LocalArray, places: StripPlaces, count: usize, is_timed: bool) -> Commands {
        let (group, began) = (local.worker.outcomes.group(count), local.worker.handle.turn_now());
        let (owners, answered) = ([None; GROUP_MAX], [began; GROUP_MAX]);
        Commands { group, places, owners, began, is_timed, answered }
    }

    /// The same for other commands, when all of these have ended and their answers are taken.
    #[inline]
    fn begin_again(&mut self, local: &LocalArray, count: usize) {
        self.group.begin_again(count);
        self.owners = [None; GROUP_MAX];
        self.began = local.worker.handle.turn_now();
        self.answered = [self.began; GROUP_MAX];
    }

    /// Start a command on the device in its slot. If there is none any more, it has no owner: then
    /// this is false.
    #[inline]
    fn start(
        &mut self,
        starter: &Starter<'_>,
        at: usize,
        (member, offset): (MemberIdx, u64),
        command: Command,
    ) -> bool {
        let done = self.group.completion(at);
        self.owners[at] = starter.start(member, offset, command, done);
        self.owners[at].is_some()
    }

    /// Wait for those that were not answered within their start.
    async fn end(&mut self, local: &LocalArray) {
        if self.is_timed {
            return self.note_each(local).await;
        }
        (&mut self.group).await;
        self.answered = [local.worker.handle.turn_now(); GROUP_MAX];
    }

    async fn note_each(&mut self, local: &LocalArray) {
        let mut seen = 0;
        while !self.group.has_all() {
            let ended = poll_fn(|context| self.group.poll_more(seen, context)).await;
            for at in (0..GROUP_MAX).filter(|at| (ended & !seen) >> at & 1 != 0) {
                self.answered[at] = local.worker.handle.turn_now();
            }
            seen = ended;
        }
    }
}

/// The plan, if this path is one for the write.
pub(super) fn plan(local: &LocalArray, payload: &Payload, is_written: bool) -> Option<BlockUpdate> {
    let (array, stripe) = (&local.array, payload.stripe());
    let is_plain = payload.extent.bytes == BLOCK_BYTES
        && is_written
        && (local.log().is_none() || has_plain_records(local, stripe))
        && array.missing_slots() == 0;
    if !is_plain {
        return None;
    }
    let update = plan_block(array.geometry_of(stripe), payload.extent, &array.view(stripe))?;
    (update.parity.count() < GROUP_MAX).then_some(update)
}

/// Whether the record of one block has the new content of all its strips.
fn has_plain_records(local: &LocalArray, stripe: Stripe) -> bool {
    !log::is_mirror(&local.array, stripe) && !parity_only::may_be(local)
}

/// The strips of the update, in the order in which this file lists things.
pub(super) fn strips(update: BlockUpdate) -> impl Iterator<Item = StripIdx> {
    std::iter::once(update.strip).chain(update.parity.iter())
}

/// Where the row of each strip lies, bytes from the member's start.
pub(super) type StripPlaces = PerStrip<(MemberIdx, u64)>;

/// Where it may be read. Since the plan was made another device may have come into a slot, with
/// nothing on it.
#[inline]
fn readable_places(local: &LocalArray, stripe: Stripe, update: BlockUpdate) -> StripPlaces {
    let array = &local.array;
    if array.missing_slots() == 0 && array.spare_cells.is_none() {
        return places(local, stripe, update);
    }
    let mut places = [None; GROUP_MAX];
    for (place, strip) in places.iter_mut().zip(strips(update)) {
        *place = array.readable_place(stripe, strip, update.rows.start);
    }
    places
}

/// Where it is written.
#[inline]
fn places(local: &LocalArray, stripe: Stripe, update: BlockUpdate) -> StripPlaces {
    let own = local.array.places(stripe, strips(update), update.rows.start);
    let mut places = [None; GROUP_MAX];
    for (place, own) in places.iter_mut().zip(own) {
        *place = Some(own);
    }
    places
}

/// Carry out the update; the caller holds the lock of its row and has entered its region.
pub(super) async fn write(
    local: &Rc<LocalArray>,
    update: BlockUpdate,
    payload: &Payload,
    clock: &mut StageClock,
) -> Written {
    let stripe = payload.stripe();
    let count = 1 + update.parity.count();
    let mut blocks: PerStrip<BufMut> = [const { None }; GROUP_MAX];
    let _leave = match local.scratch.try_blocks(&mut blocks[..count]) {
        Some(leave) => leave,
        None => Box::pin(wait_for_blocks(local, &mut blocks[..count])).await,
    };
    local.counts().write_member_reads.add(to_u64(count));
    let is_timed = is_timed(local);
    let read_places = readable_places(local, stripe, update);
    let mut pins = None;
    if local.array.checksums.is_some() {
        match Box::pin(block_sums::hold(local, stripe, update, &read_places)).await {
            Ok(held) => pins = held,
            Err(error) => return Written::Refused(error),
        }
    }
    let mut commands = Commands::new(local, read_places, count, is_timed);
    start_reads(local, &mut blocks[..count], &mut commands);
    if !commands.group.has_all() {
        commands.end(local).await;
    }
    let mut missing = old_blocks(local, update, &mut commands, &mut blocks);
    if let Some(pins) = &pins {
        // Boxed for those that keep no checksums: their future stays small.
        let unproven = unproven(local, update, pins, &commands, &blocks);
        missing = missing.and(Box::pin(unproven).await);
    }
    if !missing.all().is_empty() {
        return Written::Unread(missing);
    }
    clock.lap(local, WriteStage::Gather);
    compute(local, update, payload, &mut blocks);
    let mut pieces = pieces(local, update, payload, blocks);
    clock.lap(local, WriteStage::Parity);
    let recorded = match local.log() {
        None => None,
        Some(_) => match pin!(record(local, stripe, update, &pieces)).await {
            Ok(recorded) => Some(recorded),
            Err(error) => return Written::Unrecorded(error),
        },
    };
    clock.lap(local, WriteStage::Log);
    // Where there are spare cells, that is asked anew: since it was read there, a strip may have
    // got another place.
    if local.array.spare_cells.is_some() {
        commands.places = places(local, stripe, update);
    }
    // Since the plan was made a member may have been lost, and its strips have got spare cells. Of
    // an array that grows, strips may be on their way to another place.
    let is_replaced = |place: &(MemberIdx, u64)| local.is_replaced(place.0);
    let is_elsewhere = local.array.missing_slots() != 0
        || local.array.moves_strips()
        || local.has_replacements() && commands.places.iter().flatten().any(is_replaced);
    if is_elsewhere {
        let failed = Box::pin(store_twice(local, stripe, update, pieces, pins)).await;
        return Written::Stored(Some(failed.into()), recorded);
    }
    commands.begin_again(local, if sings(Canary::ParityNotStored) { 1 } else { count });
    start_writes(local, &pieces, &mut commands);
    if !commands.group.has_all() {
        commands.end(local).await;
    }
    let bad = bad_writes(local, &mut commands);
    if let Some(pins) = &pins {
        note_stored(local, pins, &commands, &pieces, &bad);
    }
    if !bad.is_empty() {
        let failed = Box::pin(blame_all(local, &commands.places, &pieces, bad, pins)).await;
        return Written::Stored(Some(failed.into()), recorded);
    }
    keep_blocks(local, &mut pieces);
    Written::Stored(None, recorded)
}

/// Blocks in their turn.
async fn wait_for_blocks(local: &LocalArray, places: &mut [Option<BufMut>]) -> Leave {
    let (mut blocks, leave) = local.scratch.take(places.len(), BLOCK_BYTES_USIZE).await;
    places.fill_with(|| blocks.pop());
    leave
}

/// The record of the update becomes durable on every holder.
async fn record(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    update: BlockUpdate,
    own: &PerStrip<Buf>,
) -> Result<Update, VolumeErrorKind> {
    let mut pieces = local.pools.pieces.list();
    for (strip, bytes) in strips(update).zip(own) {
        pieces.extend(bytes.clone().map(|bytes| Piece::new(strip, update.rows, bytes)));
    }
    let stored = update.parity.with(update.strip);
    let (kind, rows) = (RecordKind::Full, update.rows);
    log::record(local, NewUpdate { stripe, kind, rows, stored, pieces }).await
}

/// The blocks of parity are nobody's again.
fn keep_blocks(local: &LocalArray, pieces: &mut PerStrip<Buf>) {
    let blocks = pieces[1..].iter_mut().filter_map(Option::take);
    // A member that was given up may have some of them still.
    local.scratch.keep(blocks.filter_map(|piece| piece.try_into_mut().ok()));
}

/// Whether it is the turn of this write to be timed.
fn is_timed(local: &LocalArray) -> bool {
    let turn = local.writes_awaited.replace(local.writes_awaited.get().wrapping_add(1));
    // With a log slow members are to be told as soon as by the general path.
    local.log().is_some() || turn.is_multiple_of(TIMED_EVERY)
}

/// Read into each of the blocks, which are taken.
#[inline]
fn start_reads(local: &LocalArray, blocks: &mut [Option<BufMut>], commands: &mut Commands) {
    let (starter, mut started) = (local.starter(), 0);
    for (at, block) in blocks.iter_mut().enumerate() {
        let Some((place, block)) = commands.places[at].zip(block.take()) else {
            drop(commands.group.completion(at));
            continue;
        };
        if commands.start(&starter, at, place, Command::Read(block)) {
            local.tally(place.0).begin_read(BLOCK_BYTES);
            started += 1;
        }
    }
    local.counts().member_reads.add(started);
}

/// Put what the strips hold into `blocks`; which of them could not be read. Each failure is held
/// against its device.
#[inline]
fn old_blocks(
    local: &Rc<LocalArray>,
    update: BlockUpdate,
    reads: &mut Commands,
    blocks: &mut PerStrip<BufMut>,
) -> Missing {
    let mut missing = Missing::default();
    for (at, strip) in strips(update).enumerate() {
        let Some(device) = reads.owners[at] else {
            missing.failed = missing.failed.with(strip);
            continue;
        };
        let tally = local.tally(device.member);
        tally.counters.completed.add(1);
        if reads.is_timed {
            tally.timings.note_read(reads.began, reads.began, reads.answered[at]);
        }
        match judge(local, device, reads.group.take(at)) {
            Ok(block) => blocks[at] = Some(block),
            Err(NotRead::Broken) => missing.broken = missing.broken.with(strip),
            Err(_) => missing.failed = missing.failed.with(strip),
        }
    }
    missing
}

/// Of the blocks that were read, those that are not what was written there.
async fn unproven(
    local: &Rc<LocalArray>,
    update: BlockUpdate,
    pins: &Pins,
    reads: &Commands,
    blocks: &PerStrip<BufMut>,
) -> Missing {
    let mut missing = Missing::default();
    for (at, strip) in strips(update).enumerate() {
        let (Some(owner), Some((_, offset)), Some(block)) =
            (reads.owners[at], reads.places[at], &blocks[at])
        else {
            continue;
        };
        match pin!(block_sums::prove(local, pins, owner, offset, block)).await {
            Ok(()) => {}
            Err(NotRead::Broken) => missing.broken = missing.broken.with(strip),
            Err(_) => missing.failed = missing.failed.with(strip),
        }
    }
    missing
}

/// Bring the parity blocks up to date, where they lie.
fn compute(
    local: &LocalArray,
    update: BlockUpdate,
    payload: &Payload,
    blocks: &mut PerStrip<BufMut>,
) {
    let code = &local.array.layout_of(payload.stripe()).code;
    let [old, parity @ ..] = blocks;
    let change = Change {
        column: update.strip.at(),
        old: old.as_ref().expect("it was read"),
        new: payload.slice(update.strip, update.rows),
    };
    let mut targets = parity.each_mut().map(|block| block.as_mut().map(|bytes| &mut bytes[..]));
    let targets = &mut targets[..update.parity.count()];
    code.update(&[change], targets, Locality::Cached).expect("blocks are equally long");
}

/// What is to be stored. The old block is nobody's again.
fn pieces(
    local: &LocalArray,
    update: BlockUpdate,
    payload: &Payload,
    blocks: PerStrip<BufMut>,
) -> PerStrip<Buf> {
    let [old, parity @ ..] = blocks;
    local.scratch.keep(old.into_iter());
    let [first, second, third] = parity.map(|block| block.map(BufMut::freeze));
    let own = payload.shared(update.strip, update.rows);
    let mut pieces = [Some(own), first, second, third];
    if sings(Canary::ParityNotStored) {
        pieces[1..].fill(None);
    }
    pieces
}

/// Store the pieces on devices that nothing replaces.
#[inline]
fn start_writes(local: &LocalArray, pieces: &PerStrip<Buf>, writes: &mut Commands) {
    let (starter, mut asked) = (local.starter(), 0);
    for (at, piece) in pieces.iter().enumerate() {
        let (Some(place), Some(piece)) = (writes.places[at], piece) else { continue };
        asked += 1;
        // A slot whose device has just been taken away is out: its content is carried by parity,
        // and the slots that were left out are recorded before the client is answered.
        if writes.start(&starter, at, place, Command::Write(piece.clone())) {
            local.tally(place.0).begin_write(BLOCK_BYTES);
        }
    }
    local.counts().member_writes.add(asked);
}

/// All writes have ended: those that failed.
#[inline]
fn bad_writes(local: &LocalArray, writes: &mut Commands) -> Bad {
    let mut bad = Bad::new();
    for at in 0..GROUP_MAX {
        let Some(owner) = writes.owners[at] else { continue };
        note_written(local, writes, at, owner);
        match writes.group.take(at).map_or(Err(Fault::GONE), |outcome| outcome.result) {
            Ok(()) => local.array.slot(owner.member).set_unflushed(),
            Err(_) if sings(Canary::FailedWriteIgnored) => {}
            Err(fault) => bad.push((at, owner, fault)),
        }
    }
    bad
}

/// What was stored has these checksums from now on.
fn note_stored(
    local: &LocalArray,
    pins: &Pins,
    writes: &Commands,
    pieces: &PerStrip<Buf>,
    bad: &Bad,
) {
    for (at, piece) in pieces.iter().enumerate() {
        let (Some(owner), Some((_, offset)), Some(piece)) =
            (writes.owners[at], writes.places[at], piece)
        else {
            continue;
        };
        if bad.iter().all(|failed| failed.0 != at) {
            block_sums::note(local, pins, owner, offset, piece);
        }
    }
}

/// Writes that failed.
type Bad = SmallVec<[(usize, MemberDevice, Fault); GROUP_MAX]>;

#[inline]
fn note_written(local: &LocalArray, writes: &Commands, at: usize, owner: MemberDevice) {
    let tally = local.tally(owner.member);
    tally.end_write(writes.began, writes.answered[at]);
    if writes.is_timed {
        tally.timings.writes.add(writes.answered[at].since(writes.began));
    }
}

/// What failed for lack of room is tried again when all have ended; all else is held against its
/// device.
async fn blame_all(
    local: &Rc<LocalArray>,
    places: &StripPlaces,
    pieces: &PerStrip<Buf>,
    bad: Bad,
    pins: Option<Pins>,
) -> FailedMembers {
    let (mut failed, mut without_room) = (FailedMembers::new(), NoRoom::new());
    let mut writes = Writes::noting(local, pins);
    for (at, owner, fault) in bad {
        let target = WriteTarget::current(owner);
        let again = pieces[at].clone().filter(|_| fault.kind == FaultKind::NoSpace);
        match again.zip(places[at]) {
            Some((again, (_, offset))) => {
                writes.note(&local.array, owner, offset, &again);
                without_room.push((without_room.len(), target, (offset, again)));
            }
            None => blame(local, target, fault, &mut failed).await,
        }
    }
    if !without_room.is_empty() {
        writes.store_when_there_is_room(local, without_room, &mut failed).await;
    }
    failed
}

/// Store the pieces on devices of which some are being replaced, or wherever lost strips go.
async fn store_twice(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    update: BlockUpdate,
    pieces: PerStrip<Buf>,
    pins: Option<Pins>,
) -> FailedMembers {
    let mut writes = Writes::noting(local, pins);
    for (strip, piece) in strips(update).zip(pieces) {
        if let Some(bytes) = piece {
            writes.start(local, stripe, Piece::new(strip, update.rows, bytes));
        }
    }
    writes.finish(local).await
}
