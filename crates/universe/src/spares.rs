//! Arrays with distributed spares: which stripes lack how much, read from the devices by the test's
//! own hand, and what may be lost while the array runs.
//!
//! What must stay true: at rest nothing is taken from the engine. While the array runs, the engine
//! says how many losses it bears, and the director holds it to that: it takes as many, and then all
//! must be there. Whatever the engine cannot know of yet counts as lost besides.

use crate::drive_slot::{DriveSlots, Rest};
use ashlar_engine::SlotState;
use ashlar_layout::declustered::{CellState, Declustered, Loss, SpareTable};
use ashlar_ondisk::format::SPARE_STATE_PLACES;
use ashlar_ondisk::spare_table::take_state_bits;
use ashlar_ondisk::{BitmapPage, Role, SpareRecord};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, Nanos, to_usize};

/// The devices that a start may use, and the array on them.
struct Found<'r> {
    drive_slots: &'r DriveSlots,
    rest: &'r Rest,
    useless: &'r [usize],
    map: Declustered,
}

/// Whether a start without these devices must be refused; `None` if that depends on whether it
/// takes over the devices that are being filled. Of other arrays members are counted.
pub(crate) fn must_be_refused(
    drive_slots: &DriveSlots,
    rest: &Rest,
    useless: &[usize],
) -> Option<bool> {
    let slots = to_usize(rest.newest.geometry.slots().into());
    let mut out = drive_slots.out_at_rest(rest, slots);
    for at in useless {
        if let Some((slot, Role::Active)) = rest.places[*at] {
            out[slot] = true;
        }
    }
    let geometry = rest.newest.geometry.to_layout()?;
    let Some(map) = geometry.declustered().filter(|_| rest.newest.has_spare_table()) else {
        return Some(drive_slots.is_beyond(&out));
    };
    let parity = geometry.parity_strips();
    let is_listed = |slot: usize| rest.newest.spare_record(MemberIdx::from_at(slot)).is_some();
    let gone = || (0..slots).filter(|slot| out[*slot]);
    let is_new = |slot: &usize| out[*slot] && !is_listed(*slot);
    let domain = geometry.domain_members();
    let domains = (0..slots).step_by(domain);
    let is_too_many =
        domains.filter(|first| (*first..first + domain).any(|slot| is_new(&slot))).count() > parity;
    if is_too_many || gone().count() > rest.newest.geometry.spare_entries() {
        return Some(true);
    }
    let found = Found { drive_slots, rest, useless, map: *map };
    let [with, without] = [true, false].map(|is_filled| found.lacks(&out, is_filled) > parity);
    (with == without).then_some(with)
}

