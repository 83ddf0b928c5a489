//! What is done to the devices of an array, and what may be lost by it.
//!
//! What must stay true: whatever a right checksum would have told apart is not excused: damage to
//! superblocks, maps, log and checksum table must never make a read wrong. Excused are blocks that
//! nothing protects (data on arrays without checksums), and everything once a record was forged
//! under a right checksum.

use super::forge;
use super::subject::{DISK_BYTES, Subject};
use ashlar_layout::Geometry;
use ashlar_ondisk::ChecksumKind;
use ashlar_ondisk::format::{SUPERBLOCK_COPIES, copy_slots};
use ashlar_sim::{Random, SimDisk};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, to_u64, to_usize};
use std::collections::BTreeSet;
use std::fmt;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Damage {
    /// Bits flipped in one area of one member.
    Flips,
    /// A run of bytes that are zeros, ones or junk.
    Run,
    /// Two sectors or blocks of a member changed places.
    SwappedSectors,
    /// A part of a member is what another member has there.
    CopiedPart,
    /// Two members changed devices.
    SwappedMembers,
    /// A device is smaller than it was.
    Shrunk,
    /// A device is larger than it was.
    Grown,
    /// A device is not there.
    Gone,
    /// Somebody else's data is where a member was.
    Foreign,
    /// Another device has a copy of a member.
    Twice,
    /// A member is as it was at the end of the run before.
    Stale,
    /// A superblock of one member says something else.
    ForgedSuperblock,
    /// The superblocks of all members tell the same lie.
    ForgedEverywhere,
    /// A page of the written map says something else, on one member or on all.
    ForgedMap,
    /// A page of the write-intent bitmap.
    ForgedIntent,
    /// A batch of the log.
    ForgedLog,
    /// A page of the checksum table.
    ForgedTable,
}

const ALL: [Damage; 17] = [
    Damage::Flips,
    Damage::Run,
    Damage::SwappedSectors,
    Damage::CopiedPart,
    Damage::SwappedMembers,
    Damage::Shrunk,
    Damage::Grown,
    Damage::Gone,
    Damage::Foreign,
    Damage::Twice,
    Damage::Stale,
    Damage::ForgedSuperblock,
    Damage::ForgedEverywhere,
    Damage::ForgedMap,
    Damage::ForgedIntent,
    Damage::ForgedLog,
    Damage::ForgedTable,
];

/// What a read may be wrong about.
#[derive(Default)]
pub(crate) struct Excused {
    /// Everything: a record was forged.
    pub(crate) all: bool,
    /// Stripes with data that nothing protects.
    pub(crate) stripes: BTreeSet<u64>,
    /// What was written since an older page of the written map: after a crash, a newer one that is
    /// damaged on all that are left looks as if the crash had torn it.
    pub(crate) map_is_older: bool,
    /// Members that are stale: where they are alone they cannot know.
    pub(crate) stale: BTreeSet<usize>,
    /// Members with something on them that is not what was written there.
    pub(crate) damaged: BTreeSet<usize>,
    /// Stripes with data on one of these that its checksums tell; a row in doubt after a crash is
    /// believed where more of it is wrong or gone than parity replaces.
    pub(crate) told: BTreeSet<(usize, u64)>,
}

impl Excused {
    /// Excuse what a crashed array believes of its rows in doubt, of groups with more `useless` and
    /// damaged members than `parity` replaces.
    pub(crate) fn rows_in_doubt(&mut self, geometry: &Geometry, useless: &[bool]) {
        let is_bad = |slot: &usize| useless[*slot] || self.damaged.contains(slot);
        let own = |slot: usize| geometry.failure_sets().find(|set| set.contains(&slot));
        let is_beyond = |slot: usize| {
            own(slot).into_iter().flatten().filter(is_bad).count() > geometry.parity_strips()
        };
        let beyond = self.told.iter().filter(|(slot, _)| is_beyond(*slot));
        self.stripes.extend(beyond.map(|(_, stripe)| *stripe));
    }
}

/// The devices of an array that something was done to.
pub(crate) struct Victims<'v> {
    pub(crate) subject: &'v Subject,
    pub(crate) disks: &'v [SimDisk],
    /// Holds nothing until it is made a copy of a member.
    pub(crate) twin: &'v SimDisk,
    pub(crate) random: Random,
    pub(crate) excused: Excused,
    /// Devices that are no member any more and must not be written.
    pub(crate) strangers: BTreeSet<usize>,
    /// Devices that are not there.
    pub(crate) gone: Vec<usize>,
    /// What was done, for whoever reads it.
    pub(crate) story: Vec<String>,
}

/// An area, as far as damage is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Superblocks,
    Intent,
    Map,
    Log,
    Table,
    Data,
    Anything,
}

const PARTS: [Part; 7] = [
    Part::Superblocks,
    Part::Intent,
    Part::Map,
    Part::Log,
    Part::Table,
    Part::Data,
    Part::Anything,
];

