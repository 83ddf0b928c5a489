//! A superblock out of bytes, as docs/on-disk-format.md draws it.
//!
//! What must stay true: what decodes describes a geometry that can be computed with, without
//! overflow and within the limits of the format. Numbers that no reading of data needs are not
//! looked at.

use crate::bytes::{
    Uuid, array_at, array_tag, checksum, index, is_blank, text, u16_at, u32_at, u64_at,
};
use crate::declustered::{Declustered, Parameters};

/// Bytes between two superblock copies at one end, and the most that one can have.
pub const SLOT_BYTES: u64 = 65_536;
const HEADER_BYTES: usize = 4096;
const ENTRY_BYTES: usize = 128;
const SLOTS_MAX: u64 = 480;
/// Where the numbers of layout version 2 begin, and end.
const SPREAD_AT: usize = 1056;
const SPREAD_END: usize = 1112;
/// Where the growths begin, of 16 bytes each.
const GROWTHS_AT: usize = 1080;
/// Domains of an enclosure, and what an enclosure is.
const ENCLOSURE_AT: usize = 1062;
/// The most entries that a member table has.
pub const ENTRIES_MAX: usize = 480;

/// A range of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First byte, from the start of the member.
    pub offset: u64,
    /// Length in bytes; 0: there is none.
    pub bytes: u64,
}

/// What the geometry is, as far as the place of a block depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Code of the level: 0, 1, 5, 6, 7, 10, 50, 60, 70, or 100 for n+m.
    pub level: u16,
    /// Data strips of a stripe.
    pub data_strips: u16,
    /// Parity strips of a stripe, or further copies.
    pub parity_strips: u16,
    /// Groups of members.
    pub groups: u16,
    /// Bytes of a strip.
    pub strip_bytes: u32,
    /// Strips on each member.
    pub rows: u64,
    /// The map of layout version 2.
    pub declustered: Option<Declustered>,
}

/// What a member is to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Holds its slot; all its strips are current.
    Active,
    /// Is being rebuilt.
    Rebuilding,
    /// Receives a copy of the holder.
    Replacement,
    /// Holds its slot but missed writes.
    Out,
    /// Belongs to the array no longer.
    Removed,
}

/// One entry of the member table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The member.
    pub member_uuid: Uuid,
    /// Its slot.
    pub slot: u16,
    /// Its role.
    pub role: Role,
    /// Generation that recorded it as out; 0: it missed nothing.
    pub out_since: u64,
    /// Serial of its device; may be empty.
    pub serial: String,
    /// Incarnation that recorded it as out, and the one before that.
    pub out_incarnations: [Uuid; 2],
    /// Its device's name in the stripe intent log; 0: none.
    pub log_tag: u64,
    /// Usable size of its device when it became a member.
    pub member_bytes: u64,
}

/// A lost member of an array with distributed spares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpareEntry {
    /// The number of its entry.
    pub number: u64,
    /// Its slot.
    pub slot: u16,
    /// Its spare column, if it has one.
    pub column: Option<u64>,
    /// Generation of the update that made the entry.
    pub since: u64,
}

impl SpareEntry {
    /// What its pages of states carry besides what other pages of their member do.
    pub fn life_tag(&self) -> u64 {
        self.since.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn decode(number: usize, bytes: &[u8]) -> Option<SpareEntry> {
        (bytes[2] & 1 == 1).then(|| SpareEntry {
            number: u64::try_from(number).unwrap_or(u64::MAX),
            slot: u16_at(bytes, 0),
            column: (bytes[3] != u8::MAX).then(|| bytes[3].into()),
            since: u64_at(bytes, 8),
        })
    }
}

/// Background work that was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// 1 rebuild, 2 replace, 3 resync, 4 scrub.
    pub kind: u8,
    /// The member it writes to; zero: none.
    pub member_uuid: Uuid,
    /// All stripes before this one are done.
    pub checkpoint_stripe: u64,
}

