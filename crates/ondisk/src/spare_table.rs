//! The spare table of an array with distributed spares, and its pages of states: which members are
//! lost, which spare column each of them has, and where each of their cells is.
//!
//! What must stay true: a slot has an entry from the update that records its member as out until
//! the update that records a member as in service there. A page of states names the update that
//! made its entry, so pages of an earlier loss do not count. Two bits with a code that has no
//! meaning count as missing, as a page does that is not there: so the worst that damage of pages
//! does is a rebuild, or a refusal to start.
//!
//! Not here: what changes states (`ashlar_layout::declustered`), when (the engine).

use ashlar_layout::declustered::CellState;
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, to_u64, to_usize};

use crate::bitmap::{BitmapKind, PageBits, PageIdentity, WORDS_PER_PAGE};
use crate::features::Features;
use crate::format::{
    BITS_PER_PAGE, NO_COLUMN, RawSpareEntry, SPARE_ENTRIES_MAX, SPARE_FLAG_IN_USE,
    SPARE_FLAG_WAS_WHOLE, SPARE_STATE_PLACES,
};
use crate::geometry::{GeometryRecord, SpreadRecord};
use crate::member::{MemberEvent, Role};
use crate::superblock::Superblock;

/// Cells whose states one page holds.
pub const CELLS_PER_PAGE: u64 = BITS_PER_PAGE / 2;
/// Cells whose states one word holds.
const CELLS_PER_WORD: usize = 32;

/// One lost member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SpareRecord {
    /// Its entry: where its pages of states lie.
    pub entry: usize,
    /// Its slot.
    pub slot: MemberIdx,
    /// Its spare column, if one was free.
    pub column: Option<u8>,
    /// Whether every cell was in its place when it was lost.
    pub was_whole: bool,
    /// Generation of the update that made the entry.
    pub since: u64,
}

impl GeometryRecord {
    /// Cells of each member, those behind the last whole slice counted as well; 0 if the array is
    /// not declustered.
    pub fn cells(&self) -> u64 {
        let rows_of = |cell_rows: u32| self.rows / u64::from(cell_rows.max(1));
        self.spread.map_or(0, |spread| rows_of(spread.cell_rows))
    }

    /// Entries of the spare table of an array of this geometry: one for each member whose cells
    /// spare columns can take, and one for each further loss that parity bears. Both are counted in
    /// whole failure domains.
    pub fn spare_entries(&self) -> usize {
        let of = |spread: SpreadRecord| {
            let domains = usize::from(spread.spare_columns) + usize::from(self.parity_strips);
            domains * usize::from(spread.domain_members)
        };
        self.spread.map_or(0, of)
    }

    /// The failure domain of a slot.
    fn domain_of(&self, slot: MemberIdx) -> usize {
        slot.at() / usize::from(self.spread.map_or(1, |spread| spread.domain_members.max(1)))
    }

    /// Pages of states that one entry has.
    pub fn spare_pages(&self) -> u64 {
        self.cells().div_ceil(CELLS_PER_PAGE)
    }

    /// Bytes of the area of states.
    pub(crate) fn spare_states_bytes(&self) -> u64 {
        to_u64(self.spare_entries()) * self.spare_pages() * SPARE_STATE_PLACES * BLOCK_BYTES
    }
}

impl SpareRecord {
    /// What a page of states of the entry is named on the member of this
    /// [`page_tag`](Superblock::page_tag).
    ///
    /// # Panics
    /// If the area has 2^32 pages or more, which no member has room for.
    pub fn page_identity(
        &self,
        geometry: &GeometryRecord,
        page_tag: u64,
        page: u64,
    ) -> PageIdentity {
        let number = to_u64(self.entry) * geometry.spare_pages() + page;
        PageIdentity {
            kind: BitmapKind::SpareStates,
            owner_tag: page_tag ^ self.life_tag(),
            page: u32::try_from(number).expect("areas hold fewer than 2^32 pages"),
        }
    }

