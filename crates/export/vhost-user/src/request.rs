//! What a request asks of a volume, or the status it gets: pure.
//!
//! What must stay true: a [`VhostRequest`] lies within the volume, on its logical blocks, and is
//! one that may be given. A request that is well formed and cannot be carried out has a status; one
//! without room for a status is a fault (see `chain`).

use crate::config::{SEGMENT_BYTES_MAX, SEGMENTS_MAX, WITHOUT_DATA_BYTES_MAX};
use ashlar_session::{Admission, Kind};
use ashlar_units::{Extent, SECTOR_BYTES};
use ashlar_volume::VolumeFacts;

/// Length of a request's head.
pub const HEAD_BYTES: usize = 16;
/// Length of an extent that comes with a discard or a write of zeros.
pub const RANGE_BYTES: usize = 16;
/// Length of what names a device.
pub const NAME_BYTES: usize = 20;

/// Types of requests.
pub mod kind {
    /// Read.
    pub const READ: u32 = 0;
    /// Write.
    pub const WRITE: u32 = 1;
    /// Make durable.
    pub const FLUSH: u32 = 4;
    /// Name the device.
    pub const IDENTIFY: u32 = 8;
    /// The content is not needed any more.
    pub const DISCARD: u32 = 11;
    /// Zero.
    pub const WRITE_ZEROES: u32 = 13;
}

/// A write of zeros may give the space back.
const UNMAP: u32 = 1;

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Well.
    Done,
    /// Not.
    Failed,
    /// This device does no such thing.
    Unsupported,
}

impl Status {
    /// The byte that says so.
    pub fn byte(self) -> u8 {
        match self {
            Status::Done => 0,
            Status::Failed => 1,
            Status::Unsupported => 2,
        }
    }
}

/// A request as its driver put it, copied out of the guest's memory.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Its head.
    pub head: [u8; HEAD_BYTES],
    /// Bytes that the driver wrote behind the head.
    pub readable_bytes: u64,
    /// Bytes that the driver reads, without the status.
    pub writable_bytes: u64,
    /// What is behind the head, if that is exactly as long as a range.
    pub range: Option<[u8; RANGE_BYTES]>,
}

/// A request that may be carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VhostRequest {
    /// Hand over the extent.
    Read(Extent),
    /// Store the extent.
    Write(Extent),
    /// Make answered changes durable.
    Flush,
    /// Say who the device is.
    Identify,
    /// The content is not needed any more.
    Discard(Extent),
    /// Zero the extent.
    WriteZeroes {
        /// Where.
        extent: Extent,
        /// Whether the space may be given back.
        may_unmap: bool,
    },
}

impl Asked {
    /// What it is: see [`kind`].
    pub fn kind(&self) -> u32 {
        let [a, b, c, d, ..] = self.head;
        u32::from_le_bytes([a, b, c, d])
    }

    /// Turn it into a request that may be carried out.
    ///
    /// # Errors
    /// The status to answer with.
    pub fn admit(&self, facts: &VolumeFacts) -> Result<VhostRequest, Status> {
        let Asked { readable_bytes, writable_bytes, .. } = *self;
        match self.kind() {
            kind::READ if readable_bytes == 0 => {
                let extent = self.with_data(facts, Kind::Look, writable_bytes)?;
                Ok(VhostRequest::Read(extent))
            }
            kind::WRITE if writable_bytes == 0 => {
                let extent = self.with_data(facts, Kind::Change, readable_bytes)?;
                Ok(VhostRequest::Write(extent))
            }
            kind::READ | kind::WRITE => Err(Status::Failed),
            kind::FLUSH => Ok(VhostRequest::Flush),
            kind::IDENTIFY => Ok(VhostRequest::Identify),
            kind::DISCARD => match self.range(facts)? {
                (extent, 0) => Ok(VhostRequest::Discard(extent)),
                _ => Err(Status::Unsupported),
            },
            kind::WRITE_ZEROES => match self.range(facts)? {
                (extent, flags @ 0..=UNMAP) => {
                    Ok(VhostRequest::WriteZeroes { extent, may_unmap: flags == UNMAP })
                }
                _ => Err(Status::Unsupported),
            },
            _ => Err(Status::Unsupported),
        }
    }

    fn with_data(&self, facts: &VolumeFacts, looks: Kind, bytes: u64) -> Result<Extent, Status> {
        let (_, sector) = self.head.split_at(8);
        let sector = u64::from_le_bytes(sector.try_into().expect("eight bytes"));
        if bytes > u64::from(SEGMENTS_MAX) * u64::from(SEGMENT_BYTES_MAX) {
            return Err(Status::Failed);
        }
        let offset = sector.checked_mul(SECTOR_BYTES).ok_or(Status::Failed)?;
        admitted(facts, looks, Extent { offset, bytes })
    }

    /// The extent of a discard or a write of zeros, and its flags.
    fn range(&self, facts: &VolumeFacts) -> Result<(Extent, u32), Status> {
        let range = self.range.ok_or(Status::Failed)?;
        let (sector, rest) = range.split_at(8);
        let (sectors, flags) = rest.split_at(4);
        let sector = u64::from_le_bytes(sector.try_into().expect("eight bytes"));
        let sectors = u32::from_le_bytes(sectors.try_into().expect("four bytes"));
        let flags = u32::from_le_bytes(flags.try_into().expect("four bytes"));
        let offset = sector.checked_mul(SECTOR_BYTES).ok_or(Status::Failed)?;
        let bytes = u64::from(sectors) * SECTOR_BYTES;
        if bytes > WITHOUT_DATA_BYTES_MAX {
            return Err(Status::Failed);
        }
        Ok((admitted(facts, Kind::Change, Extent { offset, bytes })?, flags))
    }
}

fn admitted(facts: &VolumeFacts, looks: Kind, extent: Extent) -> Result<Extent, Status> {
    let admission = Admission(facts);
    let admitted = admission.kind(looks).and_then(|()| admission.extent(extent));
    admitted.map(|()| extent).map_err(|_| Status::Failed)
}

/// What names a device of this volume: the beginning of its UUID in hexadecimal digits.
pub fn name(facts: &VolumeFacts) -> [u8; NAME_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |place: usize| {
        let byte = facts.uuid[place / 2];
        let half = if place.is_multiple_of(2) { byte >> 4 } else { byte & 15 };
        DIGITS[usize::from(half)]
    };
    std::array::from_fn(digit)
}
