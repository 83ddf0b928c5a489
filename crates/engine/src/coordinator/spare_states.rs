//! Changes of the spare table that no superblock says: devices that join, states of cells.
//!
//! What must stay true:
//! - Entries come and go with the superblock update that says so (`Array::follow_spares`). States
//!   change by [`commit`] alone, one change at a time (`Coordinator::spare_gate`).
//! - A state changes in memory only when all of this is so. The content is flushed on every member.
//!   No record of the log that was there then counts any more (rule 5). The page is durable on all
//!   members. No member was lost meanwhile.
//! - Until then writes go to the old place and to the new one, so it does not matter which of the
//!   two a start after a crash finds. A member that is lost meanwhile is needed by neither.
//! - No page says that a cell is in place on a device that was there earlier: pages are stored anew
//!   before a device joins.
//! - Of the two places of a page the one with the newest content is never written over.
//!
//! Not here: what fills cells (`background/spare_filling.rs`).

use super::holders::devices_in_service;
use super::map_writer::{self, PageToStore};
use super::messages::{ArrayLost, everywhere};
use super::writes::DeviceWrites;
use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::coordinator::holders::lose;
use crate::intent::RegionNo;
use crate::local_array::LocalArray;
use crate::member::SlotState;
use crate::spare_cells::SpareCells;
use crate::spare_pages::NewestPlaces;
use crate::stripe::work::{Answer, StripeWork};
use ashlar_device::Command;
use ashlar_layout::declustered::{CellAt, CellState, Declustered, SpareTable};
use ashlar_ondisk::format::SPARE_STATE_PLACES;
use ashlar_ondisk::spare_table::state_bits;
use ashlar_ondisk::{BitmapKind, SpareRecord};
use ashlar_units::{BLOCK_BYTES, MemberIdx};
use std::collections::BTreeSet;
use std::rc::Rc;

/// A device has joined the slot of a lost member: what is written goes to it as well from now on.
/// Every worker has the device, and has heard of this when it returns.
pub(crate) async fn attach(local: &Rc<LocalArray>, member: MemberIdx) {
    let Some(cells) = &local.array.spare_cells else { return };
    {
        let _gate = local.coordinator().gate.acquire().await;
        let mut next = cells.table().clone();
        let is_there = local.array.slot(member).state() == SlotState::Rebuilding;
        if !is_there || next.replace(member).is_err() {
            return;
        }
        cells.set(next);
    }
    // Writes that were planned without it have entered their regions then.
    everywhere(local, |_| {}).await;
}

/// The device that has joined is the one that was lost: cells of clean regions are trusted.
///
/// # Errors
/// As [`commit`].
pub(crate) async fn trust(local: &Rc<LocalArray>, member: MemberIdx) -> Result<bool, ArrayLost> {
    let Some(cells) = &local.array.spare_cells else { return Ok(true) };
    let version = cells.version();
    let dirty: BTreeSet<RegionNo> = local.array.intent.durable_regions().into_iter().collect();
    let mut next = cells.table().clone();
    let map = cells.map();
    let is_clean = |cell: CellAt| is_clean(&local.array, &map, &dirty, cell);
    let trusted = next.trust(&map, member, is_clean);
    if sings(Canary::SpareCellsTrusted) {
        trust_spare_cells(&map, member, &mut next);
    }
    match trusted {
        Ok(_) => commit(local, next, version).await,
        Err(_) => Ok(false),
    }
}

/// A fault planted on purpose.
fn trust_spare_cells(map: &Declustered, member: MemberIdx, table: &mut SpareTable) {
    let Some(entry) = table.entry_of(member) else { return };
    for number in 0..ashlar_units::to_usize(map.cells()) {
        let cell = map.numbered_cell(member, number);
        if cell.is_some_and(|cell| map.spare_index(cell).is_some()) {
            table.load(entry, number, CellState::InPlace);
        }
    }
}

/// Whether no write to the stripes of a cell was marked. Regions between them count as well.
fn is_clean(array: &Array, map: &Declustered, dirty: &BTreeSet<RegionNo>, cell: CellAt) -> bool {
    let Some((group, _)) = map.group_of(cell) else { return false };
    if sings(Canary::DirtyCellsTrusted) {
        return true;
    }
    let rows = map.parts().cell_rows;
    let [first, last] = [0, rows - 1]
        .map(|row| array.intent.region_of(array.layouts.recorded(map.stripe_in(group, row))));
    dirty.range(first..=last).next().is_none()
}

