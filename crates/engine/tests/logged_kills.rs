//! The tests of `kills` once more, on arrays that keep a stripe intent log: `world::policy` tells by the name of
//! this file.

#[path = "kills.rs"]
mod kills;
