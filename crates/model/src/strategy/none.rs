//! Nothing: data and parity in one round. After a crash every stripe is made consistent, whatever
//! it holds.

use super::Strategy;
use crate::device::Array;
use crate::update::{Round, Update};

/// No protection at all.
pub struct Plain;

impl Strategy for Plain {
    fn name(&self) -> &'static str {
        "none"
    }

    fn rounds(&self, update: &Update) -> Vec<Round> {
        vec![[update.data(), update.parity()].concat()]
    }

    fn restart(&self, array: &Array) -> Vec<Round> {
        vec![(0..array.shape.stripes).flat_map(|stripe| array.resync(stripe)).collect()]
    }
}