/// Incompatible feature bits that this reader knows.
const KNOWN_INCOMPATIBLE: u64 = 0b1111_1111;
/// The incompatible feature of declustered arrays that have grown.
const GROWN: u64 = 128;
/// Where the spare table lies, before the kept map's boot, and its entries.
const SPARE_TABLE_AT: usize = KEPT_MAP_BOOT_AT - SPARE_ENTRIES * SPARE_ENTRY_BYTES;
const SPARE_ENTRIES: usize = 64;
const SPARE_ENTRY_BYTES: usize = 16;
/// The incompatible feature of arrays whose lost cells may lie on distributed spares.
const DISTRIBUTED_SPARES: u64 = 32;
/// Where the boot of the kept map lies: the end of the header.
const KEPT_MAP_BOOT_AT: usize = HEADER_BYTES - 16;

/// One superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Number of the update that wrote it.
    pub generation: u64,
    /// The array.
    pub array_uuid: Uuid,
    /// The start of the array that it belongs to, and the one before.
    pub incarnation: Uuid,
    /// The start before that one.
    pub previous_incarnation: Uuid,
    /// The member that it lies on.
    pub member_uuid: Uuid,
    /// Usable bytes of that member's device.
    pub member_bytes: u64,
    /// Whether the array was started and not stopped.
    pub unclean: bool,
    /// Whether parity of dirty regions is in doubt whatever the log says.
    pub resync_dirty: bool,
    /// Name of the array.
    pub array_name: String,
    /// Where blocks lie.
    pub geometry: Geometry,
    /// Slots of each enclosure: they follow each other, and fail together. None: nothing is said.
    pub enclosure_slots: Option<u64>,
    /// 1 bitmap, 2 none, 3 log.
    pub consistency_policy: u8,
    /// Bytes of the volume per bit of the write-intent bitmap.
    pub region_bytes: u64,
    /// Whether creation made the pages of the written map: zeros in their place are damage.
    pub has_whole_map: bool,
    /// Whether pages of bits name the member that they lie on.
    pub has_member_pages: bool,
    /// Whether flush marks count.
    pub has_flush_marks: bool,
    /// Whether bits of the written map may be missing here: a running daemon had them in memory.
    pub has_kept_map: bool,
    /// The write-intent bitmap's pages.
    pub write_intent: Area,
    /// The written map's pages.
    pub written_map: Area,
    /// Its pages behind those, of an array that has grown.
    pub grown_map: Area,
    /// The stripe intent log.
    pub intent_log: Area,
    /// The checksum table, if the array keeps one.
    pub checksums: Option<Area>,
    /// The strips.
    pub data: Area,
    /// States of cells of lost members.
    pub spare_states: Area,
    /// The lost members of an array with distributed spares.
    pub spares: Vec<SpareEntry>,
    /// Background work.
    pub jobs: Vec<Job>,
    /// The member table.
    pub entries: Vec<Entry>,
    /// What all superblocks of one generation must agree on, as bytes.
    pub shared: Vec<u8>,
}

/// What lies where a superblock should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copy {
    /// Nothing of ours.
    Absent,
    /// It began as a superblock; what is wrong with it.
    Damaged(&'static str),
    /// A spare's superblock: a device without data.
    Spare,
    /// Written by a program that knows more.
    Newer,
    /// An intact one.
    Good(Box<Superblock>),
}

impl Copy {
    /// Decode one slot. Bytes beyond `slot` are absent.
    pub fn decode(slot: &[u8]) -> Copy {
        if slot.len() < HEADER_BYTES {
            return Copy::Absent;
        }
        let is_spare = match &slot[..8] {
            b"ASHLARSB" => false,
            b"ASHLARSP" => true,
            _ => return Copy::Absent,
        };
        let length = index(u32_at(slot, 12));
        if length < HEADER_BYTES || !length.is_multiple_of(4096) || length > slot.len() {
            return Copy::Damaged("length");
        }
        let bytes = &slot[..length];
        if checksum(bytes, 8) != u32_at(bytes, 8) {
            return Copy::Damaged("checksum");
        }
        // Bits 0 and 1 of the incompatible features are the stripe intent log and its parity-only
        // records, bit 2 pages that name their member, bit 3 layout version 2, bit 4 a kept map,
        // bit 5 distributed spares, bit 6 failure domains, bit 7 growth.
        // Bit 0 of the read-only compatible ones are checksums, and reading without them is no
        // worse than before they existed.
        if u32_at(bytes, 16) != 1 || u64_at(bytes, 40) & !KNOWN_INCOMPATIBLE != 0 {
            return Copy::Newer;
        }
        if is_spare {
            return Copy::Spare;
        }
        match Superblock::decode(bytes) {
            Ok(superblock) => Copy::Good(Box::new(superblock)),
            Err(field) => Copy::Damaged(field),
        }
    }
}

