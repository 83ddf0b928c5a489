//! The superblock of a member: the array as a whole, and which part of it this member is.
//!
//! What must stay true: the superblocks of one generation agree in everything but the member's own
//! identity, size and areas. Encoding checks what decoding checks, so nothing is written that could
//! not be read back. A value that decoding accepts is coherent in itself.
//!
//! Update rule: a new generation goes to copies 0 and 2, flush, then to copies 1 and 3, flush. So
//! one whole generation lies on the member at every moment. [`Superblock::for_member`] makes the
//! superblock of each member from that of one; [`UPDATE_ORDER`] names the two steps.
//!
//! Not here: the checks (`check.rs`), the envelope (`seal.rs`), choosing among copies (`copies.rs`)
//! and among members (`assembly.rs`).

use ashlar_layout::declustered::DECLUSTERED_VERSION;
use ashlar_units::{Extent, MemberIdx, to_u64, to_usize};
use uuid::Uuid;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::areas::Areas;
use crate::bitmap::array_tag;
use crate::check::GENERATION_READ_END;
use crate::enclosures::EnclosureRecord;
use crate::fault::SuperblockFault;
use crate::features::{Access, Features};
use crate::format::{
    AREAS_MAX, FIRST_AREA_OFFSET, FLAG_RESYNC_DIRTY_REGIONS, FLAG_UNCLEAN, FORMAT_VERSION,
    GROWN_MAP_PLACES, JOBS_MAX, MEMBER_ENTRY_BYTES, MEMBER_MAGIC, PAGE_BYTES, RawArea, RawGrowth,
    RawHeader, RawJob, RawMember, RawSpareEntry, SPARE_ENTRIES_MAX, SUPERBLOCK_HEADER_BYTES,
    SUPERBLOCK_LENGTH_UNIT, SUPERBLOCK_SLOT_BYTES,
};
use crate::geometry::{GeometryRecord, GrowthRecord, SpreadRecord};
use crate::job::{JobRecord, ScrubRecord};
use crate::member::{BadTransition, MemberEntry, MemberEvent, Role, Update};
use crate::policy::{ChecksumKind, ConsistencyPolicy, ForcedActions};
use crate::seal::{is_zero, open, seal, short};
use crate::spare_table::SpareRecord;
use crate::text::{ArrayName, Text};

/// The copies to write in the first step and in the second; after each step comes a flush.
pub const UPDATE_ORDER: [[usize; 2]; 2] = [[0, 2], [1, 3]];

/// Why an event cannot be recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordFault {
    /// The member table does not list the member.
    #[error("member {member} is not in the member table")]
    NotListed {
        /// The member.
        member: Uuid,
    },
    /// The event cannot happen to a member in its role.
    #[error(transparent)]
    Transition(#[from] BadTransition),
}

/// The superblock of one member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Feature flags.
    pub features: Features,
    /// Number of this update; the highest wins. Never zero.
    pub generation: u64,
    /// The array.
    pub array_uuid: Uuid,
    /// Drawn anew on every start: tells two halves apart that lived on separately.
    pub incarnation: Uuid,
    /// The incarnation before this one; nil if the array was never started again.
    pub previous_incarnation: Uuid,
    /// This member.
    pub member_uuid: Uuid,
    /// Usable size of this member's device, in bytes.
    pub member_bytes: u64,
    /// The slot of this member (the last one, if it is removed).
    pub slot: MemberIdx,
    /// Started and not stopped cleanly: dirty regions may exist.
    pub unclean: bool,
    /// Some regions are in doubt besides what the stripe intent log says: however the array was
    /// stopped, the dirty regions of the write-intent bitmap need a resync.
    pub resync_dirty_regions: bool,
    /// Name of the array.
    pub array_name: ArrayName,
    /// Wall clock at creation, seconds since 1970; for display only.
    pub created_at_s: u64,
    /// Wall clock at this update, seconds since 1970; for display only.
    pub updated_at_s: u64,
    /// Level, strips, groups and rows.
    pub geometry: GeometryRecord,
    /// Which slots of a declustered array fail together; it has some while
    /// [`Features::FAILURE_DOMAINS`] is set.
    pub enclosures: Option<EnclosureRecord>,
    /// The volume's logical block, in bytes: 512 or 4096.
    pub logical_block_bytes: u32,
    /// How the array stays consistent over a crash.
    pub policy: ConsistencyPolicy,
    /// Checksums of data blocks.
    pub checksums: ChecksumKind,
    /// Bytes of the volume per bit of the write-intent bitmap: a power of two of whole stripes.
    pub region_bytes: u64,
    /// What was forced.
    pub forced: ForcedActions,
    /// The last scrub that ran to its end.
    pub last_scrub: Option<ScrubRecord>,
    /// The kernel's id of the boot in which the array runs with a kept map; it has one while
    /// [`Features::KEPT_MAP`] is set.
    pub kept_map_boot: Option<Uuid>,
    /// Where everything lies on this member.
    pub areas: Areas,
    /// Who belongs to the array; this member included.
    pub members: Vec<MemberEntry>,
    /// Background work to continue; at most [`JOBS_MAX`].
    pub jobs: Vec<JobRecord>,
    /// The lost members of an array with distributed spares, by entry.
    pub spares: Vec<SpareRecord>,
}

