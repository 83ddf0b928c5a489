//! Whether the redundancy of a stripe agrees with its data, and who is to blame if not.
//!
//! What must stay true: a parity that was needed to reconstruct missing data proves nothing and is
//! not counted as agreeing. Members that a start leaves out are not compared.

use crate::array::Salvage;
use crate::doubt::Trust;
use crate::field::{add_scaled, coefficient, inverse};
use crate::image::ReadAt;
use crate::place::Place;
use crate::read::{BLOCK, Row};

/// What a check of one stripe found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StripeCheck {
    /// Rows of blocks in which more was there than is needed, and was compared.
    pub rows_compared: u64,
    /// Rows that have just enough blocks, or too few: nothing to compare.
    pub rows_bare: u64,
    /// Rows whose parity was to be made anew after a crash: it need not agree.
    pub rows_in_doubt: u64,
    /// For each parity strip (or further copy), the rows in which it disagrees.
    pub rows_disagreeing: Vec<u64>,
    /// Blocks that are not what their checksums say, by strip (data strips first, then parity
    /// strips) and block of the strip. They are not compared.
    pub blocks_wrong: Vec<(usize, u64)>,
    /// The strip that alone explains every disagreement (data strips first, then parity strips), if
    /// there is exactly one such.
    pub suspect: Option<usize>,
}

impl StripeCheck {
    /// Whether nothing disagrees.
    pub fn agrees(&self) -> bool {
        self.rows_disagreeing.iter().all(|rows| *rows == 0)
    }
}

impl<I: ReadAt> Salvage<I> {
    /// Compare the redundancy of a stripe with its data. Unwritten stripes have nothing to compare.
    pub fn check_stripe(&self, stripe: u64) -> StripeCheck {
        let geometry = self.geometry();
        let mut check =
            StripeCheck { rows_disagreeing: vec![0; geometry.m()], ..StripeCheck::default() };
        if !self.is_written(stripe) {
            return check;
        }
        let mut suspects: Option<Vec<usize>> = None;
        for block in 0..geometry.strip_blocks() {
            if self.overlay.is_in_doubt(stripe, block) {
                check.rows_in_doubt += 1;
                continue;
            }
            let is_wrong = |strip: &usize| {
                let place = Place { stripe, strip: *strip, block };
                self.known_of_wrong(place, Trust::Damaged).is_some()
            };
            let wrong = (0..geometry.stripe_width()).filter(is_wrong);
            check.blocks_wrong.extend(wrong.map(|strip| (strip, block)));
            let row = Row::read(self, stripe, block, Trust::Damaged);
            let Some(syndromes) = row.syndromes() else {
                check.rows_bare += 1;
                continue;
            };
            check.rows_compared += 1;
            let wrong = |syndrome: &[u8]| syndrome.iter().any(|byte| *byte != 0);
            for (j, _) in syndromes.iter().filter(|(_, syndrome)| wrong(syndrome)) {
                check.rows_disagreeing[*j] += 1;
            }
            if syndromes.iter().any(|(_, syndrome)| wrong(syndrome)) {
                let here = explains(&row, &syndromes);
                let both = |before: Vec<usize>| {
                    before.into_iter().filter(|it| here.contains(it)).collect()
                };
                suspects = Some(suspects.map_or_else(|| here.clone(), both));
            }
        }
        if let Some([only]) = suspects.as_deref() {
            check.suspect = Some(*only);
        }
        check
    }
}

impl Row {
    /// For each parity beyond those that missing data needs: stored XOR computed. `None`: there is
    /// none.
    fn syndromes(&self) -> Option<Vec<(usize, Vec<u8>)>> {
        let missing = self.missing_data();
        let parities = self.parities();
        if parities.len() <= missing.len() {
            return None;
        }
        let (using, left) = parities.split_at(missing.len());
        let solved = self.solve(using)?;
        let syndrome = |j: &usize| {
            let mut sum = self.remainder(*j);
            for (i, block) in missing.iter().zip(&solved) {
                add_scaled(&mut sum, coefficient(*j, *i), block);
            }
            (*j, sum)
        };
        Some(left.iter().map(syndrome).collect())
    }
}

/// The strips that could be the only wrong one. With missing data or a single parity nobody can
/// tell.
fn explains(row: &Row, syndromes: &[(usize, Vec<u8>)]) -> Vec<usize> {
    if syndromes.len() < 2 || !row.missing_data().is_empty() {
        return Vec::new();
    }
    let is_zero = |syndrome: &Vec<u8>| syndrome.iter().all(|byte| *byte == 0);
    let wrong: Vec<usize> =
        syndromes.iter().filter(|(_, syndrome)| !is_zero(syndrome)).map(|(j, _)| *j).collect();
    if let [only] = wrong.as_slice() {
        return vec![row.k + only];
    }
    // An error e in data strip i makes every syndrome c(j, i) e.
    let error = |j: usize, i: usize, syndrome: &[u8]| {
        let mut error = vec![0; BLOCK];
        add_scaled(&mut error, inverse(coefficient(j, i)), syndrome);
        error
    };
    let same = |i: &usize| {
        let mut errors = syndromes.iter().map(|(j, syndrome)| error(*j, *i, syndrome));
        let first = errors.next();
        errors.all(|other| Some(other) == first)
    };
    (0..row.k).filter(same).collect()
}
