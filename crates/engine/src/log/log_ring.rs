//! One log ring on one device: records wait here for the batch that takes them to the device.
//!
//! What must stay true: a record is done when its batch is whole on the device, and forced to media
//! if the device has a volatile cache. At most [`batches_in_flight`] batches are under way. A batch
//! begins only when all but the last before it are whole, so a start can tell a damaged batch from
//! one that never came. Records that come meanwhile go together with the next batch, in their
//! order.
//!
//! Buffers for headers come from a pool of fixed size. Payload is written from where it lies. A
//! batch takes the records that are there when a writer runs, so records of one turn of the
//! executor go together.

use super::ring_space::RingSpace;
use super::shape::LogShape;
use super::update::{Body, Piece};
use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::room::patience::Patience;
use crate::watch::wake::Watch;
use ashlar_device::{Command, Device, Fault, FaultKind, Outcome};
use ashlar_iobuf::{Buf, BufMut, Pool, PoolClass, PoolUsage};
use ashlar_ondisk::log::{BATCHES_IN_FLIGHT_MAX, HeaderEncoder, LogIdentity, NewRecord, Part};
use ashlar_ring::local::Signal;
use ashlar_ring::{Completions, PARTS_MAX, Pending};
use ashlar_units::{BLOCK_BYTES_USIZE, MemberIdx, StripIdx, to_u64, to_usize};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// A batch grows no longer than this because there are more records; one record may be longer.
const BATCH_BYTES: usize = 516 << 10;
/// Header buffers for each log ring that is open: one for each batch in flight. A slot has two log
/// rings while its device is replaced.
const HEADERS_EACH: usize = 2 * BATCHES_IN_FLIGHT_MAX;
/// The header of a batch: room for fifty records or so.
const HEADER_BYTES: usize = BLOCK_BYTES_USIZE;

/// What all log rings of an array on one worker share.
pub(super) struct Common {
    pub(super) array: Arc<Array>,
    pub(super) worker: usize,
    pub(super) shape: LogShape,
    /// Every update of the worker with a lower sequence is durable in place.
    pub(super) settled_below: Cell<u64>,
    /// Space came back, or an attempt to get some is over.
    pub(super) changed: Signal,
    outcomes: Completions<Outcome>,
    watch: Rc<Watch>,
    pool: Pool,
}

impl Common {
    pub(super) fn new(
        array: &Arc<Array>,
        worker: usize,
        shape: LogShape,
        outcomes: Completions<Outcome>,
        watch: Rc<Watch>,
    ) -> io::Result<Common> {
        let count = HEADERS_EACH * array.slots.len();
        let pool = Pool::new(&[PoolClass { buffer_bytes: HEADER_BYTES, count }])?;
        Ok(Common {
            array: Arc::clone(array),
            worker,
            shape,
            settled_below: Cell::new(1),
            changed: Signal::new(),
            outcomes,
            watch,
            pool,
        })
    }

    pub(super) fn usage(&self) -> PoolUsage {
        self.pool.usage()
    }

    fn counts(&self) -> &crate::metrics::ArrayCounters {
        &self.array.counters[self.worker].counts
    }
}

/// Two: while one is on its way the next one gathers, and the device is never idle in between. One
/// where a durable write costs a flush: groups become larger, and flushes fewer.
fn batches_in_flight(has_volatile_cache: bool) -> usize {
    if has_volatile_cache { 1 } else { BATCHES_IN_FLIGHT_MAX }
}

/// A record that waits for its batch. Its update learns how it ended when this drops.
pub(super) struct Item {
    body: Option<Rc<Body>>,
    /// The number of this device among the holders.
    holder: usize,
    /// The strip that it stores.
    strip: StripIdx,
    /// Blocks of payload.
    blocks: usize,
    result: Result<(), Fault>,
}

impl Item {
    /// The record of this holder.
    pub(super) fn new(body: &Rc<Body>, holder: usize) -> Item {
        let strip = body.holders[holder].strip;
        let blocks = body.blocks_of(strip);
        Item { body: Some(Rc::clone(body)), holder, strip, blocks, result: Err(Fault::GONE) }
    }

