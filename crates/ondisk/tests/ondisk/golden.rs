//! Images of format version 1 that must decode for ever, to exactly these values.
//!
//! An image is text: `offset: bytes` in hexadecimal, 16 bytes a line, lines of zeros left out; the
//! first line gives the length. Images are never rewritten. If one differs, the format changed:
//! that needs a new version or a feature flag, and a new image beside the old.

use ashlar_layout::RowRange;
use ashlar_ondisk::log::{
    Batch, BatchEncoder, BatchHead, BlockChange, Holder, LogIdentity, LogLimits, NewRecord, Record,
    RecordKind,
};
use ashlar_ondisk::{
    AreaPlan, AreaRequest, BitmapKind, ConsistencyPolicy, Drive, DrivePage, Drives, Features,
    FlushMark, ForcedActions, Heartbeat, JobKind, JobRecord, MemberEntry, MemberEvent,
    PageIdentity, Role, ScrubRecord, SpareSuperblock, Superblock, Text, bitmap,
};
use ashlar_units::{MemberIdx, StripIdx, StripeNo};

use crate::log::{holder, part};
use crate::samples::{
    DEVICE_BYTES, array, array_uuid, geometry, incarnation, lost, member_uuid, of_slot, serial,
    started, uuid,
};
use crate::superblock::spare;

fn to_image(bytes: &[u8]) -> String {
    let mut image = format!("length {}\n", bytes.len());
    for (at, line) in bytes.chunks(16).enumerate() {
        if line.iter().any(|&byte| byte != 0) {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            image.push_str(&format!("{:05x}: {}\n", at * 16, hex.join(" ")));
        }
    }
    image
}

fn from_image(image: &str) -> Vec<u8> {
    let mut lines = image.lines();
    let length = lines.next().and_then(|line| line.strip_prefix("length ")).expect("a length");
    let mut bytes = vec![0; length.parse().expect("a number")];
    for line in lines {
        let (offset, hex) = line.split_once(": ").expect("offset: bytes");
        let offset = usize::from_str_radix(offset, 16).expect("hexadecimal");
        for (at, byte) in hex.split(' ').enumerate() {
            bytes[offset + at] = u8::from_str_radix(byte, 16).expect("hexadecimal");
        }
    }
    bytes
}

/// The image as bytes, after checking that today's encoder still makes the same ones.
fn stored(name: &str, image: &str, encoded: &[u8]) -> Vec<u8> {
    let bytes = from_image(image);
    assert!(
        bytes == encoded,
        "{name} differs from what is encoded now:\n----\n{}----",
        to_image(encoded)
    );
    bytes
}

/// RAID 6 as created: clean, all members active.
#[test]
fn v1_created_array_decodes_for_ever() {
    let superblock = array(6, 2, 1);
    let encoded = superblock.encode().expect("valid");
    let bytes = stored("v1-created", include_str!("../images/v1-created.txt"), &encoded);
    assert_eq!(Superblock::decode(&bytes), Ok(superblock));
}

/// An unclean array of two groups with a member out, one being rebuilt, one removed, jobs and a
/// forced action, as slot 3 carries it.
fn eventful() -> Superblock {
    let mut superblock = lost(&started(&array(2, 1, 2), 2), &[1, 4]);
    superblock.generation += 1;
    superblock.record(member_uuid(4), MemberEvent::Dismissed).expect("was out");
    superblock.members.push(
        MemberEntry::new(member_uuid(100), MemberIdx(4), Role::Rebuilding)
            .on_device(DEVICE_BYTES + (1 << 20), Text::cut(&serial(100))),
    );
    superblock.forced =
        superblock.forced.with(ForcedActions::DIRTY_DEGRADED, superblock.generation);
    superblock.last_scrub = Some(ScrubRecord { at_s: 1_700_000_050, mismatches: 3 });
    superblock.jobs = vec![
        JobRecord {
            member: Some(member_uuid(100)),
            slot: Some(MemberIdx(4)),
            checkpoint: StripeNo(321),
            ..JobRecord::new(JobKind::Rebuild)
        },
        JobRecord { paused: true, repair: true, mismatches: 2, ..JobRecord::new(JobKind::Scrub) },
    ];
    of_slot(&superblock, 3)
}

#[test]
fn v1_eventful_array_decodes_for_ever() {
    let encoded = eventful().encode().expect("valid");
    let bytes = stored("v1-eventful", include_str!("../images/v1-eventful.txt"), &encoded);
    assert_eq!(Superblock::decode(&bytes), Ok(eventful()));
}

