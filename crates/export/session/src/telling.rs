//! How often anybody hears of clients that were dropped.
//!
//! What must stay true: a hostile client does not push everything else out of the event log.

use ashlar_units::Nanos;
use std::time::Duration;

/// Time between two events.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Decides which dropped clients get an event.
#[derive(Default)]
pub struct Teller {
    told_at: Option<Nanos>,
    untold: u64,
}

impl Teller {
    /// Whether to report a client dropped now, and how many were not reported since the last event.
    pub fn tell(&mut self, now: Nanos) -> Option<u64> {
        if self.told_at.is_some_and(|at| now.since(at) < TELL_EVERY) {
            self.untold += 1;
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::{TELL_EVERY, Teller};
    use ashlar_units::Nanos;
    use std::time::Duration;

    #[test]
    fn dropped_clients_are_told_of_once_a_second_and_the_others_counted() {
        let mut teller = Teller::default();
        let start = Nanos(5);
        assert_eq!(teller.tell(start), Some(0));
        for _ in 0..3 {
            assert_eq!(teller.tell(start.after(TELL_EVERY - Duration::from_nanos(1))), None);
        }
        assert_eq!(teller.tell(start.after(TELL_EVERY)), Some(3));
        assert_eq!(teller.tell(start.after(TELL_EVERY * 3)), Some(0));
    }
}