/// Have the table be `next`, which was made of the one of this version. The content of cells whose
/// state differs is where `next` says, stored if not flushed. The caller holds the spare gate.
/// False: it stays as it was, for something else has happened.
///
/// # Errors
/// [`ArrayLost`] if the members cannot take it.
pub(crate) async fn commit(
    local: &Rc<LocalArray>,
    next: SpareTable,
    version: u64,
) -> Result<bool, ArrayLost> {
    let array = &local.array;
    let cells = array.spare_cells.as_ref().expect("asked only where there are spares");
    if !sings(Canary::CellFlippedUnrecorded) {
        map_writer::flush(local).await.map_err(|_| ArrayLost)?;
    }
    if !settle(local).await {
        return Err(ArrayLost);
    }
    {
        // A member that was lost since `next` was made is not to be found in place by a start.
        let _gate = local.coordinator().gate.acquire().await;
        if cells.version() != version {
            return Ok(false);
        }
        cells.set_coming_table(Some(next.clone()));
    }
    // After an error it is judged by both tables until a later commit: the pages may say either.
    let pages = changed_pages(local, cells, &next);
    if !sings(Canary::CellFlippedUnrecorded) && !store(local, pages).await {
        return Err(ArrayLost);
    }
    let is_current = {
        let _gate = local.coordinator().gate.acquire().await;
        // A write that failed somewhere, with nobody to put out, may be on one of the places only.
        let is_current = cells.version() == version && !array.has_failed();
        if is_current {
            cells.set(next);
        }
        is_current
    };
    if !is_current {
        store_all(local).await?;
    }
    cells.set_coming_table(None);
    Ok(is_current)
}

/// No record of the log that is there now counts any more, on any worker.
pub(crate) async fn settle(local: &Rc<LocalArray>) -> bool {
    let Some(shape) = local.array.log else { return true };
    let settling = (0..shape.log_rings)
        .map(|owner| local.worker.hand_to(owner, local, StripeWork::Settle))
        .collect::<Vec<_>>();
    let mut is_settled = true;
    for answer in settling {
        is_settled &= matches!(answer.await, Some(Answer::Done));
    }
    is_settled
}

/// Whoever held rows of a stripe when this was asked has let them go, on every worker: reads under
/// a row lock that found a strip in its former place have ended.
pub(crate) async fn let_holders_pass(local: &Rc<LocalArray>) {
    let passing = (0..local.array.owners())
        .map(|owner| local.worker.hand_to(owner, local, StripeWork::PassBy))
        .collect::<Vec<_>>();
    for answer in passing {
        // A worker that has ended holds nothing.
        let _passed = answer.await;
    }
}

/// A page of states that is to be stored.
struct StatesPage {
    record: SpareRecord,
    page: u64,
    bits: Box<ashlar_ondisk::bitmap::PageBits>,
}

/// The pages in which the table differs from the one that is in force.
fn changed_pages(local: &LocalArray, cells: &SpareCells, next: &SpareTable) -> Vec<StatesPage> {
    let all = pages_of(local, next);
    let before = pages_of(local, &cells.table());
    let is_new = |page: &StatesPage| {
        !before.iter().any(|old| {
            (old.record.slot, old.page) == (page.record.slot, page.page) && old.bits == page.bits
        })
    };
    all.into_iter().filter(is_new).collect()
}

fn pages_of(local: &LocalArray, table: &SpareTable) -> Vec<StatesPage> {
    let superblock = local.coordinator().superblock.borrow();
    let mut pages = Vec::new();
    for (_, entry) in table.entries() {
        let Some(record) = superblock.spare_record(entry.member) else { continue };
        for page in 0..superblock.geometry.spare_pages() {
            let bits = Box::new(state_bits(entry.states(), page));
            pages.push(StatesPage { record: *record, page, bits });
        }
    }
    pages
}