/// RAID 6 over nine members, as created.
#[test]
fn v1_declustered_array_decodes_for_ever() {
    let superblock = crate::declustered::declustered();
    let encoded = superblock.encode().expect("valid");
    let bytes = stored("v1-declustered", include_str!("../images/v1-declustered.txt"), &encoded);
    assert_eq!(Superblock::decode(&bytes), Ok(superblock));
}

/// The same level in three enclosures of two domains each.
#[test]
fn v1_domains_array_decodes_for_ever() {
    let superblock = crate::declustered::in_enclosures();
    let encoded = superblock.encode().expect("valid");
    let bytes = stored("v1-domains", include_str!("../images/v1-domains.txt"), &encoded);
    assert_eq!(Superblock::decode(&bytes), Ok(superblock));
}

/// RAID 6 that grew from nine members to ten, and is half way to twelve.
#[test]
fn v1_growing_array_decodes_for_ever() {
    let superblock = crate::growth::half_way();
    let encoded = superblock.encode().expect("valid");
    let bytes = stored("v1-growing", include_str!("../images/v1-growing.txt"), &encoded);
    assert_eq!(Superblock::decode(&bytes), Ok(superblock));
}

/// RAID 6 on members that are large enough for room for a later reshape.
fn with_reshape_room() -> Superblock {
    let device_bytes = 9 << 30;
    let request = AreaRequest::new(geometry(6, 2, 1));
    let plan = AreaPlan::for_member(&request, device_bytes).expect("fits");
    let small = array(6, 2, 1);
    let larger = |entry: MemberEntry| MemberEntry { bytes: device_bytes, ..entry };
    Superblock {
        features: Features {
            compatible: Features::WHOLE_MAP | Features::RESHAPE_AREA,
            incompatible: Features::MEMBER_PAGES,
            ..Features::NONE
        },
        geometry: plan.geometry,
        region_bytes: plan.region_bytes,
        areas: plan.areas,
        member_bytes: device_bytes,
        members: small.members.iter().copied().map(larger).collect(),
        ..small
    }
}

#[test]
fn v1_reshape_room_array_decodes_for_ever() {
    let superblock = with_reshape_room();
    let encoded = superblock.encode().expect("valid");
    let bytes = stored("v1-reshape-room", include_str!("../images/v1-reshape-room.txt"), &encoded);
    assert_eq!(Superblock::decode(&bytes), Ok(superblock));
}

#[test]
fn v1_spare_decodes_for_ever() {
    let encoded = spare().encode().expect("valid");
    let bytes = stored("v1-spare", include_str!("../images/v1-spare.txt"), &encoded);
    assert_eq!(SpareSuperblock::decode(&bytes), Ok(spare()));
}

#[test]
fn v1_heartbeat_decodes_for_ever() {
    let heartbeat = Heartbeat {
        array_uuid: array_uuid(),
        incarnation: incarnation(2),
        sequence: 0x0102_0304_0506_0708,
        interval_ms: 1000,
        host_id: Text::cut("node-7.example"),
        boot_id: uuid(0xB0, 1),
    };
    let encoded = heartbeat.encode();
    let bytes = stored("v1-heartbeat", include_str!("../images/v1-heartbeat.txt"), &encoded);
    assert_eq!(Heartbeat::decode(&bytes), Some(heartbeat));
}

#[test]
fn v1_flush_mark_decodes_for_ever() {
    let mark = FlushMark {
        array_uuid: array_uuid(),
        incarnation: incarnation(2),
        sequence: 0x01_0203_0405,
        flushed: 0x01_0203_0403,
    };
    let encoded = mark.encode();
    let bytes = stored("v1-flush-mark", include_str!("../images/v1-flush-mark.txt"), &encoded);
    assert_eq!(FlushMark::decode(&bytes), Some(mark));
}

/// The first page of an array with one drive known.
#[test]
fn v1_drive_page_decodes_for_ever() {
    let drive = Drive {
        model: Text::cut("Drive 9000"),
        path: Text::cut("/dev/sdq"),
        by_path: Text::cut("pci-0000:5e:00.0-sas-phy7-lun-0"),
        enclosure: Text::cut("0x500304801f2a8d3f"),
        bay: Text::cut("Slot 07"),
        host: Text::cut("store1"),
        ..Drive::default()
    };
    let drives = Drives::new(vec![Drive::default(), drive.of(member_uuid(1))]);
    let page = drives.pages(array_uuid(), 0x0102_0304).remove(0);
    let encoded = page.encode();
    let bytes = stored("v1-drive-page", include_str!("../images/v1-drive-page.txt"), &encoded);
    assert_eq!(DrivePage::decode(&bytes), Some(page));
}

