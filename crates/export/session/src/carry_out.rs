//! Carries a client's request out in the pieces that a volume takes, and reports its failure.
//!
//! What must stay true: the pieces cover the request exactly, in order. A request that was cut is
//! answered once, after the last of its pieces, with the first error of any of them.

use ashlar_iobuf::BufMut;
use ashlar_units::{Extent, to_u64};
use ashlar_volume::{Command, Reply, Request, Volume, VolumeError, VolumeErrorKind};
use rustix::io::Errno;
use std::cell::Cell;
use std::rc::Rc;

/// Cut an extent at multiples of `bytes_max` from its start.
pub fn pieces(extent: Extent, bytes_max: u64) -> impl Iterator<Item = Extent> {
    (0..extent.bytes.div_ceil(bytes_max)).map(move |index| {
        let from = index * bytes_max;
        Extent::new(extent.offset + from, bytes_max.min(extent.bytes - from))
    })
}

/// A request that was cut into pieces: several jobs, one reply.
pub struct PieceGroup<E> {
    pieces_left: Cell<u64>,
    error: Cell<Option<E>>,
}

impl<E: Copy> PieceGroup<E> {
    /// A group of this many pieces.
    pub fn new(pieces: u64) -> Rc<PieceGroup<E>> {
        Rc::new(PieceGroup { pieces_left: Cell::new(pieces), error: Cell::new(None) })
    }

    /// Note that a piece has ended; `true` for the last one.
    pub fn settle(&self, error: Option<E>) -> bool {
        if self.error.get().is_none() {
            self.error.set(error);
        }
        self.pieces_left.set(self.pieces_left.get() - 1);
        self.pieces_left.get() == 0
    }

    /// The first error of any piece so far.
    pub fn error(&self) -> Option<E> {
        self.error.get()
    }
}

/// Read an extent into a buffer of its length, or into another that the volume chooses.
///
/// # Errors
/// What the volume says.
pub async fn read<V: Volume>(
    volume: &V,
    buffer: BufMut,
    extent: Extent,
) -> Result<BufMut, VolumeError> {
    let request = Request { command: Command::Read(buffer), extent, fua: false };
    match volume.submit(request).await? {
        Reply::Data(data) => {
            assert_eq!(to_u64(data.len()), extent.bytes, "a read is answered in full");
            Ok(data)
        }
        Reply::Done => unreachable!("a read is answered with data"),
    }
}

/// The error number for a failed request, where a protocol tells errors by number.
pub fn errno_of(error: VolumeError) -> Errno {
    match error.kind {
        VolumeErrorKind::Io => Errno::IO,
        VolumeErrorKind::BadExtent => Errno::INVAL,
        VolumeErrorKind::ReadOnly => Errno::ROFS,
        VolumeErrorKind::NoSpace => Errno::NOSPC,
        VolumeErrorKind::Stopped => Errno::SHUTDOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::{PieceGroup, pieces};
    use ashlar_units::Extent;

    #[test]
    fn pieces_cover_the_extent_in_order() {
        for bytes in 0..40 {
            for most in 1..12 {
                let extent = Extent::new(100, bytes);
                let mut at = extent.offset;
                for piece in pieces(extent, most) {
                    assert_eq!(piece.offset, at);
                    assert!((1..=most).contains(&piece.bytes));
                    at = piece.end();
                }
                assert_eq!(at, extent.end());
            }
        }
    }

    #[test]
    fn a_group_ends_with_its_last_piece_and_keeps_the_first_error() {
        let group = PieceGroup::new(3);
        assert!(!group.settle(None));
        assert!(!group.settle(Some("first")));
        assert!(group.settle(Some("second")));
        assert_eq!(group.error(), Some("first"));
    }
}
