//! A stripe as all code passes it on: its number, the geometry that counts it, and where it lies.
//!
//! What must stay true: only [`Geometry::stripe`](crate::Geometry::stripe) makes a stripe, where a
//! request is cut or a number comes from a member. From then on the stripe knows its geometry. Two
//! stripes are equal if number and epoch are; everything else in here follows from them.

use std::fmt;
use std::hash::{Hash, Hasher};

use ashlar_units::StripeNo;

use crate::placement::Seat;

/// Which of an array's geometries: the first, and one more for each reshape.
///
/// In memory only. An array on disk has one geometry, so no byte of it says which; what a reshape
/// adds is a field for it in log records (byte 23 is reserved), in the superblock's job records and
/// in the two maps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LayoutEpoch(pub u8);

impl LayoutEpoch {
    /// The geometry that an array is created with.
    pub const FIRST: LayoutEpoch = LayoutEpoch(0);
}

/// What tells stripes apart: their number, and the geometry that counts them.
///
/// A job's cursor is one, too, and may then be one past the last stripe. One word, with the
/// geometry in the top byte: no stripe number reaches it, since members have at most 2^62 bytes
/// together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct StripeId(u64);

/// Where the geometry stands in the word.
const EPOCH_SHIFT: u32 = 56;

impl StripeId {
    /// The stripe of this number in the geometry of this epoch.
    ///
    /// # Panics
    /// If the number is 2^56 or more, which no array has.
    #[inline]
    pub fn new(epoch: LayoutEpoch, number: StripeNo) -> StripeId {
        assert!(number.0 >> EPOCH_SHIFT == 0, "a stripe number has seven bytes");
        StripeId(number.0 | u64::from(epoch.0) << EPOCH_SHIFT)
    }

    /// What [`StripeId::word`] gave.
    #[inline]
    pub fn from_word(word: u64) -> StripeId {
        StripeId(word)
    }

    /// One word of it: stripes of two geometries that share a number are far apart.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// Which geometry.
    #[inline]
    pub fn epoch(self) -> LayoutEpoch {
        let [.., epoch] = self.0.to_le_bytes();
        LayoutEpoch(epoch)
    }

    /// The number in it.
    #[inline]
    pub fn number(self) -> StripeNo {
        StripeNo(self.0 & ((1 << EPOCH_SHIFT) - 1))
    }

    /// Another stripe of the same geometry.
    ///
    /// # Panics
    /// As [`StripeId::new`].
    #[inline]
    #[must_use]
    pub fn at(self, number: StripeNo) -> StripeId {
        StripeId::new(self.epoch(), number)
    }
}

impl Hash for StripeId {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

impl fmt::Debug for StripeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StripeId({} of epoch {})", self.number(), self.epoch().0)
    }
}

impl fmt::Display for StripeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

/// One stripe of one geometry, with what its geometry knows of its place.
#[derive(Clone, Copy)]
pub struct Stripe {
    id: StripeId,
    seat: Seat,
}

/// Stripes are in every message and future of the data path, which are moved.
const _: () = assert!(size_of::<Stripe>() == 16);

impl Stripe {
    #[inline]
    pub(crate) fn new(id: StripeId, seat: Seat) -> Stripe {
        Stripe { id, seat }
    }

    /// What tells it from other stripes.
    #[inline]
    pub fn id(self) -> StripeId {
        self.id
    }

    /// Its number in its geometry.
    #[inline]
    pub fn number(self) -> StripeNo {
        self.id.number()
    }

    /// The geometry that counts it.
    #[inline]
    pub fn epoch(self) -> LayoutEpoch {
        self.id.epoch()
    }

    #[inline]
    pub(crate) fn seat(self) -> Seat {
        self.seat
    }
}

impl PartialEq for Stripe {
    #[inline]
    fn eq(&self, other: &Stripe) -> bool {
        self.id == other.id
    }
}

impl Eq for Stripe {}

impl Hash for Stripe {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl fmt::Display for Stripe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl fmt::Debug for Stripe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stripe({} of epoch {})", self.number(), self.epoch().0)
    }
}
