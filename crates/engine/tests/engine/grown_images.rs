//! Members of arrays that grew or grow, made of the format and the layout alone, and read by the
//! reader that shares no code with them: each block where the frontier says, with any one member
//! missing, with a lost member's cells on spares, and with a map that goes on behind its area.
//!
//! What must stay true: nothing here runs an engine. Images are sparse, so members may be large.

use ashlar_layout::declustered::{CellState, Loss, MemberRow, SpareTable, Whereabouts};
use ashlar_layout::{DeclusteredShape, Geometry, Level, Shape};
use ashlar_ondisk::bitmap::WORDS_PER_PAGE;
use ashlar_ondisk::format::copy_slots;
use ashlar_ondisk::spare_table::state_bits;
use ashlar_ondisk::{
    AreaPlan, AreaRequest, ArrayName, BitmapKind, ChecksumKind, ConsistencyPolicy, Features,
    ForcedActions, GeometryRecord, MemberEntry, MemberEvent, PageIdentity, Role, Superblock, Text,
};
use ashlar_salvage::{Choices, How, ReadAt, Salvage, Unreadable};
use ashlar_units::{BLOCK_BYTES, MemberIdx, StripIdx, StripeNo, to_u64, to_usize};
use std::collections::BTreeMap;
use uuid::Uuid;

const MIB: u64 = 1 << 20;
const STRIP: u64 = 4096;
const BITS: u64 = 32_512;

/// A device that holds zeros where nothing was put.
#[derive(Clone)]
struct Image {
    bytes: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Image {
    fn put(&mut self, offset: u64, bytes: &[u8]) {
        assert_eq!(offset % BLOCK_BYTES, 0);
        for (at, block) in (offset / BLOCK_BYTES..).zip(bytes.chunks(4096)) {
            let mut block = block.to_vec();
            block.resize(4096, 0);
            self.blocks.insert(at, block);
        }
    }
}

impl ReadAt for Image {
    fn size_bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        if offset + to_u64(buffer.len()) > self.bytes {
            return Err(Unreadable);
        }
        buffer.fill(0);
        let end = offset + to_u64(buffer.len());
        for (number, block) in self.blocks.range(offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)) {
            let start = number * BLOCK_BYTES;
            let (from, to) = (start.max(offset), (start + BLOCK_BYTES).min(end));
            let here = to_usize(from - start)..to_usize(to - start);
            buffer[to_usize(from - offset)..to_usize(to - offset)].copy_from_slice(&block[here]);
        }
        Ok(())
    }
}

fn uuid(kind: u8, number: u16) -> Uuid {
    let [high, low] = number.to_be_bytes();
    Uuid::from_bytes([kind, high, low, 1, 2, 3, 0x44, 5, 0x86, 7, 8, 9, 10, 11, 12, kind])
}

fn entry(slot: u16, device_bytes: u64) -> MemberEntry {
    MemberEntry::new(uuid(0x3E, slot), MemberIdx(slot), Role::Active)
        .on_device(device_bytes, Text::cut(&format!("SER{slot}")))
}

/// RAID 5 of 2+1 over six members, with one spare column.
fn created(device_bytes: u64) -> Superblock {
    let shape = Shape {
        level: Level::Raid5,
        members: 6,
        parity: None,
        group_members: None,
        strip_bytes: STRIP,
        declustered: Some(DeclusteredShape {
            domain_members: 1,
            stripe_width: 3,
            spare_columns: 1,
            cell_bytes: Some(4 * STRIP),
        }),
    };
    let smallest = Geometry::smallest(&shape).expect("a layout");
    let request = AreaRequest::new(GeometryRecord::from_layout(&smallest));
    let plan = AreaPlan::for_member(&request, device_bytes).expect("fits");
    let has_room = plan.areas.reshape.bytes > 0;
    let compatible = Features::WHOLE_MAP | if has_room { Features::RESHAPE_AREA } else { 0 };
    let incompatible =
        Features::DECLUSTERED | Features::MEMBER_PAGES | Features::DISTRIBUTED_SPARES;
    Superblock {
        features: Features { compatible, incompatible, ..Features::NONE },
        generation: 10,
        array_uuid: uuid(0xAA, 0),
        incarnation: uuid(0x1C, 1),
        previous_incarnation: uuid(0x1C, 0),
        member_uuid: uuid(0x3E, 0),
        member_bytes: device_bytes,
        slot: MemberIdx(0),
        unclean: false,
        resync_dirty_regions: false,
        array_name: ArrayName::new("pool0").expect("a name"),
        created_at_s: 1_700_000_000,
        updated_at_s: 1_700_000_100,
        geometry: plan.geometry,
        enclosures: None,
        logical_block_bytes: 4096,
        policy: ConsistencyPolicy::Bitmap,
        checksums: ChecksumKind::None,
        region_bytes: plan.region_bytes,
        forced: ForcedActions::default(),
        last_scrub: None,
        kept_map_boot: None,
        areas: plan.areas,
        members: (0..6).map(|slot| entry(slot, device_bytes)).collect(),
        jobs: Vec::new(),
        spares: Vec::new(),
    }
}

