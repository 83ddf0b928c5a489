//! Layout version 1: stripes on fixed groups of members. ON-DISK FORMAT: see `geometry`.
//!
//! The map: stripe s is row `s / groups` of group `s % groups`; the group's members are numbered
//! `group * width ..`; within the row a rotation says which position of the group holds which
//! strip; row r of a member is its r-th strip from the start of the data area. An ungrouped level
//! has one group.

use ashlar_units::{MemberIdx, StripIdx, StripeNo, to_u64, to_usize};

use crate::geometry::GeometryParts;
use crate::rotation::{Rotation, RowCode};

/// The groups, and how strips move over the members of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grouped {
    groups: u64,
    code: RowCode,
    rotation: Rotation,
}

/// What a stripe keeps of where it lies. Small, since stripes are moved with every future and
/// message; the row follows from the number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupedSeat {
    /// First member of its group.
    first: u16,
    /// Where the rotation stands in its row.
    turn: u8,
}

impl Grouped {
    /// The layout of parts that were checked.
    pub(crate) fn new(parts: &GeometryParts) -> Grouped {
        let has_rotation = parts.parity_strips > 0 && parts.data_strips > 1;
        Grouped {
            groups: to_u64(parts.groups),
            code: RowCode::new(parts.data_strips, parts.parity_strips),
            rotation: if has_rotation { Rotation::LeftSymmetric } else { Rotation::Fixed },
        }
    }

    #[inline]
    pub(crate) fn members(&self) -> usize {
        to_usize(self.groups * self.code.width())
    }

    #[inline]
    pub(crate) fn groups(&self) -> usize {
        to_usize(self.groups)
    }

    pub(crate) fn rotation(&self) -> Rotation {
        self.rotation
    }

    pub(crate) fn stripe_count(&self, rows: u64) -> u64 {
        rows * self.groups
    }

    #[inline]
    pub(crate) fn seat(&self, stripe: StripeNo) -> GroupedSeat {
        let row = self.row_of(stripe);
        let group = stripe.0 - row * self.groups;
        GroupedSeat {
            first: u16::try_from(group * self.code.width()).expect("members are few"),
            turn: self.rotation.turn(self.code, row),
        }
    }

    /// The member that holds a strip, and the row there.
    #[inline]
    pub(crate) fn place(
        &self,
        stripe: StripeNo,
        seat: GroupedSeat,
        strip: StripIdx,
    ) -> (MemberIdx, u64) {
        let position = self.rotation.position(self.code, seat.turn, strip.0);
        (MemberIdx(seat.first + u16::from(position)), self.row_of(stripe))
    }

    #[inline]
    fn row_of(&self, stripe: StripeNo) -> u64 {
        // A division costs more than all the rest, and most arrays have one group.
        if self.groups == 1 { stripe.0 } else { stripe.0 / self.groups }
    }

    #[inline]
    pub(crate) fn strip_on(&self, seat: GroupedSeat, member: MemberIdx) -> Option<StripIdx> {
        let position = member.0.checked_sub(seat.first)?;
        let position =
            u8::try_from(position).ok().filter(|at| u64::from(*at) < self.code.width())?;
        Some(StripIdx(self.rotation.strip(self.code, seat.turn, position)))
    }

    #[inline]
    pub(crate) fn stripe_in(&self, member: MemberIdx, row: u64) -> StripeNo {
        StripeNo(row * self.groups + u64::from(member.0) / self.code.width())
    }
}
