//! The numbers of a declustered layout, and the line that refuses those that cannot be.
//!
//! ON-DISK FORMAT: the numbers are all that a superblock stores of the map; everything else is
//! computed. What must stay true of every value that [`DeclusteredParts::counts`] accepts: no sum
//! or product of the map exceeds 64 bits, since all members together have at most 2^62 bytes.
//!
//! Not here: the map itself (`slice`), and what an operator types (`spelling`).

use ashlar_units::{BLOCK_BYTES, ByteSize, STRIPS_MAX, to_u64};

use super::growth_parts::{GROWTHS_MAX, GrowthCounts, Growths};
use crate::geometry::ARRAY_BYTES_MAX;
use crate::shape::{STRIP_BYTES_MAX, STRIP_BYTES_MIN};

/// The layout version of declustered arrays.
pub const DECLUSTERED_VERSION: u16 = 2;
/// Members that a declustered array can have.
pub const DECLUSTERED_MEMBERS_MAX: usize = 256;
/// The seed of the shuffles, the only one there is: evenness was measured for this one, and one
/// seed lets all arrays share their tables.
pub const DECLUSTERED_SEED: u64 = 20_261_123;
/// Bytes of a cell on rotating drives: long enough that a seek costs little.
pub const CELL_BYTES_ROTATING: u64 = 16 << 20;
/// Bytes of a cell on flash.
pub const CELL_BYTES_FLASH: u64 = 1 << 20;
/// Most parity strips of a stripe.
const PARITY_MAX: usize = 32;
/// Most rows of a cell: 16 MiB of the smallest strips.
const CELL_ROWS_MAX: u64 = (16 << 20) / BLOCK_BYTES;

/// Most rows of a slice: 64 rows of the longest cells.
const SLICE_ROWS_MAX: u64 = 64 * CELL_ROWS_MAX;

/// The numbers a superblock stores of a declustered layout, not yet validated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeclusteredParts {
    /// Data strips per stripe.
    pub data_strips: usize,
    /// Parity strips per stripe.
    pub parity_strips: usize,
    /// Members of the array.
    pub members: usize,
    /// Members of each failure domain, which have consecutive slots; 1: every member for itself.
    pub domain_members: usize,
    /// Spare columns of a sub-slice: members that the distributed spares can replace at a time.
    pub spare_columns: usize,
    /// Rows of a cell.
    pub cell_rows: u64,
    /// Bytes per strip.
    pub strip_bytes: u64,
    /// Strips per member.
    pub rows: u64,
    /// Seed of the shuffles: [`DECLUSTERED_SEED`].
    pub seed: u64,
    /// How the array came to have more members than it was created with, in order.
    pub growths: Growths,
}

