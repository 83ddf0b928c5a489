//! Reads, straight from the members, on the worker where they arrived. If a stripe has parts that
//! cannot be read that way, they go to the stripe's owner as one piece of work.
//!
//! What must stay true: all parts of a request are under way before the first one is waited for. A
//! stripe that was never written reads as zeros without touching a member. A device that answers
//! too late may still write into its buffer, so the client never gets that buffer.

use super::avoid;
use super::gather::note_slow;
use crate::array::Array;
use crate::blame::read_failed;
use crate::canary::{Canary, sings};
use crate::checksums;
use crate::in_flight::{Awaited, Began, Brought, ReadPart, Started, StripPart};
use crate::local_array::LocalArray;
use crate::stripe::work::{Answer, Missing, StripeRead, StripeWork};
use ashlar_device::{Command, FaultKind, Outcome};
use ashlar_iobuf::BufMut;
use ashlar_layout::{self as layout, Stripe, strips_of};
use ashlar_ring::{Pending, within};
use ashlar_units::{BLOCK_BYTES, Extent, Nanos, StripSet, to_u64, to_usize};
use ashlar_volume::VolumeErrorKind;
use std::pin::pin;
use std::rc::Rc;

/// A read that has begun.
pub(super) enum BegunRead {
    /// It is done.
    Done(BufMut),
    /// It cannot be.
    Failed(VolumeErrorKind),
    /// It has one part, which was started.
    One(Started),
    /// It has several parts, none of which was started yet.
    Several(BufMut),
}

/// Begin to fill `buffer` from `extent` of the volume. What its member answers at once needs no
/// future.
#[inline]
pub(super) fn begin(local: &Rc<LocalArray>, extent: Extent, buffer: BufMut) -> BegunRead {
    if extent.bytes == 0 {
        return BegunRead::Done(buffer);
    }
    let Some((stripe, run)) = local.array.layouts.only_run(extent) else {
        return BegunRead::Several(buffer);
    };
    let part = StripPart { stripe, strip: run.strip, extent: run.extent };
    let slow = going_around(local, stripe, || StripSet::only(part.strip));
    let started = match slow.is_empty() {
        true => start(local, part, buffer),
        false => {
            let missing = Missing { slow, ..Missing::default() };
            Err(Started::Reconstructing(reconstruct_part(local, part, buffer, missing)))
        }
    };
    match started {
        Ok(buffer) => BegunRead::Done(buffer),
        Err(Started::Reconstructing(mut pending)) => match pending.look() {
            None => BegunRead::One(Started::Reconstructing(pending)),
            Some(answer) => match data_of(answer) {
                Ok(buffer) => BegunRead::Done(buffer),
                Err(kind) => BegunRead::Failed(kind),
            },
        },
        Err(started) => BegunRead::One(started),
    }
}

/// Whether what a member brought is known to be what was written there, without a wait.
#[inline]
fn is_right_at_once(local: &LocalArray, began: &Began, buffer: &BufMut) -> bool {
    let array = &local.array;
    if array.checksums.is_none() || sings(Canary::ReadUnverified) {
        return true;
    }
    let first = (began.offset - array.data_offset) / BLOCK_BYTES;
    checksums::is_right_at_once(array, began.device, first, buffer) == Some(true)
}

/// Go on with a read of `extent` that has begun.
///
/// # Errors
/// `Io` if a block cannot be read or reconstructed.
pub(super) async fn read(
    local: &Rc<LocalArray>,
    extent: Extent,
    begun: BegunRead,
) -> Result<BufMut, VolumeErrorKind> {
    match begun {
        BegunRead::Done(buffer) => Ok(buffer),
        BegunRead::Failed(kind) => Err(kind),
        BegunRead::One(started) => finish(local, started).await,
        BegunRead::Several(buffer) => read_parts(local, extent, buffer).await,
    }
}