impl Superblock {
    fn decode(bytes: &[u8]) -> Result<Superblock, &'static str> {
        let member_count = usize::from(u16_at(bytes, 130));
        let table = HEADER_BYTES + member_count * ENTRY_BYTES;
        if member_count == 0 || table.next_multiple_of(4096) != bytes.len() {
            return Err("member_count");
        }
        let area = |number: usize| Area {
            offset: u64_at(bytes, 288 + 16 * number),
            bytes: u64_at(bytes, 296 + 16 * number),
        };
        let entries = bytes[HEADER_BYTES..table].chunks_exact(ENTRY_BYTES).map(Entry::decode);
        let superblock = Superblock {
            generation: u64_at(bytes, 48),
            array_uuid: array_at(bytes, 56),
            incarnation: array_at(bytes, 72),
            previous_incarnation: array_at(bytes, 88),
            member_uuid: array_at(bytes, 104),
            member_bytes: u64_at(bytes, 120),
            unclean: u32_at(bytes, 132) & 1 == 1,
            resync_dirty: u32_at(bytes, 132) & 2 == 2,
            array_name: text(&bytes[136..200]),
            geometry: Geometry::decode(bytes)?,
            enclosure_slots: None,
            consistency_policy: bytes[244],
            region_bytes: u64_at(bytes, 248),
            has_whole_map: u64_at(bytes, 24) & 1 == 1,
            has_member_pages: u64_at(bytes, 40) & 4 == 4,
            has_flush_marks: u64_at(bytes, 24) & 2 == 2,
            has_kept_map: u64_at(bytes, 40) & 16 == 16,
            write_intent: area(3),
            written_map: area(4),
            grown_map: area(10),
            intent_log: area(5),
            checksums: (bytes[245] == 1).then(|| area(6)),
            data: area(7),
            spare_states: area(8),
            spares: spare_table(bytes),
            jobs: (0..8).map(|number| Job::decode(&bytes[544 + 64 * number..])).collect(),
            entries: entries.collect::<Result<_, _>>()?,
            shared: shared(bytes),
        };
        superblock.check(bytes)?;
        let map = superblock.geometry.declustered.as_ref();
        let enclosure_slots = map
            .map(|map| u64::from(bytes[ENCLOSURE_AT]) * map.domain_members())
            .filter(|slots| *slots != 0);
        Ok(Superblock { enclosure_slots, ..superblock })
    }

    fn check(&self, bytes: &[u8]) -> Result<(), &'static str> {
        let flags_known = u64_at(bytes, 24) <= 7 && u64_at(bytes, 32) <= 1;
        let is_declustered = self.geometry.declustered.is_some();
        let reserved = if is_declustered { SPREAD_END } else { SPREAD_AT };
        let padding = u32_at(bytes, 1068) != 0;
        if flags_known && (padding || !is_blank(&bytes[reserved..SPARE_TABLE_AT])) {
            return Err("reserved_2");
        }
        let has_spares = u64_at(bytes, 40) & DISTRIBUTED_SPARES != 0;
        if !has_spares && !is_blank(&bytes[SPARE_TABLE_AT..KEPT_MAP_BOOT_AT]) {
            return Err("spare_table");
        }
        if is_declustered != (u64_at(bytes, 40) & 8 == 8) {
            return Err("layout_version");
        }
        self.check_domains(bytes)?;
        self.check_growths(bytes)?;
        let geometry = &self.geometry;
        let wanted = u128::from(geometry.rows) * u128::from(geometry.strip_bytes);
        let end = self.data.offset.checked_add(self.data.bytes);
        if u128::from(self.data.bytes) < wanted || end.is_none_or(|end| end > self.member_bytes) {
            return Err("areas");
        }
        let has_no_end = |area: &Area| area.offset.checked_add(area.bytes).is_none();
        if [self.written_map, self.grown_map, self.write_intent].iter().any(has_no_end) {
            return Err("areas");
        }
        if self.generation == 0 {
            return Err("generation");
        }
        if self.region_bytes == 0 {
            return Err("region_bytes");
        }
        Ok(())
    }

    /// Enclosures and their domains are there together with bit 6.
    fn check_domains(&self, bytes: &[u8]) -> Result<(), &'static str> {
        let domains = u64::from(bytes[ENCLOSURE_AT]);
        if (domains != 0) != (u64_at(bytes, 40) & 64 == 64) {
            return Err("enclosure_domains");
        }
        let Some(map) = &self.geometry.declustered else {
            return if domains == 0 { Ok(()) } else { Err("enclosure_domains") };
        };
        match (domains, bytes[ENCLOSURE_AT + 1]) {
            (0, _) if map.domain_members() != 1 => return Err("domain_members"),
            (0, 0) => return Ok(()),
            (1.., 1..=4) => {}
            _ => return Err("enclosure_kind"),
        }
        let enclosure = domains * map.domain_members();
        let is_possible = domains <= u64::from(self.geometry.parity_strips)
            && map.members().is_multiple_of(enclosure);
        if is_possible { Ok(()) } else { Err("enclosure_domains") }
    }

    /// Growths are there together with bit 7, and add whole enclosures.
    fn check_growths(&self, bytes: &[u8]) -> Result<(), &'static str> {
        let map = self.geometry.declustered.as_ref();
        let members: Vec<u64> = map.iter().flat_map(|map| map.members_before_growths()).collect();
        if members.is_empty() != (u64_at(bytes, 40) & GROWN == 0) {
            return Err("growths");
        }
        let enclosure = map.map_or(1, |map| map.domain_members());
        let enclosure = enclosure * u64::from(bytes[ENCLOSURE_AT]).max(1);
        let is_whole = |members: &u64| members.is_multiple_of(enclosure);
        if members.iter().all(is_whole) { Ok(()) } else { Err("growths") }
    }

    /// Whether a device is on its way into a slot that nobody serves.
    pub fn is_being_filled(&self, slot: u16) -> bool {
        self.entries.iter().any(|entry| entry.slot == slot && entry.role == Role::Rebuilding)
    }

    /// What pages of bits carry that lie on a member.
    pub fn page_tag(&self, member_uuid: &Uuid) -> u64 {
        let of_member = if self.has_member_pages { array_tag(member_uuid) } else { 0 };
        array_tag(&self.array_uuid) ^ of_member
    }

    /// The entry of a member.
    pub fn entry(&self, member_uuid: &Uuid) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.member_uuid == *member_uuid)
    }

    /// The stripes that background work has finished on a member.
    pub fn checkpoint_stripe(&self, member_uuid: &Uuid) -> u64 {
        let mut jobs = self.jobs.iter().filter(|job| matches!(job.kind, 1 | 2));
        jobs.find(|job| job.member_uuid == *member_uuid).map_or(0, |job| job.checkpoint_stripe)
    }
}

