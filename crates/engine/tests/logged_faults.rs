//! The tests of `faults` once more, on arrays that keep a stripe intent log: `world::policy` tells by the name of
//! this file.

#[path = "faults.rs"]
mod faults;
