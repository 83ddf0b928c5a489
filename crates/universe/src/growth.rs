//! An array that was just created begins to grow, by hand: what `Superblock::growing` says is
//! written to all members, the new ones among them, with empty maps.
//!
//! What must stay true: it is what an engine would write that begins a growth before the first
//! start.

use crate::config::Config;
use ashlar_ondisk::format::copy_slots;
use ashlar_ondisk::{
    BitmapKind, GrowthFault, JobKind, JobRecord, MemberEntry, PageIdentity, Role, Superblock, Text,
};
use ashlar_sim::SimDisk;
use ashlar_units::MemberIdx;
use uuid::Uuid;

/// Bits of a page of the written map.
const BITS_PER_PAGE: u64 = 32_512;

/// The array on the first of these disks grows over all of them.
///
/// # Errors
/// If it cannot.
pub(crate) fn begin(disks: &[&SimDisk], config: &Config) -> Result<(), GrowthFault> {
    let slots = copy_slots(disks[0].size_bytes()).expect("large enough");
    let created = Superblock::decode(&disks[0].peek(slots[0])).expect("it was just created");
    let first = created.members.len();
    let mut grown = created.growing(disks.len() - first)?;
    grown.generation += 1;
    grown.jobs.push(JobRecord::new(JobKind::Grow));
    for slot in (first..disks.len()).map(MemberIdx::from_at) {
        grown.members.push(entry(disks[slot.at()], slot, config));
    }
    for (disk, entry) in disks.iter().zip(&grown.members).skip(first) {
        make_map(disk, &grown, entry.uuid);
    }
    for (disk, entry) in disks.iter().zip(&grown.members) {
        let own = grown.for_member(entry.uuid).expect("listed").encode().expect("valid");
        slots.iter().for_each(|slot| disk.poke(slot.offset, &own));
    }
    Ok(())
}

fn entry(disk: &SimDisk, slot: MemberIdx, config: &Config) -> MemberEntry {
    let number = config.seed << 16 | u64::from(slot.0);
    let has_log = config.policy == ashlar_ondisk::ConsistencyPolicy::Log;
    MemberEntry {
        log_tag: if has_log { number | 1 << 62 } else { 0 },
        stated_atomic_bytes: config.stated_atomic_bytes,
        ..MemberEntry::new(Uuid::from_u128(0x6_0000 << 96 | u128::from(number)), slot, Role::Active)
    }
    .on_device(disk.size_bytes(), Text::cut(&disk.name()))
}

/// Both places of every page, without a bit.
fn make_map(disk: &SimDisk, grown: &Superblock, member: Uuid) {
    let owner_tag = grown.page_tag(member);
    for page in 0..grown.geometry.stripes_when_grown().div_ceil(BITS_PER_PAGE) {
        let number = u32::try_from(page).expect("few pages");
        let identity = PageIdentity { kind: BitmapKind::WrittenMap, owner_tag, page: number };
        for place in 0..2 {
            disk.poke(grown.written_map_offset(page, place), &identity.first());
        }
    }
}
