//! The tests of `background` once more, on arrays that keep a stripe intent log: `world::policy` tells by the name of
//! this file.

#[path = "background.rs"]
mod background;
