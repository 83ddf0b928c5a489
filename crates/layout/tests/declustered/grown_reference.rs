//! The growth of docs/on-disk-format.md, *Growth of layout 2*, as a table of all cells in which
//! cells are moved one by one. It searches for free units instead of computing them.

use ashlar_layout::declustered::{DeclusteredParts, GROWTHS_MAX};
use ashlar_units::{to_u64, to_usize};

use crate::reference::{Holds, Reference};

/// What each row of each member holds.
pub type Table = Vec<Vec<Option<Holds>>>;

/// One growth, in domains.
struct Step {
    before: usize,
    after: usize,
    unit: usize,
    blocks: usize,
    moved: usize,
    columns: Reference,
}

fn without_growths(parts: DeclusteredParts, members: usize) -> DeclusteredParts {
    DeclusteredParts { members, growths: [None; GROWTHS_MAX], ..parts }
}

fn common_multiple(a: usize, b: usize) -> usize {
    (1..).map(|times| times * a).find(|product| product.is_multiple_of(b)).unwrap()
}

impl Step {
    /// j, if the domain gives the unit of the block to new domain before + (j + block) mod added.
    fn given(&self, block: usize, unit: usize, domain: usize) -> Option<usize> {
        let permutation = self.columns.permutation(to_u64(7 * block + 3));
        let rho = permutation.iter().position(|it| *it == domain).unwrap();
        let stride = self.after / self.added();
        let distance = (rho + self.after - unit) % self.after;
        (0..self.added()).find(|j| distance == j * stride)
    }

    fn added(&self) -> usize {
        self.after - self.before
    }

    /// The unit of a domain in a block that opens as the `index`-th.
    fn free_unit(&self, block: usize, domain: usize, index: usize) -> usize {
        let stride = self.after / self.added();
        let is_it = |unit: &usize| {
            if domain < self.before {
                return self.given(block, *unit, domain) == Some(index);
            }
            let is_own = |j: &usize| self.before + (j + block) % self.added() == domain;
            let j = (0..self.added()).find(is_own).unwrap();
            (unit + j * stride) % self.after == self.before + index
        };
        let mut units = (0..self.after).filter(is_it);
        let unit = units.next().unwrap();
        assert_eq!(units.next(), None, "two units would open for one");
        unit
    }
}

/// The whole table of an array.
pub fn table(parts: DeclusteredParts) -> Table {
    let rows = to_usize(parts.rows);
    let growths: Vec<_> = parts.growths.iter().flatten().collect();
    let home = growths.first().map_or(parts.members, |growth| growth.members_before);
    let reference = Reference::new(without_growths(parts, home));
    let mut table = vec![vec![None; rows]; parts.members];
    let slices = parts.rows / reference.slice_rows();
    for slice in 0..slices {
        for (member, held) in reference.slice(slice).into_iter().enumerate() {
            let first = to_usize(slice * reference.slice_rows());
            table[member][first..first + held.len()].copy_from_slice(&held);
        }
    }
    let cells = to_usize(slices) * reference.cell_rows();
    let mut stripes = slices * reference.slice_stripes();
    let mut aligned = reference.cell_rows();
    for (nth, growth) in growths.iter().enumerate() {
        let after = growths.get(nth + 1).map_or(parts.members, |next| next.members_before);
        let opened = Reference::new(without_growths(parts, after));
        let domain = parts.domain_members;
        let unit = common_multiple(aligned, opened.cell_rows());
        let step = Step {
            before: growth.members_before / domain,
            after: after / domain,
            unit,
            blocks: cells / (unit * (after / domain)),
            moved: to_usize(growth.moved_cells),
            columns: Reference::new(without_growths(parts, growth.members_before)),
        };
        give_away(&mut table, &step, parts);
        if step.moved == step.blocks * step.after * step.unit {
            stripes = open(&mut table, &step, (parts, &opened), stripes);
        }
        aligned = step.unit * step.after;
    }
    table
}

/// Rows of a cell of a member.
fn rows_of(parts: DeclusteredParts, cell: usize) -> std::ops::Range<usize> {
    let rows = to_usize(parts.cell_rows);
    cell * rows..(cell + 1) * rows
}

/// Moves cells below the frontier.
fn give_away(table: &mut Table, step: &Step, parts: DeclusteredParts) {
    let size = parts.domain_members;
    for cell in 0..step.moved {
        let (block, unit) = (cell / step.unit / step.after, cell / step.unit % step.after);
        for domain in 0..step.before {
            let Some(j) = step.given(block, unit, domain) else { continue };
            let to = step.before + (j + block) % step.added();
            for (from, to) in (0..size).map(|it| (domain * size + it, to * size + it)) {
                for row in rows_of(parts, cell) {
                    let moved = table[from][row].take();
                    assert_eq!(std::mem::replace(&mut table[to][row], moved), None, "two in one");
                }
            }
        }
    }
}

/// Lays new slices into what became free. Says how many stripes there are then.
fn open(
    table: &mut Table,
    step: &Step,
    (parts, opened): (DeclusteredParts, &Reference),
    first_stripe: u64,
) -> u64 {
    let cells = step.blocks * step.added() * step.unit;
    let slices = to_u64(cells / opened.cell_rows());
    for slice in 0..slices {
        for (member, held) in opened.slice(slice).into_iter().enumerate() {
            for (at, cell_rows) in held.chunks(to_usize(parts.cell_rows)).enumerate() {
                let number = to_usize(slice) * opened.cell_rows() + at;
                let (nth, in_unit) = (number / step.unit, number % step.unit);
                let (block, index) = (nth / step.added(), nth % step.added());
                let unit = step.free_unit(block, member / parts.domain_members, index);
                let cell = (block * step.after + unit) * step.unit + in_unit;
                for (row, holds) in rows_of(parts, cell).zip(cell_rows) {
                    let holds = holds.map(|holds| match holds {
                        Holds::Strip { stripe, strip } => {
                            Holds::Strip { stripe: stripe + first_stripe, strip }
                        }
                        Holds::Spare(column) => Holds::Spare(column),
                    });
                    assert_eq!(table[member][row], None, "the place is not free");
                    table[member][row] = holds;
                }
            }
        }
    }
    first_stripe + slices * opened.slice_stripes()
}
