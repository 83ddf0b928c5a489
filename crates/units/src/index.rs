//! Indices: which stripe, which strip of it, which member of the array.

use std::fmt;

/// Strips a stripe can have, data and parity together.
pub const STRIPS_MAX: usize = 64;

/// Number of a stripe, counted over the whole array from 0 in volume order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StripeNo(pub u64);

/// Index of a strip within its stripe: data strips are `0..k`, parity strips `k..k+m`. At most 64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StripIdx(pub u8);

/// Number of a member slot of the array, over all groups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberIdx(pub u16);

impl StripIdx {
    /// As an array index.
    #[inline]
    pub fn at(self) -> usize {
        usize::from(self.0)
    }

    /// From an array index.
    ///
    /// # Panics
    /// If `at` is 64 or more: no stripe has that many strips.
    #[inline]
    pub fn from_at(at: usize) -> Self {
        assert!(at < STRIPS_MAX, "strip index {at} out of range");
        StripIdx(u8::try_from(at).expect("below 64"))
    }
}

impl MemberIdx {
    /// As an array index.
    #[inline]
    pub fn at(self) -> usize {
        usize::from(self.0)
    }

    /// From an array index.
    ///
    /// # Panics
    /// If `at` exceeds 65,535.
    #[inline]
    pub fn from_at(at: usize) -> Self {
        MemberIdx(u16::try_from(at).expect("member index fits 16 bits"))
    }
}

impl fmt::Display for StripeNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for MemberIdx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of strips of one stripe: one bit each, so at most 64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StripSet(pub u64);

impl StripSet {
    /// No strip.
    pub const EMPTY: StripSet = StripSet(0);

    /// The strips `0..count`.
    ///
    /// # Panics
    /// If `count` exceeds 64.
    #[inline]
    pub fn first(count: usize) -> Self {
        assert!(count <= STRIPS_MAX, "a stripe has at most 64 strips");
        StripSet(if count == 64 { u64::MAX } else { (1 << count) - 1 })
    }

    /// The strips `from..to`.
    ///
    /// # Panics
    /// If `from > to` or `to` exceeds 64.
    #[inline]
    pub fn range(from: usize, to: usize) -> Self {
        assert!(from <= to, "range {from}..{to} is reversed");
        StripSet(Self::first(to).0 & !Self::first(from).0)
    }

    /// Exactly this strip.
    #[inline]
    pub fn only(strip: StripIdx) -> Self {
        StripSet(1 << strip.0)
    }

    /// Whether `strip` is in the set.
    #[inline]
    pub fn contains(self, strip: StripIdx) -> bool {
        self.0 & (1 << strip.0) != 0
    }

    /// The set with `strip` added.
    #[must_use]
    #[inline]
    pub fn with(self, strip: StripIdx) -> Self {
        StripSet(self.0 | (1 << strip.0))
    }

    /// The set with `strip` taken out.
    #[must_use]
    #[inline]
    pub fn without(self, strip: StripIdx) -> Self {
        StripSet(self.0 & !(1 << strip.0))
    }

    /// Strips in both sets.
    #[must_use]
    #[inline]
    pub fn and(self, other: Self) -> Self {
        StripSet(self.0 & other.0)
    }

    /// Strips in either set.
    #[must_use]
    #[inline]
    pub fn or(self, other: Self) -> Self {
        StripSet(self.0 | other.0)
    }

    /// Strips in this set and not in `other`.
    #[must_use]
    #[inline]
    pub fn minus(self, other: Self) -> Self {
        StripSet(self.0 & !other.0)
    }

    /// Number of strips in the set.
    #[inline]
    pub fn count(self) -> usize {
        usize::try_from(self.0.count_ones()).expect("at most 64")
    }

    /// Whether the set has no strip.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every strip of this set is in `other`.
    #[inline]
    pub fn is_subset_of(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// The strips in rising order.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = StripIdx> + Clone {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let lowest = rest.trailing_zeros();
            rest &= rest - 1;
            Some(StripIdx(u8::try_from(lowest).expect("below 64")))
        })
    }

    /// The `count` lowest strips of the set (all of them if it has fewer).
    #[must_use]
    #[inline]
    pub fn lowest(self, count: usize) -> Self {
        self.iter().take(count).collect()
    }
}

impl FromIterator<StripIdx> for StripSet {
    fn from_iter<I: IntoIterator<Item = StripIdx>>(strips: I) -> Self {
        strips.into_iter().fold(StripSet::EMPTY, StripSet::with)
    }
}

impl fmt::Debug for StripSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|strip| strip.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{StripIdx, StripSet};

    #[test]
    fn sets_hold_all_64_strips() {
        assert_eq!(StripSet::first(64).count(), 64);
        assert_eq!(StripSet::range(62, 64).iter().map(|s| s.0).collect::<Vec<_>>(), [62, 63]);
        assert!(StripSet::range(5, 5).is_empty());
    }

    #[test]
    fn set_algebra_agrees_with_membership() {
        let a = StripSet::range(0, 5);
        let b = StripSet::range(3, 8);
        for at in 0..64 {
            let strip = StripIdx::from_at(at);
            assert_eq!(a.and(b).contains(strip), a.contains(strip) && b.contains(strip));
            assert_eq!(a.or(b).contains(strip), a.contains(strip) || b.contains(strip));
            assert_eq!(a.minus(b).contains(strip), a.contains(strip) && !b.contains(strip));
        }
        assert_eq!(b.lowest(2), StripSet::range(3, 5));
    }
}
