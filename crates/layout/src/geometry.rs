//! A validated array: counts, sizes, and which stripe holds which byte of the volume.
//!
//! ON-DISK FORMAT. Which member holds which bytes of the volume follows from the numbers in
//! [`GeometryParts`], and they are all a superblock stores. For a `layout_version` the answers of
//! [`Geometry::place`], [`Geometry::strip_on`] and [`Geometry::stripe_at`] never change; a
//! different map is a new version. The golden maps in `tests/golden` are the witness.
//!
//! What must stay true of every value of [`Geometry`]: 1 to 64 strips per stripe, a strip of a
//! power of two from 4 KiB to 1 MiB, at least one row, and members of at most 2^62 bytes together,
//! so that no offset computed here can overflow. The width of a stripe and the number of members
//! are two numbers.
//!
//! Not here: which member holds which strip (`placement`).

use std::ops::Range;

use ashlar_units::{BLOCK_BYTES, MemberIdx, STRIPS_MAX, StripIdx, StripSet, StripeNo, to_u64};

use crate::declustered::{DECLUSTERED_VERSION, Declustered, DeclusteredParts, Growths};
use crate::grouped::Grouped;
use crate::level::Level;
use crate::placement::Placement;
use crate::rotation::Rotation;
use crate::shape::{STRIP_BYTES_MAX, STRIP_BYTES_MIN, Shape, ShapeError};
use crate::stripe::{LayoutEpoch, Stripe, StripeId};

/// The layout version of arrays of fixed groups of members.
pub const LAYOUT_VERSION: u16 = 1;
/// Members an array can have, over all groups: what the member table of a superblock has room for.
pub const MEMBERS_MAX: usize = 480;
/// Bytes all members together can have. Far below 2^64, so that sums of offsets never overflow.
pub(crate) const ARRAY_BYTES_MAX: u64 = 1 << 62;

/// The layout of an array: a code, its groups, and how far they reach. Always valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    level: Level,
    data_strips: usize,
    parity_strips: usize,
    strip_bytes: u64,
    rows: u64,
    stripe_count: u64,
    epoch: LayoutEpoch,
    placement: Placement,
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
    /// Which map from stripes to members: [`LAYOUT_VERSION`] or
    /// [`DECLUSTERED_VERSION`](crate::declustered::DECLUSTERED_VERSION).
    pub layout_version: u16,
    /// How a declustered array spreads its stripes; others have none.
    pub spread: Option<Spread>,
}

