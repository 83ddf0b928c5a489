//! The source documents' own numbers, as they were audited: each is reproduced or contradicted by
//! the code that a report uses.

use crate::metrics::bandwidth::{Rate, ddr};
use crate::metrics::baseline::{Code, random_write};
use crate::metrics::plausible::{Ceiling, ceiling_finding};
use crate::metrics::share::{Unit, Window};
use crate::record::RateUnit::{self, BytesPerS, Iops};
use crate::units;

#[test]
fn what_the_documents_say_is_reproduced_or_corrected() {
    let window = Window { cores: 100, hz: 100.0, seconds: 100.0 };
    let share = |count| units::percent(window.share(count, Unit::Samples).share);
    let rate = |value: f64, unit: RateUnit| units::rate(value, unit);
    let raid6 = random_write(Code { data: 10, parity: 2 }, 12.0 * 0.3e6);
    assert!(raid6.derivation.contains("over 6 member I/Os"));
    for (found, is) in [
        // Seed 000: "79.3 % of the total CPU load, which is 13.7 %. This translates to 10.3 %." It
        // does not: that is 79.3 % of 13 %.
        (share(137_000), "13.7 %"),
        (share(137_000 * 793 / 1000), "10.9 %"),
        (share(130_000 * 793 / 1000), "10.3 %"),
        // Seed 001: the note cuts the digit off, we round it.
        (Rate::mega(265).times(15).to_string(), "3.98 GB/s"),
        (ddr(2400, 4).to_string(), "76.8 GB/s"),
        (ddr(2133, 2).to_string(), "34.1 GB/s"),
        // Seed 002: "theoretical random write above 3.9 M" of twelve drives of 0.3 M, of which
        // RAID 6 leaves a sixth.
        (rate(12.0 * 0.3e6, Iops), "3.60 M IOPS"),
        (rate(raid6.value, Iops), "600 k IOPS"),
        (rate(12.0 * 2.7e6, Iops), "32.4 M IOPS"),
        // Seed 003: a slide says "8 = 512 KiB, 12 = 4 KiB, 13 = 8 KiB" of a power of two of bytes.
        (units::block(1 << 8), "256"),
        (units::block(1 << 9), "512"),
        (units::block(1 << 12), "4K"),
        (units::block(1 << 13), "8K"),
        // A scrub of 8 TB a week.
        (rate(8e12 / (7.0 * 86_400.0), BytesPerS), "13.2 MB/s"),
        // Seed 004: 80 GB/s over 384 data disks is printed as 206 MB/s each.
        (rate(80e9 / 384.0, BytesPerS), "208 MB/s"),
        (rate(126e9 / 504.0, BytesPerS), "250 MB/s"),
        (Rate::mega(260).times(32).to_string(), "8.32 GB/s"),
    ] {
        assert_eq!(found, is);
    }
}

#[test]
fn what_is_faster_than_the_layer_below_or_than_a_made_up_baseline_is_flagged() {
    let above = |figure: f64, name: &str, value: f64| {
        let ceiling = Ceiling { name: name.to_owned(), value };
        ceiling_finding(figure, &[ceiling]).map(|finding| finding.reason)
    };
    // Seed 002: BASELINE(64, 64) is 34.98 M although twelve times a single drive is 32.4 M.
    let said = above(34_982_233.0, "12 x one drive", 12.0 * 2.7e6).expect("above it");
    assert!(said.contains("1.08 times the ceiling '12 x one drive'"), "{said}");
    // Seed 004: IOR wrote 63 GB/s on arrays that fio measured at 59.5 GB/s.
    assert!(above(63e9, "fio on the arrays", 59.5e9).is_some());
    assert_eq!(above(59e9, "fio on the arrays", 59.5e9), None);
}
