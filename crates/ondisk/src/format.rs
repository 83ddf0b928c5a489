//! Format version 1: every constant, offset and record of what lies on a member.
//!
//! What must stay true: all integers are little-endian with explicit sizes; every record's size is
//! asserted at compile time; a change here changes `docs/on-disk-format.md` in the same commit (a
//! test compares the checksum of this file with the one the document carries, and its tables with
//! the field tables below). Bytes once written by a release are read for ever.
//!
//! Not here: what the values mean together (`superblock.rs`, `areas.rs`, `assembly.rs`).

use std::mem::{offset_of, size_of};

use ashlar_layout::declustered::GROWTHS_MAX;
use ashlar_units::Extent;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The format version this crate reads and writes.
pub const FORMAT_VERSION: u32 = 1;

/// First eight bytes of a member's superblock.
pub const MEMBER_MAGIC: [u8; 8] = *b"ASHLARSB";
/// First eight bytes of a spare device's superblock.
pub const SPARE_MAGIC: [u8; 8] = *b"ASHLARSP";
/// First eight bytes of a heartbeat block.
pub const HEARTBEAT_MAGIC: [u8; 8] = *b"ASHLARHB";
/// First eight bytes of a flush mark.
pub const FLUSH_MARK_MAGIC: [u8; 8] = *b"ASHLARFM";
/// First eight bytes of a drive page.
pub const DRIVE_PAGE_MAGIC: [u8; 8] = *b"ASHLARDV";
/// First four bytes of a write-intent bitmap page.
pub const WRITE_INTENT_MAGIC: [u8; 4] = *b"AWIB";
/// First four bytes of a written map page.
pub const WRITTEN_MAP_MAGIC: [u8; 4] = *b"AWRM";
/// First four bytes of a page of the checksum table.
pub const CHECKSUM_MAGIC: [u8; 4] = *b"AWCT";
/// First four bytes of every page of states of cells.
pub const SPARE_STATES_MAGIC: [u8; 4] = *b"ASCS";
/// First eight bytes of a batch of the stripe intent log.
pub const LOG_BATCH_MAGIC: [u8; 8] = *b"ASHLARLG";

/// Copies of the superblock on each member: 0 and 1 at the head, 2 and 3 at the tail.
pub const SUPERBLOCK_COPIES: usize = 4;
/// Distance between neighbouring superblock copies, and the most one superblock may take, in bytes.
pub const SUPERBLOCK_SLOT_BYTES: u64 = 64 << 10;
/// Size of the superblock's fixed header, in bytes; the member table follows.
pub const SUPERBLOCK_HEADER_BYTES: u64 = 4096;
/// The superblock's length is a multiple of this many bytes.
pub const SUPERBLOCK_LENGTH_UNIT: u64 = 4096;
/// Size of one entry of the member table, in bytes.
pub const MEMBER_ENTRY_BYTES: u64 = 128;
/// Most entries the member table can hold.
pub const MEMBER_ENTRIES_MAX: u64 =
    (SUPERBLOCK_SLOT_BYTES - SUPERBLOCK_HEADER_BYTES) / MEMBER_ENTRY_BYTES;
/// Entries of the job table.
pub const JOBS_MAX: usize = 8;
/// Entries of the area table; those this version does not name are zero.
pub const AREAS_MAX: usize = 16;

