//! A read that cannot be served straight from its member: on the stripe's owner, under the row lock, from
//! the survivors.
//!
//! What must stay true: what is returned was either read from the block's own member or computed from k
//! strips that were all read under one row lock and whose parity is trusted; otherwise the answer is an
//! error. After a media error the block is written back, so that the next read finds it whole.

use super::gather::gather;
use super::settle::{block_lost, settle};
use super::store::Writes;
use crate::event::names;
use crate::scratch::StripeBuffers;
use crate::shard::Shard;
use crate::stripe::lock::Hold;
use ashlar_iobuf::{Buf, BufMut};
use ashlar_layout::{RowRange, StripIo, plan_decode};
use ashlar_parity::Locality;
use ashlar_units::{BLOCK_BYTES, Extent, StripIdx, StripSet, StripeNo, to_usize};
use ashlar_volume::VolumeErrorKind;
use smallvec::SmallVec;
use std::rc::Rc;

/// Part of one data strip to be read. `extent` is bytes within the strip, as long as `buffer`.
pub(crate) struct StripRead {
    pub(crate) stripe: StripeNo,
    pub(crate) strip: StripIdx,
    pub(crate) extent: Extent,
    pub(crate) buffer: BufMut,
    /// Why it cannot be read straight.
    pub(crate) because: Because,
}

/// Why a strip is not read from its own member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Because {
    /// Its member is out, or not filled yet.
    MemberMissing,
    /// Its member could not read the block: to be repaired.
    ReadFailed,
    /// Its member takes too long.
    MemberSlow,
}

/// Read part of a strip from whatever holds it.
///
/// # Errors
/// `Io` if too few strips can be read, or parity is not trusted after an unclean stop.
pub(crate) async fn read_strip(
    shard: &Rc<Shard>,
    read: StripRead,
) -> Result<BufMut, VolumeErrorKind> {
    let wide = read.extent.widened_to(BLOCK_BYTES);
    let row = |offset: u64| u32::try_from(offset / BLOCK_BYTES).expect("a strip has few rows");
    let rows = RowRange::new(row(wide.offset), row(wide.end()));
    let hold = if read.because == Because::ReadFailed { Hold::Exclusive } else { Hold::Shared };
    let _rows = shard.locks.lock(read.stripe, rows, hold).await;
    let avoid = match read.because {
        Because::MemberMissing => StripSet::EMPTY,
        Because::ReadFailed | Because::MemberSlow => StripSet::only(read.strip),
    };
    let found = rows_under_lock(shard, (read.stripe, read.strip, rows), avoid).await?;
    if read.because == Because::ReadFailed && found.was_decoded {
        write_back(shard, (read.stripe, read.strip, rows), &found.bytes).await;
    }
    let mut buffer = read.buffer;
    let start = to_usize(read.extent.offset - wide.offset);
    buffer.copy_from_slice(&found.bytes[start..start + to_usize(read.extent.bytes)]);
    Ok(buffer)
}

/// Rows of a data strip, from its member or the survivors. The caller holds the rows' lock.
///
/// # Errors
/// As [`read_strip`].
pub(crate) async fn read_rows(
    shard: &Rc<Shard>,
    stripe: StripeNo,
    strip: StripIdx,
    rows: RowRange,
) -> Result<BufMut, VolumeErrorKind> {
    Ok(rows_under_lock(shard, (stripe, strip, rows), StripSet::EMPTY).await?.bytes)
}

struct Found {
    bytes: BufMut,
    was_decoded: bool,
    _leave: Option<crate::scratch::Leave>,
}

async fn rows_under_lock(
    shard: &Rc<Shard>,
    (stripe, strip, rows): (StripeNo, StripIdx, RowRange),
    avoid: StripSet,
) -> Result<Found, VolumeErrorKind> {
    let array = &shard.array;
    let bytes = to_usize(rows.bytes());
    let mut unreadable = avoid;
    loop {
        if !array.written.is_written(stripe) {
            let (mut buffers, leave) = shard.scratch.take(1, bytes).await;
            let mut zeros = buffers.pop().expect("one was taken");
            zeros.fill(0);
            return Ok(Found { bytes: zeros, was_decoded: false, _leave: Some(leave) });
        }
        let view = array.view(stripe).rebuilding(unreadable);
        let is_direct = view.readable.contains(strip);
        let survivors = if is_direct {
            StripSet::only(strip)
        } else {
            plan_decode(&array.geometry, StripSet::only(strip), &view)
                .map_err(|_| block_lost(shard, stripe))?
        };
        let (mut buffers, leave) = shard.scratch.take(survivors.count() + 1, bytes).await;
        let ios = survivors.iter().map(|strip| StripIo { strip, rows });
        match gather(shard, stripe, ios, &mut buffers).await {
            Err(strips) => unreadable = unreadable.or(strips),
            Ok(mut old) if is_direct => {
                let bytes = old.entries.pop().expect("one strip was read").bytes;
                return Ok(Found { bytes, was_decoded: false, _leave: Some(leave) });
            }
            Ok(old) => {
                let bytes = decode_one(shard, (survivors, strip, rows), &old, &mut buffers);
                return Ok(Found { bytes, was_decoded: true, _leave: Some(leave) });
            }
        }
    }
}

/// Compute `strip` from the gathered survivors, into one of `buffers`.
pub(crate) fn decode_one(
    shard: &Shard,
    (survivors, strip, rows): (StripSet, StripIdx, RowRange),
    old: &super::rows::RowSet,
    buffers: &mut StripeBuffers,
) -> BufMut {
    let mut target = buffers.pop().expect("one buffer more than survivors");
    target.truncate(to_usize(rows.bytes()));
    let cached = shard.decode_plan(survivors, StripSet::only(strip));
    let is_source = |strip: &StripIdx| cached.plan.sources().contains(strip.at());
    let sources: SmallVec<[&[u8]; 24]> =
        survivors.iter().filter(is_source).map(|strip| old.slice(strip, rows)).collect();
    cached
        .plan
        .run(&sources, &mut [&mut target[..]], Locality::Cached)
        .expect("slices of one read are equally long");
    target
}

/// Store a reconstructed block where it could not be read. If that fails too the member goes out.
pub(crate) async fn write_back(
    shard: &Rc<Shard>,
    (stripe, strip, rows): (StripeNo, StripIdx, RowRange),
    content: &[u8],
) {
    // Not from the pool: who calls may hold buffers of it, and must not wait for more. This is rare.
    let mut writes = Writes::new(shard);
    writes.start(shard, (stripe, strip, rows.start), Buf::copied(content));
    let failed = writes.finish(shard).await;
    let member = shard.array.member_of(stripe, strip);
    let fields = vec![("slot", member.to_string()), ("stripe", stripe.to_string())];
    if failed.is_empty() {
        let blocks = u64::from(rows.blocks());
        shard.counts().repaired_blocks.add(blocks);
        shard.array.slot(member).counters.repaired_blocks.add(blocks);
        shard.array.record(names::MEMBER_BLOCK_REPAIRED, fields);
    } else {
        shard.array.record(names::MEMBER_BLOCK_UNREPAIRED, fields);
        // The read itself succeeded; that the member is out is recorded all the same.
        let _recorded = settle(shard, failed).await;
    }
}
