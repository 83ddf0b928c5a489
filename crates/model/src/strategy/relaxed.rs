//! Full form with copies in place, but an update of all blocks of a row of a healthy array is not
//! logged: a record without data goes first, then data and parity in one round.
//!
//! That record is needed: without it an older one of the same row would be rolled forward over the
//! new data, at any later crash. The promise is weaker: nothing untouched exists in the row, but
//! its blocks are all in flight, and may be lost if a member is lost with the crash, or torn.

use super::Strategy;
use super::full::Full;
use crate::device::{Array, Body};
use crate::update::{Round, Update};

/// The full form with relaxed full-stripe writes.
pub struct Relaxed;

const LOG: Full = Full { copy_in_place: true };

impl Strategy for Relaxed {
    fn name(&self) -> &'static str {
        "E, full stripes relaxed"
    }

    fn rounds(&self, update: &Update) -> Vec<Round> {
        if !update.is_healthy() || update.changed.len() < update.shape.k {
            return LOG.rounds(update);
        }
        let void = update.records(0..update.shape.members(), |_| Body::Void);
        vec![void, [update.data(), update.parity()].concat()]
    }

    fn restart(&self, array: &Array) -> Vec<Round> {
        LOG.restart(array)
    }
}
