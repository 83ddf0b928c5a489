//! The forensic log: every command the lab starts, in order, with its outputs kept untouched and
//! their SHA-256.
//!
//! - process: a command in its own process group, with closed stdin and a time limit
//! - log: the directory it is all written to, as it goes
//! - verify: whether a finished directory is still what was written
//!
//! What must stay true: the line of a command is on disk before the next step uses its output; a
//! command that was begun is never without a trace, even if the lab is killed; a full disk is one
//! clear line, and what was measured before it is kept. Not here: what the outputs mean.

pub mod log;
pub mod process;
#[cfg(test)]
mod tests;
pub mod verify;

pub use log::{Evidence, Exit, Ran};
pub use process::{Interrupt, Order};
pub use verify::verify;
