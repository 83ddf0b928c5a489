//! Loads the written map and the write-intent bitmap from the members when an array starts.
//!
//! What must stay true: each page of the written map is read from as many members as the array may
//! lose plus one. After an unclean stop, and if none of these has it, it is read from all. Pages of
//! the bitmap are always read from all, because a stop may be cut off between clearing bits and the
//! clean superblock. The newest whole copy counts.
//!
//! A page without a whole copy is *lost* and counts as all bits set. If the written map is whole
//! since creation (`Superblock::has_whole_map`), the caller must not accept that without the
//! operator: stripes that were never written would read as old content of the members. A page that
//! differs between members is written again before the first request (`WrittenMap::found_in`,
//! `IntentMap::load_page`). After an unclean stop every region whose bit is set is unsynced.

use crate::array::Array;
use crate::control_io;
use crate::devices::SlotDevice;
use crate::intent::RegionNo;
use crate::worker::Worker;
use ashlar_device::{Command, Device, Fault};
use ashlar_iobuf::BufMut;
use ashlar_ondisk::bitmap::{BitmapPage, FIRST_SEQUENCE, WORDS_PER_PAGE, page_count};
use ashlar_ondisk::{BitmapKind, ConsistencyPolicy, PageIdentity, Superblock};
use ashlar_units::{BLOCK_BYTES, BLOCK_BYTES_USIZE, Extent, to_u64, to_usize};
use std::collections::VecDeque;
use std::ops::Range;
use uuid::Uuid;

/// Pages read with one read.
const PAGES_AT_ONCE: u64 = 256;
/// Reads at the same time: each run of pages comes from other members, and one run alone waits for
/// their seeks one after the other. A read of pages with two places is 2 MiB.
const READS_AT_ONCE: usize = 24;

/// The devices whose maps are read.
pub(crate) struct MapDevices<'d> {
    /// Members: what they say counts.
    pub(crate) sources: &'d [SlotDevice],
    /// Devices that are being filled: they must come to say what the sources say.
    pub(crate) followers: &'d [SlotDevice],
}

/// Fill the maps of `array` from the members in `sources`; `is_in_doubt` says that regions whose
/// bit is set are unsynced (not so after a crash of an array with a log, which settles its rows
/// itself). Devices in `followers` are being filled: what they say does not count, but it must
/// become what the others say. Pages of a whole written map that are lost are returned.
pub(crate) async fn load(
    worker: &Worker,
    array: &Array,
    superblock: &Superblock,
    is_in_doubt: bool,
    MapDevices { sources, followers }: MapDevices<'_>,
) -> Vec<usize> {
    // Whatever the policy: a crash may have left a page on some of the members only.
    let is_unclean = superblock.unclean;
    let members = Members { worker, array, sources, followers, is_unclean };
    let written = Pages::written(superblock, to_u64(array.written.page_count()));
    let mut lost = Vec::new();
    members
        .load(&written, |page, found| {
            found.bits.iter().for_each(|bits| array.written.load_page(page, bits.as_slice()));
            let is_single = written.are_whole && !found.is_twice;
            array.written.found_in(page, found.place, found.is_everywhere, is_single);
            lost.extend((written.are_whole && found.is_lost).then_some(page));
        })
        .await;
    load_intent(&members, superblock, is_in_doubt).await;
    lost
}

/// Fill the write-intent map.
async fn load_intent(members: &Members<'_>, superblock: &Superblock, is_in_doubt: bool) {
    let array = members.array;
    if superblock.policy == ConsistencyPolicy::None {
        // Without parity there is nothing that could disagree.
        if is_in_doubt && array.layouts.parity_strips_max() > 0 {
            let all = (0..array.intent.region_count()).map(RegionNo);
            all.for_each(|region| array.intent.set_unsynced(region));
        }
        return;
    }
    let intent = Pages {
        kind: BitmapKind::WriteIntent,
        at: superblock.areas.write_intent.offset,
        first_pages: u64::MAX,
        at_behind: 0,
        count: page_count(array.intent.region_count()),
        places: 1,
        are_whole: false,
    };
    members
        .load(&intent, |page, found| {
            let load = |bits: &[u64]| array.intent.load_page(page, bits, found.is_everywhere);
            found.bits.iter().for_each(|bits| load(bits.as_slice()));
        })
        .await;
    if is_in_doubt {
        let dirty = array.intent.durable_regions();
        dirty.into_iter().for_each(|region| array.intent.set_unsynced(region));
    }
}

