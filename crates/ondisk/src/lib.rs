//! The on-disk format of Ashlar, version 1: bytes to structs and back, and the judgement of what a
//! set of members adds up to. No I/O, no clock, no randomness: bytes, sizes and UUIDs are handed
//! in.
//!
//! What must stay true: nothing is encoded that would not decode; whatever the bytes, decoding
//! returns a value or a fault and never panics; every byte that is written is under a checksum.
//!
//! In reading order:
//! - `format`: every constant, offset and record; `docs/on-disk-format.md` draws it
//! - `text`, `features`, `policy`, `geometry`, `member`, `job`: the parts of a superblock
//! - `enclosures`: which slots of a declustered array fail together
//! - `areas`: where everything lies; `plan`: how large it is and how many rows fit a device
//! - `superblock`, `spare`: encode and decode; `check`: what is coherent; `seal`: their envelope
//! - `growth`: the superblock of a declustered array that begins to grow
//! - `spare_table`: lost members of an array with distributed spares, and states of their cells
//! - `copies`: choose among the four of one device
//! - `runner`: who a heartbeat says runs the array
//! - `heartbeat`, `flush_mark`, `drives`, `bitmap`, `checksums`: the other records
//! - `log`: the stripe intent log
//! - `assembly`: from superblocks of many devices to a verdict
//! - `examine`: everything of one device, for people
#![forbid(unsafe_code)]

mod areas;
pub mod assembly;
pub mod bitmap;
mod check;
pub mod checksums;
mod copies;
mod drives;
mod enclosures;
pub mod examine;
mod fault;
mod features;
mod flush_mark;
pub mod format;
mod geometry;
mod growth;
mod heartbeat;
mod job;
pub mod log;
mod member;
mod page;
pub mod plan;
mod policy;
mod runner;
mod seal;
mod spare;
pub mod spare_table;
mod superblock;
mod text;

pub use areas::Areas;
pub use bitmap::{BitPlace, BitmapKind, BitmapPage, PageIdentity};
pub use copies::{Choice, CopyState, Label, SuperblockCopies};
pub use drives::{Drive, DrivePage, Drives};
pub use enclosures::{EnclosureKind, EnclosureRecord};
pub use fault::SuperblockFault;
pub use features::{Access, Features};
pub use flush_mark::FlushMark;
pub use geometry::{GeometryRecord, GrowthRecord, SpreadRecord};
pub use growth::GrowthFault;
pub use heartbeat::Heartbeat;
pub use job::{JobKind, JobRecord, ScrubRecord};
pub use member::{BadTransition, MemberEntry, MemberEvent, Role, Update};
pub use page::PageFault;
pub use plan::{AreaPlan, AreaRequest, LogReserve, PlanFault};
pub use policy::{ChecksumKind, ConsistencyPolicy, ForcedActions};
pub use runner::{ProcessName, RunnerName, tag_of};
pub use spare::{DEFAULT_POOL, SpareSuperblock};
pub use spare_table::SpareRecord;
pub use superblock::{RecordFault, Superblock, UPDATE_ORDER};
pub use text::{ArrayName, NameFault, Text};
