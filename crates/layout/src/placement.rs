//! Which member holds which strip: the one place where layouts differ.
//!
//! A further layout is a variant of [`Placement`], a variant of [`Seat`] if it keeps other things
//! of a stripe, and an arm in each function here; nobody else matches on either. It comes with a
//! layout version of its own.
//!
//! What must stay true of every layout: a stripe has at most one strip on a member; `place` and
//! `stripe_in` with `strip_on` are each other's inverse; a row of a member that holds no strip is
//! spare.

use std::ops::Range;

use ashlar_units::{MemberIdx, StripIdx, StripeNo};

use crate::geometry::{GeometryParts, LAYOUT_VERSION};
use crate::grouped::{Grouped, GroupedSeat};
use crate::rotation::Rotation;
use crate::stripe::Stripe;

/// How stripes lie on members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placement {
    /// Stripes on fixed groups of as many members as a stripe is wide.
    Grouped(Grouped),
}

/// What a stripe keeps of where it lies, so that placing its strips costs little.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seat {
    /// On a group.
    Grouped(GroupedSeat),
}

impl Placement {
    /// That of parts whose counts were checked.
    pub(crate) fn of(parts: &GeometryParts) -> Placement {
        Placement::Grouped(Grouped::new(parts))
    }

    /// The layout version of a superblock.
    pub(crate) fn version(&self) -> u16 {
        match self {
            Placement::Grouped(_) => LAYOUT_VERSION,
        }
    }

    #[inline]
    pub(crate) fn members(&self) -> usize {
        match self {
            Placement::Grouped(grouped) => grouped.members(),
        }
    }

    #[inline]
    pub(crate) fn groups(&self) -> usize {
        match self {
            Placement::Grouped(grouped) => grouped.groups(),
        }
    }

    pub(crate) fn rotation(&self) -> Rotation {
        match self {
            Placement::Grouped(grouped) => grouped.rotation(),
        }
    }

    /// Stripes that members of `rows` strips hold.
    pub(crate) fn stripe_count(&self, rows: u64) -> u64 {
        match self {
            Placement::Grouped(grouped) => grouped.stripe_count(rows),
        }
    }

    /// Where a stripe that exists lies.
    #[inline]
    pub(crate) fn seat(&self, stripe: StripeNo) -> Seat {
        match self {
            Placement::Grouped(grouped) => Seat::Grouped(grouped.seat(stripe)),
        }
    }

    /// Where a strip that exists lies: the member, and the row there.
    #[inline]
    pub(crate) fn place(&self, stripe: Stripe, strip: StripIdx) -> (MemberIdx, u64) {
        match (self, stripe.seat()) {
            (Placement::Grouped(grouped), Seat::Grouped(seat)) => {
                grouped.place(stripe.number(), seat, strip)
            }
        }
    }

    /// The strip of the stripe that the member holds.
    #[inline]
    pub(crate) fn strip_on(&self, seat: Seat, member: MemberIdx) -> Option<StripIdx> {
        match (self, seat) {
            (Placement::Grouped(grouped), Seat::Grouped(seat)) => grouped.strip_on(seat, member),
        }
    }

    /// The stripe that has a strip in this row of this member.
    #[inline]
    pub(crate) fn stripe_in(&self, member: MemberIdx, row: u64) -> Option<StripeNo> {
        match self {
            Placement::Grouped(grouped) => Some(grouped.stripe_in(member, row)),
        }
    }

    /// Sets of members that share stripes, and share none with the members of another set.
    pub(crate) fn failure_sets(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        match self {
            Placement::Grouped(grouped) => grouped.failure_sets(),
        }
    }
}