impl Victims<'_> {
    /// Do one to three things. True if a record was forged.
    pub(crate) fn suffer(&mut self) {
        let count = 1 + self.random.below(3);
        for _ in 0..count {
            let damage = ALL[to_usize(self.random.below(to_u64(ALL.len())))];
            self.commit(damage);
        }
    }

    fn say(&mut self, what: impl fmt::Display) {
        self.story.push(what.to_string());
    }

    fn member(&mut self) -> usize {
        to_usize(self.random.below(to_u64(self.disks.len())))
    }

    fn commit(&mut self, damage: Damage) {
        let at = self.member();
        self.say(format_args!("{damage:?} of disk{at}"));
        match damage {
            Damage::Flips => self.flip(at),
            Damage::Run => self.run(at),
            Damage::SwappedSectors => self.swap_sectors(at),
            Damage::CopiedPart => self.copy_part(at),
            Damage::SwappedMembers => {
                let other = self.member();
                self.say(format_args!("with disk{other}"));
                let image = self.disks[at].image();
                self.disks[at].put_image(&self.disks[other].image());
                self.disks[other].put_image(&image);
            }
            Damage::Shrunk => {
                let bytes = self.random.below(DISK_BYTES / 512) * 512;
                self.disks[at].set_size(bytes);
            }
            Damage::Grown => {
                let more = (1 + self.random.below(1 << 12)) * 512;
                self.disks[at].set_size(DISK_BYTES + more);
            }
            Damage::Gone => {
                self.disks[at].vanish();
                self.gone.push(at);
            }
            Damage::Foreign => {
                self.disks[at].wipe();
                self.strangers.insert(at);
                let junk: Vec<u8> =
                    (0..256 << 10).map(|_| self.random.below(256)).map(low).collect();
                self.disks[at].poke(0, &junk);
            }
            Damage::Twice => self.twin.put_image(&self.disks[at].image()),
            Damage::Stale => {
                self.disks[at].put_image(&self.subject.older[at]);
                self.excused.stale.insert(at);
            }
            Damage::ForgedSuperblock => self.forge_superblock(at),
            Damage::ForgedEverywhere => {
                let seed = self.random.next_u64();
                (0..self.disks.len()).for_each(|at| self.forge_all_copies(at, seed));
            }
            Damage::ForgedMap => self.forge_page(at, self.subject.superblock.areas.written_map),
            Damage::ForgedIntent => self.forge_page(at, self.subject.superblock.areas.write_intent),
            Damage::ForgedTable => self.forge_page(at, self.subject.superblock.areas.checksums),
            Damage::ForgedLog => self.forge_log(at),
        }
    }

    fn extent_of(&self, part: Part, random: &mut Random) -> Extent {
        let areas = &self.subject.superblock.areas;
        let begin = |area: Extent, bytes: u64| Extent::new(area.offset, area.bytes.min(bytes));
        match part {
            Part::Superblocks => {
                let slots = copy_slots(DISK_BYTES).expect("large enough");
                begin(slots[to_usize(random.below(to_u64(SUPERBLOCK_COPIES)))], 8192)
            }
            Part::Intent => areas.write_intent,
            Part::Map => areas.written_map,
            Part::Log => begin(areas.intent_log, 256 << 10),
            Part::Table => begin(areas.checksums, 16 << 10),
            Part::Data => begin(areas.data, 512 << 10),
            Part::Anything => Extent::new(0, DISK_BYTES),
        }
    }

    /// A place of a member: `bytes` at a multiple of `unit` in one of its areas.
    fn place(&mut self, bytes: u64, unit: u64) -> Extent {
        let part = PARTS[to_usize(self.random.below(to_u64(PARTS.len())))];
        let mut random = self.random.clone();
        let area = self.extent_of(part, &mut random);
        self.random = random;
        let bytes = bytes.min(area.bytes);
        let room = (area.bytes - bytes) / unit;
        let offset = area.offset + self.random.below(room + 1) * unit;
        self.say(format_args!("{part:?} at {offset}, {bytes} bytes"));
        Extent::new(offset, bytes)
    }

    /// What lies there is something else now.
    fn spoil(&mut self, at: usize, extent: Extent, bytes: &[u8]) {
        self.disks[at].poke(extent.offset, bytes);
        self.excused.damaged.insert(at);
        let stripes = self.stripes_in(at, extent);
        match self.subject.superblock.checksums {
            ChecksumKind::None => self.excused.stripes.extend(stripes),
            ChecksumKind::Crc32c => {
                self.excused.told.extend(stripes.into_iter().map(|stripe| (at, stripe)));
            }
        }
    }

    /// Stripes whose strips lie in `extent` of the member in slot `at`.
    fn stripes_in(&self, at: usize, extent: Extent) -> Vec<u64> {
        let data = self.subject.superblock.areas.data;
        let mut stripes = Vec::new();
        let (from, to) = (extent.offset.max(data.offset), extent.end().min(data.end()));
        let mut offset = from - (from - data.offset) % BLOCK_BYTES.min(from);
        while offset < to {
            let row = (offset - data.offset) / self.subject.geometry.strip_bytes();
            let held = self.subject.geometry.strip_at(MemberIdx::from_at(at), row);
            stripes.extend(held.map(|(stripe, _)| stripe.number().0));
            offset += BLOCK_BYTES;
        }
        stripes
    }

    fn flip(&mut self, at: usize) {
        let count = 1 + self.random.below(32);
        let place = self.place(4096, 512);
        let mut bytes = self.disks[at].peek(place);
        for _ in 0..count {
            let byte = to_usize(self.random.below(place.bytes));
            bytes[byte] ^= 1 << self.random.below(8);
        }
        self.spoil(at, place, &bytes);
    }

    fn run(&mut self, at: usize) {
        let length =
            1 + self.random.below(if self.random.clone().percent(20) { 128 << 10 } else { 8192 });
        let place = self.place(length, 1);
        let kind = self.random.below(3);
        let mut byte = || match kind {
            0 => 0,
            1 => 0xFF,
            _ => low(self.random.below(256)),
        };
        let bytes: Vec<u8> = (0..place.bytes).map(|_| byte()).collect();
        self.spoil(at, place, &bytes);
    }

    fn swap_sectors(&mut self, at: usize) {
        let bytes = if self.random.percent(50) { 512 } else { 4096 };
        let (one, other) = (self.place(bytes, bytes), self.place(bytes, bytes));
        if overlap(one, other) || one.bytes != other.bytes {
            return;
        }
        let (first, second) = (self.disks[at].peek(one), self.disks[at].peek(other));
        self.spoil(at, one, &second);
        self.spoil(at, other, &first);
    }

    fn copy_part(&mut self, at: usize) {
        let from = self.member();
        let length = 4096 * (1 + self.random.below(32));
        let place = self.place(length, 4096);
        let bytes = self.disks[from].peek(place);
        self.say(format_args!("from disk{from}"));
        if from != at {
            self.spoil(at, place, &bytes);
        }
    }

    fn forge_superblock(&mut self, at: usize) {
        let seed = self.random.next_u64();
        if self.random.percent(70) {
            return self.forge_all_copies(at, seed);
        }
        self.excused.all = true;
        let slots = copy_slots(DISK_BYTES).expect("large enough");
        let slot = slots[to_usize(self.random.below(to_u64(SUPERBLOCK_COPIES)))];
        let mut bytes = self.disks[at].peek(slot);
        forge::superblock(&mut bytes, &mut Random::new(seed));
        self.disks[at].poke(slot.offset, &bytes);
    }

    fn forge_all_copies(&mut self, at: usize, seed: u64) {
        self.excused.all = true;
        for slot in copy_slots(DISK_BYTES).expect("large enough") {
            let mut bytes = self.disks[at].peek(slot);
            forge::superblock(&mut bytes, &mut Random::new(seed));
            self.disks[at].poke(slot.offset, &bytes);
        }
    }

    /// A page of an area, on one member or the same lie on all.
    fn forge_page(&mut self, at: usize, area: Extent) {
        self.excused.all = true;
        let pages = (area.bytes / BLOCK_BYTES).clamp(1, 4);
        let place = Extent::new(area.offset + self.random.below(pages) * BLOCK_BYTES, BLOCK_BYTES);
        let (seed, is_everywhere) = (self.random.next_u64(), self.random.percent(50));
        for (slot, disk) in self.disks.iter().enumerate() {
            if slot == at || is_everywhere {
                let mut bytes = disk.peek(place);
                forge::page(&mut bytes, &mut Random::new(seed));
                disk.poke(place.offset, &bytes);
            }
        }
    }

    /// Some batches of one member or of all.
    fn forge_log(&mut self, at: usize) {
        self.excused.all = true;
        let log = self.subject.superblock.areas.intent_log;
        let (seed, is_everywhere) = (self.random.next_u64(), self.random.percent(50));
        let mut forged = 0;
        for (slot, disk) in self.disks.iter().enumerate() {
            if slot != at && !is_everywhere {
                continue;
            }
            let mut random = Random::new(seed);
            let log = Extent::new(log.offset, log.bytes.min(512 << 10));
            let mut bytes = disk.peek(log);
            for block in 0..bytes.len() / 4096 {
                if random.percent(30) && forge::batch(&mut bytes[block * 4096..], &mut random) {
                    forged += 1;
                }
            }
            disk.poke(log.offset, &bytes);
        }
        self.say(format_args!("{forged} batches forged"));
    }
}

fn overlap(one: Extent, other: Extent) -> bool {
    one.offset < other.end() && other.offset < one.end()
}

fn low(number: u64) -> u8 {
    u8::try_from(number & 0xFF).expect("a byte")
}