/// The numbers that only a declustered array has: see
/// [`DeclusteredParts`](crate::declustered::DeclusteredParts).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spread {
    /// Members of the array.
    pub members: usize,
    /// Members of each failure domain; 1: every member for itself.
    pub domain_members: usize,
    /// Spare columns.
    pub spare_columns: usize,
    /// Rows of a cell.
    pub cell_rows: u64,
    /// Seed of the shuffles.
    pub seed: u64,
    /// Its growths, in order.
    pub growths: Growths,
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
        Geometry::from_parts(GeometryParts { rows, ..shape.parts()? })
    }

    /// The geometry of the smallest array of this shape: of one row, or of one slice.
    ///
    /// # Errors
    /// As [`Geometry::new`].
    pub fn smallest(shape: &Shape) -> Result<Geometry, ShapeError> {
        let parts = shape.parts()?;
        Geometry::from_parts(GeometryParts { rows: parts.row_unit(), ..parts })
    }

    /// The geometry a superblock describes.
    ///
    /// # Errors
    /// If the numbers do not belong together or come from a newer program.
    pub fn from_parts(parts: GeometryParts) -> Result<Geometry, ShapeError> {
        parts.check_version()?;
        parts.check_code()?;
        parts.check_sizes()?;
        let placement = match parts.declustered() {
            None => Placement::Grouped(Grouped::new(&parts)),
            Some(declustered) => Placement::Declustered(Declustered::new(declustered)?),
        };
        Ok(Geometry {
            level: parts.level,
            data_strips: parts.data_strips,
            parity_strips: parts.parity_strips,
            strip_bytes: parts.strip_bytes,
            rows: parts.rows,
            stripe_count: placement.stripe_count(parts.rows),
            epoch: LayoutEpoch::FIRST,
            placement,
        })
    }

    /// The same as one of several geometries of its array.
    #[must_use]
    pub fn in_epoch(self, epoch: LayoutEpoch) -> Geometry {
        Geometry { epoch, ..self }
    }

    /// The geometry when a growth under way has ended. Its first stripes are the same.
    #[must_use]
    pub fn fully_grown(&self) -> Geometry {
        let grown = self.declustered().map(|map| map.parts().fully_grown());
        let Some(Ok(grown)) = grown else { return *self };
        let spread = Some(Spread::of(grown));
        let grown = Geometry::from_parts(GeometryParts { spread, ..self.parts() });
        grown.expect("a growth that may begin may end").in_epoch(self.epoch)
    }

    /// Which of its array's geometries it is.
    #[inline]
    pub fn epoch(&self) -> LayoutEpoch {
        self.epoch
    }

    /// The numbers to store in a superblock; [`Geometry::from_parts`] gives the same geometry back.
    pub fn parts(&self) -> GeometryParts {
        GeometryParts {
            level: self.level,
            data_strips: self.data_strips,
            parity_strips: self.parity_strips,
            groups: self.groups(),
            strip_bytes: self.strip_bytes,
            rows: self.rows,
            layout_version: self.placement.version(),
            spread: self.declustered().map(|map| Spread::of(map.parts())),
        }
    }

    /// The map of a declustered array; `None` of others.
    #[inline]
    pub fn declustered(&self) -> Option<&Declustered> {
        self.placement.declustered()
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

    /// Strips per stripe (k + m).
    #[inline]
    pub fn stripe_width(&self) -> usize {
        self.data_strips + self.parity_strips
    }

    /// Groups of members; 1 for ungrouped levels.
    #[inline]
    pub fn groups(&self) -> usize {
        self.placement.groups()
    }

    /// Members of the array. At least as many as a stripe is wide.
    #[inline]
    pub fn members(&self) -> usize {
        self.placement.members()
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

    /// Stripes of the array.
    #[inline]
    pub fn stripe_count(&self) -> u64 {
        self.stripe_count
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
        self.placement.rotation()
    }

    /// The level with its code, for people: `raid6 8+2`, `raid60 2x(8+2)`, `raid0 4+0`,
    /// `raid6 8+2 declustered over 42`.
    pub fn code_name(&self) -> String {
        let (k, m) = (self.data_strips, self.parity_strips);
        if self.declustered().is_some() {
            format!("{} {k}+{m} declustered over {}", self.level, self.members())
        } else if self.level.is_grouped() {
            format!("{} {}x({k}+{m})", self.level, self.groups())
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
        StripSet::range(self.data_strips, self.stripe_width())
    }

    /// All strips of a stripe.
    #[inline]
    pub fn all_strips(&self) -> StripSet {
        StripSet::first(self.stripe_width())
    }

    /// The stripe of this number.
    ///
    /// # Panics
    /// If the array has no such stripe.
    #[inline]
    pub fn stripe(&self, number: StripeNo) -> Stripe {
        assert!(number.0 < self.stripe_count, "stripe {number} of {}", self.stripe_count);
        let seat = self.placement.seat(number);
        Stripe::new(StripeId::new(self.epoch, number), seat)
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
    #[inline]
    pub fn stripe_start(&self, stripe: Stripe) -> u64 {
        self.check_epoch(stripe);
        stripe.number().0 * self.stripe_bytes()
    }

    /// Where a strip of a stripe lives. With [`Geometry::strip_at`], its inverse, the one answer
    /// that the crate gives to that question.
    ///
    /// # Panics
    /// If the stripe is one of another geometry, or has no such strip.
    #[inline]
    pub fn place(&self, stripe: Stripe, strip: StripIdx) -> Place {
        assert!(
            strip.at() < self.stripe_width(),
            "a stripe here has {} strips",
            self.stripe_width()
        );
        self.check_epoch(stripe);
        let (member, row) = self.placement.place(stripe, strip);
        Place { member, offset: row * self.strip_bytes }
    }

    /// The strip in a member's row `row` (its `row`-th strip), and its stripe; `None` if that place
    /// is spare.
    ///
    /// # Panics
    /// If the array has no such row or no such member.
    #[inline]
    pub fn strip_at(&self, member: MemberIdx, row: u64) -> Option<(Stripe, StripIdx)> {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        self.check_member(member);
        let number = self.placement.stripe_in(member, row)?;
        let stripe = self.stripe(number);
        Some((stripe, self.placement.strip_on(stripe, member)?))
    }

    /// Which strip of a stripe a member holds; `None` if it holds none of it.
    ///
    /// # Panics
    /// If the stripe is one of another geometry, or the array has no such member.
    #[inline]
    pub fn strip_on(&self, stripe: Stripe, member: MemberIdx) -> Option<StripIdx> {
        self.check_member(member);
        self.check_epoch(stripe);
        self.placement.strip_on(stripe, member)
    }

    /// The members that can lose a stripe together, as sets: each member is in one set, and no
    /// stripe has strips in two.
    pub fn failure_sets(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        self.placement.failure_sets()
    }

    /// The most strips that one stripe lacks when these members are missing. A layout whose stripes
    /// use some members of a set only may give more than any stripe lacks, never less.
    pub fn losses(&self, is_missing: impl Fn(MemberIdx) -> bool) -> usize {
        self.failure_sets().map(|set| self.losses_in(set, &is_missing)).max().unwrap_or(0)
    }

    /// The most strips that a stripe of `member` lacks besides that member's own when these members
    /// are missing.
    ///
    /// # Panics
    /// If the array has no such member.
    pub fn losses_beside(
        &self,
        member: MemberIdx,
        is_missing: impl Fn(MemberIdx) -> bool,
    ) -> usize {
        self.check_member(member);
        let mut sets = self.failure_sets();
        let own = sets.find(|set| set.contains(&member.at())).expect("each member is in one set");
        let domain = |member: MemberIdx| member.at() / self.domain_members();
        self.losses_in(own, &|other| domain(other) != domain(member) && is_missing(other))
    }

    /// A stripe has at most one strip in each failure domain, so it cannot lack more than its
    /// width.
    fn losses_in(&self, set: Range<usize>, is_missing: &impl Fn(MemberIdx) -> bool) -> usize {
        let size = self.domain_members();
        let is_hit = |first: &usize| (*first..first + size).map(MemberIdx::from_at).any(is_missing);
        set.step_by(size).filter(is_hit).count().min(self.stripe_width())
    }

    /// Members of a failure domain, which have consecutive slots and share no stripe; 1: each for
    /// itself.
    pub fn domain_members(&self) -> usize {
        self.declustered().map_or(1, |map| map.parts().domain_members)
    }

    #[inline]
    fn check_epoch(&self, stripe: Stripe) {
        assert!(
            stripe.epoch() == self.epoch,
            "{stripe:?} is of another geometry than {:?}",
            self.epoch
        );
    }

    #[inline]
    fn check_member(&self, member: MemberIdx) {
        assert!(member.at() < self.members(), "an array here has {} members", self.members());
    }
}

impl GeometryParts {
    /// Whether this crate knows the map, and its numbers are there.
    fn check_version(&self) -> Result<(), ShapeError> {
        let version = if self.spread.is_some() { DECLUSTERED_VERSION } else { LAYOUT_VERSION };
        if self.layout_version == version {
            return Ok(());
        }
        Err(ShapeError::LayoutVersion { version: self.layout_version })
    }

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
        if self.spread.is_some() {
            return self.check_spread();
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

    fn check_spread(&self) -> Result<(), ShapeError> {
        let level = self.level;
        if level.is_grouped() || level.is_mirror() || self.parity_strips == 0 {
            return Err(ShapeError::NotDeclustered { level });
        }
        Ok(())
    }

    /// All numbers of a declustered layout.
    pub fn declustered(&self) -> Option<DeclusteredParts> {
        let Spread { members, domain_members, spare_columns, cell_rows, seed, growths } =
            self.spread?;
        Some(DeclusteredParts {
            data_strips: self.data_strips,
            parity_strips: self.parity_strips,
            members,
            domain_members,
            spare_columns,
            cell_rows,
            strip_bytes: self.strip_bytes,
            rows: self.rows,
            seed,
            growths,
        })
    }

    /// The sets of [`Geometry::failure_sets`], which follow from counts that are not zero, whatever
    /// the level makes of them.
    pub fn failure_sets(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (sets, members) = match self.spread {
            None => (self.groups, self.data_strips + self.parity_strips),
            Some(spread) => (1, spread.members),
        };
        (0..sets).map(move |set| set * members..(set + 1) * members)
    }

    /// Rows that an array has at least; useful numbers of rows are multiples of it: 1, or the rows
    /// of a slice. 1 of numbers that cannot be.
    pub fn row_unit(&self) -> u64 {
        self.declustered().and_then(|parts| parts.slice_rows().ok()).unwrap_or(1)
    }

    /// Stripes of the array. None of numbers that cannot be.
    pub fn stripe_count(&self) -> u64 {
        match self.declustered() {
            None => self.rows * to_u64(self.groups),
            Some(parts) => parts.stripe_count().unwrap_or(0),
        }
    }

    /// Whether the strip is a size that exists and the volume one that can be addressed.
    ///
    /// # Errors
    /// If not.
    pub fn check_sizes(&self) -> Result<(), ShapeError> {
        let GeometryParts { strip_bytes, rows, .. } = *self;
        if let Some(parts) = self.declustered() {
            return Ok(parts.stripe_count().map(|_| ())?);
        }
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

impl Spread {
    /// Those among all numbers of a layout.
    fn of(parts: DeclusteredParts) -> Spread {
        let DeclusteredParts { members, domain_members, spare_columns, cell_rows, seed, .. } =
            parts;
        let growths = parts.growths;
        Spread { members, domain_members, spare_columns, cell_rows, seed, growths }
    }
}