/// At so many parts of 4 of a growth by this many members.
fn grown(before: &Superblock, added: u16, part: u64) -> Superblock {
    let first = before.geometry.slots();
    let mut grown = before.growing(added.into()).expect("it can grow");
    grown.members.extend((first..first + added).map(|slot| entry(slot, before.member_bytes)));
    let layout = grown.geometry.to_layout().expect("an array");
    let growth = layout.declustered().and_then(|map| map.growth()).expect("it grows");
    let cells = growth.end_cells * part / 4 / growth.step_cells * growth.step_cells;
    let moved = layout.declustered().and_then(|map| map.moved_to(cells).ok()).expect("a frontier");
    let growths = moved.parts().growths;
    let spread = grown.geometry.spread.as_mut().expect("declustered");
    for (place, growth) in spread.growths.iter_mut().zip(growths) {
        let moved_cells = growth.map(|growth| growth.moved_cells);
        place.iter_mut().zip(moved_cells).for_each(|(place, cells)| place.moved_cells = cells);
    }
    grown
}

/// What a block of a data strip holds.
fn content(stripe: u64, strip: usize) -> Vec<u8> {
    let tag = (stripe << 8 | to_u64(strip)) + 1;
    tag.to_le_bytes().iter().copied().cycle().take(4096).collect()
}

/// All strips of a stripe: two of data, and their parity.
fn strips(stripe: u64) -> [Vec<u8>; 3] {
    let [one, two] = [0, 1].map(|strip| content(stripe, strip));
    let parity = one.iter().zip(&two).map(|(one, two)| one ^ two).collect();
    [one, two, parity]
}

/// All members, with these stripes written; what a lost member should hold lies on spares.
fn images(superblock: &Superblock, stripes: &[u64]) -> Vec<Image> {
    let bytes = superblock.member_bytes;
    let empty = Image { bytes, blocks: BTreeMap::new() };
    let mut images = vec![empty; usize::from(superblock.geometry.slots())];
    for (image, own) in images.iter_mut().zip(&superblock.members) {
        let label = superblock.for_member(own.uuid).expect("listed").encode().expect("valid");
        for slot in copy_slots(bytes).expect("large enough") {
            image.put(slot.offset, &label);
        }
        put_pages(image, superblock, own.uuid, stripes);
    }
    let geometry = superblock.geometry.to_layout().expect("an array");
    let map = *geometry.declustered().expect("declustered");
    let lost = superblock.spares.iter().map(|record| Loss {
        member: record.slot,
        column: record.column.map(usize::from),
        was_whole: true,
    });
    let mut table = SpareTable::of_losses(&map, lost);
    for entry in 0..superblock.spares.len() {
        for cell in 0..to_usize(map.cells()) {
            table.load(entry, cell, CellState::OnSpare);
        }
    }
    for stripe in stripes {
        let seat = map.seat(StripeNo(*stripe));
        for (strip, bytes) in strips(*stripe).iter().enumerate() {
            let (cell, row) =
                map.cell_at(map.place(seat, StripIdx::from_at(strip))).expect("a cell");
            let Whereabouts::At(cell) = table.whereabouts(&map, cell) else { panic!("on a spare") };
            let at = MemberRow { member: map.member(cell), row: map.first_row(cell) + row };
            images[at.member.at()].put(superblock.areas.data.offset + at.row * STRIP, bytes);
        }
    }
    images
}

/// The pages of the written map, and of states.
fn put_pages(image: &mut Image, superblock: &Superblock, member: Uuid, stripes: &[u64]) {
    let owner_tag = superblock.page_tag(member);
    for page in 0..superblock.geometry.stripes_when_grown().div_ceil(BITS) {
        let mut bits = [0; WORDS_PER_PAGE];
        for stripe in stripes.iter().filter(|stripe| *stripe / BITS == page) {
            bits[to_usize(stripe % BITS / 64)] |= 1 << (stripe % 64);
        }
        let page_no = u32::try_from(page).expect("few");
        let identity = PageIdentity { kind: BitmapKind::WrittenMap, owner_tag, page: page_no };
        image.put(superblock.written_map_offset(page, 0), &identity.first());
        image.put(superblock.written_map_offset(page, 1), &identity.encode(5, &bits));
    }
    for record in &superblock.spares {
        let states = vec![CellState::OnSpare; to_usize(superblock.geometry.cells())];
        for page in 0..superblock.geometry.spare_pages() {
            let identity = record.page_identity(&superblock.geometry, owner_tag, page);
            let offset = record.pages_extent(superblock).offset + page * 2 * BLOCK_BYTES;
            image.put(offset, &identity.encode(3, &state_bits(&states, page)));
        }
    }
}