    /// What tells its pages from those of earlier entries in the same place.
    pub fn life_tag(&self) -> u64 {
        // Multiplying by an odd number keeps different updates apart.
        self.since.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// Where the places of all its pages lie on each member: page by page, `SPARE_STATE_PLACES` of
    /// 4 KiB each.
    pub fn pages_extent(&self, superblock: &Superblock) -> Extent {
        let bytes = superblock.geometry.spare_pages() * SPARE_STATE_PLACES * BLOCK_BYTES;
        let area = superblock.areas.spare_states;
        Extent::new(area.offset + to_u64(self.entry) * bytes, bytes)
    }

    pub(crate) fn to_raw(self) -> RawSpareEntry {
        let whole = if self.was_whole { SPARE_FLAG_WAS_WHOLE } else { 0 };
        RawSpareEntry {
            slot: self.slot.0.into(),
            flags: SPARE_FLAG_IN_USE | whole,
            column: self.column.unwrap_or(NO_COLUMN),
            reserved_0: [0; 4],
            since: self.since.into(),
        }
    }

    /// The entry in `raw`, `None` if it is not in use, or the name of the field that makes no
    /// sense.
    pub(crate) fn from_raw(
        entry: usize,
        raw: &RawSpareEntry,
        lenient: bool,
    ) -> Result<Option<SpareRecord>, &'static str> {
        let known = SPARE_FLAG_IN_USE | SPARE_FLAG_WAS_WHOLE;
        if !lenient && (raw.reserved_0 != [0; 4] || raw.flags & !known != 0) {
            return Err("spare_table.reserved");
        }
        if raw.flags & SPARE_FLAG_IN_USE == 0 {
            let is_empty =
                raw.flags == 0 && raw.slot.get() == 0 && raw.column == 0 && raw.since.get() == 0;
            return if lenient || is_empty { Ok(None) } else { Err("spare_table.reserved") };
        }
        Ok(Some(SpareRecord {
            entry,
            slot: MemberIdx(raw.slot.get()),
            column: Some(raw.column).filter(|column| *column != NO_COLUMN),
            was_whole: raw.flags & SPARE_FLAG_WAS_WHOLE != 0,
            since: raw.since.get(),
        }))
    }
}

impl Superblock {
    /// Whether there is a spare table: with distributed spares, or since the array grew.
    pub fn has_spare_table(&self) -> bool {
        self.features.incompatible & Features::DISTRIBUTED_SPARES != 0
    }

    /// The entry of a slot, if its member is lost.
    pub fn spare_record(&self, slot: MemberIdx) -> Option<&SpareRecord> {
        self.spares.iter().find(|record| record.slot == slot)
    }

    /// Whether one more member can get an entry.
    pub fn has_spare_entry(&self) -> bool {
        self.spares.len() < self.geometry.spare_entries()
    }

    /// `event` happened to a member of the slot that had this role: the table follows.
    pub(crate) fn follow_in_spare_table(
        &mut self,
        slot: MemberIdx,
        before: Role,
        event: MemberEvent,
    ) {
        if !self.has_spare_table() {
            return;
        }
        match (before, event) {
            (Role::Active, MemberEvent::Lost) => self.enter_spare_table(slot),
            (Role::Rebuilding, MemberEvent::Lost) => {
                let own = self.spares.iter_mut().find(|record| record.slot == slot);
                own.into_iter().for_each(|record| record.was_whole = false);
            }
            (_, MemberEvent::Completed | MemberEvent::Believed) => {
                self.spares.retain(|record| record.slot != slot);
                self.promote_waiting();
            }
            _ => {}
        }
    }

    fn enter_spare_table(&mut self, slot: MemberIdx) {
        let is_used = |entry: usize| self.spares.iter().any(|record| record.entry == entry);
        let free = (0..self.geometry.spare_entries()).find(|entry| !is_used(*entry));
        // A start with more losses is refused, and no member goes out beyond that.
        let entry = free.expect("no more members go out than there are entries");
        let column = self.column_for(slot);
        self.spares.push(SpareRecord {
            entry,
            slot,
            column,
            was_whole: true,
            since: self.generation,
        });
        self.spares.sort_unstable_by_key(|record| record.entry);
    }

    /// The spare column for a member of a slot: the one that others of its failure domain have,
    /// else one that nobody has. Members of a domain have no cells in the same sub-slice.
    fn column_for(&self, slot: MemberIdx) -> Option<u8> {
        let domain_of = |slot| self.geometry.domain_of(slot);
        let of_domain = |record: &&SpareRecord| domain_of(record.slot) == domain_of(slot);
        let shared = self.spares.iter().filter(of_domain).find_map(|record| record.column);
        let columns = self.geometry.spread.map_or(0, |spread| spread.spare_columns);
        let columns = u8::try_from(columns).expect("checked to be few");
        let is_free = |column: &u8| self.spares.iter().all(|it| it.column != Some(*column));
        shared.or_else(|| (0..columns).find(is_free))
    }