#[test]
fn v1_bitmap_pages_decode_for_ever() {
    let mut bits = [0; bitmap::WORDS_PER_PAGE];
    for bit in [0, 1, 63, 64, 4096, 32_511] {
        let place = bitmap::locate(bit);
        bits[place.word] |= place.mask;
    }
    for (kind, name, image) in [
        (BitmapKind::WriteIntent, "v1-write-intent", include_str!("../images/v1-write-intent.txt")),
        (BitmapKind::WrittenMap, "v1-written-map", include_str!("../images/v1-written-map.txt")),
    ] {
        let page = PageIdentity { kind, owner_tag: bitmap::array_tag(array_uuid()), page: 2 };
        let bytes = stored(name, image, &page.encode(77, &bits));
        let back = page.decode(&bytes).expect("intact");
        assert_eq!((back.sequence, back.bits), (77, bits));
    }
}

/// An unclean array with the log, a device on its way into slot 2, and regions in doubt besides.
fn logged() -> Superblock {
    let mut superblock = started(&array(4, 2, 1), 2);
    superblock.policy = ConsistencyPolicy::Log;
    superblock.features.incompatible = Features::INTENT_LOG;
    superblock.resync_dirty_regions = true;
    let joining_device = MemberEntry::new(member_uuid(100), MemberIdx(2), Role::Replacement);
    superblock.members.push(joining_device.on_device(DEVICE_BYTES, Text::cut(&serial(100))));
    for (entry, tag) in superblock.members.iter_mut().zip(0x1122_3344_5566_7700..) {
        entry.log_tag = tag;
    }
    of_slot(&superblock, 4)
}

#[test]
fn v1_logged_array_decodes_for_ever() {
    let encoded = logged().encode().expect("valid");
    let bytes = stored("v1-logged", include_str!("../images/v1-logged.txt"), &encoded);
    assert_eq!(Superblock::decode(&bytes), Ok(logged()));
}

/// The start of slot 4's log area: a batch of two updates, a block of nothing, a batch of one more
/// update and of rows in doubt, and one that only says what is settled.
#[test]
fn v1_log_area_decodes_for_ever() {
    let superblock = logged();
    let own = superblock.member(superblock.member_uuid).expect("listed").log_tag;
    let identity = LogIdentity {
        array_tag: bitmap::array_tag(superblock.array_uuid),
        log_tag: own,
        incarnation: superblock.incarnation,
    };
    let tag = |slot: usize| superblock.members[slot].log_tag;
    let filled = Holder { is_filled: true, ..holder(tag(6), 2) };
    let holders = [holder(own, 4), holder(tag(2), 2), filled, holder(tag(5), 5)];
    let (parts, own_part) = ([part(2, 3, 4), part(4, 3, 4)], [part(4, 0, 2)]);
    let full = NewRecord {
        sequence: 40,
        stripe: StripeNo(0),
        kind: RecordKind::Full,
        rows: RowRange::new(3, 4),
        holders: &holders,
        parts: &parts,
    };
    let next = NewRecord { sequence: 41, rows: RowRange::new(0, 2), parts: &own_part, ..full };
    let doubt = NewRecord { sequence: 42, kind: RecordKind::InDoubt, parts: &[], ..full };
    let first = NewRecord { sequence: 43, kind: RecordKind::FirstWrite, ..doubt };
    let mut payload = vec![0; 2 * 4096];
    (payload[0], payload[4095], payload[4096]) = (1, 2, 3);
    let mut area = vec![0; 9 * 4096];
    let mut encoder = BatchEncoder::new(&mut area, 4096, identity);
    encoder.push(&full, [&payload[..]]);
    encoder.push(&next, [&payload[..]]);
    assert_eq!(encoder.finish(1, 7, 39), 5 * 4096);
    let mut encoder = BatchEncoder::new(&mut area[6 * 4096..], 8192, identity);
    encoder.push(&doubt, []);
    encoder.push(&first, []);
    assert_eq!(encoder.finish(1, 8, 40), 2 * 4096);
    let encoder = BatchEncoder::new(&mut area[8 * 4096..], 4096, identity);
    assert_eq!(encoder.finish(2, 1, 1), 4096);
    let bytes = stored("v1-log-area", include_str!("../images/v1-log-area.txt"), &area);

    let limits = LogLimits::of(&superblock.geometry);
    let batch = |block: usize| Batch::decode(&bytes[block * 4096..], &limits).expect("whole");
    let head = BatchHead { identity, log_ring: 1, sequence: 7, settled_below: 39 };
    assert_eq!(batch(0).head, head);
    let is = |record: &Record, new: &NewRecord<'_>, payload_offset: u64| {
        let NewRecord { sequence, stripe, kind, rows, holders, parts } = *new;
        let (holders, parts) = (holders.into(), parts.into());
        *record == Record { sequence, stripe, kind, rows, holders, parts, payload_offset }
    };
    assert!(is(&batch(0).records[0], &full, 4096) && is(&batch(0).records[1], &next, 3 * 4096));
    assert!(is(&batch(6).records[0], &doubt, 8192) && is(&batch(6).records[1], &first, 8192));
    assert_eq!((batch(8).head.log_ring, batch(8).records.len()), (2, 0));
    assert!((1..6).chain([7]).all(|block| Batch::decode(&bytes[block * 4096..], &limits).is_err()));
}

