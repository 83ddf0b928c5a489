//! Where strips are while members of an array with distributed spares are lost: the table of
//! `ashlar_layout::declustered` as all workers share it.
//!
//! What must stay true: the coordinator alone changes the table. A healthy array pays one load for
//! each question. Each question is answered from one state of the table, so a caller that needs a
//! member and whether it may be read asks once. A spare cell lies at the offset of the cell that it
//! replaces, so a strip moves to another member and nowhere else.
//!
//! Not here: changes of states (`coordinator/spare_states.rs`), what fills cells
//! (`background/spare_filling.rs`).

use ashlar_layout::Place;
use ashlar_layout::declustered::{
    CellAt, CellState, Declustered, MemberRow, SpareEntry, SpareTable, Whereabouts,
};
use ashlar_ondisk::{SpareRecord, Superblock};
use ashlar_units::{MemberIdx, to_u64};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

/// Answers about losses that are kept.
const COUNTS_KEPT: usize = 16;

/// The spare table of an array.
pub(crate) struct SpareCells {
    map: Declustered,
    has_losses: AtomicBool,
    /// Rises with each change of the table.
    version: AtomicU64,
    table: RwLock<SpareTable>,
    counted: Mutex<VecDeque<Counted>>,
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
    pub(crate) member: MemberIdx,
    /// Its content is there. If not, it is to be rebuilt there, or nowhere.
    pub(crate) is_there: bool,
    /// The member is in the spare table.
    pub(crate) is_listed: bool,
    /// Writes go there.
    pub(crate) takes_writes: bool,
    /// Members whose device is being filled with it: writes go there as well.
    pub(crate) copies: SmallVec<[MemberIdx; 2]>,
}

impl Spot {
    /// In its own place, at all times.
    pub(crate) fn own(member: MemberIdx) -> Spot {
        Spot {
            member,
            is_there: true,
            is_listed: false,
            takes_writes: true,
            copies: SmallVec::new(),
        }
    }
}

/// The numbers of the entries of a superblock: those with a spare column by it, the others behind.
pub(crate) fn entries_of(superblock: &Superblock) -> Vec<(usize, MemberIdx, bool)> {
    let columns = superblock.geometry.spread.map_or(0, |spread| spread.spare_columns.into());
    let mut next = columns;
    let entry = |record: &SpareRecord| {
        let behind = || {
            next += 1;
            next - 1
        };
        let at = record.column.map_or_else(behind, usize::from);
        (at, record.slot, record.was_whole)
    };
    superblock.spares.iter().map(entry).collect()
}

impl SpareCells {
    /// Of an array whose table is this.
    pub(crate) fn new(map: Declustered, table: SpareTable) -> SpareCells {
        SpareCells {
            map,
            has_losses: AtomicBool::new(!table.is_empty()),
            version: AtomicU64::new(0),
            table: RwLock::new(table),
            counted: Mutex::default(),
        }
    }

    /// The map of the array.
    pub(crate) fn map(&self) -> &Declustered {
        &self.map
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
    pub(crate) fn table(&self) -> RwLockReadGuard<'_, SpareTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Coordinator only: this is the table from now on.
    pub(crate) fn set(&self, table: SpareTable) {
        let has_losses = !table.is_empty();
        // A question that still finds no losses is answered with places of members that serve.
        let mut own = self.table.write().unwrap_or_else(PoisonError::into_inner);
        *own = table;
        self.version.fetch_add(1, Ordering::AcqRel);
        self.has_losses.store(has_losses, Ordering::Release);
    }

    /// Coordinator only: the superblocks say this. Members were lost, or are whole again.
    /// `is_filled` says of a slot whether a device is on its way into it.
    pub(crate) fn follow(&self, superblock: &Superblock, is_filled: impl Fn(MemberIdx) -> bool) {
        let wanted = entries_of(superblock);
        let mut next = SpareTable::of_losses(&self.map, wanted.iter().copied());
        {
            let before = self.table();
            for (at, slot, _) in wanted {
                if let Some((_, entry)) = before.entries().find(|(_, entry)| entry.member == slot) {
                    next.keep(at, entry, is_filled(slot));
                }
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
        let Some(cell) = self.cell_of(own) else { return Spot::own(own.member) };
        let table = self.table();
        let (member, is_there, takes_writes) = match table.whereabouts(&self.map, cell) {
            Whereabouts::At(at) => (self.map.member(at), true, true),
            Whereabouts::LostTo(target) => (self.map.member(target), false, true),
            Whereabouts::Lost => (own.member, false, false),
        };
        let mut copies = SmallVec::new();
        if is_there {
            table.copy_targets(&self.map, cell, |at| copies.push(self.map.member(at)));
        }
        let is_listed = table.entry_of(member).is_some();
        Spot { member, is_there, is_listed, takes_writes, copies }
    }

    fn cell_of(&self, own: Place) -> Option<CellAt> {
        let row = own.offset / self.map.parts().strip_bytes;
        self.map.cell_at(MemberRow { member: own.member, row }).map(|(cell, _)| cell)
    }

    /// Strips that some stripe lacks at most when these members are gone besides what the table
    /// says; exact only up to what parity replaces.
    pub(crate) fn most_lost(&self, is_gone: impl Fn(MemberIdx) -> bool) -> usize {
        let gone: Vec<bool> =
            (0..self.map.members()).map(|at| is_gone(MemberIdx::from_at(at))).collect();
        let parity = self.map.parts().parity_strips;
        let version = self.version();
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |it: &&Counted| it.version == version && it.gone == gone;
        if let Some(known) = counted.iter().find(is_it) {
            return known.most;
        }
        let most = self.table().most_lost(&self.map, |member| gone[member.at()], parity);
        if counted.len() == COUNTS_KEPT {
            counted.pop_front();
        }
        counted.push_back(Counted { version, gone, most });
        most
    }

    /// What each lost member has where, by entry.
    pub(crate) fn status(&self) -> Vec<LostMember> {
        let columns = self.map.parts().spare_columns;
        let table = self.table();
        let of_entry = |(at, entry): (usize, &SpareEntry)| {
            let count = |state| to_u64(entry.states().iter().filter(|it| **it == state).count());
            LostMember {
                slot: entry.member,
                spare_column: (at < columns).then_some(at),
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
