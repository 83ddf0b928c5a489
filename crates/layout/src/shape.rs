//! An operator's request for an array, and the one line that refuses it if it cannot be built.
//!
//! A [`Shape`] is unchecked input: members, parity and group size as typed. `resolve` turns it into
//! the counts of a code, or into a [`ShapeError`] that says what is wrong, with the numbers, and
//! what would do. Nothing here is stored on disk.

use ashlar_units::ByteSize;

use crate::declustered::{
    CELL_BYTES_FLASH, DECLUSTERED_SEED, DECLUSTERED_VERSION, DeclusteredError, GROWTHS_MAX,
};
use crate::geometry::{GeometryParts, LAYOUT_VERSION, Spread};
use crate::level::Level;

/// Smallest strip, in bytes.
pub const STRIP_BYTES_MIN: u64 = 4096;
/// Largest strip, in bytes.
pub const STRIP_BYTES_MAX: u64 = 1 << 20;

/// What the user asks for when creating an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The level.
    pub level: Level,
    /// Number of members over all groups.
    pub members: usize,
    /// Parity strips per stripe: required for n+m, elsewhere absent or what the level has anyway.
    pub parity: Option<usize>,
    /// Members per group: required for raid50, raid60 and raid70; raid10 takes 2 if absent.
    pub group_members: Option<usize>,
    /// Bytes per strip: a power of two from 4 KiB to 1 MiB.
    pub strip_bytes: u64,
    /// Of an array whose stripes lie on changing members.
    pub declustered: Option<DeclusteredShape>,
}

/// How a declustered array is to spread its stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeclusteredShape {
    /// Strips per stripe, data and parity together.
    pub stripe_width: usize,
    /// Members of each failure domain, which follow each other; 1: each for itself.
    pub domain_members: usize,
    /// Members of a domain that the distributed spares shall replace at a time.
    pub spare_columns: usize,
    /// Bytes of a cell; `None`: as on flash.
    pub cell_bytes: Option<u64>,
}

