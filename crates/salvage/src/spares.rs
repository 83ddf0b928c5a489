//! Distributed spares of layout version 2, from docs/on-disk-format.md: where a strip of a lost
//! member is.
//!
//! What must stay true: a page that nobody has intact says that its cells are missing. States are
//! read when they are asked for, and only the page looked at last is kept for each entry, whatever
//! the geometry claims. A walk from cell to cell ends after as many steps as there are entries.

use crate::bytes::index;
use crate::image::ReadAt;
use crate::pages::{Keeper, Pages};
use crate::place::StripPlace;
use crate::superblock::{Geometry, SpareEntry, Superblock};

/// Cells whose states a page holds.
const PAGE_CELLS: u64 = 16_256;

/// The lost members of an array, with their pages of states.
#[derive(Debug, Default)]
pub struct Spares {
    lost: Vec<Lost>,
}

/// A lost member.
#[derive(Debug)]
struct Lost {
    entry: SpareEntry,
    pages: Pages,
    /// Pages of the entries before it in the area.
    first_page: u64,
    /// Whether a device is on its way into its slot. Without one, no cell is in its place.
    has_device: bool,
}

impl Spares {
    /// Those that the superblock lists.
    pub fn of(newest: &Superblock) -> Spares {
        let Some(map) = &newest.geometry.declustered else { return Spares::default() };
        let pages_each = map.cells().div_ceil(PAGE_CELLS);
        let lost = |entry: &SpareEntry| Lost {
            entry: *entry,
            pages: Pages::spare_states(newest.spare_states, entry.life_tag()),
            first_page: entry.number.saturating_mul(pages_each),
            has_device: newest.is_being_filled(entry.slot),
        };
        Spares { lost: newest.spares.iter().map(lost).collect() }
    }

    /// Whether no member is lost.
    pub fn is_empty(&self) -> bool {
        self.lost.is_empty()
    }

    /// Where a strip is; `None` if it is lost.
    pub fn strip_place<I: ReadAt>(
        &self,
        geometry: &Geometry,
        stripe: u64,
        strip: usize,
        keepers: &[Keeper<'_, I>],
    ) -> Option<StripPlace> {
        let Some(map) = &geometry.declustered else {
            return Some(geometry.strip_place(stripe, strip));
        };
        let (mut cell, row) = map.strip_cell(stripe, u64::try_from(strip).unwrap_or(0));
        for _ in 0..=self.lost.len() {
            let (member, number) = map.place(cell);
            let first_block = (number * map.cell_rows() + row) * geometry.strip_blocks();
            let at = StripPlace { slot: index(member), first_block };
            let is_it = |lost: &&Lost| usize::from(lost.entry.slot) == at.slot;
            let Some(lost) = self.lost.iter().find(is_it) else { return Some(at) };
            match lost.state(number, keepers) {
                2 if lost.has_device => return Some(at),
                1 => cell = map.spare_cell(cell, lost.entry.column?)?,
                _ => return None,
            }
        }
        None
    }
}

impl Lost {
    fn state<I: ReadAt>(&self, cell: u64, keepers: &[Keeper<'_, I>]) -> u8 {
        let page = self.first_page.saturating_add(cell / PAGE_CELLS);
        self.pages.pair(page, cell % PAGE_CELLS, keepers)
    }
}
