//! Admits a request, cuts it at stripes, and has each piece done by the stripe's owner.
//!
//! What must stay true: a request is checked once, here. If it is refused, nothing of it starts.
//! All pieces are under way before the first is waited for. The answer is the first error. It is
//! given only when every piece has ended, so no piece still writes after the client learns of a
//! failure.

use super::read::{self, BegunRead, read};
use super::{flush, trim};
use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::local_array::LocalArray;
use crate::room::patience;
use crate::stripe::work::{Answer, StripeWork, StripeWrite, StripeZero};
use ashlar_iobuf::Buf;
use ashlar_layout as layout;
use ashlar_ring::Pending;
use ashlar_units::{Extent, to_usize};
use ashlar_volume::{Command, Reply, Request, VolumeError, VolumeErrorKind};
use std::pin::pin;
use std::rc::Rc;

/// Carry out one request of a client.
///
/// # Errors
/// As the volume contract says; the error names the request's whole extent.
pub(crate) async fn submit(local: &Rc<LocalArray>, request: Request) -> Result<Reply, VolumeError> {
    let extent = request.extent;
    // By the clock of the turn, which costs nothing to read: late by some microseconds at most.
    let started = local.worker.handle.turn_now();
    let _under_way = local.begin();
    local.worker.load.requests.add(1);
    admit(local, &request)?;
    let counters = &local.array.counters[local.worker.index];
    let (counts, fua) = (&counters.counts, request.fua);
    let (result, latency) = match request.command {
        Command::Read(buffer) => {
            counts.reads.add(1);
            counts.read_bytes.add(extent.bytes);
            let result = match read::begin(local, extent, buffer) {
                BegunRead::Done(buffer) => Ok(buffer),
                // Pinned where it is: what is awaited by value is moved first.
                begun => pin!(read(local, extent, begun)).await,
            };
            (result.map(Reply::Data), &counters.read_latency)
        }
        Command::Write(bytes) => {
            counts.writes.add(1);
            counts.write_bytes.add(extent.bytes);
            let result = match local.array.tuning.no_room_wait_max() {
                None => write_durably(local, extent, bytes, fua).await,
                Some(_) => Box::pin(write_in_time(local, extent, bytes, fua)).await,
            };
            (result, &counters.write_latency)
        }
        Command::WriteZeroes { .. } => {
            counts.discards.add(1);
            let result = when_there_is_room(local, async {
                let result = zero(local, extent).await;
                let fua = fua || !outlives_process(&local.array, extent);
                durable(local, result, fua).await
            });
            (Box::pin(result).await, &counters.write_latency)
        }
        Command::Discard => {
            counts.discards.add(1);
            let result = Box::pin(discard(local, extent)).await;
            (durable(local, result, fua).await, &counters.write_latency)
        }
        Command::Flush => {
            counts.flushes.add(1);
            (Box::pin(flush::flush(local)).await.map(|()| Reply::Done), &counters.flush_latency)
        }
    };
    latency.record(local.worker.handle.turn_now().since(started));
    result.map_err(|kind| {
        counts.errors.add(1);
        VolumeError::new(kind, extent)
    })
}

/// A write of a client. While the array is paused, it waits before it takes anything. Without a
/// future in a future where that can be: each level would be moved with all that is in it.
async fn write_durably(
    local: &Rc<LocalArray>,
    extent: Extent,
    bytes: Buf,
    fua: bool,
) -> Result<Reply, VolumeErrorKind> {
    if local.array.room.waiting() != 0 {
        Box::pin(patience::admitted(&local.array, &local.worker.handle)).await?;
    }
    let result = write(local, extent, bytes).await;
    let fua = fua || !outlives_process(&local.array, extent);
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
fn outlives_process(array: &Array, extent: Extent) -> bool {
    let (epoch, numbers) = array.layouts.touched(extent);
    array.written_of(epoch).outlives_process_in(numbers)
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

async fn write(local: &Rc<LocalArray>, extent: Extent, bytes: Buf) -> Result<(), VolumeErrorKind> {
    // Always by a stripe task, never in the caller's own: a client that goes away drops its future,
    // and a write that ends between its data and its parity would leave the stripe torn.
    let mut pieces = local.array.layouts.cut(extent);
    let Some(first) = pieces.next() else { return Ok(()) };
    if first.extent.bytes == extent.bytes {
        let pending = hand_over(local, first, bytes);
        if sings(Canary::AnsweredBeforeStored) {
            return Ok(());
        }
        return done(pending.await);
    }
    let mut under_way = local.pools.answers.list();
    for piece in std::iter::once(first).chain(pieces) {
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

/// Have a piece of a write done by the stripe's owner.
fn hand_over(local: &Rc<LocalArray>, piece: layout::Piece, bytes: Buf) -> Pending<Answer> {
    let part = StripeWrite { stripe: piece.stripe, extent: piece.extent, bytes };
    let owner = local.array.owner_of(piece.stripe);
    local.worker.hand_to(owner, local, StripeWork::Write(part))
}

async fn zero(local: &Rc<LocalArray>, extent: Extent) -> Result<(), VolumeErrorKind> {
    let pieces = local.array.layouts.cut(extent);
    trim_pieces(
        local,
        pieces.map(|piece| StripeZero { stripe: piece.stripe, extent: piece.extent }),
    )
    .await
}

/// Only whole stripes are given back: a discard is advice, and zeroing parts would be work.
async fn discard(local: &Rc<LocalArray>, extent: Extent) -> Result<(), VolumeErrorKind> {
    let array = &local.array;
    let is_whole = |piece: &layout::Piece| {
        piece.extent.bytes == array.geometry_of(piece.stripe).stripe_bytes()
    };
    let whole = array
        .layouts
        .cut(extent)
        .filter(is_whole)
        .map(|piece| StripeZero { stripe: piece.stripe, extent: piece.extent });
    trim_pieces(local, whole).await
}

/// A discard of the whole volume has millions of pieces: keep some hundred under way.
const TRIMS_UNDER_WAY: usize = 256;

async fn trim_pieces(
    local: &Rc<LocalArray>,
    pieces: impl Iterator<Item = StripeZero>,
) -> Result<(), VolumeErrorKind> {
    let mut under_way = local.pools.answers.list();
    for piece in pieces {
        if trim::is_zero_already(&local.array, &piece) {
            continue;
        }
        let owner = local.array.owner_of(piece.stripe);
        under_way.push(local.worker.hand_to(owner, local, StripeWork::Zero(piece)));
        if under_way.len() == TRIMS_UNDER_WAY {
            all_done(&mut under_way).await?;
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
        Some(Answer::Data(_) | Answer::Stepped(_)) => unreachable!("a change answers done"),
        None => Err(VolumeErrorKind::Stopped),
    }
}
