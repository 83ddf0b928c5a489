//! The written map in kept memory: it survives a killed process, but no power cut and no reboot.
//!
//! What must stay true: a page that changed is in the kept map before the write that changed it is
//! answered. Then a start after a kill finds every answered first write, and no flush is needed
//! before the answer. The kept map says the whole truth of each page that changed since the start.
//! The map on the members follows later, and never before the data is flushed. A power cut takes
//! the kept map away.
//!
//! Each page has one place. Writing it is one copy within one page of memory, so a kill leaves the
//! page before or the page after. A page that does not decode is damage, and then the whole map is
//! not believed. A place is named after the array and its incarnation, and so is each page in it:
//! a map of an earlier start never counts.
//!
//! Members may be rolled back to a snapshot of this very start, and then lack what the kept map
//! knows. So the number of each page names a flush mark that was on all devices in service when it
//! was put, and soon after every change one page names a newer mark. A start whose members have no
//! such mark does not believe the map.
//!
//! Not here: the start (`assemble/kept_map.rs`), and where the memory is (the daemon knows).

use super::WrittenMap;
use crate::canary::{Canary, sings};
use ashlar_layout::Stripe;
use ashlar_ondisk::bitmap::{BitmapPage, FIRST_SEQUENCE, PageBits, WORDS_PER_PAGE, array_tag};
use ashlar_ondisk::format::FLUSH_MARK_SEQUENCE_END;
use ashlar_ondisk::{BitmapKind, PageFault, PageIdentity};
use ashlar_units::{BLOCK_BYTES, BLOCK_BYTES_USIZE, to_u64};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// Memory that survives a killed process, and is gone with the boot of the kernel.
pub trait KeptMemory: Send + Sync {
    /// The kernel's id of this boot.
    fn boot(&self) -> [u8; 16];
    /// A new place of so many bytes, all of them reserved. A place of that name is lost.
    ///
    /// # Errors
    /// There is no memory for it, or none that survives a kill.
    fn make(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn KeptPlace>>;
    /// The place of that name, if there is one.
    ///
    /// # Errors
    /// It cannot be looked at.
    fn open(&self, name: &str) -> io::Result<Option<Arc<dyn KeptPlace>>>;
    /// The names of all places.
    fn names(&self) -> Vec<String>;
    /// Take the place of that name away, if there is one.
    fn forget(&self, name: &str);
}

/// A place in such memory.
pub trait KeptPlace: Send + Sync {
    /// How many bytes it has.
    ///
    /// # Errors
    /// It cannot be looked at.
    fn bytes(&self) -> io::Result<u64>;
    /// Fill `target` with what lies at `offset`.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&self, offset: u64, target: &mut [u8]) -> io::Result<()>;
    /// Put `bytes` at `offset`: all of them are there when this returns. A kill leaves a page of
    /// 4 KiB as it was before or as it is after.
    ///
    /// # Errors
    /// They are not there.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Take it away: nobody finds it again.
    fn forget(&self);
}

/// The name of an array's place for one start.
pub(crate) fn place_name(array: Uuid, incarnation: Uuid) -> String {
    format!("{array}.{incarnation}")
}

/// Pages made or read with one call.
const PAGES_AT_ONCE: usize = 256;

/// Bits of a page's number that count its versions; above them is a flush mark.
const VERSION_BITS: u32 = 24;
const VERSION_MAX: u64 = (1 << VERSION_BITS) - 1;
const _: () = assert!(FLUSH_MARK_SEQUENCE_END <= 1 << (64 - VERSION_BITS));

/// A page in the order of memory pages: copying it crosses no border of them.
#[repr(align(4096))]
struct AlignedPage([u8; BLOCK_BYTES_USIZE]);

/// The kept map of a running array.
pub(crate) struct KeptMap {
    place: Arc<dyn KeptPlace>,
    owner_tag: u64,
    /// Of each page, the number of its newest version. Workers put a page one after the other.
    versions: Box<[Mutex<u64>]>,
    /// The newest flush mark that all devices in service have; 0: none of this start.
    mark: AtomicU64,
    /// The page that changed last.
    changed: AtomicUsize,
    /// A page was put that no later mark is known of.
    is_unmarked: AtomicBool,
    /// A page could not be put: the place is forgotten, and writes wait for flushes.
    is_broken: AtomicBool,
}

/// What a kept map says.
#[derive(Debug)]
pub(crate) struct KeptPages {
    /// Pages that changed while the array ran, with their bits.
    pub(crate) pages: Vec<(usize, Box<PageBits>)>,
    /// The newest flush mark that the members had while they changed; 0: not known.
    pub(crate) mark: u64,
}

fn owner_tag(array: Uuid, incarnation: Uuid) -> u64 {
    array_tag(array) ^ array_tag(incarnation).rotate_left(1)
}

fn identity(owner_tag: u64, page: usize) -> PageIdentity {
    let page = u32::try_from(page).expect("areas hold fewer than 2^32 pages");
    PageIdentity { kind: BitmapKind::WrittenMap, owner_tag, page }
}

/// Runs of pages, and the bytes of each.
fn runs(page_count: usize) -> impl Iterator<Item = (Range<usize>, u64, usize)> {
    (0..page_count).step_by(PAGES_AT_ONCE).map(move |first| {
        let end = page_count.min(first + PAGES_AT_ONCE);
        (first..end, to_u64(first) * BLOCK_BYTES, (end - first) * BLOCK_BYTES_USIZE)
    })
}

impl KeptMap {
    /// A map of so many pages for a start, in a place of its own; no page has changed.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn make(
        memory: &dyn KeptMemory,
        array: Uuid,
        incarnation: Uuid,
        page_count: usize,
    ) -> io::Result<KeptMap> {
        let name = place_name(array, incarnation);
        let place = memory.make(&name, to_u64(page_count) * BLOCK_BYTES)?;
        let owner_tag = owner_tag(array, incarnation);
        for (pages, offset, bytes) in runs(page_count) {
            let mut run = Vec::with_capacity(bytes);
            pages.for_each(|page| run.extend_from_slice(&identity(owner_tag, page).first()));
            // Half a map would only take memory.
            place.write(offset, &run).inspect_err(|_| place.forget())?;
        }
        Ok(KeptMap {
            place,
            owner_tag,
            versions: (0..page_count).map(|_| Mutex::new(FIRST_SEQUENCE)).collect(),
            mark: AtomicU64::new(0),
            changed: AtomicUsize::new(0),
            is_unmarked: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
        })
    }

