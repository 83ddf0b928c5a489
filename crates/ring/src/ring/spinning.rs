//! How long a ring looks for completions before it sleeps: learnt from how long it had to wait
//! lately, and from whether looking was of use.
//!
//! A sleep and its end cost some microseconds on both sides, and on virtual machines more. A wait
//! that is shorter than that is better spent awake.
//!
//! What must stay true: a look is never longer than the setting says. If that sets no bound, every
//! wait is a look. Where waits are long, or
//! somebody else needs this core to bring what is waited for, looks end in vain; then they become
//! rare, and a thread that has nothing to do does not look at all. Not here: the looking itself
//! (`parking`).

use std::time::Duration;

/// Waits until a thread whose looks are in vain tries again, at least and at most.
const REST_MIN: u32 = 16;
const REST_MAX: u32 = 4096;

/// What looks in vain may use up; one of use earns one.
const CREDIT_MAX: u32 = 8;
/// What one look in vain costs: two of three must be of use.
const CREDIT_LOST: u32 = 2;

/// Whether and how long to look before the next sleep. Times are nanoseconds.
pub(super) struct Spinning {
    most: u64,
    is_always: bool,
    /// About the mean of the last waits, long ones cut.
    wait_mean: u64,
    credit: u32,
    /// Waits to go without a look.
    rest: u32,
    /// The next rest.
    rest_next: u32,
}

impl Spinning {
    /// Looks take at most this long; zero: there are none.
    pub(super) fn new(limit: Duration) -> Spinning {
        let most = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).min(1_000_000_000);
        let is_always = limit == Duration::MAX;
        Spinning { most, is_always, wait_mean: 2 * most, credit: 0, rest: 0, rest_next: REST_MIN }
    }

    /// Whether there can be looks at all.
    pub(super) fn is_on(&self) -> bool {
        self.most > 0
    }

    /// How long to look now; `None`: sleep at once.
    pub(super) fn begin(&mut self) -> Option<u64> {
        if self.is_always {
            return Some(u64::MAX);
        }
        if self.wait_mean >= self.most {
            return None;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        Some((2 * self.wait_mean + self.most / 8).min(self.most))
    }

    /// A wait took so long, asleep or not.
    pub(super) fn waited(&mut self, nanos: u64) {
        self.wait_mean = (7 * self.wait_mean + nanos.min(2 * self.most)) / 8;
    }

    /// A look has ended; `is_hit`: with what was waited for.
    pub(super) fn looked(&mut self, is_hit: bool) {
        if is_hit {
            self.credit = (self.credit + 1).min(CREDIT_MAX);
            self.rest_next = (self.rest_next / 2).max(REST_MIN);
        } else if self.credit >= CREDIT_LOST {
            self.credit -= CREDIT_LOST;
        } else {
            self.credit = 0;
            self.rest = self.rest_next;
            self.rest_next = (2 * self.rest_next).min(REST_MAX);
        }
    }
}

/// When, during one look, the kernel is asked for completions that it may keep: the first time that
/// it says so, and then after twice as many tries each time.
#[derive(Default)]
pub(super) struct Asking {
    /// Tries to go without a question.
    rest: u64,
    rest_next: u64,
}

impl Asking {
    /// Whether to ask now; `may_keep`: whether the kernel says that it may keep completions.
    pub(super) fn is_due(&mut self, may_keep: bool) -> bool {
        if self.rest > 0 {
            self.rest -= 1;
            return false;
        }
        if may_keep {
            self.rest_next = (2 * self.rest_next).max(1);
            self.rest = self.rest_next;
        }
        may_keep
    }
}

#[cfg(test)]
mod tests {
    use super::{Asking, Spinning};
    use std::time::Duration;

    const MOST: u64 = 50_000;

    /// So many waits of `nanos` each, of which looks see those that end in time if `is_seen`.
    /// Looks, and how long they took.
    fn after(spinning: &mut Spinning, (count, nanos): (u32, u64), is_seen: bool) -> (u32, u64) {
        let (mut looks, mut spent) = (0, 0);
        for _ in 0..count {
            let look = spinning.begin();
            if let Some(most) = look {
                let is_hit = is_seen && nanos < most;
                (looks, spent) = (looks + 1, spent + if is_hit { nanos } else { most });
                assert!(most <= MOST);
                spinning.looked(is_hit);
            }
            // Where another needs this core, it brings nothing before the look has ended.
            spinning.waited(if is_seen { nanos } else { nanos + look.unwrap_or(0) });
        }
        (looks, spent)
    }

    fn new() -> Spinning {
        Spinning::new(Duration::from_nanos(MOST))
    }

    #[test]
    fn short_waits_are_looked_through_after_some_of_them() {
        let mut spinning = new();
        assert_eq!(after(&mut spinning, (4, 10_000), true).0, 0);
        assert!(after(&mut spinning, (100, 10_000), true).0 > 90);
        assert_eq!(after(&mut spinning, (100, 10_000), true), (100, 1_000_000));
    }

    #[test]
    fn long_waits_are_slept_through() {
        assert_eq!(after(&mut new(), (10_000, 1_000_000), true), (0, 0));
        let mut spinning = new();
        after(&mut spinning, (100, 10_000), true);
        assert!(after(&mut spinning, (10_000, 1_000_000), true).0 < 16);
    }

    #[test]
    fn a_core_that_the_other_side_needs_is_left_to_it() {
        let (looks, spent) = after(&mut new(), (100_000, 10_000), false);
        assert!(looks < 60, "{looks}");
        assert!(spent / 100_000 < 30, "{spent} ns in all");
    }

    #[test]
    fn looks_come_back_when_the_other_side_has_a_core_again() {
        let mut spinning = new();
        after(&mut spinning, (100_000, 10_000), false);
        after(&mut spinning, (10_000, 10_000), true);
        assert_eq!(after(&mut spinning, (100, 10_000), true).0, 100);
    }

    #[test]
    fn a_kernel_that_says_for_long_that_it_keeps_completions_is_asked_ever_more_rarely() {
        let mut asking = Asking::default();
        assert!((0..1_000).all(|_| !asking.is_due(false)), "there is nothing to ask for");
        let asked: Vec<u32> = (0..1_000_000).filter(|_| asking.is_due(true)).collect();
        assert_eq!(asked[..5], [0, 2, 5, 10, 19], "the first time at once");
        assert_eq!(asked.len(), 20);
    }

    #[test]
    fn a_setting_of_zero_is_off() {
        let mut spinning = Spinning::new(Duration::ZERO);
        assert!(!spinning.is_on());
        assert_eq!(after(&mut spinning, (100, 0), true), (0, 0));
    }
}
