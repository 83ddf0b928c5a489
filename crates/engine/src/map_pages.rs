//! Load the written map and the write-intent bitmap from the members when an array starts.
//!
//! What must stay true: each page is read from as many members as the array may lose plus one, and the
//! newest whole copy counts; a page of which no copy is whole counts as all bits set, which costs time,
//! not data. After an unclean stop every region whose bit is set is unsynced.

use crate::array::Array;
use crate::control_io;
use crate::intent::RegionNo;
use crate::worker::Worker;
use ashlar_device::Device;
use ashlar_iobuf::BufMut;
use ashlar_ondisk::bitmap::{WORDS_PER_PAGE, array_tag, page_count};
use ashlar_ondisk::{BitmapKind, ConsistencyPolicy, PageIdentity, Superblock};
use ashlar_units::{BLOCK_BYTES, BLOCK_BYTES_USIZE, Extent, to_u64, to_usize};
use std::rc::Rc;
use uuid::Uuid;

/// Pages read at once.
const PAGES_AT_ONCE: u64 = 256;

/// Fill the maps of `array` from the members in `sources`; `is_unclean` says that it was not stopped.
pub(crate) async fn load(
    worker: &Worker,
    array: &Array,
    (superblock, is_unclean): (&Superblock, bool),
    sources: &[Rc<dyn Device>],
) {
    let members = Members { worker, array, sources };
    let written = Pages {
        kind: BitmapKind::WrittenMap,
        at: superblock.areas.written_map.offset,
        count: to_u64(array.written.page_count()),
    };
    members.load(&written, |page, bits| array.written.load_page(page, bits)).await;
    if superblock.policy == ConsistencyPolicy::None {
        if is_unclean {
            let all = (0..array.intent.region_count()).map(RegionNo);
            all.for_each(|region| array.intent.set_unsynced(region, true));
        }
        return;
    }
    let intent = Pages {
        kind: BitmapKind::WriteIntent,
        at: superblock.areas.write_intent.offset,
        count: page_count(array.intent.region_count()),
    };
    members.load(&intent, |page, bits| array.intent.load_page(page, bits)).await;
    if is_unclean {
        let dirty = array.intent.durable_regions();
        dirty.into_iter().for_each(|region| array.intent.set_unsynced(region, true));
    }
}

/// The pages of one map on every member.
struct Pages {
    kind: BitmapKind,
    /// Where the first one lies, bytes from the member's start.
    at: u64,
    count: u64,
}

/// Where pages are read from, and for which array.
struct Members<'m> {
    worker: &'m Worker,
    array: &'m Array,
    sources: &'m [Rc<dyn Device>],
}

impl Members<'_> {
    async fn load(&self, pages: &Pages, mut take: impl FnMut(usize, &[u64])) {
        let mut first = 0;
        while first < pages.count {
            let count = PAGES_AT_ONCE.min(pages.count - first);
            let copies = self.copies(pages, first, count).await;
            for at in 0..to_usize(count) {
                let number = to_usize(first) + at;
                match self.newest(&copies, at, self.identity(pages.kind, number)) {
                    Some(bits) => take(number, &bits),
                    None => take(number, &[u64::MAX; WORDS_PER_PAGE]),
                }
            }
            first += count;
        }
    }

    /// The same run of pages from several members; different ones for different runs, so that the work
    /// and the risk are spread.
    async fn copies(&self, pages: &Pages, first: u64, count: u64) -> Vec<BufMut> {
        let extent = Extent::new(pages.at + first * BLOCK_BYTES, count * BLOCK_BYTES);
        let wanted = (self.array.geometry.parity_strips() + 1).min(self.sources.len());
        let mut copies = Vec::new();
        for copy in 0..wanted {
            let at = (to_usize(first / PAGES_AT_ONCE) + copy) % self.sources.len();
            let read = control_io::read(self.worker, self.sources[at].as_ref(), extent).await;
            copies.extend(read.ok());
        }
        copies
    }

    fn newest(
        &self,
        copies: &[BufMut],
        at: usize,
        identity: PageIdentity,
    ) -> Option<[u64; WORDS_PER_PAGE]> {
        let bytes = at * BLOCK_BYTES_USIZE..(at + 1) * BLOCK_BYTES_USIZE;
        let decoded = copies.iter().filter_map(|copy| identity.decode(&copy[bytes.clone()]).ok());
        decoded.max_by_key(|page| page.sequence).map(|page| page.bits)
    }

    fn identity(&self, kind: BitmapKind, page: usize) -> PageIdentity {
        PageIdentity {
            kind,
            array_tag: array_tag(Uuid::from_bytes(self.array.identity.uuid)),
            page: u32::try_from(page).expect("areas hold fewer than 2^32 pages"),
        }
    }
}
