//! The way in which ZFS writes a declustered layout: `draid2:8d:42c:2s` is double parity, 8 data
//! strips, 42 drives (children) and 2 distributed spares.
//!
//! Parts after the first may come in any order, as with `zpool create`. Without `d`, ZFS takes 8
//! data strips, or as many as the drives allow.

use std::str::FromStr;

/// What such a text says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DraidSpelling {
    /// Parity strips, 1 to 3.
    pub parity_strips: usize,
    /// Data strips of a stripe, if they are given.
    pub data_strips: Option<usize>,
    /// Drives, if they are given.
    pub members: Option<usize>,
    /// Distributed spares.
    pub spares: usize,
}

/// A text that says no such layout.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not a dRAID layout; write for example draid2:8d:42c:2s")]
pub struct ParseDraidError(String);

impl DraidSpelling {
    /// Whether a text means to be one.
    pub fn is_meant(text: &str) -> bool {
        text.trim().to_ascii_lowercase().starts_with("draid")
    }

    /// Data strips of a stripe on so many drives.
    pub fn data_strips_on(&self, members: usize) -> usize {
        let left = members.saturating_sub(self.spares).saturating_sub(self.parity_strips);
        self.data_strips.unwrap_or(left.min(8))
    }
}

impl FromStr for DraidSpelling {
    type Err = ParseDraidError;

    fn from_str(text: &str) -> Result<DraidSpelling, ParseDraidError> {
        parse(&text.trim().to_ascii_lowercase()).ok_or_else(|| ParseDraidError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<DraidSpelling> {
    let mut parts = text.split(':');
    let parity_strips = match parts.next()?.strip_prefix("draid")? {
        "" | "1" => 1,
        "2" => 2,
        "3" => 3,
        _ => return None,
    };
    let (mut data_strips, mut members, mut spares) = (None, None, None);
    for part in parts {
        let unit = part.chars().next_back()?;
        let digits = part.strip_suffix(unit)?;
        let number =
            digits.parse().ok().filter(|_| digits.bytes().all(|it| it.is_ascii_digit()))?;
        let field = match unit {
            'd' if number > 0 => &mut data_strips,
            'c' if number > 0 => &mut members,
            's' => &mut spares,
            _ => return None,
        };
        // Each part comes once.
        if field.replace(number).is_some() {
            return None;
        }
    }
    Some(DraidSpelling { parity_strips, data_strips, members, spares: spares.unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::DraidSpelling;

    fn read(text: &str) -> (usize, Option<usize>, Option<usize>, usize) {
        let it: DraidSpelling = text.parse().expect(text);
        (it.parity_strips, it.data_strips, it.members, it.spares)
    }

    #[test]
    fn the_spellings_of_zpool_are_read() {
        assert_eq!(read("draid2:8d:42c:2s"), (2, Some(8), Some(42), 2));
        assert_eq!(read("dRAID3:2s:11c:5d"), (3, Some(5), Some(11), 2));
        assert_eq!(read("draid"), (1, None, None, 0));
        assert_eq!(read("draid1:4d"), (1, Some(4), None, 0));
        assert_eq!(read(" draid2:0s "), (2, None, None, 0));
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for text in [
            "",
            "draid4",
            "draid0",
            "draid2:",
            "draid2:8",
            "draid2:8x",
            "draid2:d",
            "draid2:0d",
            "draid2:8d:8d",
            "draid2:-1s",
            "draid2:+1s",
            "raid6",
            "draid2:99999999999999999999c",
            "draid2:8d:42c:2s:",
            "draid2 :8d",
            "draid2:\u{e9}",
        ] {
            let refused = text.parse::<DraidSpelling>().expect_err(text).to_string();
            assert!(refused.contains("draid2:8d:42c:2s"), "{refused}");
        }
    }

    #[test]
    fn data_strips_that_are_not_given_are_eight_or_what_the_drives_allow() {
        let of = |text: &str| text.parse::<DraidSpelling>().expect(text);
        assert_eq!(of("draid2:2s").data_strips_on(42), 8);
        assert_eq!(of("draid2:1s").data_strips_on(7), 4);
        assert_eq!(of("draid2:9s").data_strips_on(3), 0);
        assert_eq!(of("draid2:5d").data_strips_on(42), 5);
    }
}