/// Bytes at the head that hold superblock copies 0 and 1.
pub const HEAD_COPIES_BYTES: u64 = 2 * SUPERBLOCK_SLOT_BYTES;
/// Bytes at the tail that hold superblock copies 2 and 3.
pub const TAIL_COPIES_BYTES: u64 = 2 * SUPERBLOCK_SLOT_BYTES;
/// Where the heartbeat blocks begin, in bytes from the start of the member.
pub const HEARTBEAT_OFFSET: u64 = HEAD_COPIES_BYTES;
/// Number of alternating heartbeat blocks.
pub const HEARTBEAT_SLOTS: usize = 2;
/// Size of one heartbeat block, in bytes.
pub const HEARTBEAT_BYTES: u64 = 4096;
/// Where the flush marks begin, in bytes from the start of the member.
pub const FLUSH_MARK_OFFSET: u64 = HEARTBEAT_OFFSET + 2 * HEARTBEAT_BYTES;
/// Number of alternating flush marks.
pub const FLUSH_MARK_SLOTS: usize = 2;
/// Size of one flush mark, in bytes.
pub const FLUSH_MARK_BYTES: u64 = 4096;
/// All flush marks of a member.
pub const FLUSH_MARKS: Extent =
    Extent { offset: FLUSH_MARK_OFFSET, bytes: FLUSH_MARK_BYTES * FLUSH_MARK_SLOTS as u64 };
/// A sequence of a flush mark from which on none is believed: it has 40 bits in the member table.
pub const FLUSH_MARK_SEQUENCE_END: u64 = 1 << 40;
/// Where the drive pages begin, in bytes from the start of the member.
pub const DRIVE_PAGE_OFFSET: u64 = FLUSH_MARKS.offset + FLUSH_MARKS.bytes;
/// Size of one drive page, in bytes.
pub const DRIVE_PAGE_BYTES: u64 = 4096;
/// Slots that one drive page tells of.
pub const DRIVES_PER_PAGE: usize = 18;
/// Drive pages of an array with as many slots as there can be.
pub const DRIVE_PAGES_MAX: u64 = MEMBER_ENTRIES_MAX.div_ceil(DRIVES_PER_PAGE as u64);
/// Where the first area after the drive pages begins, in bytes; what lies between is reserved.
pub const FIRST_AREA_OFFSET: u64 = 256 << 10;
/// Areas begin and end at multiples of this many bytes.
pub const AREA_ALIGN: u64 = 4096;
/// The data area begins at a multiple of this many bytes.
pub const DATA_ALIGN: u64 = 1 << 20;
/// A device's size counts only up to the last multiple of this many bytes.
pub const MEMBER_SIZE_UNIT: u64 = 4096;
/// No member is smaller than this many bytes.
pub const MEMBER_BYTES_MIN: u64 = 4 << 20;

/// Size of a page of the write-intent bitmap, the written map and the checksum table, in bytes.
pub const PAGE_BYTES: u64 = 4096;
/// Size of the header of such a page, in bytes.
pub const PAGE_HEADER_BYTES: u64 = 32;
/// Places that each page of the written map has that a growth added.
pub const GROWN_MAP_PLACES: u64 = 2;
/// Bits in one bitmap page.
pub const BITS_PER_PAGE: u64 = (PAGE_BYTES - PAGE_HEADER_BYTES) * 8;
/// Bytes of the checksum table for the CRC-32C of one block.
pub const CHECKSUM_ENTRY_BYTES: u64 = 4;
/// Checksums in one page of the checksum table.
pub const CHECKSUMS_PER_PAGE: u64 = (PAGE_BYTES - PAGE_HEADER_BYTES) / CHECKSUM_ENTRY_BYTES;
/// Places that each page of the checksum table has, one after the other.
pub const CHECKSUM_PLACES: u64 = 2;
/// Blocks for which arrays without checksums reserve one page, once for each parity strip.
pub const CHECKSUMS_RESERVED_PER_PAGE: u64 = 508;

/// Batches of the stripe intent log, their headers and their payload blocks begin at multiples of
/// this many bytes.
pub const LOG_BLOCK_BYTES: u64 = 4096;
/// Longest header of a batch of the stripe intent log, in bytes.
pub const LOG_HEADER_BYTES_MAX: u64 = 64 << 10;
/// Longest batch of the stripe intent log, header and payload, in bytes.
pub const LOG_BATCH_BYTES_MAX: u64 = 16 << 20;
/// Records in a batch begin at multiples of this many bytes.
pub const LOG_RECORD_ALIGN: usize = 8;
/// Most holders of a record: 64 strips, each with its member and a device that is being filled.
pub const LOG_HOLDERS_MAX: usize = 128;
/// Most parts of a record: three bands of rows on each of 64 strips.
pub const LOG_PARTS_MAX: usize = 192;

