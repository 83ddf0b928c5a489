//! Stripe intent log, parity-only form: new parity and the checksums of old and new data on every
//! live parity member; then data in place, then parity.
//!
//! A restart asks the checksums. A changed block that is still old: parity in place has not been
//! touched, so it counts. Changed blocks that are new, torn or lost: the parity in the records
//! counts, and it solves what is not new. Right for one block that does not tear. With more blocks,
//! or torn ones, there can be more unknowns than parities, and then unchanged blocks that are lost
//! cannot be had from either parity.
//!
//! What must stay true: a parity-only update leaves no copy in place, so the full form beside it
//! must leave none either; an old one would be taken for the newest. Members on which parity-only
//! is right do not tear and need none.

use super::Strategy;
use super::full::{self, Full};
use crate::device::{Array, Body, Checksum, Record};
use crate::field;
use crate::update::{Round, Update};

/// The parity-only form.
pub struct ParityOnly {
    /// Use it for every update, which is wrong, and not only where a single block changes.
    pub every_width: bool,
}

impl Strategy for ParityOnly {
    fn name(&self) -> &'static str {
        if self.every_width {
            "parity-only for every w (wrong)"
        } else {
            "parity-only for w = 1 (F)"
        }
    }

    fn rounds(&self, update: &Update) -> Vec<Round> {
        if update.changed.len() > 1 && !self.every_width {
            return Full { copy_in_place: false }.rounds(update);
        }
        let sums = |&c: &usize| (c, Checksum::of(update.old[c]), Checksum::of(update.new[c]));
        let body =
            |c: usize| Body::ParityOnly(update.changed.iter().map(sums).collect(), update.new[c]);
        vec![update.records(update.parities(), body), update.data(), update.parity()]
    }

    fn restart(&self, array: &Array) -> Vec<Round> {
        let stripes = 0..array.shape.stripes;
        vec![stripes.flat_map(|s| restart_row(array, s)).collect(), array.settle_records()]
    }
}

fn restart_row(array: &Array, stripe: usize) -> Round {
    let Some(held) = array.newest_on_all_parities(stripe) else { return Round::new() };
    let Some((_, Record { body: Body::ParityOnly(changed, _), .. })) = held.first() else {
        return full::restart_row(array, stripe, false);
    };
    let row = array.row(stripe);
    let (mut forward, mut back) = (row.clone(), row.clone());
    for &(c, old, new) in changed {
        forward[c] = row[c].filter(|_| new.fits(row[c]));
        back[c] = row[c].filter(|_| old.fits(row[c]));
    }
    for (column, record) in &held {
        if let Body::ParityOnly(_, parity) = &record.body {
            forward[*column] = Some(*parity);
        }
    }
    let untouched_parity = changed.iter().any(|&(c, old, _)| old.fits(row[c]));
    let back = untouched_parity.then(|| field::solve(&back, array.shape.k)).flatten();
    match back.or_else(|| field::solve(&forward, array.shape.k)) {
        Some(data) => array.make(stripe, &data),
        None => array.resync(stripe),
    }
}
