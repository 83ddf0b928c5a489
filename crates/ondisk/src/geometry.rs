//! The geometry as the superblock records it: raw numbers, checked for being possible.
//!
//! What must stay true: these numbers decide where every byte of the volume lies. Once an array
//! exists, only a reshape changes them. The layout crate knows what they mean for a block.

use ashlar_layout::declustered::{
    DECLUSTERED_VERSION, DeclusteredError, DeclusteredParts, GrowthParts,
};
use ashlar_layout::{Geometry, GeometryParts, LAYOUT_VERSION, Level, ShapeError, Spread};
use ashlar_units::{BLOCK_BYTES, STRIPS_MAX, to_u64};
use std::ops::Range;

/// Geometry of an array, in raw codes and counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GeometryRecord {
    /// Code of the level.
    pub level: u16,
    /// Data strips in a stripe (k).
    pub data_strips: u16,
    /// Parity strips, or further copies, in a stripe (m).
    pub parity_strips: u16,
    /// Independent groups of k + m slots that the volume is striped over.
    pub groups: u16,
    /// Bytes in a strip.
    pub strip_bytes: u32,
    /// Version of the rotation and mapping.
    pub layout_version: u32,
    /// Strips on each member; a group has as many stripes.
    pub rows: u64,
    /// What layout version 2 has besides, and no other.
    pub spread: Option<SpreadRecord>,
}

/// How a declustered array spreads its stripes, in raw counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SpreadRecord {
    /// Members of the array (P).
    pub members: u16,
    /// Members of a failure domain (E).
    pub domain_members: u16,
    /// Spare columns (S).
    pub spare_columns: u16,
    /// Rows of a cell (H).
    pub cell_rows: u32,
    /// Seed of the shuffles.
    pub seed: u64,
    /// Its growths, in order.
    pub growths: [Option<GrowthRecord>; 2],
}

/// A growth of a declustered array, in raw counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GrowthRecord {
    /// Members before it; not 0.
    pub members_before: u16,
    /// The frontier: cells of each member below this number have moved.
    pub moved_cells: u64,
}

impl GrowthRecord {
    fn from_layout(growth: GrowthParts) -> Self {
        let members_before = u16::try_from(growth.members_before).expect("layout limits are lower");
        GrowthRecord { members_before, moved_cells: growth.moved_cells }
    }

    fn to_layout(self) -> GrowthParts {
        let GrowthRecord { members_before, moved_cells } = self;
        GrowthParts { members_before: members_before.into(), moved_cells }
    }
}

impl SpreadRecord {
    /// What the layout crate says of its own.
    fn from_layout(spread: Spread) -> Self {
        let count = |count: usize| u16::try_from(count).expect("layout limits are lower");
        SpreadRecord {
            members: count(spread.members),
            domain_members: count(spread.domain_members),
            spare_columns: count(spread.spare_columns),
            cell_rows: u32::try_from(spread.cell_rows).expect("layout limits are lower"),
            seed: spread.seed,
            growths: spread.growths.map(|growth| growth.map(GrowthRecord::from_layout)),
        }
    }

    fn to_layout(self) -> Spread {
        Spread {
            members: self.members.into(),
            domain_members: self.domain_members.into(),
            spare_columns: self.spare_columns.into(),
            cell_rows: self.cell_rows.into(),
            seed: self.seed,
            growths: self.growths.map(|growth| growth.map(GrowthRecord::to_layout)),
        }
    }
}

impl GeometryRecord {
    /// The record of `geometry`, for a superblock or an [`AreaRequest`](crate::AreaRequest).
    ///
    /// # Panics
    /// If a count exceeds 16 bits or the strip 32 bits; the layout crate's limits are far lower.
    pub fn from_layout(geometry: &Geometry) -> Self {
        let parts = geometry.parts();
        let count = |count: usize| u16::try_from(count).expect("layout limits are lower");
        GeometryRecord {
            level: parts.level.code().into(),
            data_strips: count(parts.data_strips),
            parity_strips: count(parts.parity_strips),
            groups: count(parts.groups),
            strip_bytes: u32::try_from(parts.strip_bytes).expect("layout limits are lower"),
            layout_version: parts.layout_version.into(),
            rows: parts.rows,
            spread: parts.spread.map(SpreadRecord::from_layout),
        }
    }

