//! The generator matrix: its known bytes, and the claim that any loss within budget can be solved.
//!
//! Small sizes are enumerated completely, large ones sampled from a fixed seed that is printed.

use ashlar_gf::{PARITY_MAX, PARITY_ROWS, Square, mul};
use ashlar_units::STRIPS_MAX;

/// The submatrix of the parity rows and data columns picked.
fn submatrix(rows: &[usize], columns: &[usize]) -> Square {
    let mut square = Square::identity(rows.len());
    for (r, &row) in rows.iter().enumerate() {
        for (c, &column) in columns.iter().enumerate() {
            square.set(r, c, PARITY_ROWS[row][column]);
        }
    }
    square
}

fn multiply(a: &Square, b: &Square) -> Square {
    let mut product = Square::identity(a.size());
    for row in 0..a.size() {
        for column in 0..a.size() {
            let sum = (0..a.size()).fold(0, |sum, n| sum ^ mul(a.get(row, n), b.get(n, column)));
            product.set(row, column, sum);
        }
    }
    product
}

/// Calls `visit` with every way to pick `count` of `0..limit`, rising.
fn combinations(limit: usize, count: usize, visit: &mut impl FnMut(&[usize])) {
    let mut picked: Vec<usize> = (0..count).collect();
    loop {
        visit(&picked);
        let Some(n) = (0..count).rev().find(|&n| picked[n] < limit - count + n) else { return };
        picked[n] += 1;
        for later in n + 1..count {
            picked[later] = picked[later - 1] + 1;
        }
    }
}

struct Seeded(u64);

impl Seeded {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn distinct(&mut self, limit: usize, count: usize) -> Vec<usize> {
        let mut left: Vec<usize> = (0..limit).collect();
        (0..count).map(|_| left.swap_remove(self.below(left.len()))).collect()
    }
}

#[test]
fn p_is_the_xor_and_q_is_the_one_linux_writes() {
    assert_eq!(PARITY_ROWS[0], [1; STRIPS_MAX]);
    let q = [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1d, 0x3a, 0x74, 0xe8];
    assert_eq!(PARITY_ROWS[1][..12], q);
}

#[test]
fn r_begins_with_the_known_bytes() {
    assert_eq!(PARITY_ROWS[2][..8], [0x01, 0xf5, 0xd2, 0xc4, 0x9a, 0x71, 0xf1, 0x7f]);
}

#[test]
fn column_zero_is_one_in_every_row_so_one_data_strip_is_a_mirror() {
    for row in &PARITY_ROWS {
        assert_eq!(row[0], 1);
    }
}

#[test]
fn every_square_submatrix_of_six_parities_and_twelve_data_can_be_inverted() {
    let mut count = 0u64;
    for size in 1..=6 {
        combinations(6, size, &mut |rows| {
            combinations(12, size, &mut |columns| {
                assert!(submatrix(rows, columns).invert().is_some(), "{rows:?} {columns:?}");
                count += 1;
            });
        });
    }
    // Vandermonde's identity: sum over s of C(6,s) * C(12,s) is C(18,6); size 0 is not tried.
    assert_eq!(count, 18_564 - 1);
}

#[test]
fn every_pair_and_every_triple_of_columns_can_be_solved_from_p_q_r() {
    for size in 1..=3 {
        combinations(3, size, &mut |rows| {
            combinations(STRIPS_MAX - 1, size, &mut |columns| {
                assert!(submatrix(rows, columns).invert().is_some(), "{rows:?} {columns:?}");
            });
        });
    }
}

#[test]
fn sampled_submatrices_up_to_32_rows_can_be_inverted() {
    let seed = 0x5eed_0001;
    println!("seed {seed:#x}");
    let mut random = Seeded(seed);
    for _ in 0..3_000 {
        let size = 1 + random.below(PARITY_MAX);
        let rows = random.distinct(PARITY_MAX, size);
        let columns = random.distinct(STRIPS_MAX, size);
        let square = submatrix(&rows, &columns);
        let inverse = square.invert().expect("submatrix of the generator is singular");
        assert_eq!(multiply(&square, &inverse), Square::identity(size));
    }
}

#[test]
fn dependent_rows_have_no_inverse() {
    let mut square = submatrix(&[0, 1, 2], &[0, 1, 2]);
    for column in 0..3 {
        square.set(2, column, mul(7, square.get(0, column)) ^ mul(9, square.get(1, column)));
    }
    assert_eq!(square.invert(), None);
}
