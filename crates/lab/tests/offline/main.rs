//! What the real binary says of recorded and made-up input: nothing here measures this machine.
//!
//! - baseline: two stored runs
//! - golden: accounts of recorded profiles
#![forbid(unsafe_code)]

mod baseline;
mod golden;
#[path = "../program/mod.rs"]
mod program;
