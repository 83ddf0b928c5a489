//! A growth of a declustered array, from docs/on-disk-format.md: which cells it moves, and which
//! become free. The letters are those of the page.

use crate::declustered::Parameters;
use crate::slices::{Columns, Slices, common_divisor};

/// One growth.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Growth {
    /// n.
    before: u64,
    /// a.
    added: u64,
    /// U.
    unit: u64,
    /// K.
    blocks: u64,
    moved: u64,
    /// Of the n domains before it.
    columns: Columns,
}

impl Growth {
    /// The growth from `members.0` to `members.1` members of an array whose slices took `aligned`
    /// cells together before, with `cells` in all; `moved` of them have moved.
    pub(crate) fn new(
        of: &Parameters,
        members: (u64, u64),
        (aligned, cells): (u64, u64),
        moved: u64,
    ) -> Option<Growth> {
        let after = Slices::new(of, members.1, 0)?;
        let unit = aligned / common_divisor(aligned, after.cells_high) * after.cells_high;
        let columns = Columns::new(members.0 / of.domain_members, of.seed)?;
        let added = after.columns.count.checked_sub(columns.count).filter(|added| *added > 0)?;
        let blocks = cells / (unit * after.columns.count);
        let growth = Growth { before: columns.count, added, unit, blocks, moved, columns };
        (blocks > 0 && moved <= growth.end()).then_some(growth)
    }

    /// n'.
    fn after(&self) -> u64 {
        self.before + self.added
    }

    /// Cells of a unit.
    pub(crate) fn unit(&self) -> u64 {
        self.unit
    }

    /// Cells of a block.
    pub(crate) fn block(&self) -> u64 {
        self.unit * self.after()
    }

    fn end(&self) -> u64 {
        self.blocks * self.block()
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.moved == self.end()
    }

    /// Cells of each member that become free.
    pub(crate) fn free_cells(&self) -> u64 {
        self.blocks * self.added * self.unit
    }

    /// rho(x) in a block.
    fn rho(&self, block: u64, domain: u64) -> u64 {
        self.columns.column(7 * block + 3, domain)
    }

    /// j, if an old domain with this rho gives the unit away.
    fn step(&self, rho: u64, unit: u64) -> Option<u64> {
        let distance = (rho + self.after() - unit) % self.after();
        let d = self.after() / self.added;
        (0..self.added).find(|j| j * d == distance)
    }

    /// The domain that has a cell of a domain of before.
    pub(crate) fn holder(&self, domain: u64, cell: u64) -> u64 {
        if cell >= self.moved {
            return domain;
        }
        let (block, unit) = (cell / self.block(), cell / self.unit % self.after());
        match self.step(self.rho(block, domain), unit) {
            Some(j) => self.before + (j + block) % self.added,
            None => domain,
        }
    }

    /// Where the free cell of this number of a domain lies.
    pub(crate) fn free_cell(&self, domain: u64, number: u64) -> u64 {
        let (block, i) = (number / (self.added * self.unit), number / self.unit % self.added);
        let d = self.after() / self.added;
        let unit = if domain < self.before {
            let rho = self.rho(block, domain);
            (0..self.after()).find(|unit| self.step(rho, *unit) == Some(i))
        } else {
            let is_its = |j: &u64| self.before + (j + block) % self.added == domain;
            let j = (0..self.added).find(is_its).unwrap_or(0);
            (0..self.after()).find(|unit| (unit + j * d) % self.after() == self.before + i)
        };
        block * self.block() + unit.unwrap_or(0) * self.unit + number % self.unit
    }
}
