//! The numbers of growths: what a superblock stores of them, what follows, and which growths are
//! refused.
//!
//! ON-DISK FORMAT. What must stay true: the unit of a growth is whole slices of everything that
//! lies on the members before it and of what it opens, so no slice ever straddles two units. The
//! unit of a second growth is whole blocks of the first.
//!
//! Not here: which cells move (`growth`).

use super::parts::{
    DECLUSTERED_MEMBERS_MAX, DeclusteredError, DeclusteredParts, SliceCounts,
    greatest_common_divisor,
};

/// Growths that a declustered array can have.
pub const GROWTHS_MAX: usize = 2;
/// The growths of an array, in order.
pub type Growths = [Option<GrowthParts>; 2];

/// A growth, as a superblock stores it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GrowthParts {
    /// Members of the array before it.
    pub members_before: usize,
    /// The frontier: cells of each member below this number are where the growth puts them.
    pub moved_cells: u64,
}

/// What follows from a growth. A block is as many units as the array then has domains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GrowthCounts {
    /// Domains before it (n).
    pub before: u32,
    /// Domains that it adds (a).
    pub added: u32,
    /// Cells of a member that move together (U).
    pub unit_cells: u64,
    /// Whole blocks on the members.
    pub blocks: u64,
    /// What the frontier is a multiple of: the unit of the first growth.
    pub step_cells: u64,
    /// The frontier.
    pub moved_cells: u64,
    /// Of the slices that open when all cells have moved.
    pub opened: SliceCounts,
}

impl GrowthCounts {
    /// Domains after it.
    #[inline]
    pub(crate) fn after(&self) -> u32 {
        self.before + self.added
    }

    /// Cells of a block on each member.
    #[inline]
    pub(crate) fn block_cells(&self) -> u64 {
        self.unit_cells * u64::from(self.after())
    }

    /// Cells of each member that it reaches; those behind stay as they are.
    #[inline]
    pub(crate) fn end_cells(&self) -> u64 {
        self.blocks * self.block_cells()
    }

    /// Whether all cells have moved.
    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        self.moved_cells == self.end_cells()
    }
}

impl DeclusteredParts {
    /// The same array at the start of its next growth, by so many members.
    ///
    /// # Errors
    /// If it cannot grow so: why, and what would do.
    pub fn grown_by(&self, added: usize) -> Result<DeclusteredParts, DeclusteredError> {
        let counts = self.counts()?;
        if counts.growths.iter().flatten().any(|growth| !growth.is_complete()) {
            return Err(DeclusteredError::Growing);
        }
        let free = self.growths.iter().position(Option::is_none);
        let free = free.ok_or(DeclusteredError::GrownTwice)?;
        let domain_members = self.domain_members;
        if added == 0 || !added.is_multiple_of(domain_members) {
            return Err(DeclusteredError::PartOfDomain { added, domain_members });
        }
        let members = self.members.saturating_add(added);
        let mut grown = DeclusteredParts { members, ..*self };
        grown.growths[free] = Some(GrowthParts { members_before: self.members, moved_cells: 0 });
        grown.counts()?;
        Ok(grown)
    }

    /// The same array when its growths have moved all cells.
    ///
    /// # Errors
    /// If the numbers do not belong together.
    pub fn fully_grown(&self) -> Result<DeclusteredParts, DeclusteredError> {
        let counts = self.counts()?;
        let mut grown = *self;
        for (growth, counts) in grown.growths.iter_mut().zip(&counts.growths) {
            if let (Some(growth), Some(counts)) = (growth, counts) {
                growth.moved_cells = counts.end_cells();
            }
        }
        Ok(grown)
    }

    /// The array as it was created.
    #[must_use]
    pub fn at_creation(&self) -> DeclusteredParts {
        let members = self.members_at_creation();
        DeclusteredParts { members, growths: [None; GROWTHS_MAX], ..*self }
    }