/// Longest array name and spare pool name, in bytes.
pub const NAME_BYTES: usize = 64;
/// Longest device serial, in bytes; longer ones are cut.
pub const SERIAL_BYTES: usize = 40;
/// Longest host id in a heartbeat, in bytes.
pub const HOST_BYTES: usize = 64;
/// Longest model of a drive page, in bytes; longer ones are cut, here and below.
pub const MODEL_BYTES: usize = 40;
/// Longest path of a device in a drive page, in bytes.
pub const DRIVE_PATH_BYTES: usize = 64;
/// Longest name of a device by its path in a drive page, in bytes.
pub const BY_PATH_BYTES: usize = 56;
/// Longest name of an enclosure in a drive page, in bytes.
pub const ENCLOSURE_BYTES: usize = 24;
/// Longest name of a bay, and of a host, in a drive page, in bytes.
pub const BAY_BYTES: usize = 16;
/// Entries of the spare table.
pub const SPARE_ENTRIES_MAX: usize = 64;
/// Places that each page of states of cells has, one after the other.
pub const SPARE_STATE_PLACES: u64 = 2;
/// Spare entry flag: the entry is in use.
pub const SPARE_FLAG_IN_USE: u8 = 1;
/// Spare entry flag: every cell of the member was in its place when the member was lost.
pub const SPARE_FLAG_WAS_WHOLE: u8 = 2;
/// A spare column that means "none".
pub const NO_COLUMN: u8 = u8::MAX;
/// A slot number that means "none".
pub const NO_SLOT: u16 = u16::MAX;

/// Superblock flag: the array was started and has not been stopped cleanly.
pub const FLAG_UNCLEAN: u32 = 1;
/// Superblock flag: some regions are in doubt besides what the stripe intent log says; whether the
/// array was stopped cleanly or not, the dirty regions of the write-intent bitmap need a resync.
pub const FLAG_RESYNC_DIRTY_REGIONS: u32 = 2;
/// Holder flag: the device is being filled to take its slot.
pub const HOLDER_FLAG_FILLED: u8 = 1;
/// Job flag: the operator paused the job.
pub const JOB_FLAG_PAUSED: u8 = 1;
/// Job flag: the job repairs what it finds (a scrub with repair).
pub const JOB_FLAG_REPAIR: u8 = 2;

/// A named field of a record: where it lies, in bytes from the start of the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldAt {
    /// Name as in this file and in the format document.
    pub name: &'static str,
    /// First byte.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
}

