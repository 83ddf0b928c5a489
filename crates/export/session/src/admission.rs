//! Decides whether a volume can carry out a client's request: pure.
//!
//! What must stay true: an admitted extent is not empty, lies within the volume and on its logical
//! blocks. A change is admitted only to a volume that may be written. So an admitted request can be
//! handed to the volume, in pieces that it takes. Not here: how a protocol refuses.

use ashlar_units::Extent;
use ashlar_volume::VolumeFacts;

/// Whether a request changes the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It looks.
    Look,
    /// It changes.
    Change,
}

/// Why not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// A change, and the volume is read-only.
    ReadOnly,
    /// Some of it lies beyond the end.
    Outside,
    /// It does not begin and end on logical blocks.
    Misaligned,
    /// It is about nothing.
    Empty,
}

/// The facts of a volume as its client knows them.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'a>(pub &'a VolumeFacts);

impl Admission<'_> {
    /// Refuse a change of a volume that is read-only.
    ///
    /// # Errors
    /// [`Refusal::ReadOnly`].
    pub fn kind(&self, kind: Kind) -> Result<(), Refusal> {
        if kind == Kind::Change && self.0.read_only { Err(Refusal::ReadOnly) } else { Ok(()) }
    }

    /// Refuse an extent that the volume does not have.
    ///
    /// # Errors
    /// The first of [`Refusal::Outside`], [`Refusal::Misaligned`] and [`Refusal::Empty`] that
    /// applies.
    pub fn extent(&self, extent: Extent) -> Result<(), Refusal> {
        let is_within = extent.checked_end().is_some_and(|end| end <= self.0.size_bytes);
        let is_aligned = extent.is_aligned_to(u64::from(self.0.logical_block_bytes));
        match () {
            () if !is_within => Err(Refusal::Outside),
            () if !is_aligned => Err(Refusal::Misaligned),
            () if extent.bytes == 0 => Err(Refusal::Empty),
            () => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Admission, Kind, Refusal};
    use ashlar_units::Extent;
    use ashlar_volume::{MemVolume, Volume};

    #[test]
    fn only_what_the_volume_has_is_admitted() {
        let mut facts = MemVolume::new("disk", 1 << 20).facts();
        facts.logical_block_bytes = 4096;
        let admission = Admission(&facts);
        let cases = [
            ((0, 4096), Ok(())),
            ((0, 1 << 20), Ok(())),
            (((1 << 20) - 4096, 4096), Ok(())),
            ((0, 0), Err(Refusal::Empty)),
            ((512, 4096), Err(Refusal::Misaligned)),
            ((4096, 512), Err(Refusal::Misaligned)),
            ((0, (1 << 20) + 4096), Err(Refusal::Outside)),
            ((1 << 20, 4096), Err(Refusal::Outside)),
            ((u64::MAX - 4095, 4096), Err(Refusal::Outside)),
            ((u64::MAX, u64::MAX), Err(Refusal::Outside)),
        ];
        for ((offset, bytes), wanted) in cases {
            assert_eq!(admission.extent(Extent { offset, bytes }), wanted, "{offset} {bytes}");
        }
        assert_eq!(admission.kind(Kind::Change), Ok(()));
        facts.read_only = true;
        let admission = Admission(&facts);
        assert_eq!(admission.kind(Kind::Change), Err(Refusal::ReadOnly));
        assert_eq!(admission.kind(Kind::Look), Ok(()));
    }
}
