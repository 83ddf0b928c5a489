//! Times some of the writes that a request waits for, so that members can be compared.

use crate::in_flight::StoreWrite;
use crate::local_array::LocalArray;
use ashlar_device::{Fault, Outcome};
use ashlar_ring::Pending;
use ashlar_units::Nanos;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

/// One in this many awaited writes of a worker is timed.
const TIMED_EVERY: u64 = 4;

/// Of more at once none is timed.
const WRITES_MAX: usize = 127;

/// Wait for all of these writes at once and time each, if it is their turn. The caller then finds
/// them answered.
pub(crate) async fn time_writes(local: &LocalArray, writes: &mut [StoreWrite], began: Nanos) {
    let turn = local.writes_awaited.replace(local.writes_awaited.get().wrapping_add(1));
    if !turn.is_multiple_of(TIMED_EVERY) || writes.len() > WRITES_MAX {
        return;
    }
    // One bit for each that is not answered yet.
    let mut left = (1u128 << writes.len()) - 1;
    poll_fn(|context| {
        for (at, write) in writes.iter_mut().enumerate() {
            if left & 1 << at != 0 && is_answered(local, write, began, context) {
                left &= !(1 << at);
            }
        }
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn is_answered(
    local: &LocalArray,
    (target, pending, _): &mut StoreWrite,
    began: Nanos,
    context: &mut Context<'_>,
) -> bool {
    let Poll::Ready(outcome) = Pin::new(&mut *pending).poll(context) else { return false };
    if let Some(member) = target.if_current() {
        let took = local.worker.handle.turn_now().since(began);
        local.tally(member).timings.writes.add(took);
    }
    let gone = || Outcome { result: Err(Fault::GONE), buffer: None };
    *pending = Pending::ready(outcome.unwrap_or_else(gone));
    true
}
