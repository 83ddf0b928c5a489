//! Where everything lies on one member: the area table of the superblock.
//!
//! What must stay true: the areas do not overlap, lie in the order below and inside the member, and
//! are large enough for the geometry. `plan.rs` decides their sizes.

use ashlar_units::{Extent, to_u64};

use crate::format::{
    AREA_ALIGN, BITS_PER_PAGE, DATA_ALIGN, FIRST_AREA_OFFSET, HEAD_COPIES_BYTES, HEARTBEAT_BYTES,
    HEARTBEAT_OFFSET, HEARTBEAT_SLOTS, MEMBER_BYTES_MIN, PAGE_BYTES, TAIL_COPIES_BYTES,
    member_bytes,
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
}

impl Areas {
    /// The areas' names, in the order of the area table.
    pub const NAMES: [&'static str; 10] = [
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
    ];

    /// Where the area table has each of them.
    pub(crate) const ENTRIES: [usize; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

    /// Each area with its name, in the order of the area table.
    pub fn named(&self) -> [(&'static str, Extent); 10] {
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

    pub(crate) fn from_extents(extents: [Extent; 10]) -> Self {
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
        let intent_bits = geometry.volume_bytes().div_ceil(region_bytes);
        if self.write_intent.bytes < pages_bytes(intent_bits, BITS_PER_PAGE) {
            return Err("areas.write_intent");
        }
        if self.written_map.bytes < pages_bytes(geometry.stripes(), BITS_PER_PAGE) {
            return Err("areas.written_map");
        }
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

pub(crate) fn pages_bytes(entries: u64, per_page: u64) -> u64 {
    entries.div_ceil(per_page) * PAGE_BYTES
}

pub(crate) fn heartbeat_area() -> Extent {
    Extent::new(HEARTBEAT_OFFSET, to_u64(HEARTBEAT_SLOTS) * HEARTBEAT_BYTES)
}
