//! A bitmap while all members are there, the full log with copies in place as soon as one is
//! missing.
//!
//! It closes the hole of the degraded array, in which every crash is dangerous, and leaves that of
//! a crash and a loss at once.

use super::Strategy;
use super::bitmap::Bitmap;
use super::full::Full;
use crate::device::Array;
use crate::update::{Round, Update};

/// Bitmap, then log.
pub struct LogWhenDegraded;

const LOG: Full = Full { copy_in_place: true };

impl Strategy for LogWhenDegraded {
    fn name(&self) -> &'static str {
        "bitmap, E when degraded"
    }

    fn rounds(&self, update: &Update) -> Vec<Round> {
        if update.is_healthy() { Bitmap.rounds(update) } else { LOG.rounds(update) }
    }

    fn restart(&self, array: &Array) -> Vec<Round> {
        // No stripe has both: bits are clean before the first update of a degraded array is logged.
        [Bitmap.restart(array), LOG.restart(array)].concat()
    }
}
