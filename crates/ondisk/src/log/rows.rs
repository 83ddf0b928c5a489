//! A set of rows of a stripe.

use ashlar_layout::RowRange;

/// Rows, one bit each; grows as rows are added.
#[derive(Clone, Default)]
pub(super) struct RowSet {
    words: Vec<u64>,
}

impl RowSet {
    fn contains(&self, row: u32) -> bool {
        let (word, bit) = place(row);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Adds rows.
    pub(super) fn insert(&mut self, rows: RowRange) {
        for row in rows.start..rows.end {
            let (word, bit) = place(row);
            if word >= self.words.len() {
                self.words.resize(word + 1, 0);
            }
            self.words[word] |= bit;
        }
    }

    /// The runs of `rows` that are in neither this set nor the other.
    pub(super) fn missing_from(&self, rows: RowRange, other: &RowSet) -> Vec<RowRange> {
        runs(rows, |row| !self.contains(row) && !other.contains(row))
    }

    /// The runs of the set.
    pub(super) fn runs(&self) -> Vec<RowRange> {
        let end = u32::try_from(self.words.len() * 64).expect("a strip has at most 4096 rows");
        runs(RowRange::new(0, end), |row| self.contains(row))
    }

    /// Whether any of `rows` is in the set.
    pub(super) fn touches(&self, rows: RowRange) -> bool {
        (rows.start..rows.end).any(|row| self.contains(row))
    }
}

fn place(row: u32) -> (usize, u64) {
    (usize::try_from(row / 64).expect("small"), 1 << (row % 64))
}

fn runs(rows: RowRange, is_in: impl Fn(u32) -> bool) -> Vec<RowRange> {
    let mut runs: Vec<RowRange> = Vec::new();
    for row in (rows.start..rows.end).filter(|row| is_in(*row)) {
        match runs.last_mut() {
            Some(run) if run.end == row => run.end += 1,
            _ => runs.push(RowRange::new(row, row + 1)),
        }
    }
    runs
}
