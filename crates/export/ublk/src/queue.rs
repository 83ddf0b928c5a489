//! The requests of one queue, on one worker.
//!
//! What must stay true: each tag is one slot, which answers its request before it asks for the
//! next. A request has a buffer only while it is carried out. After the driver said that the device
//! is gone nothing is answered any more. The copies are plain calls: they move bytes between two
//! pieces of memory and wait for nothing.
//!
//! The thread tells the kernel that others wait for its writes. Otherwise the kernel, short of
//! memory, might wait for this device to give the thread some.

use crate::counters::{UblkCounters, add};
use crate::device::QueuePlace;
use crate::request::{UblkRequest, admit};
use crate::wire::{
    DESCRIPTOR_BYTES, Descriptor, command, data_at, descriptors_at, descriptors_bytes, queue_area,
};
use ashlar_iobuf::{Access, BufMut, SharedMapping};
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
        let QueuePlace { file, number, depth } = &self.place;
        let (at, bytes) = (descriptors_at(*number), descriptors_bytes(*depth));
        let descriptors = SharedMapping::map(file, at, bytes, Access::Read)?;
        let (handle, depth) = (self.handle.clone(), *depth);
        let queue = Rc::new(Queue {
            facts: self.volume.facts(),
            descriptors,
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
        Slots::start(&handle, usize::from(depth), slot).all_ended().await;
        let failure = queue.failure.take();
        failure.map_or(Ok(()), Err)
    }
}

/// What the slots of a queue share.
struct Queue<V> {
    server: QueueServer<V>,
    facts: VolumeFacts,
    descriptors: SharedMapping,
    failure: RefCell<Option<io::Error>>,
}

impl<V: Volume> Queue<V> {
    async fn run_slot(self: Rc<Self>, tag: u16) {
        let (mut number, mut result) = (command::FETCH, 0);
        loop {
            let area = queue_area(self.server.place.number, tag, result);
            let asked = DeviceCommand::new(number, area, None);
            let (answer, _) = self.server.ring.command(&self.server.place.file, asked).await;
            if let Err(error) = answer {
                // The device is stopped, or the ring is closing.
                let is_end = [Errno::NODEV, Errno::CANCELED].map(Some);
                if !is_end.contains(&Errno::from_io_error(&error)) {
                    self.failure.borrow_mut().get_or_insert(error);
                }
                return;
            }
            result = self.carry_out(tag).await;
            number = command::COMMIT_AND_FETCH;
        }
    }

    /// The result as the driver wants it: bytes moved, or a negative error number.
    async fn carry_out(&self, tag: u16) -> i32 {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        let at = usize::from(tag) * DESCRIPTOR_BYTES;
        self.descriptors.load(at, &mut bytes).expect("the mapping has all tags");
        let descriptor = Descriptor::read_from_bytes(&bytes).expect("any bytes are one");
        // What is not in the volume as of the last look may be in it by now.
        let admitted = admit(&self.facts, &descriptor)
            .or_else(|_| admit(&self.server.volume.facts(), &descriptor));
        let answer = match admitted {
            Ok(request) => self.obey(tag, request).await,
            Err(errno) => Err(errno),
        };
        match answer {
            Ok(bytes) => i32::try_from(bytes).expect("a request is at most 1 MiB"),
            Err(errno) => {
                add(&self.server.counters.errors, 1);
                -errno.raw_os_error()
            }
        }
    }

    async fn obey(&self, tag: u16, request: UblkRequest) -> Result<u64, Errno> {
        let counters = &self.server.counters;
        match request {
            UblkRequest::Read(extent) => {
                add(&counters.reads, 1);
                self.server.volume.turn(Transfer::Read, extent.bytes).await;
                let buffer = self.server.volume.buffer(to_usize(extent.bytes)).await;
                let data = read(&self.server.volume, buffer, extent).await.map_err(errno_of)?;
                self.give(tag, &data)?;
                add(&counters.read_bytes, extent.bytes);
                Ok(extent.bytes)
            }
            UblkRequest::Write { extent, fua } => {
                add(&counters.writes, 1);
                self.server.volume.turn(Transfer::Write, extent.bytes).await;
                let mut buffer = self.server.volume.buffer(to_usize(extent.bytes)).await;
                self.take(tag, &mut buffer)?;
                self.submit(Command::Write(buffer.freeze()), extent, fua).await?;
                add(&counters.written_bytes, extent.bytes);
                Ok(extent.bytes)
            }
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
        }
    }

    async fn submit(&self, command: Command, extent: Extent, fua: bool) -> Result<u64, Errno> {
        let request = Request { command, extent, fua };
        self.server.volume.submit(request).await.map(|_| 0).map_err(errno_of)
    }

    /// Hand the data of a read to the driver.
    fn give(&self, tag: u16, data: &[u8]) -> Result<(), Errno> {
        let (file, start) = (&self.server.place.file, data_at(self.server.place.number, tag));
        let mut done = 0;
        while done < data.len() {
            let at = start + ashlar_units::to_u64(done);
            match rustix::io::pwrite(file, &data[done..], at) {
                Ok(0) => return Err(Errno::IO),
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Take the data of a write from the driver.
    fn take(&self, tag: u16, buffer: &mut BufMut) -> Result<(), Errno> {
        let (file, start) = (&self.server.place.file, data_at(self.server.place.number, tag));
        let mut done = 0;
        while done < buffer.len() {
            let at = start + ashlar_units::to_u64(done);
            match rustix::io::pread(file, &mut buffer[done..], at) {
                Ok(0) => return Err(Errno::IO),
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}
