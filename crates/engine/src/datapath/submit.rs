//! Admits a request, cuts it at stripes, and has each piece done by the stripe's owner.
//!
//! What must stay true: a request is checked once, here. If it is refused, nothing of it starts.
//! All pieces are under way before the first is waited for. The answer is the first error. It is
//! given only when every piece has ended, so no piece still writes after the client learns of a
//! failure.

use super::flush;
use super::read::{self, BegunRead, read};
use super::written_stripes::{self, Looking, STRIPES_PER_TURN};
use crate::array::LocalCounters;
use crate::canary::{Canary, sings};
use crate::local_array::{LocalArray, UnderWay};
use crate::metrics::Latency;
use crate::room::patience;
use crate::stripe::work::{Answer, StripeWork, StripeWrite, StripeZero};
use ashlar_iobuf::Buf;
use ashlar_layout as layout;
use ashlar_ring::Pending;
use ashlar_units::{Extent, Nanos, to_usize};
use ashlar_volume::{Command, Reply, Request, VolumeError, VolumeErrorKind};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;

/// A request that has begun.
pub(crate) enum BegunRequest<'l> {
    /// It is done, or was refused.
    Answered(Result<Reply, VolumeError>),
    /// To be gone on with.
    Under(UnderRequest<'l>),
}

/// A request that was admitted and is not answered yet.
pub(crate) struct UnderRequest<'l> {
    extent: Extent,
    fua: bool,
    started: Nanos,
    rest: Rest,
    _under_way: UnderWay<'l>,
}

/// What is left to do.
enum Rest {
    Read(BegunRead),
    Write(BegunWrite),
    WriteZeroes,
    Discard,
    Flush,
}

/// A write that has begun.
enum BegunWrite {
    /// It is stored, and as durable as it must be.
    Done,
    /// Its one piece has ended.
    Ended(Result<(), VolumeErrorKind>),
    /// It has one piece, which is under way.
    One(Pending<Answer>),
    /// Nothing of it is under way.
    NotYet(Buf),
}

/// Begin one request of a client. What its members answer within this call takes no future.
#[inline]
pub(crate) fn begin(local: &Rc<LocalArray>, request: Request) -> BegunRequest<'_> {
    local.worker.load.requests.add(1);
    if let Err(refused) = admit(local, &request) {
        return BegunRequest::Answered(Err(refused));
    }
    // By the clock of the turn, which costs nothing to read: late by some microseconds at most.
    let started = local.worker.handle.turn_now();
    let under_way = local.begin();
    let Request { command, extent, fua } = request;
    let LocalCounters { counts, read_latency, write_latency, .. } = local.counters();
    let rest = match command {
        Command::Read(buffer) => {
            counts.reads.add(1);
            counts.read_bytes.add(extent.bytes);
            match read::begin(local, extent, buffer) {
                BegunRead::Done(buffer) => {
                    read_latency.record_between(started, started);
                    return BegunRequest::Answered(Ok(Reply::Data(buffer)));
                }
                begun => Rest::Read(begun),
            }
        }
        Command::Write(bytes) => {
            counts.writes.add(1);
            counts.write_bytes.add(extent.bytes);
            match begin_write(local, extent, bytes, fua) {
                BegunWrite::Done => {
                    write_latency.record_between(started, started);
                    return BegunRequest::Answered(Ok(Reply::Done));
                }
                begun => Rest::Write(begun),
            }
        }
        Command::WriteZeroes { .. } => Rest::WriteZeroes,
        Command::Discard => Rest::Discard,
        Command::Flush => Rest::Flush,
    };
    BegunRequest::Under(UnderRequest { extent, fua, started, rest, _under_way: under_way })
}

/// Go on with a request that has begun.
///
/// # Errors
/// As the volume contract says; the error names the request's whole extent.
pub(crate) async fn finish(
    local: &Rc<LocalArray>,
    request: UnderRequest<'_>,
) -> Result<Reply, VolumeError> {
    let UnderRequest { extent, fua, started, rest, _under_way } = request;
    let (counts, latency) = (local.counts(), latency_of(local.counters(), &rest));
    let result = match rest {
        Rest::Read(begun) => {
            // Pinned where it is: what is awaited by value is moved first.
            pin!(read(local, extent, begun)).await.map(Reply::Data)
        }
        Rest::Write(begun) => pin!(write(local, extent, begun, fua)).await,
        Rest::WriteZeroes => {
            counts.discards.add(1);
            let result = when_there_is_room(local, async {
                changed(local, extent, zero(local, extent).await, fua).await
            });
            Box::pin(result).await
        }
        Rest::Discard => {
            counts.discards.add(1);
            let result = Box::pin(discard(local, extent)).await;
            durable(local, result, fua).await
        }
        Rest::Flush => {
            counts.flushes.add(1);
            Box::pin(flush::flush(local)).await.map(|()| Reply::Done)
        }
    };
    latency.record_between(started, local.worker.handle.turn_now());
    result.map_err(|kind| {
        counts.errors.add(1);
        VolumeError::new(kind, extent)
    })
}

