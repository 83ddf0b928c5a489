//! Where strips are while members of a declustered array with a spare table are lost, and while it
//! grows: the table of `ashlar_layout::declustered` as all workers share it. Arrays with
//! distributed spares have one, and arrays that grow.
//!
//! What must stay true: the coordinator alone changes the table. A healthy array pays one load for
//! each question. Each question is answered from one state of the table, so a caller that needs a
//! member, an offset there, or whether it may be read asks once. A spare cell lies at the offset of
//! the cell that it replaces, except in slices that a growth of the array opened.
//!
//! Not here: changes of states (`coordinator/spare_states.rs`), what fills cells
//! (`background/spare_filling.rs`).

use ashlar_layout::Place;
use ashlar_layout::declustered::{
    CellAt, CellState, Declustered, Loss, MemberRow, SpareEntry, SpareTable, Whereabouts,
};
use ashlar_ondisk::Superblock;
use ashlar_units::{MemberIdx, to_u64};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

/// Answers about losses that are kept.
const COUNTS_KEPT: usize = 16;

/// The spare table of an array, and how far it has grown.
pub(crate) struct SpareCells {
    /// The map by which strips are asked for: that of the array's geometry.
    asked: Declustered,
    has_losses: AtomicBool,
    /// Cells may lie elsewhere than the geometry says, which knows the end of a growth only.
    is_growing: AtomicBool,
    /// Rises with each change.
    version: AtomicU64,
    state: RwLock<State>,
    counted: Mutex<VecDeque<Counted>>,
}

/// What changes together.
struct State {
    /// The map with the frontier of the growth.
    map: Declustered,
    table: SpareTable,
    /// Cells that are being copied to new members: writes go to both places.
    moving: Range<u64>,
    /// The map that an update of the superblocks brings which is being written.
    coming: Option<Declustered>,
    /// The table that pages say which are being written: a start may find them or those before.
    coming_table: Option<SpareTable>,
}

/// The table while it is looked at.
pub(crate) struct TableGuard<'a>(RwLockReadGuard<'a, State>);

impl Deref for TableGuard<'_> {
    type Target = SpareTable;

    fn deref(&self) -> &SpareTable {
        &self.0.table
    }
}

/// A lost member of an array with distributed spares: how many of its cells are where. Spare cells
/// of its own that hold nothing count as missing until a device is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostMember {
    /// Its slot.
    pub slot: MemberIdx,
    /// Its spare column; `None` if all were taken when it was lost.
    pub spare_column: Option<usize>,
    /// Cells whose content is to be rebuilt.
    pub missing: u64,
    /// Cells on distributed spares.
    pub on_spare: u64,
    /// Cells on the device that replaces it.
    pub in_place: u64,
}

/// How much some stripe lacked at most, of which version, with which members gone.
struct Counted {
    version: u64,
    gone: Vec<bool>,
    most: usize,
}

/// Where a strip is, and where it is written besides.
pub(crate) struct Spot {
    pub(crate) place: Place,
    /// Its content is there. If not, it is to be rebuilt there, or nowhere.
    pub(crate) is_there: bool,
    /// The member is in the spare table.
    pub(crate) is_listed: bool,
    /// Writes go there.
    pub(crate) takes_writes: bool,
    /// Places on members whose device is being filled with it: writes go there as well.
    pub(crate) copies: SmallVec<[Place; 2]>,
}

impl Spot {
    /// In its own place, at all times.
    pub(crate) fn own(place: Place) -> Spot {
        Spot {
            place,
            is_there: true,
            is_listed: false,
            takes_writes: true,
            copies: SmallVec::new(),
        }
    }
}

/// The lost members of a superblock.
pub(crate) fn losses_of(superblock: &Superblock) -> impl Iterator<Item = Loss> {
    superblock.spares.iter().map(|record| Loss {
        member: record.slot,
        column: record.column.map(usize::from),
        was_whole: record.was_whole,
    })
}

impl SpareCells {
    /// Of an array whose table is this. Strips are asked for by the map of the geometry, and lie by
    /// the other one, with the frontier of a growth that is under way.
    pub(crate) fn new(asked: Declustered, map: Declustered, table: SpareTable) -> SpareCells {
        SpareCells {
            asked,
            has_losses: AtomicBool::new(!table.is_empty()),
            is_growing: AtomicBool::new(map != asked),
            version: AtomicU64::new(0),
            state: RwLock::new(State {
                map,
                table,
                moving: 0..0,
                coming: None,
                coming_table: None,
            }),
            counted: Mutex::default(),
        }
    }

