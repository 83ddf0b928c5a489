//! Write-intent bitmap: dirty on every member, then data and parity, then clean. A restart resyncs
//! dirty stripes.
//!
//! It makes the resync short. It does not close the hole: parity is recomputed from whatever is
//! there.

use super::Strategy;
use crate::device::{Array, Item};
use crate::update::{Round, Update};

/// A dirty bit for each stripe.
pub struct Bitmap;

impl Strategy for Bitmap {
    fn name(&self) -> &'static str {
        "bitmap"
    }

    fn rounds(&self, update: &Update) -> Vec<Round> {
        vec![
            update.everywhere(&Item::Dirty(update.stripe, true)),
            [update.data(), update.parity()].concat(),
            update.everywhere(&Item::Dirty(update.stripe, false)),
        ]
    }

    fn restart(&self, array: &Array) -> Vec<Round> {
        let dirty = || (0..array.shape.stripes).filter(|&stripe| array.dirty(stripe));
        vec![
            dirty().flat_map(|stripe| array.resync(stripe)).collect(),
            dirty().flat_map(|stripe| array.everywhere(&Item::Dirty(stripe, false))).collect(),
        ]
    }
}
