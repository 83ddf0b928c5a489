//! The tests of `oracle` once more, on arrays that keep checksums of their blocks: `world::checksums` tells by the name
//! of this file.

#[path = "oracle.rs"]
mod oracle;