async fn read_parts(
    local: &Rc<LocalArray>,
    extent: Extent,
    mut buffer: BufMut,
) -> Result<BufMut, VolumeErrorKind> {
    let mut started = local.pools.parts.list();
    for piece in local.array.layouts.cut(extent) {
        let strips = || {
            let runs = parts(&local.array, &piece);
            runs.fold(StripSet::EMPTY, |all, part| all.with(part.strip))
        };
        let slow = going_around(local, piece.stripe, strips);
        if !slow.is_empty() || !is_straight(local, &piece) {
            let target = buffer.split_to(to_usize(piece.extent.bytes));
            let missing = Missing { slow, ..Missing::default() };
            let reading = reconstruct(local, piece.stripe, piece.extent, target, missing);
            started.push(ReadPart::Under(Started::Reconstructing(reading)));
            continue;
        }
        for part in parts(&local.array, &piece) {
            let target = buffer.split_to(to_usize(part.extent.bytes));
            started.push(match start(local, part, target) {
                Ok(buffer) => ReadPart::Done(Ok(buffer)),
                Err(started) => ReadPart::Under(started),
            });
        }
    }
    // What is left of `buffer` is its empty end: parts are joined in front of it.
    drop(buffer);
    for part in started.iter_mut() {
        // Every part is waited for, also after one failed: nothing is left under way.
        match std::mem::replace(part, ReadPart::Taken) {
            ReadPart::Under(under) => *part = ReadPart::Done(finish(local, under).await),
            ended => *part = ended,
        }
    }
    let mut whole = Joined::default();
    for part in started.drain(..) {
        if let ReadPart::Done(result) = part {
            whole.push(result?);
        }
    }
    Ok(whole.finish(to_usize(extent.bytes)))
}

fn parts(array: &Array, piece: &layout::Piece) -> impl Iterator<Item = StripPart> + use<> {
    let stripe = piece.stripe;
    strips_of(array.geometry_of(stripe), piece.extent).map(move |run| StripPart {
        stripe,
        strip: run.strip,
        extent: run.extent,
    })
}

/// Strips that a read of `strips` goes around, for their members are slow. A mirror's copies are
/// chosen one read at a time instead.
#[inline]
fn going_around(local: &LocalArray, stripe: Stripe, strips: impl FnOnce() -> StripSet) -> StripSet {
    let array = &local.array;
    if !array.avoided.is_any() || array.geometry_of(stripe).data_strips() == 1 {
        return StripSet::EMPTY;
    }
    avoid::around(local, stripe, strips())
}

/// Whether nothing of the piece needs the stripe's owner. One strip that does makes all of it the
/// owner's: what the others hold is needed there too.
fn is_straight(local: &LocalArray, piece: &layout::Piece) -> bool {
    let array = &local.array;
    if !array.written.is_written(piece.stripe) {
        return true;
    }
    if !piece.extent.is_aligned_to(BLOCK_BYTES) {
        return false;
    }
    if array.room.has_torn() {
        return false;
    }
    if array.missing_slots() == 0 {
        return true;
    }
    let readable = array.view(piece.stripe).readable;
    let is_mirror = array.geometry_of(piece.stripe).data_strips() == 1;
    let has_copy = is_mirror && !readable.is_empty();
    has_copy || parts(array, piece).all(|part| readable.contains(part.strip))
}

/// Start to read a part: the buffer if it is filled at once, else what is under way.
#[inline]
fn start(local: &Rc<LocalArray>, part: StripPart, mut buffer: BufMut) -> Result<BufMut, Started> {
    let array = &local.array;
    if !array.written.is_written(part.stripe) {
        buffer.fill(0);
        return Ok(buffer);
    }
    let part = source(local, part);
    let is_aligned = part.extent.is_aligned_to(BLOCK_BYTES);
    let version = array.places_version();
    let place = array.readable_place(part.stripe, part.strip, 0);
    let place = place.filter(|_| is_aligned && !array.room.has_torn());
    let Some((member, strip_offset)) = place else {
        let reading = reconstruct_part(local, part, buffer, Missing::default());
        return Err(Started::Reconstructing(reading));
    };
    let offset = strip_offset + part.extent.offset;
    let Some((device, mut pending)) = local.start_named(member, offset, Command::Read(buffer))
    else {
        // The device was taken away between the two looks: the buffer went with the command.
        let buffer = BufMut::zeroed(to_usize(part.extent.bytes));
        let reading = reconstruct_part(local, part, buffer, Missing::default());
        return Err(Started::Reconstructing(reading));
    };
    let tally = local.tally(member);
    tally.begin_read(part.extent.bytes);
    local.counts().member_reads.add(1);
    let began = Began { at: local.worker.handle.turn_now(), offset, version, device };
    let Some(outcome) = pending.look() else {
        return Err(Started::Straight(part, Awaited::new(local, began), pending));
    };
    tally.end_read(began.at, began.at);
    match plain(local, &began, Some(outcome)) {
        Ok(buffer) if is_right_at_once(local, &began, &buffer) => Ok(buffer),
        brought => Err(Started::Answered(part, began, brought)),
    }
}

