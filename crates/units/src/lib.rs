//! Numbers with meaning: the indices, extents and sizes that cross crate boundaries.
//!
//! What must stay true: a newtype here never converts into another one silently; a volume offset, a
//! member offset and a stripe number are different types or differently named fields. All sizes are
//! bytes unless the name says otherwise. A *block* is 4 KiB everywhere inside the engine; exports
//! may offer 512-byte granularity and the engine widens.

#![forbid(unsafe_code)]

mod extent;
mod index;
mod size;
mod time;

pub use extent::Extent;
pub use index::{MemberIdx, STRIPS_MAX, StripIdx, StripSet, StripeNo};
pub use size::{
    BLOCK_BYTES, BLOCK_BYTES_USIZE, ByteSize, ParseSizeError, SECTOR_BYTES, to_u64, to_usize,
};
pub use time::Nanos;
