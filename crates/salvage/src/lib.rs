//! A second reader of Ashlar's on-disk format, written from docs/on-disk-format.md alone: what
//! saves the data of an array that the engine cannot or must not start, and what the engine's bytes
//! are judged by in tests.
//!
//! What must stay true: this crate uses no other crate of ours, and its authors look at the page
//! and at images, not at the code that writes them, so that no misreading can be on both sides. It
//! never writes to a member. It is small and slow: one byte at a time. Whatever is on a member, it
//! does not panic, and its work is bounded by the bytes that are there. Not here: choosing what to
//! do with lost blocks, and printing; the command `ashlar salvage` does that.
//!
//! - [`image`]: where bytes come from; anything that can be read at an offset
//! - `bytes`: numbers and checksums in records
//! - [`superblock`], [`copies`], [`membership`]: what a superblock says, which copy counts, which
//!   image holds what
//! - [`doubt`]: members that lost a part of what they held
//! - `behind`: members that lack updates and no data
//! - [`place`], [`declustered`]: where a block lies
//! - [`field`]: GF(2^8), the parity matrix, elimination
//! - [`pages`]: which stripes were written
//! - `sums`: the checksum table: what each block is known to be
//! - [`log`], `overlay`: the stripe intent log, and what its complete records change
//! - [`array`](mod@array), [`read`], [`check`]: the array, its blocks, whether its redundancy
//!   agrees

#![forbid(unsafe_code)]

pub mod array;
mod behind;
mod bytes;
pub mod check;
pub mod copies;
pub mod declustered;
pub mod doubt;
pub mod field;
mod growth;
pub mod image;
pub mod log;
pub mod membership;
mod overlay;
pub mod pages;
pub mod place;
pub mod read;
mod slices;
pub mod spares;
mod sums;
pub mod superblock;

pub use array::{Run, RunState, Salvage};
pub use bytes::{Uuid, uuid_text};
pub use check::StripeCheck;
pub use copies::Reading;
pub use doubt::{Doubt, Trust};
pub use image::{FileImage, ReadAt, Unreadable};
pub use membership::{Choices, Judged, Refused, Side, Standing, sides};
pub use overlay::LogSummary;
pub use read::{Found, How, Lost};
