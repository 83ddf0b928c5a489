//! What happens to the states of cells: loss, rebuild, return, replacement and copy-back.
//!
//! Five rules. A test takes each of them away and finds wrong strips or cells that never heal:
//!
//! 1. A rebuild marks every cell on its way as moved, not the first one only: the place it writes
//!    to may lie behind spare cells that were lost while they held nothing.
//! 2. A cell of a device that returns is trusted only in a data column, in a clean region, and if
//!    the member was whole when it was lost. Writes of a rebuild leave no mark in the write-intent
//!    bitmap, so a spare cell is never trusted.
//! 3. A member that was not whole is filled in full, however clean it is.
//! 4. An entry becomes free only when *all* its cells are in place, those in spare columns too.
//! 5. A state changes only after its content is durable and no log record of the cell counts. The
//!    functions that need it ask for a [`Settled`].
//!
//! Not here: copying, flushing and the pages of states on the members.

use ashlar_units::MemberIdx;

use super::slice::{CellAt, Declustered};
use super::spares::{CellState, DeviceState, Loss, SpareEntry, SpareTable, Whereabouts};

/// The device is gone, and what was in its place with it.
fn forget_in_place(states: &mut [CellState]) {
    for state in states.iter_mut().filter(|state| **state == CellState::InPlace) {
        *state = CellState::Missing;
    }
}

/// The caller states rule 5: the content is durable where the new state says, and no record of
/// the stripe intent log names the cell or the cell that it moves from.
#[derive(Clone, Copy, Debug)]
pub struct Settled;

/// A transition that is not possible. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpareError {
    /// The member has no entry.
    #[error("member {0} is not lost")]
    NotLost(MemberIdx),
    /// The member has no device that could hold the cell.
    #[error("member {0} has no device")]
    NoDevice(MemberIdx),
    /// The member has a device already.
    #[error("member {0} has a device")]
    HasDevice(MemberIdx),
    /// The content is lost and must be rebuilt, not copied.
    #[error("the cell is lost; rebuild it")]
    CellLost,
    /// The content is not lost, or has nowhere to go.
    #[error("the cell cannot be rebuilt: it is there, or no spare column is free")]
    NotRebuildable,
    /// A cell is not in its place yet.
    #[error("cell {0} of the member is not in its place")]
    NotInPlace(usize),
}

impl SpareTable {
    /// A member is lost. Says which entry it has.
    ///
    /// # Panics
    /// If the array has no such member.
    pub fn lose(&mut self, map: &Declustered, member: MemberIdx) -> usize {
        match self.entry_of(member) {
            Some(at) => {
                self.lose_again(at);
                at
            }
            None => self.enter(map, member),
        }
    }

    fn enter(&mut self, map: &Declustered, member: MemberIdx) -> usize {
        let free = self.entries.iter().position(Option::is_none);
        let at = free.expect("there are as many entries as members");
        let loss = Loss { member, column: self.column_for(map, member), was_whole: true };
        self.entries[at] = Some(SpareEntry::new(map, loss));
        at
    }

    /// The device of a lost member, which was being filled, is lost, too.
    fn lose_again(&mut self, at: usize) {
        let Some(entry) = &mut self.entries[at] else { return };
        if entry.device == DeviceState::Absent {
            return;
        }
        entry.device = DeviceState::Absent;
        entry.was_whole = false;
        forget_in_place(&mut entry.states);
    }

    /// A lost member without a spare column takes one that became free. Says whether one did.
    pub fn promote(&mut self, map: &Declustered) -> bool {
        let waits = |entry: &&SpareEntry| entry.column.is_none();
        let waiting = self.entries.iter().flatten().find(waits).map(|entry| entry.member);
        let Some((member, column)) =
            waiting.and_then(|member| Some((member, self.column_for(map, member)?)))
        else {
            return false;
        };
        let mut entries = self.entries.iter_mut().flatten();
        entries.find(|entry| entry.member == member).expect("it waits").column = Some(column);
        true
    }

    /// A new, empty device takes the place of a lost member's.
    ///
    /// # Errors
    /// If the member is not lost, or has a device.
    pub fn replace(&mut self, member: MemberIdx) -> Result<(), SpareError> {
        self.device_less(member)?.device = DeviceState::Filling;
        Ok(())
    }

    /// The device that was lost returns with what it holds. `is_clean` says of a cell whether no
    /// write to its stripes was marked since the loss. Says how many cells are trusted.
    ///
    /// # Errors
    /// If the member is not lost, or has a device.
    pub fn return_device(
        &mut self,
        map: &Declustered,
        member: MemberIdx,
        is_clean: impl Fn(CellAt) -> bool,
    ) -> Result<usize, SpareError> {
        self.replace(member)?;
        self.trust(map, member, is_clean)
    }

    /// The device that is being filled is the one that was lost, and everything that was written
    /// since it came back is on it as well: cells that `is_clean` calls clean are trusted, by rules
    /// 2 and 3. Says how many. (A device that is written before it is looked at makes this apart
    /// from its return.)
    ///
    /// # Errors
    /// If the member is not lost, or has no device.
    pub fn trust(
        &mut self,
        map: &Declustered,
        member: MemberIdx,
        is_clean: impl Fn(CellAt) -> bool,
    ) -> Result<usize, SpareError> {
        let at = self.entry_of(member).ok_or(SpareError::NotLost(member))?;
        let entry = self.entries[at].as_mut().ok_or(SpareError::NotLost(member))?;
        if entry.device == DeviceState::Absent {
            return Err(SpareError::NoDevice(member));
        }
        if !entry.was_whole {
            return Ok(0);
        }
        let mut trusted = 0;
        for (number, state) in entry.states.iter_mut().enumerate() {
            let Some(cell) = map.numbered_cell(member, number) else { continue };
            if map.spare_index(cell).is_none() && is_clean(cell) {
                *state = CellState::InPlace;
                trusted += 1;
            }
        }
        Ok(trusted)
    }