    /// A column that became free goes to the first entry without one, and to others of its domain.
    fn promote_waiting(&mut self) {
        for at in 0..self.spares.len() {
            let SpareRecord { slot, column, .. } = self.spares[at];
            self.spares[at].column = column.or_else(|| self.column_for(slot));
        }
    }

    /// The name of the first field of the spare table or its area that is impossible.
    pub(crate) fn check_spare_table(&self) -> Result<(), &'static str> {
        let columns = self.geometry.spread.map_or(0, |spread| spread.spare_columns);
        if !self.has_spare_table() {
            let is_empty = self.spares.is_empty() && self.areas.spare_states == Extent::default();
            return if is_empty { Ok(()) } else { Err("spare_table") };
        }
        if self.geometry.spread.is_none() || self.geometry.spare_entries() > SPARE_ENTRIES_MAX {
            return Err("spare_columns");
        }
        if self.areas.spare_states.bytes < self.geometry.spare_states_bytes() {
            return Err("areas.spare_states");
        }
        for (at, record) in self.spares.iter().enumerate() {
            let others = &self.spares[..at];
            let domain_of = |record: &SpareRecord| self.geometry.domain_of(record.slot);
            let is_twice = others.iter().any(|other| {
                let has_its_column = other.column.is_some() && other.column == record.column;
                other.slot == record.slot
                    || other.entry == record.entry
                    || has_its_column && domain_of(other) != domain_of(record)
            });
            let is_column = record.column.is_none_or(|column| u16::from(column) < columns);
            let is_entry = record.entry < self.geometry.spare_entries();
            if is_twice || !is_column || !is_entry || record.slot.0 >= self.geometry.slots() {
                return Err("spare_table");
            }
            if record.since == 0 || record.since > self.generation {
                return Err("spare_table.since");
            }
        }
        let is_lost =
            |slot: MemberIdx| self.holder(slot).is_none_or(|holder| holder.role != Role::Active);
        let slots = (0..self.geometry.slots()).map(MemberIdx);
        let mut differing =
            slots.filter(|slot| is_lost(*slot) != self.spare_record(*slot).is_some());
        if differing.next().is_some() { Err("spare_table.slot") } else { Ok(()) }
    }
}

/// The bits of page `page` of an entry whose cells have these states.
pub fn state_bits(states: &[CellState], page: u64) -> PageBits {
    let mut bits = [0; WORDS_PER_PAGE];
    let first = to_usize(page * CELLS_PER_PAGE);
    let own = states.iter().skip(first).take(to_usize(CELLS_PER_PAGE));
    for (at, state) in own.enumerate() {
        let code = match state {
            CellState::Missing => 0,
            CellState::OnSpare => 1,
            CellState::InPlace => 2,
        };
        bits[at / CELLS_PER_WORD] |= code << (2 * (at % CELLS_PER_WORD));
    }
    bits
}

/// The states that page `page` gives to cells, for as many as `states` has.
pub fn take_state_bits(bits: &PageBits, page: u64, states: &mut [CellState]) {
    let first = to_usize(page * CELLS_PER_PAGE);
    let own = states.iter_mut().skip(first).take(to_usize(CELLS_PER_PAGE));
    for (at, state) in own.enumerate() {
        *state = match bits[at / CELLS_PER_WORD] >> (2 * (at % CELLS_PER_WORD)) & 3 {
            1 => CellState::OnSpare,
            2 => CellState::InPlace,
            _ => CellState::Missing,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::{CELLS_PER_PAGE, state_bits, take_state_bits};
    use ashlar_layout::declustered::CellState::{self, InPlace, Missing, OnSpare};
    use ashlar_units::to_usize;

    #[test]
    fn states_come_back_across_pages_and_a_code_without_meaning_is_missing() {
        let cells = to_usize(CELLS_PER_PAGE) + 100;
        let states: Vec<CellState> =
            (0..cells).map(|at| [Missing, OnSpare, InPlace][at % 7 % 3]).collect();
        let mut back = vec![InPlace; cells];
        for page in 0..2 {
            take_state_bits(&state_bits(&states, page), page, &mut back);
        }
        assert_eq!(back, states);
        let mut bits = state_bits(&states, 0);
        bits[0] |= 3 << 2;
        take_state_bits(&bits, 0, &mut back);
        assert_eq!(back[1], Missing);
    }
}
