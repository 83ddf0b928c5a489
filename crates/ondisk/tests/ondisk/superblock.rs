//! Encoding and decoding one superblock.

use ashlar_ondisk::format::{MEMBER_ENTRIES_MAX, SUPERBLOCK_SLOT_BYTES};
use ashlar_ondisk::{
    Access, ArrayName, ChecksumKind, ConsistencyPolicy, DEFAULT_POOL, Features, JobKind, JobRecord,
    MemberEntry, MemberEvent, Role, ScrubRecord, SpareSuperblock, Superblock, SuperblockFault,
    Text,
};
use ashlar_units::{MemberIdx, StripeNo};
use proptest::prelude::{ProptestConfig, any, proptest};

use crate::samples::{
    DEVICE_BYTES, array, incarnation, lost, member_uuid, of_slot, raid6, serial, started, uuid,
};

const CHECKSUM: std::ops::Range<usize> = 8..12;

/// Changes bytes and makes the checksum right again.
fn forged(superblock: &Superblock, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = superblock.encode().expect("valid");
    change(&mut bytes);
    reseal(&mut bytes);
    bytes
}

pub fn reseal(bytes: &mut [u8]) {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..CHECKSUM.start]);
    digest.update(&bytes[CHECKSUM.end..]);
    let checksum = u32::try_from(digest.finalize()).expect("32 bits");
    bytes[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}

fn field(name: &'static str) -> Result<Superblock, SuperblockFault> {
    Err(SuperblockFault::Field { name })
}

#[test]
fn a_full_superblock_comes_back_as_it_was() {
    let mut superblock = lost(&started(&array(6, 2, 3), 2), &[1, 9]);
    superblock.jobs = vec![
        JobRecord {
            member: Some(member_uuid(3)),
            slot: Some(MemberIdx(3)),
            checkpoint: StripeNo(77),
            paused: true,
            ..JobRecord::new(JobKind::Rebuild)
        },
        JobRecord { repair: true, mismatches: 5, ..JobRecord::new(JobKind::Scrub) },
    ];
    superblock.forced = superblock.forced.with(3, 4);
    superblock.logical_block_bytes = 512;
    let bytes = superblock.encode().expect("valid");
    assert_eq!(bytes.len(), 4096 + 4096, "24 entries of 128 bytes fit one more 4 KiB");
    assert_eq!(Superblock::decode(&bytes), Ok(superblock));
}

#[test]
fn bytes_after_the_superblock_are_not_looked_at() {
    let superblock = raid6();
    let mut bytes = superblock.encode().expect("valid");
    bytes.resize(usize::try_from(SUPERBLOCK_SLOT_BYTES).expect("small"), 0xA5);
    assert_eq!(Superblock::decode(&bytes), Ok(superblock));
}

#[test]
fn every_flipped_byte_is_detected() {
    let bytes = raid6().encode().expect("valid");
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xFF] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            assert!(Superblock::decode(&damaged).is_err(), "byte {at} flipped by {flip:#x}");
        }
    }
}

