//! Hostile member sets: devices of arrays that were in use, changed by accident or by somebody who
//! knows the format, and the real engine that has to start from them.
//!
//! What must stay true: a seed decides everything; what is demanded of a set depends on what was
//! done to it and never on what the engine says. docs/testing.md tells what is demanded. Not here:
//! what a client or an operator does (`life`, `director`).
//!
//! In reading order:
//! - `subject`  arrays with data in them, whole and degraded, stopped and crashed
//! - `damage`     what is done to their devices, and what may be lost by it
//! - `forge`    records that say something else under a right checksum
//! - `trial`    one start, everything read and written, and what is demanded
//! - `tally`    what came of many

mod damage;
mod forge;
mod subject;
mod tally;
mod trial;

pub use subject::{Subject, subjects};
pub use tally::{Tally, trials};
pub use trial::{Outcome, trial};
