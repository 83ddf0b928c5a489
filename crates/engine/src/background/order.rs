//! The order in which a job visits stripes: regions side by side, so that every worker has some.
//!
//! What must stay true: every stripe has a visit number of its own. A window of neighbouring
//! regions, one of each owner (`Array::owner_of`), ends before the next one begins. In a window the
//! first stripes of all its regions come first, then the second ones. Visit numbers without a
//! stripe are behind the last region only. `visited_below` never counts a stripe whose visit may be
//! still to come.
//!
//! Pure.

use crate::canary::{Canary, sings};
use ashlar_units::StripeNo;

/// Which visit a stripe gets; the first one is 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct VisitNo(pub(super) u64);

/// An order of visits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct VisitOrder {
    /// Regions side by side; 1 is the order of the stripes.
    regions: u64,
    region_stripes: u64,
}

impl VisitOrder {
    /// So many regions of so many stripes side by side; both at least 1.
    pub(super) fn new(regions: u64, region_stripes: u64) -> VisitOrder {
        VisitOrder { regions: regions.max(1), region_stripes: region_stripes.max(1) }
    }

    /// Regions that are visited side by side.
    pub(super) fn regions(self) -> u64 {
        self.regions
    }

    /// Stripes of a window.
    fn window(self) -> u64 {
        self.regions * self.region_stripes
    }

    /// The stripe of a visit; it may be behind the last one.
    pub(super) fn stripe_of(self, visit: VisitNo) -> StripeNo {
        let (window, at) = (visit.0 / self.window(), visit.0 % self.window());
        let (row, region) = (at / self.regions, at % self.regions);
        StripeNo(window * self.window() + region * self.region_stripes + row)
    }

    /// The visit of a stripe.
    pub(super) fn visit_of(self, stripe: StripeNo) -> VisitNo {
        let (window, at) = (stripe.0 / self.window(), stripe.0 % self.window());
        let (region, row) = (at / self.region_stripes, at % self.region_stripes);
        VisitNo(window * self.window() + row * self.regions + region)
    }

    /// The first visit of the window that a stripe lies in, which is the one of the window's first
    /// stripe.
    pub(super) fn window_of(self, stripe: StripeNo) -> VisitNo {
        VisitNo(stripe.0 - stripe.0 % self.window())
    }

    /// The visit behind all of so many stripes.
    pub(super) fn end_of(self, stripe_count: u64) -> VisitNo {
        VisitNo(stripe_count.next_multiple_of(self.window()))
    }

    /// The window of a visit: its first stripe, and the one behind its last.
    pub(super) fn window_around(self, visit: VisitNo) -> (StripeNo, StripeNo) {
        let start = visit.0 - visit.0 % self.window();
        (StripeNo(start), StripeNo(start + self.window()))
    }

    /// The parts of a window whose visits are `from` or later, a part for each region, the one of
    /// `from` first.
    pub(super) fn parts_from(self, from: VisitNo) -> impl Iterator<Item = (StripeNo, StripeNo)> {
        let start = from.0 - from.0 % self.window();
        let at = from.0 - start;
        let (row, first) = (at / self.regions, at % self.regions);
        (first..first + self.regions).map(move |turn| {
            let (passed, region) = (turn / self.regions, turn % self.regions);
            let begin = start + region * self.region_stripes;
            let end = begin + self.region_stripes;
            (StripeNo((begin + row + passed).min(end)), StripeNo(end))
        })
    }

    /// All stripes below this one have a visit before `visit`.
    pub(super) fn visited_below(self, visit: VisitNo) -> StripeNo {
        if sings(Canary::RegionsCountedEarly) {
            return StripeNo(visit.0);
        }
        let start = visit.0 - visit.0 % self.window();
        let at = visit.0 - start;
        let (row, region) = (at / self.regions, at % self.regions);
        // In the last row each region that was visited is complete.
        let is_last_row = row + 1 == self.region_stripes;
        let complete = if is_last_row { region * self.region_stripes } else { 0 };
        let more = if is_last_row || region == 0 { row } else { row + 1 };
        StripeNo(start + complete + more)
    }
}

#[cfg(test)]
mod tests {
    use super::{VisitNo, VisitOrder};
    use ashlar_units::StripeNo;

    fn orders() -> impl Iterator<Item = VisitOrder> {
        (1..=5).flat_map(|regions| (1..=4).map(move |stripes| VisitOrder::new(regions, stripes)))
    }

    #[test]
    fn every_stripe_has_a_visit_of_its_own_in_its_window() {
        for order in orders() {
            for stripe in (0..3 * order.window()).map(StripeNo) {
                let visit = order.visit_of(stripe);
                assert_eq!(order.stripe_of(visit), stripe, "{order:?}");
                assert_eq!(order.window_of(stripe).0, visit.0 - visit.0 % order.window());
                let (start, end) = order.window_around(visit);
                assert!((start..end).contains(&stripe), "{order:?}");
            }
        }
    }

    #[test]
    fn regions_of_a_window_take_turns() {
        let order = VisitOrder::new(3, 2);
        let stripes: Vec<u64> = (0..12).map(|visit| order.stripe_of(VisitNo(visit)).0).collect();
        assert_eq!(stripes, [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
    }

    #[test]
    fn what_counts_as_visited_is_all_that_was_and_no_more() {
        for order in orders() {
            for visit in (0..3 * order.window()).map(VisitNo) {
                let is_visited = |stripe: &u64| order.visit_of(StripeNo(*stripe)) < visit;
                let below = (0..).take_while(is_visited).count();
                let counted = order.visited_below(visit).0;
                assert_eq!(counted, u64::try_from(below).unwrap(), "{order:?} {visit:?}");
            }
        }
    }

    #[test]
    fn the_parts_that_are_left_hold_just_the_later_visits() {
        for order in orders() {
            for from in (0..2 * order.window()).map(VisitNo) {
                let (start, end) = order.window_around(from);
                let is_left = |stripe: &u64| order.visit_of(StripeNo(*stripe)) >= from;
                let left: Vec<u64> = (start.0..end.0).filter(is_left).collect();
                let parts = order.parts_from(from).collect::<Vec<_>>();
                assert_eq!(parts[0].0, order.stripe_of(from), "{order:?} {from:?}");
                let mut held: Vec<u64> =
                    parts.iter().flat_map(|(begin, end)| begin.0..end.0).collect();
                held.sort_unstable();
                assert_eq!(held, left, "{order:?} {from:?}");
            }
        }
    }
}
