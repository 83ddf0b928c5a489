//! Partial parity log, for one parity: the parity of the blocks that do not change, on the parity
//! member; then data and parity in one round.
//!
//! A restart adds the changed blocks as they are to the logged part, so an unchanged block that is
//! lost comes back exact. A changed block that is lost is whatever parity and the other blocks
//! happen to say.

use super::Strategy;
use crate::device::{Array, Body, Item};
use crate::field;
use crate::update::{Round, Update};

/// The partial parity log.
pub struct Ppl;

impl Strategy for Ppl {
    fn name(&self) -> &'static str {
        "PPL (m = 1)"
    }

    fn parity_max(&self) -> usize {
        1
    }

    fn rounds(&self, update: &Update) -> Vec<Round> {
        let unchanged = (0..update.shape.k).filter(|c| !update.changed.contains(c));
        let partial = field::parity(0, unchanged.map(|c| (c, update.old[c])));
        let body = |_| Body::Partial(update.changed.clone(), partial);
        vec![update.records(update.parities(), body), [update.data(), update.parity()].concat()]
    }

    fn restart(&self, array: &Array) -> Vec<Round> {
        vec![(0..array.shape.stripes).filter_map(|stripe| restart_row(array, stripe)).collect()]
    }
}

fn restart_row(array: &Array, stripe: usize) -> Option<(usize, Item)> {
    let parity_member = array.shape.member(stripe, array.shape.k);
    let record = array.records(parity_member, stripe).next()?;
    let Body::Partial(changed, partial) = &record.body else { return None };
    let row = array.row(stripe);
    let written: Option<Vec<_>> = changed.iter().map(|&c| Some((c, row[c]?))).collect();
    let parity = *partial + field::parity(0, written?);
    Some((parity_member, Item::Place(stripe, parity)))
}
