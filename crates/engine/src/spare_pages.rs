//! Reads the states of cells of lost members when an array starts.
//!
//! What must stay true: the newest whole page of any member in sync counts. A page that none of
//! them has says that its cells are missing. Which place of a page a member has the newest content
//! in is kept, because the next write there must not go over it.

use crate::control_io;
use crate::devices::SlotDevice;
use crate::worker::Worker;
use ashlar_layout::declustered::CellState;
use ashlar_ondisk::format::SPARE_STATE_PLACES;
use ashlar_ondisk::spare_table::take_state_bits;
use ashlar_ondisk::{BitmapPage, PageIdentity, SpareRecord, Superblock};
use ashlar_units::{BLOCK_BYTES, BLOCK_BYTES_USIZE, Extent, MemberIdx, to_usize};
use std::collections::BTreeMap;

/// Pages read with one read.
const PAGES_AT_ONCE: u64 = 128;

/// In which of its places a device, by its tag, has the newest content of a page.
pub(crate) type NewestPlaces = BTreeMap<(u64, u32), u64>;

/// What the members say of the cells of lost members.
#[derive(Default)]
pub(crate) struct SpareStates {
    /// For each lost member the states of its cells, and perhaps of some more.
    pub(crate) states: Vec<(MemberIdx, Vec<CellState>)>,
    pub(crate) newest_places: NewestPlaces,
}

/// Read the states of all lost members of `superblock` from the members in `sources`.
pub(crate) async fn load(
    worker: &Worker,
    superblock: &Superblock,
    sources: &[SlotDevice],
) -> SpareStates {
    let mut found = SpareStates::default();
    for record in &superblock.spares {
        let mut states = vec![CellState::Missing; to_usize(superblock.geometry.cells())];
        let pages = superblock.geometry.spare_pages();
        for first in (0..pages).step_by(to_usize(PAGES_AT_ONCE)) {
            let run = first..pages.min(first + PAGES_AT_ONCE);
            let read = PagesRead { worker, superblock, sources, record };
            read.load(run, &mut states, &mut found.newest_places).await;
        }
        found.states.push((record.slot, states));
    }
    found
}

/// Whose pages are read, and from where.
struct PagesRead<'a> {
    worker: &'a Worker,
    superblock: &'a Superblock,
    sources: &'a [SlotDevice],
    record: &'a SpareRecord,
}

impl PagesRead<'_> {
    /// Read the pages of `run`, and put what the newest ones say into `states`.
    async fn load(
        &self,
        run: std::ops::Range<u64>,
        states: &mut [CellState],
        newest_places: &mut NewestPlaces,
    ) {
        let PagesRead { worker, superblock, sources, record } = *self;
        let page_bytes = SPARE_STATE_PLACES * BLOCK_BYTES;
        let at = record.pages_extent(superblock).offset + run.start * page_bytes;
        let extent = Extent::new(at, (run.end - run.start) * page_bytes);
        let mut newest: BTreeMap<u64, BitmapPage> = BTreeMap::new();
        for SlotDevice { device, tags } in sources {
            // A member whose pages cannot be read says nothing; the others do.
            let Ok(bytes) = control_io::read(worker, device.as_ref(), extent).await else {
                continue;
            };
            for (page, places) in run.clone().zip(bytes.chunks(to_usize(page_bytes))) {
                let identity = record.page_identity(&superblock.geometry, tags.pages, page);
                let Some((place, found)) = newest_of(identity, places) else { continue };
                newest_places.insert((tags.pages, identity.page), place);
                if newest.get(&page).is_none_or(|other| other.sequence < found.sequence) {
                    newest.insert(page, found);
                }
            }
        }
        for (page, found) in newest {
            take_state_bits(&found.bits, page, states);
        }
    }
}

/// The newest whole page in the places of one page on one device, and its place.
fn newest_of(identity: PageIdentity, places: &[u8]) -> Option<(u64, BitmapPage)> {
    let blocks = (0..).zip(places.chunks(BLOCK_BYTES_USIZE));
    let whole = blocks.filter_map(|(place, bytes)| Some((place, identity.decode(bytes).ok()?)));
    whole.filter(|(_, page)| page.sequence > 0).max_by_key(|(_, page)| page.sequence)
}
