//! What a rebuild did (F19), and what a drive wrote beyond what it was told.

/// What a rebuild did.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Rebuild {
    /// Time to full redundancy, seconds.
    pub seconds: f64,
    /// Bytes a second onto each member that was filled.
    pub bytes_per_s: f64,
    /// Foreground p99.9 during the rebuild over that without it; absent if a percentile could not
    /// be given.
    pub p999_ratio: Option<f64>,
}

/// F19 for a rebuild that filled `member_bytes` of one member in `seconds`, with foreground p99.9
/// in nanoseconds without and during it. `None` if no time passed.
pub fn of(member_bytes: u64, seconds: f64, p999_ns: (Option<u64>, Option<u64>)) -> Option<Rebuild> {
    let to_f64 = super::latency::to_f64;
    let p999_ratio = match p999_ns {
        (Some(without), Some(during)) if without > 0 => Some(to_f64(during) / to_f64(without)),
        _ => None,
    };
    (seconds > 0.0).then(|| Rebuild {
        seconds,
        bytes_per_s: to_f64(member_bytes) / seconds,
        p999_ratio,
    })
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn a_rebuild_has_a_rate_and_says_what_clients_felt() {
        let rebuild =
            of(8_000_000_000, 40.0, (Some(2_000_000), Some(5_000_000))).expect("time passed");
        assert!((rebuild.bytes_per_s - 200e6).abs() < 1.0);
        assert_eq!(rebuild.p999_ratio, Some(2.5));
        assert_eq!(of(1, 0.0, (None, None)), None);
        assert_eq!(of(1, 1.0, (None, Some(1))).and_then(|rebuild| rebuild.p999_ratio), None);
    }

    /// Seed 003: a deep scrub of 8 TB a week is 13.2 MB/s of background load.
    #[test]
    fn a_weekly_scrub_of_eight_terabytes_is_thirteen_megabytes_a_second() {
        let scrub = of(8_000_000_000_000, 7.0 * 86_400.0, (None, None)).expect("a week");
        assert!((scrub.bytes_per_s / 1e6 - 13.2).abs() < 0.05);
    }
}
