//! The superblock of a declustered array that begins to grow.
//!
//! What must stay true: a growth has room for the maps of all that it opens before its first cell
//! moves. Nothing moves by this update, so the array before it and after it is the same.
//!
//! Not here: which cells move (`ashlar_layout::declustered`), and the devices of new members.

use ashlar_layout::declustered::DeclusteredError;
use ashlar_units::{ByteSize, Extent};

use crate::areas::pages_bytes;
use crate::features::Features;
use crate::format::{BITS_PER_PAGE, SPARE_ENTRIES_MAX};
use crate::geometry::{GrowthRecord, SpreadRecord};
use crate::member::Role;
use crate::superblock::Superblock;

/// Why an array cannot grow. Each is one line for an operator, and the array is as it was.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GrowthFault {
    /// Groups of members do not grow.
    #[error("only declustered arrays grow, and this one is none; make another array")]
    NotDeclustered,
    /// The layout refuses.
    #[error(transparent)]
    Layout(#[from] DeclusteredError),
    /// Parts of enclosures.
    #[error("{added} drives are no whole enclosures of {slots}; add whole ones")]
    PartOfEnclosure {
        /// Members to add.
        added: usize,
        /// Slots of an enclosure.
        slots: usize,
    },
    /// A member out or on its way.
    #[error("a member is out or being filled; let that end before the array grows")]
    NotWhole,
    /// A map of one place.
    #[error("the written map is of an older kind, with one place for each page; copy the data")]
    OldMap,
    /// Too little room behind the written map.
    #[error(
        "the members have {} of room for maps and need {}; add fewer drives",
        ByteSize(*.free_bytes),
        ByteSize(*.needed_bytes)
    )]
    NoRoomForMap {
        /// Bytes that the larger map takes.
        needed_bytes: u64,
        /// Bytes that are reserved.
        free_bytes: u64,
    },
    /// No room for the states of lost cells, which an array without distributed spares gets.
    #[error(
        "the members have {} of room for the states of lost cells and need {}; copy the data",
        ByteSize(*.free_bytes),
        ByteSize(*.needed_bytes)
    )]
    NoRoomForStates {
        /// Bytes that the states take.
        needed_bytes: u64,
        /// Bytes that are free.
        free_bytes: u64,
    },
    /// More members may be lost together than the spare table has entries.
    #[error("{entries} members may be lost together, and the spare table has {SPARE_ENTRIES_MAX}")]
    TooManyEntries {
        /// Entries that the array needs.
        entries: usize,
    },
    /// Too many regions.
    #[error("the write-intent bitmap has no room for the larger volume; add fewer drives")]
    NoRoomForBits,
}

impl Superblock {
    /// The same array at the start of a growth by so many members, which its table does not list
    /// yet. The generation stays.
    ///
    /// # Errors
    /// If the array cannot grow so: why, and what would do.
    pub fn growing(&self, added: usize) -> Result<Superblock, GrowthFault> {
        let mut grown = self.clone();
        grown.geometry.spread = Some(self.spread_growing(added)?);
        grown.features.incompatible |= Features::GROWN;
        let slots = self.enclosures.map_or(1, |own| own.slots(&self.geometry));
        if !added.is_multiple_of(slots) {
            return Err(GrowthFault::PartOfEnclosure { added, slots });
        }
        if !self.is_whole() {
            return Err(GrowthFault::NotWhole);
        }
        if self.written_map_places() != 2 {
            return Err(GrowthFault::OldMap);
        }
        grown.make_room_for_states()?;
        grown.make_room_for_map()?;
        let stripes = grown.geometry.stripes_when_grown();
        let volume_bytes = stripes * grown.geometry.stripe_data_bytes();
        let bits = volume_bytes.div_ceil(self.region_bytes);
        if self.areas.write_intent.bytes < pages_bytes(bits, BITS_PER_PAGE) {
            return Err(GrowthFault::NoRoomForBits);
        }
        Ok(grown)
    }

    /// Whether this is a member that the last growth added, and no cell had moved by then: alone it
    /// does not tell whether the growth ever began.
    pub fn is_new_member(&self) -> bool {
        let growths = self.geometry.spread.map(|spread| spread.growths).unwrap_or_default();
        let last = growths.into_iter().flatten().last();
        last.is_some_and(|it| it.moved_cells == 0 && self.slot.0 >= it.members_before)
    }

    /// Whether every slot is served, and nothing fills a device.
    fn is_whole(&self) -> bool {
        let of = |role| self.members.iter().filter(|entry| entry.role == role).count();
        let joining = of(Role::Rebuilding) + of(Role::Replacement);
        of(Role::Active) == usize::from(self.geometry.slots()) && joining == 0
    }

    fn spread_growing(&self, added: usize) -> Result<SpreadRecord, GrowthFault> {
        let spread = self.geometry.spread.ok_or(GrowthFault::NotDeclustered)?;
        let parts = self.geometry.to_parts().and_then(|parts| parts.declustered());
        let parts = parts.ok_or(GrowthFault::NotDeclustered)?.grown_by(added)?;
        let mut growths = spread.growths;
        if let Some(place) = growths.iter_mut().find(|growth| growth.is_none()) {
            *place = Some(GrowthRecord { members_before: spread.members, moved_cells: 0 });
        }
        let members = u16::try_from(parts.members).expect("layout limits are lower");
        Ok(SpreadRecord { members, growths, ..spread })
    }

    /// Cells move beside the spare table. An array without one gets it: its area begins where the
    /// reserved room does, or behind the last area.
    fn make_room_for_states(&mut self) -> Result<(), GrowthFault> {
        if self.has_spare_table() {
            return Ok(());
        }
        let entries = self.geometry.spare_entries();
        if entries > SPARE_ENTRIES_MAX {
            return Err(GrowthFault::TooManyEntries { entries });
        }
        let needed_bytes = self.geometry.spare_states_bytes();
        let (areas, reserved) = (self.areas, self.areas.reshape);
        let start = match reserved.bytes {
            0 => areas.end_before_data(),
            _ => reserved.offset,
        };
        let free_bytes = areas.data.offset - start;
        if free_bytes < needed_bytes {
            return Err(GrowthFault::NoRoomForStates { needed_bytes, free_bytes });
        }
        self.areas.spare_states = Extent::new(start, needed_bytes);
        let left = reserved.bytes.saturating_sub(needed_bytes);
        self.set_reserved(Extent::new(start + needed_bytes, left));
        self.features.incompatible |= Features::DISTRIBUTED_SPARES;
        Ok(())
    }

    /// What is reserved for a reshape from now on.
    fn set_reserved(&mut self, reserved: Extent) {
        self.areas.reshape = reserved;
        if reserved.bytes == 0 {
            self.areas.reshape = Extent::default();
            self.features.compatible &= !Features::RESHAPE_AREA;
        }
    }

    /// Takes the room for further pages of the written map from what is reserved for a reshape.
    fn make_room_for_map(&mut self) -> Result<(), GrowthFault> {
        let needed_bytes = self.areas.grown_map_bytes(&self.geometry);
        let (map, reserved) = (self.areas.grown_map, self.areas.reshape);
        if map.bytes >= needed_bytes {
            return Ok(());
        }
        let free_bytes = map.bytes + reserved.bytes;
        if free_bytes < needed_bytes {
            return Err(GrowthFault::NoRoomForMap { needed_bytes, free_bytes });
        }
        let start = if map.bytes == 0 { reserved.offset } else { map.offset };
        self.areas.grown_map = Extent::new(start, needed_bytes);
        self.set_reserved(Extent::new(start + needed_bytes, free_bytes - needed_bytes));
        Ok(())
    }
}
