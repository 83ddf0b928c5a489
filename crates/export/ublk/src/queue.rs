//! The requests of one queue, on one worker.
//!
//! What must stay true: each tag is one slot, which answers its request before it asks for the
//! next. A slot's room holds the largest request of the device, for the driver copies as much as a
//! request has; the command that waits for a request owns it. After the driver said that the device
//! is gone nothing is answered any more. Not here: what a request does (`carry_out`).
//!
//! The thread tells the kernel that others wait for its writes. Otherwise the kernel, short of
//! memory, might wait for this device to give the thread some.

use crate::carry_out::Requests;
use crate::counters::UblkCounters;
use crate::device::QueuePlace;
use crate::wire::{
    DESCRIPTOR_BYTES, Descriptor, command, descriptors_at, descriptors_bytes, queue_area,
};
use ashlar_iobuf::{Access, SharedMapping};
use ashlar_ring::{DeviceCommand, Handle, Ring};
use ashlar_session::Slots;
use ashlar_volume::Volume;
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
        let QueueServer { handle, ring, volume, place, counters } = self;
        let depth = place.depth;
        let (at, bytes) = (descriptors_at(place.number), descriptors_bytes(depth));
        let descriptors = SharedMapping::map(&place.file, at, bytes, Access::Read)?;
        let slots = usize::from(depth);
        let requests = Requests::new(volume, counters, (slots, place.request_bytes_max))?;
        let failure = RefCell::new(None);
        let queue = Rc::new(Queue { ring, place, requests, descriptors, failure });
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
    ring: Ring,
    place: QueuePlace,
    requests: Requests<V>,
    descriptors: SharedMapping,
    failure: RefCell<Option<io::Error>>,
}

impl<V: Volume> Queue<V> {
    async fn run_slot(self: Rc<Self>, tag: u16) {
        let (mut number, mut result, mut room) = (command::FETCH, 0, self.requests.room().await);
        loop {
            let area = queue_area(self.place.number, tag, result);
            let asked = DeviceCommand::new(number, area, Some(room));
            let (answer, back) = self.ring.command(&self.place.file, asked).await;
            if let Err(error) = answer {
                return self.note_end(error);
            }
            let back = back.expect("a command's memory comes back");
            let carried = self.requests.carry_out(&self.descriptor(tag), back).await;
            result = self.requests.result(carried.answer);
            room = match carried.room {
                Some(room) => room,
                None => self.requests.room().await,
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

    fn descriptor(&self, tag: u16) -> Descriptor {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        let at = usize::from(tag) * DESCRIPTOR_BYTES;
        self.descriptors.load(at, &mut bytes).expect("the mapping has all tags");
        Descriptor::read_from_bytes(&bytes).expect("any bytes are one")
    }
}
