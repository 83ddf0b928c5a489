//! The write-intent bitmap in memory: which regions may hold writes that not all members have.
//!
//! What must stay true: a region's bit is durable on the members before any member block of the
//! region changes. It is cleared only after the region was idle, the members were flushed, and no
//! member is out, because these bits bring a returning member up to date. A region that was dirty
//! when the array stopped uncleanly is *unsynced*: its parity is not trusted before its resync. A
//! region in which a write failed in part is *distrusted*: it needs a resync that begins
//! afterwards.
//!
//! Each region is one word: a count of writes under way and three flags. Writers on any worker
//! enter and leave with one atomic operation. Only the coordinator writes bitmap pages.

use ashlar_layout::{Geometry, LayoutEpoch, Stripe};
use ashlar_units::{to_u64, to_usize};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

const DURABLE: u32 = 1 << 31;
const PENDING: u32 = 1 << 30;
const TOUCHED: u32 = 1 << 29;
const COUNT: u32 = TOUCHED - 1;

/// Number of a region: what one bit covers. A region is a fixed number of bytes of the volume,
/// whatever geometry they have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct RegionNo(pub(crate) u64);

/// All regions of an array.
pub(crate) struct IntentMap {
    regions: Box<[AtomicU32]>,
    unsynced: RegionSet,
    distrusted: RegionSet,
    /// Unsynced, and the operator accepts what their parity says of missing members.
    believed: RegionSet,
    /// The geometry whose stripes are told their regions. On the members regions are counted by
    /// bytes of the volume, so a second geometry needs no field there, only its own number of
    /// stripes here.
    epoch: LayoutEpoch,
    stripes_per_region: u64,
    bits_per_page: u64,
}

impl IntentMap {
    /// A map for all stripes of the geometry, all clean.
    pub(crate) fn new(geometry: &Geometry, stripes_per_region: u64, bits_per_page: u64) -> Self {
        let region_count = to_usize(geometry.stripe_count().div_ceil(stripes_per_region));
        IntentMap {
            regions: (0..region_count).map(|_| AtomicU32::new(0)).collect(),
            unsynced: RegionSet::of(region_count),
            distrusted: RegionSet::of(region_count),
            believed: RegionSet::of(region_count),
            epoch: geometry.epoch(),
            stripes_per_region,
            bits_per_page,
        }
    }

    /// Number of regions.
    pub(crate) fn region_count(&self) -> u64 {
        to_u64(self.regions.len())
    }

    /// Stripes of a region.
    pub(crate) fn stripes_per_region(&self) -> u64 {
        self.stripes_per_region
    }

    /// The region of a stripe.
    ///
    /// # Panics
    /// If the stripe is one of another geometry.
    pub(crate) fn region_of(&self, stripe: Stripe) -> RegionNo {
        assert!(stripe.epoch() == self.epoch, "{stripe:?} has other regions");
        RegionNo(stripe.number().0 / self.stripes_per_region)
    }

    /// Number of the first stripe of a region, and of the first one after it (not clipped to the
    /// array).
    pub(crate) fn stripes_of(&self, region: RegionNo) -> std::ops::Range<u64> {
        let start = region.0 * self.stripes_per_region;
        start..start + self.stripes_per_region
    }

    /// A write to the region begins. True: its bit is durable, go on; false: ask the coordinator
    /// first.
    pub(crate) fn enter(&self, region: RegionNo) -> bool {
        let before = self.word(region).fetch_add(1, Ordering::AcqRel);
        assert!(before & COUNT != COUNT, "writes under way in one region fit 29 bits");
        before & DURABLE != 0
    }