/// The same array whose devices are said to write 4 KiB whole, but for one that came later.
fn parity_only() -> Superblock {
    let mut superblock = logged();
    superblock.features.incompatible |= Features::PARITY_ONLY_RECORDS;
    superblock.members[..6].iter_mut().for_each(|entry| entry.stated_atomic_bytes = 4096);
    superblock.members[1].stated_atomic_bytes = 16 << 10;
    superblock
}

#[test]
fn v1_parity_only_array_decodes_for_ever() {
    let encoded = parity_only().encode().expect("valid");
    let bytes = stored("v1-parity-only", include_str!("../images/v1-parity-only.txt"), &encoded);
    assert_eq!(Superblock::decode(&bytes), Ok(parity_only()));
}

/// A batch of a parity-only record on slot 4, and a full one behind it.
#[test]
fn v1_parity_only_records_decode_for_ever() {
    let superblock = parity_only();
    let own = superblock.member(superblock.member_uuid).expect("listed").log_tag;
    let array_tag = bitmap::array_tag(superblock.array_uuid);
    let identity = LogIdentity { array_tag, log_tag: own, incarnation: superblock.incarnation };
    let holders = [holder(own, 4), holder(superblock.members[5].log_tag, 5)];
    let (parts, both) = ([part(4, 3, 4)], [part(4, 0, 1)]);
    let change = BlockChange { strip: StripIdx(2), old: 0x0102_0304, new: 0xF1F2_F3F4 };
    let (kind, rows) = (RecordKind::ParityOnly(change), RowRange::new(3, 4));
    let stripe = StripeNo(0);
    let parity_only =
        NewRecord { sequence: 40, stripe, kind, rows, holders: &holders, parts: &parts };
    let (kind, rows) = (RecordKind::Full, RowRange::new(0, 1));
    let full = NewRecord { sequence: 41, kind, rows, parts: &both, ..parity_only };
    let (mut payload, mut area) = (vec![0; 4096], vec![0; 3 * 4096]);
    (payload[0], payload[4095]) = (1, 2);
    let mut encoder = BatchEncoder::new(&mut area, 4096, identity);
    encoder.push(&parity_only, [&payload[..]]);
    encoder.push(&full, [&payload[..]]);
    assert_eq!(encoder.finish(1, 7, 39), 3 * 4096);
    let bytes =
        stored("v1-parity-only-log", include_str!("../images/v1-parity-only-log.txt"), &area);
    let limits = LogLimits::of(&superblock.geometry);
    let batch = Batch::decode(&bytes, &limits).expect("whole");
    let kinds: Vec<RecordKind> = batch.records.iter().map(|record| record.kind).collect();
    assert_eq!(kinds, [RecordKind::ParityOnly(change), RecordKind::Full]);
    assert_eq!(batch.records[0].placed_parts().collect::<Vec<_>>(), [(parts[0], 4096)]);
    assert_eq!(batch.records[1].placed_parts().collect::<Vec<_>>(), [(both[0], 8192)]);
}