/// Where the time of such a request is counted.
fn latency_of<'l>(counters: &'l LocalCounters, rest: &Rest) -> &'l Latency {
    match rest {
        Rest::Read(_) => &counters.read_latency,
        Rest::Write(_) | Rest::WriteZeroes | Rest::Discard => &counters.write_latency,
        Rest::Flush => &counters.flush_latency,
    }
}

/// Begin a write of one piece that need not wait for room.
fn begin_write(local: &Rc<LocalArray>, extent: Extent, bytes: Buf, fua: bool) -> BegunWrite {
    let may_wait =
        local.array.room.waiting() != 0 || local.array.tuning.no_room_wait_max().is_some();
    let only = match local.array.layouts.cut(extent).next() {
        Some(piece) if !may_wait && piece.extent.bytes == extent.bytes => piece,
        _ => return BegunWrite::NotYet(bytes),
    };
    let stripe = only.stripe;
    let mut pending = hand_over(local, only, bytes);
    if sings(Canary::AnsweredBeforeStored) {
        return BegunWrite::Ended(Ok(()));
    }
    match pending.look() {
        None => BegunWrite::One(pending),
        Some(answer) => match done(answer) {
            Ok(()) if !fua && local.array.written.outlives_process(stripe) => BegunWrite::Done,
            result => BegunWrite::Ended(result),
        },
    }
}

/// Go on with a write that has begun.
async fn write(
    local: &Rc<LocalArray>,
    extent: Extent,
    begun: BegunWrite,
    fua: bool,
) -> Result<Reply, VolumeErrorKind> {
    match begun {
        BegunWrite::Done => Ok(Reply::Done),
        BegunWrite::Ended(result) => changed(local, extent, result, fua).await,
        BegunWrite::One(pending) => changed(local, extent, done(pending.await), fua).await,
        BegunWrite::NotYet(bytes) => match local.array.tuning.no_room_wait_max() {
            None => write_durably(local, extent, bytes, fua).await,
            Some(_) => Box::pin(write_in_time(local, extent, bytes, fua)).await,
        },
    }
}

/// A write of a client. While the array is paused, it waits before it takes anything.
async fn write_durably(
    local: &Rc<LocalArray>,
    extent: Extent,
    bytes: Buf,
    fua: bool,
) -> Result<Reply, VolumeErrorKind> {
    if local.array.room.waiting() != 0 {
        Box::pin(patience::admitted(&local.array, &local.worker.handle)).await?;
    }
    let result = write_pieces(local, extent, bytes).await;
    changed(local, extent, result, fua).await
}

/// The reply to a change, once it is as durable as it must be.
async fn changed(
    local: &Rc<LocalArray>,
    extent: Extent,
    result: Result<(), VolumeErrorKind>,
    fua: bool,
) -> Result<Reply, VolumeErrorKind> {
    let fua = fua || !outlives_process(local, extent).await;
    durable(local, result, fua).await
}

/// The same, waiting for room as long as configured.
async fn write_in_time(
    local: &Rc<LocalArray>,
    extent: Extent,
    bytes: Buf,
    fua: bool,
) -> Result<Reply, VolumeErrorKind> {
    let write = write_durably(local, extent, bytes, fua);
    patience::answered_in_time(&local.array, &local.worker.handle, write).await
}

/// A change of a client. While the array is paused for lack of space, it waits before it takes
/// anything, at most for the configured time.
async fn when_there_is_room(
    local: &LocalArray,
    write: impl Future<Output = Result<Reply, VolumeErrorKind>>,
) -> Result<Reply, VolumeErrorKind> {
    let (array, handle) = (&local.array, &local.worker.handle);
    patience::answered_in_time(array, handle, async {
        patience::admitted(array, handle).await?;
        write.await
    })
    .await
}

#[inline]
fn admit(local: &LocalArray, request: &Request) -> Result<(), VolumeError> {
    let refuse = |kind| Err(VolumeError::new(kind, request.extent));
    if local.array.is_stopping() {
        return refuse(VolumeErrorKind::Stopped);
    }
    if request.command.is_change() && local.array.is_read_only() {
        return refuse(VolumeErrorKind::ReadOnly);
    }
    local.facts.admit(request)?;
    // While the array grows, the geometry has stripes that the volume has not.
    let is_open = request.extent.end() <= local.array.volume_bytes();
    if is_open { Ok(()) } else { refuse(VolumeErrorKind::BadExtent) }
}

