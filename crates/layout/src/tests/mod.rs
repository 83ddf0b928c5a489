//! Tests that look at the whole crate: every small geometry, and the maps that are on disks.
