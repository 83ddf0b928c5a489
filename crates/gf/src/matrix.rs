//! The generator matrix of every array, and the inversion of the small systems that losses leave.
//!
//! What must stay true: row 0 is all ones (P), row 1 is 2^i (Q as Linux writes it), and row j >= 2
//! is the Cauchy row 1 / (2^-i + 2^(j-1)) divided by its value at i = 0. Rows 1 and above are thus
//! one extended Cauchy matrix with scaled rows, row 0 its row at infinity, and *every square
//! submatrix of any size can be inverted*: k data strips survive the loss of any m of the k + m
//! strips. The rows for m parities are the first m rows for m + 1, so parity strips can be added to
//! an array later. Changing one byte of this table makes existing arrays unreadable.

use crate::field::{div, inv, mul, pow};
use ashlar_units::STRIPS_MAX;

/// Most parity strips in a stripe.
pub const PARITY_MAX: usize = 32;

/// `PARITY_ROWS[j][i]` is the coefficient of data strip i in parity strip j.
pub static PARITY_ROWS: [[u8; STRIPS_MAX]; PARITY_MAX] = parity_rows();

const fn parity_rows() -> [[u8; STRIPS_MAX]; PARITY_MAX] {
    let mut rows = [[0; STRIPS_MAX]; PARITY_MAX];
    let mut row = 0;
    while row < PARITY_MAX {
        let mut column = 0;
        while column < STRIPS_MAX {
            rows[row][column] = coefficient(row, column);
            column += 1;
        }
        row += 1;
    }
    rows
}

const fn coefficient(row: usize, column: usize) -> u8 {
    match row {
        0 => 1,
        1 => pow(2, column),
        _ => {
            let y = pow(2, row - 1);
            // Never zero: 2^-i = 2^(j-1) would need i + j - 1 = 255, and both are far below that.
            let cauchy = inv(inv(pow(2, column)) ^ y);
            div(cauchy, inv(1 ^ y))
        }
    }
}

/// A square matrix over GF(2^8) of at most [`PARITY_MAX`] rows, held inline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Square {
    size: usize,
    cells: [[u8; PARITY_MAX]; PARITY_MAX],
}

impl Square {
    /// The identity of `size` rows and columns.
    ///
    /// # Panics
    /// When `size` exceeds [`PARITY_MAX`].
    #[must_use]
    pub const fn identity(size: usize) -> Square {
        assert!(size <= PARITY_MAX, "matrix larger than the parity limit");
        let mut cells = [[0; PARITY_MAX]; PARITY_MAX];
        let mut n = 0;
        while n < size {
            cells[n][n] = 1;
            n += 1;
        }
        Square { size, cells }
    }

    /// Number of rows, which is also the number of columns.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The element at `row`, `column`.
    ///
    /// # Panics
    /// When either index is outside the matrix.
    #[must_use]
    pub const fn get(&self, row: usize, column: usize) -> u8 {
        assert!(row < self.size && column < self.size, "index outside the matrix");
        self.cells[row][column]
    }

    /// Replaces the element at `row`, `column`.
    ///
    /// # Panics
    /// When either index is outside the matrix.
    pub const fn set(&mut self, row: usize, column: usize, value: u8) {
        assert!(row < self.size && column < self.size, "index outside the matrix");
        self.cells[row][column] = value;
    }

    /// The inverse, or `None` when the rows are linearly dependent.
    ///
    /// Gauss-Jordan elimination: whatever turns `self` into the identity turns the identity into
    /// the inverse. There is no rounding in a finite field, so any non-zero pivot is as good as
    /// another.
    #[must_use]
    pub fn invert(&self) -> Option<Square> {
        let mut left = self.clone();
        let mut right = Square::identity(self.size);
        for pivot in 0..self.size {
            let row = (pivot..self.size).find(|&row| left.cells[row][pivot] != 0)?;
            left.cells.swap(row, pivot);
            right.cells.swap(row, pivot);
            let factor = inv(left.cells[pivot][pivot]);
            left.scale_row(pivot, factor);
            right.scale_row(pivot, factor);
            for row in (0..self.size).filter(|&row| row != pivot) {
                let factor = left.cells[row][pivot];
                left.add_row(row, pivot, factor);
                right.add_row(row, pivot, factor);
            }
        }
        Some(right)
    }

    fn scale_row(&mut self, row: usize, factor: u8) {
        for cell in &mut self.cells[row][..self.size] {
            *cell = mul(*cell, factor);
        }
    }

    /// Adds `factor` times row `source` to row `target`.
    fn add_row(&mut self, target: usize, source: usize, factor: u8) {
        for column in 0..self.size {
            let product = mul(self.cells[source][column], factor);
            self.cells[target][column] ^= product;
        }
    }
}
