//! The map of docs/on-disk-format.md, *Layout 2*, as loops over lists. It counts stripes up from
//! the start of a slice, searches instead of inverting, and runs the generator step by step.

use ashlar_layout::declustered::DeclusteredParts;
use ashlar_units::{to_u64, to_usize};

/// SplitMix64 as it is usually written, with its state.
pub struct Generator(pub u64);

impl Generator {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `below`.
    pub fn below(&mut self, below: usize) -> usize {
        let high = (u128::from(self.next()) * u128::from(to_u64(below))) >> 64;
        usize::try_from(high).unwrap()
    }
}

/// What a row of a member holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    Strip { stripe: u64, strip: usize },
    Spare(usize),
}

/// The layout, with its shuffles and the generator behind them.
pub struct Reference {
    parts: DeclusteredParts,
    prime: usize,
    shuffles: Vec<Vec<usize>>,
    after_shuffles: u64,
}

impl Reference {
    pub fn new(parts: DeclusteredParts) -> Reference {
        let columns = parts.members / parts.domain_members;
        let mut prime = columns;
        while prime < 2 || (2..prime).any(|divisor| prime.is_multiple_of(divisor)) {
            prime += 1;
        }
        let mut generator = Generator(parts.seed);
        let mut shuffles = Vec::new();
        for _ in 0..64 {
            let mut shuffle: Vec<usize> = (0..prime).collect();
            for j in (1..prime).rev() {
                let other = generator.below(j + 1);
                shuffle.swap(j, other);
            }
            shuffles.push(shuffle);
        }
        Reference { parts, prime, shuffles, after_shuffles: generator.0 }
    }

    fn columns(&self) -> usize {
        self.parts.members / self.parts.domain_members
    }

    pub fn data_columns(&self) -> usize {
        self.columns() - self.parts.spare_columns
    }

    pub fn width(&self) -> usize {
        self.parts.data_strips + self.parts.parity_strips
    }

    /// Rows of cells that a slice needs so that its cells are whole groups.
    pub fn cell_rows(&self) -> usize {
        (1..).find(|rows| (rows * self.data_columns()).is_multiple_of(self.width())).unwrap()
    }

    pub fn groups(&self) -> usize {
        self.cell_rows() * self.data_columns() / self.width()
    }

    pub fn slice_stripes(&self) -> u64 {
        to_u64(self.groups() * self.parts.domain_members) * self.parts.cell_rows
    }

    pub fn slice_rows(&self) -> u64 {
        to_u64(self.cell_rows()) * self.parts.cell_rows
    }

    /// The domain in each column of a slice.
    pub fn permutation(&self, slice: u64) -> Vec<usize> {
        let q = to_u64(self.prime);
        let (u, v) = (slice % (q - 1), slice / (q - 1));
        let (a, b, t) = (u + 1, (u + v) % q, (v / q) % 64);
        let shuffle = &self.shuffles[to_usize(t)];
        let step = |x: usize| to_usize((a * to_u64(shuffle[x]) + b) % q);
        let walk = |column: usize| {
            let mut x = step(column);
            while x >= self.columns() {
                x = step(x);
            }
            x
        };
        (0..self.columns()).map(walk).collect()
    }

    /// The turn of each domain in a slice, by running the generator up to there.
    fn turns(&self, slice: u64) -> Vec<usize> {
        if self.parts.domain_members == 1 {
            return vec![0; self.columns()];
        }
        let mut generator = Generator(self.after_shuffles);
        for _ in 0..slice * to_u64(self.columns()) {
            generator.next();
        }
        (0..self.columns()).map(|_| generator.below(self.parts.domain_members)).collect()
    }

    /// The strips of a row in the order of positions: the row before it, turned left by one.
    fn row(&self, row_of_cell: u64) -> Vec<usize> {
        let (k, m) = (self.parts.data_strips, self.parts.parity_strips);
        if k == 1 {
            return (0..k + m).collect();
        }
        // Row 0: P at the last position, and Q, further parities and data behind it, wrapped.
        let mut strips: Vec<usize> = (k..k + m).chain(0..k).collect();
        strips.rotate_left(1);
        for _ in 0..row_of_cell % to_u64(k + m) {
            strips.rotate_left(1);
        }
        strips
    }

    /// All rows of all members in a slice: by member, then by row of the slice.
    pub fn slice(&self, slice: u64) -> Vec<Vec<Option<Holds>>> {
        let empty = vec![None; to_usize(self.slice_rows())];
        let mut rows = vec![empty; self.parts.members];
        let (permutation, turns) = (self.permutation(slice), self.turns(slice));
        let units = self.parts.domain_members;
        let member = |column: usize, sub_slice: usize| {
            let domain = permutation[column];
            domain * units + (sub_slice + turns[domain]) % units
        };
        let mut stripe = slice * self.slice_stripes();
        for h in 0..self.parts.cell_rows {
            for group in 0..self.groups() {
                for sub_slice in 0..units {
                    for (position, strip) in self.row(h).into_iter().enumerate() {
                        let cell = group * self.width() + position;
                        let at = member(cell % self.data_columns(), sub_slice);
                        let cell_row = to_u64(cell / self.data_columns());
                        let row = to_usize(cell_row * self.parts.cell_rows + h);
                        let before = rows[at][row].replace(Holds::Strip { stripe, strip });
                        assert_eq!(before, None, "two strips in one place");
                    }
                    stripe += 1;
                }
            }
        }
        for spare in 0..self.parts.spare_columns {
            for sub_slice in 0..units {
                for row in &mut rows[member(self.data_columns() + spare, sub_slice)] {
                    assert_eq!(row.replace(Holds::Spare(spare)), None, "two strips in one place");
                }
            }
        }
        assert!(rows.iter().flatten().all(Option::is_some), "a place without a use");
        rows
    }
}
