//! Records of whole stripes, written before their writes come.
//!
//! A whole stripe's record has no data: it says that the rows may be in doubt. If a stream of
//! writes is about to reach some stripes, their records are written early, dozens of stripes in one
//! batch. Each write then finds its record there. So a stream waits for the log once in [`STRIPES`]
//! stripes instead of with every one.
//!
//! What must stay true:
//! - A record written early is an update under way until it is used or given up, so nothing settles
//!   past it.
//! - It outdates older records of its stripe. So it is written only if none of them counts any
//!   more: their data may be in place in a cache only.
//! - Its rows are locked until it is durable: no later record of them may be whole before it is.
//! - A write uses it only if no record with data, and none of a first write, came after it.
//! - A write uses it only on the devices that were there when it was written. All are given up when
//!   a device comes or goes.
//! - No request waits for one. When space is short, all are given up before anything else.
//!
//! The price: after a crash, parity of some stripes is generated anew although nobody was writing
//! them. Their data is whole and agrees with their parity. So nothing changes there, with or
//! without losses.
//!
//! Pure.

use super::places::Places;
use super::update::Body;
use ashlar_layout::StripeId;
use ashlar_units::StripeNo;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// Stripes whose records are written together: what fits the header of one batch on a dozen
/// members.
pub(super) const STRIPES: u64 = 32;
/// Records that wait for their write at most; more, and all are given up: too many streams broke
/// off.
const READY_MAX: usize = 1024;
/// Places for stripes that were lately written whole.
const STREAMS: usize = 64;

/// What is known about records of stripes in one log ring.
pub(super) struct Ahead {
    /// Durable on all their holders, and not used yet.
    ready: BTreeMap<StripeId, Rc<Body>>,
    /// Rises when what is on its way is not wanted any more.
    epoch: u64,
    /// By stripe: one that was written whole lately.
    whole: [Option<StripeId>; STREAMS],
}

impl Ahead {
    pub(super) fn new() -> Ahead {
        Ahead { ready: BTreeMap::new(), epoch: 0, whole: [None; STREAMS] }
    }

    /// A stripe is about to be written whole: which stripes of its geometry may follow, if it
    /// continues a stream and nothing was written for them yet. The stripes of a window lie in one
    /// region, if a region has as many.
    pub(super) fn wanted(&mut self, stripe: StripeId) -> Option<Range<u64>> {
        let before = stripe.number().0.checked_sub(1).map(|number| stripe.at(StripeNo(number)));
        let place = |stripe: StripeId| Places::of(stripe) % STREAMS;
        let is_stream = before.is_some_and(|before| self.whole[place(before)] == Some(before));
        self.whole[place(stripe)] = Some(stripe);
        if !is_stream {
            return None;
        }
        let number = stripe.number().0;
        let start = number / STRIPES * STRIPES;
        let is_second_half = number - start >= STRIPES / 2;
        let this = number + 1..start + STRIPES;
        let next = start + STRIPES..start + 2 * STRIPES;
        if !self.ready.contains_key(&stripe) && !is_second_half && self.has_none(stripe, &this) {
            return Some(this);
        }
        (is_second_half && self.has_none(stripe, &next)).then_some(next)
    }

    /// Whether none of these stripes, of the geometry of `stripe`, has a record.
    fn has_none(&self, stripe: StripeId, numbers: &Range<u64>) -> bool {
        let [start, end] = [numbers.start, numbers.end].map(|at| stripe.at(StripeNo(at)));
        self.ready.range(start..end).next().is_none()
    }

    /// For [`Ahead::arrive`], of records that are on their way from now on.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// They are durable. What is not wanted any more comes back.
    pub(super) fn arrive(&mut self, epoch: u64, bodies: Vec<Rc<Body>>) -> Vec<Rc<Body>> {
        if epoch != self.epoch || self.ready.len() + bodies.len() > READY_MAX {
            let mut all = self.give_up();
            all.extend(bodies);
            return all;
        }
        bodies.into_iter().filter_map(|body| self.ready.insert(body.stripe, body)).collect()
    }

    /// The record of a stripe, if it is there; `Err` if it is not later than `newest`, the newest
    /// with data or of a first write.
    pub(super) fn take(
        &mut self,
        stripe: StripeId,
        newest: u64,
    ) -> Option<Result<Rc<Body>, Rc<Body>>> {
        let body = self.ready.remove(&stripe)?;
        Some(if newest < body.sequence { Ok(body) } else { Err(body) })
    }

    /// Nothing of it is wanted any more: what was ready comes back, what is on its way will.
    pub(super) fn give_up(&mut self) -> Vec<Rc<Body>> {
        self.epoch += 1;
        std::mem::take(&mut self.ready).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Ahead, Body, STRIPES};
    use ashlar_layout::StripeId;
    use ashlar_units::StripeNo;
    use std::rc::Rc;

    fn at(number: u64) -> StripeId {
        StripeId::default().at(StripeNo(number))
    }

    fn bodies(stripes: std::ops::Range<u64>, first: u64) -> Vec<Rc<Body>> {
        let body =
            |(stripe, sequence)| Rc::new(Body { stripe: at(stripe), sequence, ..Body::empty() });
        stripes.zip(first..).map(body).collect()
    }

    #[test]
    fn the_second_stripe_of_a_stream_wants_its_window_and_the_middle_of_it_the_next() {
        let mut ahead = Ahead::new();
        assert_eq!(ahead.wanted(at(64)), None, "one stripe is not a stream");
        assert_eq!(ahead.wanted(at(65)), Some(66..96));
        assert!(ahead.arrive(ahead.epoch(), bodies(66..96, 1)).is_empty());
        for stripe in 66..64 + STRIPES / 2 {
            assert_eq!(ahead.wanted(at(stripe)), None);
            assert!(ahead.take(at(stripe), 0).is_some_and(|taken| taken.is_ok()));
        }
        assert_eq!(ahead.wanted(at(80)), Some(96..128));
    }

    #[test]
    fn each_record_serves_one_write_and_only_if_none_came_later() {
        let mut ahead = Ahead::new();
        ahead.arrive(ahead.epoch(), bodies(1..4, 5));
        assert!(ahead.take(at(2), 4).is_some_and(|taken| taken.is_ok()), "4 was before it");
        assert!(ahead.take(at(2), 4).is_none());
        assert!(ahead.take(at(3), 9).is_some_and(|taken| taken.is_err()), "9 came after it");
    }

    #[test]
    fn what_was_on_its_way_when_all_was_given_up_comes_back_unused() {
        let mut ahead = Ahead::new();
        let epoch = ahead.epoch();
        assert!(ahead.give_up().is_empty());
        assert_eq!(ahead.arrive(epoch, bodies(1..4, 5)).len(), 3);
        assert!(ahead.take(at(2), 0).is_none());
        assert!(ahead.arrive(ahead.epoch(), bodies(1..4, 8)).is_empty());
        assert_eq!(ahead.give_up().len(), 3);
    }
}