/// Store pages durably on every member in service, each in the place whose turn it is.
async fn store(local: &Rc<LocalArray>, pages: Vec<StatesPage>) -> bool {
    if pages.is_empty() {
        return true;
    }
    let next_place = &local.coordinator().next_spare_places;
    let to_store = |page: &StatesPage| {
        let number = number_of(local, page);
        let place = next_place.borrow().get(&number).copied().unwrap_or(0);
        let offset = offset_of(local, number) + place * BLOCK_BYTES;
        let page_at = usize::try_from(number).expect("areas hold few pages");
        let kind = BitmapKind::SpareStates;
        PageToStore::new(local.coordinator(), kind, page_at, offset, &page.bits[..])
            .of_life(page.record.life_tag())
    };
    let stored: Vec<PageToStore> = pages.iter().map(to_store).collect();
    let is_kept = map_writer::write_everywhere(local, &stored, true).await;
    if is_kept {
        for page in &pages {
            let mut places = next_place.borrow_mut();
            let place = places.entry(number_of(local, page)).or_insert(0);
            *place = (*place + 1) % SPARE_STATE_PLACES;
        }
    }
    is_kept
}

/// Number of the page in its area.
fn number_of(local: &LocalArray, page: &StatesPage) -> u32 {
    let geometry = local.coordinator().superblock.borrow().geometry;
    page.record.page_identity(&geometry, 0, page.page).page
}

/// Where the first place of a page lies, bytes from the member's start.
fn offset_of(local: &LocalArray, number: u32) -> u64 {
    let area = local.coordinator().superblock.borrow().areas.spare_states;
    area.offset + u64::from(number) * SPARE_STATE_PLACES * BLOCK_BYTES
}

/// Store all pages of the table as it is, in both places. The caller holds the spare gate.
///
/// # Errors
/// [`ArrayLost`] if the members cannot take them.
pub(crate) async fn store_all(local: &Rc<LocalArray>) -> Result<(), ArrayLost> {
    let Some(cells) = &local.array.spare_cells else { return Ok(()) };
    for _ in 0..SPARE_STATE_PLACES {
        let pages = pages_of(local, &cells.table());
        if !store(local, pages).await {
            return Err(ArrayLost);
        }
    }
    Ok(())
}

/// At a start: all pages, in both places of each. On each member the place goes last that had the
/// newest content. From then on they are alike on all members.
///
/// # Errors
/// [`ArrayLost`] if the members cannot take them.
pub(crate) async fn store_all_at_start(
    local: &Rc<LocalArray>,
    newest_places: &NewestPlaces,
) -> Result<(), ArrayLost> {
    let Some(cells) = &local.array.spare_cells else { return Ok(()) };
    let pages = pages_of(local, &cells.table());
    for turn in 1..=SPARE_STATE_PLACES {
        if !pages.is_empty() {
            store_in_turn(local, &pages, newest_places, turn).await?;
        }
    }
    Ok(())
}

async fn store_in_turn(
    local: &Rc<LocalArray>,
    pages: &[StatesPage],
    newest_places: &NewestPlaces,
    turn: u64,
) -> Result<(), ArrayLost> {
    let geometry = local.coordinator().superblock.borrow().geometry;
    let mut under_way = Vec::new();
    for (holder, device) in devices_in_service(local) {
        let mut writes = DeviceWrites::new(holder.member, &device);
        for page in pages {
            let identity = page.record.page_identity(&geometry, holder.page_tag, page.page);
            let newest = newest_places.get(&(holder.page_tag, identity.page)).copied();
            let place = (newest.unwrap_or(0) + turn) % SPARE_STATE_PLACES;
            let offset = offset_of(local, identity.page) + place * BLOCK_BYTES;
            let sequence = local.coordinator().next_page_sequence();
            let bytes = crate::control_io::aligned(&identity.encode(sequence, &page.bits));
            writes.start(local, offset, bytes);
        }
        under_way.push((holder, device, writes));
    }
    let mut is_kept = true;
    for (holder, device, writes) in under_way {
        let stored = match writes.finish(local).await {
            Ok(()) => {
                let flush = local.start_on(device.as_ref(), 0, Command::Flush);
                super::record::ended(vec![flush]).await
            }
            Err(fault) => Err(fault),
        };
        if let Err(fault) = stored {
            is_kept &= lose(local, holder, "a page of states of cells", fault).await;
        }
    }
    if is_kept { Ok(()) } else { Err(ArrayLost) }
}