impl Superblock {
    /// Places on a member for each page of the written map, next to each other and written in
    /// turns: 2 if the area has room for them, else 1.
    pub fn written_map_places(&self) -> u64 {
        self.areas.written_map_places(&self.geometry)
    }

    /// Pages of the written map that its area of the creation has room for. Those behind them lie
    /// in what growths added.
    pub fn written_map_pages(&self) -> u64 {
        self.areas.written_map_pages(&self.geometry)
    }

    /// Where a place of a page of the written map lies, in bytes from the start of each member.
    /// Pages count through the map of the creation and then through what growths added.
    ///
    /// # Panics
    /// If the array has no such page; places are 0 and 1.
    pub fn written_map_offset(&self, page: u64, place: u64) -> u64 {
        let places = self.written_map_places();
        let (first, grown) = (self.areas.written_map, self.areas.grown_map);
        let (area, block) = match page.checked_sub(self.written_map_pages()) {
            None => (first, page * places + place),
            Some(page) => (grown, page * GROWN_MAP_PLACES + place),
        };
        assert!((block + 1) * PAGE_BYTES <= area.bytes, "page {page} of the written map");
        area.offset + block * PAGE_BYTES
    }

    /// Whether both places of every page of the written map hold a page since creation, so that
    /// zeros there are damage.
    pub fn has_whole_map(&self) -> bool {
        self.features.compatible & Features::WHOLE_MAP != 0 && self.written_map_places() == 2
    }

    /// Whether flush marks count: every device that is in service has had them since it came.
    pub fn has_flush_marks(&self) -> bool {
        self.features.compatible & Features::FLUSH_MARKS != 0
    }

    /// Whose the pages of the write-intent bitmap and of the written map are that lie on `member`:
    /// what is copied from another member, one that was put out long ago perhaps, is damage. Of
    /// arrays that were made before pages named members ([`Features::MEMBER_PAGES`]): the array's
    /// only.
    pub fn page_tag(&self, member: Uuid) -> u64 {
        let array = array_tag(self.array_uuid);
        match self.features.incompatible & Features::MEMBER_PAGES {
            0 => array,
            _ => array ^ array_tag(member),
        }
    }

    /// Whether what begins at this byte of the member lies where only Ashlar writes: before the
    /// areas, or behind the data. The log and the data hold whatever clients write, signatures too.
    pub fn guards(&self, offset: u64) -> bool {
        offset < FIRST_AREA_OFFSET || offset >= self.areas.data.end()
    }

