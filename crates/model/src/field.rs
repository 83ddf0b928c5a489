//! Blocks, and a code over the prime field of 2^31 - 1 in which any m lost blocks of a row can be
//! solved.
//!
//! A block is two numbers, its head and its tail, because half a block is what a torn write leaves.
//! Parity j of a row is the sum over c of `COEFFICIENTS[j][c]` * data c, head and tail apart. The
//! coefficients are a Cauchy matrix, so each of its square parts can be inverted, in the order in
//! which it stands.
//!
//! Not here: GF(2^8). The engine's field would serve, but then its faults would be the model's too.

use std::ops::Add;

const PRIME: u64 = (1 << 31) - 1;
/// Most data blocks of a row.
pub const DATA_MAX: usize = 7;
/// Most parity blocks of a row.
pub const PARITY_MAX: usize = 3;

const COEFFICIENTS: [[u64; DATA_MAX]; PARITY_MAX] = cauchy();

/// One block: head and tail, each below 2^31 - 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block(pub [u64; 2]);

impl Block {
    /// The block of zeros.
    pub const ZERO: Block = Block([0; 2]);

    /// A block from 64 arbitrary bits.
    #[must_use]
    pub fn from_bits(bits: u64) -> Block {
        Block([(bits >> 32) % PRIME, (bits & 0xffff_ffff) % PRIME])
    }

    /// `self` + `factor` * `other`.
    fn plus(self, factor: u64, other: Block) -> Block {
        let [head, tail] = other.0;
        Block([(self.0[0] + factor * head) % PRIME, (self.0[1] + factor * tail) % PRIME])
    }
}

impl Add for Block {
    type Output = Block;

    fn add(self, other: Block) -> Block {
        self.plus(1, other)
    }
}

const fn inverse(a: u64) -> u64 {
    // Fermat: a^(p-2) is 1/a.
    let (mut power, mut result, mut bits) = (a % PRIME, 1, PRIME - 2);
    while bits > 0 {
        if bits & 1 == 1 {
            result = result * power % PRIME;
        }
        power = power * power % PRIME;
        bits >>= 1;
    }
    result
}

const fn cauchy() -> [[u64; DATA_MAX]; PARITY_MAX] {
    let mut table = [[0; DATA_MAX]; PARITY_MAX];
    let (mut j, mut x) = (0, 0);
    while j < PARITY_MAX {
        let (mut c, mut y) = (0, 4);
        while c < DATA_MAX {
            table[j][c] = inverse(x + y);
            (c, y) = (c + 1, y + 1);
        }
        (j, x) = (j + 1, x + 1);
    }
    table
}

/// Parity `j` of some data columns, each given with its number.
pub fn parity(j: usize, data: impl IntoIterator<Item = (usize, Block)>) -> Block {
    data.into_iter().fold(Block::ZERO, |sum, (c, block)| sum.plus(COEFFICIENTS[j][c], block))
}

/// A whole row, data and then `parity_count` parities, from its data.
#[must_use]
pub fn whole_row(data: &[Block], parity_count: usize) -> Vec<Block> {
    let parities = (0..parity_count).map(|j| parity(j, data.iter().copied().enumerate()));
    data.iter().copied().chain(parities).collect()
}

/// The data of a row with missing blocks, or `None` if more are missing than there are parities.
///
/// Uses the first parities that are there, as many as it needs, and does not look at the others.
#[must_use]
pub fn solve(row: &[Option<Block>], data_count: usize) -> Option<Vec<Block>> {
    if row[..data_count].iter().all(Option::is_some) {
        return row[..data_count].iter().copied().collect();
    }
    let missing: Vec<usize> = (0..data_count).filter(|&c| row[c].is_none()).collect();
    let known = || (0..data_count).filter_map(|c| Some((c, row[c]?)));
    let mut equations: Vec<(Vec<u64>, Block)> = Vec::new();
    for j in (0..row.len() - data_count).filter(|&j| row[data_count + j].is_some()) {
        if equations.len() < missing.len() {
            let rest = row[data_count + j]?.plus(PRIME - 1, parity(j, known()));
            equations.push((missing.iter().map(|&c| COEFFICIENTS[j][c]).collect(), rest));
        }
    }
    if equations.len() < missing.len() {
        return None;
    }
    eliminate(&mut equations);
    let mut data: Vec<Block> = (0..data_count).map(|c| row[c].unwrap_or(Block::ZERO)).collect();
    for (&c, (_, value)) in missing.iter().zip(&equations) {
        data[c] = *value;
    }
    Some(data)
}

/// Gauss and Jordan, without pivoting: no leading part of a Cauchy matrix is singular.
fn eliminate(equations: &mut [(Vec<u64>, Block)]) {
    for at in 0..equations.len() {
        let scale = inverse(equations[at].0[at]);
        let factors: Vec<u64> = equations[at].0.iter().map(|f| f * scale % PRIME).collect();
        let value = Block::ZERO.plus(scale, equations[at].1);
        equations[at] = (factors.clone(), value);
        for (_, other) in equations.iter_mut().enumerate().filter(|&(i, _)| i != at) {
            let minus = PRIME - other.0[at];
            for (f, pivot) in other.0.iter_mut().zip(&factors) {
                *f = (*f + minus * pivot) % PRIME;
            }
            other.1 = other.1.plus(minus, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Block, DATA_MAX, PARITY_MAX, solve, whole_row};

    #[test]
    fn every_loss_of_at_most_m_blocks_is_solved_and_no_larger_one() {
        for m in 1..=PARITY_MAX {
            for k in 1..=DATA_MAX {
                let data: Vec<Block> =
                    (1..=7).take(k).map(|i| Block::from_bits(i * 0x0123_4567_89AB_CDEF)).collect();
                let row = whole_row(&data, m);
                for lost in 0_u32..1 << (k + m) {
                    let left: Vec<Option<Block>> =
                        (0..k + m).map(|c| (lost >> c & 1 == 0).then_some(row[c])).collect();
                    let lost_data = (lost & ((1 << k) - 1)).count_ones();
                    let solvable = lost_data <= (!lost >> k & ((1 << m) - 1)).count_ones();
                    assert_eq!(solve(&left, k), solvable.then(|| data.clone()), "{k}+{m} {lost:b}");
                }
            }
        }
    }
}
