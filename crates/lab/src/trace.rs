//! `lab trace`: what became of I/Os between submission and the device.
//!
//! - verb: the flags, and what is done with them
//! - instance: a private trace instance in tracefs
//! - event: one line of a trace
//! - account: sizes, splits, merges, alignment
//! - text: how an account looks
//!
//! What must stay true: the global trace buffer is never touched; nothing is written to a device by
//! tracing it.

pub mod account;
pub mod event;
pub mod instance;
pub mod text;
pub mod verb;
