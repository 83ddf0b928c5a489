//! Passes discards of clients on to the members: holes in files, trimmed cells of drives.
//!
//! What must stay true:
//! - The members get a discard only after they have durably recorded the stripe as unwritten. Until
//!   then a crash would find it written, with parity that disagrees.
//! - The discard runs under the stripe's row lock, so that no first write meets it.
//! - Only devices that read zeros afterwards get it. A read that was under way when the client
//!   discarded the stripe then finds the old content or zeros.
//!
//! Nobody reads the members of an unwritten stripe. So it does not matter which members carried out
//! the discard, and a fault is ignored. The first write of a stripe stores all of it. Not here:
//! what makes a stripe unwritten (`datapath/trim.rs`).

use crate::array::Array;
use crate::local_array::LocalArray;
use crate::stripe::lock::{Hold, RowGuard};
use crate::stripe::work::{Run, StripeWork};
use crate::written::{Look, Stint};
use ashlar_device::Command;
use ashlar_layout::{RowRange, Stripe, StripeId};
use ashlar_units::{Extent, MemberIdx, StripeNo};
use std::rc::Rc;

/// Stripes that are given back together, so that a device gets one long extent instead of many
/// short ones.
const RUN_STRIPES: u64 = 64;

/// A flush has ended: what has become durable by it may go. Returns at once.
pub(crate) fn give_back_soon(local: &Rc<LocalArray>) {
    let jobs = &local.coordinator().jobs;
    if !local.array.written.has_given_back() || local.array.is_stopping() {
        return;
    }
    if !jobs.is_giving_back.replace(true) {
        super::spawn(local, async |local: Rc<LocalArray>| {
            give_back(&local).await;
            local.coordinator().jobs.is_giving_back.set(false);
        });
    }
}

/// One run after the other, so that clients' commands get between.
async fn give_back(local: &Rc<LocalArray>) {
    let array = &local.array;
    let (mut from, mut turn) = (StripeNo(0), Stint::new());
    loop {
        let first = match array.written.look_for_given_back(from.0..u64::MAX, &mut turn) {
            Look::Found(first) => first,
            Look::Nothing => return,
            Look::GoesOn(next) => {
                from = next;
                local.worker.handle.yield_now().await;
                turn = Stint::new();
                continue;
            }
        };
        if array.is_stopping() {
            return;
        }
        let run = run_from(&local.array, first);
        from = run.end;
        let owner = array.owner_of(array.layouts.stripe(run.first));
        // Nothing is lost with a worker that has let the array go.
        let _done = local.worker.hand_to(owner, local, StripeWork::GiveBack(run)).await;
    }
}

fn run_from(array: &Array, first: StripeNo) -> Run {
    let id = StripeId::new(array.written.epoch(), first);
    let owner_of = |number| array.owner_of(array.layouts.stripe(id.at(number)));
    let owner = owner_of(first);
    let mut end = StripeNo(first.0 + 1);
    while end.0 - first.0 < RUN_STRIPES
        && array.written.look_for_given_back(end.0..end.0 + 1, &mut Stint::new())
            == Look::Found(end)
        && owner_of(end) == owner
    {
        end = StripeNo(end.0 + 1);
    }
    Run { first: id, end }
}

/// The owner's part.
pub(crate) async fn take(local: &Rc<LocalArray>, run: Run) {
    let array = &local.array;
    let geometry = &array.layouts.of(run.first.epoch()).geometry;
    let all = RowRange::new(0, geometry.strip_blocks());
    // Where a strip lies may change before such a command ends.
    if array.spare_cells.as_ref().is_some_and(|cells| cells.has_losses()) {
        return;
    }
    // Locked in rising order and by nobody else more than one at a time: no two can wait for each
    // other.
    let mut held: Vec<RowGuard> = Vec::new();
    let mut extents: Vec<(MemberIdx, Extent)> = Vec::new();
    for number in (run.first.number().0..run.end.0).map(StripeNo) {
        let stripe = geometry.stripe(number);
        let guard = local.locks.lock(stripe.id(), all, Hold::Exclusive).await;
        // It may have been written since, or given back once more, and that is not durable yet.
        if array.written.take_given_back(stripe) {
            held.push(guard);
            note_extents(&local.array, stripe, &mut extents);
        }
    }
    discard(local, &extents).await;
}

fn note_extents(array: &Array, stripe: Stripe, extents: &mut Vec<(MemberIdx, Extent)>) {
    let geometry = array.geometry_of(stripe);
    let bytes = geometry.strip_bytes();
    for strip in geometry.all_strips().iter() {
        let (member, offset) = array.place(stripe, strip, 0);
        let before = extents.iter_mut().find(|(other, it)| *other == member && it.end() == offset);
        match before {
            Some((_, extent)) => extent.bytes += bytes,
            None => extents.push((member, Extent::new(offset, bytes))),
        }
    }
}

async fn discard(local: &Rc<LocalArray>, extents: &[(MemberIdx, Extent)]) {
    let mut under_way = Vec::new();
    for (member, extent) in extents {
        let devices = [local.device(*member), local.replacement(*member)];
        let fit = devices.into_iter().flatten().filter(|it| it.facts().discard_reads_zeros);
        for device in fit {
            let command = Command::Discard { bytes: extent.bytes };
            let pending = local.start_on(device.as_ref(), extent.offset, command);
            under_way.push((extent.bytes, pending));
        }
    }
    for (bytes, pending) in under_way {
        if pending.await.is_some_and(|outcome| outcome.result.is_ok()) {
            local.counts().discarded_bytes.add(bytes);
        }
    }
}
