//! Waiting within one executor, without threads.
//!
//! - `line`: who waits, first come first served; what the others are made of
//! - [`Semaphore`]: counted permits
//! - [`Signal`]: wakes everybody who waits for a change
//! - [`Queue`]: items handed from task to task
//!
//! All are first come first served, and a waiter that is dropped passes its turn on.

mod line;
mod queue;
mod semaphore;
mod signal;

pub use queue::{Pop, Queue};
pub use semaphore::{Acquire, Permit, Semaphore};
pub use signal::{Changed, Signal};
