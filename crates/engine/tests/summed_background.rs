//! The tests of `background` once more, on arrays that keep checksums of their blocks: `world::checksums` tells by the name
//! of this file.

#[path = "background.rs"]
mod background;