    /// The map of the array as it is now. Asked for before the table is looked at.
    pub(crate) fn map(&self) -> Declustered {
        self.state().map
    }

    /// Whether strips may lie elsewhere than the geometry says.
    #[inline]
    pub(crate) fn moves_strips(&self) -> bool {
        self.has_losses() || self.is_growing.load(Ordering::Acquire)
    }

    /// Coordinator only: these cells are on their way to new members from now on; none, if the
    /// range is empty.
    pub(crate) fn set_moving(&self, moving: Range<u64>) {
        self.state.write().unwrap_or_else(PoisonError::into_inner).moving = moving;
    }

    /// Coordinator only: a device joins that may take the place of a member. What moves to that
    /// member goes to its own device alone, and would be missing when the other has the slot.
    pub(crate) fn call_off_moving(&self) {
        self.set_moving(0..0);
    }

    /// Whether the cells up to this one are still on their way.
    pub(crate) fn are_moving_until(&self, end: u64) -> bool {
        let moving = &self.state().moving;
        !moving.is_empty() && moving.end == end
    }

    /// Coordinator only: an update is being written that brings this map. A member that is lost
    /// meanwhile must not be needed by either.
    pub(crate) fn set_coming(&self, map: Declustered) {
        self.state.write().unwrap_or_else(PoisonError::into_inner).coming = Some(map);
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Coordinator only: pages that say this are being written, or are no more. A member that is
    /// lost meanwhile must not be needed by either table.
    pub(crate) fn set_coming_table(&self, table: Option<SpareTable>) {
        self.state.write().unwrap_or_else(PoisonError::into_inner).coming_table = table;
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Coordinator only: a growth has come this far.
    pub(crate) fn set_map(&self, map: Declustered) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        (state.map, state.moving, state.coming) = (map, 0..0, None);
        self.version.fetch_add(1, Ordering::AcqRel);
        self.is_growing.store(map != self.asked, Ordering::Release);
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether some member is in the table.
    #[inline]
    pub(crate) fn has_losses(&self) -> bool {
        self.has_losses.load(Ordering::Acquire)
    }

    /// Which state of the table it is.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The table as it is now. The lock is to be held for a few steps only.
    pub(crate) fn table(&self) -> TableGuard<'_> {
        TableGuard(self.state())
    }

    /// Coordinator only: this is the table from now on.
    pub(crate) fn set(&self, table: SpareTable) {
        let has_losses = !table.is_empty();
        // A question that still finds no losses is answered with places of members that serve.
        let mut own = self.state.write().unwrap_or_else(PoisonError::into_inner);
        own.table = table;
        self.version.fetch_add(1, Ordering::AcqRel);
        self.has_losses.store(has_losses, Ordering::Release);
    }

    /// Coordinator only: the superblocks say this. Members were lost, or are whole again.
    /// `is_filled` says of a slot whether a device is on its way into it.
    pub(crate) fn follow(&self, superblock: &Superblock, is_filled: impl Fn(MemberIdx) -> bool) {
        let mut next = SpareTable::of_losses(&self.map(), losses_of(superblock));
        {
            let before = self.table();
            for Loss { member, .. } in losses_of(superblock) {
                next.keep(member, &before, is_filled(member));
            }
            if *before == next {
                return;
            }
        }
        self.set(next);
    }

    /// Where the strip is that belongs to this place.
    #[cold]
    pub(crate) fn spot(&self, own: Place) -> Spot {
        let Some((cell, row)) = self.cell_of(own) else { return Spot::own(own) };
        let state = self.state();
        let State { map, table, .. } = &*state;
        let (place, is_there, takes_writes) = match table.whereabouts(map, cell) {
            Whereabouts::At(at) => (place_in(map, at, row), true, true),
            Whereabouts::LostTo(target) => (place_in(map, target, row), false, true),
            Whereabouts::Lost => (place_in(map, cell, row), false, false),
        };
        let mut copies = SmallVec::new();
        if is_there {
            table.copy_targets(map, cell, |at| copies.push(place_in(map, at, row)));
            copies.extend(state.moves_to(place));
        }
        let is_listed = table.entry_of(place.member).is_some();
        Spot { place, is_there, is_listed, takes_writes, copies }
    }

    /// The cell of a place by the geometry, and the row there.
    fn cell_of(&self, own: Place) -> Option<(CellAt, u64)> {
        let row = own.offset / self.asked.parts().strip_bytes;
        self.asked.cell_at(MemberRow { member: own.member, row })
    }

    /// Strips that some stripe lacks at most when these members are gone besides what the table
    /// says; exact only up to what parity replaces.
    pub(crate) fn most_lost(&self, is_gone: impl Fn(MemberIdx) -> bool) -> usize {
        let members = self.map().members();
        let gone: Vec<bool> = (0..members).map(|at| is_gone(MemberIdx::from_at(at))).collect();
        // Before the state is looked at: what is counted from an earlier one is never kept.
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.version();
        let is_it = |it: &&Counted| it.version == version && it.gone == gone;
        if let Some(known) = counted.iter().find(is_it) {
            return known.most;
        }
        let state = self.state();
        let State { map, table, coming, coming_table, .. } = &*state;
        let parity = map.parts().parity_strips;
        let tables = || std::iter::once(table).chain(coming_table);
        let lost_by = |map: &Declustered| {
            tables().map(|table| table.most_lost(map, |member| gone[member.at()], parity)).max()
        };
        let most = lost_by(map).max(coming.as_ref().and_then(lost_by)).unwrap_or(0);
        drop(state);
        if counted.len() == COUNTS_KEPT {
            counted.pop_front();
        }
        counted.push_back(Counted { version, gone, most });
        most
    }

    /// What each lost member has where, by entry.
    pub(crate) fn status(&self) -> Vec<LostMember> {
        let table = self.table();
        let of_entry = |(_, entry): (usize, &SpareEntry)| {
            let count = |state| to_u64(entry.states().iter().filter(|it| **it == state).count());
            LostMember {
                slot: entry.member,
                spare_column: entry.column,
                missing: count(CellState::Missing),
                on_spare: count(CellState::OnSpare),
                in_place: count(CellState::InPlace),
            }
        };
        table.entries().map(of_entry).collect()
    }

    /// Whether the member is in the table.
    pub(crate) fn is_lost(&self, member: MemberIdx) -> bool {
        self.table().entry_of(member).is_some()
    }
}

impl State {
    /// The place on a new member that a place is being copied to.
    fn moves_to(&self, place: Place) -> Option<Place> {
        let parts = self.map.parts();
        let number = place.offset / (parts.strip_bytes * parts.cell_rows);
        let is_moving = self.moving.contains(&number);
        let member = self.map.target_of(place.member, number).filter(|_| is_moving)?;
        Some(Place { member, ..place })
    }
}

/// Where a row of a cell lies.
fn place_in(map: &Declustered, cell: CellAt, row_of_cell: u64) -> Place {
    let MemberRow { member, row } = map.start_of(cell);
    Place { member, offset: (row + row_of_cell) * map.parts().strip_bytes }
}

#[cfg(test)]
mod tests {
    use super::SpareCells;
    use ashlar_layout::declustered::{CellState, Declustered, Loss, SpareTable};
    use ashlar_layout::{DeclusteredShape, Geometry, Level, Shape};
    use ashlar_units::{MemberIdx, to_usize};

