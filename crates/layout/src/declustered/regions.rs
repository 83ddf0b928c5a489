//! The slices that an array was created with, those that growths opened, and where the cells of
//! both lie. ON-DISK FORMAT.
//!
//! A region is a layout of its own: so many columns, slices from 0, cell numbers from 0 on each
//! domain. Region 0 has the slices of the creation; each growth that ended opens one more. Slices
//! and stripes of the array go through the regions in this order. A cell of region 0 lies where its
//! number says, and growths move it to other domains. A cell of a later region lies in a cell that
//! its growth made free, and later growths move it.
//!
//! What must stay true: [`Declustered::settle`] and [`Declustered::unsettle`] are each other's
//! inverse. An array that never grew pays one branch.

use ashlar_units::{MemberIdx, StripeNo};

use super::growth::Growth;
use super::growth_parts::GrowthCounts;
use super::parts::SliceCounts;
use super::permutation::{Permutations, SlicePermutation};
use super::slice::{CellAt, Declustered};

/// Slices of one width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Region {
    pub(super) counts: SliceCounts,
    pub(super) permutations: Permutations,
    pub(super) first_slice: u64,
    pub(super) first_stripe: u64,
    /// Growths before it, its own included.
    growths: usize,
}

/// A growth, and the slices that it opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Grown {
    pub(super) growth: Growth,
    pub(super) opened: Region,
}

/// A cell of a region, by domain and number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Logical<'a> {
    pub(super) region: &'a Region,
    pub(super) domain: u32,
    pub(super) number: u64,
}

/// A cell of a domain, as it lies on its members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Physical {
    pub(super) domain: u32,
    pub(super) number: u64,
}

impl Region {
    /// The slices of the creation.
    pub(super) fn home(counts: SliceCounts) -> Region {
        let permutations = Permutations::new(counts.columns);
        Region { counts, permutations, first_slice: 0, first_stripe: 0, growths: 0 }
    }

    /// The slices of a growth, behind those of another region. There are none before it ended.
    pub(super) fn opened_by(growth: GrowthCounts, before: &Region) -> Region {
        let counts = match growth.is_complete() {
            true => growth.opened,
            false => SliceCounts { slices: 0, ..growth.opened },
        };
        let first_slice = before.first_slice + before.counts.slices;
        let first_stripe = before.first_stripe + before.counts.stripes();
        let permutations = Permutations::new(counts.columns);
        Region { counts, permutations, first_slice, first_stripe, growths: before.growths + 1 }
    }

    /// The permutation of a slice of the array that is in it.
    #[inline]
    pub(super) fn permutation(&self, slice: u64) -> SlicePermutation {
        self.permutations.of_slice(slice - self.first_slice)
    }

    /// How far a domain of a slice is turned: below the members of a domain.
    #[inline]
    fn turn(&self, slice: u64, domain: u32) -> u32 {
        match self.counts.sub_slices {
            1 => 0,
            members => self.permutations.draw(slice - self.first_slice, domain, members),
        }
    }

    /// Which member of a domain is in a sub-slice.
    #[inline]
    pub(super) fn unit(&self, cell: CellAt, domain: u32) -> u32 {
        let members = self.counts.sub_slices;
        let turned = cell.sub_slice + self.turn(cell.slice, domain);
        if turned < members { turned } else { turned - members }
    }

    /// The sub-slice that a member of a domain is in.
    #[inline]
    pub(super) fn sub_slice(&self, slice: u64, domain: u32, unit: u32) -> u32 {
        let members = self.counts.sub_slices;
        (unit + members - self.turn(slice, domain)) % members
    }

    /// The number of a cell among those of its domain in the region.
    #[inline]
    pub(super) fn number(&self, slice: u64, cell_row: u32) -> u64 {
        (slice - self.first_slice) * u64::from(self.counts.cell_rows_of_slice) + u64::from(cell_row)
    }
}

impl Declustered {
    /// The region of a slice.
    #[inline]
    pub(super) fn region(&self, slice: u64) -> &Region {
        if self.growths[0].is_none() { &self.home } else { self.region_of_slice(slice) }
    }

    fn region_of_slice(&self, slice: u64) -> &Region {
        self.last_region(|region| region.first_slice <= slice)
    }

    /// The region of a stripe.
    #[inline]
    pub(super) fn region_at(&self, stripe: StripeNo) -> &Region {
        if self.growths[0].is_none() {
            return &self.home;
        }
        self.last_region(|region| region.first_stripe <= stripe.0)
    }

