//! The levels by name, as people and requests write them.
//!
//! What must stay true: every name that is printed can be read back. What a level is knows
//! `layout`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A RAID level by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Level {
    /// Striping, no parity.
    Raid0,
    /// Two to four copies.
    Raid1,
    /// One parity strip.
    Raid5,
    /// Two parity strips.
    Raid6,
    /// Three parity strips.
    Raid7,
    /// Four to 32 parity strips.
    NPlusM,
    /// Striping over mirrors.
    Raid10,
    /// Striping over RAID 5 groups.
    Raid50,
    /// Striping over RAID 6 groups.
    Raid60,
    /// Striping over RAID 7.3 groups.
    Raid70,
}

impl Level {
    /// Every level with the name it is printed by.
    pub const NAMES: [(Level, &'static str); 10] = [
        (Level::Raid0, "raid0"),
        (Level::Raid1, "raid1"),
        (Level::Raid5, "raid5"),
        (Level::Raid6, "raid6"),
        (Level::Raid7, "raid7.3"),
        (Level::NPlusM, "n+m"),
        (Level::Raid10, "raid10"),
        (Level::Raid50, "raid50"),
        (Level::Raid60, "raid60"),
        (Level::Raid70, "raid70"),
    ];

    /// Whether the members are dealt out to groups.
    pub fn is_grouped(self) -> bool {
        matches!(self, Level::Raid10 | Level::Raid50 | Level::Raid60 | Level::Raid70)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            Level::NAMES.iter().find(|(level, _)| level == self).map_or("", |(_, name)| name);
        f.pad(name)
    }
}

/// A level that does not exist.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not a level; write 0, 1, 5, 6, 7.3, n+m, 10, 50, 60 or 70")]
pub struct UnknownLevel(String);

impl FromStr for Level {
    type Err = UnknownLevel;

    /// Reads `raid6`, `RAID6`, `6`; `raid7.3`, `7.3`, `7`, `raid7`; `n+m`, `nm`.
    fn from_str(text: &str) -> Result<Level, UnknownLevel> {
        let lower = text.trim().to_ascii_lowercase();
        let number = lower.strip_prefix("raid").unwrap_or(&lower);
        match number {
            "7" => return Ok(Level::Raid7),
            "nm" => return Ok(Level::NPlusM),
            _ => {}
        }
        Level::NAMES
            .iter()
            .find(|(_, name)| name.strip_prefix("raid").unwrap_or(name) == number)
            .map(|(level, _)| *level)
            .ok_or_else(|| UnknownLevel(text.to_owned()))
    }
}

impl TryFrom<String> for Level {
    type Error = UnknownLevel;

    fn try_from(text: String) -> Result<Level, UnknownLevel> {
        text.parse()
    }
}

impl From<Level> for String {
    fn from(level: Level) -> String {
        level.to_string()
    }
}
