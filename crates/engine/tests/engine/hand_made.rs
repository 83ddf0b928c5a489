//! Members with a hand-made log. An array is written and stopped, and then changed as if it had
//! kept a log and the power had gone: with updates whose records are in the logs and whose blocks
//! are in place by chance.
//!
//! What must stay true: the codes compute parity here, not the engine. If a holder lacks the record
//! of an update, nothing of it is in place.

use ashlar_layout::{Geometry, RowRange, Shape};
use ashlar_ondisk::bitmap::{WORDS_PER_PAGE, array_tag};
use ashlar_ondisk::format::copy_slots;
use ashlar_ondisk::log::{
    BatchEncoder, BlockChange, Holder, LogIdentity, NewRecord, Part, RecordKind, block_checksum,
};
use ashlar_ondisk::{
    BitmapKind, ConsistencyPolicy, Features, MemberEvent, PageIdentity, Superblock,
};
use ashlar_parity::{Code, Kernel, Locality};
use ashlar_sim::{Random, SimDisk};
use ashlar_units::{BLOCK_BYTES, Extent, StripIdx, StripeNo};
use std::collections::{BTreeMap, BTreeSet};

const BLOCK: usize = 4096;

/// A block of the volume or of parity: stripe, strip, row.
type Place = (u64, usize, u32);

/// What the members hold and what may be read.
pub struct Logged {
    pub superblock: Superblock,
    pub geometry: Geometry,
    disks: Vec<SimDisk>,
    random: Random,
    code: Code,
    /// Every block as the last update has it, parity included, in place or not.
    newest: BTreeMap<Place, Vec<u8>>,
    /// What each data block may be read as.
    pub allowed: BTreeMap<Place, Vec<Vec<u8>>>,
    /// Slots that are out.
    pub out: Vec<usize>,
    /// Where the next batch goes, by slot, in blocks of the log area; and its number.
    next: Vec<(u64, u64)>,
    sequence: u64,
    settled_below: u64,
    /// The slot that lacks the newest record, if one does for sure.
    pub lacking: Option<usize>,
    /// Stripes of which a full record counts: their updates are not parity-only.
    copied: BTreeSet<u64>,
}

/// What the crash left of an update.
#[derive(Clone, Copy, PartialEq)]
pub enum Left {
    /// Some holders have the record, nothing is in place.
    Part,
    /// All holders but one have it, nothing is in place.
    AllButOne,
    /// Every holder has it; its blocks are in place, or not, or torn.
    All,
}

impl Logged {
    /// Take over the array on `disks`, whose first `stripes` stripes were written.
    pub fn new(disks: &[SimDisk], shape: &Shape, stripes: u64, seed: u64) -> Logged {
        let slots = copy_slots(super::world::DISK_BYTES).expect("large enough");
        let mut superblock =
            Superblock::decode(&disks[0].peek(slots[0])).expect("it was stopped cleanly");
        superblock.policy = ConsistencyPolicy::Log;
        superblock.features.incompatible |= Features::INTENT_LOG | Features::PARITY_ONLY_RECORDS;
        superblock.unclean = true;
        superblock.generation += 1;
        for (entry, tag) in superblock.members.iter_mut().zip(0x5EED_0000_0001_u64..) {
            entry.log_tag = tag;
        }
        let geometry = superblock.geometry.to_layout().expect("an array");
        let kernel = Kernel::best();
        let code = Code::new(geometry.data_strips(), geometry.parity_strips(), kernel);
        let mut logged = Logged {
            superblock,
            geometry,
            disks: disks.to_vec(),
            random: Random::stream(seed, 5),
            code: code.expect("a code"),
            newest: BTreeMap::new(),
            allowed: BTreeMap::new(),
            out: Vec::new(),
            next: vec![(0, 1); shape.members],
            sequence: 0,
            settled_below: 0,
            lacking: None,
            copied: BTreeSet::new(),
        };
        for stripe in 0..stripes {
            for strip in 0..geometry.stripe_width() {
                for row in 0..geometry.strip_blocks() {
                    let place = (stripe, strip, row);
                    let (disk, offset) = logged.at(place);
                    let bytes = disk.peek(Extent::new(offset, BLOCK_BYTES));
                    logged.newest.insert(place, bytes.clone());
                    if strip < geometry.data_strips() {
                        logged.allowed.insert(place, vec![bytes]);
                    }
                }
            }
        }
        logged
    }

