//! Where everything lies on one member: the area table of the superblock.
//!
//! What must stay true: the areas do not overlap, lie in the order below and inside the member, and
//! are large enough for the geometry. `plan.rs` decides their sizes.

use ashlar_units::{Extent, to_u64};

use crate::format::{
    AREA_ALIGN, BITS_PER_PAGE, DATA_ALIGN, FIRST_AREA_OFFSET, GROWN_MAP_PLACES, HEAD_COPIES_BYTES,
    HEARTBEAT_BYTES, HEARTBEAT_OFFSET, HEARTBEAT_SLOTS, MEMBER_BYTES_MIN, PAGE_BYTES,
    TAIL_COPIES_BYTES, member_bytes,
};
use crate::geometry::GeometryRecord;

/// Where each area lies on one member. An area of zero bytes does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Areas {
    /// Superblock copies 0 and 1.
    pub head_copies: Extent,
    /// Superblock copies 2 and 3.
    pub tail_copies: Extent,
    /// The two heartbeat blocks.
    pub heartbeat: Extent,
    /// Write-intent bitmap pages.
    pub write_intent: Extent,
    /// Written map pages.
    pub written_map: Extent,
    /// Stripe intent log.
    pub intent_log: Extent,
    /// Checksum table.
    pub checksums: Extent,
    /// Data: `rows` strips.
    pub data: Extent,
    /// States of cells of lost members, if the array has distributed spares.
    pub spare_states: Extent,
    /// Room for a later reshape; nothing in it has a meaning.
    pub reshape: Extent,
    /// Pages of the written map behind those of `written_map`, if the array has grown and needs
    /// them. The room is taken from `reshape`.
    pub grown_map: Extent,
}

impl Areas {
    /// The areas' names, in the order of the area table.
    pub const NAMES: [&'static str; 11] = [
        "head_copies",
        "tail_copies",
        "heartbeat",
        "write_intent",
        "written_map",
        "intent_log",
        "checksums",
        "data",
        "spare_states",
        "reshape",
        "grown_map",
    ];

    /// Where the area table has each of them.
    pub(crate) const ENTRIES: [usize; 11] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

