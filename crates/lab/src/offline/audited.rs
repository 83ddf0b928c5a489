//! The source documents' own numbers, as they were audited: each is reproduced or contradicted by
//! the code that a report uses.

use crate::metrics::bandwidth::{Rate, ddr};
use crate::metrics::baseline::{Code, random_write};
use crate::metrics::plausible::{Ceiling, ceiling_finding};
use crate::metrics::share::{Unit, Window};
use crate::metrics::slow_member::median;
use crate::record::RateUnit;
use crate::units;

/// Seed 000: "79.3 % of the total CPU load, which is 13.7 %. This translates to 10.3 %". It does
/// not.
#[test]
fn a_share_of_a_share_is_10_9_percent_and_10_3_is_of_another_load() {
    let window = Window { cores: 100, hz: 100.0, seconds: 100.0 };
    let share = |count: u64| window.share(count, Unit::Samples).share;
    let of_load = |load: u64| units::percent(share(load * 793 / 1000));
    assert_eq!(units::percent(share(137_000)), "13.7 %");
    assert_eq!(of_load(137_000), "10.9 %");
    assert_eq!(of_load(130_000), "10.3 %");
}

/// Seed 002: "theoretical random write above 3.9 M" of twelve drives of 0.3 M; and RAID 6 leaves a
/// sixth of it.
#[test]
fn twelve_drives_of_three_hundred_thousand_are_3_6_million_before_any_penalty() {
    let card = 12.0 * 0.3e6;
    assert_eq!(units::rate(card, RateUnit::Iops), "3.60 M IOPS");
    assert!(card < 3.9e6);
    let raid6 = random_write(Code { data: 10, parity: 2 }, card);
    assert_eq!(units::rate(raid6.value, RateUnit::Iops), "600 k IOPS");
    assert!(raid6.derivation.contains("over 6 member I/Os"));
}

/// Seed 002: BASELINE(64, 64) is 34.98 M although twelve times a single drive's 2.7 M is 32.4 M.
#[test]
fn a_single_drive_times_twelve_is_no_baseline_for_what_was_measured() {
    let scaled = 12.0 * 2.7e6;
    assert_eq!(units::rate(scaled, RateUnit::Iops), "32.4 M IOPS");
    let ceiling = Ceiling { name: "12 x a single drive".into(), value: scaled };
    let finding = ceiling_finding(34_982_233.0, &[ceiling]).expect("above it");
    assert!(finding.reason.contains("1.08 times the ceiling '12 x a single drive'"), "{finding:?}");
}

/// Seed 003: a slide says "8 = 512 KiB, 12 = 4 KiB, 13 = 8 KiB" of a power of two of bytes.
#[test]
fn ashift_is_a_power_of_two_of_bytes() {
    let named: Vec<String> = [8, 9, 12, 13].iter().map(|shift| units::block(1 << shift)).collect();
    assert_eq!(named, ["256", "512", "4K", "8K"]);
}

/// Seed 004: IOR wrote 63 GB/s on arrays that fio measured at 59.5 GB/s.
#[test]
fn an_upper_layer_that_is_faster_than_the_layer_below_is_flagged() {
    let fio = Ceiling { name: "fio on the arrays".into(), value: 59.5e9 };
    assert!(ceiling_finding(63e9, std::slice::from_ref(&fio)).is_some());
    assert!(ceiling_finding(59e9, &[fio]).is_none());
}

/// Seed 004: 80 GB/s over 384 data disks is printed as 206 MB/s each; 126 GB/s over 504 as 250.
#[test]
fn eighty_gigabytes_over_384_disks_are_208_megabytes_each() {
    assert_eq!(units::bytes_per_s(80e9 / 384.0), "208 MB/s");
    assert_eq!(units::bytes_per_s(126e9 / 504.0), "250 MB/s");
}

/// Seed 001: "under 145 MB/s" inside, 265 outside, and 145 on average: a mean of a falling curve
/// lies between its ends.
#[test]
fn the_average_of_a_zone_curve_lies_between_its_ends() {
    let curve = (0..=10).map(|at| 265e6 - f64::from(at) * 12e6);
    let middle = median(curve);
    assert!(middle > 145e6 * 1.2 && middle < 265e6, "{middle}");
}

/// What was verified as stated.
#[test]
fn what_the_documents_say_rightly_comes_out_the_same() {
    // The note cuts the digit off, we round it.
    assert_eq!(Rate::mega(265).times(15).to_string(), "3.98 GB/s");
    assert_eq!(Rate::mega(260).times(32).to_string(), "8.32 GB/s");
    // A scrub of 8 TB a week.
    assert_eq!(units::bytes_per_s(8e12 / (7.0 * 86_400.0)), "13.2 MB/s");
    assert_eq!(ddr(2400, 4).to_string(), "76.8 GB/s");
    assert_eq!(ddr(2133, 2).to_string(), "34.1 GB/s");
}
