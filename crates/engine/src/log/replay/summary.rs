//! What came of a replay.

use ashlar_units::Nanos;

/// What a start found in the logs, and what it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplaySummary {
    /// Updates rolled forward.
    pub rolled_forward: u64,
    /// Dropped updates: nothing of them was in place.
    pub dropped: u64,
    /// Rows whose parity was generated anew.
    pub rows_in_doubt: u64,
    /// Those of them that were left as they are: more of their blocks cannot be read than the
    /// parity replaces.
    pub rows_left: u64,
    /// Blocks of rows in doubt that were not what their checksums say, followed from the rest of
    /// their row, and were put back: writes that were caught half way, or damage.
    pub put_back: u64,
    /// Blocks written in place from the logs.
    pub blocks: u64,
    /// How long it took.
    pub duration: Nanos,
}