    fn body(&self) -> &Body {
        self.body.as_deref().expect("until it ends")
    }

    /// What this device stores of the update.
    fn parts(&self) -> impl Iterator<Item = &Piece> {
        self.body().parts_of(self.strip)
    }

    /// Bytes of its batch if it went alone.
    pub(super) fn bytes_alone(blocks: usize) -> u64 {
        to_u64(HEADER_BYTES + blocks * BLOCK_BYTES_USIZE)
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        let Some(body) = self.body.take() else { return };
        let waiter = body.arrivals.end(self.holder, self.result);
        // Before the waiter hears of it: the body is used again.
        drop(body);
        waiter.into_iter().for_each(Waker::wake);
    }
}

/// One worker's log ring on one device.
pub(super) struct LogRing {
    common: Rc<Common>,
    handle: ashlar_ring::Handle,
    /// The slot that its device is in, or on its way into.
    member: MemberIdx,
    pub(super) log_tag: u64,
    /// Let go when the log ring is closed and has nothing to write: a stopped array holds no device
    /// open.
    device: RefCell<Option<Rc<dyn Device>>>,
    pub(super) ring: RefCell<RingSpace>,
    queue: RefCell<VecDeque<Item>>,
    idle_writers: RefCell<Vec<Waker>>,
    is_one_woken: Cell<bool>,
    is_closed: Cell<bool>,
    /// Writers that have not ended.
    writers: Cell<usize>,
    /// The last one has.
    ended: Signal,
    /// What became of the last batch that failed: the ring gets no further than the oldest of them.
    pub(super) fault: Cell<Option<Fault>>,
}

/// A batch under way.
struct Batch {
    number: u64,
    /// Where it goes, bytes from the device's start.
    offset: u64,
    header: Buf,
    items: Vec<Item>,
}

/// A device that a log ring lies on.
pub(super) struct RingDevice {
    pub(super) member: MemberIdx,
    pub(super) device: Rc<dyn Device>,
    /// Its name in the log, not 0.
    pub(super) log_tag: u64,
}

impl LogRing {
    /// An empty log ring on `device`, with its writers running. If another one `before` it is on
    /// the device still, it begins once that has ended: what that one has under way may land
    /// anywhere in the ring.
    pub(super) fn open(
        common: &Rc<Common>,
        handle: &ashlar_ring::Handle,
        RingDevice { member, device, log_tag }: RingDevice,
        before: Option<Rc<LogRing>>,
    ) -> Rc<LogRing> {
        assert!(log_tag != 0, "a device of an array with a log has a log tag");
        let shape = common.shape;
        let has_volatile_cache = device.facts().has_volatile_cache;
        let log_ring = Rc::new(LogRing {
            common: Rc::clone(common),
            handle: handle.clone(),
            member,
            log_tag,
            device: RefCell::new(Some(device)),
            ring: RefCell::new(RingSpace::new(shape.log_ring_bytes, shape.record_bytes_max())),
            queue: RefCell::default(),
            idle_writers: RefCell::default(),
            is_one_woken: Cell::new(false),
            is_closed: Cell::new(false),
            writers: Cell::new(batches_in_flight(has_volatile_cache)),
            ended: Signal::new(),
            fault: Cell::new(None),
        });
        for _ in 0..log_ring.writers.get() {
            handle.spawn(Rc::clone(&log_ring).write_batches(before.clone()));
        }
        log_ring
    }

    /// Whether it is on that device.
    pub(super) fn is_on(&self, device: &Rc<dyn Device>) -> bool {
        self.device.borrow().as_ref().is_some_and(|own| Rc::ptr_eq(own, device))
    }

