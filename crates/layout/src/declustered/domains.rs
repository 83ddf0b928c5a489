//! Failure domains: enclosures, paths or adapters that take all their drives with them.
//!
//! A layout with domains has as many columns as domains, and as many sub-slices in a slice as a
//! domain has members. Sub-slice u takes from domain d the member `(u + turn) mod members`, where
//! the turn is drawn for slice and domain. Columns are different domains, so a stripe has at most
//! one strip in a domain, also after a rebuild: a spare column is yet another domain.
//!
//! With too few enclosures for the width of a stripe, [`plan_domains`] makes several virtual
//! domains of each enclosure, at most as many as a stripe has parity strips.
//!
//! Not here: how an operator names enclosures, and what a lost one costs in words.

use ashlar_units::{MemberIdx, STRIPS_MAX, to_usize};

use super::slice::Declustered;

/// What an operator has and wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DomainWish {
    /// Enclosures, paths or adapters.
    pub enclosures: usize,
    /// Drives in each of them.
    pub drives_each: usize,
    /// Strips per stripe.
    pub width: usize,
    /// Parity strips per stripe.
    pub parity_strips: usize,
    /// Members that the distributed spares shall be able to replace at a time.
    pub spares: usize,
}

/// Domains that fit. Slots of an enclosure follow each other, and so do its domains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DomainPlan {
    /// Members of a domain: the `domain_members` of the layout.
    pub domain_members: usize,
    /// Domains of an enclosure: the most strips that a stripe has in one.
    pub strips_in_enclosure: usize,
    /// Strips that a stripe may still lose when an enclosure is lost.
    pub parity_left: usize,
}

/// Why the enclosures cannot be failure domains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{enclosures} domains of {drives_each} drives cannot hold stripes of {width} strips with at \
     most {parity_strips} in one domain and {spares} spare columns; take narrower stripes, fewer \
     spares or more domains"
)]
pub struct DomainError {
    /// Enclosures given.
    pub enclosures: usize,
    /// Drives in each.
    pub drives_each: usize,
    /// Strips per stripe.
    pub width: usize,
    /// Parity strips per stripe.
    pub parity_strips: usize,
    /// Spare columns.
    pub spares: usize,
}

/// The plan with the fewest strips of a stripe in one enclosure.
///
/// # Errors
/// If an enclosure would hold more strips of a stripe than parity replaces.
pub fn plan_domains(wish: &DomainWish) -> Result<DomainPlan, DomainError> {
    let DomainWish { enclosures, drives_each, width, parity_strips, spares } = *wish;
    let needed = width.saturating_add(spares);
    let fits = |of_enclosure: &usize| {
        drives_each > 0
            && drives_each.is_multiple_of(*of_enclosure)
            && enclosures.saturating_mul(*of_enclosure) >= needed
    };
    // An enclosure has no more domains than drives.
    let strips_in_enclosure = (1..=parity_strips.min(drives_each).min(STRIPS_MAX))
        .find(fits)
        .ok_or(DomainError { enclosures, drives_each, width, parity_strips, spares })?;
    Ok(DomainPlan {
        domain_members: drives_each / strips_in_enclosure,
        strips_in_enclosure,
        parity_left: parity_strips - strips_in_enclosure,
    })
}

impl Declustered {
    /// The failure domain of a member.
    #[inline]
    pub fn domain_of(&self, member: MemberIdx) -> usize {
        member.at() / self.parts().domain_members
    }

    /// Sub-slices of a slice.
    pub fn sub_slices(&self) -> usize {
        to_usize(u64::from(self.home.counts.sub_slices))
    }
}
