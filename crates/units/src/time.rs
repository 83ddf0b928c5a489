//! Time as the engine sees it: nanoseconds of the clock it was handed, never the wall clock.

use std::time::Duration;

/// A moment: nanoseconds since the injected clock's own zero. Only differences mean anything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The moment `wait` later, saturating at the end of time.
    #[must_use]
    #[inline]
    pub fn after(self, wait: Duration) -> Self {
        Nanos(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Time from `earlier` to this moment; zero if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