/// Why there is no such declustered layout. Each is one line for an operator.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeclusteredError {
    /// No data strips, no parity strips, or too many of either.
    #[error(
        "a declustered array takes stripes of 1 to 63 data and 1 to 32 parity strips, at most 64 \
         together, and got {data_strips}+{parity_strips}"
    )]
    Code {
        /// Data strips asked for.
        data_strips: usize,
        /// Parity strips asked for.
        parity_strips: usize,
    },
    /// More members than the map has columns for.
    #[error("a declustered array takes 2 to 256 members and got {members}; make several arrays")]
    Members {
        /// Members given.
        members: usize,
    },
    /// Domains of unequal size.
    #[error(
        "{members} members do not divide into failure domains of {domain_members}; \
         give each domain the same number of members"
    )]
    Domains {
        /// Members given.
        members: usize,
        /// Members of a domain asked for.
        domain_members: usize,
    },
    /// Stripes wider than the columns that are left for data.
    #[error(
        "stripes of {width} strips and {spares} spare columns need {} {what} and there are \
         {columns}; take narrower stripes, fewer spares or more drives",
        .width.saturating_add(*.spares)
    )]
    TooNarrow {
        /// Strips of a stripe.
        width: usize,
        /// Spare columns.
        spares: usize,
        /// Members, or domains if those have several members.
        columns: usize,
        /// What a column is.
        what: &'static str,
    },
    /// A strip size that does not exist.
    #[error(
        "a strip of {} cannot be; it must be a power of two from 4 KiB to 1 MiB",
        ByteSize(*.strip_bytes)
    )]
    StripSize {
        /// The strip size asked for, in bytes.
        strip_bytes: u64,
    },
    /// A cell without rows, or a very large one.
    #[error("a cell of {cell_rows} strips cannot be; it takes 1 to 4,096 strips")]
    CellRows {
        /// Strips of a cell asked for.
        cell_rows: u64,
    },
    /// A seed of a newer program.
    #[error("shuffles of seed {seed} are not known here, only those of {DECLUSTERED_SEED} are")]
    Seed {
        /// The seed found.
        seed: u64,
    },
    /// Members too small for a single slice.
    #[error(
        "the smallest member has {rows} strips and a slice takes {slice_rows}; \
         take larger drives, or a smaller cell"
    )]
    NoSlice {
        /// Strips of the smallest member.
        rows: u64,
        /// Strips of a slice on each member.
        slice_rows: u64,
    },
    /// A growth that no program records.
    #[error("growth {nth} of the array cannot be: {what}")]
    Growth {
        /// Which, from 1.
        nth: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// Drives too small to move a single block.
    #[error(
        "each drive has {cells} cells, and growing to {members} drives moves {block_cells} at a \
         time; add another number of drives, or make another array"
    )]
    NoBlock {
        /// Cells of a member.
        cells: u64,
        /// Members after the growth.
        members: usize,
        /// Cells of a block.
        block_cells: u64,
    },
    /// A third growth.
    #[error("the array has grown twice, which is the most; make another array of the new drives")]
    GrownTwice,
    /// A growth during another.
    #[error("the array is growing already; let that end first")]
    Growing,
    /// Parts of failure domains.
    #[error("{added} drives are no whole failure domains of {domain_members}; add whole ones")]
    PartOfDomain {
        /// Members to add.
        added: usize,
        /// Members of a domain.
        domain_members: usize,
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
}

/// What follows from the parts. All are small but the last three, so the map works with 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SliceCounts {
    /// Strips of a stripe (W).
    pub width: u32,
    /// Columns of a sub-slice: domains (D).
    pub columns: u32,
    /// Columns that hold stripes (C); the others are spare.
    pub data_columns: u32,
    /// Sub-slices of a slice: members of a domain (E).
    pub sub_slices: u32,
    /// Rows of cells in a slice (L).
    pub cell_rows_of_slice: u32,
    /// Groups of a sub-slice (G): `width` consecutive cells each.
    pub groups: u32,
    /// Groups of a slice: those of all sub-slices.
    pub slice_groups: u32,
    /// Strips that a slice takes on each member.
    pub slice_rows: u64,
    /// Stripes of a slice.
    pub slice_stripes: u64,
    /// Whole slices on the members.
    pub slices: u64,
}

/// What follows for a whole array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PoolCounts {
    /// Of the slices that it was created with.
    pub home: SliceCounts,
    /// Of its growths.
    pub growths: [Option<GrowthCounts>; GROWTHS_MAX],
}

impl DeclusteredParts {
    /// Whether the numbers belong together, and what follows from them: of the array as it was
    /// created, and of its growths.
    ///
    /// # Errors
    /// If not: which of them cannot be, and what would do.
    pub(crate) fn counts(&self) -> Result<PoolCounts, DeclusteredError> {
        self.check_code()?;
        self.check_columns()?;
        self.check_sizes()?;
        if self.seed != DECLUSTERED_SEED {
            return Err(DeclusteredError::Seed { seed: self.seed });
        }
        let home = self.slice_counts(self.members_at_creation(), self.rows);
        if home.slices == 0 {
            return Err(DeclusteredError::NoSlice { rows: self.rows, slice_rows: home.slice_rows });
        }
        Ok(PoolCounts { home, growths: self.growth_counts(&home)? })
    }

