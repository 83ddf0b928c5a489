//! The geometries of an array: one, and a second one during a reshape.
//!
//! What must stay true: only this file cuts a request into stripes, and only this file makes
//! stripes of numbers from members, jobs and maps. From then on the stripe knows its geometry. Code
//! that needs counts, code or place asks *the stripe*. A statement about the array as a whole asks
//! all of its geometries.
//!
//! Nothing makes a second geometry yet, except tests. Not here: where a strip lies (the layout
//! crate).

use ashlar_layout::{
    Geometry, LayoutEpoch, Piece, Pieces, StripRun, Stripe, StripeId, only_run, split,
};
use ashlar_parity::Code;
use ashlar_units::{Extent, MemberIdx, StripeNo};
use std::ops::Range;

/// One geometry, and the code of its stripes.
pub(crate) struct Layout {
    pub(crate) geometry: Geometry,
    pub(crate) code: Code,
}

/// All that an array has.
pub(crate) struct Layouts {
    current: Layout,
    /// The one that it is reshaped to.
    beside: Option<Box<Layout>>,
}

impl Layouts {
    /// The layout of an array that is not being reshaped.
    pub(crate) fn new(current: Layout) -> Layouts {
        Layouts { current, beside: None }
    }

    /// Two at once.
    #[cfg(test)]
    fn with_beside(current: Layout, beside: Layout) -> Layouts {
        assert_ne!(current.geometry.epoch(), beside.geometry.epoch(), "stripes tell them apart");
        Layouts { current, beside: Some(Box::new(beside)) }
    }

    /// The one that the volume's size follows from.
    #[inline]
    pub(crate) fn current(&self) -> &Layout {
        &self.current
    }

    /// The one of this epoch.
    ///
    /// # Panics
    /// If the array has none: stripes come from its own geometries alone.
    #[inline]
    pub(crate) fn of(&self, epoch: LayoutEpoch) -> &Layout {
        if epoch == self.current.geometry.epoch() { &self.current } else { self.other(epoch) }
    }

    #[cold]
    fn other(&self, epoch: LayoutEpoch) -> &Layout {
        let beside = self.beside.as_deref().filter(|it| it.geometry.epoch() == epoch);
        beside.expect("a stripe is of a geometry that its array has")
    }

