//! The levels: a code (data and parity strips) on one or several groups of members.
//!
//! What must stay true: [`Level::code`] is written to superblocks, so a number once given is never
//! given to another level. Names are what operators type and read; several spellings read as the
//! same level, one is printed. Every name that is printed can be read back.

use ashlar_units::STRIPS_MAX;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// What kind of array: how many parity strips a stripe has and whether stripes run over groups.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub enum Level {
    /// No parity: the loss of any member loses data.
    Raid0,
    /// Two to four copies of the same data.
    Raid1,
    /// One parity strip (P) per stripe.
    Raid5,
    /// Two parity strips (P, Q) per stripe.
    Raid6,
    /// Three parity strips (P, Q, R) per stripe; printed as `raid7.3`.
    Raid7,
    /// Any number of parity strips from 1 to 32.
    NPlusM,
    /// Stripes over groups that are mirrors.
    Raid10,
    /// Stripes over groups with one parity strip each.
    Raid50,
    /// Stripes over groups with two parity strips each.
    Raid60,
    /// Stripes over groups with three parity strips each.
    Raid70,
}

/// A text that names no level.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not a level; write 0, 1, 5, 6, 7.3, n+m, 10, 50, 60 or 70")]
pub struct ParseLevelError(String);

/// Level, code on disk, printed name, further spellings.
const TABLE: [(Level, u8, &str, &[&str]); 10] = [
    (Level::Raid0, 0, "raid0", &["0"]),
    (Level::Raid1, 1, "raid1", &["1", "mirror"]),
    (Level::Raid5, 5, "raid5", &["5"]),
    (Level::Raid6, 6, "raid6", &["6"]),
    (Level::Raid7, 7, "raid7.3", &["7", "7.3", "raid7"]),
    (Level::NPlusM, 100, "n+m", &["nm", "raidnm", "raidn+m"]),
    (Level::Raid10, 10, "raid10", &["10", "1+0"]),
    (Level::Raid50, 50, "raid50", &["50", "5+0"]),
    (Level::Raid60, 60, "raid60", &["60", "6+0"]),
    (Level::Raid70, 70, "raid70", &["70", "7+0"]),
];

impl Level {
    /// Every level, in the order of the manual.
    pub fn all() -> impl Iterator<Item = Level> {
        TABLE.iter().map(|row| row.0)
    }

    /// The number that stands for the level in a superblock. On-disk format: never reused.
    pub fn code(self) -> u8 {
        self.entry().1
    }

    /// The level a superblock's number stands for; `None` if this program does not know it.
    pub fn from_code(code: u8) -> Option<Level> {
        TABLE.iter().find(|row| row.1 == code).map(|row| row.0)
    }

    /// The printed name: `raid6`, `raid7.3`, `n+m`.
    pub fn name(self) -> &'static str {
        self.entry().2
    }

    /// Whether stripes of this level go to several groups of members in turn.
    pub fn is_grouped(self) -> bool {
        self.inner() != self
    }

    /// Whether a stripe is one data strip and its copies.
    pub fn is_mirror(self) -> bool {
        self.inner() == Level::Raid1
    }

    /// The level of one group: `Raid6` for `Raid60`; ungrouped levels are their own.
    pub fn inner(self) -> Level {
        match self {
            Level::Raid10 => Level::Raid1,
            Level::Raid50 => Level::Raid5,
            Level::Raid60 => Level::Raid6,
            Level::Raid70 => Level::Raid7,
            other => other,
        }
    }

    /// Parity strips when the level fixes them; `None` for mirrors and n+m, where the operator
    /// says.
    pub fn fixed_parity(self) -> Option<usize> {
        match self.inner() {
            Level::Raid0 => Some(0),
            Level::Raid5 => Some(1),
            Level::Raid6 => Some(2),
            Level::Raid7 => Some(3),
            _ => None,
        }
    }

    /// Data strips the code may have.
    pub(crate) fn data_strips(self) -> RangeInclusive<usize> {
        match self.inner() {
            Level::Raid0 => 1..=STRIPS_MAX,
            Level::Raid1 => 1..=1,
            // With one data strip, parity would be a copy under another name: that is a mirror.
            _ => 2..=STRIPS_MAX,
        }
    }

    /// Parity strips the code may have.
    pub(crate) fn parity_strips(self) -> RangeInclusive<usize> {
        match (self.fixed_parity(), self.is_mirror()) {
            (Some(fixed), _) => fixed..=fixed,
            (None, true) => 1..=3,
            (None, false) => 1..=32,
        }
    }

    /// Members one group may have when its stripes hold `parity` parity strips (mirrors: any).
    pub(crate) fn group_members(self, parity: usize) -> RangeInclusive<usize> {
        if self.is_mirror() {
            return 2..=4;
        }
        self.data_strips().start() + parity..=STRIPS_MAX
    }

    fn entry(self) -> &'static (Level, u8, &'static str, &'static [&'static str]) {
        TABLE.iter().find(|row| row.0 == self).expect("every level has a row")
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Level {
    type Err = ParseLevelError;

    fn from_str(text: &str) -> Result<Self, ParseLevelError> {
        let wanted = text.trim().to_ascii_lowercase();
        TABLE
            .iter()
            .find(|row| row.2 == wanted || row.3.contains(&wanted.as_str()))
            .map(|row| row.0)
            .ok_or_else(|| ParseLevelError(text.to_owned()))
    }
}

impl TryFrom<String> for Level {
    type Error = ParseLevelError;

    fn try_from(text: String) -> Result<Level, ParseLevelError> {
        text.parse()
    }
}

impl From<Level> for String {
    fn from(level: Level) -> String {
        level.name().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::Level;

    #[test]
    fn every_level_reads_back_from_its_name_and_its_code() {
        for level in Level::all() {
            assert_eq!(level.to_string().parse(), Ok(level));
            assert_eq!(Level::from_code(level.code()), Some(level));
        }
        let known = (0..=u8::MAX).filter(|code| Level::from_code(*code).is_some()).count();
        assert_eq!(known, Level::all().count(), "two levels share a code");
    }

    #[test]
    fn codes_on_disk_are_these_for_ever() {
        let codes: Vec<u8> = Level::all().map(Level::code).collect();
        assert_eq!(codes, [0, 1, 5, 6, 7, 100, 10, 50, 60, 70]);
    }

    #[test]
    fn operators_may_type_any_usual_spelling() {
        for (text, level) in [
            ("0", Level::Raid0),
            ("mirror", Level::Raid1),
            ("RAID5", Level::Raid5),
            (" 6 ", Level::Raid6),
            ("7", Level::Raid7),
            ("7.3", Level::Raid7),
            ("raid7", Level::Raid7),
            ("raidnm", Level::NPlusM),
            ("raid7.3", Level::Raid7),
            ("nm", Level::NPlusM),
            ("N+M", Level::NPlusM),
            ("10", Level::Raid10),
            ("raid70", Level::Raid70),
        ] {
            assert_eq!(text.parse(), Ok(level), "{text}");
        }
        for text in ["", "2", "raid", "raid 6", "raid-5", "8"] {
            let refused = text.parse::<Level>().expect_err(text);
            assert!(refused.to_string().contains("7.3"), "{refused}");
        }
    }
}
