//! Distributed spares: which members are lost, which spare column each of them has, and where a
//! cell is now.
//!
//! A lost member has an entry, and a spare column if one was free. Members of one failure domain
//! share a column: they never have cells in the same sub-slice. Each cell of a lost member has a
//! state of its own, so losses, rebuilds, returns and replacements may come in any order and stop
//! anywhere.
//!
//! What must stay true: from a cell of a data column the walk ends, and cells of different data
//! columns end on different members, and in different failure domains. A spare cell has at most one
//! cell that points at it, so a walk from a data column cannot come back to where it was. Walked
//! backwards it can circle among spare columns, and then they hold nothing.
//!
//! Not here: what changes states (`states`).

use ashlar_units::{MemberIdx, to_usize};

use super::slice::{CellAt, Declustered};

/// Where the content of one cell of a lost member is. Two bits on disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CellState {
    /// Nowhere. Decode it from the other strips of its stripes.
    Missing,
    /// In the entry's spare column of the same sub-slice, wherever that is.
    OnSpare,
    /// In its own place: on the device that returned or came as a replacement.
    InPlace,
}

/// What a member's device has of the array.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DeviceState {
    /// There is no device.
    Absent,
    /// A device is there and is being filled.
    Filling,
}

/// A lost member, from its loss until all its cells are in place again.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SpareEntry {
    /// The member.
    pub member: MemberIdx,
    /// The spare column that takes its cells; `None`: they can only be filled in their places.
    pub column: Option<usize>,
    /// Whether there is a device to write to.
    pub device: DeviceState,
    /// Whether every cell was in its place when the device was lost. Only then may cells of the
    /// same device be trusted when it returns.
    pub was_whole: bool,
    /// One state for each cell of the member, in the order of its rows.
    pub(super) states: Vec<CellState>,
}

/// A member that is lost, as the members of the array record it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// Which.
    pub member: MemberIdx,
    /// Its spare column, if it has one.
    pub column: Option<usize>,
    /// Whether every cell was in its place when it was lost.
    pub was_whole: bool,
}

/// All lost members of an array.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SpareTable {
    pub(super) entries: Vec<Option<SpareEntry>>,
}

/// Where the content of a data cell is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whereabouts {
    /// In this cell.
    At(CellAt),
    /// Nowhere; a rebuild writes to this cell.
    LostTo(CellAt),
    /// Nowhere, and no cell is free for it.
    Lost,
}

impl SpareTable {
    /// That of an array without losses.
    pub fn new(map: &Declustered) -> SpareTable {
        SpareTable { entries: vec![None; map.parts().members] }
    }

    /// That of an array whose lost members are these. All their cells are missing, until
    /// [`SpareTable::load`] says otherwise.
    ///
    /// # Panics
    /// If they are more than the array has members.
    pub fn of_losses(map: &Declustered, losses: impl IntoIterator<Item = Loss>) -> SpareTable {
        let mut table = SpareTable::new(map);
        for (at, loss) in losses.into_iter().enumerate() {
            table.entries[at] = Some(SpareEntry::new(map, loss));
        }
        table
    }

    /// Whether no member is lost.
    pub fn is_empty(&self) -> bool {
        self.entries.iter().all(Option::is_none)
    }

    /// The entry of a member, if it is lost.
    pub fn entry_of(&self, member: MemberIdx) -> Option<usize> {
        let is_it =
            |entry: &Option<SpareEntry>| entry.as_ref().is_some_and(|it| it.member == member);
        self.entries.iter().position(is_it)
    }