    /// An extent of the volume, cut into stripes. This decides which geometry serves which byte.
    ///
    /// # Panics
    /// If the extent ends past the volume.
    #[inline]
    pub(crate) fn cut(&self, extent: Extent) -> Pieces<'_> {
        split(&self.current.geometry, extent)
    }

    /// What of an extent of the volume lies in this stripe.
    pub(crate) fn piece_of(&self, extent: Extent, number: StripeNo) -> Option<Piece> {
        let bytes = self.current.geometry.stripe_bytes();
        let start = extent.offset.max(number.0 * bytes);
        let end = extent.end().min((number.0 + 1) * bytes);
        let piece = self.cut(Extent::new(start, end.checked_sub(start)?)).next()?;
        Some(Piece { request_offset: start - extent.offset, ..piece })
    }

    /// The same of an extent that lies in one strip: its stripe and its run there.
    ///
    /// # Panics
    /// If the extent begins past the volume.
    #[inline]
    pub(crate) fn only_run(&self, extent: Extent) -> Option<(Stripe, StripRun)> {
        only_run(&self.current.geometry, extent)
    }

    /// The stripe of this name.
    ///
    /// # Panics
    /// If the array has no such stripe.
    #[inline]
    pub(crate) fn stripe(&self, id: StripeId) -> Stripe {
        self.of(id.epoch()).geometry.stripe(id.number())
    }

    /// The stripe that a log record means: on the members there is only one geometry, so the number
    /// says it.
    ///
    /// # Panics
    /// As [`Layouts::stripe`].
    pub(crate) fn recorded(&self, number: StripeNo) -> Stripe {
        self.current.geometry.stripe(number)
    }

    /// How far a job or a device is that the members list. They count in their one geometry, and
    /// their number may be any: past the last stripe is all of them.
    pub(crate) fn cursor(&self, number: StripeNo) -> StripeId {
        let geometry = &self.current.geometry;
        StripeId::new(geometry.epoch(), number.min(StripeNo(geometry.stripe_count())))
    }

    /// The numbers of the stripes that an extent of the volume touches, and which geometry counts
    /// them.
    #[inline]
    pub(crate) fn touched(&self, extent: Extent) -> (LayoutEpoch, Range<u64>) {
        let geometry = &self.current.geometry;
        let bytes = geometry.stripe_bytes();
        (geometry.epoch(), extent.offset / bytes..extent.end().div_ceil(bytes))
    }

    /// Strips of the widest stripe.
    pub(crate) fn stripe_width_max(&self) -> usize {
        self.all().map(|geometry| geometry.stripe_width()).max().expect("there is one")
    }

    /// Bytes of the longest strip.
    pub(crate) fn strip_bytes_max(&self) -> u64 {
        self.all().map(Geometry::strip_bytes).max().expect("there is one")
    }

    /// Strips that some stripe can do without.
    pub(crate) fn parity_strips_max(&self) -> usize {
        self.all().map(|geometry| geometry.parity_strips()).max().expect("there is one")
    }

    /// How many members may still be lost, whichever they are, when these are missing; `None` if
    /// some stripe lacks more strips than its parity replaces.
    pub(crate) fn tolerates(&self, is_missing: impl Fn(MemberIdx) -> bool) -> Option<usize> {
        let left = |geometry: &Geometry| {
            geometry.parity_strips().checked_sub(geometry.losses(&is_missing))
        };
        self.all().map(left).min().expect("there is one")
    }

    /// Whether some stripe of `member` cannot do without it when these are missing besides.
    pub(crate) fn is_needed(
        &self,
        member: MemberIdx,
        is_missing: impl Fn(MemberIdx) -> bool,
    ) -> bool {
        let mut own = self.all().filter(|geometry| member.at() < geometry.members());
        own.any(|geometry| geometry.losses_beside(member, &is_missing) >= geometry.parity_strips())
    }

    /// Whether some stripe of `member` lacks more strips than its parity replaces when these are
    /// missing.
    pub(crate) fn is_beyond(
        &self,
        member: MemberIdx,
        is_missing: impl Fn(MemberIdx) -> bool,
    ) -> bool {
        let mut own = self.all().filter(|geometry| member.at() < geometry.members());
        let itself = usize::from(is_missing(member));
        own.any(|geometry| {
            geometry.losses_beside(member, &is_missing) + itself > geometry.parity_strips()
        })
    }

    fn all(&self) -> impl Iterator<Item = &Geometry> {
        let beside = self.beside.as_deref();
        std::iter::once(&self.current).chain(beside).map(|layout| &layout.geometry)
    }
}

/// A geometry with this number of stripes.
#[cfg(test)]
pub(crate) fn geometry_of(stripe_count: u64) -> Geometry {
    let shape = ashlar_layout::Shape {
        level: ashlar_layout::Level::Raid5,
        members: 3,
        parity: None,
        group_members: None,
        strip_bytes: 4096,
        declustered: None,
    };
    Geometry::new(&shape, stripe_count).expect("an ordinary array")
}

#[cfg(test)]
mod tests {
    use super::{Layout, Layouts};
    use crate::intent::IntentMap;
    use crate::stripe::lock::RowLocks;
    use crate::written::WrittenMap;
    use ashlar_layout::{Geometry, LayoutEpoch, Level, RowRange, Shape, StripeId};
    use ashlar_parity::{Code, Kernel};
    use ashlar_units::{Extent, MemberIdx, StripIdx, StripeNo};

