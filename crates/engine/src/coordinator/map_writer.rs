//! Writes bitmap and map pages to the members, runs flush rounds, and sweeps idle regions clean.
//!
//! What must stay true: a page goes to every member in service, also to members that are being
//! filled. A member that cannot take it is out. Each page records which member it belongs to.
//! Setting a write-intent bit is durable before the caller goes on. Clearing one follows a flush of
//! the data that it covered.

use super::checksum_pages;
use super::proof;
use super::record::{self, ended};
use super::writes::DeviceWrites;
use crate::canary::{Canary, sings};
use crate::control_io::aligned;
use crate::coordinator::holders::{devices_in_service, lose};
use crate::coordinator::messages::{ArrayLost, on_coordinator};
use crate::coordinator::state::{Change, Coordinator};
use crate::intent::RegionNo;
use crate::local_array::LocalArray;
use crate::watch;
use ashlar_device::Command;
use ashlar_iobuf::Buf;
use ashlar_ondisk::bitmap::{PageBits, WORDS_PER_PAGE};
use ashlar_ondisk::{BitmapKind, ConsistencyPolicy, PageIdentity};
use ashlar_units::{BLOCK_BYTES, to_u64};
use ashlar_volume::VolumeErrorKind;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// Time between two looks for idle regions: a region is cleaned after one to two of these.
const SWEEP_EVERY: Duration = Duration::from_secs(2);

/// Make the region's write-intent bit durable on the members.
///
/// # Errors
/// [`ArrayLost`] if it cannot be.
pub(crate) async fn make_durable(
    local: &Rc<LocalArray>,
    region: RegionNo,
) -> Result<(), ArrayLost> {
    let made = on_coordinator(local, async move |local: Rc<LocalArray>| {
        local.array.intent.set_pending(region);
        let rounds = &local.coordinator().intent_rounds;
        rounds.join(|| write_pending(Rc::clone(&local))).await
    });
    match made.await {
        Some(true) => Ok(()),
        Some(false) | None => Err(ArrayLost),
    }
}

/// One round: all pending bits, page by page; with a joining device all bits there are. The round
/// before may have made bits durable where the joining device was not yet; it is over only now.
async fn write_pending(local: Rc<LocalArray>) -> bool {
    let intent = &local.array.intent;
    if local.coordinator().take_joining_device() {
        intent.durable_regions().into_iter().for_each(|region| intent.set_pending(region));
    }
    let pending = intent.pending_regions();
    let pages: BTreeSet<usize> = pending.iter().map(|region| intent.page_of(*region)).collect();
    if local.coordinator().superblock.borrow().policy != ConsistencyPolicy::None
        && !sings(Canary::IntentSkipped)
        && !write_intent_pages(&local, pages, true).await
    {
        return false;
    }
    for region in pending {
        intent.set_durable(region);
    }
    true
}

async fn write_intent_pages(
    local: &Rc<LocalArray>,
    pages: BTreeSet<usize>,
    is_durable: bool,
) -> bool {
    let _turn = local.coordinator().intent_pages.acquire().await;
    let area = local.coordinator().superblock.borrow().areas.write_intent.offset;
    let to_store = |page: usize| {
        let words = local.array.intent.page_words(page);
        let offset = area + to_u64(page) * BLOCK_BYTES;
        PageToStore::new(local.coordinator(), BitmapKind::WriteIntent, page, offset, &words)
    };
    let pages: Vec<PageToStore> = pages.into_iter().map(to_store).collect();
    local.counts().intent_page_writes.add(to_u64(pages.len()));
    write_everywhere(local, &pages, is_durable).await
}

/// A page that every member is to get, each with its own name in it.
pub(super) struct PageToStore {
    /// Where, bytes from a member's start.
    offset: u64,
    /// What tells it from pages of an earlier use of its place; 0 if it has one use only.
    life: u64,
    kind: BitmapKind,
    page: u32,
    sequence: u64,
    bits: Box<PageBits>,
}

impl PageToStore {
    pub(super) fn new(
        coordinator: &Coordinator,
        kind: BitmapKind,
        page: usize,
        offset: u64,
        words: &[u64],
    ) -> PageToStore {
        let page = u32::try_from(page).expect("areas hold fewer than 2^32 pages");
        let mut bits = Box::new([0; WORDS_PER_PAGE]);
        bits[..words.len()].copy_from_slice(words);
        let sequence = coordinator.next_page_sequence();
        PageToStore { offset, life: 0, kind, page, sequence, bits }
    }

    /// The same, of this use of its place.
    pub(super) fn of_life(self, life: u64) -> PageToStore {
        PageToStore { life, ..self }
    }

    /// Its bytes on the member of that tag.
    fn encode(&self, owner_tag: u64) -> Buf {
        let owner_tag = owner_tag ^ self.life;
        let identity = PageIdentity { kind: self.kind, owner_tag, page: self.page };
        aligned(&identity.encode(self.sequence, &self.bits))
    }
}

