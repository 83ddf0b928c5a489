//! The stages of a write whose times are counted apart. `datapath/clock.rs` times them.

use super::latency::Latency;

/// The stages of a write that are timed, in the order in which a write comes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteStage {
    /// Waiting for the lock on its rows.
    Lock,
    /// Making its region's intent durable; nearly always it is.
    Intent,
    /// Reading what parity is computed from, with what it takes to plan that.
    Gather,
    /// Computing parity.
    Parity,
    /// The record in the stripe intent log, if there is one.
    Log,
    /// Writing data and parity, and settling members that failed.
    Store,
}

impl WriteStage {
    /// All of them, with the names that they are shown by.
    pub const NAMES: [(WriteStage, &'static str); 6] = [
        (WriteStage::Lock, "lock"),
        (WriteStage::Intent, "intent"),
        (WriteStage::Gather, "gather"),
        (WriteStage::Parity, "parity"),
        (WriteStage::Log, "log"),
        (WriteStage::Store, "store"),
    ];
}

/// Latency of each stage of a write; one write in [`STAGE_SAMPLE_EVERY`] is timed.
pub type StageLatencies = [Latency; WriteStage::NAMES.len()];

/// A timed write reads the clock seven times, about as much as 4 % of a small write on null members
/// costs.
pub const STAGE_SAMPLE_EVERY: u64 = 16;
