//! Whether the host still lives: the keep-alive timer of a controller.
//!
//! What must stay true: a host that sends any command within each timeout is never given up; one
//! that sends none is given up after at most two. Time comes from outside, in milliseconds of any
//! clock that does not go back. Base 2.0, 3.9 "Keep Alive"; the timer is traffic based
//! (CTRATT.TBKAS).

/// The timer of one controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// KATO rounded up to whole units; 0 is off.
    timeout_ms: u64,
    deadline_ms: u64,
    has_traffic: bool,
}

impl KeepAlive {
    /// A timer that starts now. A timeout of 0 never expires.
    pub fn new(timeout_ms: u32, now_ms: u64) -> KeepAlive {
        let unit = u64::from(crate::identify::KEEP_ALIVE_UNIT_MS);
        let timeout_ms = u64::from(timeout_ms).next_multiple_of(unit);
        let deadline_ms = now_ms.saturating_add(timeout_ms);
        KeepAlive { timeout_ms, deadline_ms, has_traffic: false }
    }

    /// KATO in milliseconds; 0 is off.
    pub fn timeout_ms(&self) -> u32 {
        u32::try_from(self.timeout_ms).unwrap_or(u32::MAX)
    }

    /// A command came, on any queue of the controller.
    pub fn saw_traffic(&mut self) {
        self.has_traffic = true;
    }

    /// When to look again, in milliseconds of the clock; `None` while the timer is off.
    pub fn looks_at_ms(&self) -> Option<u64> {
        (self.timeout_ms > 0).then_some(self.deadline_ms)
    }

    /// Look at the clock: whether the host must be given up. With traffic since the last look the
    /// timer starts again.
    pub fn has_expired(&mut self, now_ms: u64) -> bool {
        if self.timeout_ms == 0 || now_ms < self.deadline_ms {
            return false;
        }
        if !self.has_traffic {
            return true;
        }
        self.has_traffic = false;
        self.deadline_ms = now_ms.saturating_add(self.timeout_ms);
        false
    }
}
