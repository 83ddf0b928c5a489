//! Decodes bytes of a member as an attacker may have written them.
//!
//! What must stay true: no input causes a panic here, and a decoded value encodes to the same
//! bytes. Each function makes the checksum right first if the first byte says so: otherwise nothing
//! behind it would ever be reached. `fuzz/` hands the same functions to libFuzzer, `../hostile.rs`
//! to a seed. True: the input decoded.

use ashlar_ondisk::assembly::{self, AssemblyRequest, MemberReading};
use ashlar_ondisk::bitmap::array_tag;
use ashlar_ondisk::checksums::SumPageIdentity;
use ashlar_ondisk::examine::Examination;
use ashlar_ondisk::log::{
    Batch, ChangedBlock, DeviceLog, Found, FoundBlock, LogLimits, LogScan, MemberLog, Places, judge,
};
use ashlar_ondisk::{
    BitmapKind, Features, Heartbeat, PageIdentity, SpareSuperblock, Superblock, SuperblockCopies,
};
use ashlar_units::{StripeNo, to_u64};

/// Bytes where a superblock or a batch has its checksum, and where a page has it.
const RECORD_CHECKSUM: usize = 8;
const PAGE_CHECKSUM: usize = 4;

/// What the input says about itself, and the rest of it.
fn split(input: &[u8]) -> Option<(bool, Vec<u8>)> {
    let (first, rest) = input.split_first()?;
    Some((first & 1 == 1, rest.to_vec()))
}

fn seal(bytes: &mut [u8], at: usize) {
    if bytes.len() < at + 4 {
        return;
    }
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..at]);
    digest.update(&bytes[at + 4..]);
    let sum = digest.finalize().to_le_bytes();
    bytes[at..at + 4].copy_from_slice(&sum[..4]);
}

/// The length that a superblock or a batch claims, if that much is there.
fn claimed(bytes: &[u8]) -> usize {
    let length =
        bytes.get(12..16).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes);
    usize::try_from(length).map_or(bytes.len(), |length| length.min(bytes.len()))
}

/// One superblock slot: decoded, judged alone and as all members of its array, examined.
pub fn superblock(input: &[u8]) -> bool {
    let Some((is_sealed, mut bytes)) = split(input) else { return false };
    bytes.truncate(64 << 10);
    if is_sealed {
        let length = claimed(&bytes);
        seal(&mut bytes[..length], RECORD_CHECKSUM);
    }
    let _spare =
        SpareSuperblock::decode(&bytes).map(|spare| spare.encode().expect("it was decoded"));
    let _beat = Heartbeat::decode(&bytes);
    let choice = SuperblockCopies::choose(&[Some(&bytes), None, Some(&bytes), Some(&[])]);
    let reading = MemberReading::new("device", u64::MAX >> 1, "", choice);
    assembly::assemble(std::slice::from_ref(&reading), &AssemblyRequest::default());
    let examined = Examination::new(8 << 20, Some(&bytes), Some(&bytes)).to_string();
    assert!(examined.len() < 1 << 20, "examined in {} bytes", examined.len());
    let Ok(superblock) = Superblock::decode(&bytes) else { return false };
    again(&superblock);
    everybody(&superblock);
    true
}

/// What was decoded is encoded to what is decoded to the same, but for features that may be
/// ignored: who writes without knowing them takes them away.
fn again(superblock: &Superblock) {
    let bytes = superblock.encode().expect("nothing is decoded that cannot be encoded");
    let mut known = superblock.clone();
    known.features.compatible &= Features::SUPPORTED.compatible;
    assert_eq!(Superblock::decode(&bytes), Ok(known));
    superblock.access(Features::default());
    if let Some(geometry) = superblock.geometry.to_layout() {
        let end = geometry.volume_bytes();
        assert_eq!(end, superblock.geometry.volume_bytes());
        geometry.stripe_at(end - 1);
    }
}

/// The array of all its members, and of all but one, with a device of the size that each is said to
/// have.
fn everybody(superblock: &Superblock) {
    let reading = |own: Superblock| {
        let bytes = own.encode().expect("for a member that is listed");
        let choice = SuperblockCopies::choose(&[Some(&bytes), Some(&bytes), None, None]);
        MemberReading::new("device", own.member_bytes, "", choice)
    };
    let entries = superblock.members.iter().take(16);
    let own = entries.filter_map(|entry| superblock.for_member(entry.uuid));
    let readings: Vec<MemberReading> = own.map(reading).collect();
    let request = AssemblyRequest { accept_serials: true, ..AssemblyRequest::default() };
    assembly::assemble(&readings, &request);
    assembly::assemble(readings.get(1..).unwrap_or_default(), &request);
}

