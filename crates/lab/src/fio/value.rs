//! Sizes, durations and truth values as fio writes them.
//!
//! What must stay true: what is not understood is `None`, never a guess. fio's suffixes are powers
//! of 1024 whether or not there is an `i` (its default `kb_base=1024`).

/// A number of bytes: `4k`, `1MiB`, `0x1000`, `10G`. Percentages are not bytes.
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let number: u64 = digits.parse().ok()?;
    let shift = match suffix.trim_end_matches('b').trim_end_matches('i') {
        "" if suffix.contains('i') => return None,
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// A share in percent: `10%`.
pub fn percent(text: &str) -> Option<f64> {
    let number: f64 = text.trim().strip_suffix('%')?.trim_end().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// A duration in seconds: `90`, `90s`, `5m`, `2h`, `1d`, `500ms`, `100us`.
pub fn seconds(text: &str) -> Option<f64> {
    let text = text.trim().to_ascii_lowercase();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let number: f64 = digits.parse().ok()?;
    let unit_s = match suffix {
        "" | "s" => 1.0,
        "us" => 1e-6,
        "ms" => 1e-3,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    };
    Some(number * unit_s)
}

/// A truth value: `1`, `true`, `yes`; `0`, `false`, `no`. An option without a value is true.
pub fn truth(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "" | "true" | "yes" => Some(true),
        "false" | "no" => Some(false),
        number => number.parse::<i64>().ok().map(|number| number != 0),
    }
}

/// Whether `word` is one of `words`, which have spaces between them.
pub fn is_among(words: &str, word: &str) -> bool {
    words.split(' ').any(|one| one == word)
}

#[cfg(test)]
mod tests {
    use super::{bytes, percent, seconds, truth};

    #[test]
    fn sizes_are_powers_of_1024_with_and_without_i() {
        for (text, expected) in [
            ("4096", Some(4096)),
            ("4k", Some(4096)),
            ("4KB", Some(4096)),
            ("4KiB", Some(4096)),
            ("1M", Some(1 << 20)),
            ("2g", Some(2 << 30)),
            ("0x1000", Some(4096)),
            ("10%", None),
            ("", None),
            ("k", None),
            ("4x", None),
            ("4i", None),
            ("99999999999999999999", None),
            ("99999999999P", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn durations_and_shares_have_their_units() {
        assert_eq!(seconds("90"), Some(90.0));
        assert_eq!(seconds("5m"), Some(300.0));
        assert_eq!(seconds("500ms"), Some(0.5));
        assert_eq!(seconds("5 minutes"), None);
        assert_eq!(percent("10%"), Some(10.0));
        assert_eq!(percent("10"), None);
        assert_eq!(percent("nan%"), None);
        assert_eq!(
            [truth(""), truth("0"), truth("1"), truth("maybe")],
            [Some(true), Some(false), Some(true), None]
        );
    }
}
