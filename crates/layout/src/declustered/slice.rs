//! The map of a declustered array: which member and row hold a strip, and what a row of a member
//! holds. ON-DISK FORMAT.
//!
//! Rows of members are cut into slices, and a slice into sub-slices: one for each member of a
//! domain. A sub-slice is a table of cells: its columns are the domains, permuted; a cell is a run
//! of rows of one member. The last columns are spare. The cells of the other columns, counted row
//! by row, are cut into groups of as many cells as a stripe has strips. Stripes go through a group
//! row by row, and neighbouring stripes lie in different groups, so a stream uses all members.
//!
//! What must stay true: [`Declustered::place`] and [`Declustered::held`] are each other's inverse;
//! a stripe has at most one strip in each domain, since its cells have different columns. No
//! function here allocates but [`Declustered::new`].
//!
//! Not here: what spare cells hold after a loss (`spares`).

use ashlar_units::{MemberIdx, StripIdx, StripeNo, to_u64, to_usize};

use super::growth::Growth;
use super::growth_parts::GROWTHS_MAX;
use super::parts::{DeclusteredError, DeclusteredParts, PoolCounts, SliceCounts};
use super::permutation::SlicePermutation;
use super::regions::{Grown, Logical, Physical, Region};
use crate::rotation::{Rotation, RowCode};

/// A declustered layout. Always valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Declustered {
    parts: DeclusteredParts,
    /// The slices that the array was created with.
    pub(super) home: Region,
    pub(super) growths: [Option<Grown>; GROWTHS_MAX],
    code: RowCode,
    rotation: Rotation,
}

/// Where a stripe lies: what all its strips have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeclusteredSeat {
    group: GroupAt,
    permutation: SlicePermutation,
    /// Row of the cells that the stripe is in.
    row_of_cell: u64,
    turn: u8,
}

/// What a stripe carries of its seat, in seven bytes; the rest follows from its number with two
/// divisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CarriedSeat {
    permutation: SlicePermutation,
    turn: u8,
    /// Of the groups of the slice.
    group: u8,
}

/// A group of cells: stripes of one group lie on the same members.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupAt {
    /// The slice.
    pub slice: u64,
    /// The sub-slice, below the members of a domain.
    pub sub_slice: u32,
    /// The group in the sub-slice.
    pub group: u32,
}

/// A cell: a run of rows of one member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CellAt {
    /// The slice.
    pub slice: u64,
    /// The sub-slice, below the members of a domain.
    pub sub_slice: u32,
    /// The row of cells in the sub-slice.
    pub cell_row: u32,
    /// The column: stripes in the first columns, spare the others.
    pub column: u32,
}

/// A row of a member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemberRow {
    /// The member.
    pub member: MemberIdx,
    /// The row: the strip at `row` times the bytes of a strip in its data area.
    pub row: u64,
}

/// What a row of a member is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// It holds a strip of a stripe.
    Strip(StripeNo, StripIdx),
    /// It belongs to a distributed spare: the column, counted among the spare columns.
    Spare(usize),
    /// It is behind the last whole slice.
    Unused,
}

impl Declustered {
    /// The layout of these numbers.
    ///
    /// # Errors
    /// If they do not belong together; the message says which and what would do.
    pub fn new(parts: DeclusteredParts) -> Result<Declustered, DeclusteredError> {
        let PoolCounts { home, growths } = parts.counts()?;
        let home = Region::home(home);
        let mut map = Declustered {
            parts,
            home,
            growths: [None; GROWTHS_MAX],
            code: RowCode::new(parts.data_strips, parts.parity_strips),
            rotation: match parts.data_strips {
                1 => Rotation::Fixed,
                _ => Rotation::LeftSymmetric,
            },
        };
        let mut last = home;
        for (grown, counts) in map.growths.iter_mut().zip(growths) {
            let Some(counts) = counts else { continue };
            last = Region::opened_by(counts, &last);
            *grown = Some(Grown { growth: Growth::new(counts), opened: last });
        }
        Ok(map)
    }

    /// The numbers to store; [`Declustered::new`] gives the same layout back.
    pub fn parts(&self) -> DeclusteredParts {
        self.parts
    }

    /// Members of the array.
    #[inline]
    pub fn members(&self) -> usize {
        self.parts.members
    }

    /// Stripes of the array.
    pub fn stripe_count(&self) -> u64 {
        self.regions().map(|region| region.counts.stripes()).sum()
    }