    /// Whether it is of a declustered array.
    pub fn is_declustered(&self) -> bool {
        self.layout_version == u32::from(DECLUSTERED_VERSION)
    }

    /// The numbers for [`Geometry::from_parts`]; `None` if the level or the layout version has a
    /// code this program does not know.
    pub fn to_parts(&self) -> Option<GeometryParts> {
        Some(GeometryParts {
            level: Level::from_code(u8::try_from(self.level).ok()?)?,
            data_strips: self.data_strips.into(),
            parity_strips: self.parity_strips.into(),
            groups: self.groups.into(),
            strip_bytes: self.strip_bytes.into(),
            rows: self.rows,
            layout_version: u16::try_from(self.layout_version).ok()?,
            spread: self.spread.map(SpreadRecord::to_layout),
        })
    }

    /// The geometry as the layout crate works with it; `None` if that crate refuses the numbers.
    pub fn to_layout(&self) -> Option<Geometry> {
        Geometry::from_parts(self.to_parts()?).ok()
    }

    /// The name of the level, or its code if this program does not know it.
    pub fn level_name(&self) -> String {
        let level = u8::try_from(self.level).ok().and_then(Level::from_code);
        level.map_or_else(|| format!("level code {}", self.level), |level| level.name().to_owned())
    }

    /// Strips of a stripe: k + m.
    pub fn stripe_width(&self) -> u16 {
        self.data_strips + self.parity_strips
    }

    /// Member slots of the array, over all groups.
    pub fn slots(&self) -> u16 {
        self.spread.map_or(self.stripe_width() * self.groups, |spread| spread.members)
    }

    /// The slots that can lose a stripe together, as [`Geometry::failure_sets`] says; all of them,
    /// if the layout is one of a newer program.
    pub fn failure_sets(&self) -> Vec<Range<usize>> {
        match self.known_parts() {
            Some(parts) => parts.failure_sets().collect(),
            None => std::iter::once(0..usize::from(self.slots())).collect(),
        }
    }

    /// The most strips that one stripe lacks when these slots of a failure set are missing. Slots
    /// of one failure domain share no stripe.
    pub fn losses_in(&self, set: Range<usize>, is_missing: impl Fn(usize) -> bool) -> usize {
        let domain = usize::from(self.spread.map_or(1, |spread| spread.domain_members)).max(1);
        let end = set.end;
        let domains = set.step_by(domain).map(|first| first..(first + domain).min(end));
        domains.filter(|domain| domain.clone().any(&is_missing)).count()
    }

    /// The parts, if this program knows the level and the layout.
    fn known_parts(&self) -> Option<GeometryParts> {
        self.to_parts()
            .filter(|parts| matches!(parts.layout_version, LAYOUT_VERSION | DECLUSTERED_VERSION))
    }

    /// Stripes of the array, over all groups.
    pub fn stripes(&self) -> u64 {
        match self.known_parts() {
            Some(parts) => parts.stripe_count(),
            None => self.rows * u64::from(self.groups),
        }
    }

    /// The growths of the array, in order.
    pub fn growths(&self) -> impl Iterator<Item = GrowthRecord> + use<> {
        let growths = self.spread.map(|spread| spread.growths).unwrap_or_default();
        growths.into_iter().flatten()
    }

    /// Stripes that the array was created with.
    pub fn stripes_at_creation(&self) -> u64 {
        self.stripes_of(|parts| Ok(parts.at_creation()))
    }

    /// Stripes of the array when a growth under way has ended.
    pub fn stripes_when_grown(&self) -> u64 {
        self.stripes_of(DeclusteredParts::fully_grown)
    }

    /// Whether a growth is under way.
    pub fn is_growing(&self) -> bool {
        self.stripes() != self.stripes_when_grown()
    }