/// The part, on the strip to read it from. All copies of a mirror lie at the same offset, so they
/// take turns, except where they may differ after an unclean stop: there everybody reads the same
/// one.
fn source(local: &LocalArray, part: StripPart) -> StripPart {
    let array = &local.array;
    let geometry = array.geometry_of(part.stripe);
    if geometry.data_strips() > 1 || geometry.parity_strips() == 0 {
        return part;
    }
    let view = array.view(part.stripe);
    let copies = if view.is_parity_valid { view.readable } else { view.readable.lowest(1) };
    if copies.is_empty() {
        return part;
    }
    let copies = match array.avoided.is_any() {
        true => avoid::preferred(local, part.stripe, copies),
        false => copies,
    };
    let turn = to_usize(local.next_turn()) % copies.count();
    let strip = copies.iter().nth(turn).expect("turn is below the count");
    StripPart { strip, ..part }
}

fn reconstruct_part(
    local: &Rc<LocalArray>,
    part: StripPart,
    buffer: BufMut,
    missing: Missing,
) -> Pending<Answer> {
    let geometry = local.array.geometry_of(part.stripe);
    // Every copy of a mirror holds the stripe's data from its first byte on.
    let is_mirror = geometry.data_strips() == 1;
    let start = if is_mirror { 0 } else { to_u64(part.strip.at()) * geometry.strip_bytes() };
    let extent = Extent::new(start + part.extent.offset, part.extent.bytes);
    reconstruct(local, part.stripe, extent, buffer, missing)
}

fn reconstruct(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    extent: Extent,
    buffer: BufMut,
    missing: Missing,
) -> Pending<Answer> {
    local.counts().degraded_reads.add(1);
    let read = StripeRead { stripe, extent, buffer, missing };
    let owner = local.array.owner_of(stripe);
    local.worker.hand_to(owner, local, StripeWork::Reconstruct(read))
}

async fn finish(local: &Rc<LocalArray>, started: Started) -> Result<BufMut, VolumeErrorKind> {
    match started {
        Started::Reconstructing(pending) => data_of(pending.await),
        Started::Straight(part, awaited, pending) => {
            pin!(straight(local, part, awaited, pending)).await
        }
        Started::Answered(part, began, brought) => pin!(judged(local, part, began, brought)).await,
    }
}

fn data_of(answer: Option<Answer>) -> Result<BufMut, VolumeErrorKind> {
    match answer {
        Some(Answer::Data(buffer)) => Ok(buffer),
        Some(Answer::Failed(kind)) => Err(kind),
        Some(_) => unreachable!("a read answers with data"),
        None => Err(VolumeErrorKind::Stopped),
    }
}

async fn straight(
    local: &Rc<LocalArray>,
    part: StripPart,
    awaited: Awaited,
    pending: Pending<Outcome>,
) -> Result<BufMut, VolumeErrorKind> {
    let asked = local.worker.handle.turn_now();
    let outcome = before_deadline(local, part.stripe, pending).await;
    let began = awaited.began;
    note_end(local, &began, asked);
    drop(awaited);
    match plain(local, &began, outcome) {
        Ok(buffer) if is_right_at_once(local, &began, &buffer) => Ok(buffer),
        brought => judged(local, part, began, brought).await,
    }
}

/// The read has ended, or was given up on; it was awaited since `asked`.
#[inline]
fn note_end(local: &LocalArray, began: &Began, asked: Nanos) {
    let (tally, now) = (local.tally(began.device.member), local.worker.handle.turn_now());
    tally.read_latency.record_between(began.at, now);
    tally.timings.note_read(began.at, asked, now);
}

/// The buffer of a read that went well and is not in doubt.
///
/// # Errors
/// The outcome, for [`not_plain`].
#[inline]
fn plain(local: &LocalArray, began: &Began, outcome: Option<Option<Outcome>>) -> Brought {
    match outcome {
        Some(Some(Outcome { result: Ok(()), buffer: Some(buffer) }))
            if !is_doubtful(local, began) =>
        {
            Ok(buffer)
        }
        outcome => Err(outcome),
    }
}

/// What a read brought, held against its checksums; if it is not right, the part in another way.
async fn judged(
    local: &Rc<LocalArray>,
    part: StripPart,
    began: Began,
    brought: Brought,
) -> Result<BufMut, VolumeErrorKind> {
    match brought {
        Ok(buffer) => compared(local, part, began, buffer).await,
        // Boxed: rare, and it would make every read's future larger.
        Err(outcome) => Box::pin(not_plain(local, part, began, outcome)).await,
    }
}