    fn layout(level: Level, members: usize, epoch: LayoutEpoch) -> Layout {
        let shape = Shape {
            level,
            members,
            parity: None,
            group_members: None,
            strip_bytes: 65_536,
            declustered: None,
        };
        let geometry = Geometry::new(&shape, 100).unwrap().in_epoch(epoch);
        let (data_strips, parity_strips) = (geometry.data_strips(), geometry.parity_strips());
        let code = Code::new(data_strips, parity_strips, Kernel::best()).unwrap();
        Layout { geometry, code }
    }

    const NEW: LayoutEpoch = LayoutEpoch(1);

    /// RAID 5 of five members on its way to RAID 6 of seven.
    fn two() -> Layouts {
        let old = layout(Level::Raid5, 5, LayoutEpoch::FIRST);
        Layouts::with_beside(old, layout(Level::Raid6, 7, NEW))
    }

    #[test]
    fn a_stripe_has_the_counts_and_the_place_of_its_own_geometry() {
        let layouts = two();
        let number = StripeNo(3);
        let [old, new] =
            [LayoutEpoch::FIRST, NEW].map(|epoch| layouts.stripe(StripeId::new(epoch, number)));
        assert_ne!(old, new);
        let counts = |layout: &Layout| (layout.geometry.data_strips(), layout.code.parity_strips());
        assert_eq!(counts(layouts.of(old.epoch())), (4, 1));
        assert_eq!(counts(layouts.of(new.epoch())), (5, 2));
        // Row 3: P is three to the left of the last member.
        let member = |stripe: ashlar_layout::Stripe, strip: u8| {
            layouts.of(stripe.epoch()).geometry.place(stripe, StripIdx(strip)).member
        };
        assert_eq!(member(old, 4), MemberIdx(1));
        assert_eq!(member(new, 5), MemberIdx(3));
        assert_eq!(layouts.recorded(number), old);
        assert_eq!(layouts.cursor(number), old.id());
        assert_eq!(layouts.cursor(StripeNo(u64::MAX)).number(), StripeNo(100), "a damaged number");
        assert_eq!(layouts.cut(Extent::new(3 * 4 * 65_536, 4096)).next().unwrap().stripe, old);
    }

    #[test]
    fn what_an_array_can_lose_is_what_the_weaker_of_its_geometries_can() {
        let layouts = two();
        let lost = |members: &'static [u16]| move |member: MemberIdx| members.contains(&member.0);
        assert_eq!(layouts.tolerates(lost(&[])), Some(1));
        assert_eq!(layouts.tolerates(lost(&[6])), Some(1), "the old one has nothing on it");
        assert_eq!(layouts.tolerates(lost(&[0])), Some(0));
        assert_eq!(layouts.tolerates(lost(&[0, 1])), None);
        assert!(layouts.is_needed(MemberIdx(1), lost(&[0])));
        assert!(!layouts.is_beyond(MemberIdx(1), lost(&[0])));
        assert!(layouts.is_beyond(MemberIdx(1), lost(&[0, 1])));
        assert_eq!((layouts.stripe_width_max(), layouts.parity_strips_max()), (7, 2));
    }

    #[test]
    fn stripes_of_two_geometries_with_one_number_do_not_exclude_each_other() {
        let layouts = two();
        let (locks, rows) = (RowLocks::default(), RowRange::new(0, 16));
        let id = |epoch| StripeId::new(epoch, StripeNo(7));
        let _held = locks.lock_if_idle(id(LayoutEpoch::FIRST), rows).expect("idle");
        assert!(locks.lock_if_idle(id(LayoutEpoch::FIRST), rows).is_none());
        let other = locks.lock_if_idle(id(NEW), rows);
        assert!(other.is_some());
        let new = layouts.stripe(id(NEW));
        let written = WrittenMap::new(&layouts.current().geometry, 64);
        let asked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| written.is_written(new)));
        assert!(asked.is_err(), "a map has bits of one geometry");
        let intent = IntentMap::new(&layouts.current().geometry, 4, 64);
        assert!(std::panic::catch_unwind(|| intent.region_of(new)).is_err());
    }
}
