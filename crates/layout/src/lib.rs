//! Geometry and plans: where every block of a volume lives, and what a write or a degraded read has
//! to do.
//!
//! Pure arithmetic: no I/O, no clock, no bytes of data, and no allocation in anything that runs per
//! request. The caller says which strips can be read and written right now; this crate answers with
//! a plain value (what to read, what to decode, what to write) that the engine executes as it
//! stands.
//!
//! What must stay true: the mapping from volume offsets to members is part of the on-disk format.
//! An array created by one version of this crate is read by every later one, so a layout version
//! never changes; the maps under `tests/golden` hold it in place.
//!
//! Not here: the coefficients of the code (the parity crate), locking, retries, and what "readable"
//! depends on (the engine).
//!
//! In reading order:
//! - `level`      the levels, their names, their codes on disk
//! - `shape`      what an operator asks for, and the sentence that refuses it
//! - `geometry`   a validated array: counts and sizes, and the questions that are asked of a layout
//! - `stripe`     a stripe with its geometry, as everybody hands it on
//! - `placement`  which member holds which strip: the one place where layouts differ
//! - `grouped`    layout version 1: fixed groups of members
//! - `declustered` layout version 2: stripes on changing members
//! - `rotation`   which position of a group holds which strip
//! - `map`        volume extents cut at stripes, stripe extents cut at strips
//! - `capacity`   how many rows members of given sizes make
//! - `rows`       row ranges of a stripe
//! - `view`       what may be done with each strip now, and the error when that is too little
//! - `write_plan` full stripe, read-modify-write, reconstruct-write or decode-then-write, band by
//!   band
//! - `block_update` the same for one block of a healthy stripe, in a few steps
//! - `strip_io`   the reads and writes of a plan, merged per strip
//! - `read_plan`  what to read for a part of a stripe, and which survivors reconstruct what cannot
//!   be read

#![forbid(unsafe_code)]

mod block_update;
mod capacity;
pub mod declustered;
mod geometry;
mod grouped;
mod level;
mod map;
mod placement;
mod read_plan;
mod rotation;
mod rows;
mod shape;
mod strip_io;
mod stripe;
mod view;
mod write_plan;

#[cfg(test)]
mod tests;

pub use block_update::{BlockUpdate, plan_block};
pub use capacity::{rows_for, unused_bytes};
pub use geometry::{Geometry, GeometryParts, LAYOUT_VERSION, MEMBERS_MAX, Place, Spread};
pub use level::{Level, ParseLevelError};
pub use map::{Piece, Pieces, StripRun, StripRuns, only_run, split, strips_of};
pub use read_plan::{ReadBand, ReadPlan, plan_decode, plan_read};
pub use rotation::Rotation;
pub use rows::{RowRange, rows_touched};
pub use shape::{DeclusteredShape, STRIP_BYTES_MAX, STRIP_BYTES_MIN, Shape, ShapeError};
pub use strip_io::{StripIo, StripIos};
pub use stripe::{LayoutEpoch, Stripe, StripeId};
pub use view::{StripeView, Unreachable};
pub use write_plan::{BANDS_MAX, Band, WriteKind, WritePlan, plan_first_write, plan_write};