/// Devices that pages are read from.
type Devices<'d> = &'d [SlotDevice];

/// The pages of one map on every member.
struct Pages {
    kind: BitmapKind,
    /// Where the first one lies, bytes from the member's start.
    at: u64,
    /// Pages that lie there; those behind them begin elsewhere.
    first_pages: u64,
    at_behind: u64,
    count: u64,
    /// Places that each page has, one after the other.
    places: u64,
    /// There is a page in every place since creation: zeros are damage.
    are_whole: bool,
}

/// The pages of the written map as a device has them that is to become `member`, if the array has a
/// whole one.
///
/// # Errors
/// The device's fault.
pub(crate) async fn make(
    worker: &Worker,
    device: &dyn Device,
    superblock: &Superblock,
    member: Uuid,
) -> Result<(), Fault> {
    make_from(worker, device, (superblock, 0), member).await
}

/// The same, of the pages from this number on.
///
/// # Errors
/// The device's fault.
pub(crate) async fn make_from(
    worker: &Worker,
    device: &dyn Device,
    (superblock, first_page): (&Superblock, u64),
    member: Uuid,
) -> Result<(), Fault> {
    if !superblock.has_whole_map() {
        return Ok(());
    }
    let pages = Pages::written(superblock, pages_of_written_map(superblock));
    let owner_tag = superblock.page_tag(member);
    for (first, count) in pages.runs_from(first_page) {
        let mut bytes = BufMut::zeroed(to_usize(count * pages.places * BLOCK_BYTES));
        for (block, page) in (0..).zip(bytes.chunks_mut(BLOCK_BYTES_USIZE)) {
            let number = first + block / pages.places;
            page.copy_from_slice(&identity(owner_tag, pages.kind, number).first());
        }
        let write = Command::Write(bytes.freeze());
        control_io::run(worker, device, pages.offset(first), write).await.result?;
    }
    Ok(())
}

/// Pages that the written map has, with those for stripes that a growth is to open.
pub(crate) fn pages_of_written_map(superblock: &Superblock) -> u64 {
    page_count(superblock.geometry.stripes_when_grown())
}

fn identity(owner_tag: u64, kind: BitmapKind, page: u64) -> PageIdentity {
    let page = u32::try_from(page).expect("areas hold fewer than 2^32 pages");
    PageIdentity { kind, owner_tag, page }
}

/// What the members say about one page.
struct Found {
    /// None if no bit is set.
    bits: Option<Box<[u64; WORDS_PER_PAGE]>>,
    sequence: u64,
    /// Which of its places it was found in.
    place: u64,
    /// All that were asked have it.
    is_everywhere: bool,
    /// Every place of all that were asked has these bits.
    is_twice: bool,
    /// Nobody that was asked has it whole.
    is_lost: bool,
}

impl Found {
    /// A page without a bit, in its first place.
    const NOTHING: Found = Found {
        bits: None,
        sequence: 0,
        place: 0,
        is_everywhere: true,
        is_twice: true,
        is_lost: false,
    };
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|part| part == &[0; 64][..part.len()])
}

impl Pages {
    /// Those of the written map.
    fn written(superblock: &Superblock, count: u64) -> Pages {
        Pages {
            kind: BitmapKind::WrittenMap,
            at: superblock.areas.written_map.offset,
            first_pages: superblock.written_map_pages(),
            at_behind: superblock.areas.grown_map.offset,
            count,
            places: superblock.written_map_places(),
            are_whole: superblock.has_whole_map(),
        }
    }

    /// The runs of pages: first page and number of each. None lies in two areas.
    fn runs(&self) -> Vec<(u64, u64)> {
        self.runs_from(0)
    }