    /// Each area with its name, in the order of the area table.
    pub fn named(&self) -> [(&'static str, Extent); 11] {
        let extents = [
            self.head_copies,
            self.tail_copies,
            self.heartbeat,
            self.write_intent,
            self.written_map,
            self.intent_log,
            self.checksums,
            self.data,
            self.spare_states,
            self.reshape,
            self.grown_map,
        ];
        std::array::from_fn(|at| (Self::NAMES[at], extents[at]))
    }

    /// The same areas on a device of `device_bytes` bytes: only the tail copies move.
    ///
    /// # Panics
    /// If the device is smaller than [`MEMBER_BYTES_MIN`].
    #[must_use]
    pub fn on_device(self, device_bytes: u64) -> Self {
        let end = member_bytes(device_bytes);
        assert!(end >= MEMBER_BYTES_MIN, "{device_bytes} bytes are too small for a member");
        Areas { tail_copies: Extent::new(end - TAIL_COPIES_BYTES, TAIL_COPIES_BYTES), ..self }
    }

    /// Where the last area ends that lies before the data.
    pub(crate) fn end_before_data(&self) -> u64 {
        let ends = self.named().map(|(_, area)| area.end());
        ends.into_iter().filter(|end| *end <= self.data.offset).fold(FIRST_AREA_OFFSET, u64::max)
    }

    pub(crate) fn from_extents(extents: [Extent; 11]) -> Self {
        let [
            head,
            tail,
            heartbeat,
            write_intent,
            written_map,
            intent_log,
            checksums,
            data,
            spare_states,
            reshape,
            grown_map,
        ] = extents;
        Areas {
            head_copies: head,
            tail_copies: tail,
            heartbeat,
            write_intent,
            written_map,
            intent_log,
            checksums,
            data,
            spare_states,
            reshape,
            grown_map,
        }
    }

    /// The name of the first area that is impossible on a member of this size and geometry.
    pub(crate) fn check(
        &self,
        geometry: &GeometryRecord,
        region_bytes: u64,
        member_bytes: u64,
    ) -> Result<(), &'static str> {
        let fixed = self.head_copies == Extent::new(0, HEAD_COPIES_BYTES)
            && self.heartbeat == heartbeat_area()
            && self.tail_copies
                == Extent::new(member_bytes.saturating_sub(TAIL_COPIES_BYTES), TAIL_COPIES_BYTES);
        if !fixed {
            return Err("areas");
        }
        // A growth has room for what it opens before it begins.
        let volume_bytes = geometry.stripes_when_grown() * geometry.stripe_data_bytes();
        let intent_bits = volume_bytes.div_ceil(region_bytes);
        if self.write_intent.bytes < pages_bytes(intent_bits, BITS_PER_PAGE) {
            return Err("areas.write_intent");
        }
        self.check_written_map(geometry)?;
        if self.data.bytes != geometry.member_data_bytes()
            || !self.data.offset.is_multiple_of(DATA_ALIGN)
        {
            return Err("areas.data");
        }
        // In order and apart: each begins where the one before ended or later.
        let mut free_from = FIRST_AREA_OFFSET;
        let in_order = [
            self.write_intent,
            self.written_map,
            self.intent_log,
            self.checksums,
            self.spare_states,
            self.grown_map,
            self.reshape,
            self.data,
        ];
        // Entries that are zero are no areas.
        for area in in_order.into_iter().filter(|area| *area != Extent::default()) {
            let end = area.checked_end().ok_or("areas")?;
            if area.offset < free_from || !area.is_aligned_to(AREA_ALIGN) {
                return Err("areas");
            }
            free_from = end;
        }
        if free_from > self.tail_copies.offset { Err("areas.data") } else { Ok(()) }
    }
}

/// The written map.
impl Areas {
    /// Places on a member for each page of the map as it was created, next to each other and
    /// written in turns: 2 if the area has room for them, else 1. Pages behind them have 2.
    pub(crate) fn written_map_places(&self, geometry: &GeometryRecord) -> u64 {
        let one = pages_bytes(geometry.stripes_at_creation(), BITS_PER_PAGE);
        if self.written_map.bytes >= 2 * one { 2 } else { 1 }
    }

    /// Pages that the area of the creation has room for.
    pub(crate) fn written_map_pages(&self, geometry: &GeometryRecord) -> u64 {
        self.written_map.bytes / PAGE_BYTES / self.written_map_places(geometry)
    }

    /// Bytes that an array of this geometry needs behind the map of its creation.
    pub(crate) fn grown_map_bytes(&self, geometry: &GeometryRecord) -> u64 {
        let pages = geometry.stripes_when_grown().div_ceil(BITS_PER_PAGE);
        pages.saturating_sub(self.written_map_pages(geometry)) * GROWN_MAP_PLACES * PAGE_BYTES
    }

    fn check_written_map(&self, geometry: &GeometryRecord) -> Result<(), &'static str> {
        let one = pages_bytes(geometry.stripes_at_creation(), BITS_PER_PAGE);
        let has_grown = geometry.growths().next().is_some();
        if self.written_map.bytes < one || has_grown && self.written_map_places(geometry) != 2 {
            return Err("areas.written_map");
        }
        let is_needed = has_grown || self.grown_map == Extent::default();
        if !is_needed || self.grown_map.bytes < self.grown_map_bytes(geometry) {
            return Err("areas.grown_map");
        }
        Ok(())
    }
}

pub(crate) fn pages_bytes(entries: u64, per_page: u64) -> u64 {
    entries.div_ceil(per_page) * PAGE_BYTES
}

pub(crate) fn heartbeat_area() -> Extent {
    Extent::new(HEARTBEAT_OFFSET, to_u64(HEARTBEAT_SLOTS) * HEARTBEAT_BYTES)
}