/// The first stripes, the last ones before and after what growths opened, and some between.
fn some_stripes(superblock: &Superblock) -> Vec<u64> {
    let geometry = &superblock.geometry;
    let (first, all) = (geometry.stripes_at_creation(), geometry.stripes());
    let spread = (0..200).map(|part| (all - 1) * part / 199);
    let mut stripes: Vec<u64> = spread.chain([1, first - 1, first.min(all - 1)]).collect();
    stripes.sort_unstable();
    stripes.dedup();
    stripes
}

/// The reader finds these stripes, each block in one of these ways, and zeros beside them.
fn reads(images: &[Image], superblock: &Superblock, hows: &[How]) {
    let stripes = some_stripes(superblock);
    let salvage = Salvage::open(images.to_vec(), &Choices::default()).expect("an array");
    assert_eq!(salvage.geometry().stripes(), superblock.geometry.stripes());
    assert_eq!(salvage.lost_map_pages(), 0);
    for stripe in &stripes {
        for strip in 0..2 {
            let found = salvage.read_block(2 * stripe + to_u64(strip));
            let found = found.unwrap_or_else(|_| panic!("stripe {stripe} is lost"));
            assert!(found.bytes[..] == content(*stripe, strip), "stripe {stripe}, strip {strip}");
            assert!(hows.contains(&found.how), "stripe {stripe}: {:?}", found.how);
        }
    }
    let beside = stripes.iter().map(|stripe| stripe + 1).find(|it| !stripes.contains(it));
    let found = salvage.read_block(2 * beside.expect("some are not written")).expect("readable");
    assert_eq!(found.how, How::Unwritten);
}

fn reads_with_any_one_missing(superblock: &Superblock) {
    let all = images(superblock, &some_stripes(superblock));
    reads(&all, superblock, &[How::Direct]);
    for gone in 0..all.len() {
        let mut fewer = all.clone();
        fewer.remove(gone);
        reads(&fewer, superblock, &[How::Direct, How::Reconstructed]);
    }
}

#[test]
fn a_pool_is_read_at_every_frontier_of_its_growths_with_any_one_member_missing() {
    let once = |part| grown(&created(16 * MIB), 2, part);
    for part in 0..=4 {
        reads_with_any_one_missing(&once(part));
    }
    for part in 0..=4 {
        reads_with_any_one_missing(&grown(&once(4), 1, part));
    }
}

/// Cells of opened slices have their spare cells at other places.
#[test]
fn cells_on_spares_of_a_pool_that_grew_or_grows_are_found() {
    let twice = grown(&grown(&created(16 * MIB), 2, 4), 1, 4);
    for whole in [grown(&created(16 * MIB), 2, 2), grown(&created(16 * MIB), 2, 4), twice] {
        for gone in (0..whole.geometry.slots()).step_by(3) {
            let mut superblock = whole.clone();
            superblock.generation += 1;
            superblock.record(uuid(0x3E, gone), MemberEvent::Lost).expect("it is active");
            if gone == 0 {
                superblock = superblock.for_member(uuid(0x3E, 1)).expect("listed");
            }
            let mut images = images(&superblock, &some_stripes(&superblock));
            images.remove(gone.into());
            reads(&images, &superblock, &[How::Direct]);
        }
    }
}

#[test]
fn the_map_of_a_large_pool_goes_on_where_the_room_for_a_reshape_was() {
    let superblock = grown(&created(9 << 30), 2, 4);
    assert!(superblock.areas.grown_map.bytes > 100 << 10);
    let all = images(&superblock, &some_stripes(&superblock));
    reads(&all, &superblock, &[How::Direct]);
    // Without its last page nobody knows whether the last stripes were written: they count as such.
    let mut torn = all.clone();
    let last = superblock.geometry.stripes_when_grown().div_ceil(BITS) - 1;
    for image in &mut torn {
        for place in 0..2 {
            image.put(superblock.written_map_offset(last, place), &[0xEE; 4096]);
        }
    }
    let salvage = Salvage::open(torn, &Choices::default()).expect("an array");
    assert_eq!(salvage.lost_map_pages(), 1);
    assert!(salvage.is_written(superblock.geometry.stripes() - 2));
    assert!(!salvage.is_written(BITS * last - 2));
}
