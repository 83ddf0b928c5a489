//! A controller: what it answers to the commands of its admin queue, without any I/O.
//!
//! - `state`: the controller itself: properties, features, events, keep-alive
//! - `identify`, `logs`, `features`: its answers, command by command
//!
//! What must stay true: every answer follows from the controller's state and the [`View`] it is
//! shown; a command that is refused has changed nothing; no answer is longer than the host may ask
//! for.

mod features;
mod identify;
mod logs;
mod state;

pub use state::{Answer, Controller, ControllerTerms, View};