    /// The bytes for the member, a multiple of 4 KiB long and at most 64 KiB. All four copies are
    /// equal.
    ///
    /// # Errors
    /// The field that is impossible: nothing is encoded that would not decode.
    pub fn encode(&self) -> Result<Vec<u8>, SuperblockFault> {
        self.check().map_err(|name| SuperblockFault::Field { name })?;
        let table = to_u64(self.members.len()) * MEMBER_ENTRY_BYTES;
        let length = SUPERBLOCK_HEADER_BYTES + table.next_multiple_of(SUPERBLOCK_LENGTH_UNIT);
        assert!(length <= SUPERBLOCK_SLOT_BYTES, "the member table was checked");
        let mut bytes = vec![0; to_usize(length)];
        let header = self.raw_header(u32::try_from(length).expect("at most 64 KiB"));
        let (head, rest) = bytes.split_at_mut(to_usize(SUPERBLOCK_HEADER_BYTES));
        head.copy_from_slice(header.as_bytes());
        for (place, member) in
            rest.chunks_exact_mut(to_usize(MEMBER_ENTRY_BYTES)).zip(&self.members)
        {
            place.copy_from_slice(member.to_raw().as_bytes());
        }
        seal(&mut bytes);
        Ok(bytes)
    }

    /// The superblock at the start of `bytes`; what follows its length is ignored.
    ///
    /// # Errors
    /// What is wrong with it; [`SuperblockFault::is_unsupported`] tells intact but newer from
    /// damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, SuperblockFault> {
        let sealed = open(bytes, &MEMBER_MAGIC)?;
        let (header, rest) = RawHeader::ref_from_prefix(sealed).map_err(|_| short(bytes))?;
        Self::from_raw(header, rest).map_err(|name| SuperblockFault::Field { name })
    }

    /// What a program that knows `supported` may do with the array. (Decoding has already refused
    /// what this crate does not know.)
    pub fn access(&self, supported: Features) -> Access {
        self.features.access(supported)
    }

    /// The entry of `member` in the member table.
    pub fn member(&self, member: Uuid) -> Option<&MemberEntry> {
        self.members.iter().find(|entry| entry.uuid == member)
    }

    /// The member that holds `slot` (Active or Out), if there is one.
    pub fn holder(&self, slot: MemberIdx) -> Option<&MemberEntry> {
        self.members.iter().find(|entry| entry.slot == slot && entry.role.is_holder())
    }

    /// The member on its way into `slot` (Rebuilding or Replacement), if there is one.
    pub fn joining_device(&self, slot: MemberIdx) -> Option<&MemberEntry> {
        self.members.iter().find(|entry| entry.slot == slot && entry.role.is_joining_device())
    }

    /// How many of its members are out or removed.
    pub fn members_out(&self) -> usize {
        self.members.iter().filter(|entry| matches!(entry.role, Role::Out | Role::Removed)).count()
    }

    /// Begins the update of a start: the next generation, unclean, under a freshly drawn
    /// incarnation. Members that were not found are recorded as lost ([`Superblock::record`]) in
    /// the same update.
    pub fn begin_start(&mut self, incarnation: Uuid) {
        self.generation += 1;
        self.unclean = true;
        self.previous_incarnation = std::mem::replace(&mut self.incarnation, incarnation);
    }

    /// The job that fills `member`, if one does. Other devices in its slot, before or after it,
    /// have had theirs.
    pub fn job_of(&self, member: Uuid) -> Option<&JobRecord> {
        self.jobs.iter().find(|job| job.member == Some(member))
    }

    /// Records `event` for `member` in the update under way: raise `generation` first. A job that
    /// was filling it goes with it: neither a member that is complete nor one that is not on its
    /// way any more has one.
    ///
    /// # Errors
    /// If the member is not listed or the event cannot happen to it.
    pub fn record(&mut self, member: Uuid, event: MemberEvent) -> Result<(), RecordFault> {
        let update = Update {
            generation: self.generation,
            incarnations: [self.incarnation, self.previous_incarnation],
        };
        let entry = self
            .members
            .iter_mut()
            .find(|entry| entry.uuid == member)
            .ok_or(RecordFault::NotListed { member })?;
        let (slot, before) = (entry.slot, entry.role);
        *entry = entry.next(event, update)?;
        if !entry.role.is_joining_device() {
            self.jobs.retain(|job| job.member != Some(member));
        }
        self.follow_in_spare_table(slot, before, event);
        Ok(())
    }

    /// The same generation as it is to be written to `member`; `None` if the table does not list
    /// it.
    pub fn for_member(&self, member: Uuid) -> Option<Superblock> {
        let entry = *self.member(member)?;
        Some(Superblock {
            member_uuid: entry.uuid,
            member_bytes: entry.bytes,
            slot: entry.slot,
            areas: self.areas.on_device(entry.bytes),
            ..self.clone()
        })
    }

    /// Whether `other` says the same about the array: equal in all but the member's own identity,
    /// size, areas and the time of display.
    pub fn agrees_with(&self, other: &Superblock) -> bool {
        let as_other = Superblock {
            member_uuid: other.member_uuid,
            member_bytes: other.member_bytes,
            slot: other.slot,
            areas: self.areas.on_device(other.member_bytes),
            updated_at_s: other.updated_at_s,
            ..self.clone()
        };
        as_other == *other
    }

    /// The growth under way has come this far.
    ///
    /// # Panics
    /// If the array never grew.
    pub fn set_moved_cells(&mut self, moved_cells: u64) {
        let spread = self.geometry.spread.as_mut();
        let last = spread.and_then(|spread| spread.growths.iter_mut().flatten().last());
        last.expect("the array grows").moved_cells = moved_cells;
    }

    /// The array runs with a kept map from now on, in this boot, or without one.
    pub fn set_kept_map(&mut self, boot: Option<Uuid>) {
        self.features.incompatible &= !Features::KEPT_MAP;
        if boot.is_some() {
            self.features.incompatible |= Features::KEPT_MAP;
        }
        self.kept_map_boot = boot;
    }

    fn flags(&self) -> u32 {
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        flag(self.unclean, FLAG_UNCLEAN)
            | flag(self.resync_dirty_regions, FLAG_RESYNC_DIRTY_REGIONS)
    }

    fn raw_header(&self, length: u32) -> RawHeader {
        let mut jobs = [RawJob::new_zeroed(); JOBS_MAX];
        for (place, job) in jobs.iter_mut().zip(&self.jobs) {
            *place = job.to_raw();
        }
        let mut spare_table = [RawSpareEntry::new_zeroed(); SPARE_ENTRIES_MAX];
        for record in &self.spares {
            spare_table[record.entry] = record.to_raw();
        }
        let spread = self.geometry.spread;
        let growths = spread.map(|spread| spread.growths).unwrap_or_default();
        let count = |of: fn(SpreadRecord) -> u16| spread.map_or(0, of).into();
        RawHeader {
            magic: MEMBER_MAGIC,
            length: length.into(),
            version: FORMAT_VERSION.into(),
            // Flags we do not know go: their bytes are not written either.
            features_compatible: (self.features.compatible & Features::SUPPORTED.compatible).into(),
            features_read_only_compatible: self.features.read_only_compatible.into(),
            features_incompatible: self.features.incompatible.into(),
            generation: self.generation.into(),
            array_uuid: self.array_uuid.into_bytes(),
            incarnation: self.incarnation.into_bytes(),
            previous_incarnation: self.previous_incarnation.into_bytes(),
            member_uuid: self.member_uuid.into_bytes(),
            member_bytes: self.member_bytes.into(),
            slot: self.slot.0.into(),
            member_count: u16::try_from(self.members.len()).expect("checked").into(),
            flags: self.flags().into(),
            array_name: self.array_name.to_bytes(),
            created_at_s: self.created_at_s.into(),
            updated_at_s: self.updated_at_s.into(),
            level: self.geometry.level.into(),
            data_strips: self.geometry.data_strips.into(),
            parity_strips: self.geometry.parity_strips.into(),
            groups: self.geometry.groups.into(),
            strip_bytes: self.geometry.strip_bytes.into(),
            layout_version: self.geometry.layout_version.into(),
            rows: self.geometry.rows.into(),
            logical_block_bytes: self.logical_block_bytes.into(),
            consistency_policy: self.policy.code(),
            checksum_kind: self.checksums.code(),
            region_bytes: self.region_bytes.into(),
            forced_actions: self.forced.flags.into(),
            forced_generation: self.forced.generation.into(),
            last_scrub_at_s: self.last_scrub.map_or(0, |scrub| scrub.at_s).into(),
            last_scrub_mismatches: self.last_scrub.map_or(0, |scrub| scrub.mismatches).into(),
            kept_map_boot: self.kept_map_boot.unwrap_or(Uuid::nil()).into_bytes(),
            areas: raw_areas(&self.areas),
            jobs,
            members: count(|spread| spread.members),
            domain_members: count(|spread| spread.domain_members),
            spare_columns: count(|spread| spread.spare_columns),
            enclosure_domains: self.enclosures.map_or(0, |own| own.domains),
            enclosure_kind: self.enclosures.map_or(0, |own| own.kind.code()),
            cell_rows: spread.map_or(0, |spread| spread.cell_rows).into(),
            seed: spread.map_or(0, |spread| spread.seed).into(),
            growths: growths.map(raw_growth),
            spare_table,
            ..RawHeader::new_zeroed()
        }
    }

    fn from_raw(raw: &RawHeader, rest: &[u8]) -> Result<Self, &'static str> {
        let features = features_of(raw);
        let lenient = features.has_unknown(Features::SUPPORTED);
        let zero = raw.reserved_0 == [0; 4]
            && raw.reserved_1 == [0; 2]
            && raw.growths.iter().all(|growth| growth.reserved_0 == [0; 6])
            && is_zero(&raw.reserved_2)
            && has_spread_of_its_layout(raw);
        if !lenient && !zero {
            return Err("reserved");
        }
        if !lenient && raw.flags.get() & !(FLAG_UNCLEAN | FLAG_RESYNC_DIRTY_REGIONS) != 0 {
            return Err("flags");
        }
        if raw.growths.iter().any(|it| it.members_before.get() == 0 && it.moved_cells.get() != 0) {
            return Err("growths");
        }
        let mut jobs = Vec::new();
        for job in &raw.jobs {
            jobs.extend(JobRecord::from_raw(job, lenient)?);
        }
        let mut spares = Vec::new();
        for (entry, place) in raw.spare_table.iter().enumerate() {
            spares.extend(SpareRecord::from_raw(entry, place, lenient)?);
        }
        let superblock = Superblock {
            features,
            generation: raw.generation.get(),
            array_uuid: Uuid::from_bytes(raw.array_uuid),
            incarnation: Uuid::from_bytes(raw.incarnation),
            previous_incarnation: Uuid::from_bytes(raw.previous_incarnation),
            member_uuid: Uuid::from_bytes(raw.member_uuid),
            member_bytes: raw.member_bytes.get(),
            slot: MemberIdx(raw.slot.get()),
            unclean: raw.flags.get() & FLAG_UNCLEAN != 0,
            resync_dirty_regions: raw.flags.get() & FLAG_RESYNC_DIRTY_REGIONS != 0,
            array_name: Text::from_bytes(raw.array_name)
                .and_then(ArrayName::from_text)
                .ok_or("array_name")?,
            created_at_s: raw.created_at_s.get(),
            updated_at_s: raw.updated_at_s.get(),
            geometry: geometry_of(raw),
            enclosures: EnclosureRecord::from_raw(raw)?,
            logical_block_bytes: raw.logical_block_bytes.get(),
            policy: ConsistencyPolicy::from_code(raw.consistency_policy)
                .ok_or("consistency_policy")?,
            checksums: ChecksumKind::from_code(raw.checksum_kind).ok_or("checksum_kind")?,
            region_bytes: raw.region_bytes.get(),
            forced: ForcedActions {
                flags: raw.forced_actions.get(),
                generation: raw.forced_generation.get(),
            },
            last_scrub: scrub_of(raw)?,
            kept_map_boot: Some(Uuid::from_bytes(raw.kept_map_boot)).filter(|boot| !boot.is_nil()),
            areas: areas_of(&raw.areas, lenient)?,
            members: members_of(rest, usize::from(raw.member_count.get()), lenient)?,
            jobs,
            spares,
        };
        superblock.check()?;
        if superblock.generation >= GENERATION_READ_END {
            return Err("generation");
        }
        Ok(superblock)
    }
}