/// Why an array of this shape cannot be. Each is one line for an operator.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShapeError {
    /// Fewer members than the level needs.
    #[error("{level} needs at least {minimum} members and got {members}")]
    TooFewMembers {
        /// The level asked for.
        level: Level,
        /// Members given.
        members: usize,
        /// Members the level needs.
        minimum: usize,
    },
    /// More members than one stripe of the level can have.
    #[error("{level} takes at most {maximum} members and got {members}; {instead}")]
    TooManyMembers {
        /// The level asked for.
        level: Level,
        /// Members given.
        members: usize,
        /// Members the level takes.
        maximum: usize,
        /// What would do.
        instead: &'static str,
    },
    /// The strip size is not one of the nine that exist.
    #[error(
        "a strip of {} cannot be; it must be a power of two from 4 KiB to 1 MiB, \
         for example 64 KiB",
        ByteSize(*.strip_bytes)
    )]
    StripSize {
        /// The strip size asked for, in bytes.
        strip_bytes: u64,
    },
    /// n+m without its m.
    #[error("n+m needs the number of parity strips, from 1 to 32")]
    ParityMissing,
    /// n+m with an m that does not exist.
    #[error("n+m takes 1 to 32 parity strips and got {parity}")]
    ParityRange {
        /// Parity strips asked for.
        parity: usize,
    },
    /// A parity count for a level that has its own.
    #[error(
        "{level} has {has} parity strips here and got {parity}; leave the number out or choose n+m"
    )]
    ParityFixed {
        /// The level asked for.
        level: Level,
        /// Parity strips the level has.
        has: usize,
        /// Parity strips asked for.
        parity: usize,
    },
    /// A grouped level without a group size.
    #[error("{level} needs the number of members per group, from {minimum} to {maximum}")]
    GroupMissing {
        /// The level asked for.
        level: Level,
        /// Smallest group.
        minimum: usize,
        /// Largest group.
        maximum: usize,
    },
    /// A group size the level cannot have.
    #[error("{level} takes {minimum} to {maximum} members per group and got {group_members}")]
    GroupRange {
        /// The level asked for.
        level: Level,
        /// Members per group asked for.
        group_members: usize,
        /// Smallest group.
        minimum: usize,
        /// Largest group.
        maximum: usize,
    },
    /// Members that do not fill whole groups.
    #[error(
        "{members} members do not divide into groups of {group_members}; \
         give {fewer} or {more} members, or another group size"
    )]
    GroupUneven {
        /// Members given.
        members: usize,
        /// Members per group asked for.
        group_members: usize,
        /// Members that would do, below.
        fewer: usize,
        /// Members that would do, above.
        more: usize,
    },
    /// A grouped level with one group.
    #[error(
        "{level} needs at least 2 groups: {minimum} members with groups of {group_members}, \
         and got {members}"
    )]
    GroupSingle {
        /// The level asked for.
        level: Level,
        /// Members given.
        members: usize,
        /// Members per group.
        group_members: usize,
        /// Members two groups need.
        minimum: usize,
    },
    /// A group size for a level without groups.
    #[error(
        "{level} has no groups and got {group_members} members per group; \
         leave it out or choose raid10, raid50, raid60 or raid70"
    )]
    NotGrouped {
        /// The level asked for.
        level: Level,
        /// Members per group asked for.
        group_members: usize,
    },
    /// Members too small for a single strip.
    #[error("the smallest member has no room for one strip of {}", ByteSize(*.strip_bytes))]
    NoRows {
        /// The strip size, in bytes.
        strip_bytes: u64,
    },
    /// Members of more than 4 EiB together.
    #[error(
        "{rows} strips of {} per member make an array of more than 4 EiB",
        ByteSize(*.strip_bytes)
    )]
    TooLarge {
        /// Strips per member.
        rows: u64,
        /// The strip size, in bytes.
        strip_bytes: u64,
    },
    /// A level whose stripes cannot lie on changing members.
    #[error("{level} cannot be declustered; take level 5, 6, 7.3 or n+m")]
    NotDeclustered {
        /// The level asked for.
        level: Level,
    },
    /// Numbers that are no declustered array.
    #[error(transparent)]
    Declustered(#[from] DeclusteredError),
    /// A superblock written by a program with other layouts.
    #[error(
        "layout version {version} is not known here, only versions 1 and 2 are; use a newer ashlar"
    )]
    LayoutVersion {
        /// The version found.
        version: u16,
    },
    /// A superblock whose counts do not belong to its level.
    #[error(
        "no {level} array has {groups} groups of {data_strips} data and {parity_strips} parity \
         strips"
    )]
    NoSuchCode {
        /// The level found.
        level: Level,
        /// Data strips found.
        data_strips: usize,
        /// Parity strips found.
        parity_strips: usize,
        /// Groups found.
        groups: usize,
    },
}

/// The counts of a code on groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub data_strips: usize,
    pub parity_strips: usize,
    pub groups: usize,
}

impl Shape {
    /// The numbers that this shape asks for, but for its rows, which are zero.
    pub(crate) fn parts(&self) -> Result<GeometryParts, ShapeError> {
        let (counts, spread) = match self.declustered {
            None => (self.resolve()?, None),
            Some(wish) => (self.declustered_counts(wish)?, Some(self.spread(wish))),
        };
        Ok(GeometryParts {
            level: self.level,
            data_strips: counts.data_strips,
            parity_strips: counts.parity_strips,
            groups: counts.groups,
            strip_bytes: self.strip_bytes,
            rows: 0,
            layout_version: if spread.is_some() { DECLUSTERED_VERSION } else { LAYOUT_VERSION },
            spread,
        })
    }

    fn declustered_counts(&self, wish: DeclusteredShape) -> Result<Counts, ShapeError> {
        let level = self.level;
        if level.is_grouped() || level.is_mirror() || level == Level::Raid0 {
            return Err(ShapeError::NotDeclustered { level });
        }
        if let Some(group_members) = self.group_members {
            return Err(ShapeError::NotGrouped { level, group_members });
        }
        let parity_strips = self.parity_strips(wish.stripe_width)?;
        let data_strips = wish.stripe_width.saturating_sub(parity_strips);
        Ok(Counts { data_strips, parity_strips, groups: 1 })
    }