/// Whether a start after this process was killed would find every stripe of the extent written or
/// unwritten as it is now. If not, the change is answered after a flush, as if the client had asked
/// for one. The client may outlive this process, connect to the next, and rely on the answer. (A
/// discard may be undone until it is flushed.)
async fn outlives_process(local: &LocalArray, extent: Extent) -> bool {
    let (epoch, numbers) = local.array.layouts.touched(extent);
    if numbers.end - numbers.start > STRIPES_PER_TURN {
        return Box::pin(written_stripes::outlive_process(local, (epoch, numbers))).await;
    }
    local.array.written_of(epoch).outlives_process_in(numbers)
}

async fn durable(
    local: &Rc<LocalArray>,
    result: Result<(), VolumeErrorKind>,
    fua: bool,
) -> Result<Reply, VolumeErrorKind> {
    result?;
    if fua && !sings(Canary::FuaIgnored) {
        Box::pin(flush::flush(local)).await?;
    }
    Ok(Reply::Done)
}

async fn write_pieces(
    local: &Rc<LocalArray>,
    extent: Extent,
    bytes: Buf,
) -> Result<(), VolumeErrorKind> {
    let mut under_way = local.pools.answers.list();
    for piece in local.array.layouts.cut(extent) {
        let start = to_usize(piece.request_offset);
        let bytes = bytes.slice(start..start + to_usize(piece.extent.bytes));
        under_way.push(hand_over(local, piece, bytes));
    }
    drop(bytes);
    if sings(Canary::AnsweredBeforeStored) {
        return Ok(());
    }
    all_done(&mut under_way).await
}

/// Have a piece of a write done by the stripe's owner: always by a stripe task, never in the
/// caller's own. A client that goes away drops its future, and a write that ends between its data
/// and its parity would leave the stripe torn.
#[inline]
fn hand_over(local: &Rc<LocalArray>, piece: layout::Piece, bytes: Buf) -> Pending<Answer> {
    let part = StripeWrite { stripe: piece.stripe, extent: piece.extent, bytes };
    let owner = local.array.owner_of(piece.stripe);
    local.worker.hand_to(owner, local, StripeWork::Write(part))
}

async fn zero(local: &Rc<LocalArray>, extent: Extent) -> Result<(), VolumeErrorKind> {
    trim_pieces(local, extent, |_| true).await
}

/// Only whole stripes are given back: a discard is advice, and zeroing parts would be work.
async fn discard(local: &Rc<LocalArray>, extent: Extent) -> Result<(), VolumeErrorKind> {
    let array = &local.array;
    let is_whole = |piece: &layout::Piece| {
        piece.extent.bytes == array.geometry_of(piece.stripe).stripe_bytes()
    };
    trim_pieces(local, extent, is_whole).await
}

/// A discard of the whole volume has millions of pieces: keep some hundred under way, and let
/// others have a turn.
const TRIMS_UNDER_WAY: usize = 256;

async fn trim_pieces(
    local: &Rc<LocalArray>,
    extent: Extent,
    is_wanted: impl Fn(&layout::Piece) -> bool,
) -> Result<(), VolumeErrorKind> {
    let mut under_way = local.pools.answers.list();
    let (_, Range { start: mut from, end }) = local.array.layouts.touched(extent);
    // What was never written is zeros already.
    let mut looking = Looking::new(local);
    while let Some(number) = looking.next(true, from..end).await {
        from = number.0 + 1;
        let piece = local.array.layouts.piece_of(extent, number);
        let Some(layout::Piece { stripe, extent, .. }) = piece.filter(&is_wanted) else { continue };
        let owner = local.array.owner_of(stripe);
        let work = StripeWork::Zero(StripeZero { stripe, extent });
        under_way.push(local.worker.hand_to(owner, local, work));
        if under_way.len() == TRIMS_UNDER_WAY {
            all_done(&mut under_way).await?;
            local.worker.handle.yield_now().await;
        }
    }
    all_done(&mut under_way).await
}

async fn all_done(under_way: &mut Vec<Pending<Answer>>) -> Result<(), VolumeErrorKind> {
    let mut result = Ok(());
    for pending in under_way.drain(..) {
        let one = done(pending.await);
        result = result.and(one);
    }
    result
}

fn done(answer: Option<Answer>) -> Result<(), VolumeErrorKind> {
    match answer {
        Some(Answer::Done) => Ok(()),
        Some(Answer::Failed(kind)) => Err(kind),
        Some(_) => unreachable!("a change answers done"),
        None => Err(VolumeErrorKind::Stopped),
    }
}
