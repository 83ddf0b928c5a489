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

use crate::declustered::{CarriedSeat, DECLUSTERED_VERSION, Declustered, Held, MemberRow};
use crate::geometry::LAYOUT_VERSION;
use crate::grouped::{Grouped, GroupedSeat};
use crate::rotation::Rotation;
use crate::stripe::Stripe;

/// How stripes lie on members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "an array has one or two, and hands out references")]
pub(crate) enum Placement {
    /// Stripes on fixed groups of as many members as a stripe is wide.
    Grouped(Grouped),
    /// Stripes on changing members.
    Declustered(Declustered),
}

/// What a stripe keeps of where it lies, so that placing its strips costs little.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seat {
    /// On a group.
    Grouped(GroupedSeat),
    /// On the cells of a slice.
    Declustered(CarriedSeat),
}

impl Placement {
    /// The layout version of a superblock.
    pub(crate) fn version(&self) -> u16 {
        match self {
            Placement::Grouped(_) => LAYOUT_VERSION,
            Placement::Declustered(_) => DECLUSTERED_VERSION,
        }
    }

    /// The numbers of a declustered layout.
    pub(crate) fn declustered(&self) -> Option<&Declustered> {
        match self {
            Placement::Grouped(_) => None,
            Placement::Declustered(map) => Some(map),
        }
    }

    #[inline]
    pub(crate) fn members(&self) -> usize {
        match self {
            Placement::Grouped(grouped) => grouped.members(),
            Placement::Declustered(map) => map.members(),
        }
    }

    #[inline]
    pub(crate) fn groups(&self) -> usize {
        match self {
            Placement::Grouped(grouped) => grouped.groups(),
            Placement::Declustered(_) => 1,
        }
    }

    pub(crate) fn rotation(&self) -> Rotation {
        match self {
            Placement::Grouped(grouped) => grouped.rotation(),
            Placement::Declustered(map) => map.rotation(),
        }
    }

    /// Stripes that members of `rows` strips hold.
    pub(crate) fn stripe_count(&self, rows: u64) -> u64 {
        match self {
            Placement::Grouped(grouped) => grouped.stripe_count(rows),
            Placement::Declustered(map) => map.stripe_count(),
        }
    }

    /// Where a stripe that exists lies.
    #[inline]
    pub(crate) fn seat(&self, stripe: StripeNo) -> Seat {
        match self {
            Placement::Grouped(grouped) => Seat::Grouped(grouped.seat(stripe)),
            Placement::Declustered(map) => Seat::Declustered(map.carried(stripe)),
        }
    }

    /// Where a strip that exists lies: the member, and the row there.
    #[inline]
    pub(crate) fn place(&self, stripe: Stripe, strip: StripIdx) -> (MemberIdx, u64) {
        match (self, stripe.seat()) {
            (Placement::Grouped(grouped), Seat::Grouped(seat)) => {
                grouped.place(stripe.number(), seat, strip)
            }
            (Placement::Declustered(map), Seat::Declustered(seat)) => {
                let MemberRow { member, row } =
                    map.place(map.seat_of(stripe.number(), seat), strip);
                (member, row)
            }
            _ => mixed_up(),
        }
    }

    /// The strip of the stripe that the member holds.
    #[inline]
    pub(crate) fn strip_on(&self, stripe: Stripe, member: MemberIdx) -> Option<StripIdx> {
        match (self, stripe.seat()) {
            (Placement::Grouped(grouped), Seat::Grouped(seat)) => grouped.strip_on(seat, member),
            (Placement::Declustered(map), Seat::Declustered(seat)) => {
                map.strip_on(map.seat_of(stripe.number(), seat), member)
            }
            _ => mixed_up(),
        }
    }

    /// The stripe that has a strip in this row of this member.
    #[inline]
    pub(crate) fn stripe_in(&self, member: MemberIdx, row: u64) -> Option<StripeNo> {
        match self {
            Placement::Grouped(grouped) => Some(grouped.stripe_in(member, row)),
            Placement::Declustered(map) => match map.held(MemberRow { member, row }) {
                Held::Strip(stripe, _) => Some(stripe),
                Held::Spare(_) | Held::Unused => None,
            },
        }
    }

    /// Sets of members that share stripes, and share none with the members of another set.
    pub(crate) fn failure_sets(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let sets = self.groups();
        let members = self.members() / sets;
        (0..sets).map(move |set| set * members..(set + 1) * members)
    }
}

/// A stripe has the seat of its own geometry; its epoch is compared before.
#[cold]
fn mixed_up() -> ! {
    panic!("a stripe with the seat of another layout")
}
