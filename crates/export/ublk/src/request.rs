//! Judges a request of the driver: what it asks of a volume, or the error it gets. Pure.
//!
//! What must stay true: a [`UblkRequest`] lies within the volume, on its logical blocks, and is
//! allowed. One with data is no longer than the device said it would take. The driver keeps to
//! that, and is checked all the same.

use crate::wire::{Descriptor, operation};
use ashlar_session::{Admission, Kind, Refusal};
use ashlar_units::{Extent, SECTOR_BYTES};
use ashlar_volume::VolumeFacts;
use rustix::io::Errno;

/// A request that may be carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UblkRequest {
    /// Hand over the extent.
    Read(Extent),
    /// Store the extent.
    Write {
        /// Where.
        extent: Extent,
        /// Answer when durable.
        fua: bool,
    },
    /// Make answered changes durable.
    Flush,
    /// The content is not needed any more.
    Discard(Extent),
    /// Zero the extent.
    WriteZeroes {
        /// Where.
        extent: Extent,
        /// Whether the space may be given back.
        may_unmap: bool,
        /// Answer when durable.
        fua: bool,
    },
}

/// Turn a descriptor into a request.
///
/// # Errors
/// The number to answer with.
pub fn admit(facts: &VolumeFacts, descriptor: &Descriptor) -> Result<UblkRequest, Errno> {
    let [kind, ..] = descriptor.operation.to_le_bytes();
    let has = |flag| descriptor.operation & flag != 0;
    let (fua, may_unmap) = (has(operation::FUA), !has(operation::NO_UNMAP));
    if kind == operation::FLUSH {
        return Ok(UblkRequest::Flush);
    }
    let offset = descriptor.start_sector.checked_mul(SECTOR_BYTES).ok_or(Errno::INVAL)?;
    let extent = Extent { offset, bytes: u64::from(descriptor.sectors) * SECTOR_BYTES };
    let (looks, has_data, request) = match kind {
        operation::READ => (Kind::Look, true, UblkRequest::Read(extent)),
        operation::WRITE => (Kind::Change, true, UblkRequest::Write { extent, fua }),
        operation::DISCARD => (Kind::Change, false, UblkRequest::Discard(extent)),
        operation::WRITE_ZEROES => {
            (Kind::Change, false, UblkRequest::WriteZeroes { extent, may_unmap, fua })
        }
        _ => return Err(Errno::OPNOTSUPP),
    };
    let admission = Admission(facts);
    admission.kind(looks).and_then(|()| admission.extent(extent)).map_err(errno_for)?;
    match has_data && extent.bytes > u64::from(facts.request_bytes_max) {
        true => Err(Errno::INVAL),
        false => Ok(request),
    }
}

fn errno_for(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::ReadOnly => Errno::ROFS,
        Refusal::Outside => Errno::NOSPC,
        Refusal::Misaligned | Refusal::Empty => Errno::INVAL,
    }
}

#[cfg(test)]
mod tests {
    use super::{UblkRequest, admit};
    use crate::wire::{Descriptor, operation};
    use ashlar_units::Extent;
    use ashlar_volume::{MemVolume, Volume, VolumeFacts};
    use rustix::io::Errno;

    fn facts() -> VolumeFacts {
        let facts = MemVolume::new("disk", 4 << 20).facts();
        VolumeFacts { logical_block_bytes: 4096, request_bytes_max: 1 << 20, ..facts }
    }

    fn asks(operation: u32, start_sector: u64, sectors: u32) -> Result<UblkRequest, Errno> {
        admit(&facts(), &Descriptor { operation, sectors, start_sector, address: 0 })
    }

    fn op(kind: u8) -> u32 {
        u32::from(kind)
    }

    #[test]
    fn every_operation_arrives_with_its_extent_and_flags() {
        let extent = Extent::new(4096, 8192);
        assert_eq!(asks(op(operation::READ), 8, 16), Ok(UblkRequest::Read(extent)));
        let write = |flags| asks(op(operation::WRITE) | flags, 8, 16);
        assert_eq!(write(0), Ok(UblkRequest::Write { extent, fua: false }));
        assert_eq!(write(operation::FUA), Ok(UblkRequest::Write { extent, fua: true }));
        // What the block layer says of priorities and merging changes nothing.
        assert_eq!(
            write(1 << 8 | 1 << 10 | 1 << 11),
            Ok(UblkRequest::Write { extent, fua: false })
        );
        assert_eq!(asks(op(operation::FLUSH), u64::MAX, 0), Ok(UblkRequest::Flush));
        assert_eq!(asks(op(operation::DISCARD), 8, 16), Ok(UblkRequest::Discard(extent)));
        let zeroes = |flags| asks(op(operation::WRITE_ZEROES) | flags, 8, 16);
        let request = |may_unmap, fua| Ok(UblkRequest::WriteZeroes { extent, may_unmap, fua });
        assert_eq!(zeroes(0), request(true, false));
        assert_eq!(zeroes(operation::NO_UNMAP), request(false, false));
        assert_eq!(zeroes(operation::NO_UNMAP | operation::FUA), request(false, true));
    }

    #[test]
    fn what_the_volume_cannot_do_is_an_error() {
        let read = op(operation::READ);
        assert_eq!(asks(read, 1, 8), Err(Errno::INVAL), "between blocks");
        assert_eq!(asks(read, 8, 1), Err(Errno::INVAL), "less than a block");
        assert_eq!(asks(read, 8, 0), Err(Errno::INVAL), "nothing");
        assert_eq!(asks(read, 8192 - 8, 16), Err(Errno::NOSPC), "beyond the end");
        assert_eq!(asks(read, u64::MAX, 8), Err(Errno::INVAL), "no such place");
        assert_eq!(asks(read, 0, 2048 + 8), Err(Errno::INVAL), "longer than a request");
        assert_eq!(asks(op(operation::WRITE), 0, 2048 + 8), Err(Errno::INVAL));
        assert!(asks(op(operation::DISCARD), 0, 8192).is_ok(), "without data: all of it");
        for unknown in (0..=255_u8).filter(|kind| ![0, 1, 2, 3, 5].contains(kind)) {
            assert_eq!(asks(op(unknown), 0, 8), Err(Errno::OPNOTSUPP), "{unknown}");
        }
    }

    #[test]
    fn a_volume_that_may_not_be_written_is_read_and_flushed() {
        let facts = VolumeFacts { read_only: true, ..facts() };
        for kind in [operation::WRITE, operation::DISCARD, operation::WRITE_ZEROES] {
            let asked = Descriptor { operation: op(kind), sectors: 8, ..Descriptor::default() };
            assert_eq!(admit(&facts, &asked), Err(Errno::ROFS));
        }
        for kind in [operation::READ, operation::FLUSH] {
            let asked = Descriptor { operation: op(kind), sectors: 8, ..Descriptor::default() };
            assert!(admit(&facts, &asked).is_ok());
        }
    }
}