    fn stripes_of(
        &self,
        when: impl Fn(&DeclusteredParts) -> Result<DeclusteredParts, DeclusteredError>,
    ) -> u64 {
        let parts = self.known_parts().and_then(|parts| parts.declustered());
        match parts.filter(|_| self.growths().next().is_some()) {
            None => self.stripes(),
            Some(parts) => when(&parts).and_then(|parts| parts.stripe_count()).unwrap_or(0),
        }
    }

    /// Rows that an array has at least, and by which it grows: 1, or the rows of a slice.
    pub(crate) fn row_unit(&self) -> u64 {
        self.known_parts().map_or(1, |parts| parts.row_unit())
    }

    /// Bytes of the volume in one stripe.
    pub fn stripe_data_bytes(&self) -> u64 {
        u64::from(self.data_strips) * u64::from(self.strip_bytes)
    }

    /// Size of the volume, in bytes.
    pub fn volume_bytes(&self) -> u64 {
        self.stripes() * self.stripe_data_bytes()
    }

    /// Size of each member's data area, in bytes.
    pub fn member_data_bytes(&self) -> u64 {
        self.rows * u64::from(self.strip_bytes)
    }

    /// The same of a declustered array. It has one group, and a level that this program knows,
    /// since its map is not for others to guess.
    fn check_declustered(&self) -> Result<(), &'static str> {
        if self.groups != 1 {
            return Err("groups");
        }
        let parts = self.known_parts().ok_or("level")?;
        parts.check_sizes().map_err(|error| field_of(&error))
    }

    /// Whether the numbers can be an array: at least one data strip, at most 64 strips a stripe, as
    /// many slots as the member table can name, and sizes that the layout has. Of a layout that
    /// this program does not know: strips of whole 4 KiB blocks that are powers of two up to 16
    /// MiB, and no size beyond 2^62 bytes, so that no sum overflows.
    ///
    /// Which counts a level has is not for the format to say: [`GeometryRecord::to_layout`] does.
    ///
    /// # Errors
    /// The name of the first field that is impossible.
    pub fn check(&self) -> Result<(), &'static str> {
        let strips = usize::from(self.data_strips) + usize::from(self.parity_strips);
        if self.data_strips == 0 || strips > STRIPS_MAX {
            return Err("data_strips");
        }
        if self.spread.is_some() != self.is_declustered() {
            return Err("layout_version");
        }
        if self.is_declustered() {
            return self.check_declustered();
        }
        let slots = to_u64(strips) * u64::from(self.groups);
        if slots == 0 || slots > crate::format::MEMBER_ENTRIES_MAX {
            return Err("groups");
        }
        if let Some(parts) = self.known_parts() {
            return parts.check_sizes().map_err(|error| field_of(&error));
        }
        let strip = u64::from(self.strip_bytes);
        if !strip.is_power_of_two() || !(BLOCK_BYTES..=16 << 20).contains(&strip) {
            return Err("strip_bytes");
        }
        let bytes = u128::from(self.rows) * u128::from(slots) * u128::from(strip);
        if self.rows == 0 || bytes > 1 << 62 {
            return Err("rows");
        }
        Ok(())
    }
}

/// The field of the superblock that an error about sizes is about.
fn field_of(error: &ShapeError) -> &'static str {
    match error {
        ShapeError::StripSize { .. } => "strip_bytes",
        ShapeError::Declustered(error) => match error {
            DeclusteredError::Code { .. } => "data_strips",
            DeclusteredError::Members { .. } => "members",
            DeclusteredError::Domains { .. } => "domain_members",
            DeclusteredError::TooNarrow { .. } => "spare_columns",
            DeclusteredError::StripSize { .. } => "strip_bytes",
            DeclusteredError::CellRows { .. } => "cell_rows",
            DeclusteredError::Seed { .. } => "seed",
            DeclusteredError::Growth { .. }
            | DeclusteredError::NoBlock { .. }
            | DeclusteredError::GrownTwice
            | DeclusteredError::Growing
            | DeclusteredError::PartOfDomain { .. } => "growths",
            DeclusteredError::NoSlice { .. } | DeclusteredError::TooLarge { .. } => "rows",
        },
        _ => "rows",
    }
}