/// The growths: members before each, and cells that it has moved.
fn growths(bytes: &[u8]) -> Result<Vec<(u64, u64)>, &'static str> {
    let entries = bytes[GROWTHS_AT..SPREAD_END].chunks_exact(16);
    let all: Vec<_> = entries.map(|it| (u64::from(u16_at(it, 0)), u64_at(it, 8))).collect();
    let count = all.iter().take_while(|growth| growth.0 != 0).count();
    if !is_blank(&bytes[GROWTHS_AT + 16 * count..SPREAD_END]) {
        return Err("growths");
    }
    Ok(all[..count].to_vec())
}

/// The lost members.
fn spare_table(bytes: &[u8]) -> Vec<SpareEntry> {
    if u64_at(bytes, 40) & DISTRIBUTED_SPARES == 0 {
        return Vec::new();
    }
    let entries = bytes[SPARE_TABLE_AT..KEPT_MAP_BOOT_AT].chunks_exact(SPARE_ENTRY_BYTES);
    entries.enumerate().filter_map(|(number, entry)| SpareEntry::decode(number, entry)).collect()
}

/// A superblock without what is its own on each member.
fn shared(bytes: &[u8]) -> Vec<u8> {
    let mut shared = bytes.to_vec();
    // Checksum, member_uuid with member_bytes and slot, updated_at_s, the place of the tail copies.
    for own in [8..12, 104..130, 208..216, 304..312] {
        shared[own].fill(0);
    }
    shared
}

