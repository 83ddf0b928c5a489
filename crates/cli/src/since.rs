//! Times as people type them: how long ago (`90m`, `1h`, `2 days`), or a moment (RFC 3339).
//!
//! What must stay true: what is not understood is refused with an example, never guessed. A moment
//! without an offset is UTC, as everything that `ashlar` prints.

use std::str::FromStr;

/// The begin of a time that is asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Since {
    /// So many milliseconds ago.
    Ago(u64),
    /// Milliseconds since 1970.
    At(u64),
}

impl Since {
    /// Milliseconds since 1970, if it is `now_ms`.
    pub fn unix_ms(self, now_ms: u64) -> u64 {
        match self {
            Since::Ago(ms) => now_ms.saturating_sub(ms),
            Since::At(ms) => ms,
        }
    }
}

const EXAMPLES: &str = "write 90m, 1h, '2 days' or 2026-01-31T12:00:00Z";

impl FromStr for Since {
    type Err = String;

    fn from_str(typed: &str) -> Result<Since, String> {
        let typed = typed.trim();
        let is_moment = typed.get(4..5) == Some("-");
        let read = if is_moment { at(typed).map(Since::At) } else { ago(typed).map(Since::Ago) };
        read.ok_or_else(|| EXAMPLES.to_owned())
    }
}

/// A sum of numbers with units, in milliseconds.
fn ago(text: &str) -> Option<u64> {
    let mut rest = text.strip_suffix("ago").unwrap_or(text).trim();
    let mut sum: u64 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|it: char| !it.is_ascii_digit())?;
        let number: u64 = rest[..end].parse().ok()?;
        rest = rest[end..].trim_start();
        let end = rest.find(|it: char| !it.is_ascii_alphabetic()).unwrap_or(rest.len());
        let seconds = match &rest[..end] {
            "s" | "sec" | "second" | "seconds" => 1,
            "m" | "min" | "minute" | "minutes" => 60,
            "h" | "hour" | "hours" => 3600,
            "d" | "day" | "days" => 86_400,
            "w" | "week" | "weeks" => 7 * 86_400,
            _ => return None,
        };
        sum = sum.checked_add(number.checked_mul(seconds * 1000)?)?;
        rest = rest[end..].trim_start();
    }
    Some(sum)
}

/// A moment: a date, or a date and a time, with an offset or in UTC.
fn at(text: &str) -> Option<u64> {
    let (date, time) = match text.split_at_checked(10)? {
        (date, "") => (date, "00:00"),
        (date, rest) => (date, rest.strip_prefix(['T', 't', ' '])?),
    };
    let days = days(date)?;
    let sign = time.rfind(['+', '-']).filter(|at| *at > 0);
    let (time, offset_minutes) = match (time.strip_suffix(['Z', 'z']), sign) {
        (Some(time), _) => (time, 0),
        (None, Some(at)) => {
            let minutes = minutes(&time[at + 1..])?;
            (&time[..at], if time[at..].starts_with('-') { -minutes } else { minutes })
        }
        (None, None) => (time, 0),
    };
    let ms = days * 86_400_000 + millis(time)? - offset_minutes * 60_000;
    u64::try_from(ms).ok()
}

/// `hh:mm` as minutes.
fn minutes(text: &str) -> Option<i64> {
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
    (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
}

/// `hh:mm`, `hh:mm:ss` or `hh:mm:ss.fff` as milliseconds.
fn millis(text: &str) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let (of_minutes, seconds) = match whole.split_at_checked(5)? {
        (of_minutes, "") if whole == text => (of_minutes, 0),
        (of_minutes, seconds) => (of_minutes, digits(seconds.strip_prefix(':')?, 2)?),
    };
    let is_sound = seconds <= 60 && !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
    let thousandths: String = part.chars().chain("00".chars()).take(3).collect();
    let thousandths: i64 = is_sound.then(|| thousandths.parse().ok()).flatten()?;
    Some(minutes(of_minutes)? * 60_000 + seconds * 1000 + thousandths)
}

/// `YYYY-MM-DD` as days since 1970-01-01, in the Gregorian calendar.
fn days(text: &str) -> Option<i64> {
    let mut parts = text.split('-');
    let year = digits(parts.next()?, 4)?;
    let month = digits(parts.next()?, 2)?;
    let day = digits(parts.next()?, 2)?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if parts.next().is_some() || !(1..=last).contains(&day) || year < 1970 {
        return None;
    }
    // Years from March on, so that the leap day is the last day of a year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before = year * 365 + year / 4 - year / 100 + year / 400;
    Some(before + (153 * month + 2) / 5 + day - 1 - 719_468)
}

fn digits(text: &str, count: usize) -> Option<i64> {
    let is_sound = text.len() == count && text.bytes().all(|it| it.is_ascii_digit());
    is_sound.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::{Since, days};
    use ashlar_api::words::utc;

    #[test]
    fn times_ago_add_up() {
        for (typed, seconds) in [
            ("90s", 90),
            ("1h", 3600),
            ("2 days", 172_800),
            ("1h30m", 5400),
            ("1 week 2 hours ago", 612_000),
            ("0m", 0),
        ] {
            assert_eq!(typed.parse(), Ok(Since::Ago(seconds * 1000)), "{typed}");
        }
        assert_eq!(Since::Ago(5).unix_ms(3), 0);
    }

    #[test]
    fn moments_are_what_the_calendar_says() {
        for (typed, printed) in [
            ("2026-01-31", "2026-01-31 00:00:00.000Z"),
            ("2026-01-31T23:59Z", "2026-01-31 23:59:00.000Z"),
            ("2026-01-31 23:59:59.123Z", "2026-01-31 23:59:59.123Z"),
            ("2026-01-31t12:00:00.5+02:30", "2026-01-31 09:30:00.500Z"),
            ("2024-02-29T00:30:00-01:00", "2024-02-29 01:30:00.000Z"),
            ("2000-12-31T23:00:00.1234567", "2000-12-31 23:00:00.123Z"),
        ] {
            let Ok(Since::At(ms)) = typed.parse() else { panic!("{typed}") };
            assert_eq!(utc(ms), printed, "{typed}");
        }
    }

    #[test]
    fn every_day_is_one_after_the_one_before() {
        let mut expected = 0;
        for year in 1970..2120 {
            for month in 1..=12 {
                for day in 1..=31 {
                    let Some(days) = days(&format!("{year:04}-{month:02}-{day:02}")) else {
                        continue;
                    };
                    assert_eq!(days, expected, "{year}-{month}-{day}");
                    expected += 1;
                }
            }
        }
        assert_eq!(expected, 54_786);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_examples() {
        for typed in [
            "",
            "h",
            "1",
            "1 fortnight",
            "-1h",
            "1h x",
            "99999999999999999999d",
            "ago",
            "2026-02-30",
            "2026-13-01",
            "2026-01-01T24:00Z",
            "2026-01-01T1:00Z",
            "2026-01-01X",
            "2026-01-01T10:00+5",
            "2026-01-01T10.5",
            "1969-12-31",
            "2026-01-01T10:00:00.",
            "äöü-1",
            "18446744073709551615w",
        ] {
            let refused = typed.parse::<Since>().expect_err(typed);
            assert!(refused.contains("'2 days'"), "{refused}");
        }
    }
}