    /// The device has left its slot: what waits still goes out, then the writers end.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        self.let_go_if_done();
        self.is_one_woken.set(false);
        self.idle_writers.borrow_mut().drain(..).for_each(Waker::wake);
    }

    fn let_go_if_done(&self) {
        if self.is_closed.get() && self.queue.borrow().is_empty() {
            self.device.take();
        }
    }

    /// Have a record written; space was promised to it.
    pub(super) fn push(&self, item: Item) {
        self.queue.borrow_mut().push_back(item);
        self.wake_a_writer();
    }

    /// More is settled than before: say so if that frees space that is needed.
    pub(super) fn settled(&self) {
        if self.has_work() {
            self.wake_a_writer();
        }
    }

    /// Say that everything below is settled, which it is, as soon as possible.
    pub(super) fn say_settled(&self, below: u64) {
        self.ring.borrow_mut().want(below);
        self.settled();
    }

    fn wake_a_writer(&self) {
        if !self.is_one_woken.get()
            && let Some(writer) = self.idle_writers.borrow_mut().pop()
        {
            self.is_one_woken.set(true);
            writer.wake();
        }
    }

    fn has_work(&self) -> bool {
        let wants_notice = || self.ring.borrow().wants_notice(self.common.settled_below.get());
        !self.queue.borrow().is_empty() || wants_notice()
    }

    /// Whether enough of the batches before the next one are whole. Behind one that failed nothing
    /// waits: its device goes.
    fn may_begin(&self) -> bool {
        self.fault.get().is_some() || self.ring.borrow().is_next_due()
    }

    async fn write_batches(self: Rc<Self>, before: Option<Rc<LogRing>>) {
        if let Some(before) = before {
            before.has_ended().await;
        }
        let mut items = Vec::new();
        while self.work().await {
            let header = self.common.pool.get(HEADER_BYTES).await;
            // Another writer may have taken all there was while this one waited for the buffer.
            items = match self.fill(header, items) {
                Some(batch) => self.store(batch).await,
                None => Vec::new(),
            };
            self.let_go_if_done();
        }
        self.writers.set(self.writers.get() - 1);
        self.ended.notify_all();
    }

    /// Wait until nothing of a closed log ring is under way.
    async fn has_ended(&self) {
        while self.writers.get() > 0 {
            self.ended.changed().await;
        }
    }

    /// Wait for something to write. False: there is nothing and never will be.
    async fn work(&self) -> bool {
        poll_fn(|context| {
            self.is_one_woken.set(false);
            if self.is_closed.get() && self.queue.borrow().is_empty() {
                return Poll::Ready(false);
            }
            if self.has_work() && self.may_begin() {
                return Poll::Ready(true);
            }
            self.idle_writers.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Encode as many records as fit into one batch; nothing if there is nothing to write.
    fn fill(&self, mut header: BufMut, mut items: Vec<Item>) -> Option<Batch> {
        let settled_below = self.common.settled_below.get();
        let mut queue = self.queue.borrow_mut();
        let mut ring = self.ring.borrow_mut();
        let first = queue.front().map(|item| Item::bytes_alone(item.blocks));
        if first.is_none() && !ring.wants_notice(settled_below) {
            return None;
        }
        let first = first.unwrap_or(to_u64(HEADER_BYTES));
        let bytes_max = to_usize(ring.room_for(first)).min(to_usize(first).max(BATCH_BYTES));
        let number = ring.next_number();
        let mut encoder = HeaderEncoder::new(&mut header, bytes_max, self.identity());
        let (mut newest_update, mut promised, mut pieces) = (0, 0, 0);
        while let Some(item) = queue.front() {
            let body = item.body();
            let (holders, parts) = (body.holders.len(), item.parts().count());
            // The first one goes in any case, in more than one call if need be.
            let is_too_many = pieces > 0 && pieces + parts >= PARTS_MAX;
            if is_too_many || !encoder.fits(body.kind, (holders, parts), item.blocks) {
                break;
            }
            encode(&mut encoder, item);
            newest_update = newest_update.max(body.sequence);
            promised += Item::bytes_alone(item.blocks);
            pieces += parts;
            items.extend(queue.pop_front());
        }
        let log_ring = u16::try_from(self.common.worker).expect("workers are few");
        let payload = || items.iter().flat_map(|item| item.parts());
        let bytes = encoder.finish(
            log_ring,
            number,
            settled_below,
            payload().map(|piece| &piece.bytes[..]),
        );
        let place = ring.place(to_u64(bytes), promised, newest_update, settled_below);
        if place.gives_back {
            // Nothing is settled by this, so nobody else would tell who waits for it.
            self.common.changed.notify_all();
        }
        let counts = self.common.counts();
        counts.log_batches.add(1);
        counts.log_bytes.add(to_u64(bytes));
        let offset = self.common.shape.log_ring_offset(self.common.worker) + place.offset;
        Some(Batch { number: place.number, offset, header: header.freeze(), items })
    }

    fn identity(&self) -> LogIdentity {
        let array = &self.common.array;
        LogIdentity {
            array_tag: ashlar_ondisk::bitmap::array_tag(uuid::Uuid::from_bytes(
                array.identity.uuid,
            )),
            log_tag: self.log_tag,
            incarnation: array.incarnation(),
        }
    }

    /// What becomes of a batch. Behind one that failed none is written: the device goes, and until
    /// that is recorded its log must not look as if it had a hole.
    async fn written(&self, batch: &Batch) -> Result<(), Fault> {
        if let Some(fault) = self.fault.get() {
            return Err(fault);
        }
        let pending = self.start(batch).ok_or(Fault::GONE)?;
        match pending.await.map_or(Err(Fault::GONE), |outcome| outcome.result) {
            Err(fault) if fault.kind == FaultKind::NoSpace => {
                Box::pin(self.written_when_there_is_room(batch, fault)).await
            }
            result => result,
        }
    }

    async fn written_when_there_is_room(&self, batch: &Batch, fault: Fault) -> Result<(), Fault> {
        let mut patience = Patience::new(&self.common.array, &self.handle, self.member);
        let is_gone = || self.is_closed.get() || self.fault.get().is_some();
        let mut result = Err(fault);
        while let Err(fault) = result
            && patience.may_try_again(fault, is_gone).await
        {
            if sings(Canary::NoRoomForgotten) {
                return Ok(());
            }
            let pending = self.start(batch).ok_or(Fault::GONE)?;
            result = pending.await.map_or(Err(Fault::GONE), |outcome| outcome.result);
        }
        result
    }

    /// Start to write a batch; `None` if the log ring has let its device go.
    fn start(&self, batch: &Batch) -> Option<Pending<Outcome>> {
        let device = self.device.borrow().clone()?;
        let payload = batch.items.iter().flat_map(|item| item.parts());
        let parts = std::iter::once(&batch.header).chain(payload.map(|piece| &piece.bytes));
        let parts: Vec<Buf> = parts.cloned().collect();
        let is_durable = device.facts().has_volatile_cache && !sings(Canary::RecordNotForced);
        let command = Command::WriteParts { parts, is_durable };
        let (completion, pending) = self.common.outcomes.pair();
        device.submit(batch.offset, command, completion);
        self.common.watch.note();
        Some(pending)
    }

    /// Write the batch and tell its records; the list comes back empty.
    async fn store(&self, batch: Batch) -> Vec<Item> {
        let result = self.written(&batch).await;
        let Batch { number, header, mut items, .. } = batch;
        drop(header);
        let is_news = match result {
            Ok(_) => self.ring.borrow_mut().set_whole(number),
            Err(fault) => {
                self.fault.set(Some(fault));
                true
            }
        };
        if is_news {
            // Waiters for space look again: it came back, or there will be no more on this device.
            self.common.changed.notify_all();
        }
        items.iter_mut().for_each(|item| item.result = result);
        items.clear();
        items
    }
}

fn encode(encoder: &mut HeaderEncoder<'_>, item: &Item) {
    let body = item.body();
    let parts: SmallVec<[Part; 16]> = item.parts().map(|piece| piece.part).collect();
    let record = NewRecord {
        sequence: body.sequence,
        stripe: body.stripe.number(),
        kind: body.kind,
        rows: body.rows,
        holders: &body.holders,
        parts: &parts,
    };
    encoder.push(&record);
}