fn features_of(raw: &RawHeader) -> Features {
    Features {
        compatible: raw.features_compatible.get(),
        read_only_compatible: raw.features_read_only_compatible.get(),
        incompatible: raw.features_incompatible.get(),
    }
}

/// Whether the fields of layout version 2 are zero where they mean nothing.
fn has_spread_of_its_layout(raw: &RawHeader) -> bool {
    let is_declustered = raw.layout_version.get() == u32::from(DECLUSTERED_VERSION);
    let counts = [raw.members, raw.domain_members, raw.spare_columns];
    let is_empty = counts.iter().all(|count| count.get() == 0)
        && raw.cell_rows.get() == 0
        && raw.seed.get() == 0
        && raw.growths.iter().all(|growth| growth.members_before.get() == 0)
        && (raw.enclosure_domains, raw.enclosure_kind) == (0, 0);
    raw.reserved_4 == [0; 4] && (is_declustered || is_empty)
}

fn spread_of(raw: &RawHeader) -> Option<SpreadRecord> {
    let spread = SpreadRecord {
        members: raw.members.get(),
        domain_members: raw.domain_members.get(),
        spare_columns: raw.spare_columns.get(),
        cell_rows: raw.cell_rows.get(),
        seed: raw.seed.get(),
        growths: raw.growths.map(growth_of),
    };
    (raw.layout_version.get() == u32::from(DECLUSTERED_VERSION)).then_some(spread)
}