impl FieldAt {
    /// The field of `fields` that holds byte `offset`.
    pub fn holding(fields: &'static [FieldAt], offset: usize) -> Option<&'static FieldAt> {
        fields.iter().find(|field| (field.offset..field.offset + field.bytes).contains(&offset))
    }
}

/// Declares a record once: the struct that lies on the member, and the table of its fields.
macro_rules! record {
    ($(#[$about:meta])* $name:ident, $table:ident { $($field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub $field: $kind,)*
        }

        #[doc = concat!("Fields of `", stringify!($name), "`, in the order of their bytes.")]
        pub const $table: &[FieldAt] = &[$(FieldAt {
            name: stringify!($field),
            offset: offset_of!($name, $field),
            bytes: size_of::<$kind>(),
        }),*];
    };
}

record! {
    /// What begins every superblock, of a member and of a spare: enough to check it and to say what
    /// it is.
    RawPreamble, PREAMBLE_FIELDS {
        magic: [u8; 8],
        checksum: U32,
        length: U32,
        version: U32,
        reserved_0: [u8; 4],
        features_compatible: U64,
        features_read_only_compatible: U64,
        features_incompatible: U64,
        generation: U64,
    }
}

record! {
    /// One area: where it lies on the member.
    RawArea, AREA_FIELDS {
        offset: U64,
        bytes: U64,
    }
}

record! {
    /// One entry of the job table.
    RawJob, JOB_FIELDS {
        kind: u8,
        flags: u8,
        slot: U16,
        reserved_0: [u8; 4],
        member_uuid: [u8; 16],
        checkpoint_stripe: U64,
        mismatches: U64,
        reserved_1: [u8; 24],
    }
}

record! {
    /// One entry of the spare table.
    RawSpareEntry, SPARE_ENTRY_FIELDS {
        slot: U16,
        flags: u8,
        column: u8,
        reserved_0: [u8; 4],
        since: U64,
    }
}

record! {
    /// One growth of a declustered array.
    RawGrowth, GROWTH_FIELDS {
        members_before: U16,
        reserved_0: [u8; 6],
        moved_cells: U64,
    }
}

record! {
    /// The superblock's fixed header.
    RawHeader, HEADER_FIELDS {
        magic: [u8; 8],
        checksum: U32,
        length: U32,
        version: U32,
        reserved_0: [u8; 4],
        features_compatible: U64,
        features_read_only_compatible: U64,
        features_incompatible: U64,
        generation: U64,
        array_uuid: [u8; 16],
        incarnation: [u8; 16],
        previous_incarnation: [u8; 16],
        member_uuid: [u8; 16],
        member_bytes: U64,
        slot: U16,
        member_count: U16,
        flags: U32,
        array_name: [u8; NAME_BYTES],
        created_at_s: U64,
        updated_at_s: U64,
        level: U16,
        data_strips: U16,
        parity_strips: U16,
        groups: U16,
        strip_bytes: U32,
        layout_version: U32,
        rows: U64,
        logical_block_bytes: U32,
        consistency_policy: u8,
        checksum_kind: u8,
        reserved_1: [u8; 2],
        region_bytes: U64,
        forced_actions: U64,
        forced_generation: U64,
        last_scrub_at_s: U64,
        last_scrub_mismatches: U64,
        areas: [RawArea; AREAS_MAX],
        jobs: [RawJob; JOBS_MAX],
        members: U16,
        domain_members: U16,
        spare_columns: U16,
        enclosure_domains: u8,
        enclosure_kind: u8,
        cell_rows: U32,
        reserved_4: [u8; 4],
        seed: U64,
        growths: [RawGrowth; GROWTHS_MAX],
        reserved_2: [u8; 1944],
        spare_table: [RawSpareEntry; SPARE_ENTRIES_MAX],
        kept_map_boot: [u8; 16],
    }
}

record! {
    /// One entry of the member table.
    RawMember, MEMBER_FIELDS {
        member_uuid: [u8; 16],
        slot: U16,
        role: u8,
        out_flushed: [u8; 5],
        out_since: U64,
        member_bytes: U64,
        serial: [u8; SERIAL_BYTES],
        out_incarnation: [u8; 16],
        out_previous_incarnation: [u8; 16],
        log_tag: U64,
        stated_atomic_bytes: U32,
        reserved_0: [u8; 4],
    }
}

record! {
    /// The superblock of a spare device.
    RawSpare, SPARE_FIELDS {
        magic: [u8; 8],
        checksum: U32,
        length: U32,
        version: U32,
        reserved_0: [u8; 4],
        features_compatible: U64,
        features_read_only_compatible: U64,
        features_incompatible: U64,
        generation: U64,
        member_uuid: [u8; 16],
        member_bytes: U64,
        created_at_s: U64,
        pool_name: [u8; NAME_BYTES],
        serial: [u8; SERIAL_BYTES],
        stated_atomic_bytes: U32,
        reserved_1: [u8; 3900],
    }
}

record! {
    /// A heartbeat block.
    RawHeartbeat, HEARTBEAT_FIELDS {
        magic: [u8; 8],
        checksum: U32,
        version: U32,
        array_uuid: [u8; 16],
        incarnation: [u8; 16],
        sequence: U64,
        interval_ms: U32,
        reserved_0: [u8; 4],
        host_id: [u8; HOST_BYTES],
        boot_id: [u8; 16],
        reserved_1: [u8; 3952],
    }
}

record! {
    /// A flush mark.
    RawFlushMark, FLUSH_MARK_FIELDS {
        magic: [u8; 8],
        checksum: U32,
        version: U32,
        array_uuid: [u8; 16],
        incarnation: [u8; 16],
        sequence: U64,
        flushed: U64,
        reserved_0: [u8; 4032],
    }
}

record! {
    /// What a drive page says of one slot.
    RawDrive, DRIVE_FIELDS {
        member_tag: U64,
        model: [u8; MODEL_BYTES],
        path: [u8; DRIVE_PATH_BYTES],
        by_path: [u8; BY_PATH_BYTES],
        enclosure: [u8; ENCLOSURE_BYTES],
        bay: [u8; BAY_BYTES],
        host: [u8; BAY_BYTES],
    }
}

record! {
    /// A drive page.
    RawDrivePage, DRIVE_PAGE_FIELDS {
        magic: [u8; 8],
        checksum: U32,
        version: U32,
        array_uuid: [u8; 16],
        generation: U64,
        page: U32,
        reserved_0: [u8; 20],
        drives: [RawDrive; DRIVES_PER_PAGE],
    }
}

record! {
    /// The header of a page of the write-intent bitmap or the written map; the bits follow.
    RawPage, PAGE_FIELDS {
        magic: [u8; 4],
        checksum: U32,
        page: U32,
        reserved_0: [u8; 4],
        owner_tag: U64,
        sequence: U64,
    }
}

record! {
    /// What begins a batch of the stripe intent log; records follow, then payload.
    RawBatch, BATCH_FIELDS {
        magic: [u8; 8],
        checksum: U32,
        length: U32,
        header_length: U32,
        log_ring: U16,
        record_count: U16,
        array_tag: U64,
        log_tag: U64,
        incarnation: [u8; 16],
        sequence: U64,
        settled_below: U64,
    }
}

record! {
    /// What begins a record of the stripe intent log; its holders follow, then its parts, then the
    /// change of a parity-only one.
    RawRecord, RECORD_FIELDS {
        sequence: U64,
        stripe: U64,
        first_row: U16,
        row_count: U16,
        kind: u8,
        holder_count: u8,
        part_count: u8,
        reserved_0: u8,
    }
}

record! {
    /// A holder of a record.
    RawHolder, HOLDER_FIELDS {
        log_tag: U64,
        strip: u8,
        flags: u8,
    }
}

record! {
    /// A part of a record: rows of one strip.
    RawPart, PART_FIELDS {
        strip: u8,
        reserved_0: u8,
        first_row: U16,
        row_count: U16,
    }
}

record! {
    /// The block of data that a parity-only record is about, after its parts.
    RawBlockChange, BLOCK_CHANGE_FIELDS {
        strip: u8,
        reserved_0: [u8; 3],
        old_checksum: U32,
        new_checksum: U32,
    }
}

const _: () = assert!(size_of::<RawPreamble>() == 56);
const _: () = assert!(size_of::<RawArea>() == 16);
const _: () = assert!(size_of::<RawJob>() == 64);
const _: () = assert!(size_of::<RawHeader>() == 4096);
const _: () = assert!(size_of::<RawMember>() == 128);
const _: () = assert!(size_of::<RawSpare>() == 4096);
const _: () = assert!(size_of::<RawHeartbeat>() == 4096);
const _: () = assert!(size_of::<RawFlushMark>() == 4096);
const _: () = assert!(size_of::<RawDrive>() == 224);
const _: () = assert!(size_of::<RawDrivePage>() == 4096);
const _: () = assert!(size_of::<RawPage>() == 32);
const _: () = assert!(size_of::<RawBatch>() == 72);
const _: () = assert!(size_of::<RawRecord>() == 24);
const _: () = assert!(size_of::<RawHolder>() == 10);
const _: () = assert!(size_of::<RawPart>() == 6);
const _: () = assert!(size_of::<RawBlockChange>() == 12);
// The preamble is a prefix of both superblocks.
const _: () = assert!(offset_of!(RawHeader, generation) == offset_of!(RawPreamble, generation));
const _: () = assert!(offset_of!(RawSpare, generation) == offset_of!(RawPreamble, generation));
const _: () = assert!(MEMBER_ENTRIES_MAX == 480);
const _: () = assert!(BITS_PER_PAGE == 32_512);
const _: () = assert!(DRIVE_PAGE_OFFSET + DRIVE_PAGES_MAX * DRIVE_PAGE_BYTES <= FIRST_AREA_OFFSET);

/// The usable size of a device of `device_bytes` bytes: whole units of [`MEMBER_SIZE_UNIT`].
pub fn member_bytes(device_bytes: u64) -> u64 {
    device_bytes - device_bytes % MEMBER_SIZE_UNIT
}

/// Where the four superblock copies lie on a device of `device_bytes` bytes, each in a slot of
/// [`SUPERBLOCK_SLOT_BYTES`]; `None` if the device is smaller than [`MEMBER_BYTES_MIN`].
pub fn copy_slots(device_bytes: u64) -> Option<[Extent; SUPERBLOCK_COPIES]> {
    let end = member_bytes(device_bytes);
    if end < MEMBER_BYTES_MIN {
        return None;
    }
    let tail = end - TAIL_COPIES_BYTES;
    Some(
        [0, SUPERBLOCK_SLOT_BYTES, tail, tail + SUPERBLOCK_SLOT_BYTES]
            .map(|offset| Extent::new(offset, SUPERBLOCK_SLOT_BYTES)),
    )
}

/// Where the two heartbeat blocks lie.
pub fn heartbeat_slots() -> [Extent; HEARTBEAT_SLOTS] {
    [HEARTBEAT_OFFSET, HEARTBEAT_OFFSET + HEARTBEAT_BYTES]
        .map(|offset| Extent::new(offset, HEARTBEAT_BYTES))
}

/// Where the two flush marks lie.
pub fn flush_mark_slots() -> [Extent; FLUSH_MARK_SLOTS] {
    [FLUSH_MARK_OFFSET, FLUSH_MARK_OFFSET + FLUSH_MARK_BYTES]
        .map(|offset| Extent::new(offset, FLUSH_MARK_BYTES))
}

/// CRC-32C of a record with its 4-byte checksum field at `field` left out.
///
/// # Panics
/// If `bytes` ends before the field does.
pub(crate) fn checksum_without(bytes: &[u8], field: usize) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..field]);
    digest.update(&bytes[field + 4..]);
    u32::try_from(digest.finalize()).expect("a CRC-32 has 32 bits")
}

/// Where the checksum lies in superblocks, heartbeat blocks, flush marks and drive pages, in bytes.
pub(crate) const CHECKSUM_AT: usize = offset_of!(RawPreamble, checksum);
/// Where the checksum lies in a bitmap page, in bytes.
pub(crate) const PAGE_CHECKSUM_AT: usize = offset_of!(RawPage, checksum);
const _: () = assert!(offset_of!(RawHeartbeat, checksum) == CHECKSUM_AT);
const _: () = assert!(offset_of!(RawFlushMark, checksum) == CHECKSUM_AT);
const _: () = assert!(offset_of!(RawDrivePage, checksum) == CHECKSUM_AT);
const _: () = assert!(offset_of!(RawBatch, checksum) == CHECKSUM_AT);
