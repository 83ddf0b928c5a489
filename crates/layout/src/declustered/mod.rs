//! Layout version 2: declustered arrays. Stripes are narrower than the array and lie on changing
//! members, and spare space lies on all members, so every member takes part in a rebuild.
//!
//! Pure arithmetic. [`crate::Geometry`] serves an array by `parts`, `permutation` and `slice`, as
//! if no member were lost; the engine asks `spares` where a lost member's cells are.
//! docs/on-disk-format.md, *Layout 2*, defines the map for a second implementer; docs/adr/0028 says
//! why it is this one.
//!
//! In reading order:
//! - `parts`       the numbers, and the sentence that refuses them
//! - `growth_parts` the same of growths
//! - `permutation` which domain is in which column of a slice
//! - `slice`       the map: stripes on cells, and back
//! - `growth`      which cells a growth moves, and which become free
//! - `regions`     the slices of the creation and of growths, and where their cells lie
//! - `moves`       the cells that a growth has yet to move, in order
//! - `domains`     failure domains
//! - `spares`      which spare cell takes the place of a lost one
//! - `states`      what loss, rebuild, return and copy-back do to the states of cells
//! - `losses`      how much the stripe lost that lost most
//! - `exposure`    how many losses stripes still survive, counted
//! - `rebuild`     what to read for a rebuild, most endangered stripes first
//! - `balance`     how evenly a rebuild uses the members, counted
//! - `times`       capacity, time and exposure, beside a flat array of the same drives
//! - `spelling`    dRAID's way to write a layout

mod balance;
mod domains;
mod exposure;
mod growth;
mod growth_parts;
mod losses;
mod moves;
mod parts;
mod permutation;
mod rebuild;
mod regions;
mod slice;
mod spares;
mod spelling;
mod states;
mod times;

pub use balance::{RebuildLoad, losses_apart};
pub use domains::{DomainError, DomainPlan, DomainWish, plan_domains};
pub use exposure::{CellFate, Critical, Exposure};
pub use growth_parts::{GROWTHS_MAX, GrowthParts, Growths};
pub use moves::{CellMove, GrowthAt};
pub use parts::{
    CELL_BYTES_FLASH, CELL_BYTES_ROTATING, DECLUSTERED_MEMBERS_MAX, DECLUSTERED_SEED,
    DECLUSTERED_VERSION, DeclusteredError, DeclusteredParts,
};
pub use rebuild::{Endangered, endangered_in, rebuild_order, strips_to_read};
pub(crate) use slice::CarriedSeat;
pub use slice::{CellAt, Declustered, DeclusteredSeat, GroupAt, Held, MemberRow};
pub use spares::{CellState, DeviceState, Loss, SpareEntry, SpareTable, Whereabouts};
pub use spelling::{DraidSpelling, ParseDraidError};
pub use states::{Settled, SpareError};
pub use times::{
    DriveModel, EFFICIENCY_ROTATING, FlatCounts, Forecast, flat_counts, flat_forecast, forecast,
};
