//! The requests of one queue, on one worker.
//!
//! What must stay true: each tag is one slot, which answers its request before it asks for the
//! next. A slot's room holds the largest request of the device, for the driver copies as much as a
//! request has; the command that waits for a request owns it. After the driver said that the device
//! is gone nothing is answered any more.
//!
//! The thread tells the kernel that others wait for its writes. Otherwise the kernel, short of
//! memory, might wait for this device to give the thread some.

use crate::counters::{UblkCounters, add};
use crate::device::QueuePlace;
use crate::request::{UblkRequest, admit};
use crate::wire::{
    DESCRIPTOR_BYTES, Descriptor, command, descriptors_at, descriptors_bytes, queue_area,
};
use ashlar_iobuf::{Access, BufMut, Pool, PoolClass, SharedMapping};
use ashlar_ring::{DeviceCommand, Handle, Ring};
use ashlar_session::{Slots, errno_of, read};
use ashlar_units::{Extent, to_usize};
use ashlar_volume::{Command, Request, Transfer, Volume, VolumeFacts};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use zerocopy::FromBytes;

/// One more room for so many slots: what a drive that hangs holds is missed by nobody else.
const SLOTS_PER_SPARE: usize = 4;

/// What one worker needs to serve one queue.
pub struct QueueServer<V> {
    /// The worker's executor.
    pub handle: Handle,
    /// The worker's ring.
    pub ring: Ring,
    /// The volume, for this worker.
    pub volume: V,
    /// From [`Device::queues`](crate::Device::queues).
    pub place: QueuePlace,
    /// What all queues of the device did.
    pub counters: Arc<UblkCounters>,
}

impl<V: Volume> QueueServer<V> {
    /// Serve until the device is stopped.
    ///
    /// # Errors
    /// The queue cannot be mapped, or the driver refuses a command.
    ///
    /// # Cancellation
    /// Slots go on until the device is stopped.
    pub async fn serve(self) -> io::Result<()> {
        // Not everybody may say so, and the device is right without it.
        let _not_allowed = rustix::process::configure_io_flusher_behavior(true);
        let QueuePlace { file, number, depth, request_bytes_max } = &self.place;
        let (at, bytes) = (descriptors_at(*number), descriptors_bytes(*depth));
        let descriptors = SharedMapping::map(file, at, bytes, Access::Read)?;
        let (handle, depth) = (self.handle.clone(), *depth);
        let slots = usize::from(depth);
        let buffer_bytes = usize::try_from(*request_bytes_max).expect("usize has 32 bits");
        let count = slots + slots.div_ceil(SLOTS_PER_SPARE);
        let queue = Rc::new(Queue {
            facts: facts_of(&self),
            descriptors,
            rooms: Pool::sparse(&[PoolClass { buffer_bytes, count }])?,
            failure: RefCell::new(None),
            server: self,
        });
        let tags = Cell::new(0..depth);
        let slot = || {
            let mut left = tags.take();
            let tag = left.next().expect("one tag for each slot");
            tags.set(left);
            Rc::clone(&queue).run_slot(tag)
        };
        Slots::start(&handle, slots, slot).all_ended().await;
        let failure = queue.failure.take();
        failure.map_or(Ok(()), Err)
    }
}

/// What the slots of a queue share.
struct Queue<V> {
    server: QueueServer<V>,
    facts: VolumeFacts,
    descriptors: SharedMapping,
    rooms: Pool,
    failure: RefCell<Option<io::Error>>,
}

/// How a request ended: bytes moved, or why not. And the room of its slot, unless somebody else
/// still has it.
struct Carried {
    answer: Result<u64, Errno>,
    room: Option<BufMut>,
}

/// The volume now; its requests are no larger than a room.
fn facts_of<V: Volume>(server: &QueueServer<V>) -> VolumeFacts {
    let facts = server.volume.facts();
    let request_bytes_max = facts.request_bytes_max.min(server.place.request_bytes_max);
    VolumeFacts { request_bytes_max, ..facts }
}

impl<V: Volume> Queue<V> {
    async fn run_slot(self: Rc<Self>, tag: u16) {
        let (mut number, mut result, mut room) = (command::FETCH, 0, self.room().await);
        loop {
            let area = queue_area(self.server.place.number, tag, result);
            let asked = DeviceCommand::new(number, area, Some(room));
            let (answer, back) = self.server.ring.command(&self.server.place.file, asked).await;
            if let Err(error) = answer {
                return self.note_end(error);
            }
            let carried = self.carry_out(tag, back.expect("a command's memory comes back")).await;
            result = self.result(carried.answer);
            room = match carried.room {
                Some(room) => room,
                None => self.room().await,
            };
            number = command::COMMIT_AND_FETCH;
        }
    }

    fn note_end(&self, error: io::Error) {
        // The device is stopped, or the ring is closing.
        let is_end = [Errno::NODEV, Errno::CANCELED].map(Some);
        if !is_end.contains(&Errno::from_io_error(&error)) {
            self.failure.borrow_mut().get_or_insert(error);
        }
    }

    async fn room(&self) -> BufMut {
        self.rooms.get(self.rooms.buffer_bytes_max()).await
    }

    /// The result as the driver wants it: bytes moved, or a negative error number.
    fn result(&self, answer: Result<u64, Errno>) -> i32 {
        match answer {
            Ok(bytes) => i32::try_from(bytes).expect("a request is at most 1 MiB"),
            Err(errno) => {
                add(&self.server.counters.errors, 1);
                -errno.raw_os_error()
            }
        }
    }

    async fn carry_out(&self, tag: u16, room: BufMut) -> Carried {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        let at = usize::from(tag) * DESCRIPTOR_BYTES;
        self.descriptors.load(at, &mut bytes).expect("the mapping has all tags");
        let descriptor = Descriptor::read_from_bytes(&bytes).expect("any bytes are one");
        // What is not in the volume as of the last look may be in it by now.
        let admitted = admit(&self.facts, &descriptor)
            .or_else(|_| admit(&facts_of(&self.server), &descriptor));
        match admitted {
            Ok(UblkRequest::Read(extent)) => self.read(extent, room).await,
            Ok(UblkRequest::Write { extent, fua }) => self.write(extent, fua, room).await,
            Ok(request) => Carried { answer: self.obey(request).await, room: Some(room) },
            Err(errno) => Carried { answer: Err(errno), room: Some(room) },
        }
    }

    /// Read into the front of the room, where the driver looks.
    async fn read(&self, extent: Extent, mut room: BufMut) -> Carried {
        let counters = &self.server.counters;
        add(&counters.reads, 1);
        self.server.volume.turn(Transfer::Read, extent.bytes).await;
        let front = room.split_to(to_usize(extent.bytes));
        let data = match read(&self.server.volume, front, extent).await {
            Ok(data) => data,
            Err(error) => return Carried { answer: Err(errno_of(error)), room: None },
        };
        add(&counters.read_bytes, extent.bytes);
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
        let counters = &self.server.counters;
        add(&counters.writes, 1);
        self.server.volume.turn(Transfer::Write, extent.bytes).await;
        let room = room.freeze();
        let data = room.slice(0..to_usize(extent.bytes));
        let answer = self.submit(Command::Write(data), extent, fua).await.map(|_| extent.bytes);
        add(&counters.written_bytes, answer.unwrap_or(0));
        Carried { answer, room: room.try_into_mut().ok() }
    }

    /// A request without data.
    async fn obey(&self, request: UblkRequest) -> Result<u64, Errno> {
        let counters = &self.server.counters;
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
        self.server.volume.submit(request).await.map(|_| 0).map_err(errno_of)
    }
}
