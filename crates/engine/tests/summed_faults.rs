//! The tests of `faults` once more, on arrays that keep checksums of their blocks: `world::checksums` tells by the name
//! of this file.

#[path = "faults.rs"]
mod faults;