    /// Bytes of the volume.
    pub fn volume_bytes(&self) -> u64 {
        self.stripe_count() * to_u64(self.parts.data_strips) * self.parts.strip_bytes
    }

    /// Whole slices.
    pub fn slices(&self) -> u64 {
        self.regions().map(|region| region.counts.slices).sum()
    }

    /// Cells of each member.
    pub fn cells(&self) -> u64 {
        self.home.counts.slices * u64::from(self.home.counts.cell_rows_of_slice)
    }

    /// Failure domains; as many as members if each member is one.
    pub fn domains(&self) -> usize {
        self.parts.members / self.parts.domain_members
    }

    /// The groups of a slice.
    pub fn groups(&self, slice: u64) -> impl Iterator<Item = GroupAt> + use<> {
        let SliceCounts { sub_slices, groups, .. } = self.region(slice).counts;
        (0..groups).flat_map(move |group| {
            (0..sub_slices).map(move |sub_slice| GroupAt { slice, sub_slice, group })
        })
    }

    /// The number of groups of a slice.
    pub(super) fn groups_of(&self, slice: u64) -> usize {
        to_usize(u64::from(self.region(slice).counts.slice_groups))
    }

    /// Which group of its slice it is.
    pub(super) fn group_number(&self, at: GroupAt) -> usize {
        let sub_slices = self.home.counts.sub_slices;
        to_usize(u64::from(at.group * sub_slices + at.sub_slice))
    }

    /// Rows of cells that a slice takes on each member.
    pub fn cell_rows_of(&self, slice: u64) -> u32 {
        self.region(slice).counts.cell_rows_of_slice
    }

    /// Where a stripe lies.
    ///
    /// # Panics
    /// If the array has no such stripe.
    #[inline]
    pub fn seat(&self, stripe: StripeNo) -> DeclusteredSeat {
        let region = self.region_at(stripe);
        let counts = &region.counts;
        let (slice, in_slice) = in_slice(region, stripe);
        let is_there = slice < counts.slices;
        assert!(is_there, "stripe {stripe} of {}", self.stripe_count());
        let row_of_cell = in_slice / u64::from(counts.slice_groups);
        let of_slice = in_slice - row_of_cell * u64::from(counts.slice_groups);
        let of_slice = u32::try_from(of_slice).expect("a slice has at most 256 groups");
        let (group, sub_slice) = divide(of_slice, counts.sub_slices);
        DeclusteredSeat {
            group: GroupAt { slice: region.first_slice + slice, sub_slice, group },
            permutation: region.permutations.of_slice(slice),
            row_of_cell,
            turn: self.rotation.turn(self.code, row_of_cell),
        }
    }

    /// What the stripe is to carry of it.
    ///
    /// # Panics
    /// If the array has no such stripe.
    #[inline]
    pub(crate) fn carried(&self, stripe: StripeNo) -> CarriedSeat {
        let seat = self.seat(stripe);
        let group = seat.group.group * self.home.counts.sub_slices + seat.group.sub_slice;
        CarriedSeat {
            permutation: seat.permutation,
            turn: seat.turn,
            group: u8::try_from(group).expect("a slice has at most 256 groups"),
        }
    }

    /// The same again from what the stripe carries.
    #[inline]
    pub(crate) fn seat_of(&self, stripe: StripeNo, carried: CarriedSeat) -> DeclusteredSeat {
        let region = self.region_at(stripe);
        let (slice, in_slice) = in_slice(region, stripe);
        let (group, sub_slice) = divide(carried.group.into(), region.counts.sub_slices);
        let slice = region.first_slice + slice;
        DeclusteredSeat {
            group: GroupAt { slice, sub_slice, group },
            permutation: carried.permutation,
            row_of_cell: in_slice / u64::from(region.counts.slice_groups),
            turn: carried.turn,
        }
    }

    /// How strips move over the cells of a group from row to row.
    pub(crate) fn rotation(&self) -> Rotation {
        self.rotation
    }

    /// The member and row that hold a strip as long as no member is lost.
    ///
    /// # Panics
    /// If a stripe has no such strip.
    #[inline]
    pub fn place(&self, seat: DeclusteredSeat, strip: StripIdx) -> MemberRow {
        assert!(strip.at() < self.parts.width(), "no strip {}", strip.0);
        let position = self.rotation.position(self.code, seat.turn, strip.0);
        // Asked for once: this is on the way of every request.
        let region = self.region(seat.group.slice);
        let cell = cell_of(region, seat.group, u32::from(position));
        let (member, number) = self.settled(region, seat.permutation, cell);
        MemberRow { member, row: number * self.parts.cell_rows + seat.row_of_cell }
    }

