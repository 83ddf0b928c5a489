//! A validated array: counts, sizes, and the map between stripes and members.
//!
//! ON-DISK FORMAT. Which member holds which bytes of the volume follows from the seven numbers in
//! [`GeometryParts`], and they are all a superblock stores. For `layout_version` 1 the answers of
//! [`Geometry::place`], [`Geometry::strip_on`] and [`Geometry::stripe_at`] never change; a different
//! map is a new version. The golden maps in `tests/golden` are the witness.
//!
//! What must stay true of every value of [`Geometry`]: 1 to 64 strips per stripe, a strip of a power of
//! two from 4 KiB to 1 MiB, at least one row, and members of at most 2^62 bytes together, so that no
//! offset computed here can overflow.
//!
//! The map: global stripe s is row `s / groups` of group `s % groups`; the group's members are numbered
//! `group * strips ..`; within the row a rotation says which position holds which strip; row r of a
//! member is its r-th strip from the start of the data area.

use ashlar_units::{BLOCK_BYTES, MemberIdx, StripIdx, StripSet, StripeNo, to_u64, to_usize};

use crate::level::Level;
use crate::rotation::{Rotation, RowCode};
use crate::shape::{STRIP_BYTES_MAX, STRIP_BYTES_MIN, STRIPS_MAX, Shape, ShapeError};

/// The layout version this crate creates, and the only one it knows.
pub const LAYOUT_VERSION: u16 = 1;
/// Members an array can have, over all groups: what the member table of a superblock has room for.
pub const MEMBERS_MAX: usize = 480;
/// Bytes all members together can have. Far below 2^64, so that sums of offsets never overflow.
const ARRAY_BYTES_MAX: u64 = 1 << 62;

/// The layout of an array: a code, its groups, and how far they reach. Always valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    level: Level,
    data_strips: usize,
    parity_strips: usize,
    groups: usize,
    strip_bytes: u64,
    rows: u64,
    rotation: Rotation,
}

/// The numbers a superblock stores of a [`Geometry`], not yet validated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GeometryParts {
    /// The level; [`Level::code`] is its number on disk.
    pub level: Level,
    /// Data strips per stripe.
    pub data_strips: usize,
    /// Parity strips per stripe.
    pub parity_strips: usize,
    /// Groups of members; 1 for ungrouped levels.
    pub groups: usize,
    /// Bytes per strip.
    pub strip_bytes: u64,
    /// Strips per member.
    pub rows: u64,
    /// Which map from stripes to members: [`LAYOUT_VERSION`].
    pub layout_version: u16,
}

/// Where a strip lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// The member that holds it.
    pub member: MemberIdx,
    /// Its first byte, counted from the start of the member's data area.
    pub offset: u64,
}

impl Geometry {
    /// The geometry of a new array of this shape whose members hold `rows` strips each.
    ///
    /// # Errors
    /// If no such array exists; the message says what would do.
    pub fn new(shape: &Shape, rows: u64) -> Result<Geometry, ShapeError> {
        let counts = shape.resolve()?;
        Geometry::from_parts(GeometryParts {
            level: shape.level,
            data_strips: counts.data_strips,
            parity_strips: counts.parity_strips,
            groups: counts.groups,
            strip_bytes: shape.strip_bytes,
            rows,
            layout_version: LAYOUT_VERSION,
        })
    }

    /// The geometry a superblock describes.
    ///
    /// # Errors
    /// If the numbers do not belong together or come from a newer program.
    pub fn from_parts(parts: GeometryParts) -> Result<Geometry, ShapeError> {
        if parts.layout_version != LAYOUT_VERSION {
            return Err(ShapeError::LayoutVersion { version: parts.layout_version });
        }
        parts.check_code()?;
        parts.check_sizes()?;
        let has_rotation = parts.parity_strips > 0 && parts.data_strips > 1;
        Ok(Geometry {
            level: parts.level,
            data_strips: parts.data_strips,
            parity_strips: parts.parity_strips,
            groups: parts.groups,
            strip_bytes: parts.strip_bytes,
            rows: parts.rows,
            rotation: if has_rotation { Rotation::LeftSymmetric } else { Rotation::Fixed },
        })
    }

    /// The numbers to store in a superblock; [`Geometry::from_parts`] gives the same geometry back.
    pub fn parts(&self) -> GeometryParts {
        GeometryParts {
            level: self.level,
            data_strips: self.data_strips,
            parity_strips: self.parity_strips,
            groups: self.groups,
            strip_bytes: self.strip_bytes,
            rows: self.rows,
            layout_version: LAYOUT_VERSION,
        }
    }

