//! The governor: how hard a background job works while clients are served.
//!
//! What must stay true: without client requests a job runs at full depth. With them it slows down
//! until their latency is near the target, but never below its floor of bytes a second. Progress is
//! a promise, latency an aim. The controller is a pure function of its state and one sample.
//!
//! It works like a sender on a shared line: depth grows by one step at a time and is halved when
//! latency is above the target. At depth one it puts pauses between steps instead.

use std::time::Duration;

/// What a job may do until the next sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pace {
    /// Stripes under way at once; at least one.
    pub(crate) depth: usize,
    /// Wait before each stripe; only at depth one.
    pub(crate) pause: Duration,
}

/// What was seen since the last sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sample {
    /// Latency of client reads and writes, 95th percentile; `None` if there were none.
    pub(crate) latency: Option<Duration>,
    /// Bytes a second that the job moved.
    pub(crate) bytes_per_s: u64,
    /// Bytes that one stripe of the job moves.
    pub(crate) stripe_bytes: u64,
}

/// What the controller aims at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Aim {
    /// Latency to stay below.
    pub(crate) latency: Duration,
    /// Bytes a second to reach whatever the latency is.
    pub(crate) floor_bytes: u64,
    /// Most stripes under way.
    pub(crate) depth_max: usize,
}

/// Time between two samples.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// The shortest pause; anything below is no pause.
const PAUSE_MIN: Duration = Duration::from_millis(1);

impl Pace {
    /// As fast as can be.
    pub(crate) fn full(aim: Aim) -> Pace {
        Pace { depth: aim.depth_max.max(1), pause: Duration::ZERO }
    }

    /// The pace after `sample`.
    #[must_use]
    pub(crate) fn next(self, sample: Sample, aim: Aim) -> Pace {
        let Some(latency) = sample.latency else { return Pace::full(aim) };
        if sample.bytes_per_s < aim.floor_bytes {
            return self.faster(aim);
        }
        if latency > aim.latency {
            return self.slower(sample, aim);
        }
        // Between three quarters of the target and the target it is just right.
        if latency.saturating_mul(4) < aim.latency.saturating_mul(3) {
            self.faster(aim)
        } else {
            self
        }
    }

    fn faster(self, aim: Aim) -> Pace {
        if self.pause > PAUSE_MIN {
            return Pace { pause: self.pause / 2, ..self };
        }
        if !self.pause.is_zero() {
            return Pace { pause: Duration::ZERO, ..self };
        }
        Pace { depth: (self.depth + 1).min(aim.depth_max.max(1)), pause: Duration::ZERO }
    }

    fn slower(self, sample: Sample, aim: Aim) -> Pace {
        if self.depth > 1 {
            return Pace { depth: self.depth / 2, pause: Duration::ZERO };
        }
        let pause = (self.pause * 2).max(PAUSE_MIN).min(longest_pause(sample, aim));
        Pace { depth: 1, pause }
    }
}

/// With this pause before each stripe the floor is reached if the stripe itself takes no time.
fn longest_pause(sample: Sample, aim: Aim) -> Duration {
    let micros = u128::from(sample.stripe_bytes) * 1_000_000 / u128::from(aim.floor_bytes.max(1));
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)).min(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::{Aim, Pace, Sample};
    use std::time::Duration;

    const AIM: Aim =
        Aim { latency: Duration::from_millis(5), floor_bytes: 16 << 20, depth_max: 16 };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn sample(latency: Option<Duration>, mib_per_s: u64) -> Sample {
        Sample { latency, bytes_per_s: mib_per_s << 20, stripe_bytes: 512 << 10 }
    }

    /// A machine whose client latency grows by 1 ms for each stripe under way, and where a stripe
    /// takes 2 ms; the pace it settles at.
    fn run_until_steady(mut pace: Pace, base: Duration, aim: Aim) -> Pace {
        for _ in 0..200 {
            let in_step = ms(2) + pace.pause;
            let share = ms(2).as_secs_f64() / in_step.as_secs_f64();
            let added = ms(1).mul_f64(share * f64::from(u32::try_from(pace.depth).unwrap()));
            let rate = f64::from(512_u32 << 10) * f64::from(u32::try_from(pace.depth).unwrap())
                / in_step.as_secs_f64();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a model")]
            let bytes_per_s = rate as u64;
            pace = pace.next(
                Sample { latency: Some(base + added), bytes_per_s, stripe_bytes: 512 << 10 },
                aim,
            );
        }
        pace
    }

    #[test]
    fn without_clients_it_runs_at_full_depth_at_once() {
        let crawling = Pace { depth: 1, pause: ms(30) };
        assert_eq!(crawling.next(sample(None, 16), AIM), Pace::full(AIM));
    }

    #[test]
    fn it_settles_where_latency_meets_the_target() {
        // 1 ms of its own and 1 ms a stripe: 3 or 4 stripes fit below 5 ms; 5 would not.
        let pace = run_until_steady(Pace::full(AIM), ms(1), AIM);
        assert!((2..=4).contains(&pace.depth), "{pace:?}");
        assert_eq!(pace.pause, Duration::ZERO);
    }

    #[test]
    fn hopeless_latency_costs_the_job_all_but_its_floor() {
        let pace = run_until_steady(Pace::full(AIM), ms(50), AIM);
        assert_eq!(pace.depth, 1);
        assert!(pace.pause > ms(5), "{pace:?}");
        let bytes_per_s = f64::from(512_u32 << 10) / (ms(2) + pace.pause).as_secs_f64();
        assert!(bytes_per_s > f64::from(12_u32 << 20), "{pace:?}: {bytes_per_s} bytes a second");
    }

    #[test]
    fn below_the_floor_it_speeds_up_whatever_the_latency() {
        let mut pace = Pace { depth: 1, pause: ms(40) };
        for _ in 0..20 {
            let next = pace.next(sample(Some(ms(500)), 1), AIM);
            assert!(next.pause < pace.pause || next.depth >= pace.depth);
            pace = next;
        }
        assert!(pace.depth > 1 && pace.pause.is_zero(), "{pace:?}");
    }

    #[test]
    fn depth_stays_between_one_and_the_limit() {
        for depth_max in [0, 1, 3, 16] {
            let aim = Aim { depth_max, ..AIM };
            let mut pace = Pace::full(aim);
            for latency in [1, 1, 1, 9, 1, 9, 9, 9, 9, 1, 1, 1, 1, 1] {
                pace = pace.next(sample(Some(ms(latency)), 100), aim);
                assert!((1..=depth_max.max(1)).contains(&pace.depth), "{pace:?} of {depth_max}");
                assert!(pace.pause.is_zero() || pace.depth == 1, "{pace:?}");
            }
        }
    }
}