/// Write pages to every device in service, then flush it if asked. A member that fails goes out;
/// false if the array cannot do without it.
pub(super) async fn write_everywhere(
    local: &Rc<LocalArray>,
    pages: &[PageToStore],
    is_durable: bool,
) -> bool {
    let mut under_way = Vec::new();
    for (holder, device) in devices_in_service(local) {
        let mut writes = DeviceWrites::new(holder.member, &device);
        for page in pages {
            writes.start(local, page.offset, page.encode(holder.page_tag));
        }
        under_way.push((holder, device, writes));
    }
    for (_, _, writes) in &mut under_way {
        writes.end(&local.array).await;
    }
    let mut flushes = Vec::new();
    let mut is_kept = true;
    for (holder, device, writes) in under_way {
        if let Err(fault) = writes.finish(local).await {
            is_kept &= lose(local, holder, "a bitmap page", fault).await;
        } else if is_durable {
            let flush = local.start_on(device.as_ref(), 0, Command::Flush);
            flushes.push((holder, flush));
        } else {
            local.array.slot(holder.member).set_unflushed();
        }
    }
    for (holder, flush) in flushes {
        if let Err(fault) = ended(vec![flush]).await {
            is_kept &= lose(local, holder, "a flush", fault).await;
        }
    }
    is_kept
}

/// Make everything durable that was answered before now; rounds of several callers are shared.
///
/// # Errors
/// `Io` if the promise cannot be kept.
pub(crate) async fn flush(local: &Rc<LocalArray>) -> Result<(), VolumeErrorKind> {
    let rounds = &local.coordinator().flush_rounds;
    if rounds.join(|| flush_round(Rc::clone(local))).await {
        Ok(())
    } else {
        Err(VolumeErrorKind::Io)
    }
}

async fn flush_round(local: Rc<LocalArray>) -> bool {
    // Before the flush: a stripe that is first written while it runs is not durable when it ends,
    // and must not be called written by this round.
    let mark = local.array.caches.mark();
    let (numbers, pages) = take_written_pages(&local);
    // After the written map was looked at, before the flush: what is called written has its
    // checksums.
    let sums = store_checksums(&local).await;
    let mut is_kept = sums.is_kept && flush_members(&local).await;
    if is_kept && !pages.is_empty() {
        local.counts().written_page_writes.add(to_u64(pages.len()));
        // A read-only array records nothing: not what the kept map of the run before says, and not
        // which members were missing when it said so.
        is_kept = !local.array.is_read_only() && write_everywhere(&local, &pages, true).await;
    }
    sums.end(&local.array, is_kept);
    let written = &local.array.written;
    if !is_kept {
        numbers.into_iter().for_each(|(page, _)| written.put_back(page));
        return false;
    }
    for (page, words) in numbers {
        written.turn_place(page);
        written.stored(page, &words);
    }
    local.array.caches.flushed(mark);
    local.coordinator().tell(Change::Flushed);
    true
}

/// Changed pages of the checksum table are on their way to media: a flush of the members is to
/// follow.
pub(crate) async fn store_checksums(local: &Rc<LocalArray>) -> checksum_pages::Round {
    let next_sequence = || local.coordinator().next_page_sequence();
    checksum_pages::store(local, &devices_in_service(local), next_sequence).await
}

/// A page of the written map, and the bits it had when it was taken.
type TakenPage = (usize, Vec<u64>);

/// Pages of the written map that changed, with the bits they have now, and where they go.
fn take_written_pages(local: &LocalArray) -> (Vec<TakenPage>, Vec<PageToStore>) {
    if !local.array.written.has_dirty_pages() {
        return (Vec::new(), Vec::new());
    }
    let superblock = local.coordinator().superblock.borrow();
    let places = superblock.written_map_places();
    let written = &local.array.written;
    let take = |page: usize| (page, written.words_to_store(page));
    let numbers: Vec<TakenPage> = written.take_dirty_pages().into_iter().map(take).collect();
    if sings(Canary::KeptTooLate) {
        numbers.iter().for_each(|(page, _)| written.put_kept(*page));
    }
    let to_store = |(page, words): &TakenPage| {
        let place = written.next_place(*page) % places;
        let offset = superblock.written_map_offset(to_u64(*page), place);
        PageToStore::new(local.coordinator(), BitmapKind::WrittenMap, *page, offset, words)
    };
    let pages = numbers.iter().map(to_store).collect();
    (numbers, pages)
}

