//! Stripe intent log, full form: the new data and each member's own new parity on every live parity
//! member, and (with a copy in place) each new block in the log of its own member too; then data in
//! place, then parity.
//!
//! What must stay true: nothing is overwritten before every record is durable. So a record that
//! some live parity member or changed member lacks is of an update that overwrote nothing, and is
//! discarded; the newest record that all parity members hold is rolled forward, if the changed
//! members hold it too. With no parity member left, all data members are there, and the copies in
//! place repair what is torn.

use super::Strategy;
use crate::device::{Array, Body, Item, Record};
use crate::field;
use crate::update::{Round, Update};

/// The full form, with or without copies in place.
pub struct Full {
    /// Whether each new block goes to the log of its own member as well.
    pub copy_in_place: bool,
}

impl Strategy for Full {
    fn name(&self) -> &'static str {
        if self.copy_in_place { "full + copy in place (E)" } else { "full, no copy in place" }
    }

    fn rounds(&self, update: &Update) -> Vec<Round> {
        let new = || update.changed.iter().map(|&c| (c, update.new[c])).collect();
        let at_parity = |c: usize| Body::Full(new(), Some(update.new[c]));
        let mut records = update.records(update.parities(), at_parity);
        if self.copy_in_place {
            let in_place = |c: usize| Body::Full(vec![(c, update.new[c])], None);
            records.extend(update.records(update.live_changed(), in_place));
        }
        vec![records, update.data(), update.parity()]
    }

    fn restart(&self, array: &Array) -> Vec<Round> {
        let stripes = 0..array.shape.stripes;
        vec![
            stripes.flat_map(|s| restart_row(array, s, self.copy_in_place)).collect(),
            array.settle_records(),
        ]
    }
}

/// What a restart writes to one stripe.
///
/// The changed members are asked (`copy_in_place`) because the restart itself may be cut off, and
/// the last parity member lost with it: then only copies in place can repair the blocks that it
/// tore.
pub(crate) fn restart_row(array: &Array, stripe: usize, copy_in_place: bool) -> Round {
    let Some(held) = array.newest_on_all_parities(stripe) else { return Round::new() };
    if held.is_empty() {
        return from_copies(array, stripe);
    }
    let mut row = array.row(stripe);
    for (column, record) in held {
        let Body::Full(data, parity) = &record.body else { return array.resync(stripe) };
        let lacks = |&(c, _): &(usize, _)| {
            let member = array.shape.member(stripe, c);
            let holds = |r: &Record| r.sequence == record.sequence;
            array.devices[member].is_some() && !array.records(member, stripe).any(holds)
        };
        if copy_in_place && data.iter().any(lacks) {
            return Round::new();
        }
        row[column] = *parity;
        // With copies in place, only what a live member has of its own: a lost block follows from
        // the rest of the row.
        let is_used = |&&(c, _): &&(usize, _)| {
            !copy_in_place || array.devices[array.shape.member(stripe, c)].is_some()
        };
        data.iter().filter(is_used).for_each(|&(c, block)| row[c] = Some(block));
    }
    field::solve(&row, array.shape.k).map_or_else(Round::new, |data| array.make(stripe, &data))
}

fn from_copies(array: &Array, stripe: usize) -> Round {
    let newest = |member| {
        let record = array.records(member, stripe).next()?;
        let Body::Full(data, _) = &record.body else { return None };
        Some((member, Item::Place(stripe, data.first()?.1)))
    };
    array.shape.columns(stripe).take(array.shape.k).filter_map(newest).collect()
}