    const LOST: MemberIdx = MemberIdx(3);

    /// 2+1 on six members with one spare column.
    fn map() -> Declustered {
        let declustered = DeclusteredShape {
            domain_members: 1,
            stripe_width: 3,
            spare_columns: 1,
            cell_bytes: None,
        };
        let shape = Shape {
            level: Level::Raid5,
            members: 6,
            parity: None,
            group_members: None,
            strip_bytes: 64 << 10,
            declustered: Some(declustered),
        };
        *Geometry::smallest(&shape).expect("it exists").declustered().expect("declustered")
    }

    /// One member is lost, and all its cells are in this state; a device is in its slot.
    fn table(map: &Declustered, state: CellState) -> SpareTable {
        let lost = Loss { member: LOST, column: Some(0), was_whole: true };
        let mut table = SpareTable::of_losses(map, [lost]);
        (0..to_usize(map.cells())).for_each(|cell| table.load(0, cell, state));
        table.replace(LOST).expect("it is lost");
        table
    }

    #[test]
    fn while_pages_are_written_a_loss_is_judged_by_the_old_states_and_by_the_new() {
        let map = map();
        let cells = SpareCells::new(map, map, table(&map, CellState::OnSpare));
        let lost_with = |other| cells.most_lost(|member| member == LOST || member == other);
        assert_eq!(lost_with(LOST), 0, "all is on spares");
        assert_eq!(lost_with(MemberIdx(1)), 1);
        cells.set_coming_table(Some(table(&map, CellState::InPlace)));
        assert_eq!(lost_with(LOST), 1, "a start may find that all is in place");
        assert_eq!(lost_with(MemberIdx(1)), 2);
        cells.set_coming_table(None);
        assert_eq!(lost_with(MemberIdx(1)), 1);
    }
}
