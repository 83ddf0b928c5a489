//! Descriptors at random: what comes of requests that no driver makes.
//!
//! What must stay true: whatever the bytes are, nothing panics and nothing waits for ever; a read
//! fills the front of its room with the volume's bytes and nothing else of it; a write changes what
//! it names and nothing else of the volume; a request that is refused moves nothing.

use crate::carry_out::{Carried, Requests};
use crate::counters::UblkCounters;
use crate::wire::{DESCRIPTOR_BYTES, Descriptor, operation};
use ashlar_iobuf::BufMut;
use ashlar_ring::{Executor, Schedule, VirtualReactor};
use ashlar_session::read;
use ashlar_units::{Extent, SECTOR_BYTES, to_u64, to_usize};
use ashlar_volume::{MemVolume, Transfer, Volume};
use std::ops::Range;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Length of the volume, and of the room that is its longest request, in bytes.
pub const VOLUME_BYTES: u64 = 32 << 10;
/// See [`VOLUME_BYTES`].
pub const ROOM_BYTES: u32 = 8 << 10;

/// The volume is not written.
pub const READ_ONLY: u8 = 1;
/// Its logical blocks have 4096 bytes, not 512.
pub const LARGE_BLOCKS: u8 = 2;

/// What came of descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Met {
    /// Requests that were carried out.
    pub done: u64,
    /// Requests that were answered with an error.
    pub refused: u64,
}

/// A descriptor as the driver writes it.
pub fn descriptor(operation: u32, start_sector: u64, sectors: u32) -> [u8; DESCRIPTOR_BYTES] {
    let descriptor = Descriptor { operation, sectors, start_sector, address: 0 };
    descriptor.as_bytes().try_into().expect("its length")
}

/// Carry out descriptors one after the other. The first byte says of which volume: see
/// [`READ_ONLY`].
///
/// # Panics
/// If something that must stay true does not.
pub fn meet(input: &[u8]) -> Met {
    let Some((kind, descriptors)) = input.split_first() else { return Met::default() };
    let mut executor = Executor::new(Box::new(VirtualReactor::new()), Schedule::InOrder);
    executor.block_on(async {
        let mut device = Device::new(*kind);
        for bytes in descriptors.as_chunks::<DESCRIPTOR_BYTES>().0 {
            device.meet(&Descriptor::read_from_bytes(bytes).expect("any bytes are one")).await;
        }
        device.check_volume().await;
        device.met
    })
}

/// A volume, and what must be in it.
struct Device {
    volume: MemVolume,
    requests: Requests<MemVolume>,
    wanted: Vec<u8>,
    met: Met,
}

impl Device {
    fn new(kind: u8) -> Device {
        let volume = MemVolume::new("disk", VOLUME_BYTES).with_facts(|facts| {
            facts.request_bytes_max = ROOM_BYTES;
            facts.read_only = kind & READ_ONLY != 0;
            if kind & LARGE_BLOCKS != 0 {
                facts.logical_block_bytes = 4096;
            }
        });
        let counters = Arc::new(UblkCounters::default());
        let requests = Requests::new(volume.clone(), counters, (1, ROOM_BYTES));
        let requests = requests.expect("address space");
        let wanted = vec![0; to_usize(VOLUME_BYTES)];
        Device { volume, requests, wanted, met: Met::default() }
    }

    async fn meet(&mut self, descriptor: &Descriptor) {
        let number = self.met.done + self.met.refused;
        let [mark, ..] = (number % 255 + 1).to_le_bytes();
        let mut room = self.requests.room().await;
        room.fill(mark);
        let Carried { answer, room } = self.requests.carry_out(descriptor, room).await;
        let moved = self.requests.result(answer);
        let room = room.expect("this volume keeps no room");
        assert_eq!(to_u64(room.len()), u64::from(ROOM_BYTES));
        match usize::try_from(moved) {
            Ok(moved) => {
                self.met.done += 1;
                self.check_done(descriptor, moved, (&room, mark)).await;
            }
            Err(_negative) => {
                self.met.refused += 1;
                assert!(room.iter().all(|byte| *byte == mark), "{descriptor:?} moved bytes");
            }
        }
    }

    /// Hold a request that was carried out against what is wanted.
    async fn check_done(
        &mut self,
        descriptor: &Descriptor,
        moved: usize,
        (room, mark): (&BufMut, u8),
    ) {
        let [kind, ..] = descriptor.operation.to_le_bytes();
        if kind == operation::FLUSH {
            return;
        }
        let range = range(descriptor);
        let has_data = [operation::READ, operation::WRITE].contains(&kind);
        assert_eq!(moved, if has_data { range.len() } else { 0 });
        match kind {
            operation::READ => {
                let (front, rest) = room.split_at(moved);
                assert_eq!(front, &self.wanted[range]);
                assert!(rest.iter().all(|byte| *byte == mark), "{descriptor:?} read too much");
            }
            operation::WRITE => self.wanted[range].fill(mark),
            operation::WRITE_ZEROES => self.wanted[range].fill(0),
            // As before or zeros.
            operation::DISCARD => {
                let found = self.content().await;
                for at in range {
                    assert!([0, self.wanted[at]].contains(&found[at]));
                    self.wanted[at] = found[at];
                }
            }
            _ => panic!("{descriptor:?} is carried out"),
        }
    }

    async fn check_volume(&self) {
        assert!(self.content().await == self.wanted, "the volume is another one");
    }

    async fn content(&self) -> Vec<u8> {
        let mut found = Vec::new();
        for offset in (0..VOLUME_BYTES).step_by(to_usize(ROOM_BYTES.into())) {
            let extent = Extent::new(offset, ROOM_BYTES.into());
            self.volume.turn(Transfer::Read, extent.bytes).await;
            let buffer = BufMut::zeroed(to_usize(extent.bytes));
            let part = read(&self.volume, buffer, extent).await;
            found.extend_from_slice(&part.expect("within"));
        }
        found
    }
}

/// The bytes of the volume that a descriptor names.
fn range(descriptor: &Descriptor) -> Range<usize> {
    let at = descriptor.start_sector.checked_mul(SECTOR_BYTES).expect("carried out");
    let bytes = u64::from(descriptor.sectors) * SECTOR_BYTES;
    to_usize(at)..to_usize(at.checked_add(bytes).expect("carried out"))
}
