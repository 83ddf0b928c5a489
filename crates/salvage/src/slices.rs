//! Slices of one width: layout version 2 as arrays are created, from docs/on-disk-format.md.
//!
//! What must stay true: pure arithmetic on numbers that were checked, so that nothing overflows for
//! stripes of the slices. The letters are those of the page.

use crate::bytes::index;
use crate::declustered::Parameters;

/// Shuffles of the columns.
const SHUFFLES: u64 = 64;

/// Columns, and which domain is in which of them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Columns {
    /// D.
    pub(crate) count: u64,
    /// q.
    prime: u64,
    seed: u64,
    /// B.
    shuffles: Vec<Vec<u64>>,
}

/// The slices of an array as it was created, or that one of its growths opened.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Slices {
    /// W, strips of a stripe.
    width: u64,
    data_strips: u64,
    /// C, data columns.
    data_columns: u64,
    /// S.
    spare_columns: u64,
    /// E.
    domain_members: u64,
    /// H.
    cell_rows: u64,
    /// L, rows of cells of a slice.
    pub(crate) cells_high: u64,
    /// G, groups of a sub-slice.
    groups: u64,
    /// How many there are.
    pub(crate) count: u64,
    pub(crate) columns: Columns,
}

/// A cell, by its place in the slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SliceCell {
    pub(crate) slice: u64,
    pub(crate) sub_slice: u64,
    pub(crate) cell_row: u64,
    pub(crate) column: u64,
}

impl Columns {
    pub(crate) fn new(count: u64, seed: u64) -> Option<Columns> {
        let prime = (count..).find(|number| is_prime(*number))?;
        Some(Columns { count, prime, seed, shuffles: shuffles(prime, seed) })
    }

    /// The domain in a column of a slice.
    pub(crate) fn domain(&self, slice: u64, column: u64) -> u64 {
        let (u, v) = (slice % (self.prime - 1), slice / (self.prime - 1));
        let (a, b) = (u + 1, (u + v) % self.prime);
        let shuffle = &self.shuffles[index((v / self.prime) % SHUFFLES)];
        let mut x = column;
        loop {
            x = (a * shuffle[index(x)] + b) % self.prime;
            if x < self.count {
                return x;
            }
        }
    }

    /// The column that a domain is in.
    pub(crate) fn column(&self, slice: u64, domain: u64) -> u64 {
        let is_it = |column: &u64| self.domain(slice, *column) == domain;
        (0..self.count).find(is_it).unwrap_or(0)
    }

    /// turn(s, d), below E.
    fn turn(&self, slice: u64, domain: u64, end: u64) -> u64 {
        let before = SHUFFLES * (self.prime - 1);
        let nth = before.wrapping_add(slice.wrapping_mul(self.count)).wrapping_add(domain);
        below(self.seed, nth, end)
    }
}

impl Slices {
    /// Of so many members with so many rows. The counts were checked.
    pub(crate) fn new(of: &Parameters, members: u64, rows: u64) -> Option<Slices> {
        let columns = Columns::new(members / of.domain_members, of.seed)?;
        let width = of.data_strips + of.parity_strips;
        let data_columns = columns.count.checked_sub(of.spare_columns)?;
        let cells_high = width / common_divisor(width, data_columns);
        Some(Slices {
            width,
            data_strips: of.data_strips,
            data_columns,
            spare_columns: of.spare_columns,
            domain_members: of.domain_members,
            cell_rows: of.cell_rows,
            cells_high,
            groups: cells_high * data_columns / width,
            count: rows / (cells_high * of.cell_rows),
            columns,
        })
    }

    pub(crate) fn stripes(&self) -> u64 {
        self.count * self.stripes_of_slice()
    }

    pub(crate) fn stripes_of_slice(&self) -> u64 {
        self.groups * self.domain_members * self.cell_rows
    }

    /// The cell of strip `strip` of stripe `stripe`, and the row there.
    pub(crate) fn strip_cell(&self, stripe: u64, strip: u64) -> (SliceCell, u64) {
        let (slice, r) = (stripe / self.stripes_of_slice(), stripe % self.stripes_of_slice());
        let all_groups = self.groups * self.domain_members;
        let (row, of_slice) = (r / all_groups, r % all_groups);
        let (group, sub_slice) = (of_slice / self.domain_members, of_slice % self.domain_members);
        let nth = group * self.width + self.position(row, strip);
        let (cell_row, column) = (nth / self.data_columns, nth % self.data_columns);
        (SliceCell { slice, sub_slice, cell_row, column }, row)
    }

    /// The cell in spare column `column`, counted among those, that can take the place of another.
    pub(crate) fn spare_cell(&self, cell: SliceCell, column: u64) -> Option<SliceCell> {
        let column = (column < self.spare_columns).then(|| self.data_columns + column)?;
        Some(SliceCell { column, ..cell })
    }

    /// The domain of a cell, which of its members has it, and its number among their cells.
    pub(crate) fn place(&self, cell: SliceCell) -> (u64, u64, u64) {
        let domain = self.columns.domain(cell.slice, cell.column);
        let turn = self.columns.turn(cell.slice, domain, self.domain_members);
        let unit = (cell.sub_slice + turn) % self.domain_members;
        (domain, unit, cell.slice * self.cells_high + cell.cell_row)
    }

    /// Where a group of W members has a strip in a row: left-symmetric, as in layout version 1.
    fn position(&self, row: u64, strip: u64) -> u64 {
        let (k, m) = (self.data_strips, self.width - self.data_strips);
        if k == 1 {
            return strip;
        }
        let p = self.width - 1 - row % self.width;
        let after_p = if strip < k { m + strip } else { strip - k };
        (p + after_p) % self.width
    }
}

/// Output `nth` of SplitMix64 that `seed` starts.
fn output(seed: u64, nth: u64) -> u64 {
    let mut z = seed.wrapping_add(nth.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The number below `end` that output `nth` gives.
fn below(seed: u64, nth: u64, end: u64) -> u64 {
    let product = u128::from(output(seed, nth)) * u128::from(end);
    u64::try_from(product >> 64).unwrap_or(0)
}

fn shuffles(prime: u64, seed: u64) -> Vec<Vec<u64>> {
    let mut nth = 0;
    let mut all = Vec::new();
    for _ in 0..SHUFFLES {
        let mut shuffle: Vec<u64> = (0..prime).collect();
        for j in (1..prime).rev() {
            shuffle.swap(index(j), index(below(seed, nth, j + 1)));
            nth += 1;
        }
        all.push(shuffle);
    }
    all
}

fn is_prime(number: u64) -> bool {
    number > 1 && (2..number).all(|divisor| !number.is_multiple_of(divisor))
}

pub(crate) fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
