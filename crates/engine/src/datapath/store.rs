//! Write what a plan stores: data and parity strips, all in parallel, on the member and on the device
//! that is being filled to replace it.
//!
//! What must stay true: when this returns, every write has ended, well or badly; the caller learns which
//! members failed.

use super::rows::RowSet;
use super::write::Payload;
use crate::array::Tenure;
use crate::lists::List;
use crate::shard::Shard;
use ashlar_device::{Command, Fault, Outcome};
use ashlar_iobuf::Buf;
use ashlar_layout::{RowRange, StripIo, WritePlan};
use ashlar_ring::Pending;
use ashlar_units::{MemberIdx, Nanos, StripIdx, StripeNo, to_u64, to_usize};
use smallvec::SmallVec;
use std::rc::Rc;

/// Members that failed a write, each once, and on which of their devices.
pub(crate) type FailedMembers = SmallVec<[(MemberIdx, Tenure, Fault); 4]>;

/// One write under way.
pub(crate) type StoreWrite = (Target, Pending<Outcome>);

/// Writes under way.
pub(crate) struct Writes {
    started: List<StoreWrite>,
    began: Nanos,
}

/// Where a write goes.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    member: MemberIdx,
    tenure: Tenure,
    is_replacement: bool,
}

/// Carry out the writes of `plan`.
pub(super) async fn store(
    shard: &Rc<Shard>,
    stripe: StripeNo,
    plan: &WritePlan,
    payload: &Payload,
    mut parity: RowSet,
) -> FailedMembers {
    let data_strips = shard.array.geometry.data_strips();
    let mut writes = Writes::new(shard);
    for io in plan.writes().filter(|io| io.strip.at() < data_strips) {
        start_data(shard, stripe, (plan, io), payload, &mut writes);
    }
    for entry in parity.entries.drain(..) {
        writes.start(shard, (stripe, entry.strip, entry.rows.start), entry.bytes.freeze());
    }
    writes.finish(shard).await
}

/// Start the writes of one data strip: a run of rows from the request, or of zeros, each one I/O.
fn start_data(
    shard: &Shard,
    stripe: StripeNo,
    (plan, io): (&WritePlan, StripIo),
    payload: &Payload,
    writes: &mut Writes,
) {
    let mut run: Option<(RowRange, bool)> = None;
    let mut flush = |run: (RowRange, bool)| {
        let (rows, is_zero) = run;
        let bytes = to_usize(rows.bytes());
        let buffer = if is_zero {
            shard.worker.zeros.slice(0..bytes)
        } else {
            payload.shared(io.strip, rows)
        };
        writes.start(shard, (stripe, io.strip, rows.start), buffer);
    };
    for band in plan.bands() {
        let is_zero = band.zeroed.contains(io.strip);
        let is_stored = is_zero || band.written.contains(io.strip);
        let in_io = io.rows.start <= band.rows.start && band.rows.end <= io.rows.end;
        if !(is_stored && in_io) {
            continue;
        }
        run = match run {
            Some((rows, zero)) if zero == is_zero && rows.end == band.rows.start => {
                Some((rows.union(band.rows), zero))
            }
            before => {
                before.map(&mut flush);
                Some((band.rows, is_zero))
            }
        };
    }
    run.map(&mut flush);
}

impl Writes {
    /// None yet.
    pub(crate) fn new(shard: &Shard) -> Writes {
        Writes { started: shard.write_lists.list(), began: Nanos::default() }
    }

    /// Start writing `buffer` at a row of a strip, on the slot's device and on its replacement.
    pub(crate) fn start(
        &mut self,
        shard: &Shard,
        (stripe, strip, row): (StripeNo, StripIdx, u32),
        buffer: Buf,
    ) {
        let array = &shard.array;
        self.began = shard.worker.handle.turn_now();
        let member = array.member_of(stripe, strip);
        let offset = array.device_offset(stripe, strip, row);
        let (current, replacement) = shard.tenures(member);
        if let Some(device) = shard.replacement(member) {
            let pending = shard.start_on(device.as_ref(), offset, Command::Write(buffer.clone()));
            let target = Target { member, tenure: replacement, is_replacement: true };
            self.started.push((target, pending));
        }
        let counters = &array.slot(member).counters;
        counters.writes.add(1);
        counters.write_bytes.add(to_u64(buffer.len()));
        shard.counts().member_writes.add(1);
        // A slot whose device has just been taken away is out: its content is carried by parity, and
        // the slots that were left out are settled before the client is answered.
        if let Some(pending) = shard.start(member, offset, Command::Write(buffer)) {
            let target = Target { member, tenure: current, is_replacement: false };
            self.started.push((target, pending));
        }
    }

    /// Wait for all of them.
    pub(crate) async fn finish(mut self, shard: &Rc<Shard>) -> FailedMembers {
        let mut failed = FailedMembers::new();
        for (target, pending) in self.started.drain(..) {
            let result = match pending.await {
                Some(Outcome { result, .. }) => result,
                None => Err(Fault { kind: ashlar_device::FaultKind::Gone, errno: 0 }),
            };
            let slot = shard.array.slot(target.member);
            if !target.is_replacement {
                slot.counters.completed.add(1);
                slot.write_latency.record(shard.worker.handle.turn_now().since(self.began));
            }
            match result {
                Ok(()) => slot.set_unflushed(),
                Err(fault) if target.is_replacement => {
                    // Before the write is answered: were it made current first, it would lack the write.
                    let holder = (target.member, target.tenure);
                    crate::home::replacement_failed(shard, holder, fault.to_string()).await;
                }
                Err(fault) => {
                    slot.counters.write_errors.add(1);
                    if failed.iter().all(|(member, ..)| *member != target.member) {
                        failed.push((target.member, target.tenure, fault));
                    }
                }
            }
        }
        failed
    }
}