    fn spread(&self, wish: DeclusteredShape) -> Spread {
        let cell_bytes = wish.cell_bytes.unwrap_or(CELL_BYTES_FLASH);
        Spread {
            members: self.members,
            domain_members: wish.domain_members,
            spare_columns: wish.spare_columns,
            cell_rows: (cell_bytes / self.strip_bytes.max(1)).max(1),
            seed: DECLUSTERED_SEED,
            growths: [None; GROWTHS_MAX],
        }
    }

    /// The counts that an array of fixed groups asks for.
    fn resolve(&self) -> Result<Counts, ShapeError> {
        let strips = self.group_size()?;
        let parity_strips = self.parity_strips(strips)?;
        let allowed = self.level.group_members(parity_strips);
        if self.level.is_grouped() {
            self.check_groups(strips, *allowed.start(), *allowed.end())?;
        } else {
            self.check_members(*allowed.start(), *allowed.end())?;
        }
        let groups = self.members / strips;
        Ok(Counts { data_strips: strips - parity_strips, parity_strips, groups })
    }

    /// Members of one group, not yet checked against the level's limits, but not zero.
    fn group_size(&self) -> Result<usize, ShapeError> {
        let level = self.level;
        if level.is_grouped() {
            let fixed = level.fixed_parity();
            return match (self.group_members, fixed) {
                (Some(given), _) => Ok(given.max(1)),
                (None, None) => Ok(2),
                (None, Some(parity)) => {
                    let allowed = level.group_members(parity);
                    let (minimum, maximum) = (*allowed.start(), *allowed.end());
                    Err(ShapeError::GroupMissing { level, minimum, maximum })
                }
            };
        }
        match self.group_members {
            Some(given) if given != self.members => {
                Err(ShapeError::NotGrouped { level, group_members: given })
            }
            _ => Ok(self.members.max(1)),
        }
    }

    /// Parity strips of a stripe of `strips` strips.
    fn parity_strips(&self, strips: usize) -> Result<usize, ShapeError> {
        if self.level == Level::NPlusM {
            let parity = self.parity.ok_or(ShapeError::ParityMissing)?;
            if !self.level.parity_strips().contains(&parity) {
                return Err(ShapeError::ParityRange { parity });
            }
            return Ok(parity);
        }
        let has = self.level.fixed_parity().unwrap_or(strips - 1);
        match self.parity {
            Some(parity) if parity != has => {
                Err(ShapeError::ParityFixed { level: self.level, has, parity })
            }
            _ => Ok(has),
        }
    }

    fn check_members(&self, minimum: usize, maximum: usize) -> Result<(), ShapeError> {
        let (level, members) = (self.level, self.members);
        if members < minimum {
            return Err(ShapeError::TooFewMembers { level, members, minimum });
        }
        if members > maximum {
            let instead = match level {
                Level::Raid0 => "make several volumes",
                Level::Raid1 => "use raid10",
                Level::Raid5 => "use raid50",
                Level::Raid6 => "use raid60",
                _ => "use raid60 or raid70",
            };
            return Err(ShapeError::TooManyMembers { level, members, maximum, instead });
        }
        Ok(())
    }

    fn check_groups(
        &self,
        group_members: usize,
        minimum: usize,
        maximum: usize,
    ) -> Result<(), ShapeError> {
        let (level, members) = (self.level, self.members);
        if !(minimum..=maximum).contains(&group_members) {
            return Err(ShapeError::GroupRange { level, group_members, minimum, maximum });
        }
        if members < 2 * group_members {
            let minimum = 2 * group_members;
            return Err(ShapeError::GroupSingle { level, members, group_members, minimum });
        }
        if !members.is_multiple_of(group_members) {
            let fewer = members - members % group_members;
            let more = fewer + group_members;
            return Err(ShapeError::GroupUneven { members, group_members, fewer, more });
        }
        Ok(())
    }
}
