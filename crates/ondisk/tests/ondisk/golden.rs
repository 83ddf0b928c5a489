//! Images of format version 1 that must decode for ever, to exactly these values.
//!
//! An image is text: `offset: bytes` in hexadecimal, 16 bytes a line, lines of zeros left out; the first
//! line gives the length. Images are never rewritten. If one differs, the format changed: that needs a new
//! version or a feature flag, and a new image beside the old.

use ashlar_ondisk::{
    BitmapKind, ForcedActions, Heartbeat, JobKind, JobRecord, MemberEntry, MemberEvent,
    PageIdentity, Role, ScrubRecord, SpareSuperblock, Superblock, Text, bitmap,
};
use ashlar_units::{MemberIdx, StripeNo};

use crate::samples::{
    DEVICE_BYTES, array, array_uuid, incarnation, lost, member_uuid, of_slot, serial, started, uuid,
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

/// An unclean array of two groups with a member out, one being rebuilt, one removed, jobs and a forced
/// action, as slot 3 carries it.
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
        let page = PageIdentity { kind, array_tag: bitmap::array_tag(array_uuid()), page: 2 };
        let bytes = stored(name, image, &page.encode(77, &bits));
        let back = page.decode(&bytes).expect("intact");
        assert_eq!((back.sequence, back.bits), (77, bits));
    }
}
