//! Pages of the checksum table, and the checksum of a block.

use ashlar_ondisk::checksums::{
    SUMS_PER_PAGE, SumPageIdentity, Sums, UNKNOWN, block_sum, locate, page_count, place_offset,
    table_bytes,
};
use ashlar_ondisk::{
    AreaPlan, AreaRequest, BitmapKind, ChecksumKind, ConsistencyPolicy, Features, GeometryRecord,
    PageFault, PageIdentity, Superblock, bitmap,
};
use ashlar_units::MemberIdx;
use proptest::prelude::{ProptestConfig, any, proptest};

use crate::samples::{array_uuid, raid6, uuid};

fn identity(page: u32) -> SumPageIdentity {
    SumPageIdentity { array_tag: bitmap::array_tag(array_uuid()), page }
}

fn sums() -> Sums {
    std::array::from_fn(|at| {
        u32::try_from(at).expect("small").wrapping_add(1).wrapping_mul(2_654_435_769)
    })
}

#[test]
fn a_page_comes_back_and_every_flipped_byte_of_it_is_detected() {
    let bytes = identity(3).encode(9, &sums());
    let page = identity(3).decode(&bytes).expect("intact");
    assert_eq!((page.sequence, page.sums), (9, sums()));
    for at in 0..bytes.len() {
        let mut damaged = bytes;
        damaged[at] ^= 0x10;
        assert!(identity(3).decode(&damaged).is_err(), "byte {at}");
    }
    assert_eq!(identity(3).decode(&bytes[..4095]), Err(PageFault::Size { bytes: 4095 }));
}

#[test]
fn a_page_in_the_wrong_place_is_told_by_its_identity() {
    let bytes = identity(3).encode(9, &sums());
    assert_eq!(identity(4).decode(&bytes), Err(PageFault::Misplaced { found: 3, wanted: 4 }));
    let elsewhere = SumPageIdentity { array_tag: bitmap::array_tag(uuid(0xBB, 0)), ..identity(3) };
    assert_eq!(elsewhere.decode(&bytes), Err(PageFault::OtherOwner));
    let map = PageIdentity {
        kind: BitmapKind::WrittenMap,
        owner_tag: bitmap::array_tag(array_uuid()),
        page: 3,
    };
    assert_eq!(map.decode(&bytes).map(|page| page.sequence), Err(PageFault::Foreign));
}

#[test]
fn of_two_places_the_newer_one_counts_and_a_torn_one_never() {
    let (old, new) = (identity(0).encode(4, &sums()), identity(0).encode(5, &[7; SUMS_PER_PAGE]));
    let mut torn = old;
    torn[2048..].copy_from_slice(&new[2048..]);
    let newest = |places: [&[u8]; 2]| {
        identity(0).newest(places.map(Some)).map(|(page, place)| (page.sequence, place))
    };
    assert_eq!(newest([&old, &new]), Some((5, 1)));
    assert_eq!(newest([&new, &old]), Some((5, 0)));
    assert_eq!(newest([&old, &torn]), Some((4, 0)));
    assert_eq!(newest([&torn, &new]), Some((5, 1)));
    assert_eq!(newest([&torn, &torn]), None);
    assert_eq!(newest([&[0; 4096], &torn]), Some((0, 0)), "never written, and torn at once");
    assert_eq!(identity(0).newest([None, Some(&new)]).map(|(_, place)| place), Some(1));
}

#[test]
fn a_checksum_is_of_the_block_and_of_its_address() {
    let block = [0x5A; 4096];
    let sum = block_sum(MemberIdx(3), 77, &block);
    assert_ne!(sum, block_sum(MemberIdx(3), 78, &block));
    assert_ne!(sum, block_sum(MemberIdx(4), 77, &block));
    let mut other = block;
    other[4095] ^= 1;
    assert_ne!(sum, block_sum(MemberIdx(3), 77, &other));
    // CRC-32C of the block, then of the address as eight little-endian bytes, slot above block.
    let mut bytes = block.to_vec();
    bytes.extend((3 << 48 | 77u64).to_le_bytes());
    let wanted = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes);
    assert_eq!(u64::from(sum), wanted);
}

#[test]
fn the_area_holds_both_places_of_every_page() {
    let geometry = raid6().geometry;
    for rows in [1, 2, 63, 64, 65, 10_000] {
        let request = AreaRequest {
            keeps_checksums: true,
            ..AreaRequest::new(GeometryRecord { rows, ..geometry })
        };
        let plan = AreaPlan::for_rows(&request, rows).expect("possible");
        let blocks = plan.areas.data.bytes / 4096;
        let (page, entry) = locate(blocks - 1);
        assert_eq!(u64::from(page) + 1, page_count(&plan.geometry));
        assert!(entry < SUMS_PER_PAGE);
        assert_eq!(place_offset(page, 1) + 4096, plan.areas.checksums.bytes);
        assert_eq!(plan.areas.checksums.bytes, table_bytes(&plan.geometry));
    }
}

fn summed() -> Superblock {
    let request = AreaRequest { keeps_checksums: true, ..AreaRequest::new(raid6().geometry) };
    let plan = AreaPlan::for_member(&request, raid6().member_bytes).expect("possible");
    let mut members = raid6().members;
    members.iter_mut().zip(1..).for_each(|(entry, tag)| entry.log_tag = tag);
    Superblock {
        members,
        checksums: ChecksumKind::Crc32c,
        policy: ConsistencyPolicy::Log,
        features: Features {
            compatible: 0,
            read_only_compatible: Features::CHECKSUM_TABLE,
            incompatible: Features::INTENT_LOG,
        },
        geometry: plan.geometry,
        region_bytes: plan.region_bytes,
        areas: plan.areas,
        ..raid6()
    }
}

#[test]
fn an_array_with_checksums_needs_the_log_and_the_room() {
    let good = summed();
    let bytes = good.encode().expect("sound");
    assert_eq!(Superblock::decode(&bytes).expect("sound"), good);
    let mut without_log = summed();
    without_log.policy = ConsistencyPolicy::Bitmap;
    without_log.features.incompatible = 0;
    assert!(without_log.encode().is_err());
    let mut small = summed();
    small.areas.checksums.bytes -= 4096;
    assert!(small.encode().is_err());
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(500)
    })]

    #[test]
    fn whatever_the_bytes_decoding_returns(
        at in 0usize..4096, byte in any::<u8>(), seed in any::<u64>(), length in 0usize..4200,
    ) {
        let mut bytes = identity(2).encode(seed, &sums());
        bytes[at] = byte;
        let intact = identity(2).encode(seed, &sums()) == bytes;
        assert_eq!(identity(2).decode(&bytes).is_ok(), intact);
        let noise: Vec<u8> = (0..length)
            .map(|at| seed.wrapping_mul(at as u64 | 1).to_le_bytes()[at % 8])
            .collect();
        let page = identity(2).decode(&noise);
        let known = page.map(|page| page.sums.iter().all(|sum| *sum == UNKNOWN));
        assert!(known.is_err() || known == Ok(true), "noise is never a page that knows something");
    }
}
