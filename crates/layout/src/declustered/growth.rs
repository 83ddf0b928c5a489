//! Which cells a growth moves, and which cells become free for new slices. ON-DISK FORMAT.
//!
//! A growth from n to n' = n + a domains works on blocks of n' units of every domain; unit u of a
//! block is its u-th from the start. Let d = n' div a. In block b, an old domain x gives unit u to
//! new domain n + ((j + b) mod a), with the same cell numbers, exactly if (rho(x) - u) mod n' =
//! j d for a j below a. Here rho(x) is the column of x in slice 7 b + 3 of n columns. What becomes
//! free in a block is a units of every domain, old or new: they open as rows of new slices.
//!
//! What must stay true: of a unit at most a domains move, all to different ones, so a stripe whose
//! cells lie in one unit never gets two cells of one domain. [`Growth::goes_to`] and
//! [`Growth::came_from`] are each other's inverse, and so are [`Growth::opened`] and
//! [`Growth::opened_number`].
//!
//! Source: Ashlar's own. That moving a of n' parts is the least: each new domain ends with as much
//! as the others.

use super::growth_parts::GrowthCounts;
use super::permutation::{Permutations, SlicePermutation};

/// One growth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Growth {
    pub(super) counts: GrowthCounts,
    permutations: Permutations,
}

/// A cell number, cut at blocks and units.
#[derive(Clone, Copy)]
struct InBlock {
    block: u64,
    /// Below the domains after the growth.
    unit: u32,
    in_unit: u64,
    permutation: SlicePermutation,
}

impl Growth {
    pub(super) fn new(counts: GrowthCounts) -> Growth {
        Growth { counts, permutations: Permutations::new(counts.before) }
    }

    /// The new domain that has this cell of an old domain when the growth has moved it.
    pub(super) fn goes_to(&self, domain: u32, cell: u64) -> Option<u32> {
        let at = self.in_block(cell)?;
        let step = self.step(self.distance(at, domain))?;
        Some(self.counts.before + self.turned(step, at.block))
    }

    /// The old domain whose cell a new domain has when the growth has moved it; `None` if it
    /// becomes part of a new slice, or lies behind the last block.
    pub(super) fn came_from(&self, domain: u32, cell: u64) -> Option<u32> {
        let at = self.in_block(cell)?;
        let value = self.value(at, self.step_to(domain, at.block));
        let is_old = value < self.counts.before;
        is_old.then(|| self.permutations.domain(at.permutation, value))
    }

    /// The cell of a domain, old or new, that is the `number`-th to open.
    pub(super) fn opened(&self, domain: u32, number: u64) -> u64 {
        let GrowthCounts { before, added, unit_cells, .. } = self.counts;
        let nth = number / unit_cells;
        let (block, index) = (nth / u64::from(added), small(nth % u64::from(added)));
        let after = self.counts.after();
        let value = if domain < before {
            let rho = self.permutations.column(self.permutation(block), domain);
            rho + after - index * self.stride()
        } else {
            before + index + after - self.step_to(domain, block) * self.stride()
        };
        let unit = block * u64::from(after) + u64::from(value % after);
        unit * unit_cells + number % unit_cells
    }

    /// Which of the cells that open in its domain a cell is; `None` if it does not open.
    pub(super) fn opened_number(&self, domain: u32, cell: u64) -> Option<u64> {
        let at = self.in_block(cell)?;
        let index = if domain < self.counts.before {
            self.step(self.distance(at, domain))?
        } else {
            let value = self.value(at, self.step_to(domain, at.block));
            value.checked_sub(self.counts.before)?
        };
        let nth = at.block * u64::from(self.counts.added) + u64::from(index);
        Some(nth * self.counts.unit_cells + at.in_unit)
    }

    /// The domains that a cell moves between: all old domains that give it away, with the new ones.
    pub(super) fn moves_of(&self, cell: u64) -> impl Iterator<Item = (u32, u32)> + use<'_> {
        let new = self.counts.before..self.counts.after();
        new.filter_map(move |domain| Some((self.came_from(domain, cell)?, domain)))
    }

    fn in_block(&self, cell: u64) -> Option<InBlock> {
        if cell >= self.counts.end_cells() {
            return None;
        }
        let (nth, in_unit) = (cell / self.counts.unit_cells, cell % self.counts.unit_cells);
        let after = u64::from(self.counts.after());
        let block = nth / after;
        let permutation = self.permutation(block);
        Some(InBlock { block, unit: small(nth % after), in_unit, permutation })
    }

    fn permutation(&self, block: u64) -> SlicePermutation {
        self.permutations.of_slice(7 * block + 3)
    }

    /// d.
    fn stride(&self) -> u32 {
        self.counts.after() / self.counts.added
    }

    /// (rho(x) - u) mod n'.
    fn distance(&self, at: InBlock, domain: u32) -> u32 {
        let rho = self.permutations.column(at.permutation, domain);
        (rho + self.counts.after() - at.unit) % self.counts.after()
    }

    /// j, if the distance is j d.
    fn step(&self, distance: u32) -> Option<u32> {
        let step = distance / self.stride();
        (distance.is_multiple_of(self.stride()) && step < self.counts.added).then_some(step)
    }

    /// u + j d mod n'.
    fn value(&self, at: InBlock, step: u32) -> u32 {
        (at.unit + step * self.stride()) % self.counts.after()
    }

    /// j + b mod a.
    fn turned(&self, step: u32, block: u64) -> u32 {
        (step + small(block % u64::from(self.counts.added))) % self.counts.added
    }

    /// The j that leads to a new domain.
    fn step_to(&self, domain: u32, block: u64) -> u32 {
        let turn = small(block % u64::from(self.counts.added));
        (domain - self.counts.before + self.counts.added - turn) % self.counts.added
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).expect("below the number of domains")
}
