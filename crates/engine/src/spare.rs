//! Spare devices in named pools, shared between arrays. (First shape; being filled.)

/// Pools of spares.
#[derive(Debug, Default)]
pub(crate) struct SparePools {}
