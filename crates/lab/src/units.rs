//! How figures are printed: MB is 10^6 bytes, MiB is 2^20, latency is in microseconds, and the unit
//! is always there.

use crate::record::RateUnit;

/// A rate with its unit.
pub fn rate(value: f64, unit: RateUnit) -> String {
    match unit {
        RateUnit::BytesPerS => bytes_per_s(value),
        RateUnit::Iops => format!("{} IOPS", scaled(value, &[("M", 1e6), ("k", 1e3)])),
    }
}

/// Bytes a second in GB/s, MB/s or kB/s.
pub fn bytes_per_s(value: f64) -> String {
    let (scale, name) = match value {
        value if value >= 1e9 => (1e9, "GB/s"),
        value if value >= 1e6 => (1e6, "MB/s"),
        _ => (1e3, "kB/s"),
    };
    format!("{} {name}", three_digits(value / scale))
}

/// Bytes in TB, GB, MB or kB.
pub fn bytes(value: f64) -> String {
    format!("{}B", scaled(value, &[(" T", 1e12), (" G", 1e9), (" M", 1e6), (" k", 1e3)]))
}

/// A block or strip size as people write it: 4K, 64K, 1M; bytes where it is none of these.
pub fn block(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 && bytes % (1 << 20) == 0 => format!("{}M", bytes >> 20),
        bytes if bytes >= 1 << 10 && bytes % (1 << 10) == 0 => format!("{}K", bytes >> 10),
        bytes => format!("{bytes}"),
    }
}

/// Nanoseconds in microseconds.
pub fn microseconds(ns: u64) -> String {
    format!("{} us", three_digits(crate::metrics::latency::to_f64(ns) / 1e3))
}

/// A share in percent.
pub fn percent(share: f64) -> String {
    format!("{} %", three_digits(share * 100.0))
}

/// RFC 3339 of seconds since 1970, UTC. Source: days-to-civil conversion of the proleptic Gregorian
/// calendar.
pub fn timestamp(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn scaled(value: f64, scales: &[(&str, f64)]) -> String {
    match scales.iter().find(|(_, scale)| value >= *scale) {
        Some((name, scale)) if name.starts_with(' ') => {
            format!("{}{name}", three_digits(value / scale))
        }
        Some((name, scale)) => format!("{} {name}", three_digits(value / scale)),
        None => three_digits(value),
    }
}

/// The whole number nearest to `value`; 0 of what is less or no number.
pub fn whole(value: f64) -> u64 {
    format!("{:.0}", value.max(0.0)).parse().unwrap_or(0)
}

/// Three digits that count, as many of them behind the point as fit.
pub fn three_digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 || size == 0.0 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{block, bytes, bytes_per_s, microseconds, percent, rate, timestamp};
    use crate::record::RateUnit;

    #[test]
    fn units_are_always_there_and_three_digits_count() {
        assert_eq!(bytes_per_s(37.3e9), "37.3 GB/s");
        assert_eq!(bytes_per_s(1e6), "1.00 MB/s");
        assert_eq!(rate(34_982_233.0, RateUnit::Iops), "35.0 M IOPS");
        assert_eq!(rate(512.0, RateUnit::Iops), "512 IOPS");
        assert_eq!((bytes(8e12).as_str(), block(4096).as_str()), ("8.00 TB", "4K"));
        assert_eq!((block(1 << 20).as_str(), block(2300).as_str()), ("1M", "2300"));
        assert_eq!(microseconds(1_234_567), "1235 us");
        assert_eq!(percent(0.109), "10.9 %");
        assert_eq!(timestamp(951_827_696), "2000-02-29T12:34:56Z");
    }
}