    fn place_of(&self, stripe: u64, strip: usize) -> ashlar_layout::Place {
        let stripe = self.geometry.stripe(StripeNo(stripe));
        self.geometry.place(stripe, StripIdx::from_at(strip))
    }

    fn slot_of(&self, stripe: u64, strip: usize) -> usize {
        self.place_of(stripe, strip).member.at()
    }

    fn at(&self, (stripe, strip, row): Place) -> (&SimDisk, u64) {
        let place = self.place_of(stripe, strip);
        let offset =
            self.superblock.areas.data.offset + place.offset + u64::from(row) * BLOCK_BYTES;
        (&self.disks[place.member.at()], offset)
    }

    /// A member goes out, and the others say so. What was before is settled.
    pub fn take_out(&mut self, slot: usize) {
        self.settle();
        self.superblock.generation += 1;
        let uuid = self.superblock.members[slot].uuid;
        self.superblock.record(uuid, MemberEvent::Lost).expect("it was active");
        self.out.push(slot);
    }

    /// Everything so far is durable in place, and the next batches say so.
    pub fn settle(&mut self) {
        for (place, bytes) in self.newest.clone() {
            if !self.out.contains(&self.slot_of(place.0, place.1)) {
                let (disk, offset) = self.at(place);
                disk.poke(offset, &bytes);
            }
        }
        self.settled_below = self.sequence + 1;
        self.copied.clear();
    }

    /// An update of some blocks of a row range: its records and what is in place of it.
    pub fn update(&mut self, kind: RecordKind, left: Left) {
        let k = self.geometry.data_strips();
        let stripes = self.newest.keys().map(|place| place.0).max().expect("some") + 1;
        let stripe = self.random.below(stripes);
        let start = self.random.below(self.geometry.strip_blocks().into());
        let count = 1 + self.random.below(u64::from(self.geometry.strip_blocks()) - start);
        let row = |number: u64| u32::try_from(number).expect("few");
        let rows = RowRange::new(row(start), row(start + count));
        let is_whole = kind == RecordKind::InDoubt;
        self.copied.insert(stripe);
        let changed: Vec<usize> = (0..k).filter(|_| is_whole || self.random.percent(40)).collect();
        let changed = if changed.is_empty() { vec![0] } else { changed };
        let old = self.newest.clone();
        for row in rows.start..rows.end {
            self.change_row(stripe, row, &changed);
        }
        let stored: Vec<usize> =
            changed.iter().copied().chain(k..self.geometry.stripe_width()).collect();
        let is_in = |strip: &usize| !self.out.contains(&self.slot_of(stripe, *strip));
        let holders: Vec<usize> = stored.iter().copied().filter(is_in).collect();
        self.sequence += 1;
        let lacks = (left != Left::All).then(|| self.random.below(holders.len() as u64));
        self.lacking = lacks
            .and_then(|at| holders.get(usize::try_from(at).expect("few")))
            .map(|strip| self.slot_of(stripe, *strip));
        for (at, strip) in holders.iter().enumerate() {
            let is_likely = left != Left::Part || self.random.percent(60);
            let has = left == Left::All || (lacks != Some(at as u64) && is_likely);
            if has {
                self.log(kind, (stripe, *strip, rows), &holders);
            }
        }
        for strip in stored {
            for row in rows.start..rows.end {
                self.land((stripe, strip, row), (kind, left), &old);
            }
        }
        if left != Left::All {
            // Nothing follows it: what the array holds is what was before.
            self.newest = old;
        }
    }