    /// The strips of a stripe in the order of their positions.
    pub(super) fn by_position(&self, seat: DeclusteredSeat) -> impl Iterator<Item = StripIdx> {
        let positions = 0..self.parts.width();
        positions.map(move |position| {
            let position = u8::try_from(position).expect("below the width");
            StripIdx(self.rotation.strip(self.code, seat.turn, position))
        })
    }

    /// The cell at a position of a group.
    #[inline]
    pub fn cell_of(&self, group: GroupAt, position: u32) -> CellAt {
        cell_of(self.region(group.slice), group, position)
    }

    /// The group that a cell belongs to, and its position there; `None` if the cell is spare.
    #[inline]
    pub fn group_of(&self, cell: CellAt) -> Option<(GroupAt, u32)> {
        let counts = &self.region(cell.slice).counts;
        if cell.column >= counts.data_columns {
            return None;
        }
        let nth = cell.cell_row * counts.data_columns + cell.column;
        let (group, position) = divide(nth, counts.width);
        Some((GroupAt { slice: cell.slice, sub_slice: cell.sub_slice, group }, position))
    }

    /// The members in the columns of the first sub-slice and row of cells of a slice.
    pub fn columns_of(&self, slice: u64) -> impl Iterator<Item = MemberIdx> {
        let columns = 0..self.region(slice).counts.columns;
        let cell = move |column| CellAt { slice, sub_slice: 0, cell_row: 0, column };
        columns.map(move |column| self.member(cell(column)))
    }

    /// The member that a cell lies on.
    #[inline]
    pub fn member(&self, cell: CellAt) -> MemberIdx {
        self.settled_cell(cell).0
    }

    /// The first row of a cell on its member.
    #[inline]
    pub fn first_row(&self, cell: CellAt) -> u64 {
        self.settled_cell(cell).1 * self.parts.cell_rows
    }

    /// The member that a cell lies on, and its first row there.
    #[inline]
    pub fn start_of(&self, cell: CellAt) -> MemberRow {
        let (member, number) = self.settled_cell(cell);
        MemberRow { member, row: number * self.parts.cell_rows }
    }

    /// The member that a cell lies on, and its number there.
    #[inline]
    pub(super) fn settled_cell(&self, cell: CellAt) -> (MemberIdx, u64) {
        let region = self.region(cell.slice);
        self.settled(region, region.permutation(cell.slice), cell)
    }

    /// The same if its region and the permutation of the slice are at hand.
    #[inline]
    fn settled(
        &self,
        region: &Region,
        permutation: SlicePermutation,
        cell: CellAt,
    ) -> (MemberIdx, u64) {
        let domain = region.permutations.domain(permutation, cell.column);
        let number = region.number(cell.slice, cell.cell_row);
        let at = self.settle(Logical { region, domain, number });
        // Domains move as a whole, unit by unit.
        (self.member_of(at.domain, region.unit(cell, domain)), at.number)
    }

    /// The cell that a row of a member is in, and the row of the cell; `None` if the row is in no
    /// slice: behind the last whole one, or where a growth has put nothing yet.
    ///
    /// # Panics
    /// If the array has no such member.
    #[inline]
    pub fn cell_at(&self, at: MemberRow) -> Option<(CellAt, u64)> {
        let number = at.row / self.parts.cell_rows;
        let row_of_cell = at.row - number * self.parts.cell_rows;
        Some((self.cell_numbered(at.member, number)?, row_of_cell))
    }

    /// The cell of this number of a member, as [`Declustered::cell_at`].
    #[inline]
    pub(super) fn cell_numbered(&self, member: MemberIdx, number: u64) -> Option<CellAt> {
        let (domain, unit) = self.domain_and_unit(member);
        let Logical { region, domain, number } = self.unsettle(Physical { domain, number })?;
        let rows = u64::from(region.counts.cell_rows_of_slice);
        let slice = number / rows;
        let cell_row = u32::try_from(number - slice * rows).expect("at most 64 rows of cells");
        Some(cell_in(region, region.first_slice + slice, cell_row, domain, unit))
    }