fn growth_of(raw: RawGrowth) -> Option<GrowthRecord> {
    let (members_before, moved_cells) = (raw.members_before.get(), raw.moved_cells.get());
    (members_before != 0).then_some(GrowthRecord { members_before, moved_cells })
}

fn raw_growth(growth: Option<GrowthRecord>) -> RawGrowth {
    growth.map_or_else(RawGrowth::new_zeroed, |growth| RawGrowth {
        members_before: growth.members_before.into(),
        reserved_0: [0; 6],
        moved_cells: growth.moved_cells.into(),
    })
}

fn geometry_of(raw: &RawHeader) -> GeometryRecord {
    GeometryRecord {
        level: raw.level.get(),
        data_strips: raw.data_strips.get(),
        parity_strips: raw.parity_strips.get(),
        groups: raw.groups.get(),
        strip_bytes: raw.strip_bytes.get(),
        layout_version: raw.layout_version.get(),
        rows: raw.rows.get(),
        spread: spread_of(raw),
    }
}

fn scrub_of(raw: &RawHeader) -> Result<Option<ScrubRecord>, &'static str> {
    match (raw.last_scrub_at_s.get(), raw.last_scrub_mismatches.get()) {
        (0, 0) => Ok(None),
        (0, _) => Err("last_scrub_mismatches"),
        (at_s, mismatches) => Ok(Some(ScrubRecord { at_s, mismatches })),
    }
}

