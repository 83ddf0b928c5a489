//! Numbers and times for people: a moment in UTC, a span in its two largest units, thousands set
//! apart. The commands and the daemon's page print the same words.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_SECONDS: u64 = 86_400;

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970 as `2026-01-31 23:59:59.123Z`.
pub fn utc(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let (year, month, day) = date(seconds / DAY_SECONDS);
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    let (second, milli) = (seconds % 60, unix_ms % 1000);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Year, month and day of the day that is `days` after 1970-01-01, in the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    // Counted in eras of 400 years from 0000-03-01, so that the leap day is the last day of a year.
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Seconds as `45 s`, `12 m 05 s`, `2 h 05 m` or `3 d 04 h`.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} m {:02} s", seconds / 60, seconds % 60),
        3600..DAY_SECONDS => format!("{} h {:02} m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {:02} h", seconds / DAY_SECONDS, seconds / 3600 % 24),
    }
}

/// A number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{date, grouped, span, utc};

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(1_048_576), "1,048,576");
    }

    #[test]
    fn known_moments_print_as_the_calendar_says() {
        for (unix_ms, text) in [
            (0, "1970-01-01 00:00:00.000Z"),
            (951_782_400_000, "2000-02-29 00:00:00.000Z"),
            (1_000_000_000_123, "2001-09-09 01:46:40.123Z"),
            (4_107_542_400_000, "2100-03-01 00:00:00.000Z"),
        ] {
            assert_eq!(utc(unix_ms), text);
        }
    }

    #[test]
    fn every_day_of_200_years_follows_the_one_before() {
        let mut before = date(0);
        for days in 1..73_000 {
            let now = date(days);
            let next_day = now.0 == before.0 && now.1 == before.1 && now.2 == before.2 + 1;
            let next_month =
                now.0 == before.0 && now.1 == before.1 + 1 && now.2 == 1 && before.2 >= 28;
            let next_year = now.0 == before.0 + 1
                && (now.1, now.2) == (1, 1)
                && (before.1, before.2) == (12, 31);
            assert!(next_day || next_month || next_year, "{before:?} then {now:?}");
            before = now;
        }
    }

    #[test]
    fn spans_show_their_two_largest_units() {
        assert_eq!(span(59), "59 s");
        assert_eq!(span(725), "12 m 05 s");
        assert_eq!(span(7500), "2 h 05 m");
        assert_eq!(span(3 * 86_400 + 4 * 3600), "3 d 04 h");
    }
}
