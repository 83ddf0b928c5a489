//! Sample arrays: fixed UUIDs, real area plans, one superblock a member.

use ashlar_ondisk::assembly::MemberReading;
use ashlar_ondisk::{
    AreaPlan, AreaRequest, ArrayName, ChecksumKind, Choice, ConsistencyPolicy, Features,
    ForcedActions, GeometryRecord, Label, MemberEntry, Role, Superblock, Text,
};
use ashlar_units::MemberIdx;
use uuid::Uuid;

/// Size of a sample device, in bytes.
pub const DEVICE_BYTES: u64 = 64 << 20;

pub fn uuid(kind: u8, number: u16) -> Uuid {
    let [high, low] = number.to_be_bytes();
    Uuid::from_bytes([kind, high, low, 1, 2, 3, 0x44, 5, 0x86, 7, 8, 9, 10, 11, 12, kind])
}

pub fn array_uuid() -> Uuid {
    uuid(0xAA, 0)
}

pub fn incarnation(number: u16) -> Uuid {
    uuid(0x1C, number)
}

pub fn member_uuid(slot: u16) -> Uuid {
    uuid(0x3E, slot)
}

pub fn serial(slot: u16) -> String {
    format!("SER{slot:04}")
}

pub fn geometry(data_strips: u16, parity_strips: u16, groups: u16) -> GeometryRecord {
    GeometryRecord {
        level: 100,
        data_strips,
        parity_strips,
        groups,
        strip_bytes: 65_536,
        layout_version: 1,
        rows: 1,
        spread: None,
    }
}

/// Slot 0's superblock of a clean array at generation 10, incarnation 1 after 0, all members
/// Active.
pub fn array(data_strips: u16, parity_strips: u16, groups: u16) -> Superblock {
    // One place a page, as in the images that are kept.
    let request = AreaRequest {
        written_map_places: 1,
        ..AreaRequest::new(geometry(data_strips, parity_strips, groups))
    };
    let plan = AreaPlan::for_member(&request, DEVICE_BYTES).expect("fits");
    let members: Vec<MemberEntry> = (0..plan.geometry.slots())
        .map(|slot| {
            MemberEntry::new(member_uuid(slot), MemberIdx(slot), Role::Active)
                .on_device(DEVICE_BYTES, Text::cut(&serial(slot)))
        })
        .collect();
    Superblock {
        features: Features::NONE,
        generation: 10,
        array_uuid: array_uuid(),
        incarnation: incarnation(1),
        previous_incarnation: incarnation(0),
        member_uuid: member_uuid(0),
        member_bytes: DEVICE_BYTES,
        slot: MemberIdx(0),
        unclean: false,
        resync_dirty_regions: false,
        array_name: ArrayName::new("tank0").expect("a name"),
        created_at_s: 1_700_000_000,
        updated_at_s: 1_700_000_100,
        geometry: plan.geometry,
        logical_block_bytes: 4096,
        policy: ConsistencyPolicy::Bitmap,
        checksums: ChecksumKind::None,
        region_bytes: plan.region_bytes,
        forced: ForcedActions::default(),
        last_scrub: None,
        kept_map_boot: None,
        enclosures: None,
        areas: plan.areas,
        members,
        jobs: Vec::new(),
        spares: Vec::new(),
    }
}

/// 4+2 in one group.
pub fn raid6() -> Superblock {
    array(4, 2, 1)
}

/// The superblock as `slot` carries it.
pub fn of_slot(superblock: &Superblock, slot: u16) -> Superblock {
    superblock.for_member(member_uuid(slot)).expect("listed")
}

pub fn path(slot: u16) -> String {
    format!("/dev/slot{slot}")
}

/// The reading of an intact device that carries `superblock` as `slot`.
pub fn reading(superblock: &Superblock, slot: u16) -> MemberReading {
    let own = of_slot(superblock, slot);
    let choice = Choice {
        newest: Some(Label::Member(Box::new(own))),
        copies: [ashlar_ondisk::CopyState::Ok; 4],
    };
    MemberReading::new(&path(slot), DEVICE_BYTES, &serial(slot), choice)
}

/// Readings of all slots.
pub fn readings(superblock: &Superblock) -> Vec<MemberReading> {
    (0..superblock.geometry.slots()).map(|slot| reading(superblock, slot)).collect()
}

/// The array as it is after the update that starts it: incarnation `number`.
pub fn started(superblock: &Superblock, number: u16) -> Superblock {
    let mut next = superblock.clone();
    next.begin_start(incarnation(number));
    next
}

/// The array after one more update that changes nothing.
pub fn updated(superblock: &Superblock) -> Superblock {
    Superblock { generation: superblock.generation + 1, ..superblock.clone() }
}

/// The array after an update that records `slots` as lost.
pub fn lost(superblock: &Superblock, slots: &[u16]) -> Superblock {
    let mut next = updated(superblock);
    for &slot in slots {
        next.record(member_uuid(slot), ashlar_ondisk::MemberEvent::Lost).expect("was active");
    }
    next
}