    /// What the kept map of a start says. `None`: it is not there, or not whole.
    pub(crate) fn read(
        memory: &dyn KeptMemory,
        array: Uuid,
        incarnation: Uuid,
        page_count: usize,
    ) -> Option<KeptPages> {
        let place = memory.open(&place_name(array, incarnation)).ok()??;
        if place.bytes().ok()? != to_u64(page_count) * BLOCK_BYTES {
            return None;
        }
        let owner_tag = owner_tag(array, incarnation);
        let (mut changed, mut mark) = (Vec::new(), 0);
        for (pages, offset, bytes) in runs(page_count) {
            let mut run = vec![0; bytes];
            place.read(offset, &mut run).ok()?;
            for (page, bytes) in pages.zip(run.chunks(BLOCK_BYTES_USIZE)) {
                let found = identity(owner_tag, page).decode(bytes);
                let found = match sings(Canary::KeptStaleBelieved) {
                    true => found.or_else(|_| decode_any(bytes, page)),
                    false => found,
                };
                match found.ok()? {
                    // Zeros are damage: every page was made.
                    found if found.sequence == 0 => return None,
                    found if found.sequence == FIRST_SEQUENCE => {}
                    found => {
                        mark = mark.max(found.sequence >> VERSION_BITS);
                        changed.push((page, Box::new(found.bits)));
                    }
                }
            }
        }
        Some(KeptPages { pages: changed, mark })
    }

    fn put(&self, page: usize, bits: impl FnOnce(&mut PageBits)) {
        if self.is_broken() {
            return;
        }
        let mut version = self.versions[page].lock().unwrap_or_else(PoisonError::into_inner);
        *version = (*version + 1).min(VERSION_MAX);
        // Read before the bits: whatever they say, the members had this mark before.
        let sequence = self.mark.load(Ordering::Acquire) << VERSION_BITS | *version;
        let mut words = [0; WORDS_PER_PAGE];
        // Under the lock: the version that is put last has the bits of all.
        bits(&mut words);
        let encoded = AlignedPage(identity(self.owner_tag, page).encode(sequence, &words));
        if self.place.write(to_u64(page) * BLOCK_BYTES, &encoded.0).is_err() {
            self.is_broken.store(true, Ordering::Release);
            // What it says is not the truth any more, so no start may find it.
            self.place.forget();
        }
    }

    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    fn note_changed(&self, page: usize) {
        self.changed.store(page, Ordering::Release);
        self.is_unmarked.store(true, Ordering::Release);
    }
}

