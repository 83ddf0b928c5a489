//! The tests of `oracle` once more, on arrays that keep a stripe intent log: `world::policy` tells by the name of
//! this file.

#[path = "oracle.rs"]
mod oracle;