    /// The last region with slices that begins early enough; the first one begins at 0.
    fn last_region(&self, begins: impl Fn(&Region) -> bool) -> &Region {
        let opened = self.growths.iter().flatten().map(|grown| &grown.opened);
        let opened = opened.filter(|region| region.counts.slices > 0);
        opened.rev().find(|region| begins(region)).unwrap_or(&self.home)
    }

    /// The regions, in order.
    pub(super) fn regions(&self) -> impl Iterator<Item = &Region> {
        let opened = self.growths.iter().flatten().map(|grown| &grown.opened);
        std::iter::once(&self.home).chain(opened)
    }

    /// Where a cell lies.
    #[inline]
    pub(super) fn settle(&self, cell: Logical<'_>) -> Physical {
        let Logical { domain, number, .. } = cell;
        match self.growths[0] {
            None => Physical { domain, number },
            Some(_) => self.settle_grown(cell),
        }
    }

    fn settle_grown(&self, cell: Logical<'_>) -> Physical {
        let own = cell.region.growths;
        let mut at = Physical { domain: cell.domain, number: cell.number };
        if let Some(grown) = own.checked_sub(1).and_then(|nth| self.growths[nth]) {
            at.number = grown.growth.opened(at.domain, at.number);
        }
        for grown in self.growths.iter().skip(own).flatten() {
            if at.number < grown.growth.counts.moved_cells {
                at.domain = grown.growth.goes_to(at.domain, at.number).unwrap_or(at.domain);
            }
        }
        at
    }

    /// What lies in a cell; `None` if it belongs to no slice: behind the last one, or on a new
    /// domain where nothing moved, or made free by a growth that has not ended.
    #[inline]
    pub(super) fn unsettle(&self, at: Physical) -> Option<Logical<'_>> {
        if self.growths[0].is_some() {
            return self.unsettle_grown(at);
        }
        self.at_home(at)
    }

    fn unsettle_grown(&self, at: Physical) -> Option<Logical<'_>> {
        let Physical { mut domain, number } = at;
        for Grown { growth, opened } in self.growths.iter().flatten().rev() {
            let is_new = domain >= growth.counts.before;
            let stays = if number >= growth.counts.moved_cells {
                (!is_new).then_some(domain)
            } else if is_new {
                growth.came_from(domain, number)
            } else {
                growth.goes_to(domain, number).is_none().then_some(domain)
            };
            let Some(old) = stays else {
                let number = growth.opened_number(domain, number)?;
                let is_open = opened.counts.slices > 0;
                return is_open.then_some(Logical { region: opened, domain, number });
            };
            domain = old;
        }
        self.at_home(Physical { domain, number })
    }

    #[inline]
    fn at_home(&self, at: Physical) -> Option<Logical<'_>> {
        let region = &self.home;
        let end = region.counts.slices * u64::from(region.counts.cell_rows_of_slice);
        let Physical { domain, number } = at;
        (number < end).then_some(Logical { region, domain, number })
    }

    /// The domain of a region that has its cell of this number on a domain of the array; `None` if
    /// none has.
    pub(super) fn domain_on(&self, region: &Region, number: u64, holder: u32) -> Option<u32> {
        if self.growths[0].is_none() {
            return Some(holder);
        }
        // Cells of one number lie in one unit of every later growth, so any of them will do.
        let nth = region.growths.checked_sub(1);
        let opener = nth.and_then(|nth| self.growths[nth]);
        let any = opener.map_or(number, |grown| grown.growth.opened(0, number));
        let mut domain = holder;
        for grown in self.growths.iter().skip(region.growths).flatten().rev() {
            if domain >= grown.growth.counts.before {
                domain = grown.growth.came_from(domain, any)?;
            }
        }
        if domain >= region.counts.columns {
            return None;
        }
        let is_there = self.settle(Logical { region, domain, number }).domain == holder;
        is_there.then_some(domain)
    }

    /// The member of a domain.
    #[inline]
    pub(super) fn member_of(&self, domain: u32, unit: u32) -> MemberIdx {
        let member = domain * self.home.counts.sub_slices + unit;
        MemberIdx(u16::try_from(member).expect("an array has at most 256 members"))
    }

    /// The domain of a member that exists, and which of its members it is.
    #[inline]
    pub(super) fn domain_and_unit(&self, member: MemberIdx) -> (u32, u32) {
        assert!(member.at() < self.members(), "no member {member}");
        let (member, members) = (u32::from(member.0), self.home.counts.sub_slices);
        match members {
            1 => (member, 0),
            _ => (member / members, member % members),
        }
    }
}