fn raw_areas(areas: &Areas) -> [RawArea; AREAS_MAX] {
    let mut raw = [RawArea::new_zeroed(); AREAS_MAX];
    for (entry, (_, extent)) in Areas::ENTRIES.into_iter().zip(areas.named()) {
        raw[entry] = RawArea { offset: U64::new(extent.offset), bytes: U64::new(extent.bytes) };
    }
    raw
}

fn areas_of(raw: &[RawArea; AREAS_MAX], lenient: bool) -> Result<Areas, &'static str> {
    let is_reserved = |at: &usize| !Areas::ENTRIES.contains(at);
    if !lenient && (0..AREAS_MAX).filter(is_reserved).any(|at| !is_zero(raw[at].as_bytes())) {
        return Err("areas.reserved");
    }
    Ok(Areas::from_extents(std::array::from_fn(|at| {
        let area = &raw[Areas::ENTRIES[at]];
        Extent::new(area.offset.get(), area.bytes.get())
    })))
}

fn members_of(table: &[u8], count: usize, lenient: bool) -> Result<Vec<MemberEntry>, &'static str> {
    let (raw, padding) =
        <[RawMember]>::ref_from_prefix_with_elems(table, count).map_err(|_| "member_count")?;
    if !lenient && !is_zero(padding) {
        return Err("members.reserved");
    }
    raw.iter().map(|entry| MemberEntry::from_raw(entry, lenient)).collect()
}
