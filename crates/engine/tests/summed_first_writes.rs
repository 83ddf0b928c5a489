//! The tests of `first_writes` once more, on arrays that keep checksums of their blocks: `world::checksums` tells by the name
//! of this file.

#[path = "first_writes.rs"]
mod first_writes;
