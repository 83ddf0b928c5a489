//! How long the cells of a new declustered array are, if nobody says.
//!
//! What must stay true: a cell is at most as long as its kind of drive wants it, and members that
//! are long enough have as many slices as spread a rebuild evenly.

use crate::joining_device::JoiningDevice;
use ashlar_layout::declustered::{CELL_BYTES_FLASH, CELL_BYTES_ROTATING};
use ashlar_layout::{DeclusteredShape, Geometry, Shape};

/// Slices that a member has at least, if shorter cells can give them to it.
const SLICES_WANTED: u64 = 64;

/// The shape with the cells that these devices want.
pub(super) fn chosen(shape: &Shape, candidates: &[JoiningDevice]) -> Shape {
    let facts = || candidates.iter().map(|candidate| candidate.opened.facts());
    let is_rotating = facts().any(|facts| facts.is_rotational);
    let least_bytes = facts().map(|facts| facts.size_bytes).min().unwrap_or(0);
    match shape.declustered {
        Some(wish @ DeclusteredShape { cell_bytes: None, .. }) => {
            with_cells(shape, wish, is_rotating, least_bytes)
        }
        _ => shape.clone(),
    }
}

fn with_cells(
    shape: &Shape,
    wish: DeclusteredShape,
    is_rotating: bool,
    member_bytes: u64,
) -> Shape {
    let mut cell_bytes = if is_rotating { CELL_BYTES_ROTATING } else { CELL_BYTES_FLASH };
    loop {
        let declustered = Some(DeclusteredShape { cell_bytes: Some(cell_bytes), ..wish });
        let chosen = Shape { declustered, ..shape.clone() };
        // What cannot be is refused later.
        let slice_bytes = Geometry::smallest(&chosen).map_or(0, |one| one.member_bytes());
        if slice_bytes * SLICES_WANTED <= member_bytes || cell_bytes <= shape.strip_bytes {
            return chosen;
        }
        cell_bytes /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::with_cells;
    use ashlar_layout::{DeclusteredShape, Level, Shape};

    #[test]
    fn small_members_get_shorter_cells_and_none_is_shorter_than_a_strip() {
        let wish = DeclusteredShape {
            domain_members: 1,
            stripe_width: 5,
            spare_columns: 0,
            cell_bytes: None,
        };
        let shape = Shape {
            level: Level::Raid6,
            members: 7,
            parity: None,
            group_members: None,
            strip_bytes: 64 << 10,
            declustered: Some(wish),
        };
        let cell = |is_rotating, bytes| {
            let chosen = with_cells(&shape, wish, is_rotating, bytes);
            chosen.declustered.unwrap().cell_bytes.unwrap()
        };
        // A slice has 5 rows of cells.
        assert_eq!(cell(true, 1 << 40), 16 << 20);
        assert_eq!(cell(true, 5 * 64 * (16 << 20)), 16 << 20);
        assert_eq!(cell(true, 5 * 64 * (16 << 20) - 1), 8 << 20);
        assert_eq!(cell(false, 1 << 40), 1 << 20);
        assert_eq!(cell(false, 64 << 20), 128 << 10);
        assert_eq!(cell(false, 4 << 20), 64 << 10);
    }
}