/// A page of the written map or of the write-intent bitmap.
pub fn map_page(input: &[u8]) -> bool {
    let Some((is_sealed, mut bytes)) = split(input) else { return false };
    bytes.resize(4096, 0);
    if is_sealed {
        seal(&mut bytes, PAGE_CHECKSUM);
    }
    let mut is_one = false;
    for kind in [BitmapKind::WrittenMap, BitmapKind::WriteIntent] {
        let identity =
            PageIdentity { kind, owner_tag: array_tag(uuid::Uuid::from_u128(7)), page: 0 };
        if let Ok(page) = identity.decode(&bytes) {
            let encoded = identity.encode(page.sequence, &page.bits);
            assert_eq!(identity.decode(&encoded), Ok(page));
            is_one = true;
        }
    }
    is_one
}

/// A page of the checksum table, in both of its places.
pub fn checksum_page(input: &[u8]) -> bool {
    let Some((is_sealed, mut bytes)) = split(input) else { return false };
    bytes.resize(4096, 0);
    if is_sealed {
        seal(&mut bytes, PAGE_CHECKSUM);
    }
    let identity = SumPageIdentity { array_tag: array_tag(uuid::Uuid::from_u128(7)), page: 0 };
    let _newest = identity.newest([Some(&bytes), Some(&input[..input.len().min(4096)])]);
    let Ok(page) = identity.decode(&bytes) else { return false };
    let encoded = identity.encode(page.sequence, &page.sums);
    assert_eq!(identity.decode(&encoded), Ok(page));
    true
}

/// The log areas of the members of the array that `superblock` describes, each as long as that
/// says: scanned, shown and judged together. The blocks of `input` are dealt out to them; a batch
/// among them is made right where its number is odd.
pub fn logs(superblock: &Superblock, input: &[u8]) -> bool {
    let Some((is_sealed, mut bytes)) = split(input) else { return false };
    bytes.resize(bytes.len().next_multiple_of(4096).clamp(4096, 256 << 10), 0);
    let limits = LogLimits::of(&superblock.geometry);
    if is_sealed {
        for block in 0..bytes.len() / 4096 {
            let batch = &mut bytes[block * 4096..];
            if batch.starts_with(b"ASHLARLG") {
                let length = claimed(batch);
                seal(&mut batch[..length], RECORD_CHECKSUM);
                let _batch = Batch::decode(batch, &limits);
            }
        }
    }
    let own: Vec<Superblock> =
        superblock.members.iter().filter_map(|entry| superblock.for_member(entry.uuid)).collect();
    let each = (bytes.len() / own.len()).next_multiple_of(4096);
    let mut scanned: Vec<(u64, ashlar_units::MemberIdx, MemberLog)> = Vec::new();
    for (own, part) in own.iter().zip(bytes.chunks(each)) {
        let Some(mut scan) = LogScan::of_member(own) else { continue };
        let mut part = part.to_vec();
        while let Some(wanted) = scan.wanted() {
            part.resize(ashlar_units::to_usize(wanted.bytes), 0);
            scan.take(&part);
            part.clear();
        }
        let log = scan.finish();
        assert!(log.records_written() <= to_u64(bytes.len()));
        let tag = own.member(own.member_uuid).map_or(0, |entry| entry.log_tag);
        scanned.push((tag, own.slot, log));
    }
    let Some(geometry) = superblock.geometry.to_layout() else { return false };
    let devices: Vec<DeviceLog<'_>> = scanned
        .iter()
        .map(|(log_tag, slot, log)| DeviceLog {
            log_tag: *log_tag,
            slot: *slot,
            log,
            may_lack: false,
        })
        .collect();
    let is_any = devices.iter().any(|device| !device.log.records.is_empty());
    let _judgement = judge(&devices, Places::Fixed(&geometry), &Anything);
    is_any
}

/// What a restart may find, by number.
struct Anything;

impl Found for Anything {
    fn is_written(&self, stripe: StripeNo) -> bool {
        stripe.0 % 3 != 2
    }

    fn block(&self, block: ChangedBlock) -> FoundBlock {
        match block.row % 3 {
            0 => FoundBlock::Gone,
            1 => FoundBlock::Unreadable,
            _ => FoundBlock::Holds(block.row),
        }
    }
}
