//! Read what a plan asks for: old rows of some strips, all at once.
//!
//! What must stay true: either every row asked for is there, or the caller learns which strips could
//! not be read and plans again without them. A device that is gone takes its member out of service; a
//! block that cannot be read does not.

use super::rows::RowSet;
use super::settle;
use crate::array::Tenure;
use crate::scratch::StripeBuffers;
use crate::shard::Shard;
use ashlar_device::{Command, Outcome};
use ashlar_iobuf::BufMut;
use ashlar_layout::StripIo;
use ashlar_ring::Pending;
use ashlar_units::{StripSet, StripeNo, to_usize};
use std::rc::Rc;

/// One read of a gather: under way, or not to be had.
pub(crate) type GatherRead = (StripIo, Option<Reading>);

/// A read under way, and on which of the slot's devices.
pub(crate) struct Reading {
    tenure: Tenure,
    pending: Pending<Outcome>,
}

/// Read `ios` of `stripe` into `buffers` (one each, taken from its end, each at least as long).
///
/// # Errors
/// The strips that could not be read.
pub(crate) async fn gather(
    shard: &Rc<Shard>,
    stripe: StripeNo,
    ios: impl Iterator<Item = StripIo>,
    buffers: &mut StripeBuffers,
) -> Result<RowSet, StripSet> {
    let (old, unreadable) = gather_each(shard, stripe, ios, buffers).await;
    if unreadable.is_empty() { Ok(old) } else { Err(unreadable) }
}

/// The same, but what could be read comes back even if some strips could not.
pub(crate) async fn gather_each(
    shard: &Rc<Shard>,
    stripe: StripeNo,
    ios: impl Iterator<Item = StripIo>,
    buffers: &mut StripeBuffers,
) -> (RowSet, StripSet) {
    let mut started = shard.read_lists.list();
    for io in ios {
        let mut buffer = buffers.pop().expect("one buffer for each read of the plan");
        buffer.truncate(to_usize(io.rows.bytes()));
        started.push((io, start_read(shard, stripe, io, buffer)));
    }
    let mut old = RowSet::new(shard);
    let mut unreadable = StripSet::EMPTY;
    for (io, reading) in started.drain(..) {
        match await_read(shard, stripe, io, reading).await {
            Some(bytes) => old.push(io.strip, io.rows, bytes),
            None => unreadable = unreadable.with(io.strip),
        }
    }
    (old, unreadable)
}

fn start_read(shard: &Shard, stripe: StripeNo, io: StripIo, buffer: BufMut) -> Option<Reading> {
    let array = &shard.array;
    let member = array.member_of(stripe, io.strip);
    // Since the plan was made another device may have come into the slot, with nothing on it yet.
    if !array.is_readable(stripe, member) {
        return None;
    }
    let counters = &array.slot(member).counters;
    counters.reads.add(1);
    counters.read_bytes.add(io.rows.bytes());
    shard.counts().member_reads.add(1);
    let offset = array.device_offset(stripe, io.strip, io.rows.start);
    let tenure = shard.tenures(member).0;
    let pending = shard.start(member, offset, Command::Read(buffer))?;
    Some(Reading { tenure, pending })
}

async fn await_read(
    shard: &Rc<Shard>,
    stripe: StripeNo,
    io: StripIo,
    reading: Option<Reading>,
) -> Option<BufMut> {
    let Reading { tenure, pending } = reading?;
    let member = shard.array.member_of(stripe, io.strip);
    let outcome = pending.await?;
    shard.array.slot(member).counters.completed.add(1);
    match outcome.result {
        Ok(()) => outcome.buffer,
        Err(fault) => {
            settle::read_failed(shard, (member, tenure), fault);
            None
        }
    }
}