    /// The lost members with their entries.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &SpareEntry)> {
        let all = self.entries.iter().enumerate();
        all.filter_map(|(at, entry)| Some((at, entry.as_ref()?)))
    }

    /// Where the content of a cell of a data column is.
    ///
    /// # Panics
    /// If the cell is spare, or of another array.
    pub fn whereabouts(&self, map: &Declustered, cell: CellAt) -> Whereabouts {
        assert!(map.group_of(cell).is_some(), "{cell:?} is spare and holds no cell of its own");
        let (mut at, mut is_lost) = (cell, false);
        // A device that is there is filled directly, though its cell was on a spare by then.
        let mut filled = None;
        let lost_to = |filled: Option<CellAt>, at| Whereabouts::LostTo(filled.unwrap_or(at));
        loop {
            let Some(entry) = self.entry_at(map, at) else {
                return if is_lost { lost_to(filled, at) } else { Whereabouts::At(at) };
            };
            if entry.device == DeviceState::Filling {
                filled = filled.or(Some(at));
            }
            match entry.states[map.cell_number(at)] {
                CellState::InPlace if is_lost => return lost_to(filled, at),
                CellState::InPlace => return Whereabouts::At(at),
                CellState::Missing => is_lost = true,
                CellState::OnSpare => {}
            }
            match (map.spare_cell(at, entry), filled) {
                (Some(_), Some(filled)) if is_lost => return Whereabouts::LostTo(filled),
                (Some(spare), _) => at = spare,
                (None, Some(filled)) => return Whereabouts::LostTo(filled),
                (None, None) => return Whereabouts::Lost,
            }
        }
    }

    /// The cells that the content of a data cell is to be copied back to, nearest to its own place
    /// first: those of members whose device is being filled, where the content is on a spare still.
    /// What is written to the cell is to be written to these as well, as long as it is not lost.
    ///
    /// # Panics
    /// As [`SpareTable::whereabouts`].
    pub fn copy_targets(&self, map: &Declustered, cell: CellAt, mut tell: impl FnMut(CellAt)) {
        let mut at = cell;
        while let Some(entry) = self.entry_at(map, at) {
            match entry.states[map.cell_number(at)] {
                CellState::InPlace | CellState::Missing => return,
                CellState::OnSpare if entry.device == DeviceState::Filling => tell(at),
                CellState::OnSpare => {}
            }
            match map.spare_cell(at, entry) {
                Some(spare) => at = spare,
                None => return,
            }
        }
    }

    /// Whether content belongs into a spare cell, be it there or lost with its member. Walks
    /// backwards, from the spare column to the member that it stands for.
    pub fn is_in_use(&self, map: &Declustered, spare: CellAt) -> bool {
        let mut at = spare;
        // A walk that has not ended after as many steps as there are spare columns circles.
        for _ in 0..=map.parts().spare_columns {
            if map.spare_index(at).is_none() {
                return true;
            }
            match self.hosted_in(map, at) {
                Some((entry, hosted)) if entry.state(map, hosted) == CellState::OnSpare => {
                    at = hosted;
                }
                _ => return false,
            }
        }
        false
    }

    /// The lost member whose cells a spare cell takes, and which of them this one takes. Of the
    /// members that share the column at most one has a cell in this sub-slice.
    pub(super) fn hosted_in(
        &self,
        map: &Declustered,
        spare: CellAt,
    ) -> Option<(&SpareEntry, CellAt)> {
        let column = map.spare_index(spare)?;
        let mut of_column =
            self.entries.iter().flatten().filter(|entry| entry.column == Some(column));
        of_column.find_map(|entry| {
            let hosted = map.cell(entry.member, spare.slice, spare.cell_row)?;
            (hosted.sub_slice == spare.sub_slice).then_some((entry, hosted))
        })
    }

    /// The entry of the member that a cell lies on.
    pub(super) fn entry_at(&self, map: &Declustered, at: CellAt) -> Option<&SpareEntry> {
        self.entries[self.entry_of(map.member(at))?].as_ref()
    }

    /// The spare column for a member that is lost: the one that others of its domain have, else one
    /// that nobody has.
    pub(super) fn column_for(&self, map: &Declustered, member: MemberIdx) -> Option<usize> {
        let all = || self.entries.iter().flatten();
        let of_domain = |entry: &&SpareEntry| map.domain_of(entry.member) == map.domain_of(member);
        let shared = all().filter(of_domain).find_map(|entry| entry.column);
        let is_free = |column: &usize| all().all(|entry| entry.column != Some(*column));
        shared.or_else(|| (0..map.parts().spare_columns).find(is_free))
    }
}

impl SpareEntry {
    /// Of a member without a device, nothing of which is anywhere.
    pub(super) fn new(map: &Declustered, loss: Loss) -> SpareEntry {
        let Loss { member, column, was_whole } = loss;
        let states = vec![CellState::Missing; to_usize(map.cells())];
        SpareEntry { member, column, device: DeviceState::Absent, was_whole, states }
    }

    /// The states of all cells, in the order of the member's rows.
    pub fn states(&self) -> &[CellState] {
        &self.states
    }

    /// The state of a cell of the member.
    pub fn state(&self, map: &Declustered, cell: CellAt) -> CellState {
        self.states[map.cell_number(cell)]
    }
}

impl Declustered {
    /// The number of a cell among those of its member.
    #[inline]
    pub fn cell_number(&self, cell: CellAt) -> usize {
        to_usize(self.settled_cell(cell).1)
    }

    /// The cell of this number of a member; `None` if it is of no slice, as happens in an array
    /// that grows or has grown. Then it holds nothing.
    #[inline]
    pub fn numbered_cell(&self, member: MemberIdx, number: usize) -> Option<CellAt> {
        self.cell_numbered(member, ashlar_units::to_u64(number))
    }

    /// The spare cell that takes a cell of a lost member: in its sub-slice and row; `None` if the
    /// member has no spare column.
    #[inline]
    pub fn spare_cell(&self, cell: CellAt, entry: &SpareEntry) -> Option<CellAt> {
        self.cell_in_spare_column(cell, entry.column?)
    }

    /// The cell of a spare column, counted among those, in the sub-slice and row of a cell.
    #[inline]
    pub(super) fn cell_in_spare_column(&self, cell: CellAt, spare: usize) -> Option<CellAt> {
        if spare >= self.parts().spare_columns {
            return None;
        }
        let data_columns = self.region(cell.slice).counts.data_columns;
        let column = data_columns + u32::try_from(spare).expect("at most 256");
        Some(CellAt { column, ..cell })
    }

    /// Which spare column a cell is in; `None` if stripes use it.
    #[inline]
    pub fn spare_index(&self, cell: CellAt) -> Option<usize> {
        let data_columns = self.region(cell.slice).counts.data_columns;
        let index = cell.column.checked_sub(data_columns)?;
        Some(to_usize(u64::from(index)))
    }
}
