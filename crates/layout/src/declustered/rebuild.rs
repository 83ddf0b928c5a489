//! What a rebuild does, in which order: most endangered stripes first, reads spread evenly.
//!
//! All stripes of a group of cells lose the same strips, so a group is the unit of the order. One
//! set of reads serves all strips that a stripe lost.
//!
//! Not here: executing it, and how fast.

use ashlar_units::{StripIdx, StripSet, StripeNo};

use super::slice::{Declustered, GroupAt};
use super::spares::{SpareTable, Whereabouts};

/// A group that lost cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endangered {
    /// The group.
    pub group: GroupAt,
    /// Cells of it that are lost.
    pub lost: usize,
}

/// The groups of a slice that lost cells, in the order of their numbers.
pub fn endangered_in(map: &Declustered, table: &SpareTable, slice: u64) -> Vec<Endangered> {
    let rows = map.cell_rows_of(slice);
    let cells = table.entries().flat_map(|(_, entry)| {
        (0..rows).filter_map(move |cell_row| map.cell(entry.member, slice, cell_row))
    });
    // What a spare cell holds is a cell of another lost member, which is in the list itself.
    let lost = cells.filter_map(|cell| {
        let (group, _) = map.group_of(cell)?;
        let is_lost = !matches!(table.whereabouts(map, cell), Whereabouts::At(_));
        is_lost.then_some(group)
    });
    let mut groups: Vec<GroupAt> = lost.collect();
    groups.sort_unstable();
    let runs = groups.chunk_by(|a, b| a == b);
    runs.map(|run| Endangered { group: run[0], lost: run.len() }).collect()
}

/// The groups that a rebuild restores, those that lost most first, and slice by slice among those
/// that lost as much. Groups that lost more than parity replaces are left out.
///
/// Goes through the slices once for each number of losses, and holds one slice at a time.
pub fn rebuild_order(map: &Declustered, table: &SpareTable) -> impl Iterator<Item = Endangered> {
    let most = map.parts().parity_strips.min(table.entries().count());
    (1..=most).rev().flat_map(move |lost| {
        (0..map.slices()).flat_map(move |slice| {
            endangered_in(map, table, slice).into_iter().filter(move |group| group.lost == lost)
        })
    })
}

/// Which strips of a stripe to read to decode `lost`: as many as it has data strips. Which of the
/// others are left out turns from row to row, so that over a cell all members read alike.
///
/// # Panics
/// If more strips are lost than parity replaces, or the array has no such stripe.
pub fn strips_to_read(map: &Declustered, stripe: StripeNo, lost: StripSet) -> StripSet {
    let seat = map.seat(stripe);
    let survivors = map.by_position(seat).filter(|strip| !lost.contains(*strip));
    let survivors: Vec<StripIdx> = survivors.collect();
    let skipped = Skipped::of(map, survivors.len());
    let kept = survivors
        .iter()
        .enumerate()
        .filter(|(at, _)| !skipped.is_skipped(seat.turn_of_reads(), *at));
    kept.map(|(_, strip)| *strip).collect()
}

/// Which survivors of a stripe a rebuild does not read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skipped {
    survivors: usize,
    skipped: usize,
}

impl Skipped {
    /// Of a stripe with so many survivors.
    pub(super) fn of(map: &Declustered, survivors: usize) -> Skipped {
        let needed = map.parts().data_strips;
        let skipped = survivors.checked_sub(needed).expect("parity replaces what is lost");
        Skipped { survivors, skipped }
    }

    /// Whether the survivor, counted by position, is not read. The turn is the sum of slice and row
    /// of the cell.
    pub(super) fn is_skipped(self, turn: u64, survivor: usize) -> bool {
        let turn = ashlar_units::to_usize(turn % ashlar_units::to_u64(self.survivors));
        (survivor + self.survivors - turn) % self.survivors < self.skipped
    }
}
