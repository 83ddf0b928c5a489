//! The loop from /dev/fuse and back: how one request of the kernel is carried out.
//!
//! What must stay true: every request that wants a reply gets exactly one. The payload of a write
//! goes from the kernel into the buffer that the volume stores, without a copy. The slots hold all
//! memory, made at start. At most one slot of a worker waits in the device, because each request
//! would wake all of them. Not here: the attributes of the file (`attributes`), and how bytes
//! reach the volume (`io`).

use crate::answer::{Answer, PAYLOAD_BYTES_MAX, SMALL_BYTES_MAX, init_reply};
use crate::attributes;
use crate::counters::{FuseCounters, add};
use crate::io::{BusyBlocks, FileIo};
use crate::leave::Leave;
use crate::queues::{self, Queues};
use crate::shown::Shown;
use crate::wire::{
    FallocateIn, HEAD_BYTES, InMessage, LseekIn, OUT_HEADER_BYTES, OutHeader, ReadIn, WriteIn,
    WriteOut, opcode,
};
use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::local::Semaphore;
use ashlar_ring::{Handle, Ring};
use ashlar_session::Slots;
use ashlar_units::Extent;
use ashlar_volume::{Volume, VolumeFacts};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use zerocopy::IntoBytes;

/// Slots of a worker unless told otherwise. Each keeps a payload buffer of 1 MiB.
const SLOTS_DEFAULT: usize = 16;
/// What the kernel gives memory in, at least.
const PAGE_BYTES: usize = 4096;

/// O_DSYNC of open(2) as it arrives from the kernel.
const DATA_SYNC: u32 = 0o10_000;

/// What was agreed with the kernel when the mount was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The kernel sends requests again that a process which is gone has read and not answered.
    pub sends_again: bool,
    /// Requests come over io_uring, and wait until all queues are served.
    pub over_ring: bool,
}

/// What one worker needs to serve a mount. Several workers may serve one mount, each with a
/// descriptor of its own: the kernel hands each request to whichever asks first.
pub struct FuseServer<V: Volume> {
    /// The worker's executor.
    pub handle: Handle,
    /// The worker's ring.
    pub ring: Ring,
    /// One of [`Mount::devices`](crate::Mount::devices), and nobody else's.
    pub device: Arc<OwnedFd>,
    /// The volume to show.
    pub volume: V,
    /// One for the mount, shared by its workers.
    pub busy: Arc<BusyBlocks>,
    /// Shared by all that count together.
    pub counters: Arc<FuseCounters>,
    /// Requests carried out at the same time by this worker; each keeps 1 MiB.
    pub slots: usize,
    /// Set once the kernel has begun; shared by the workers of the mount.
    pub agreed: Arc<OnceLock<Agreed>>,
    /// The queues of this worker, if the kernel is to be asked for requests over io_uring. The
    /// worker's ring has wide entries then, and the queues of all workers of the mount are one for
    /// each of [`possible_cpus`](crate::possible_cpus).
    pub queues: Option<Queues>,
    /// Told when the servers are to end without the mount; shared by the workers of the mount.
    pub leave: Leave,
}

impl<V: Volume + 'static> FuseServer<V> {
    /// A server of one worker with the default number of slots, which shares nothing with others.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new(
        handle: Handle,
        ring: Ring,
        device: Arc<OwnedFd>,
        volume: V,
    ) -> io::Result<FuseServer<V>> {
        Ok(FuseServer {
            handle,
            ring,
            device,
            volume,
            busy: Arc::default(),
            counters: Arc::default(),
            slots: SLOTS_DEFAULT,
            agreed: Arc::default(),
            queues: None,
            leave: Leave::new()?,
        })
    }

    /// Serve until the file was unmounted and closed by its last user, or until told to leave.
    ///
    /// # Errors
    /// What reading the device says, other than its end.
    ///
    /// # Cancellation
    /// Slots that carry out a request finish it; one goes on waiting for the next until the mount
    /// ends.
    pub async fn serve(self) -> io::Result<()> {
        let slots = self.slots;
        let worker = Worker::new(self);
        let classic = Slots::start(&worker.server.handle, slots, || worker.clone().run_slot());
        queues::serve(&worker).await;
        classic.all_ended().await;
        worker.end()
    }
}

