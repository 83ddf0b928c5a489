//! Why a request failed. Exports turn the kind into their protocol's code; nothing else does.

use ashlar_units::Extent;

/// The kinds a protocol can tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VolumeErrorKind {
    /// The block cannot be read or proved right: EIO.
    Io,
    /// The extent does not lie within the volume, or is not aligned to its logical block: EINVAL.
    BadExtent,
    /// The volume is read-only now: EROFS or EPERM.
    ReadOnly,
    /// The members have no space left to keep the data: ENOSPC.
    NoSpace,
    /// The volume is being stopped: ESHUTDOWN.
    Stopped,
}

/// One failed request. Small and `Copy`: failing does not allocate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind:?} at {extent}")]
pub struct VolumeError {
    /// What kind of failure.
    pub kind: VolumeErrorKind,
    /// The request's extent.
    pub extent: Extent,
}

impl VolumeError {
    /// A failure of `kind` for `extent`.
    pub fn new(kind: VolumeErrorKind, extent: Extent) -> Self {
        VolumeError { kind, extent }
    }
}