    /// A parity-only update of one block, if there is one that may be: where it lies. Unless it is
    /// the last one its block is in place; of its parity it may be any part.
    pub fn parity_only(&mut self, left: Left, is_last: bool) -> Option<(SimDisk, u64)> {
        let k = self.geometry.data_strips();
        let stripes = self.newest.keys().map(|place| place.0).max().expect("some") + 1;
        let stripe = self.random.below(stripes);
        let strip = usize::try_from(self.random.below(k as u64)).expect("few");
        let row = self.random.below(self.geometry.strip_blocks().into());
        let row = u32::try_from(row).expect("few");
        let is_in = |strip: &usize| !self.out.contains(&self.slot_of(stripe, *strip));
        let holders: Vec<usize> = (k..self.geometry.stripe_width()).filter(is_in).collect();
        if k == 1 || holders.is_empty() || !is_in(&strip) || self.copied.contains(&stripe) {
            return None;
        }
        let (place, rows) = ((stripe, strip, row), RowRange::new(row, row + 1));
        let old = self.newest.clone();
        self.change_row(stripe, row, &[strip]);
        let change = BlockChange {
            strip: StripIdx::from_at(strip),
            old: block_checksum(&old[&place]),
            new: block_checksum(&self.newest[&place]),
        };
        self.sequence += 1;
        let lacks = (left != Left::All).then(|| self.random.below(holders.len() as u64));
        for (at, parity) in holders.iter().enumerate() {
            let is_likely = left != Left::Part || self.random.percent(60);
            if left == Left::All || (lacks != Some(at as u64) && is_likely) {
                self.log(RecordKind::ParityOnly(change), (stripe, *parity, rows), &holders);
            }
        }
        let is_there = left == Left::All && (!is_last || self.random.percent(60));
        if is_there {
            let (disk, offset) = self.at(place);
            disk.poke(offset, &self.newest[&place]);
            for parity in k..self.geometry.stripe_width() {
                self.land((stripe, parity, row), (RecordKind::Full, left), &old);
            }
            self.allowed.insert(place, vec![self.newest[&place].clone()]);
        } else {
            self.allowed.get_mut(&place).expect("of data").push(self.newest[&place].clone());
            self.newest = old;
            // Its device has no cache.
            let (disk, offset) = self.at(place);
            disk.poke(offset, &self.newest[&place]);
        }
        let (disk, offset) = self.at(place);
        Some((disk.clone(), offset))
    }

    fn change_row(&mut self, stripe: u64, row: u32, changed: &[usize]) {
        let k = self.geometry.data_strips();
        for strip in changed {
            let mut bytes = vec![0; BLOCK];
            self.random.fill(&mut bytes);
            self.newest.insert((stripe, *strip, row), bytes);
        }
        let data: Vec<&[u8]> = (0..k).map(|at| &self.newest[&(stripe, at, row)][..]).collect();
        let mut parity = vec![vec![0; BLOCK]; self.geometry.parity_strips()];
        let mut targets: Vec<Option<&mut [u8]>> =
            parity.iter_mut().map(|bytes| Some(&mut bytes[..])).collect();
        self.code.generate(&data, &mut targets, Locality::Cached).expect("whole blocks");
        for (at, bytes) in parity.into_iter().enumerate() {
            self.newest.insert((stripe, k + at, row), bytes);
        }
    }