impl Found<'_> {
    /// Strips that some stripe lacks at most, without these slots.
    fn lacks(&self, out: &[bool], counts_filled: bool) -> usize {
        let is_filled = |slot: usize| counts_filled && self.has(slot, Role::Rebuilding);
        let table = self.table(is_filled);
        let is_missing = |slot: MemberIdx| out[slot.at()] && !is_filled(slot.at());
        table.most_lost(&self.map, is_missing, self.map.parts().parity_strips)
    }

    /// Whether a device that can be used has this role in the slot.
    fn has(&self, slot: usize, role: Role) -> bool {
        let is_it = |at: &usize| {
            self.rest.places[*at] == Some((slot, role))
                && self.drive_slots.all[*at].trouble.is_none()
                && !self.useless.contains(at)
        };
        (0..self.drive_slots.all.len()).any(|at| is_it(&at))
    }

    /// The spare table, from the devices of members that are in service.
    fn table(&self, is_filled: impl Fn(usize) -> bool) -> SpareTable {
        let records = &self.rest.newest.spares;
        let losses = records.iter().map(|it| Loss {
            member: it.slot,
            column: it.column.map(usize::from),
            was_whole: it.was_whole,
        });
        let mut table = SpareTable::of_losses(&self.map, losses);
        for record in records {
            let has_device = is_filled(record.slot.at());
            if has_device {
                table.replace(record.slot).expect("it has none yet");
            }
            for (cell, state) in self.states(record).into_iter().enumerate() {
                let is_gone = state == CellState::InPlace && !has_device;
                let entry = table.entry_of(record.slot).expect("it was just made");
                table.load(entry, cell, if is_gone { CellState::Missing } else { state });
            }
        }
        table
    }

    fn states(&self, record: &SpareRecord) -> Vec<CellState> {
        let mut states = vec![CellState::Missing; to_usize(self.map.cells())];
        for page in 0..self.rest.newest.geometry.spare_pages() {
            let sources = (0..self.rest.places.len()).filter(|at| self.is_source(*at));
            let all = sources.flat_map(|at| self.pages(at, record, page));
            if let Some(newest) = all.max_by_key(|page| page.sequence) {
                take_state_bits(&newest.bits, page, &mut states);
            }
        }
        states
    }

    fn is_source(&self, at: usize) -> bool {
        let is_active = matches!(self.rest.places[at], Some((_, Role::Active)));
        is_active && self.drive_slots.all[at].trouble.is_none() && !self.useless.contains(&at)
    }

    /// What a device has in the places of a page.
    fn pages(&self, at: usize, record: &SpareRecord, page: u64) -> Vec<BitmapPage> {
        let newest = &self.rest.newest;
        let Some(own) = &self.rest.own[at] else { return Vec::new() };
        let tag = newest.page_tag(own.member_uuid);
        let identity = record.page_identity(&newest.geometry, tag, page);
        let first = record.pages_extent(newest).offset + page * SPARE_STATE_PLACES * BLOCK_BYTES;
        let place = |place: u64| {
            let extent = Extent::new(first + place * BLOCK_BYTES, BLOCK_BYTES);
            identity.decode(&self.drive_slots.all[at].disk.peek(extent)).ok()
        };
        (0..SPARE_STATE_PLACES).filter_map(place).filter(|it| it.sequence > 0).collect()
    }
}

impl DriveSlots {
    /// Whether the slot may be lost now, of an array that says how many losses it bears. A slot
    /// that is out costs nothing more, unless its device comes back with what is broken on it.
    pub(crate) fn may_lose_of(
        &self,
        (slot, states): (usize, &[SlotState]),
        bears: Option<usize>,
        now: Nanos,
    ) -> bool {
        let is_out = |slot: usize| matches!(states[slot], SlotState::Out | SlotState::Failing);
        let spent = self.spent_of(states, Some(slot), now);
        is_out(slot) || bears.is_some_and(|bears| spent <= bears)
    }

    /// Whether a spare may have a trouble now, of such an array: it may be in a slot soon.
    pub(crate) fn may_lose_spare(
        &self,
        states: &[SlotState],
        bears: Option<usize>,
        now: Nanos,
    ) -> bool {
        let may_fill = states.iter().any(|state| *state != SlotState::InSync);
        !may_fill || bears.is_some_and(|bears| self.spent_of(states, None, now) < bears)
    }

    /// Losses that the array may have to bear besides the slots that are out, this slot among them.
    fn spent_of(&self, states: &[SlotState], slot: Option<usize>, now: Nanos) -> usize {
        let is_out = |slot: usize| matches!(states[slot], SlotState::Out | SlotState::Failing);
        let is_spent = |other: &usize| {
            let may_go = Some(*other) == slot || self.is_uncertain(*other, now);
            may_go && !is_out(*other) || self.is_broken(*other)
        };
        // A spare takes a slot that is out, and is whole there before it fails: then what was on
        // distributed spares is on it alone (seed 914410444 of declustered universes).
        let is_filled =
            |(at, state): (usize, &SlotState)| Some(at) != slot && *state != SlotState::InSync;
        let may_fill = states.iter().enumerate().any(is_filled);
        let spares = if may_fill { self.spares_in_trouble(now) } else { 0 };
        (0..states.len()).filter(is_spent).count() + spares
    }
}
