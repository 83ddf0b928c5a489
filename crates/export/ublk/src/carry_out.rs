//! Carries out the driver's requests on a volume, each with the buffer of its slot: its room.
//!
//! What must stay true: a request with data touches the front of its room, as much as the request
//! has, and nothing else of it; nothing is read or written outside of the volume, whatever a
//! descriptor says. Not here: where descriptors come from (`queue`).

use crate::counters::{UblkCounters, add};
use crate::request::{UblkRequest, admit};
use crate::wire::Descriptor;
use ashlar_iobuf::{BufMut, Pool, PoolClass};
use ashlar_session::{errno_of, read};
use ashlar_units::{Extent, to_usize};
use ashlar_volume::{Command, Request, Transfer, Volume, VolumeFacts};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;

/// One more room for so many slots: what a drive that hangs holds is missed by nobody else.
const SLOTS_PER_SPARE: usize = 4;

/// What the slots of a queue need to carry out requests.
pub struct Requests<V> {
    volume: V,
    counters: Arc<UblkCounters>,
    /// As of the beginning.
    facts: VolumeFacts,
    /// Length of a room, in bytes.
    request_bytes_max: u32,
    rooms: Pool,
}

/// How a request ended: bytes moved, or why not. And the room of its slot, unless somebody else
/// still has it.
pub struct Carried {
    /// Bytes moved.
    pub answer: Result<u64, Errno>,
    /// The room.
    pub room: Option<BufMut>,
}

/// The volume now; its requests are no larger than a room.
fn facts_of<V: Volume>(volume: &V, room_bytes: u32) -> VolumeFacts {
    let facts = volume.facts();
    let request_bytes_max = facts.request_bytes_max.min(room_bytes);
    VolumeFacts { request_bytes_max, ..facts }
}

impl<V: Volume> Requests<V> {
    /// For so many slots, with rooms of so many bytes.
    ///
    /// # Errors
    /// There is no address space for the rooms.
    pub fn new(
        volume: V,
        counters: Arc<UblkCounters>,
        (slots, request_bytes_max): (usize, u32),
    ) -> io::Result<Requests<V>> {
        let buffer_bytes = usize::try_from(request_bytes_max).expect("usize has 32 bits");
        let count = slots + slots.div_ceil(SLOTS_PER_SPARE);
        let rooms = Pool::sparse(&[PoolClass { buffer_bytes, count }])?;
        let facts = facts_of(&volume, request_bytes_max);
        Ok(Requests { volume, counters, facts, request_bytes_max, rooms })
    }

    /// A room; waits until one is free.
    pub async fn room(&self) -> BufMut {
        self.rooms.get(self.rooms.buffer_bytes_max()).await
    }

    /// The result as the driver wants it: bytes moved, or a negative error number.
    pub fn result(&self, answer: Result<u64, Errno>) -> i32 {
        match answer {
            Ok(bytes) => i32::try_from(bytes).expect("a request is at most 1 MiB"),
            Err(errno) => {
                add(&self.counters.errors, 1);
                -errno.raw_os_error()
            }
        }
    }

    /// Carry out what a descriptor asks for.
    pub async fn carry_out(&self, descriptor: &Descriptor, room: BufMut) -> Carried {
        // What is not in the volume as of the last look may be in it by now.
        let now = || facts_of(&self.volume, self.request_bytes_max);
        let admitted = admit(&self.facts, descriptor).or_else(|_| admit(&now(), descriptor));
        match admitted {
            Ok(UblkRequest::Read(extent)) => self.read(extent, room).await,
            Ok(UblkRequest::Write { extent, fua }) => self.write(extent, fua, room).await,
            Ok(request) => Carried { answer: self.obey(request).await, room: Some(room) },
            Err(errno) => Carried { answer: Err(errno), room: Some(room) },
        }
    }

    /// Read into the front of the room, where the driver looks.
    async fn read(&self, extent: Extent, mut room: BufMut) -> Carried {
        add(&self.counters.reads, 1);
        self.volume.turn(Transfer::Read, extent.bytes).await;
        let front = room.split_to(to_usize(extent.bytes));
        let data = match read(&self.volume, front, extent).await {
            Ok(data) => data,
            Err(error) => return Carried { answer: Err(errno_of(error)), room: None },
        };
        add(&self.counters.read_bytes, extent.bytes);
        let room = match data.try_join(room) {
            Ok(room) => room,
            Err((data, _)) => {
                let mut room = self.room().await;
                room[..data.len()].copy_from_slice(&data);
                room
            }
        };
        Carried { answer: Ok(extent.bytes), room: Some(room) }
    }

    /// Write what the driver has put into the front of the room.
    async fn write(&self, extent: Extent, fua: bool, room: BufMut) -> Carried {
        add(&self.counters.writes, 1);
        self.volume.turn(Transfer::Write, extent.bytes).await;
        let room = room.freeze();
        let data = room.slice(0..to_usize(extent.bytes));
        let answer = self.submit(Command::Write(data), extent, fua).await.map(|_| extent.bytes);
        add(&self.counters.written_bytes, answer.unwrap_or(0));
        Carried { answer, room: room.try_into_mut().ok() }
    }

    /// A request without data.
    async fn obey(&self, request: UblkRequest) -> Result<u64, Errno> {
        let counters = &self.counters;
        match request {
            UblkRequest::Flush => {
                add(&counters.flushes, 1);
                self.submit(Command::Flush, Extent::default(), false).await
            }
            UblkRequest::Discard(extent) => {
                add(&counters.discards, 1);
                self.submit(Command::Discard, extent, false).await
            }
            UblkRequest::WriteZeroes { extent, may_unmap, fua } => {
                add(&counters.discards, 1);
                self.submit(Command::WriteZeroes { may_unmap }, extent, fua).await
            }
            UblkRequest::Read(_) | UblkRequest::Write { .. } => unreachable!("it has data"),
        }
    }

    async fn submit(&self, command: Command, extent: Extent, fua: bool) -> Result<u64, Errno> {
        let request = Request { command, extent, fua };
        self.volume.submit(request).await.map(|_| 0).map_err(errno_of)
    }
}
