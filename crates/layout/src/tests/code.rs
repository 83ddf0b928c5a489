//! A code for the model of a stripe: Cauchy over the integers modulo 2^31 - 1.
//!
//! Any k strips determine the rest, as in the code of the engine, and the coincidences of a small
//! field, which make a bad plan look good now and then, do not happen.

use ashlar_units::{StripIdx, StripSet, to_u64};

use crate::Geometry;

/// Rows of the model's strips.
pub const ROWS: usize = 4;
/// Strips a model stripe can have.
pub const STRIPS: usize = 12;
/// Numbers are below this.
pub const PRIME: u64 = (1 << 31) - 1;

/// One number per strip and row.
pub type Cells = [[u64; ROWS]; STRIPS];

/// The code: the row of coefficients by which each strip follows from the data strips.
pub struct Code {
    pub data_strips: usize,
    pub strips: usize,
    rows: [[u64; STRIPS]; STRIPS],
}

impl Code {
    pub fn of(geometry: &Geometry) -> Code {
        let (data_strips, strips) = (geometry.data_strips(), geometry.stripe_width());
        let mut rows = [[0; STRIPS]; STRIPS];
        for (strip, row) in rows.iter_mut().enumerate().take(strips) {
            for (data, coefficient) in row.iter_mut().enumerate().take(data_strips) {
                *coefficient = if strip < data_strips {
                    u64::from(strip == data)
                } else if data_strips == 1 {
                    1 // Copies of a mirror are equal.
                } else {
                    inverse(1_000_003 * to_u64(strip) + 7919 * to_u64(data))
                };
            }
        }
        Code { data_strips, strips, rows }
    }

    /// The number parity strip `strip` has in a row with this data.
    pub fn parity(&self, strip: usize, data: impl Fn(usize) -> u64) -> u64 {
        (0..self.data_strips).fold(0, |sum, at| (sum + self.rows[strip][at] * data(at)) % PRIME)
    }

    /// The number a strip, data or parity, has in a row with this data.
    pub fn of_data(&self, strip: StripIdx, row: usize, data: &Cells) -> u64 {
        self.parity(strip.at(), |at| data[at][row])
    }

    /// By what data strip `data` counts in `strip`.
    pub fn coefficient(&self, strip: StripIdx, data: StripIdx) -> u64 {
        self.rows[strip.at()][data.at()]
    }

    /// Fills the parity strips of `cells` from its data strips.
    pub fn generate(&self, cells: &mut Cells) {
        for strip in self.data_strips..self.strips {
            cells[strip] = std::array::from_fn(|row| self.parity(strip, |at| cells[at][row]));
        }
    }

    /// The data strips that these k survivors determine; rows are independent of each other.
    pub fn decode(&self, survivors: StripSet, cells: &Cells) -> Cells {
        assert_eq!(survivors.count(), self.data_strips);
        let mut system: Vec<([u64; STRIPS], [u64; ROWS])> =
            survivors.iter().map(|strip| (self.rows[strip.at()], cells[strip.at()])).collect();
        for column in 0..self.data_strips {
            let pivot = (column..system.len()).find(|at| system[*at].0[column] != 0);
            system.swap(column, pivot.expect("any k strips determine the data"));
            let (mut left, mut right) = system[column];
            let scale = inverse(left[column]);
            left.iter_mut().chain(&mut right).for_each(|number| *number = *number * scale % PRIME);
            system[column] = (left, right);
            for (at, (other_left, other_right)) in system.iter_mut().enumerate() {
                let factor = PRIME - other_left[column];
                if at == column || factor == PRIME {
                    continue;
                }
                let pairs =
                    other_left.iter_mut().zip(left).chain(other_right.iter_mut().zip(right));
                pairs.for_each(|(number, pivot)| *number = (*number + factor * pivot) % PRIME);
            }
        }
        let mut data = [[0; ROWS]; STRIPS];
        for (at, (_, values)) in system.into_iter().enumerate() {
            data[at] = values;
        }
        data
    }

    /// Whether the numbers of `known` strips determine `wanted`, a sum of data strips.
    pub fn determines(&self, known: StripSet, wanted: [u64; STRIPS]) -> bool {
        let mut basis: Vec<[u64; STRIPS]> = Vec::new();
        for strip in known.iter() {
            let rest = reduced(&basis, self.rows[strip.at()]);
            if let Some(lead) = rest.iter().position(|number| *number != 0) {
                let scale = inverse(rest[lead]);
                basis.push(rest.map(|number| number * scale % PRIME));
            }
        }
        reduced(&basis, wanted) == [0; STRIPS]
    }

    /// What the `kept` data strips contribute to a parity strip.
    pub fn contribution(&self, parity: StripIdx, kept: StripSet) -> [u64; STRIPS] {
        let row = self.rows[parity.at()];
        std::array::from_fn(|at| if kept.contains(StripIdx::from_at(at)) { row[at] } else { 0 })
    }
}

/// `vector` less its projection on the basis; each basis vector leads with a one.
fn reduced(basis: &[[u64; STRIPS]], mut vector: [u64; STRIPS]) -> [u64; STRIPS] {
    for row in basis {
        let lead = row.iter().position(|number| *number != 0).expect("basis vectors are not zero");
        let factor = PRIME - vector[lead];
        vector
            .iter_mut()
            .zip(row)
            .for_each(|(number, by)| *number = (*number + factor * by) % PRIME);
    }
    vector
}

fn power(base: u64, exponent: u64) -> u64 {
    let (mut result, mut square, mut left) = (1, base, exponent);
    while left > 0 {
        if left & 1 == 1 {
            result = result * square % PRIME;
        }
        square = square * square % PRIME;
        left >>= 1;
    }
    result
}

fn inverse(number: u64) -> u64 {
    power(number, PRIME - 2)
}