    /// The record of the newest update on the member that stores `strip`.
    fn log(
        &mut self,
        kind: RecordKind,
        (stripe, strip, rows): (u64, usize, RowRange),
        holders: &[usize],
    ) {
        let slot = self.slot_of(stripe, strip);
        let tag = |strip: usize| self.superblock.members[self.slot_of(stripe, strip)].log_tag;
        let named: Vec<Holder> = holders
            .iter()
            .map(|&at| Holder { log_tag: tag(at), strip: StripIdx::from_at(at), is_filled: false })
            .collect();
        let part = [Part { strip: StripIdx::from_at(strip), rows }];
        let has_payload = kind.has_payload();
        let record = NewRecord {
            sequence: self.sequence,
            stripe: StripeNo(stripe),
            kind,
            rows,
            holders: &named,
            parts: if has_payload { &part } else { &[] },
        };
        let identity = LogIdentity {
            array_tag: array_tag(self.superblock.array_uuid),
            log_tag: tag(strip),
            incarnation: self.superblock.incarnation,
        };
        let mut buffer = vec![0xEE; 64 * BLOCK];
        let mut encoder = BatchEncoder::new(&mut buffer, BLOCK, identity);
        let payload = (rows.start..rows.end).filter(|_| has_payload);
        encoder.push(&record, payload.map(|row| &self.newest[&(stripe, strip, row)][..]));
        let (block, number) = self.next[slot];
        let length = encoder.finish(1, number, self.settled_below);
        let offset = self.superblock.areas.intent_log.offset + block * BLOCK_BYTES;
        self.disks[slot].poke(offset, &buffer[..length]);
        self.next[slot] = (block + (length / BLOCK) as u64, number + 1);
        let end = self.next[slot].0 * BLOCK_BYTES;
        assert!(end <= self.superblock.areas.intent_log.bytes, "the log has room");
    }

    /// What of a block is in place after the crash, and what it may be read as.
    fn land(
        &mut self,
        place: Place,
        (kind, left): (RecordKind, Left),
        old: &BTreeMap<Place, Vec<u8>>,
    ) {
        let (new, before) = (self.newest[&place].clone(), &old[&place]);
        if let Some(allowed) = self.allowed.get_mut(&place) {
            // A partial record may turn out whole among those that are left.
            if left == Left::All && kind == RecordKind::Full {
                allowed.clear();
            }
            allowed.push(new.clone());
        }
        if left != Left::All || self.out.contains(&self.slot_of(place.0, place.1)) {
            return;
        }
        let mut bytes = before.clone();
        match self.random.below(3) {
            0 => {}
            1 => bytes = new,
            // Torn, as disks without data of their own to replace it do: in rows in doubt blocks
            // are whole.
            _ if kind == RecordKind::Full => {
                for sector in 0..BLOCK / 512 {
                    if self.random.percent(50) {
                        let range = sector * 512..(sector + 1) * 512;
                        bytes[range.clone()].copy_from_slice(&new[range]);
                    }
                }
            }
            _ => bytes = new,
        }
        let (disk, offset) = self.at(place);
        disk.poke(offset, &bytes);
    }

    /// Give the superblocks to the members that are in, as the crash leaves them, and a
    /// write-intent bitmap with all that was written.
    pub fn crash(&self) {
        // Newer than what a clean stop left, older than what the next start writes.
        let sequence = (self.superblock.generation << 32) - 1;
        for (slot, disk) in
            self.disks.iter().enumerate().filter(|(slot, _)| !self.out.contains(slot))
        {
            let own = self.superblock.for_member(self.superblock.members[slot].uuid);
            let bytes = own.expect("listed").encode().expect("valid");
            for copy in copy_slots(super::world::DISK_BYTES).expect("large enough") {
                disk.poke(copy.offset, &bytes);
            }
            let owner_tag = self.superblock.page_tag(self.superblock.members[slot].uuid);
            let identity = PageIdentity { kind: BitmapKind::WriteIntent, owner_tag, page: 0 };
            let page = identity.encode(sequence, &[!0; WORDS_PER_PAGE]);
            disk.poke(self.superblock.areas.write_intent.offset, &page);
        }
    }

    /// Where a data block lies in the volume, in bytes.
    pub fn volume_offset(&self, (stripe, strip, row): Place) -> u64 {
        stripe * self.geometry.stripe_bytes()
            + strip as u64 * self.geometry.strip_bytes()
            + u64::from(row) * BLOCK_BYTES
    }

    /// Nothing may be read as two things after it was read once.
    pub fn found(&mut self, place: Place, bytes: &[u8]) -> bool {
        let allowed = self.allowed.get_mut(&place).expect("a data block");
        let is_allowed = allowed.iter().any(|one| one == bytes);
        *allowed = vec![bytes.to_vec()];
        is_allowed
    }

    /// Every data block.
    pub fn data_blocks(&self) -> Vec<Place> {
        self.allowed.keys().copied().collect()
    }
}