async fn flush_members(local: &Rc<LocalArray>) -> bool {
    let mut flushes = Vec::new();
    for (holder, device) in devices_in_service(local) {
        // A replacement has no mark of its own: it is flushed whenever its slot could need it.
        let slot = local.array.slot(holder.member);
        let is_needed = holder.is_replacement || slot.take_unflushed() || slot.fails();
        if is_needed && !sings(Canary::FlushSkipped) {
            local.counts().member_flushes.add(1);
            let flush = local.start_on(device.as_ref(), 0, Command::Flush);
            flushes.push((holder, flush));
        }
    }
    let mut is_kept = true;
    for (holder, flush) in flushes {
        if let Err(fault) = ended(vec![flush]).await {
            local.count_write_error(holder.owner());
            is_kept &= lose(local, holder, "a flush", fault).await;
        } else if !holder.is_replacement {
            local.array.slot(holder.member).set_fails(false);
        }
    }
    is_kept
}

/// Have both places of every page of the written map say the same: from then on damage to one of
/// them brings back nothing older.
///
/// # Errors
/// `Io` if not.
pub(crate) async fn store_twice(local: &Rc<LocalArray>) -> Result<(), VolumeErrorKind> {
    let written = &local.array.written;
    let single = written.single_pages();
    if single.is_empty() || !local.coordinator().superblock.borrow().has_whole_map() {
        return Ok(());
    }
    single.into_iter().for_each(|page| written.put_back(page));
    flush(local).await
}

/// Clean idle regions as long as the array runs. Spawned once, on the coordinator.
pub(crate) async fn sweep(local: Rc<LocalArray>) {
    let handle = local.worker.handle.clone();
    let local = {
        let weak = Rc::downgrade(&local);
        drop(local);
        weak
    };
    loop {
        handle.sleep(SWEEP_EVERY).await;
        let Some(local) = local.upgrade() else { return };
        if local.array.is_stopping() {
            return;
        }
        watch::look_if_needed(&local);
        proof::prove_if_needed(&local).await;
        sweep_once(&local).await;
        settle_map(&local).await;
    }
}

/// Bring the written map to the members, page by page in its own time. What could not be done is
/// done with the next sweep.
async fn settle_map(local: &Rc<LocalArray>) {
    let written = &local.array.written;
    if written.has_broken_kept_map() && local.coordinator().superblock().kept_map_boot.is_some() {
        // From then on a start does not look for a kept map.
        if flush(local).await.is_ok() {
            let _later = record::locked_update(local, |next| next.set_kept_map(None)).await;
        }
    } else if !written.has_dirty_pages() {
        let _later = store_twice(local).await;
    } else if written.is_kept() {
        // Nobody waits for these. Others are stored soon, with the flush that a write waits for.
        let _later = flush(local).await;
    }
}

/// Clear the bits of regions that were idle since the last call, unless a member is out: it will
/// need them when it comes back.
pub(crate) async fn sweep_once(local: &Rc<LocalArray>) {
    let intent = &local.array.intent;
    let idle = intent.take_idle();
    let is_flushed = async || sings(Canary::SweptUnflushed) || flush(local).await.is_ok();
    if idle.is_empty() || local.array.missing_slots() != 0 || !is_flushed().await {
        return;
    }
    // The flush may have cost a member: then it lacks what the flush was to make durable.
    if local.array.missing_slots() != 0 {
        return;
    }
    let cleared = idle.into_iter().filter(|region| intent.try_clear(*region));
    let pages: BTreeSet<usize> = cleared.map(|region| intent.page_of(region)).collect();
    if !pages.is_empty() {
        // Not having cleared a bit costs a needless resync after a crash, nothing else.
        let _kept = write_intent_pages(local, pages, false).await;
    }
}

/// At a start: bitmap pages that some members have and others do not are written to all. A later
/// page without the bit, on a member that was not read when the bit was found, would hide it from
/// the next start.
///
/// # Errors
/// [`ArrayLost`] if they cannot be written.
pub(crate) async fn complete_intent(local: &Rc<LocalArray>) -> Result<(), ArrayLost> {
    if local.array.intent.pending_regions().is_empty() {
        return Ok(());
    }
    let rounds = &local.coordinator().intent_rounds;
    if rounds.join(|| write_pending(Rc::clone(local))).await { Ok(()) } else { Err(ArrayLost) }
}

/// Write every page of both maps that has a bit set to every device in service: one has just
/// joined. Rounds do it, so that it cannot cross another write of the same page.
pub(crate) async fn write_all_pages(local: &Rc<LocalArray>) -> bool {
    let written = &local.array.written;
    local.coordinator().has_joining_device.set(!sings(Canary::JoiningDeviceNotTold));
    let rounds = &local.coordinator().intent_rounds;
    let is_kept = rounds.join(|| write_pending(Rc::clone(local))).await;
    for page in written.pages_with_bits() {
        written.put_back_everywhere(page);
    }
    is_kept && flush(local).await.is_ok()
}

/// The array stops and everything is flushed: clear all bits that nobody will need.
pub(crate) async fn clear_all(local: &Rc<LocalArray>) {
    // Twice: the first look only takes note of what was touched since the last one.
    sweep_once(local).await;
    sweep_once(local).await;
}
