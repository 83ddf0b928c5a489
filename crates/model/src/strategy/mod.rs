//! Ways of writing a row. Each is a pure description: the rounds of an update, and the rounds of a
//! restart as a function of what the surviving members hold.
//!
//! - [`none`]: data and parity at once; a resync of everything after a crash
//! - [`bitmap`]: a dirty bit first; a resync of dirty stripes
//! - [`ppl`]: the parity of what does not change first, on the parity member; one parity only
//! - [`parity_only`]: new parity and checksums first, on the parity members; right for one block,
//!   wrong for more
//! - [`full`]: new data and new parity first, on the parity members, with or without a copy in
//!   place
//! - [`relaxed`]: full, but whole rows of healthy arrays are not logged
//! - [`degraded`]: bitmap while healthy, full while degraded

pub mod bitmap;
pub mod degraded;
pub mod full;
pub mod none;
pub mod parity_only;
pub mod ppl;
pub mod relaxed;

use crate::device::Array;
use crate::update::{Round, Update};

/// One way of writing a row.
pub trait Strategy: Sync {
    /// Short name for tables.
    fn name(&self) -> &'static str;

    /// Most parities that it works with.
    fn parity_max(&self) -> usize {
        crate::field::PARITY_MAX
    }

    /// The rounds of one update. Empty rounds are skipped.
    fn rounds(&self, update: &Update) -> Vec<Round>;

    /// The rounds of a restart, from what is left. Blocks are read by clients when all are durable.
    fn restart(&self, array: &Array) -> Vec<Round>;
}

/// Every strategy, in the order of the table.
pub const ALL: [&dyn Strategy; 9] = [
    &none::Plain,
    &bitmap::Bitmap,
    &ppl::Ppl,
    &parity_only::ParityOnly { every_width: true },
    &parity_only::ParityOnly { every_width: false },
    &full::Full { copy_in_place: false },
    &full::Full { copy_in_place: true },
    &relaxed::Relaxed,
    &degraded::LogWhenDegraded,
];