#[test]
fn every_cut_is_detected_without_a_panic() {
    let bytes = raid6().encode().expect("valid");
    for length in 0..bytes.len() {
        assert!(Superblock::decode(&bytes[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn the_member_table_holds_480_entries_and_refuses_one_more() {
    let mut superblock = array(14, 2, 16);
    assert_eq!(superblock.members.len(), 256);
    let removed = |number| MemberEntry {
        out_since: 1,
        out_incarnations: [incarnation(1), incarnation(0)],
        bytes: superblock.member_bytes,
        ..MemberEntry::new(member_uuid(number), MemberIdx(0), Role::Removed)
    };
    let removed: Vec<MemberEntry> = (256..=480).map(removed).collect();
    superblock.members.extend(&removed[..224]);
    assert_eq!(superblock.members.len() as u64, MEMBER_ENTRIES_MAX);
    let bytes = superblock.encode().expect("valid");
    assert_eq!(bytes.len() as u64, SUPERBLOCK_SLOT_BYTES);
    assert_eq!(Superblock::decode(&bytes), Ok(superblock.clone()));
    superblock.members.push(removed[224]);
    assert_eq!(superblock.encode(), Err(SuperblockFault::Field { name: "member_count" }));
}

#[test]
fn zeros_and_strangers_are_told_apart() {
    assert_eq!(Superblock::decode(&[0; 8192]), Err(SuperblockFault::Empty));
    assert_eq!(Superblock::decode(&[0x5A; 8192]), Err(SuperblockFault::Foreign));
    assert_eq!(Superblock::decode(&[]), Err(SuperblockFault::Short { bytes: 0 }));
    assert_eq!(Superblock::decode(&spare().encode().expect("ok")), Err(SuperblockFault::OtherKind));
}

#[test]
fn a_newer_version_is_refused_by_its_number() {
    let bytes = forged(&raid6(), |bytes| bytes[16] = 2);
    assert_eq!(Superblock::decode(&bytes), Err(SuperblockFault::Version { found: 2 }));
    assert!(SuperblockFault::Version { found: 2 }.is_unsupported());
}

#[test]
fn unknown_incompatible_features_are_refused() {
    let bytes = forged(&raid6(), |bytes| bytes[40 + 7] = 0x80);
    let bits = 1 << 63;
    assert_eq!(Superblock::decode(&bytes), Err(SuperblockFault::UnknownFeatures { bits }));
}

#[test]
fn unknown_read_only_features_allow_reading_only() {
    let bytes = forged(&raid6(), |bytes| bytes[32 + 4] = 1);
    let superblock = Superblock::decode(&bytes).expect("readable");
    assert_eq!(superblock.access(Features::SUPPORTED), Access::ReadOnly { unknown: 1 << 32 });
}

#[test]
fn unknown_compatible_features_are_fine_and_go_with_their_bytes() {
    let bytes = forged(&raid6(), |bytes| {
        bytes[24] = 0x10;
        bytes[4000] = 7;
    });
    let superblock = Superblock::decode(&bytes).expect("readable");
    assert_eq!(superblock.access(Features::SUPPORTED), Access::Full);
    assert_eq!(superblock.encode(), raid6().encode(), "flag and bytes are gone together");
}

#[test]
fn reserved_bytes_must_be_zero_while_all_features_are_known() {
    for at in [20, 2000, 4079, 8191] {
        let bytes = forged(&raid6(), |bytes| bytes[at] = 1);
        let fault = Superblock::decode(&bytes).expect_err("reserved");
        assert!(
            matches!(fault, SuperblockFault::Field { name } if name.contains("reserved")),
            "byte {at}: {fault}"
        );
    }
}

/// One change each that a right checksum must not hide, and the field it is told by.
/// Three of them were believed once, and the process panicked: the highest generation there is, a
/// member in service without a log tag, a member of less than 4 MiB.
#[test]
fn impossible_values_are_named_on_writing_and_on_reading() {
    type Change = fn(&mut Superblock);
    let cases: [(&str, Change); 16] = [
        ("generation", |s| s.generation = 0),
        ("generation", |s| s.generation = 1 << 32),
        ("incarnation", |s| s.incarnation = uuid::Uuid::nil()),
        ("data_strips", |s| s.geometry.data_strips = 0),
        ("strip_bytes", |s| s.geometry.strip_bytes = 65_535),
        ("rows", |s| s.geometry.rows = 0),
        ("logical_block_bytes", |s| s.logical_block_bytes = 1024),
        ("consistency_policy", |s| s.policy = ConsistencyPolicy::Log),
        ("checksum_kind", |s| s.checksums = ChecksumKind::Crc32c),
        ("region_bytes", |s| s.region_bytes += 4096),
        ("forced_generation", |s| s.forced.generation = 11),
        ("last_scrub_at_s", |s| s.last_scrub = Some(ScrubRecord { at_s: 0, mismatches: 1 })),
        ("areas.data", |s| s.areas.data.bytes -= 4096),
        ("members.slot", |s| s.members[1].slot = MemberIdx(0)),
        ("members.member_uuid", |s| s.members[1].uuid = s.members[0].uuid),
        ("slot", |s| s.slot = MemberIdx(1)),
    ];
    for (name, change) in cases {
        let mut superblock = raid6();
        change(&mut superblock);
        assert_eq!(superblock.encode(), Err(SuperblockFault::Field { name }));
    }
    // The same on reading, for values that lie where a forger can reach them.
    let bytes = forged(&raid6(), |bytes| bytes[48..56].fill(0));
    assert_eq!(Superblock::decode(&bytes), field("generation"));
    // From there on there would be no room for what an array does before it is stopped.
    for (generation, is_believed) in
        [((1_u64 << 31) - 1, true), (1 << 31, false), (u64::MAX, false)]
    {
        let bytes =
            forged(&raid6(), |bytes| bytes[48..56].copy_from_slice(&generation.to_le_bytes()));
        assert_eq!(Superblock::decode(&bytes).is_ok(), is_believed, "{generation}");
    }
    // Who is served under a log has a name in it.
    let mut logged = raid6();
    logged.policy = ConsistencyPolicy::Log;
    logged.features.incompatible = Features::INTENT_LOG;
    logged.members.iter_mut().zip(1..).for_each(|(entry, tag)| entry.log_tag = tag);
    assert!(logged.encode().is_ok());
    logged.members[2].log_tag = 0;
    assert_eq!(logged.encode(), Err(SuperblockFault::Field { name: "members.log_tag" }));
    let bytes = forged(&raid6(), |bytes| bytes[4096 + 18] = 9);
    assert_eq!(Superblock::decode(&bytes), field("members.role"));
    let bytes = forged(&raid6(), |bytes| bytes[136] = b'/');
    assert_eq!(Superblock::decode(&bytes), field("array_name"));
}

#[test]
fn areas_that_overlap_are_refused() {
    let mut superblock = raid6();
    superblock.areas.intent_log.offset = superblock.areas.written_map.offset;
    assert_eq!(superblock.encode(), Err(SuperblockFault::Field { name: "areas" }));
}

#[test]
fn members_of_one_generation_agree_and_differ_only_in_themselves() {
    let one = raid6();
    let two = of_slot(&one, 5);
    assert_ne!(one, two);
    assert!(one.agrees_with(&two) && two.agrees_with(&one));
    let split = Superblock { incarnation: incarnation(9), ..two };
    assert!(!one.agrees_with(&split));
}

#[test]
fn a_slot_takes_one_holder_and_one_joining_device() {
    let mut superblock = lost(&raid6(), &[2]);
    let joining_device = |number, role| {
        MemberEntry::new(member_uuid(number), MemberIdx(2), role)
            .on_device(DEVICE_BYTES, Text::cut(&serial(number)))
    };
    superblock.members.push(joining_device(100, Role::Rebuilding));
    assert!(superblock.encode().is_ok());
    assert_eq!(superblock.holder(MemberIdx(2)).map(|m| m.uuid), Some(member_uuid(2)));
    assert_eq!(superblock.joining_device(MemberIdx(2)).map(|m| m.uuid), Some(member_uuid(100)));
    superblock.members.push(joining_device(101, Role::Replacement));
    assert_eq!(superblock.encode(), Err(SuperblockFault::Field { name: "members.slot" }));
}

#[test]
fn a_start_is_a_new_generation_under_a_new_incarnation() {
    let before = raid6();
    let after = started(&before, 2);
    assert_eq!(after.generation, before.generation + 1);
    assert_eq!([after.incarnation, after.previous_incarnation], [incarnation(2), incarnation(1)]);
    assert!(after.unclean);
}

#[test]
fn what_was_recorded_with_a_loss_stays_until_the_member_is_current() {
    let mut superblock = lost(&raid6(), &[3]);
    let entry = *superblock.member(member_uuid(3)).expect("listed");
    assert_eq!((entry.role, entry.out_since), (Role::Out, 11));
    assert_eq!(entry.out_incarnations, [incarnation(1), incarnation(0)]);
    superblock.generation += 5;
    superblock.begin_start(incarnation(7));
    superblock.begin_start(incarnation(8));
    superblock.record(member_uuid(3), MemberEvent::Readded).expect("was out");
    superblock.record(member_uuid(3), MemberEvent::Lost).expect("was rebuilding");
    assert_eq!(superblock.member(member_uuid(3)), Some(&entry), "it still lacks the first loss");
    superblock.record(member_uuid(3), MemberEvent::Readded).expect("was out");
    superblock.record(member_uuid(3), MemberEvent::Completed).expect("was rebuilding");
    assert_eq!(
        superblock.member(member_uuid(3)).map(|m| (m.role, m.out_since)),
        Some((Role::Active, 0))
    );
    assert!(superblock.record(member_uuid(999), MemberEvent::Lost).is_err());
}

#[test]
fn the_job_that_fills_a_member_ends_with_its_way_into_the_slot() {
    for event in [MemberEvent::Lost, MemberEvent::Completed, MemberEvent::Dismissed] {
        let mut superblock = lost(&raid6(), &[2, 3]);
        for slot in [2, 3] {
            superblock.record(member_uuid(slot), MemberEvent::Readded).expect("was out");
            superblock.jobs.push(JobRecord {
                member: Some(member_uuid(slot)),
                slot: Some(MemberIdx(slot)),
                checkpoint: StripeNo(40),
                ..JobRecord::new(JobKind::Rebuild)
            });
        }
        superblock.jobs.push(JobRecord::new(JobKind::Scrub));
        superblock.record(member_uuid(3), event).expect("was rebuilding");
        assert!(superblock.job_of(member_uuid(3)).is_none(), "{event:?}");
        assert!(superblock.job_of(member_uuid(2)).is_some(), "{event:?} is about another member");
        assert_eq!(superblock.jobs.len(), 2, "{event:?} is nothing to a scrub");
    }
}

pub fn spare() -> SpareSuperblock {
    SpareSuperblock {
        features: Features::NONE,
        generation: 1,
        member_uuid: uuid(0x5A, 7),
        member_bytes: DEVICE_BYTES,
        created_at_s: 1_700_000_000,
        pool_name: ArrayName::new(DEFAULT_POOL).expect("a name"),
        serial: Text::cut("SPARE007"),
        stated_atomic_bytes: 0,
    }
}

#[test]
fn what_is_stated_of_a_spare_is_a_power_of_two_that_older_programs_do_not_drop() {
    let flag = Features { incompatible: Features::PARITY_ONLY_RECORDS, ..Features::NONE };
    let good = SpareSuperblock { stated_atomic_bytes: 16 << 10, features: flag, ..spare() };
    assert_eq!(SpareSuperblock::decode(&good.encode().expect("valid")), Ok(good));
    let fault = Err(SuperblockFault::Field { name: "stated_atomic_bytes" });
    for bad in [
        SpareSuperblock { features: Features::NONE, ..good },
        SpareSuperblock { stated_atomic_bytes: 5000, ..good },
    ] {
        assert_eq!(bad.encode(), fault);
    }
}

#[test]
fn a_spare_comes_back_as_it_was_and_every_flip_is_detected() {
    let bytes = spare().encode().expect("valid");
    assert_eq!(bytes.len(), 4096);
    assert_eq!(SpareSuperblock::decode(&bytes), Ok(spare()));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x20;
        assert!(SpareSuperblock::decode(&damaged).is_err(), "byte {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    })]

    #[test]
    fn any_array_comes_back_as_it_was(
        data in 1u16..20, parity in 0u16..4, groups in 1u16..5,
        generation in 2u64..1 << 31, seed in any::<u16>(), unclean in any::<bool>(),
    ) {
        let mut superblock = array(data, parity, groups);
        superblock.generation = generation;
        superblock.incarnation = incarnation(seed);
        superblock.unclean = unclean;
        superblock.created_at_s = u64::from(seed) * 77_777;
        let own = of_slot(&superblock, seed % superblock.geometry.slots());
        let bytes = own.encode().expect("valid");
        proptest::prop_assert_eq!(Superblock::decode(&bytes), Ok(own));
    }

    /// Whatever lies under a right checksum, decoding returns and what it accepts encodes again.
    #[test]
    fn forged_bytes_never_panic_and_accepted_ones_encode_again(
        changes in proptest::collection::vec((16usize..4224, any::<u8>()), 1..6),
    ) {
        let bytes = forged(&raid6(), |bytes| for (at, value) in &changes { bytes[*at] = *value; });
        if let Ok(superblock) = Superblock::decode(&bytes) {
            proptest::prop_assert!(superblock.encode().is_ok());
        }
    }
}
