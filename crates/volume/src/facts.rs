//! The facts of a volume that an export announces.

use crate::{Command, Request, VolumeError, VolumeErrorKind};
use ashlar_units::Extent;

/// Size, granularity and abilities of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeFacts {
    /// The name exports use.
    pub name: String,
    /// Identity that stays the same over restarts and renames: the array's UUID, 16 bytes.
    pub uuid: [u8; 16],
    /// Size in bytes; a multiple of `logical_block_bytes`.
    pub size_bytes: u64,
    /// Smallest unit of a request, 512 or 4096 bytes.
    pub logical_block_bytes: u32,
    /// Unit that needs no widening inside: 4096 bytes.
    pub physical_block_bytes: u32,
    /// A request of this size and alignment keeps one device busy and no other: a strip, in bytes.
    pub strip_bytes: u32,
    /// A request size that needs no reads: one full stripe of data, in bytes.
    pub optimal_bytes: u32,
    /// Largest extent of one request, in bytes.
    pub request_bytes_max: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Some device below turns: seeks cost.
    pub is_rotational: bool,
}

impl VolumeFacts {
    /// Refuse a request that this volume cannot carry out: outside, misaligned, too long, or a
    /// change while read-only. Every implementation of `Volume` calls this first.
    ///
    /// # Errors
    /// [`VolumeErrorKind::BadExtent`] or [`VolumeErrorKind::ReadOnly`].
    pub fn admit(&self, request: &Request) -> Result<(), VolumeError> {
        let refuse = |kind| Err(VolumeError::new(kind, request.extent));
        if self.read_only && request.command.is_change() {
            return refuse(VolumeErrorKind::ReadOnly);
        }
        let buffer_bytes = match &request.command {
            Command::Flush => return Ok(()),
            Command::Read(buffer) => Some(buffer.len()),
            Command::Write(buffer) => Some(buffer.len()),
            Command::Discard | Command::WriteZeroes { .. } => None,
        };
        if !self.covers(request.extent) {
            return refuse(VolumeErrorKind::BadExtent);
        }
        match buffer_bytes {
            Some(bytes) if ashlar_units::to_u64(bytes) != request.extent.bytes => {
                refuse(VolumeErrorKind::BadExtent)
            }
            Some(_) if request.extent.bytes > u64::from(self.request_bytes_max) => {
                refuse(VolumeErrorKind::BadExtent)
            }
            _ => Ok(()),
        }
    }

    /// Whether `extent` lies within the volume and on its logical blocks.
    pub fn covers(&self, extent: Extent) -> bool {
        extent.is_aligned_to(u64::from(self.logical_block_bytes))
            && extent.checked_end().is_some_and(|end| end <= self.size_bytes)
    }
}

/// One run of a volume's allocation map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocationRun {
    /// Length in bytes.
    pub bytes: u64,
    /// Whether the run has ever been written; if not, it reads as zeros.
    pub is_written: bool,
}
