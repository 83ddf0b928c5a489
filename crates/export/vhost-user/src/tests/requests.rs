//! What requests ask for, and which status those get that cannot be carried out.

use crate::request::{Asked, Status, VhostRequest, kind, name};
use ashlar_units::Extent;
use ashlar_volume::{MemVolume, Volume, VolumeFacts};

fn facts() -> VolumeFacts {
    VolumeFacts { logical_block_bytes: 4096, ..MemVolume::new("disk", 4 << 20).facts() }
}

fn asked(kind: u32, sector: u64, (readable_bytes, writable_bytes): (u64, u64)) -> Asked {
    let mut head = [0; 16];
    head[..4].copy_from_slice(&kind.to_le_bytes());
    head[8..].copy_from_slice(&sector.to_le_bytes());
    Asked { head, readable_bytes, writable_bytes, range: None }
}

fn ranged(kind: u32, sector: u64, (sectors, flags): (u32, u32)) -> Asked {
    let mut range = [0; 16];
    range[..8].copy_from_slice(&sector.to_le_bytes());
    range[8..12].copy_from_slice(&sectors.to_le_bytes());
    range[12..].copy_from_slice(&flags.to_le_bytes());
    Asked { range: Some(range), ..asked(kind, 0, (16, 0)) }
}

#[test]
fn every_kind_arrives_with_its_extent() {
    let extent = Extent::new(4096, 8192);
    let admit = |asked: Asked| asked.admit(&facts());
    assert_eq!(admit(asked(kind::READ, 8, (0, 8192))), Ok(VhostRequest::Read(extent)));
    assert_eq!(admit(asked(kind::WRITE, 8, (8192, 0))), Ok(VhostRequest::Write(extent)));
    assert_eq!(admit(asked(kind::FLUSH, u64::MAX, (0, 0))), Ok(VhostRequest::Flush));
    assert_eq!(admit(asked(kind::IDENTIFY, 0, (0, 20))), Ok(VhostRequest::Identify));
    assert_eq!(admit(ranged(kind::DISCARD, 8, (16, 0))), Ok(VhostRequest::Discard(extent)));
    for (flags, may_unmap) in [(0, false), (1, true)] {
        let request = VhostRequest::WriteZeroes { extent, may_unmap };
        assert_eq!(admit(ranged(kind::WRITE_ZEROES, 8, (16, flags))), Ok(request));
    }
}

#[test]
fn what_cannot_be_done_has_a_status() {
    let rows = [
        (Status::Failed, asked(kind::READ, 1, (0, 4096))),
        (Status::Failed, asked(kind::READ, 8, (0, 512))),
        (Status::Failed, asked(kind::READ, 8, (0, 0))),
        (Status::Failed, asked(kind::READ, 8, (1, 4096))),
        (Status::Failed, asked(kind::READ, 8192 - 8, (0, 8192))),
        (Status::Failed, asked(kind::READ, u64::MAX, (0, 4096))),
        (Status::Failed, asked(kind::READ, u64::MAX / 512, (0, 4096))),
        (Status::Failed, asked(kind::READ, 0, (0, u64::MAX - 4095))),
        (Status::Failed, asked(kind::WRITE, 8, (4096, 1))),
        (Status::Failed, asked(kind::WRITE, 8192, (4096, 0))),
        (Status::Failed, asked(kind::DISCARD, 0, (32, 0))),
        (Status::Failed, asked(kind::WRITE_ZEROES, 0, (0, 0))),
        (Status::Failed, ranged(kind::DISCARD, 0, (0, 0))),
        (Status::Failed, ranged(kind::DISCARD, 1, (8, 0))),
        (Status::Failed, ranged(kind::DISCARD, 0, (u32::MAX, 0))),
        (Status::Failed, ranged(kind::DISCARD, u64::MAX, (8, 0))),
        (Status::Unsupported, ranged(kind::DISCARD, 0, (8, 1))),
        (Status::Unsupported, ranged(kind::WRITE_ZEROES, 0, (8, 2))),
        (Status::Unsupported, ranged(kind::WRITE_ZEROES, 0, (8, u32::MAX))),
        (Status::Unsupported, asked(2, 0, (0, 0))),
        (Status::Unsupported, asked(14, 0, (16, 0))),
        (Status::Unsupported, asked(u32::MAX, 0, (0, 4096))),
    ];
    for (wanted, asked) in rows {
        assert_eq!(asked.admit(&facts()), Err(wanted), "{asked:?}");
    }
}

#[test]
fn a_volume_that_may_not_be_written_is_read_and_flushed() {
    let facts = VolumeFacts { read_only: true, ..facts() };
    assert_eq!(asked(kind::WRITE, 0, (4096, 0)).admit(&facts), Err(Status::Failed));
    for change in [kind::DISCARD, kind::WRITE_ZEROES] {
        assert_eq!(ranged(change, 0, (8, 0)).admit(&facts), Err(Status::Failed));
    }
    assert!(asked(kind::READ, 0, (0, 4096)).admit(&facts).is_ok());
    assert!(asked(kind::FLUSH, 0, (0, 0)).admit(&facts).is_ok());
}

#[test]
fn a_device_is_called_by_its_volume() {
    let facts = VolumeFacts { uuid: [0x0f; 16], ..facts() };
    assert_eq!(&name(&facts), b"0f0f0f0f0f0f0f0f0f0f");
}