/// What the slots of one worker share.
pub struct Worker<V: Volume> {
    pub server: FuseServer<V>,
    shown: Shown<V>,
    /// Whose turn it is to wait in the device.
    turn: Semaphore,
    failure: RefCell<Option<io::Error>>,
    /// What was agreed, until the kernel has the answer.
    agreed: Cell<Option<Agreed>>,
    /// Some slot has ended, and so will the others.
    pub is_over: Cell<bool>,
}

/// The buffers of one slot.
struct Slot {
    head: BufMut,
    payload: BufMut,
    reply: BufMut,
}

impl Slot {
    fn new() -> Slot {
        Slot {
            head: resident(HEAD_BYTES),
            payload: new_payload(),
            reply: BufMut::zeroed(OUT_HEADER_BYTES + SMALL_BYTES_MAX),
        }
    }
}

pub fn new_payload() -> BufMut {
    resident(ashlar_units::to_usize(u64::from(PAYLOAD_BYTES_MAX)))
}

/// Memory that is there before the kernel copies a request into it. While a process is being
/// killed, the kernel gives it no new pages: a request that is copied then would end with EIO
/// instead of waiting for the next daemon (`fuse_copy_fill`, `get_user_pages`).
/// A fork of this process would make the kernel give each page anew. So whoever serves starts its
/// children by `posix_spawn`.
fn resident(bytes: usize) -> BufMut {
    let mut memory = BufMut::zeroed(bytes);
    for page in memory.chunks_mut(PAGE_BYTES) {
        *std::hint::black_box(&mut page[0]) = 0;
    }
    memory
}