    fn device_less(&mut self, member: MemberIdx) -> Result<&mut SpareEntry, SpareError> {
        let at = self.entry_of(member).ok_or(SpareError::NotLost(member))?;
        let entry = self.entries[at].as_mut().ok_or(SpareError::NotLost(member))?;
        match entry.device {
            DeviceState::Absent => Ok(entry),
            DeviceState::Filling => Err(SpareError::HasDevice(member)),
        }
    }

    /// The content of a lost data cell was decoded and written to where
    /// [`SpareTable::whereabouts`] said.
    ///
    /// # Errors
    /// If the cell is not lost, or has nowhere to go.
    pub fn rebuilt(
        &mut self,
        map: &Declustered,
        cell: CellAt,
        _: Settled,
    ) -> Result<(), SpareError> {
        let Whereabouts::LostTo(target) = self.whereabouts(map, cell) else {
            return Err(SpareError::NotRebuildable);
        };
        let mut at = cell;
        while at != target {
            let entry = self.entry_at(map, at).expect("the walk passes lost members only");
            let next = map.spare_cell(at, entry).expect("the walk passes spare columns only");
            self.set_cell(map, at, CellState::OnSpare);
            at = next;
        }
        self.set_cell(map, target, CellState::InPlace);
        Ok(())
    }

    /// From where a copy-back reads the content that belongs into a cell of a lost member that has
    /// a device again: `None` if the cell holds nothing.
    ///
    /// # Errors
    /// If the member is not lost or has no device, or if the content must be rebuilt.
    pub fn copy_source(
        &self,
        map: &Declustered,
        member: MemberIdx,
        number: usize,
    ) -> Result<Option<CellAt>, SpareError> {
        let at = self.entry_of(member).ok_or(SpareError::NotLost(member))?;
        let entry = self.entries[at].as_ref().ok_or(SpareError::NotLost(member))?;
        if entry.device == DeviceState::Absent {
            return Err(SpareError::NoDevice(member));
        }
        let Some(cell) = map.numbered_cell(member, number) else { return Ok(None) };
        if map.spare_index(cell).is_some() && !self.is_in_use(map, cell) {
            return Ok(None);
        }
        match self.whereabouts(map, self.origin(map, cell)) {
            Whereabouts::At(source) => Ok(Some(source)),
            Whereabouts::LostTo(_) | Whereabouts::Lost => Err(SpareError::CellLost),
        }
    }

    /// The data cell whose content belongs into a cell that is in use.
    ///
    /// # Panics
    /// If the cell is spare and not in use.
    pub fn origin(&self, map: &Declustered, cell: CellAt) -> CellAt {
        let mut at = cell;
        while map.spare_index(at).is_some() {
            (_, at) = self.hosted_in(map, at).expect("the cell is in use");
        }
        at
    }

    /// A cell of a lost member holds its content again.
    ///
    /// # Errors
    /// As [`SpareTable::copy_source`].
    pub fn copied_back(
        &mut self,
        map: &Declustered,
        member: MemberIdx,
        number: usize,
        _: Settled,
    ) -> Result<(), SpareError> {
        self.copy_source(map, member, number)?;
        let at = self.entry_of(member).ok_or(SpareError::NotLost(member))?;
        self.set(at, number, CellState::InPlace);
        Ok(())
    }

    /// All cells of the member are in place: it is whole, and its spare column free.
    ///
    /// # Errors
    /// Rule 4: if a cell is not in its place, spare cells included.
    pub fn complete(&mut self, member: MemberIdx) -> Result<(), SpareError> {
        let at = self.entry_of(member).ok_or(SpareError::NotLost(member))?;
        let entry = self.entries[at].as_ref().ok_or(SpareError::NotLost(member))?;
        let open = entry.states.iter().position(|state| *state != CellState::InPlace);
        if let Some(number) = open {
            return Err(SpareError::NotInPlace(number));
        }
        self.entries[at] = None;
        Ok(())
    }

    /// Has the entry of a member say what that of an earlier table said, if both have one. A member
    /// that has no device any more has no cells in their places.
    pub fn keep(&mut self, member: MemberIdx, earlier: &SpareTable, has_device: bool) {
        let before = earlier.entry_of(member).and_then(|at| earlier.entries[at].as_ref());
        let own = self.entry_of(member).and_then(|at| self.entries[at].as_mut());
        let (Some(entry), Some(before)) = (own, before) else { return };
        entry.states.clone_from(&before.states);
        if has_device {
            entry.device = before.device;
        } else {
            forget_in_place(&mut entry.states);
        }
    }

    /// Takes the state of a cell from the members, at a start.
    ///
    /// # Panics
    /// If there is no such entry or cell.
    pub fn load(&mut self, entry: usize, number: usize, state: CellState) {
        assert!(self.entries[entry].is_some(), "entry {entry} is empty");
        self.set(entry, number, state);
    }

    /// The state of a cell, if its member is lost.
    fn set_cell(&mut self, map: &Declustered, cell: CellAt, state: CellState) {
        if let Some(entry) = self.entry_of(map.member(cell)) {
            self.set(entry, map.cell_number(cell), state);
        }
    }

    fn set(&mut self, entry: usize, number: usize, state: CellState) {
        if let Some(entry) = &mut self.entries[entry] {
            entry.states[number] = state;
        }
    }
}
