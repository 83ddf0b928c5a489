//! Judges a request header: what it asks of a volume, or the error it gets. Pure.
//!
//! What must stay true: an [`NbdRequest`] lies within the volume, on its logical blocks, and is one
//! that the client may give. So it can be handed to the volume unchanged.

use crate::negotiate::PAYLOAD_BYTES_MAX;
use crate::wire::{Dialect, NbdError, RequestFlags, RequestHead, RequestType};
use ashlar_session::{Admission, Kind, Refusal};
use ashlar_units::Extent;
use ashlar_volume::VolumeFacts;

/// A request that may be carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NbdRequest {
    /// Send the extent.
    Read(Extent),
    /// Receive and store the extent.
    Write {
        /// Where.
        extent: Extent,
        /// Reply when durable.
        fua: bool,
    },
    /// Make answered changes durable.
    Flush,
    /// Give the extent back.
    Trim {
        /// Where.
        extent: Extent,
        /// Reply when durable.
        fua: bool,
    },
    /// Zero the extent.
    WriteZeroes {
        /// Where.
        extent: Extent,
        /// Whether the space may be given back.
        may_unmap: bool,
        /// Reply when durable.
        fua: bool,
    },
    /// A hint about the extent; it has no effect here.
    Cache,
    /// Send the allocation map of the extent.
    Status {
        /// Where.
        extent: Extent,
        /// Whether only the first run is wanted.
        is_one: bool,
    },
    /// The client leaves.
    Disconnect,
}

impl NbdRequest {
    /// What of the volume it is about. A hint and a request without an extent have none.
    pub fn extent(&self) -> Option<Extent> {
        match *self {
            NbdRequest::Read(extent)
            | NbdRequest::Write { extent, .. }
            | NbdRequest::Trim { extent, .. }
            | NbdRequest::WriteZeroes { extent, .. }
            | NbdRequest::Status { extent, .. } => Some(extent),
            NbdRequest::Flush | NbdRequest::Cache | NbdRequest::Disconnect => None,
        }
    }
}

/// What of a session decides about its requests.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// The volume as announced.
    pub facts: &'a VolumeFacts,
    /// The negotiated headers.
    pub dialect: Dialect,
    /// Whether `base:allocation` was selected.
    pub has_allocation_context: bool,
}

impl Terms<'_> {
    /// Turn a header into a request that may be carried out.
    ///
    /// # Errors
    /// The error to answer with. A payload that follows must be skipped all the same.
    pub fn admit(&self, head: &RequestHead) -> Result<NbdRequest, NbdError> {
        let kind = head.kind().ok_or(NbdError::Invalid)?;
        self.check_flags(kind, head.flags)?;
        let fua = head.flags.has(RequestFlags::FUA);
        let extent = Extent::new(head.offset, head.bytes);
        let is_change =
            matches!(kind, RequestType::Write | RequestType::Trim | RequestType::WriteZeroes);
        let admission = Admission(self.facts);
        let looks = if is_change { Kind::Change } else { Kind::Look };
        let mut admitted = admission.kind(looks);
        if !matches!(kind, RequestType::Disconnect | RequestType::Flush) {
            admitted = admitted.and_then(|()| admission.extent(extent));
        }
        admitted.map_err(|refusal| error_for(refusal, kind))?;
        Ok(match kind {
            RequestType::Read => self.admit_read(extent, head.flags)?,
            RequestType::Write => NbdRequest::Write { extent, fua },
            RequestType::Disconnect => NbdRequest::Disconnect,
            RequestType::Flush => NbdRequest::Flush,
            RequestType::Trim => NbdRequest::Trim { extent, fua },
            RequestType::Cache => NbdRequest::Cache,
            RequestType::WriteZeroes => {
                let may_unmap = !head.flags.has(RequestFlags::NO_HOLE);
                let is_fast = may_unmap && self.is_fast_to_zero(extent);
                if head.flags.has(RequestFlags::FAST_ZERO) && !is_fast {
                    return Err(NbdError::NotSupported);
                }
                NbdRequest::WriteZeroes { extent, may_unmap, fua }
            }
            RequestType::BlockStatus if !self.has_allocation_context => {
                return Err(NbdError::Invalid);
            }
            RequestType::BlockStatus => {
                NbdRequest::Status { extent, is_one: head.flags.has(RequestFlags::REQ_ONE) }
            }
        })
    }

    /// FUA is allowed everywhere: clients are known to set it on reads and flushes too.
    fn check_flags(&self, kind: RequestType, flags: RequestFlags) -> Result<(), NbdError> {
        let fua = RequestFlags::FUA;
        let is_known = match kind {
            RequestType::Read if self.dialect.has_parts() => flags.only(&[fua, RequestFlags::DF]),
            RequestType::Write if self.dialect == Dialect::Extended => {
                flags.only(&[fua, RequestFlags::PAYLOAD_LEN])
                    && flags.has(RequestFlags::PAYLOAD_LEN)
            }
            RequestType::WriteZeroes => {
                flags.only(&[fua, RequestFlags::NO_HOLE, RequestFlags::FAST_ZERO])
            }
            RequestType::BlockStatus => flags.only(&[fua, RequestFlags::REQ_ONE]),
            RequestType::Disconnect => true,
            RequestType::Read
            | RequestType::Write
            | RequestType::Flush
            | RequestType::Trim
            | RequestType::Cache => flags.only(&[fua]),
        };
        if is_known { Ok(()) } else { Err(NbdError::Invalid) }
    }

    fn admit_read(&self, extent: Extent, flags: RequestFlags) -> Result<NbdRequest, NbdError> {
        let is_too_long = extent.bytes > u64::from(PAYLOAD_BYTES_MAX);
        if is_too_long && !self.dialect.has_parts() {
            return Err(NbdError::Invalid);
        }
        let is_several_pieces = extent.bytes > u64::from(self.facts.request_bytes_max);
        if is_too_long || flags.has(RequestFlags::DF) && is_several_pieces {
            return Err(NbdError::Overflow);
        }
        Ok(NbdRequest::Read(extent))
    }

    /// Whole full stripes go back to the unwritten state without touching their data; for anything
    /// else zeros are written. A volume that ends within a stripe ends with a whole one.
    fn is_fast_to_zero(&self, extent: Extent) -> bool {
        let unit = u64::from(self.facts.optimal_bytes.max(1));
        let end = extent.end();
        extent.offset.is_multiple_of(unit)
            && (end.is_multiple_of(unit) || end == self.facts.size_bytes)
    }
}

fn error_for(refusal: Refusal, kind: RequestType) -> NbdError {
    match (refusal, kind) {
        (Refusal::ReadOnly, _) => NbdError::Permission,
        (Refusal::Outside, RequestType::Write | RequestType::WriteZeroes) => NbdError::NoSpace,
        (Refusal::Outside | Refusal::Misaligned | Refusal::Empty, _) => NbdError::Invalid,
    }
}