    /// The cell of a member in a row of cells of a slice; `None` if it has none there, as happens
    /// in an array that has grown.
    ///
    /// # Panics
    /// If the array has no such member.
    #[inline]
    pub fn cell(&self, member: MemberIdx, slice: u64, cell_row: u32) -> Option<CellAt> {
        let (domain, unit) = self.domain_and_unit(member);
        let region = self.region(slice);
        let domain = self.domain_on(region, region.number(slice, cell_row), domain)?;
        Some(cell_in(region, slice, cell_row, domain, unit))
    }

    /// What a row of a member is for.
    ///
    /// # Panics
    /// If the array has no such member.
    #[inline]
    pub fn held(&self, at: MemberRow) -> Held {
        let Some((cell, row_of_cell)) = self.cell_at(at) else { return Held::Unused };
        if let Some(spare) = self.spare_index(cell) {
            return Held::Spare(spare);
        }
        let (group, position) = self.group_of(cell).expect("the others have stripes");
        let turn = self.rotation.turn(self.code, row_of_cell);
        let position = u8::try_from(position).expect("below the width");
        let strip = self.rotation.strip(self.code, turn, position);
        Held::Strip(self.stripe_in(group, row_of_cell), StripIdx(strip))
    }

    /// The stripe in a row of a group.
    #[inline]
    pub fn stripe_in(&self, group: GroupAt, row_of_cell: u64) -> StripeNo {
        let region = self.region(group.slice);
        let counts = &region.counts;
        let of_slice = u64::from(group.group * counts.sub_slices + group.sub_slice);
        let in_slice = row_of_cell * u64::from(counts.slice_groups) + of_slice;
        let slice = group.slice - region.first_slice;
        StripeNo(region.first_stripe + slice * counts.slice_stripes + in_slice)
    }

    /// Which strip of a stripe a member holds as long as no member is lost.
    ///
    /// # Panics
    /// If the array has no such member.
    #[inline]
    pub fn strip_on(&self, seat: DeclusteredSeat, member: MemberIdx) -> Option<StripIdx> {
        // Cells of a slice that are one domain's lie on one member, in all rows of cells.
        let cell = self.cell(member, seat.group.slice, 0)?;
        let counts = &self.region(cell.slice).counts;
        if cell.sub_slice != seat.group.sub_slice || cell.column >= counts.data_columns {
            return None;
        }
        // A group is a run of cells, modulo the columns, and shorter than one turn.
        let first = seat.group.group * counts.width % counts.data_columns;
        let position = cell.column + counts.data_columns - first;
        let position = match position.checked_sub(counts.data_columns) {
            Some(wrapped) => wrapped,
            None => position,
        };
        let position = u8::try_from(position).ok().filter(|at| u32::from(*at) < counts.width)?;
        Some(StripIdx(self.rotation.strip(self.code, seat.turn, position)))
    }
}

impl DeclusteredSeat {
    /// The group of the stripe.
    #[inline]
    pub fn group(self) -> GroupAt {
        self.group
    }

    /// What turns the choice of survivors that a rebuild reads.
    #[inline]
    pub(super) fn turn_of_reads(self) -> u64 {
        self.group.slice + self.row_of_cell
    }
}

/// The slice of a region that a stripe is in, and which stripe of the slice it is.
#[inline]
fn in_slice(region: &Region, stripe: StripeNo) -> (u64, u64) {
    let in_region = stripe.0 - region.first_stripe;
    let slice = in_region / region.counts.slice_stripes;
    (slice, in_region - slice * region.counts.slice_stripes)
}

/// The cell of a domain's unit in a slice and a row of cells of it.
#[inline]
fn cell_in(region: &Region, slice: u64, cell_row: u32, domain: u32, unit: u32) -> CellAt {
    let column = region.permutations.column(region.permutation(slice), domain);
    let sub_slice = region.sub_slice(slice, domain, unit);
    CellAt { slice, sub_slice, cell_row, column }
}

/// The cell at a position of a group.
#[inline]
fn cell_of(region: &Region, group: GroupAt, position: u32) -> CellAt {
    let nth = group.group * region.counts.width + position;
    let (cell_row, column) = divide(nth, region.counts.data_columns);
    CellAt { slice: group.slice, sub_slice: group.sub_slice, cell_row, column }
}

/// Quotient and remainder with one division.
#[inline]
fn divide(number: u32, by: u32) -> (u32, u32) {
    let quotient = number / by;
    (quotient, number - quotient * by)
}
