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

use ashlar_units::{MemberIdx, StripIdx, StripeNo, to_u64};

use super::parts::{DeclusteredError, DeclusteredParts, SliceCounts};
use super::permutation::{Permutations, SlicePermutation};
use crate::rotation::{Rotation, RowCode};

/// A declustered layout. Always valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Declustered {
    parts: DeclusteredParts,
    pub(super) counts: SliceCounts,
    pub(super) permutations: Permutations,
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
        let counts = parts.counts()?;
        let rotates = parts.data_strips > 1;
        Ok(Declustered {
            parts,
            counts,
            permutations: Permutations::new(counts.columns),
            code: RowCode::new(parts.data_strips, parts.parity_strips),
            rotation: if rotates { Rotation::LeftSymmetric } else { Rotation::Fixed },
        })
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
        self.counts.slices * self.counts.slice_stripes
    }

    /// Bytes of the volume.
    pub fn volume_bytes(&self) -> u64 {
        self.stripe_count() * to_u64(self.parts.data_strips) * self.parts.strip_bytes
    }

    /// Whole slices.
    pub fn slices(&self) -> u64 {
        self.counts.slices
    }

    /// Cells of each member.
    pub fn cells(&self) -> u64 {
        self.counts.slices * u64::from(self.counts.cell_rows_of_slice)
    }

    /// Failure domains; as many as members if each member is one.
    pub fn domains(&self) -> usize {
        self.parts.members / self.parts.domain_members
    }

    /// The groups of a slice.
    pub fn groups(&self, slice: u64) -> impl Iterator<Item = GroupAt> + use<> {
        let SliceCounts { sub_slices, groups, .. } = self.counts;
        (0..groups).flat_map(move |group| {
            (0..sub_slices).map(move |sub_slice| GroupAt { slice, sub_slice, group })
        })
    }

    /// Where a stripe lies.
    ///
    /// # Panics
    /// If the array has no such stripe.
    #[inline]
    pub fn seat(&self, stripe: StripeNo) -> DeclusteredSeat {
        let counts = &self.counts;
        let slice = stripe.0 / counts.slice_stripes;
        assert!(slice < counts.slices, "stripe {stripe} of {}", self.stripe_count());
        let in_slice = stripe.0 - slice * counts.slice_stripes;
        let row_of_cell = in_slice / u64::from(counts.slice_groups);
        let of_slice = in_slice - row_of_cell * u64::from(counts.slice_groups);
        let of_slice = u32::try_from(of_slice).expect("a slice has at most 256 groups");
        let (group, sub_slice) = divide(of_slice, counts.sub_slices);
        self.seat_in(GroupAt { slice, sub_slice, group }, row_of_cell)
    }

    /// What the stripe is to carry of it.
    ///
    /// # Panics
    /// If the array has no such stripe.
    #[inline]
    pub(crate) fn carried(&self, stripe: StripeNo) -> CarriedSeat {
        let seat = self.seat(stripe);
        let group = seat.group.group * self.counts.sub_slices + seat.group.sub_slice;
        CarriedSeat {
            permutation: seat.permutation,
            turn: seat.turn,
            group: u8::try_from(group).expect("a slice has at most 256 groups"),
        }
    }

    /// The same again from what the stripe carries.
    #[inline]
    pub(crate) fn seat_of(&self, stripe: StripeNo, carried: CarriedSeat) -> DeclusteredSeat {
        let counts = &self.counts;
        let slice = stripe.0 / counts.slice_stripes;
        let in_slice = stripe.0 - slice * counts.slice_stripes;
        let (group, sub_slice) = divide(carried.group.into(), counts.sub_slices);
        DeclusteredSeat {
            group: GroupAt { slice, sub_slice, group },
            permutation: carried.permutation,
            row_of_cell: in_slice / u64::from(counts.slice_groups),
            turn: carried.turn,
        }
    }

    /// How strips move over the cells of a group from row to row.
    pub(crate) fn rotation(&self) -> Rotation {
        self.rotation
    }

    /// Where the stripe in a row of a group lies.
    #[inline]
    pub(super) fn seat_in(&self, group: GroupAt, row_of_cell: u64) -> DeclusteredSeat {
        DeclusteredSeat {
            group,
            permutation: self.permutations.of_slice(group.slice),
            row_of_cell,
            turn: self.rotation.turn(self.code, row_of_cell),
        }
    }

    /// The member and row that hold a strip as long as no member is lost.
    ///
    /// # Panics
    /// If a stripe has no such strip.
    #[inline]
    pub fn place(&self, seat: DeclusteredSeat, strip: StripIdx) -> MemberRow {
        assert!(u32::from(strip.0) < self.counts.width, "no strip {}", strip.0);
        let position = self.rotation.position(self.code, seat.turn, strip.0);
        let cell = self.cell_of(seat.group, u32::from(position));
        MemberRow {
            member: self.member_by(seat.permutation, cell),
            row: self.first_row(cell) + seat.row_of_cell,
        }
    }

    /// The strips of a stripe in the order of their positions.
    pub(super) fn by_position(&self, seat: DeclusteredSeat) -> impl Iterator<Item = StripIdx> {
        let positions = 0..self.counts.width;
        positions.map(move |position| {
            let position = u8::try_from(position).expect("below the width");
            StripIdx(self.rotation.strip(self.code, seat.turn, position))
        })
    }

    /// The cell at a position of a group.
    #[inline]
    pub fn cell_of(&self, group: GroupAt, position: u32) -> CellAt {
        let nth = group.group * self.counts.width + position;
        let (cell_row, column) = divide(nth, self.counts.data_columns);
        CellAt { slice: group.slice, sub_slice: group.sub_slice, cell_row, column }
    }

    /// The group that a cell belongs to, and its position there; `None` if the cell is spare.
    #[inline]
    pub fn group_of(&self, cell: CellAt) -> Option<(GroupAt, u32)> {
        if cell.column >= self.counts.data_columns {
            return None;
        }
        let nth = cell.cell_row * self.counts.data_columns + cell.column;
        let (group, position) = divide(nth, self.counts.width);
        Some((GroupAt { slice: cell.slice, sub_slice: cell.sub_slice, group }, position))
    }

    /// The members in the columns of the first sub-slice of a slice.
    pub fn columns_of(&self, slice: u64) -> impl Iterator<Item = MemberIdx> {
        let columns = 0..self.counts.columns;
        let cell = move |column| CellAt { slice, sub_slice: 0, cell_row: 0, column };
        columns.map(move |column| self.member(cell(column)))
    }

    /// The member that a cell lies on.
    #[inline]
    pub fn member(&self, cell: CellAt) -> MemberIdx {
        self.member_by(self.permutations.of_slice(cell.slice), cell)
    }

    /// The same if the permutation of the slice is at hand.
    #[inline]
    fn member_by(&self, permutation: SlicePermutation, cell: CellAt) -> MemberIdx {
        let domain = self.permutations.domain(permutation, cell.column);
        self.member_of_domain(domain, cell)
    }

    /// The first row of a cell on its member.
    #[inline]
    pub fn first_row(&self, cell: CellAt) -> u64 {
        cell.slice * self.counts.slice_rows + u64::from(cell.cell_row) * self.parts.cell_rows
    }

    /// The cell that a row of a member is in, and the row of the cell; `None` behind the last whole
    /// slice.
    ///
    /// # Panics
    /// If the array has no such member.
    #[inline]
    pub fn cell_at(&self, at: MemberRow) -> Option<(CellAt, u64)> {
        let slice = at.row / self.counts.slice_rows;
        if slice >= self.counts.slices {
            return None;
        }
        let in_slice = at.row - slice * self.counts.slice_rows;
        let cell_row = in_slice / self.parts.cell_rows;
        let row_of_cell = in_slice - cell_row * self.parts.cell_rows;
        let cell_row = u32::try_from(cell_row).expect("at most 64 rows of cells");
        Some((self.cell(at.member, slice, cell_row), row_of_cell))
    }

    /// The cell of a member in a row of cells of a slice.
    ///
    /// # Panics
    /// If the array has no such member.
    #[inline]
    pub fn cell(&self, member: MemberIdx, slice: u64, cell_row: u32) -> CellAt {
        assert!(member.at() < self.parts.members, "no member {member}");
        let (domain, sub_slice) = self.domain_and_sub_slice(member, slice);
        let column = self.permutations.column(self.permutations.of_slice(slice), domain);
        CellAt { slice, sub_slice, cell_row, column }
    }

    /// What a row of a member is for.
    ///
    /// # Panics
    /// If the array has no such member.
    #[inline]
    pub fn held(&self, at: MemberRow) -> Held {
        let Some((cell, row_of_cell)) = self.cell_at(at) else { return Held::Unused };
        let Some((group, position)) = self.group_of(cell) else {
            let spare = cell.column - self.counts.data_columns;
            return Held::Spare(usize::try_from(spare).expect("at most 256"));
        };
        let turn = self.rotation.turn(self.code, row_of_cell);
        let position = u8::try_from(position).expect("below the width");
        let strip = self.rotation.strip(self.code, turn, position);
        Held::Strip(self.stripe_in(group, row_of_cell), StripIdx(strip))
    }

    /// The stripe in a row of a group.
    #[inline]
    pub fn stripe_in(&self, group: GroupAt, row_of_cell: u64) -> StripeNo {
        let counts = &self.counts;
        let of_slice = u64::from(group.group * counts.sub_slices + group.sub_slice);
        let in_slice = row_of_cell * u64::from(counts.slice_groups) + of_slice;
        StripeNo(group.slice * counts.slice_stripes + in_slice)
    }

    /// Which strip of a stripe a member holds as long as no member is lost.
    ///
    /// # Panics
    /// If the array has no such member.
    #[inline]
    pub fn strip_on(&self, seat: DeclusteredSeat, member: MemberIdx) -> Option<StripIdx> {
        let cell = self.cell(member, seat.group.slice, 0);
        let counts = &self.counts;
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

/// Quotient and remainder with one division.
#[inline]
fn divide(number: u32, by: u32) -> (u32, u32) {
    let quotient = number / by;
    (quotient, number - quotient * by)
}