    /// The same, from this page on.
    fn runs_from(&self, first: u64) -> Vec<(u64, u64)> {
        let ends = [self.first_pages.min(self.count), self.count];
        let (mut runs, mut first) = (Vec::new(), first);
        for end in ends {
            while first < end {
                let count = PAGES_AT_ONCE.min(end - first);
                runs.push((first, count));
                first += count;
            }
        }
        runs
    }

    /// Where the first place of a page lies.
    fn offset(&self, page: u64) -> u64 {
        let (at, page) = match page.checked_sub(self.first_pages) {
            None => (self.at, page),
            Some(page) => (self.at_behind, page),
        };
        at + page * self.places * BLOCK_BYTES
    }
}

/// Where pages are read from, and for which array.
struct Members<'m> {
    worker: &'m Worker,
    array: &'m Array,
    sources: Devices<'m>,
    followers: Devices<'m>,
    is_unclean: bool,
}

/// Which device it is: what its pages carry, and whether what it says counts.
#[derive(Clone, Copy)]
struct MapWriter {
    owner_tag: u64,
    is_source: bool,
}

/// A run of pages as one device has it.
struct Copy {
    bytes: BufMut,
    map_writer: MapWriter,
}

impl Members<'_> {
    async fn load(&self, pages: &Pages, mut take: impl FnMut(usize, Found)) {
        let runs = pages.runs();
        let run_count = runs.len();
        let runs_at_once = (READS_AT_ONCE / self.copies_wanted(pages.kind).max(1)).max(1);
        // Fresh memory for each read would cost more than the read of a map without bits.
        let mut spare: Vec<BufMut> = Vec::new();
        let mut under_way = VecDeque::new();
        let (mut started, mut taken) = (0, 0);
        while taken < run_count {
            while started < run_count && started - taken < runs_at_once {
                let (first, count) = runs[started];
                under_way.push_back(self.start(pages, first, count, &mut spare));
                started += 1;
            }
            let mut copies = Vec::new();
            let readings = under_way.pop_front().expect("one more was started than taken");
            for (map_writer, reading) in readings {
                let read = reading.finish().await;
                copies.extend(read.ok().map(|bytes| Copy { bytes, map_writer }));
            }
            let (first, count) = runs[taken];
            for at in 0..to_usize(count) {
                let number = to_usize(first) + at;
                let mut found = self.newest(&copies, pages, at, number);
                if found.is_lost && self.copies_wanted(pages.kind) < self.sources.len() {
                    let of_all = self.read_everywhere(pages, number).await;
                    found = self.newest(&of_all, pages, 0, number);
                }
                take(number, found);
            }
            spare.extend(copies.into_iter().map(|copy| copy.bytes));
            taken += 1;
        }
    }

    /// From how many members each page is read.
    fn copies_wanted(&self, kind: BitmapKind) -> usize {
        let enough = self.array.layouts.parity_strips_max() + 1;
        let is_all = self.is_unclean || kind == BitmapKind::WriteIntent;
        if is_all { self.sources.len() } else { enough.min(self.sources.len()) }
    }

    /// Start to read the same run of pages from several members; different ones for different runs,
    /// so that the work and the risk are spread.
    fn start(
        &self,
        pages: &Pages,
        first: u64,
        count: u64,
        spare: &mut Vec<BufMut>,
    ) -> Vec<(MapWriter, control_io::ControlRead)> {
        let offset = pages.offset(first);
        let bytes = to_usize(count * pages.places * BLOCK_BYTES);
        spare.retain(|buffer| buffer.len() == bytes);
        let source = |copy: usize| {
            let at = (to_usize(first / PAGES_AT_ONCE) + copy) % self.sources.len();
            (true, &self.sources[at])
        };
        let sources = (0..self.copies_wanted(pages.kind)).map(source);
        let devices = sources.chain(self.followers.iter().map(|device| (false, device)));
        let read = |(is_source, SlotDevice { device, tags }): (bool, &SlotDevice)| {
            let map_writer = MapWriter { owner_tag: tags.pages, is_source };
            let buffer = spare.pop().unwrap_or_else(|| BufMut::zeroed(bytes));
            let device = device.as_ref();
            (map_writer, control_io::start_read_into(self.worker, device, offset, buffer))
        };
        devices.map(read).collect()
    }

    /// One page from everybody.
    async fn read_everywhere(&self, pages: &Pages, number: usize) -> Vec<Copy> {
        let bytes = pages.places * BLOCK_BYTES;
        let extent = Extent::new(pages.offset(to_u64(number)), bytes);
        let all = self.sources.iter().map(|device| (true, device));
        let mut copies = Vec::new();
        let all = all.chain(self.followers.iter().map(|device| (false, device)));
        for (is_source, SlotDevice { device, tags }) in all {
            let map_writer = MapWriter { owner_tag: tags.pages, is_source };
            let read = control_io::read(self.worker, device.as_ref(), extent).await;
            copies.extend(read.ok().map(|bytes| Copy { bytes, map_writer }));
        }
        copies
    }

    /// The newest whole copy of page `number`, which is page `at` of what was read.
    fn newest(&self, copies: &[Copy], pages: &Pages, at: usize, number: usize) -> Found {
        let identity =
            |copy: &Copy| identity(copy.map_writer.owner_tag, pages.kind, to_u64(number));
        let first = to_u64(at) * pages.places;
        let range = to_usize(first * BLOCK_BYTES)..to_usize((first + pages.places) * BLOCK_BYTES);
        if let Some(sequence) = never_written(copies, pages, identity, range) {
            return Found { sequence, place: pages.places - 1, ..Found::NOTHING };
        }
        let on_member = |copy: &Copy| {
            let identity = identity(copy);
            let place = |place: u64| {
                let start = to_usize((first + place) * BLOCK_BYTES);
                let page = identity.decode(&copy.bytes[start..start + BLOCK_BYTES_USIZE]).ok()?;
                (page.sequence > 0 || !pages.are_whole).then_some((place, page))
            };
            let found: Vec<(u64, BitmapPage)> = (0..pages.places).filter_map(place).collect();
            let is_twice = to_u64(found.len()) == pages.places
                && found.iter().all(|(_, page)| page.bits == found[0].1.bits);
            let (place, page) = found.into_iter().max_by_key(|(_, page)| page.sequence)?;
            let (bits, sequence) = (Some(Box::new(page.bits)), page.sequence);
            Some(Found { bits, sequence, place, is_twice, ..Found::NOTHING })
        };
        let found: Vec<Option<Found>> = copies.iter().map(on_member).collect();
        let sources = || found.iter().zip(copies).filter(|(_, copy)| copy.map_writer.is_source);
        let sequence = sources().filter_map(|(found, _)| Some(found.as_ref()?.sequence)).max();
        let has_it = |found: &Option<Found>| found.as_ref().map(|found| found.sequence) == sequence;
        let is_everywhere = found.iter().all(has_it);
        let is_twice = found.iter().all(|found| found.as_ref().is_some_and(|found| found.is_twice));
        let newest = found.into_iter().zip(copies).filter(|(_, copy)| copy.map_writer.is_source);
        match newest.filter_map(|(found, _)| found).max_by_key(|found| found.sequence) {
            Some(newest) => Found { is_everywhere, is_twice, ..newest },
            None => {
                let bits = Some(Box::new([u64::MAX; WORDS_PER_PAGE]));
                Found {
                    bits,
                    is_everywhere: false,
                    is_twice: false,
                    is_lost: true,
                    ..Found::NOTHING
                }
            }
        }
    }
}

/// Most pages of a large array were never written; this is all that happens to them. The sequence
/// that they have.
fn never_written(
    copies: &[Copy],
    pages: &Pages,
    identity: impl Fn(&Copy) -> PageIdentity,
    range: Range<usize>,
) -> Option<u64> {
    let is_first = |copy: &Copy| {
        let mut places = copy.bytes[range.clone()].chunks(BLOCK_BYTES_USIZE);
        if !pages.are_whole {
            return places.all(is_zero);
        }
        let first = identity(copy).first();
        places.all(|place| place == first)
    };
    let sequence = if pages.are_whole { FIRST_SEQUENCE } else { 0 };
    (!copies.is_empty() && copies.iter().all(is_first)).then_some(sequence)
}
