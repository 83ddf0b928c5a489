//! The way of records of whole stripes that are written before their writes come: for which
//! stripes, and how they end.
//!
//! What must stay true: the rules of `ahead.rs`. A stripe gets an early record only if its next
//! write, as a whole stripe, would need exactly that record. Its rows stay locked until the record
//! is durable.

use super::Log;
use super::places::Numbered;
use crate::blame::{FailedMembers, take_out_failed};
use crate::local_array::LocalArray;
use crate::log::update::NewUpdate;
use crate::log::updates::{Update, blame_failed};
use ashlar_layout::{RowRange, Stripe};
use ashlar_ondisk::log::RecordKind;
use ashlar_units::StripeNo;
use std::ops::Range;
use std::rc::Rc;

impl Log {
    /// The record of a whole stripe that is to be written on an array that lacks nothing, if it was
    /// written early. If the stripe continues a stream, records of those that follow are on their
    /// way when this returns.
    pub(crate) fn take_ahead(&self, local: &Rc<LocalArray>, stripe: Stripe) -> Option<Update> {
        let wanted = self.ahead.borrow_mut().wanted(stripe.id());
        if let Some(numbers) = wanted {
            self.write_ahead(local, stripe, numbers);
        }
        let newest = self.newest(stripe, Numbered::Record);
        let taken = self.ahead.borrow_mut().take(stripe.id(), newest)?;
        match taken {
            Ok(body) => Some(Update { local: Rc::clone(local), body: Some(body) }),
            Err(body) => {
                self.recycle(body);
                None
            }
        }
    }

    /// Number records of whole stripes, as many of the wanted ones of the geometry of `first` as
    /// have a place without waiting, and see them on their way.
    fn write_ahead(&self, local: &Rc<LocalArray>, first: Stripe, numbers: Range<u64>) {
        let array = &self.common.array;
        let geometry = array.geometry_of(first);
        let rows = RowRange::new(0, geometry.strip_blocks());
        let (mut bodies, mut held_rows) = (Vec::new(), Vec::new());
        for number in numbers.start..numbers.end.min(geometry.stripe_count()) {
            let stripe = geometry.stripe(StripeNo(number));
            if !self.may_be_ahead(stripe) {
                break;
            }
            let Some(guard) = local.locks.lock_if_idle(stripe.id(), rows) else { break };
            let stored = array.view(stripe).writable;
            let (kind, pieces) = (RecordKind::InDoubt, local.pools.pieces.list());
            let mut new = NewUpdate { stripe, kind, rows, stored, pieces };
            let Some(held) = self.space_at_once(local, &new) else { break };
            let body = self.body_of(&mut new);
            let mut update = self.number(local, body, held);
            bodies.extend(update.body.take());
            held_rows.push(guard);
        }
        if bodies.is_empty() {
            return;
        }
        let epoch = self.ahead.borrow().epoch();
        let local = Rc::clone(local);
        let handle = local.worker.handle.clone();
        handle.spawn(async move {
            let _under_way = local.begin();
            let mut failed = FailedMembers::new();
            for body in &bodies {
                blame_failed(&local, body, &mut failed).await;
            }
            let is_good = failed.is_empty() || take_out_failed(&local, failed).await.is_ok();
            let Some(log) = local.log() else { return };
            if !is_good {
                log.give_up_ahead();
            }
            let unwanted = log.ahead.borrow_mut().arrive(epoch, bodies);
            drop(held_rows);
            unwanted.into_iter().for_each(|body| log.recycle(body));
            log.settle_if_awaited(&local);
        });
    }

    /// Whether the stripe's next write, if it is a whole one, would need the record that can be
    /// written for it now.
    fn may_be_ahead(&self, stripe: Stripe) -> bool {
        let array = &self.common.array;
        // What is in doubt has its checksums taken from what is found: not to be said of stripes
        // nobody writes.
        array.checksums.is_none()
            && array.owner_of(stripe) == self.common.worker
            && array.written.is_written(stripe)
            && array.lacks_nothing(stripe)
            && !array.intent.is_unsynced(array.intent.region_of(stripe))
            && self.is_settled(stripe)
    }
}
