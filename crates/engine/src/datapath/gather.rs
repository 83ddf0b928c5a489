//! Reads what a plan asks for: old rows of some strips, all at once.
//!
//! What must stay true: either all requested rows are there, or the caller learns which strips are
//! missing and plans again without them. A device that is gone takes its member out of service; an
//! unreadable block does not. A device that answers too late may still write into its buffer, so
//! that buffer does not come back.

use crate::blame::read_failed;
use crate::canary::{Canary, sings};
use crate::checksums;
use crate::event::names;
use crate::in_flight::MemberRead;
use crate::local_array::LocalArray;
use crate::rows::RowSet;
use crate::scratch::StripeBuffers;
use crate::slot::MemberDevice;
use crate::stripe::work::Missing;
use ashlar_device::{Command, FaultKind, Outcome};
use ashlar_iobuf::BufMut;
use ashlar_layout::{StripIo, Stripe};
use ashlar_ring::{Pending, Sleep, until};
use ashlar_units::{BLOCK_BYTES, MemberIdx, StripSet, to_usize};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

/// What came of a gather.
pub(crate) struct Gathered {
    /// What could be read.
    pub(crate) rows: RowSet,
    /// What could not.
    pub(crate) missing: Missing,
}

/// Read `ios` of `stripe` into `buffers` (one each, taken from its end, each at least as long).
///
/// # Errors
/// The strips that could not be read.
pub(crate) async fn gather(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    ios: impl Iterator<Item = StripIo>,
    buffers: &mut StripeBuffers,
) -> Result<RowSet, StripSet> {
    let (old, unreadable) = gather_each(local, stripe, ios, buffers).await;
    if unreadable.is_empty() { Ok(old) } else { Err(unreadable) }
}

/// The same, but what could be read comes back even if some strips could not.
pub(crate) async fn gather_each(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    ios: impl Iterator<Item = StripIo>,
    buffers: &mut StripeBuffers,
) -> (RowSet, StripSet) {
    let Gathered { rows, missing } = gather_within(local, stripe, ios, buffers, None).await;
    (rows, missing.all())
}

/// The same, giving up on members that take longer than `patience`, which is as long as it takes if
/// `None`.
pub(crate) async fn gather_within(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    ios: impl Iterator<Item = StripIo>,
    buffers: &mut StripeBuffers,
    patience: Option<Duration>,
) -> Gathered {
    let mut started = local.pools.reads.list();
    for io in ios {
        let mut buffer = buffers.pop().expect("one buffer for each read of the plan");
        buffer.truncate(to_usize(io.rows.bytes()));
        started.push((io, start_read(local, stripe, io, buffer)));
    }
    let handle = &local.worker.handle;
    let deadline = patience.map(|patience| handle.sleep_until(handle.turn_now().after(patience)));
    let mut deadline = pin!(deadline);
    let mut gathered =
        Gathered { rows: RowSet::new(&local.pools.rows), missing: Missing::default() };
    for (io, reading) in started.drain(..) {
        let missing = &mut gathered.missing;
        match await_read(local, reading, deadline.as_mut()).await {
            Ok(bytes) => gathered.rows.push(io.strip, io.rows, bytes),
            Err(NotRead::Broken) => missing.broken = missing.broken.with(io.strip),
            Err(NotRead::Failed) => missing.failed = missing.failed.with(io.strip),
            Err(NotRead::Slow) => missing.slow = missing.slow.with(io.strip),
        }
    }
    gathered
}

/// Why there is no content.
pub(super) enum NotRead {
    Broken,
    Failed,
    Slow,
}

fn start_read(
    local: &LocalArray,
    stripe: Stripe,
    io: StripIo,
    buffer: BufMut,
) -> Option<MemberRead> {
    let array = &local.array;
    // Since the plan was made another device may have come into the slot, with nothing on it yet.
    let (member, offset) = array.readable_place(stripe, io.strip, io.rows.start)?;
    let (device, pending) = local.start_named(member, offset, Command::Read(buffer))?;
    local.tally(member).begin_read(io.rows.bytes());
    local.counts().member_reads.add(1);
    Some(MemberRead { device, offset, began: local.worker.handle.turn_now(), pending })
}

async fn await_read(
    local: &Rc<LocalArray>,
    reading: Option<MemberRead>,
    deadline: Pin<&mut Option<Sleep>>,
) -> Result<BufMut, NotRead> {
    let Some(MemberRead { device, offset, began, pending }) = reading else {
        return Err(NotRead::Failed);
    };
    let member = device.member;
    let asked = local.worker.handle.turn_now();
    let answered = before(pending, deadline).await;
    local.tally(member).counters.completed.add(1);
    local.tally(member).timings.note_read(began, asked, local.worker.handle.turn_now());
    match answered {
        None => {
            note_slow(local, member);
            Err(NotRead::Slow)
        }
        Some(outcome) => {
            let bytes = judge(local, device, outcome)?;
            if local.array.checksums.is_none() || sings(Canary::GatherUnverified) {
                return Ok(bytes);
            }
            let block = (offset - local.array.data_offset) / BLOCK_BYTES;
            match checksums::is_right(local, device, block, &bytes).await {
                Ok(true) => Ok(bytes),
                Ok(false) => Err(NotRead::Broken),
                Err(fault) => {
                    read_failed(local, device, fault);
                    Err(NotRead::Failed)
                }
            }
        }
    }
}

/// What a read brought, before its checksum is looked at. A failure is held against its device.
pub(super) fn judge(
    local: &Rc<LocalArray>,
    device: MemberDevice,
    outcome: Option<Outcome>,
) -> Result<BufMut, NotRead> {
    let Some(Outcome { result, buffer }) = outcome else { return Err(NotRead::Failed) };
    match result {
        Ok(()) => buffer.ok_or(NotRead::Failed),
        Err(fault) => {
            read_failed(local, device, fault);
            let is_media = fault.kind == FaultKind::Media;
            Err(if is_media { NotRead::Broken } else { NotRead::Failed })
        }
    }
}

/// What `pending` brings, or `None` if the deadline passes first. What is there by then counts as
/// in time.
async fn before(
    pending: Pending<Outcome>,
    deadline: Pin<&mut Option<Sleep>>,
) -> Option<Option<Outcome>> {
    match deadline.as_pin_mut() {
        Some(deadline) => until(pending, deadline).await,
        None => Some(pending.await),
    }
}

/// A read of this member was given up on.
pub(super) fn note_slow(local: &LocalArray, member: MemberIdx) {
    local.tally(member).counters.slow_reads.add(1);
    local.array.record(names::MEMBER_READ_LATE, vec![("slot", member.to_string())]);
}
