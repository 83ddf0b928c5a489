//! Rotation: which position of a group holds which strip of a row. ON-DISK FORMAT: see `geometry`.
//!
//! What must stay true: for every row the mapping is one-to-one between strips and positions, and
//! [`Rotation::position`] and [`Rotation::strip`] are each other's inverse.

/// How strips move over the members of a group from row to row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rotation {
    /// Strip i at position i in every row: raid0 and mirrors, where rotating would gain nothing.
    Fixed,
    /// Linux md's left-symmetric layout, generalised to any number of parity strips: in row 0 P is
    /// at the last position and moves one to the left each row, wrapping; Q, R and so on follow
    /// right after P, then the data strips, all wrapping.
    LeftSymmetric,
}

/// The strips of a row, at most 64: data strips first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RowCode {
    data_strips: u8,
    parity_strips: u8,
}

impl RowCode {
    /// Of counts that were checked.
    pub(crate) fn new(data_strips: usize, parity_strips: usize) -> RowCode {
        let small = |count| u8::try_from(count).expect("a stripe has at most 64 strips");
        RowCode { data_strips: small(data_strips), parity_strips: small(parity_strips) }
    }

    /// Strips of a row.
    #[inline]
    pub(crate) fn width(self) -> u64 {
        u64::from(self.strips())
    }

    #[inline]
    fn strips(self) -> u8 {
        self.data_strips + self.parity_strips
    }
}

impl Rotation {
    /// Where the rotation stands in a row: the position of P, if it moves.
    #[inline]
    pub(crate) fn turn(self, code: RowCode, row: u64) -> u8 {
        match self {
            Rotation::Fixed => 0,
            Rotation::LeftSymmetric => {
                let steps = u8::try_from(row % code.width()).expect("below the width");
                code.strips() - 1 - steps
            }
        }
    }

    /// The position, `0..width`, that holds `strip` in a row with this turn.
    #[inline]
    pub(crate) fn position(self, code: RowCode, turn: u8, strip: u8) -> u8 {
        debug_assert!(strip < code.strips());
        match self {
            Rotation::Fixed => strip,
            Rotation::LeftSymmetric => {
                // Steps to the right of P: parities first, then data.
                let steps = match strip.checked_sub(code.data_strips) {
                    Some(parity) => parity,
                    None => code.parity_strips + strip,
                };
                // Both are below the number of strips. A subtraction costs less than a division.
                let position = turn + steps;
                if position < code.strips() { position } else { position - code.strips() }
            }
        }
    }

    /// The strip that sits at `position` in a row with this turn.
    #[inline]
    pub(crate) fn strip(self, code: RowCode, turn: u8, position: u8) -> u8 {
        debug_assert!(position < code.strips());
        match self {
            Rotation::Fixed => position,
            Rotation::LeftSymmetric => {
                let steps = match position.checked_sub(turn) {
                    Some(steps) => steps,
                    None => position + code.strips() - turn,
                };
                match steps.checked_sub(code.parity_strips) {
                    Some(data) => data,
                    None => code.data_strips + steps,
                }
            }
        }
    }
}
