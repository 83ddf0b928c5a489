//! `lab inspect`: the server as it is, what is wrong with it, and what limits it.
//!
//! - server: the model
//!
//! What must stay true: a check that could not be made never passes; the verdict is computed from the checks alone.

pub mod server;
