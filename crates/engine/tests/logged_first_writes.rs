//! The tests of `first_writes` once more, on arrays that keep a stripe intent log: `world::policy` tells by the name of
//! this file.

#[path = "first_writes.rs"]
mod first_writes;
