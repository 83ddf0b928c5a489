//! The tests of `log_crashes` once more, on arrays that keep checksums of their blocks: `world::checksums` tells by the name
//! of this file.

#[path = "log_crashes.rs"]
mod log_crashes;