    /// The level.
    #[inline]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Data strips per stripe (k).
    #[inline]
    pub fn data_strips(&self) -> usize {
        self.data_strips
    }

    /// Parity strips per stripe (m); for mirrors, copies beyond the first.
    #[inline]
    pub fn parity_strips(&self) -> usize {
        self.parity_strips
    }

    /// Strips per stripe (k + m), which is also members per group.
    #[inline]
    pub fn strips(&self) -> usize {
        self.data_strips + self.parity_strips
    }

    /// Groups of members; 1 for ungrouped levels.
    #[inline]
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Members over all groups.
    #[inline]
    pub fn members(&self) -> usize {
        self.groups * self.strips()
    }

    /// Bytes per strip.
    #[inline]
    pub fn strip_bytes(&self) -> u64 {
        self.strip_bytes
    }

    /// Blocks of 4 KiB per strip, which is also rows a row range can have.
    #[inline]
    pub fn strip_blocks(&self) -> u32 {
        u32::try_from(self.strip_bytes / BLOCK_BYTES).expect("a strip has at most 256 blocks")
    }

    /// Strips per member.
    #[inline]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Stripes of the array, over all groups.
    #[inline]
    pub fn stripe_count(&self) -> u64 {
        self.rows * to_u64(self.groups)
    }

    /// Data bytes per stripe.
    #[inline]
    pub fn stripe_bytes(&self) -> u64 {
        to_u64(self.data_strips) * self.strip_bytes
    }

    /// Bytes of the volume.
    #[inline]
    pub fn volume_bytes(&self) -> u64 {
        self.stripe_count() * self.stripe_bytes()
    }

    /// Bytes each member's data area uses.
    #[inline]
    pub fn member_bytes(&self) -> u64 {
        self.rows * self.strip_bytes
    }

    /// How strips move over the members from row to row.
    #[inline]
    pub fn rotation(&self) -> Rotation {
        self.rotation
    }

    /// The level with its code, for people: `raid6 8+2`, `raid60 2x(8+2)`, `raid0 4+0`.
    pub fn code_name(&self) -> String {
        let (k, m) = (self.data_strips, self.parity_strips);
        if self.level.is_grouped() {
            format!("{} {}x({k}+{m})", self.level, self.groups)
        } else {
            format!("{} {k}+{m}", self.level)
        }
    }

    /// The data strips of a stripe.
    #[inline]
    pub fn data(&self) -> StripSet {
        StripSet::first(self.data_strips)
    }

    /// The parity strips of a stripe.
    #[inline]
    pub fn parity(&self) -> StripSet {
        StripSet::range(self.data_strips, self.strips())
    }

    /// All strips of a stripe.
    #[inline]
    pub fn all_strips(&self) -> StripSet {
        StripSet::first(self.strips())
    }

    /// The stripe that holds a byte of the volume, and where in the stripe's data that byte is.
    ///
    /// # Panics
    /// If the offset is not inside the volume; requests are checked at the edge.
    #[inline]
    pub fn stripe_at(&self, volume_offset: u64) -> (StripeNo, u64) {
        assert!(volume_offset < self.volume_bytes(), "offset {volume_offset} is past the volume");
        let stripe_bytes = self.stripe_bytes();
        (StripeNo(volume_offset / stripe_bytes), volume_offset % stripe_bytes)
    }

    /// The volume offset of a stripe's first data byte.
    ///
    /// # Panics
    /// If the array has no such stripe.
    #[inline]
    pub fn stripe_start(&self, stripe: StripeNo) -> u64 {
        self.check_stripe(stripe);
        stripe.0 * self.stripe_bytes()
    }

    /// Where a strip of a stripe lives.
    ///
    /// # Panics
    /// If the array has no such stripe or the stripe no such strip.
    #[inline]
    pub fn place(&self, stripe: StripeNo, strip: StripIdx) -> Place {
        assert!(strip.at() < self.strips(), "a stripe here has {} strips", self.strips());
        self.check_stripe(stripe);
        let groups = to_u64(self.groups);
        let (row, group) = (stripe.0 / groups, to_usize(stripe.0 % groups));
        let position = self.rotation.position(self.row_code(row), u64::from(strip.0));
        let member = group * self.strips() + to_usize(position);
        Place { member: MemberIdx::from_at(member), offset: row * self.strip_bytes }
    }

