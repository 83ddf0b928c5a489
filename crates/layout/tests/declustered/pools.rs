//! An array as numbers: a device holds for each cell which strip in which version it has.
//!
//! Writes are logged, then stored in place where a crash may forget them. The crate decides where
//! cells are; this model moves the numbers and knows what must be read. With a rule taken away it
//! does what an implementation without that rule would do.
//!
//! Not here: time, torn blocks, several operations at once.

use std::collections::BTreeSet;

use ashlar_layout::declustered::{
    CellAt, CellState, Declustered, DeviceState, GroupAt, Settled, SpareError, SpareTable,
    Whereabouts,
};
use ashlar_units::MemberIdx;

use crate::reference::Generator;

/// A rule of `declustered/states.rs` that is taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Without {
    /// All rules hold.
    Nothing,
    /// 1: only the first cell on the way of a rebuild is marked.
    WholeWay,
    /// 2: clean spare cells of a device that returns are trusted.
    DataColumnsOnly,
    /// 3: a device that was not whole is trusted.
    WholeOnly,
    /// 4: an entry becomes free when the cells in data columns are in place.
    SparesToo,
    /// 5: a state changes before its content is durable.
    DurableFirst,
    /// 5: a state changes while records of the log name the cell.
    SettledFirst,
}

/// What a cell of a device holds: 0, or a strip and its version.
type Content = u64;

/// A write that a crash may forget, or a record of the log.
#[derive(Clone, Copy, Debug)]
struct Write {
    device: usize,
    member: MemberIdx,
    cell: usize,
    content: Content,
}

#[derive(Clone, Debug)]
struct Device {
    /// Rises with every new device.
    id: usize,
    cells: Vec<Content>,
}

/// An array with its members, present and lost.
pub struct Pool<'a> {
    pub map: &'a Declustered,
    pub table: SpareTable,
    without: Without,
    devices: Vec<Option<Device>>,
    /// What a lost member's device holds that may return.
    away: Vec<Option<Device>>,
    /// Stripes that were written, or under way, since a member was lost.
    dirty: Vec<BTreeSet<u64>>,
    volatile: Vec<Write>,
    log: Vec<Write>,
    versions: Vec<u64>,
    groups: Vec<GroupAt>,
    devices_ever: usize,
    /// A cell that was rebuilt and is lost all the same.
    stuck: Option<CellAt>,
}

impl<'a> Pool<'a> {
    /// Every stripe is written once.
    pub fn new(map: &'a Declustered, without: Without) -> Pool<'a> {
        let members = map.parts().members;
        let cells = usize::try_from(map.cells()).unwrap();
        let device = |id| Some(Device { id, cells: vec![0; cells] });
        let groups: Vec<GroupAt> = (0..map.slices()).flat_map(|slice| map.groups(slice)).collect();
        let mut pool = Pool {
            map,
            table: SpareTable::new(map),
            without,
            devices: (0..members).map(device).collect(),
            away: vec![None; members],
            dirty: vec![BTreeSet::new(); members],
            volatile: Vec::new(),
            log: Vec::new(),
            versions: vec![0; usize::try_from(map.stripe_count()).unwrap()],
            groups,
            devices_ever: members,
            stuck: None,
        };
        for at in 0..pool.groups.len() {
            pool.write(at);
        }
        pool.settle();
        pool
    }

    /// Groups, which are stripes here: a cell has one row.
    pub fn stripes(&self) -> usize {
        self.groups.len()
    }

    fn number(&self, group: GroupAt) -> u64 {
        self.map.stripe_in(group, 0).0
    }

    fn cells_of(&self, group: GroupAt) -> impl Iterator<Item = CellAt> + use<'a> {
        let map = self.map;
        let width = u32::try_from(map.parts().width()).unwrap();
        (0..width).map(move |position| map.cell_of(group, position))
    }

    /// What the cell of a data column must hold.
    fn wanted(&self, cell: CellAt) -> Content {
        let (group, position) = self.map.group_of(cell).unwrap();
        let stripe = self.number(group);
        let version = self.versions[usize::try_from(stripe).unwrap()];
        (stripe + 1) << 32 | u64::from(position) << 24 | version
    }

    fn lost(&self, group: GroupAt) -> usize {
        let is_lost =
            |cell: &CellAt| !matches!(self.table.whereabouts(self.map, *cell), Whereabouts::At(_));
        self.cells_of(group).filter(is_lost).count()
    }