    /// A write to the region is done (or was given up).
    pub(crate) fn leave(&self, region: RegionNo) {
        let word = self.word(region);
        word.fetch_or(TOUCHED, Ordering::AcqRel);
        word.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether a write to the region is under way.
    pub(crate) fn is_entered(&self, region: RegionNo) -> bool {
        self.word(region).load(Ordering::Acquire) & COUNT != 0
    }

    /// Whether the region's bit is durable on the members.
    pub(crate) fn is_durable(&self, region: RegionNo) -> bool {
        self.word(region).load(Ordering::Acquire) & DURABLE != 0
    }

    /// Coordinator only: the region's bit is to be set with the next page write.
    pub(crate) fn set_pending(&self, region: RegionNo) {
        self.word(region).fetch_or(PENDING, Ordering::AcqRel);
    }

    /// Coordinator only: regions whose bit is to be set with the next page write.
    pub(crate) fn pending_regions(&self) -> Vec<RegionNo> {
        let all = (0..self.region_count()).map(RegionNo);
        all.filter(|region| self.word(*region).load(Ordering::Acquire) & PENDING != 0).collect()
    }

    /// Coordinator only: the page write that carried the pending bit is durable.
    pub(crate) fn set_durable(&self, region: RegionNo) {
        let word = self.word(region);
        word.fetch_or(DURABLE, Ordering::AcqRel);
        word.fetch_and(!PENDING, Ordering::AcqRel);
    }

    /// Coordinator only: regions that are durable, have no write under way and were not touched
    /// since the last call. The touched flags are reset.
    pub(crate) fn take_idle(&self) -> Vec<RegionNo> {
        let mut idle = Vec::new();
        for (at, word) in self.regions.iter().enumerate() {
            let now = word.load(Ordering::Acquire);
            if now & TOUCHED != 0 {
                word.fetch_and(!TOUCHED, Ordering::AcqRel);
            } else if now == DURABLE && !self.is_unsynced(RegionNo(to_u64(at))) {
                idle.push(RegionNo(to_u64(at)));
            }
        }
        idle
    }

    /// Coordinator only: clear the bit unless a write came meanwhile. The page must be written
    /// afterwards.
    pub(crate) fn try_clear(&self, region: RegionNo) -> bool {
        let word = self.word(region);
        word.compare_exchange(DURABLE, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The page that holds a region's bit.
    pub(crate) fn page_of(&self, region: RegionNo) -> usize {
        to_usize(region.0 / self.bits_per_page)
    }

    /// The bits of a page as they are to be on the members.
    pub(crate) fn page_words(&self, page: usize) -> Vec<u64> {
        let first = to_usize(to_u64(page) * self.bits_per_page);
        let end = self.regions.len().min(first + to_usize(self.bits_per_page));
        let mut words = vec![0; to_usize(self.bits_per_page / 64)];
        for (bit, word) in self.regions[first..end].iter().enumerate() {
            if word.load(Ordering::Acquire) & (DURABLE | PENDING) != 0 {
                words[bit / 64] |= 1 << (bit % 64);
            }
        }
        words
    }

    /// Take over the bits of a page read from a member: they are durable there. Bits of several
    /// members add up. If not all members have this page its bits are pending, too: nobody may rely
    /// on them before the page was written to all ([`pending_regions`](Self::pending_regions)).
    pub(crate) fn load_page(&self, page: usize, bits: &[u64], is_everywhere: bool) {
        let flags = if is_everywhere { DURABLE } else { DURABLE | PENDING };
        let first = to_usize(to_u64(page) * self.bits_per_page);
        for (at, word) in bits.iter().enumerate() {
            for bit in (0..64).filter(|bit| word & (1 << bit) != 0) {
                if let Some(region) = self.regions.get(first + at * 64 + bit) {
                    region.fetch_or(flags, Ordering::AcqRel);
                }
            }
        }
    }

    /// Regions whose bit is durable.
    pub(crate) fn durable_regions(&self) -> Vec<RegionNo> {
        let all = (0..self.region_count()).map(RegionNo);
        all.filter(|region| self.is_durable(*region)).collect()
    }

    /// Number of regions whose bit is durable.
    pub(crate) fn durable_count(&self) -> usize {
        let is_set = |word: &&AtomicU32| word.load(Ordering::Relaxed) & DURABLE != 0;
        self.regions.iter().filter(is_set).count()
    }

    /// Whether the parity of the region is neither trusted nor believed.
    pub(crate) fn is_in_doubt(&self, region: RegionNo) -> bool {
        self.distrusted.has(region) || self.unsynced.has(region) && !self.believed.has(region)
    }

    /// Before the first request: the operator accepts what the parity of the region says of missing
    /// members. It is to be resynced all the same.
    pub(crate) fn believe(&self, region: RegionNo) {
        self.believed.add(region);
    }

    /// Regions that are to be resynced.
    pub(crate) fn unsynced_regions(&self) -> impl Iterator<Item = RegionNo> {
        (0..self.region_count()).map(RegionNo).filter(|region| self.is_unsynced(*region))
    }

    /// Whether the region is to be resynced.
    pub(crate) fn is_unsynced(&self, region: RegionNo) -> bool {
        self.unsynced.has(region) || self.distrusted.has(region)
    }

    /// The region was dirty when the array stopped uncleanly.
    pub(crate) fn set_unsynced(&self, region: RegionNo) {
        self.unsynced.add(region);
    }

    /// Some strips of a write to the region are stored and others are not, and no member could be
    /// put out for it. A resync that runs may have been at its stripe before: what that one says of
    /// the region does not count.
    pub(crate) fn distrust(&self, region: RegionNo) {
        self.distrusted.add(region);
        self.believed.remove(region);
    }

    /// A resync begins: it will have been everywhere after all writes that failed so far.
    pub(crate) fn resync_begins(&self) {
        for region in (0..self.region_count()).map(RegionNo).filter(|at| self.distrusted.has(*at)) {
            // In this order: at no moment is it trusted.
            self.unsynced.add(region);
            self.distrusted.remove(region);
        }
    }

    /// The resync has been at all stripes of the region.
    pub(crate) fn set_synced(&self, region: RegionNo) {
        self.unsynced.remove(region);
        self.believed.remove(region);
    }

    /// Number of regions whose parity must not be trusted.
    pub(crate) fn unsynced_count(&self) -> usize {
        if self.unsynced.is_empty() && self.distrusted.is_empty() {
            return 0;
        }
        self.unsynced_regions().count()
    }

    fn word(&self, region: RegionNo) -> &AtomicU32 {
        &self.regions[to_usize(region.0)]
    }
}

/// Some of the regions; asking costs one load while there are none.
struct RegionSet {
    words: Box<[AtomicU64]>,
    count: AtomicUsize,
}

impl RegionSet {
    fn of(region_count: usize) -> RegionSet {
        let words = (0..region_count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        RegionSet { words, count: AtomicUsize::new(0) }
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn has(&self, region: RegionNo) -> bool {
        if self.is_empty() {
            return false;
        }
        let (word, bit) = self.bit(region);
        word.load(Ordering::Acquire) & bit != 0
    }

    fn add(&self, region: RegionNo) {
        let (word, bit) = self.bit(region);
        // Counted first, so that no task which has seen it there finds the set empty.
        self.count.fetch_add(1, Ordering::AcqRel);
        if word.fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn remove(&self, region: RegionNo) {
        let (word, bit) = self.bit(region);
        if word.fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn bit(&self, region: RegionNo) -> (&AtomicU64, u64) {
        let at = to_usize(region.0);
        (&self.words[at / 64], 1 << (at % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::{IntentMap, RegionNo};
    use crate::layouts::geometry_of;
    use ashlar_units::StripeNo;

    const REGION: RegionNo = RegionNo(2);

    fn map() -> IntentMap {
        IntentMap::new(&geometry_of(100), 10, 64)
    }

    #[test]
    fn a_region_is_durable_only_after_its_page_write() {
        let map = map();
        assert_eq!(map.region_of(geometry_of(100).stripe(StripeNo(29))), REGION);
        assert!(!map.enter(REGION));
        map.set_pending(REGION);
        assert_eq!(map.page_words(0), [1 << 2]);
        assert!(!map.enter(REGION));
        map.set_durable(REGION);
        assert!(map.enter(REGION));
        assert_eq!(map.durable_count(), 1);
    }

    #[test]
    fn a_bit_is_cleared_only_when_idle_for_a_whole_round() {
        let map = map();
        map.enter(REGION);
        map.set_durable(REGION);
        assert!(map.take_idle().is_empty(), "a write is under way");
        map.leave(REGION);
        assert!(map.take_idle().is_empty(), "touched since the last round");
        assert_eq!(map.take_idle(), [REGION]);
        map.enter(REGION);
        assert!(!map.try_clear(REGION), "a write came meanwhile");
        map.leave(REGION);
        assert!(!map.try_clear(REGION), "and its flush is still owed");
        map.take_idle();
        assert!(map.try_clear(REGION));
        assert!(!map.enter(REGION));
    }

    #[test]
    fn a_bit_that_some_members_lack_is_pending_until_all_have_it() {
        let map = map();
        map.load_page(0, &[1 << 2], false);
        assert_eq!(map.pending_regions(), [REGION]);
        assert!(map.take_idle().is_empty(), "what is not settled is not cleared");
        map.set_durable(REGION);
        assert!(map.pending_regions().is_empty());
        assert_eq!(map.take_idle(), [REGION]);
    }

    #[test]
    fn unsynced_regions_keep_their_bit() {
        let map = map();
        map.load_page(0, &[1 << 2], true);
        map.set_unsynced(REGION);
        assert!(map.take_idle().is_empty());
        map.set_synced(REGION);
        assert_eq!(map.unsynced_count(), 0);
        assert_eq!(map.take_idle(), [REGION]);
    }

    #[test]
    fn what_is_believed_is_resynced_and_not_believed_after_a_failed_write() {
        let map = map();
        map.set_unsynced(REGION);
        assert!(map.is_in_doubt(REGION));
        map.believe(REGION);
        assert!(!map.is_in_doubt(REGION) && map.is_unsynced(REGION));
        map.distrust(REGION);
        map.resync_begins();
        assert!(map.is_in_doubt(REGION), "the operator accepted what was before");
    }

    /// Seed 1551194 of the universes: the resync went on to the end of the region and called it
    /// right, and what was on members that were out was computed from a stripe of which a part was
    /// new.
    #[test]
    fn what_fails_while_a_resync_runs_waits_for_the_next_one() {
        let map = map();
        map.set_unsynced(REGION);
        map.resync_begins();
        map.distrust(REGION);
        map.set_synced(REGION);
        assert!(map.is_unsynced(REGION), "the resync may have been there before");
        assert_eq!(map.unsynced_count(), 1);
        map.resync_begins();
        assert!(map.is_unsynced(REGION));
        map.set_synced(REGION);
        assert_eq!(map.unsynced_count(), 0);
    }
}