/// Whether it may have crossed a write that met no room, or its place may have another use by now.
fn is_doubtful(local: &LocalArray, began: &Began) -> bool {
    local.array.room.has_torn() || local.array.places_version() != began.version
}

/// The part in another way: the read is in doubt although it went well, or the member did not
/// deliver.
async fn not_plain(
    local: &Rc<LocalArray>,
    part: StripPart,
    began: Began,
    outcome: Option<Option<Outcome>>,
) -> Result<BufMut, VolumeErrorKind> {
    let is_read = matches!(&outcome, Some(Some(Outcome { result: Ok(()), buffer: Some(_) })));
    match is_read || is_doubtful(local, &began) {
        true => elsewhere(local, part, Missing::default()).await,
        false => around(local, part, began, outcome).await,
    }
}

/// The buffer, if it is what was written. If it is not, or the read crossed a write, the stripe's
/// owner looks.
async fn compared(
    local: &Rc<LocalArray>,
    part: StripPart,
    began: Began,
    buffer: BufMut,
) -> Result<BufMut, VolumeErrorKind> {
    let array = &local.array;
    let first = (began.offset - array.data_offset) / BLOCK_BYTES;
    if sings(Canary::ReadUnverified) {
        return Ok(buffer);
    }
    match checksums::is_right(local, began.device, first, &buffer).await {
        Ok(true) => Ok(buffer),
        Ok(false) => {
            let broken = StripSet::only(part.strip);
            let missing = Missing { broken, ..Missing::default() };
            Box::pin(elsewhere(local, part, missing)).await
        }
        Err(fault) => {
            let outcome = Some(Some(Outcome { result: Err(fault), buffer: None }));
            Box::pin(around(local, part, began, outcome)).await
        }
    }
}

/// The member did not deliver: read around it.
async fn around(
    local: &Rc<LocalArray>,
    part: StripPart,
    began: Began,
    outcome: Option<Option<Outcome>>,
) -> Result<BufMut, VolumeErrorKind> {
    let member = began.device.member;
    let strip = StripSet::only(part.strip);
    let missing = match outcome {
        Some(Some(Outcome { result: Err(fault), .. })) => {
            read_failed(local, began.device, fault);
            match fault.kind {
                FaultKind::Media => Missing { broken: strip, ..Missing::default() },
                _ => Missing { failed: strip, ..Missing::default() },
            }
        }
        Some(_) => Missing { failed: strip, ..Missing::default() },
        None => {
            note_slow(local, member);
            Missing { slow: strip, ..Missing::default() }
        }
    };
    elsewhere(local, part, missing).await
}

/// The part, from the stripe's owner.
async fn elsewhere(
    local: &Rc<LocalArray>,
    part: StripPart,
    missing: Missing,
) -> Result<BufMut, VolumeErrorKind> {
    let buffer = BufMut::zeroed(to_usize(part.extent.bytes));
    data_of(reconstruct_part(local, part, buffer, missing).await)
}

/// The outcome, or `None` when the read deadline passes first and somebody else could serve the
/// read.
async fn before_deadline(
    local: &LocalArray,
    stripe: Stripe,
    mut pending: Pending<Outcome>,
) -> Option<Option<Outcome>> {
    // No timer for what is there by now: many reads of a busy ring are.
    if let Some(outcome) = pending.look() {
        return Some(outcome);
    }
    if local.array.geometry_of(stripe).parity_strips() == 0 {
        return Some(pending.await);
    }
    within(&local.worker.handle, local.array.tuning.read_deadline(), pending).await
}

/// Parts put back together: without a copy while they are neighbours in memory, which they are
/// unless a part had to be reconstructed elsewhere.
#[derive(Default)]
struct Joined {
    whole: Option<BufMut>,
    strays: Vec<BufMut>,
}

impl Joined {
    fn push(&mut self, part: BufMut) {
        if !self.strays.is_empty() {
            self.strays.push(part);
            return;
        }
        self.whole = match self.whole.take() {
            None => Some(part),
            Some(whole) => match whole.try_join(part) {
                Ok(whole) => Some(whole),
                Err((whole, part)) => {
                    self.strays.push(part);
                    Some(whole)
                }
            },
        };
    }

    fn finish(self, bytes: usize) -> BufMut {
        let whole = self.whole.expect("a read has parts");
        if self.strays.is_empty() {
            return whole;
        }
        let mut copy = BufMut::zeroed(bytes);
        let mut at = 0;
        for part in std::iter::once(whole).chain(self.strays) {
            copy[at..at + part.len()].copy_from_slice(&part);
            at += part.len();
        }
        copy
    }
}