    /// A client writes a stripe. An error if it lost more than parity replaces.
    pub fn write(&mut self, at: usize) {
        let group = self.groups[at];
        if self.lost(group) > self.map.parts().parity_strips {
            return;
        }
        let stripe = self.number(group);
        self.versions[usize::try_from(stripe).unwrap()] += 1;
        for member in 0..self.dirty.len() {
            if self.table.entry_of(MemberIdx::from_at(member)).is_some() {
                self.dirty[member].insert(stripe);
            }
        }
        for cell in self.cells_of(group) {
            if let Whereabouts::At(place) = self.table.whereabouts(self.map, cell) {
                let write = self.store(place, self.wanted(cell));
                self.log.extend(write);
            }
        }
    }

    /// Stores something in a cell, where a crash may forget it.
    fn store(&mut self, place: CellAt, content: Content) -> Option<Write> {
        let member = self.map.member(place);
        let device = self.devices[member.at()].as_ref()?.id;
        let cell = self.map.cell_number(place);
        let write = Write { device, member, cell, content };
        self.volatile.push(write);
        Some(write)
    }

    fn read(&self, place: CellAt) -> Content {
        let member = self.map.member(place);
        let cell = self.map.cell_number(place);
        let Some(device) = &self.devices[member.at()] else { return 0 };
        let newest =
            self.volatile.iter().rev().find(|it| it.device == device.id && it.cell == cell);
        newest.map_or(device.cells[cell], |write| write.content)
    }

    fn apply(&mut self, write: Write) {
        if let Some(device) = &mut self.devices[write.member.at()]
            && device.id == write.device
        {
            device.cells[write.cell] = write.content;
        }
    }

    /// Makes everything durable in place and frees the log.
    pub fn settle(&mut self) {
        self.flush();
        self.log.clear();
    }

    fn flush(&mut self) {
        for write in std::mem::take(&mut self.volatile) {
            self.apply(write);
        }
    }

    /// A power cut: some of what is not durable is forgotten, then the log is replayed.
    pub fn crash(&mut self, chance: &mut Generator) {
        for write in std::mem::take(&mut self.volatile) {
            if chance.below(2) == 0 {
                self.apply(write);
            }
        }
        for write in std::mem::take(&mut self.log) {
            self.apply(write);
        }
    }

    /// A member is lost, unless a stripe would lose more than parity replaces.
    pub fn lose(&mut self, member: MemberIdx, chance: &mut Generator) {
        let before = self.table.clone();
        self.table.lose(self.map, member);
        let parity = self.map.parts().parity_strips;
        if self.groups.iter().any(|group| self.lost(*group) > parity) {
            self.table = before;
            return;
        }
        let Some(mut device) = self.devices[member.at()].take() else { return };
        let own = |write: &Write| write.device == device.id;
        for write in self.volatile.iter().filter(|write| own(write)) {
            if chance.below(2) == 0 {
                device.cells[write.cell] = write.content;
            }
        }
        // What was under way is marked in the write-intent bitmap.
        let under_way: Vec<u64> = self.log.iter().map(|write| (write.content >> 32) - 1).collect();
        let first_loss = before.entry_of(member).is_none();
        if first_loss {
            self.dirty[member.at()].clear();
        }
        self.dirty[member.at()].extend(under_way);
        self.volatile.retain(|write| write.device != device.id);
        self.away[member.at()] = Some(device);
    }

    /// The device that was lost returns with what it holds.
    pub fn return_stale(&mut self, member: MemberIdx) {
        let Some(entry) = self.table.entry_of(member) else { return };
        if self.devices[member.at()].is_some() || self.away[member.at()].is_none() {
            return;
        }
        let (map, dirty) = (self.map, &self.dirty[member.at()]);
        let stripe = |cell| Some(map.stripe_in(map.group_of(cell)?.0, 0).0);
        let is_clean = |cell| stripe(cell).is_none_or(|stripe| !dirty.contains(&stripe));
        let was_whole = self.table.entries().any(|(_, it)| it.member == member && it.was_whole);
        self.table.return_device(map, member, is_clean).expect("it is lost and has no device");
        let cells = usize::try_from(map.cells()).unwrap();
        for number in 0..cells {
            let cell = map.numbered_cell(member, number).expect("it never grew");
            let is_spare = map.spare_index(cell).is_some();
            let trust = match self.without {
                Without::DataColumnsOnly => is_spare && was_whole,
                Without::WholeOnly => !is_spare && !was_whole && is_clean(cell),
                _ => false,
            };
            if trust {
                self.table.load(entry, number, CellState::InPlace);
            }
        }
        self.devices[member.at()] = self.away[member.at()].take();
    }

    /// A new device comes in the place of a lost one.
    pub fn replace(&mut self, member: MemberIdx) {
        if self.devices[member.at()].is_some() || self.table.replace(member).is_err() {
            return;
        }
        self.away[member.at()] = None;
        let cells = vec![0; usize::try_from(self.map.cells()).unwrap()];
        self.devices[member.at()] = Some(Device { id: self.devices_ever, cells });
        self.devices_ever += 1;
    }

