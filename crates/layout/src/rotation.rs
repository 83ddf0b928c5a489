//! Rotation: which position of a group holds which strip of a row. ON-DISK FORMAT: see `geometry`.
//!
//! What must stay true: for every row the mapping is one-to-one between strips and positions, and
//! [`Rotation::position`] and [`Rotation::strip`] are each other's inverse.
//!
//! Room for declustered layouts: they become a further variant here (for example a permutation of the
//! positions of a wider group, chosen by row from a table made from a seed, with spare columns that
//! hold no strip). Such a variant makes the group wider than the stripe, so `strip` will answer `None`
//! for a position that the row leaves out; nothing outside `geometry` sees positions. A new variant
//! comes with a new layout version.

/// How strips move over the members of a group from row to row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rotation {
    /// Strip i at position i in every row: raid0 and mirrors, where rotating would gain nothing.
    Fixed,
    /// Linux md's left-symmetric layout, generalised to any number of parity strips: in row 0 P is at
    /// the last position and moves one to the left each row, wrapping; Q, R and so on follow right
    /// after P, then the data strips, all wrapping.
    LeftSymmetric,
}

/// One row of one group: what a rotation needs to know.
#[derive(Clone, Copy)]
pub(crate) struct RowCode {
    pub row: u64,
    pub data_strips: u64,
    pub parity_strips: u64,
}

impl RowCode {
    #[inline]
    fn strips(self) -> u64 {
        self.data_strips + self.parity_strips
    }

    /// Where P sits in the left-symmetric layout.
    #[inline]
    fn p_position(self) -> u64 {
        self.strips() - 1 - self.row % self.strips()
    }
}

impl Rotation {
    /// The position, `0..strips`, that holds `strip` in this row.
    #[inline]
    pub(crate) fn position(self, code: RowCode, strip: u64) -> u64 {
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
                let position = code.p_position() + steps;
                if position < code.strips() { position } else { position - code.strips() }
            }
        }
    }

    /// The strip that sits at `position` in this row; `None` if the row leaves that position out,
    /// which no layout does yet.
    pub(crate) fn strip(self, code: RowCode, position: u64) -> Option<u64> {
        debug_assert!(position < code.strips());
        match self {
            Rotation::Fixed => Some(position),
            Rotation::LeftSymmetric => {
                let steps = (position + code.strips() - code.p_position()) % code.strips();
                Some(match steps.checked_sub(code.parity_strips) {
                    Some(data) => data,
                    None => code.data_strips + steps,
                })
            }
        }
    }
}
