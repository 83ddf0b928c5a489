//! Read what a plan asks for: old rows of some strips, all at once.
//!
//! What must stay true: either every row asked for is there, or the caller learns which strips could
//! not be read and plans again without them. A device that is gone takes its member out of service; a
//! block that cannot be read does not.

use super::rows::RowSet;
use super::settle;
use crate::scratch::StripeBuffers;
use crate::shard::Shard;
use ashlar_device::{Command, Outcome};
use ashlar_iobuf::BufMut;
use ashlar_layout::StripIo;
use ashlar_ring::Pending;
use ashlar_units::{StripSet, StripeNo, to_usize};
use smallvec::SmallVec;
use std::rc::Rc;

type Started = SmallVec<[(StripIo, Option<Pending<Outcome>>); 24]>;

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
    let mut started = Started::new();
    for io in ios {
        let mut buffer = buffers.pop().expect("one buffer for each read of the plan");
        buffer.truncate(to_usize(io.rows.bytes()));
        started.push((io, start_read(shard, stripe, io, buffer)));
    }
    let mut old = RowSet::default();
    let mut unreadable = StripSet::EMPTY;
    for (io, pending) in started {
        match await_read(shard, stripe, io, pending).await {
            Some(bytes) => old.push(io.strip, io.rows, bytes),
            None => unreadable = unreadable.with(io.strip),
        }
    }
    if unreadable.is_empty() { Ok(old) } else { Err(unreadable) }
}

fn start_read(
    shard: &Shard,
    stripe: StripeNo,
    io: StripIo,
    buffer: BufMut,
) -> Option<Pending<Outcome>> {
    let array = &shard.array;
    let member = array.member_of(stripe, io.strip);
    let counters = &array.slot(member).counters;
    counters.reads.add(1);
    counters.read_bytes.add(io.rows.bytes());
    shard.counts().member_reads.add(1);
    let offset = array.device_offset(stripe, io.strip, io.rows.start);
    shard.start(member, offset, Command::Read(buffer))
}

async fn await_read(
    shard: &Rc<Shard>,
    stripe: StripeNo,
    io: StripIo,
    pending: Option<Pending<Outcome>>,
) -> Option<BufMut> {
    let slot = shard.array.slot(shard.array.member_of(stripe, io.strip));
    let outcome = pending?.await?;
    slot.counters.completed.add(1);
    match outcome.result {
        Ok(()) => outcome.buffer,
        Err(fault) => {
            let member = shard.array.member_of(stripe, io.strip);
            settle::read_failed(shard, member, fault);
            None
        }
    }
}