/// The page whatever start it is of: what a program does that does not look at the name in it.
fn decode_any(bytes: &[u8], page: usize) -> Result<BitmapPage, PageFault> {
    let tag: [u8; 8] = bytes[16..24].try_into().expect("a page is longer");
    identity(u64::from_le_bytes(tag), page).decode(bytes)
}

impl WrittenMap {
    /// From now on every change is put into this map before it is answered, and what differs from
    /// the members now is in it when this returns.
    pub(crate) fn keep_in(&self, kept: KeptMap) {
        let is_new = self.kept.set(kept).is_ok();
        assert!(is_new, "a start has one kept map");
        let is_left_out = sings(Canary::KeptNotCarriedOver);
        (0..self.page_count()).filter(|page| self.is_dirty(*page) && !is_left_out).for_each(
            |page| {
                self.put_kept(page);
            },
        );
    }

    /// The page changed: put it into the kept map, if there is one.
    pub(super) fn put_changed(&self, page: usize) {
        let is_left_out = sings(Canary::KeptMapForgotten) || sings(Canary::KeptTooLate);
        if !is_left_out {
            self.put_kept(page);
            if let Some(kept) = self.kept.get() {
                kept.note_changed(page);
            }
        }
    }

    /// Whether the map changed since the last flush mark began.
    pub(crate) fn lacks_mark(&self) -> bool {
        let lacks = |kept: &KeptMap| kept.is_unmarked.load(Ordering::Acquire) && !kept.is_broken();
        self.kept.get().is_some_and(lacks)
    }

    /// A flush mark begins. Whether it is the first one that follows a change.
    pub(crate) fn begin_mark(&self) -> bool {
        self.kept.get().is_some_and(|kept| kept.is_unmarked.swap(false, Ordering::AcqRel))
    }

    /// The mark is on all devices in service; `None`: it is not.
    pub(crate) fn end_mark(&self, mark: Option<u64>, follows_change: bool) {
        let Some(kept) = self.kept.get() else { return };
        match mark {
            Some(mark) => {
                kept.mark.fetch_max(mark, Ordering::AcqRel);
                if follows_change {
                    self.put_kept(kept.changed.load(Ordering::Acquire));
                }
            }
            None => _ = kept.is_unmarked.fetch_or(follows_change, Ordering::AcqRel),
        }
    }

    pub(crate) fn put_kept(&self, page: usize) {
        let Some(kept) = self.kept.get() else { return };
        kept.put(page, |words| {
            let own = self.pages[page].words.get();
            for (target, word) in words.iter_mut().zip(own.iter().flat_map(|own| own.iter())) {
                *target = word.load(Ordering::Acquire);
            }
        });
    }

    /// Whether changes are in kept memory.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.get().is_some_and(|kept| !kept.is_broken())
    }

    /// Whether changes were kept until one could not be.
    pub(crate) fn has_broken_kept_map(&self) -> bool {
        self.kept.get().is_some_and(KeptMap::is_broken)
    }

    /// The members say all that there is to say: the kept map goes.
    pub(crate) fn forget_kept(&self) {
        if let Some(kept) = self.kept.get() {
            kept.place.forget();
        }
    }

    /// Whether a start after this process was killed would find the stripe written or unwritten as
    /// it is now.
    #[inline]
    pub(crate) fn outlives_process(&self, stripe: Stripe) -> bool {
        self.is_kept() || self.is_settled(stripe)
    }

    /// Whether a start after this process was killed would find every stripe of `range` as it is
    /// now.
    pub(crate) fn outlives_process_in(&self, range: Range<u64>) -> bool {
        self.is_kept() || self.is_settled_in(range)
    }

    /// Take over the bits of a page from a kept map, which says the whole truth about it. The page
    /// waits to be stored if the members say anything else.
    pub(crate) fn load_kept(&self, page: usize, bits: &PageBits) {
        let mut differs = false;
        let masks = self.masks(page);
        for ((word, bits), mask) in self.words(page).iter().zip(bits).zip(masks) {
            differs |= word.swap(bits & mask, Ordering::AcqRel) != bits & mask;
        }
        if differs {
            self.put_back(page);
        }
    }

    fn is_dirty(&self, page: usize) -> bool {
        self.pages[page].is_dirty.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests;