impl<V: Volume + 'static> Worker<V> {
    pub fn new(server: FuseServer<V>) -> Rc<Worker<V>> {
        let (shown, turn) = (Shown::new(server.volume.clone()), Semaphore::new(1));
        Rc::new(Worker {
            server,
            shown,
            turn,
            failure: RefCell::new(None),
            agreed: Cell::new(None),
            is_over: Cell::new(false),
        })
    }

    /// What went wrong first.
    pub fn end(&self) -> io::Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Note how a slot ended.
    pub fn note_end(&self, error: io::Error) {
        self.is_over.set(true);
        const ENDS: [Errno; 4] =
            [Errno::NODEV, Errno::CONNABORTED, Errno::NOTCONN, Errno::CANCELED];
        // The kernel has ended the connection: unmounted, or aborted by somebody.
        let is_gone = Errno::from_io_error(&error).is_some_and(|errno| ENDS.contains(&errno));
        if !is_gone && error.kind() != io::ErrorKind::Interrupted {
            self.failure.borrow_mut().get_or_insert(error);
        }
    }

    async fn run_slot(self: Rc<Self>) {
        let mut slot = Some(Slot::new());
        while let Some(idle) = slot.take() {
            slot = match self.receive(idle).await {
                Ok((idle, None)) => Some(idle),
                Ok((busy, Some(received))) => Some(self.carry_out(busy, received).await),
                Err(error) => {
                    self.note_end(error);
                    None
                }
            };
        }
    }

    /// Wait for a request. `None` if there was one, but it is gone again.
    ///
    /// # Errors
    /// `Interrupted` if it was told to leave: nothing was read then.
    async fn receive(&self, slot: Slot) -> io::Result<(Slot, Option<usize>)> {
        let Slot { head, payload, reply } = slot;
        let _turn = self.turn.acquire().await;
        if self.server.leave.is_told() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let device = &self.server.device;
        let (result, [head, payload]) = self.server.ring.read_parts(device, [head, payload]).await;
        let slot = Slot { head, payload, reply };
        match result {
            Ok(received) => Ok((slot, Some(received))),
            Err(error) => match Errno::from_io_error(&error) {
                // The request was interrupted before it was read.
                Some(Errno::NOENT | Errno::INTR) => Ok((slot, None)),
                Some(Errno::AGAIN) => {
                    self.readable_or_told().await?;
                    Ok((slot, None))
                }
                _ => Err(error),
            },
        }
    }

    /// Wait until there is a request, or until it is time to leave.
    async fn readable_or_told(&self) -> io::Result<()> {
        let (ring, leave) = (&self.server.ring, &self.server.leave);
        let mut request = pin!(ring.readable(&self.server.device));
        let mut told = pin!(ring.readable(leave.event()));
        poll_fn(|context| match request.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending => told.as_mut().poll(context),
        })
        .await
    }

    /// Carry out one request and answer it.
    async fn carry_out(&self, mut slot: Slot, received: usize) -> Slot {
        let Some(message) = InMessage::decode(&slot.head, &slot.payload, received) else {
            return slot;
        };
        let header = message.header;
        let answer = if header.opcode == opcode::WRITE {
            let body = message.body::<WriteIn>();
            let payload_bytes = message.payload_bytes();
            let (answer, payload) =
                self.write(header.node, body, slot.payload, payload_bytes).await;
            slot.payload = payload;
            answer
        } else {
            self.answer(&message).await
        };
        slot.reply = self.reply(slot.reply, header.unique, answer).await;
        // The kernel knows of it too by now.
        if let Some(agreed) = self.agreed.take() {
            // There is one such request in the life of a mount.
            let _first = self.server.agreed.set(agreed);
        }
        slot
    }

    /// Every request other than WRITE.
    pub async fn answer(&self, message: &InMessage<'_>) -> Result<Answer, Errno> {
        let answer = self.answer_uncounted(message).await;
        if answer.is_err() {
            self.count_error(message.header.opcode);
        }
        answer
    }

    async fn answer_uncounted(&self, message: &InMessage<'_>) -> Result<Answer, Errno> {
        let node = message.header.node;
        match message.header.opcode {
            opcode::READ => self.read(node, message).await,
            opcode::FSYNC => {
                add(&self.server.counters.flushes, 1);
                let facts = self.facts(node)?;
                self.io(&facts).flush().await?;
                Ok(Answer::done())
            }
            opcode::FALLOCATE => self.fallocate(node, message).await,
            opcode::LSEEK => self.lseek(node, message).await,
            opcode::INIT => {
                let (answer, agreed) = init_reply(message, self.server.queues.is_some())?;
                self.agreed.set(Some(agreed));
                Ok(answer)
            }
            _ => {
                add(&self.server.counters.others, 1);
                attributes::answer(&self.shown, message)
            }
        }
    }

    async fn read(&self, node: u64, message: &InMessage<'_>) -> Result<Answer, Errno> {
        add(&self.server.counters.reads, 1);
        let body: ReadIn = message.body().ok_or(Errno::INVAL)?;
        let bytes = body.bytes.min(PAYLOAD_BYTES_MAX);
        let facts = self.facts_to(node, body.offset.saturating_add(bytes.into()))?;
        let data = self.io(&facts).read(Extent::new(body.offset, bytes.into())).await?;
        add(&self.server.counters.read_bytes, ashlar_units::to_u64(data.len()));
        Ok(Answer::Data(data))
    }

    /// The payload is handed on as it was received, and taken back when the volume is done with it.
    pub async fn write(
        &self,
        node: u64,
        body: Option<WriteIn>,
        payload: BufMut,
        payload_bytes: usize,
    ) -> (Result<Answer, Errno>, BufMut) {
        add(&self.server.counters.writes, 1);
        let payload = payload.freeze();
        let answer = match body {
            Some(body) => self.store(node, &body, payload.slice(0..payload_bytes)).await,
            None => Err(Errno::INVAL),
        };
        if answer.is_err() {
            self.count_error(opcode::WRITE);
        }
        let payload = payload.try_into_mut().unwrap_or_else(|_| {
            add(&self.server.counters.buffers_replaced, 1);
            new_payload()
        });
        (answer, payload)
    }

    async fn store(&self, node: u64, body: &WriteIn, data: Buf) -> Result<Answer, Errno> {
        if u64::from(body.bytes) != ashlar_units::to_u64(data.len()) {
            return Err(Errno::INVAL);
        }
        let fua = body.flags & DATA_SYNC != 0;
        let facts = self.facts_to(node, body.offset.saturating_add(body.bytes.into()))?;
        let written = self.io(&facts).write(body.offset, &data, fua).await?;
        add(&self.server.counters.written_bytes, written);
        let bytes = u32::try_from(written).expect("no more than was asked for");
        Ok(Answer::of(&WriteOut { bytes, padding: 0 }))
    }

    async fn fallocate(&self, node: u64, message: &InMessage<'_>) -> Result<Answer, Errno> {
        const KEEP_SIZE: u32 = 0x01;
        const PUNCH_HOLE: u32 = 0x02;
        const ZERO_RANGE: u32 = 0x10;
        add(&self.server.counters.fallocates, 1);
        let body: FallocateIn = message.body().ok_or(Errno::INVAL)?;
        let extent = Extent::new(body.offset, body.bytes);
        let end = extent.checked_end().ok_or(Errno::INVAL)?;
        let facts = self.facts_to(node, end)?;
        match body.mode & !KEEP_SIZE {
            PUNCH_HOLE => self.io(&facts).write_zeroes(extent, true).await?,
            ZERO_RANGE => self.io(&facts).write_zeroes(extent, false).await?,
            // Space for the whole volume is there already.
            0 if end <= facts.size_bytes => {}
            0 => return Err(Errno::NOSPC),
            _ => return Err(Errno::OPNOTSUPP),
        }
        Ok(Answer::done())
    }

    async fn lseek(&self, node: u64, message: &InMessage<'_>) -> Result<Answer, Errno> {
        const SEEK_DATA: u32 = 3;
        const SEEK_HOLE: u32 = 4;
        add(&self.server.counters.others, 1);
        let body: LseekIn = message.body().ok_or(Errno::INVAL)?;
        let to_written = match body.whence {
            SEEK_DATA => true,
            SEEK_HOLE => false,
            _ => return Err(Errno::INVAL),
        };
        let facts = self.facts_to(node, u64::MAX)?;
        let at = self.io(&facts).seek(body.offset, to_written).await?;
        Ok(Answer::of(&at))
    }

    fn facts(&self, node: u64) -> Result<Rc<VolumeFacts>, Errno> {
        self.shown.check(node)?;
        Ok(self.shown.facts())
    }

    /// The same for a request that ends there: what is behind the end as of the last look may be
    /// in the volume by now.
    fn facts_to(&self, node: u64, end: u64) -> Result<Rc<VolumeFacts>, Errno> {
        let facts = self.facts(node)?;
        Ok(if end > facts.size_bytes { self.shown.refreshed() } else { facts })
    }

    fn io<'a>(&'a self, facts: &'a VolumeFacts) -> FileIo<'a, V> {
        FileIo {
            handle: &self.server.handle,
            busy: &self.server.busy,
            volume: &self.shown.volume,
            facts,
        }
    }

    fn count_error(&self, code: u32) {
        if matches!(code, opcode::READ | opcode::WRITE | opcode::FSYNC | opcode::FALLOCATE) {
            add(&self.server.counters.errors, 1);
        }
    }

    /// Send the answer; the reply buffer comes back.
    async fn reply(&self, mut head: BufMut, unique: u64, answer: Result<Answer, Errno>) -> BufMut {
        let (error, small, data) = match answer {
            Ok(Answer::None) => return head,
            Ok(Answer::Small(bytes, len)) => {
                head[OUT_HEADER_BYTES..][..len].copy_from_slice(&bytes[..len]);
                (0, len, None)
            }
            Ok(Answer::Data(data)) => (0, 0, Some(data)),
            Err(errno) => (-errno.raw_os_error(), 0, None),
        };
        let head_bytes = OUT_HEADER_BYTES + small;
        let all = head_bytes + data.as_ref().map_or(0, |data| data.len());
        let bytes = u32::try_from(all).expect("at most 1 MiB and a header");
        let header = OutHeader { bytes, error, unique };
        head[..OUT_HEADER_BYTES].copy_from_slice(header.as_bytes());
        let whole = head.freeze();
        let data = data.unwrap_or_else(|| whole.slice(0..0));
        let parts = [whole.slice(0..head_bytes), data];
        // ENOENT: the request was interrupted and nobody waits any more. Anything else the next
        // read tells.
        let (_sent, parts) = self.server.ring.write_parts(&self.server.device, parts).await;
        drop(parts);
        whole.try_into_mut().unwrap_or_else(|_| BufMut::zeroed(OUT_HEADER_BYTES + SMALL_BYTES_MAX))
    }
}
