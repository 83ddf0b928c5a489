//! A stripe as everybody hands it on: its number, which geometry counts it, and where it lies.
//!
//! What must stay true: a stripe is made by [`Geometry::stripe`](crate::Geometry::stripe) alone,
//! where a request is cut or a number comes from a member, and from then on nobody asks which
//! geometry it belongs to. Two stripes are the same if number and epoch are; what else is in here
//! follows from them.

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
/// A job's cursor is one, too, and may then be one past the last stripe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct StripeId {
    /// The geometry.
    pub epoch: LayoutEpoch,
    /// The number in it.
    pub number: StripeNo,
}

impl StripeId {
    /// Another stripe of the same geometry.
    #[inline]
    #[must_use]
    pub fn at(self, number: StripeNo) -> StripeId {
        StripeId { number, ..self }
    }

    /// One word of it: stripes of two geometries that share a number are far apart.
    #[inline]
    pub fn word(self) -> u64 {
        // No stripe number reaches the top byte: members have at most 2^62 bytes together.
        self.number.0 ^ (u64::from(self.epoch.0) << 56)
    }
}

impl Hash for StripeId {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.word());
    }
}

impl fmt::Display for StripeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

/// One stripe of one geometry, with what its geometry knows of its place.
#[derive(Clone, Copy)]
pub struct Stripe {
    id: StripeId,
    seat: Seat,
}

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
        self.id.number
    }

    /// The geometry that counts it.
    #[inline]
    pub fn epoch(self) -> LayoutEpoch {
        self.id.epoch
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
        write!(f, "Stripe({} of epoch {})", self.id.number, self.id.epoch.0)
    }
}