    /// What follows for so many members with so many rows.
    pub(super) fn slice_counts(&self, members: usize, rows: u64) -> SliceCounts {
        let small = |count: usize| u32::try_from(count).expect("checked to be at most 256");
        let width = small(self.width());
        let sub_slices = small(self.domain_members);
        let columns = small(members / self.domain_members);
        let data_columns = columns - small(self.spare_columns);
        let common = greatest_common_divisor(width, data_columns);
        // Groups are laid out without gaps, so they may begin in one row of cells and end in the
        // next. `groups` of them fill `width / common` rows exactly.
        let (cell_rows_of_slice, groups) = (width / common, data_columns / common);
        let slice_groups = groups * sub_slices;
        let slice_rows = u64::from(cell_rows_of_slice) * self.cell_rows;
        SliceCounts {
            width,
            columns,
            data_columns,
            sub_slices,
            cell_rows_of_slice,
            groups,
            slice_groups,
            slice_rows,
            slice_stripes: u64::from(slice_groups) * self.cell_rows,
            slices: rows / slice_rows,
        }
    }

    /// Members that the array was created with.
    pub fn members_at_creation(&self) -> usize {
        self.growths[0].map_or(self.members, |growth| growth.members_before)
    }

    /// Stripes of the array.
    ///
    /// # Errors
    /// If the numbers do not belong together.
    pub fn stripe_count(&self) -> Result<u64, DeclusteredError> {
        let counts = self.counts()?;
        let opened = counts.growths.iter().flatten().filter(|growth| growth.is_complete());
        let opened: u64 = opened.map(|growth| growth.opened.stripes()).sum();
        Ok(counts.home.stripes() + opened)
    }

    /// Rows of a member that a slice takes as the array was created, whatever the `rows` of the
    /// members.
    ///
    /// # Errors
    /// If the other numbers do not belong together.
    pub fn slice_rows(&self) -> Result<u64, DeclusteredError> {
        let longest = DeclusteredParts { rows: SLICE_ROWS_MAX, ..self.at_creation() };
        longest.counts().map(|counts| counts.home.slice_rows)
    }

    /// Strips per stripe. Saturates, since the counts may come from a damaged superblock.
    pub fn width(&self) -> usize {
        self.data_strips.saturating_add(self.parity_strips)
    }

    fn check_code(&self) -> Result<(), DeclusteredError> {
        let (data_strips, parity_strips) = (self.data_strips, self.parity_strips);
        let is_code = data_strips >= 1
            && (1..=PARITY_MAX).contains(&parity_strips)
            && self.width() <= STRIPS_MAX;
        if is_code { Ok(()) } else { Err(DeclusteredError::Code { data_strips, parity_strips }) }
    }

    fn check_columns(&self) -> Result<(), DeclusteredError> {
        let (members, domain_members) = (self.members, self.domain_members);
        if !(2..=DECLUSTERED_MEMBERS_MAX).contains(&members) {
            return Err(DeclusteredError::Members { members });
        }
        if domain_members == 0 || !members.is_multiple_of(domain_members) {
            return Err(DeclusteredError::Domains { members, domain_members });
        }
        self.check_growth_order()?;
        let (width, spares) = (self.width(), self.spare_columns);
        let columns = self.members_at_creation() / domain_members;
        if width.saturating_add(spares) > columns {
            let what = if domain_members == 1 { "members" } else { "failure domains" };
            return Err(DeclusteredError::TooNarrow { width, spares, columns, what });
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), DeclusteredError> {
        let DeclusteredParts { strip_bytes, cell_rows, rows, .. } = *self;
        if !(STRIP_BYTES_MIN..=STRIP_BYTES_MAX).contains(&strip_bytes)
            || !strip_bytes.is_power_of_two()
        {
            return Err(DeclusteredError::StripSize { strip_bytes });
        }
        if !(1..=CELL_ROWS_MAX).contains(&cell_rows) {
            return Err(DeclusteredError::CellRows { cell_rows });
        }
        match rows.checked_mul(to_u64(self.members) * strip_bytes) {
            Some(array_bytes) if array_bytes <= ARRAY_BYTES_MAX => Ok(()),
            _ => Err(DeclusteredError::TooLarge { rows, strip_bytes }),
        }
    }
}

impl SliceCounts {
    /// Stripes of all slices.
    pub(crate) fn stripes(&self) -> u64 {
        self.slices * self.slice_stripes
    }
}

/// Euclid's. The first number is not zero.
pub(super) fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
