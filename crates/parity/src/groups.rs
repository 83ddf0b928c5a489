//! How many passes, and of which shapes, produce the rows of a job.
//!
//! What must stay true: the outputs are put in the order of the passes, their rows with them, and
//! the shapes cover all of them. Shapes are found by looking at coefficients, so a decode that
//! happens to be an XOR is run as one.

use ashlar_gf::PARITY_MAX;

use crate::list::List;
use crate::pass::{REST_MAX, Shape};
use crate::rows::PARITY_ROWS;

/// The shapes of the passes that together produce all outputs, which stand in the order of the
/// passes.
pub(crate) struct Groups(List<Shape, PARITY_MAX>);

impl Groups {
    /// No passes yet.
    pub(crate) const fn none() -> Groups {
        Groups(List::new())
    }

    /// Sorts the outputs (and their rows with them) into as few passes as the shapes allow, and
    /// adds those: P and Q together by Horner's rule, rows of ones by XOR, the others by
    /// multiplication, [`REST_MAX`] a pass. Added in place: returned, the list would be copied.
    pub(crate) fn add_rows(
        &mut self,
        outputs: &mut List<*mut u8, PARITY_MAX>,
        rows: &mut List<&[u8], PARITY_MAX>,
        columns: usize,
    ) {
        let groups = &mut self.0;
        // One source: nothing is gained by an order, and one pass takes all.
        if columns == 1 && (2..=REST_MAX).contains(&rows.len()) {
            return groups.push_known(Shape::Any(rows.len()));
        }
        let is_p = |row: &&[u8]| row[..columns].iter().all(|&coefficient| coefficient == 1);
        let is_q = |row: &&[u8]| row[..columns] == PARITY_ROWS[1][..columns] && columns > 1;
        // Rows of ones first, one of them followed by Q.
        let ones = bring_forward(outputs, rows, 0, is_p);
        let qs = bring_forward(outputs, rows, ones, is_q);
        let mut left = rows.len();
        if ones > 0 && qs > 0 {
            for _ in 1..ones {
                groups.push_known(Shape::Xor);
            }
            let rest = (left - ones - 1).min(REST_MAX);
            groups.push_known(Shape::PqAnd(rest));
            left -= ones + 1 + rest;
        } else if ones > 1 || left == ones {
            for _ in 0..ones {
                groups.push_known(Shape::Xor);
            }
            left -= ones;
        }
        while left > 0 {
            let rest = left.min(REST_MAX);
            groups.push_known(Shape::Any(rest));
            left -= rest;
        }
    }

    /// One shape for each pass, in the order of the outputs.
    pub(crate) fn shapes(&self) -> &[Shape] {
        &self.0
    }
}

/// Moves the rows from `first` on that satisfy `picks` to the front of those; returns how many.
fn bring_forward(
    outputs: &mut List<*mut u8, PARITY_MAX>,
    rows: &mut List<&[u8], PARITY_MAX>,
    first: usize,
    picks: impl Fn(&&[u8]) -> bool,
) -> usize {
    let mut place = first;
    for index in first..rows.len() {
        if picks(&rows[index]) {
            rows.swap(place, index);
            outputs.swap(place, index);
            place += 1;
        }
    }
    place - first
}

impl Shape {
    /// How many outputs a pass of this shape has.
    pub(crate) const fn row_count(self) -> usize {
        match self {
            Shape::Xor => 1,
            Shape::PqAnd(rest) => 2 + rest,
            Shape::Any(rows) => rows,
        }
    }
}