    /// Members after a growth.
    fn members_after(&self, nth: usize) -> usize {
        let next = self.growths.get(nth + 1).copied().flatten();
        next.map_or(self.members, |next| next.members_before)
    }

    /// Whether each growth adds whole domains to what was there before. Run before anything is
    /// computed of the numbers.
    pub(super) fn check_growth_order(&self) -> Result<(), DeclusteredError> {
        for at in 0..GROWTHS_MAX {
            let Some(growth) = self.growths[at] else { continue };
            let wrong = |what| Err(DeclusteredError::Growth { nth: at + 1, what });
            if at > 0 && self.growths[at - 1].is_none() {
                return wrong("it has none before it");
            }
            if growth.members_before >= self.members_after(at)
                || growth.members_before > DECLUSTERED_MEMBERS_MAX
            {
                return wrong("it adds no members");
            }
            if !growth.members_before.is_multiple_of(self.domain_members) {
                return wrong("it adds parts of failure domains");
            }
        }
        Ok(())
    }

    /// What follows from the growths of an array that was created with these slices.
    pub(super) fn growth_counts(
        &self,
        home: &SliceCounts,
    ) -> Result<[Option<GrowthCounts>; GROWTHS_MAX], DeclusteredError> {
        let mut all = [None; GROWTHS_MAX];
        for nth in 0..GROWTHS_MAX {
            let Some(parts) = self.growths[nth] else { continue };
            let before = nth.checked_sub(1).and_then(|before| all[before]);
            let counts = self.growth_after(nth, home, before)?;
            check_frontier(nth, parts, &counts, before)?;
            all[nth] = Some(counts);
        }
        Ok(all)
    }

    /// A growth by what was there before it.
    fn growth_after(
        &self,
        nth: usize,
        home: &SliceCounts,
        before: Option<GrowthCounts>,
    ) -> Result<GrowthCounts, DeclusteredError> {
        let members = self.members_after(nth);
        let slice_cells = u64::from(home.cell_rows_of_slice);
        let aligned = before.map_or(slice_cells, |before| before.block_cells());
        let opened = self.slice_counts(members, 0);
        let unit_cells = common_multiple(aligned, u64::from(opened.cell_rows_of_slice));
        let cells = home.slices * slice_cells;
        let block_cells = unit_cells * u64::from(opened.columns);
        let blocks = cells / block_cells;
        if blocks == 0 {
            return Err(DeclusteredError::NoBlock { cells, members, block_cells });
        }
        let columns = before.map_or(home.columns, |before| before.after());
        let added = opened.columns - columns;
        let rows = blocks * u64::from(added) * unit_cells * self.cell_rows;
        Ok(GrowthCounts {
            before: columns,
            added,
            unit_cells,
            blocks,
            step_cells: before.map_or(unit_cells, |before| before.step_cells),
            moved_cells: self.growths[nth].map_or(0, |growth| growth.moved_cells),
            opened: self.slice_counts(members, rows),
        })
    }
}

/// Whether the frontier is one that a program records.
fn check_frontier(
    nth: usize,
    parts: GrowthParts,
    counts: &GrowthCounts,
    before: Option<GrowthCounts>,
) -> Result<(), DeclusteredError> {
    let wrong = |what| Err(DeclusteredError::Growth { nth: nth + 1, what });
    if before.is_some_and(|before| !before.is_complete()) {
        return wrong("the one before it has not ended");
    }
    if parts.moved_cells > counts.end_cells() {
        return wrong("its frontier is behind the last block");
    }
    if !parts.moved_cells.is_multiple_of(counts.step_cells) {
        return wrong("its frontier is within a unit");
    }
    Ok(())
}

/// Neither number is zero.
fn common_multiple(a: u64, b: u64) -> u64 {
    let (large, small) = (a, u32::try_from(b).expect("a slice has at most 64 rows of cells"));
    let rest = u32::try_from(large % b).expect("below 64");
    large / u64::from(greatest_common_divisor(small, rest)) * b
}
