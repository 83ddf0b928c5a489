//! One counter.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter that only grows. One thread adds, any may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Add `amount`. If two threads did, some of it would be lost.
    #[inline]
    pub fn add(&self, amount: u64) {
        add_alone(&self.0, amount);
    }

    /// Its value now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What the one thread that changes `value` adds to it.
#[inline]
pub(super) fn add_alone(value: &AtomicU64, amount: u64) {
    value.store(value.load(Relaxed).wrapping_add(amount), Relaxed);
}