    /// Which strip of a stripe a member holds; `None` if the stripe is in another group.
    ///
    /// # Panics
    /// If the array has no such stripe or no such member.
    #[inline]
    pub fn strip_on(&self, stripe: StripeNo, member: MemberIdx) -> Option<StripIdx> {
        assert!(member.at() < self.members(), "an array here has {} members", self.members());
        let row = self.row_of(stripe);
        if member.at() / self.strips() != self.group_of(stripe) {
            return None;
        }
        let position = to_u64(member.at() % self.strips());
        let strip = self.rotation.strip(self.row_code(row), position)?;
        Some(StripIdx::from_at(to_usize(strip)))
    }

    /// The row of members a stripe is on: the r-th strip of each of its members.
    ///
    /// # Panics
    /// If the array has no such stripe.
    #[inline]
    pub fn row_of(&self, stripe: StripeNo) -> u64 {
        self.check_stripe(stripe);
        stripe.0 / to_u64(self.groups)
    }

    /// The group of members a stripe is on.
    ///
    /// # Panics
    /// If the array has no such stripe.
    #[inline]
    pub fn group_of(&self, stripe: StripeNo) -> usize {
        self.check_stripe(stripe);
        to_usize(stripe.0 % to_u64(self.groups))
    }

    /// The stripes of one row, one per group, in rising order.
    ///
    /// # Panics
    /// If the array has no such row.
    #[inline]
    pub fn stripes_of_row(&self, row: u64) -> impl Iterator<Item = StripeNo> + Clone + use<> {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let groups = to_u64(self.groups);
        (row * groups..(row + 1) * groups).map(StripeNo)
    }

    /// The stripe that has a strip in this row of this member: what a rebuild of the member visits.
    ///
    /// # Panics
    /// If the array has no such row or no such member.
    #[inline]
    pub fn stripe_on(&self, member: MemberIdx, row: u64) -> StripeNo {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        assert!(member.at() < self.members(), "an array here has {} members", self.members());
        StripeNo(row * to_u64(self.groups) + to_u64(member.at() / self.strips()))
    }

    #[inline]
    fn check_stripe(&self, stripe: StripeNo) {
        assert!(stripe.0 < self.stripe_count(), "stripe {stripe} of {}", self.stripe_count());
    }

    #[inline]
    fn row_code(&self, row: u64) -> RowCode {
        RowCode {
            row,
            data_strips: to_u64(self.data_strips),
            parity_strips: to_u64(self.parity_strips),
        }
    }
}

impl GeometryParts {
    /// Whether the counts belong to the level.
    fn check_code(&self) -> Result<(), ShapeError> {
        let GeometryParts { level, data_strips, parity_strips, groups, .. } = *self;
        let is_code = level.data_strips().contains(&data_strips)
            && level.parity_strips().contains(&parity_strips)
            && data_strips + parity_strips <= STRIPS_MAX;
        let is_grouping = if level.is_grouped() { groups >= 2 } else { groups == 1 };
        if !is_code || !is_grouping {
            return Err(ShapeError::NoSuchCode { level, data_strips, parity_strips, groups });
        }
        // Divided, not multiplied: the counts may come from a damaged superblock.
        let groups_max = MEMBERS_MAX / (data_strips + parity_strips);
        if groups > groups_max {
            let members = groups.saturating_mul(data_strips + parity_strips);
            let instead = "make several arrays";
            let maximum = MEMBERS_MAX;
            return Err(ShapeError::TooManyMembers { level, members, maximum, instead });
        }
        Ok(())
    }

    /// Whether the strip is a size that exists and the volume one that can be addressed.
    fn check_sizes(&self) -> Result<(), ShapeError> {
        let GeometryParts { strip_bytes, rows, .. } = *self;
        if !(STRIP_BYTES_MIN..=STRIP_BYTES_MAX).contains(&strip_bytes)
            || !strip_bytes.is_power_of_two()
        {
            return Err(ShapeError::StripSize { strip_bytes });
        }
        if rows == 0 {
            return Err(ShapeError::NoRows { strip_bytes });
        }
        let strips = to_u64(self.groups * (self.data_strips + self.parity_strips));
        match rows.checked_mul(strips * strip_bytes) {
            Some(array_bytes) if array_bytes <= ARRAY_BYTES_MAX => Ok(()),
            _ => Err(ShapeError::TooLarge { rows, strip_bytes }),
        }
    }
}
