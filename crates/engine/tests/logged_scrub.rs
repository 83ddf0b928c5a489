//! The tests of `scrub` once more, on arrays that keep a stripe intent log: `world::policy` tells by the name of
//! this file.

#[path = "scrub.rs"]
mod scrub;