    /// What rule 5 asks for before a state changes.
    fn before_state(&mut self) -> Settled {
        match self.without {
            Without::DurableFirst => self.log.clear(),
            Without::SettledFirst => self.flush(),
            _ => self.settle(),
        }
        Settled
    }

    /// Rebuilds a cell of a data column if it is lost. Says whether it was.
    pub fn rebuild(&mut self, cell: CellAt) -> bool {
        let Whereabouts::LostTo(target) = self.table.whereabouts(self.map, cell) else {
            return false;
        };
        if self.without == Without::DurableFirst {
            self.settle();
        }
        self.store(target, self.wanted(cell));
        let settled = self.before_state();
        let before = self.table.clone();
        self.table.rebuilt(self.map, cell, settled).expect("it is lost");
        if self.without == Without::WholeWay {
            self.forget_all_but_first(&before, cell);
        }
        if !matches!(self.table.whereabouts(self.map, cell), Whereabouts::At(_)) {
            self.stuck = self.stuck.or(Some(cell));
        }
        true
    }

    fn forget_all_but_first(&mut self, before: &SpareTable, cell: CellAt) {
        let own = self.table.entry_of(self.map.member(cell));
        let states: Vec<_> = before.entries().map(|(at, entry)| (at, entry.clone())).collect();
        for (at, entry) in states.into_iter().filter(|(at, _)| Some(*at) != own) {
            for number in 0..usize::try_from(self.map.cells()).unwrap() {
                let state = entry.states()[number];
                self.table.load(at, number, state);
            }
        }
    }

    /// Rebuilds what is lost of a group, and says how much that was.
    pub fn rebuild_group(&mut self, at: usize) -> usize {
        let cells: Vec<CellAt> = self.cells_of(self.groups[at]).collect();
        cells.into_iter().filter(|cell| self.rebuild(*cell)).count()
    }

    /// Copies a cell back to the device of a lost member.
    pub fn copy_back(&mut self, member: MemberIdx, number: usize) {
        match self.table.copy_source(self.map, member, number) {
            Ok(None) => {}
            Ok(Some(source)) => {
                if self.without == Without::DurableFirst {
                    self.settle();
                }
                let content = self.read(source);
                let cell = self.map.numbered_cell(member, number).expect("it never grew");
                self.store(cell, content);
            }
            Err(_) => return,
        }
        let settled = self.before_state();
        self.table.copied_back(self.map, member, number, settled).expect("it has a source");
    }

    /// Frees the entry of a member whose cells are in place.
    pub fn complete(&mut self, member: MemberIdx) -> Result<(), SpareError> {
        let entry = self.table.entry_of(member).ok_or(SpareError::NotLost(member))?;
        if self.without == Without::SparesToo && self.devices[member.at()].is_some() {
            let numbers = 0..usize::try_from(self.map.cells()).unwrap();
            let is_spare = |number: &usize| {
                let cell = self.map.numbered_cell(member, *number);
                cell.is_some_and(|cell| self.map.spare_index(cell).is_some())
            };
            for number in numbers.filter(is_spare) {
                self.table.load(entry, number, CellState::InPlace);
            }
        }
        self.table.complete(member)
    }

    /// A cell that does not hold what it must, if there is one.
    pub fn wrong(&self) -> Option<String> {
        if let Some(cell) = self.stuck {
            return Some(format!("{cell:?} was rebuilt and is lost"));
        }
        let cells = self.groups.iter().flat_map(|group| self.cells_of(*group));
        for cell in cells {
            if let Whereabouts::At(place) = self.table.whereabouts(self.map, cell) {
                let (found, wanted) = (self.read(place), self.wanted(cell));
                if found != wanted {
                    return Some(format!("{cell:?} at {place:?} holds {found:x}, not {wanted:x}"));
                }
            }
        }
        None
    }

    /// Gives every lost member a device, rebuilds, copies back and completes. Says what does not
    /// heal.
    pub fn heal(&mut self) -> Result<(), String> {
        for _ in 0..=self.map.parts().members {
            let lost: Vec<MemberIdx> = self.table.entries().map(|(_, it)| it.member).collect();
            let Some(member) = lost.first().copied() else { return Ok(()) };
            for member in &lost {
                self.replace(*member);
            }
            for at in 0..self.groups.len() {
                self.rebuild_group(at);
            }
            for number in 0..usize::try_from(self.map.cells()).unwrap() {
                self.copy_back(member, number);
            }
            self.complete(member).map_err(|error| format!("member {member}: {error}"))?;
        }
        Err("members are lost that were completed".to_owned())
    }

    /// Whether a lost member has a device.
    pub fn is_filling(&self, member: MemberIdx) -> bool {
        let mut entries = self.table.entries();
        entries.any(|(_, it)| it.member == member && it.device == DeviceState::Filling)
    }
}
