//! Which stripes a job visits.
//!
//! What must stay true: the job visits every stripe that needs it. This includes a stripe whose
//! first write was planned before the job's device was attached. Such a write enters its region
//! before it is planned, and leaves it after the stripe's written bit is set. So in a region with
//! writes under way the job visits all stripes; each step waits for the row lock and looks again.
//! In other regions the written bits are complete. The job therefore looks at the region first and
//! at the bits second. Where a member is lost or the array grows, the job visits the stripes of all
//! slots, and each step looks whether the slot has a strip.
//!
//! A course covers the stripes of one geometry, and its numbers are numbers of that geometry.
//!
//! Pure but for the two maps, which change under it.

use super::order::{VisitNo, VisitOrder};
use crate::intent::{IntentMap, RegionNo};
use crate::written::WrittenMap;
use ashlar_layout::Geometry;
use ashlar_units::{MemberIdx, StripeNo, to_u64};
use std::collections::BTreeSet;

/// The stripes a job visits.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    /// Only stripes that have a strip on this slot.
    pub(crate) slot: Option<MemberIdx>,
    pub(crate) reach: Reach,
}

/// Which of them.
#[derive(Clone, Debug)]
pub(crate) enum Reach {
    /// All written ones.
    Written,
    /// Below a stripe only those in these regions: elsewhere the device holds what it should.
    Stale { below: StripeNo, regions: BTreeSet<RegionNo> },
    /// Those in regions whose parity is not trusted.
    Unsynced,
}

/// What is asked.
#[derive(Clone, Copy)]
pub(crate) struct Maps<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) written: &'a WrittenMap,
    pub(crate) intent: &'a IntentMap,
    /// Strips may lie elsewhere than the geometry says, so any stripe may have one on any slot.
    pub(crate) moves_strips: bool,
}

impl Course {
    /// The first visit at or after `from`, of a stripe that is not below `checkpoint`.
    pub(super) fn next(
        &self,
        maps: Maps<'_>,
        order: VisitOrder,
        from: VisitNo,
        checkpoint: StripeNo,
    ) -> Option<VisitNo> {
        let end = StripeNo(maps.geometry.stripe_count());
        let mut from = from;
        loop {
            let (start, window_end) = order.window_around(from);
            // Windows without a wanted stripe are passed over at once.
            let first = self.next_in(maps, (start.max(checkpoint), end))?;
            if first >= window_end {
                from = order.window_of(first);
                continue;
            }
            let found = self.next_in_window(maps, order, from, checkpoint);
            if found.is_some() {
                return found;
            }
            from = VisitNo(window_end.0);
        }
    }

    /// The same in the window of `from`.
    fn next_in_window(
        &self,
        maps: Maps<'_>,
        order: VisitOrder,
        from: VisitNo,
        checkpoint: StripeNo,
    ) -> Option<VisitNo> {
        let mut found: Option<VisitNo> = None;
        for (begin, end) in order.parts_from(from) {
            // The first visit of this part is later than one that was found.
            if found.is_some_and(|found| begin < end && order.visit_of(begin) > found) {
                break;
            }
            let stripe = self.next_in(maps, (begin.max(checkpoint), end));
            let visit = stripe.map(|stripe| order.visit_of(stripe));
            found = [found, visit].into_iter().flatten().min();
        }
        found
    }

    /// The first stripe to visit from the first of these on, below the second.
    fn next_in(&self, maps: Maps<'_>, (from, below): (StripeNo, StripeNo)) -> Option<StripeNo> {
        let end = below.0.min(maps.geometry.stripe_count());
        let mut at = from.0;
        while at < end {
            let part = self.part(maps, at);
            let part_end = part.end.min(end);
            let found = match (&part.wanted, self.must_look_at_all(maps, part.region)) {
                (false, _) => None,
                (true, true) => Some(StripeNo(at)),
                (true, false) => maps.written.next_written_in(at..part_end),
            };
            match found {
                Some(stripe) if self.has_strip(maps, stripe) => return Some(stripe),
                Some(stripe) => at = stripe.0 + 1,
                None => at = part_end,
            }
        }
        None
    }

    /// How many stripes there are to visit from `from` on. Stripes being written for the first time
    /// are not counted, and the strips of the written ones count as spread evenly over the members.
    pub(crate) fn count(&self, maps: Maps<'_>, from: StripeNo) -> u64 {
        let stripe_count = maps.geometry.stripe_count();
        let (mut at, mut count) = (from.0, 0);
        while at < stripe_count {
            let part = self.part(maps, at);
            if part.wanted {
                count += maps.written.count_in(at..part.end);
            }
            at = part.end;
        }
        match self.slot {
            Some(_) if !maps.moves_strips => {
                let strips = count * to_u64(maps.geometry.stripe_width());
                strips.div_ceil(to_u64(maps.geometry.members()))
            }
            _ => count,
        }
    }

    /// The part of the region around stripe `at` that is wanted or not as a whole.
    fn part(&self, maps: Maps<'_>, at: u64) -> Stretch {
        let region = maps.intent.region_of(maps.geometry.stripe(StripeNo(at)));
        let end = maps.intent.stripes_of(region).end.min(maps.geometry.stripe_count());
        match &self.reach {
            Reach::Written => Stretch { region, end, wanted: true },
            Reach::Unsynced => Stretch { region, end, wanted: maps.intent.is_unsynced(region) },
            Reach::Stale { below, .. } if at >= below.0 => Stretch { region, end, wanted: true },
            Reach::Stale { below, regions } => {
                Stretch { region, end: end.min(below.0), wanted: regions.contains(&region) }
            }
        }
    }