impl Geometry {
    fn decode(bytes: &[u8]) -> Result<Geometry, &'static str> {
        let geometry = Geometry {
            level: u16_at(bytes, 216),
            data_strips: u16_at(bytes, 218),
            parity_strips: u16_at(bytes, 220),
            groups: u16_at(bytes, 222),
            strip_bytes: u32_at(bytes, 224),
            rows: u64_at(bytes, 232),
            declustered: None,
        };
        if !matches!(geometry.level, 0 | 1 | 5 | 6 | 7 | 10 | 50 | 60 | 70 | 100) {
            return Err("level");
        }
        let strips = u64::from(geometry.data_strips) + u64::from(geometry.parity_strips);
        if geometry.data_strips == 0 || strips > 64 {
            return Err("data_strips");
        }
        if matches!(geometry.level, 1 | 10) && geometry.data_strips != 1 {
            return Err("data_strips");
        }
        if geometry.groups == 0 || strips * u64::from(geometry.groups) > SLOTS_MAX {
            return Err("groups");
        }
        let strip_bytes = geometry.strip_bytes;
        if !strip_bytes.is_power_of_two() || !(4096..=1 << 20).contains(&strip_bytes) {
            return Err("strip_bytes");
        }
        match u32_at(bytes, 228) {
            1 => geometry.grouped(),
            2 => geometry.spread(bytes),
            _ => Err("layout_version"),
        }
    }

    /// The rest of layout version 1.
    fn grouped(self) -> Result<Geometry, &'static str> {
        let stripes = u128::from(self.rows) * u128::from(self.groups);
        let volume = stripes * u128::from(self.data_strips) * u128::from(self.strip_bytes);
        if self.rows == 0 || volume > u128::from(u64::MAX / 2) {
            return Err("rows");
        }
        Ok(self)
    }

    /// The rest of layout version 2: its parity levels, and its numbers.
    fn spread(self, bytes: &[u8]) -> Result<Geometry, &'static str> {
        if !matches!(self.level, 5 | 6 | 7 | 100) {
            return Err("level");
        }
        if self.groups != 1 {
            return Err("groups");
        }
        let parameters = Parameters {
            data_strips: self.data_strips.into(),
            parity_strips: self.parity_strips.into(),
            rows: self.rows,
            members: u16_at(bytes, SPREAD_AT).into(),
            domain_members: u16_at(bytes, 1058).into(),
            spare_columns: u16_at(bytes, 1060).into(),
            cell_rows: u32_at(bytes, 1064).into(),
            seed: u64_at(bytes, 1072),
            growths: growths(bytes)?,
        };
        let members = u128::from(parameters.members) * u128::from(self.strip_bytes);
        if u128::from(self.rows) * members > 1 << 62 {
            return Err("rows");
        }
        Ok(Geometry { declustered: Some(Declustered::new(parameters)?), ..self })
    }
}

impl Entry {
    fn decode(bytes: &[u8]) -> Result<Entry, &'static str> {
        let role = match bytes[18] {
            1 => Role::Active,
            2 => Role::Rebuilding,
            3 => Role::Replacement,
            4 => Role::Out,
            5 => Role::Removed,
            _ => return Err("role"),
        };
        Ok(Entry {
            member_uuid: array_at(bytes, 0),
            slot: u16_at(bytes, 16),
            role,
            out_since: u64_at(bytes, 24),
            serial: text(&bytes[40..80]),
            out_incarnations: [array_at(bytes, 80), array_at(bytes, 96)],
            log_tag: u64_at(bytes, 112),
            member_bytes: u64_at(bytes, 32),
        })
    }
}

impl Job {
    fn decode(bytes: &[u8]) -> Job {
        Job {
            kind: bytes[0],
            member_uuid: array_at(bytes, 8),
            checkpoint_stripe: u64_at(bytes, 24),
        }
    }
}