    fn must_look_at_all(&self, maps: Maps<'_>, region: RegionNo) -> bool {
        self.slot.is_some() && maps.intent.is_entered(region)
    }

    fn has_strip(&self, maps: Maps<'_>, stripe: StripeNo) -> bool {
        let is_on = |slot| maps.geometry.strip_on(maps.geometry.stripe(stripe), slot).is_some();
        maps.moves_strips || self.slot.is_none_or(is_on)
    }
}

struct Stretch {
    region: RegionNo,
    end: u64,
    wanted: bool,
}

#[cfg(test)]
mod tests {
    use super::{Course, Maps, Reach, VisitNo, VisitOrder};
    use crate::intent::{IntentMap, RegionNo};
    use crate::written::WrittenMap;
    use ashlar_layout::{Geometry, Level, Shape};
    use ashlar_units::{MemberIdx, StripeNo, to_u64};

    const STRIPES: u64 = 40;

    /// Two groups of RAID 5 2+1, regions of 4 stripes, pages of 64 stripes.
    fn maps() -> (Geometry, WrittenMap, IntentMap) {
        let shape = Shape {
            level: Level::Raid50,
            members: 6,
            parity: None,
            group_members: Some(3),
            strip_bytes: 4096,
            declustered: None,
        };
        let geometry = Geometry::new(&shape, STRIPES / 2).unwrap();
        assert_eq!(geometry.stripe_count(), STRIPES);
        let written = WrittenMap::new(&geometry, 64);
        let intent = IntentMap::new(&geometry, 4, 64);
        (geometry, written, intent)
    }

    fn walk_in(order: VisitOrder, course: &Course, maps: Maps<'_>, checkpoint: u64) -> Vec<u64> {
        let mut seen = Vec::new();
        let checkpoint = StripeNo(checkpoint);
        let mut from = order.window_of(checkpoint);
        while let Some(visit) = course.next(maps, order, from, checkpoint) {
            assert!(visit >= from, "{order:?}");
            seen.push(order.stripe_of(visit).0);
            from = VisitNo(visit.0 + 1);
        }
        seen
    }

    fn walk(course: &Course, maps: Maps<'_>) -> Vec<u64> {
        walk_in(VisitOrder::new(1, 4), course, maps, 0)
    }

    #[test]
    fn a_course_is_what_its_definition_says_for_every_small_case() {
        let (geometry, written, intent) = maps();
        for stripe in [0, 1, 2, 7, 8, 9, 10, 23, 24, 25, 38, 39] {
            written.set(geometry.stripe(StripeNo(stripe)), true);
        }
        intent.set_unsynced(RegionNo(2));
        let regions = [RegionNo(0), RegionNo(6)].into_iter().collect();
        let maps =
            Maps { geometry: &geometry, written: &written, intent: &intent, moves_strips: false };
        let reaches = [
            Reach::Written,
            Reach::Unsynced,
            Reach::Stale { below: StripeNo(10), regions },
            Reach::Stale { below: StripeNo(STRIPES), regions: [RegionNo(9)].into() },
        ];
        for reach in reaches {
            for slot in [None, Some(MemberIdx(1)), Some(MemberIdx(5))] {
                let course = Course { slot, reach: reach.clone() };
                let is_wanted = |stripe: &u64| {
                    let at = geometry.stripe(StripeNo(*stripe));
                    let region = intent.region_of(at);
                    let reached = match &reach {
                        Reach::Written => true,
                        Reach::Unsynced => intent.is_unsynced(region),
                        Reach::Stale { below, regions } => {
                            *stripe >= below.0 || regions.contains(&region)
                        }
                    };
                    let here = slot.is_none_or(|slot| geometry.strip_on(at, slot).is_some());
                    reached && here && written.is_written(at)
                };
                let wanted: Vec<u64> = (0..STRIPES).filter(is_wanted).collect();
                assert_eq!(walk(&course, maps), wanted, "{course:?}");
                for (regions, checkpoint) in (1..=11).zip([0, 1, 5, 16, 39].into_iter().cycle()) {
                    let order = VisitOrder::new(regions, 4);
                    let mut wanted = wanted.clone();
                    wanted.retain(|stripe| *stripe >= checkpoint);
                    wanted.sort_by_key(|stripe| order.visit_of(StripeNo(*stripe)));
                    let seen = walk_in(order, &course, maps, checkpoint);
                    assert_eq!(seen, wanted, "{course:?} {order:?} from {checkpoint}");
                }
                if slot.is_none() {
                    assert_eq!(course.count(maps, StripeNo(0)), to_u64(wanted.len()));
                }
            }
        }
    }

    #[test]
    fn all_stripes_of_an_entered_region_are_visited_for_a_slot_and_only_for_a_slot() {
        let (geometry, written, intent) = maps();
        written.set(geometry.stripe(StripeNo(13)), true);
        intent.enter(RegionNo(3));
        let maps =
            Maps { geometry: &geometry, written: &written, intent: &intent, moves_strips: false };
        let rebuild = Course { slot: Some(MemberIdx(0)), reach: Reach::Written };
        assert_eq!(walk(&rebuild, maps), [12, 14], "those of the slot's group");
        let scrub = Course { slot: None, reach: Reach::Written };
        assert_eq!(walk(&scrub, maps), [13]);
        intent.leave(RegionNo(3));
        assert!(walk(&rebuild, maps).is_empty());
    }
}
