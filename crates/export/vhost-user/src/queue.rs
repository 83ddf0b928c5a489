//! The requests of one queue, on one worker.
//!
//! What must stay true: a request is taken only when a slot is free to carry it out, and is noted
//! as under way before anything is done about it; it is answered exactly once; a queue that is told
//! to stop takes nothing more, answers what it took, and then says where it stopped. A guest that
//! does what no driver does ends its own device and nothing else. If the volume is stopped,
//! requests stay without an answer, for the next backend, where the frontend keeps what is under
//! way.

use crate::chain::{Chain, Fault};
use crate::counters::{VhostCounters, add};
use crate::in_flight::{LeftBehind, QueueArea};
use crate::request::{HEAD_BYTES, Status, VhostRequest, name};
use crate::spans;
use crate::vring::Vring;
use ashlar_ring::local::{Queue, Signal};
use ashlar_ring::mailbox::{Receiver, Sender, mailbox};
use ashlar_ring::{Handle, Notifier, Ring};
use ashlar_session::{Credit, SessionLimits, Slots, pieces, read};
use ashlar_units::{Extent, to_u64, to_usize};
use ashlar_volume::{
    Command, Reply, Request, Transfer, Volume, VolumeError, VolumeErrorKind, VolumeFacts,
};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

/// One queue, for the worker that is to serve it.
pub struct QueueStart {
    pub(crate) number: u16,
    pub(crate) vring: Vring,
    pub(crate) area: Option<QueueArea>,
    /// Where to begin, if there is no area.
    pub(crate) base: u16,
    pub(crate) kick: Arc<OwnedFd>,
    pub(crate) call: Option<Box<Notifier>>,
    /// Whether answered writes may be volatile until a flush.
    pub(crate) is_volatile: Arc<AtomicBool>,
    pub(crate) counters: Arc<VhostCounters>,
    pub(crate) limits: SessionLimits,
    pub(crate) reporter: Reporter,
}

impl QueueStart {
    /// The number of the queue, from 0 on.
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// What a session says to a queue.
pub(crate) enum Told {
    /// Take nothing more, and end.
    Stop,
    /// This is who hears of answers.
    Call(Option<Box<Notifier>>),
}

/// What a queue says to its session.
pub(crate) struct Report {
    pub(crate) queue: u16,
    pub(crate) news: News,
}

/// See [`Report`].
pub(crate) enum News {
    /// It hears.
    Began(Sender<Told>),
    /// It has ended, and holds nothing any more.
    Ended(End),
}

/// How a queue ended.
#[derive(Clone, Copy)]
pub(crate) struct End {
    /// The first request that it did not take; `None` if it never began.
    pub(crate) next: Option<u16>,
    /// Why it did before anybody told it to.
    pub(crate) cause: Option<Cause>,
}

/// Why a queue cannot go on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause {
    /// Its guest did what no driver does.
    Guest(Fault),
    /// There is no volume any more.
    VolumeStopped,
    /// It never began.
    NotServed,
}

impl From<Fault> for Cause {
    fn from(fault: Fault) -> Cause {
        Cause::Guest(fault)
    }
}

/// Tells a session of a queue: of its end whatever happens.
pub(crate) struct Reporter {
    pub(crate) queue: u16,
    pub(crate) reports: Sender<Report>,
    pub(crate) end: End,
}

impl Reporter {
    /// For a queue that has not begun: nobody serves it unless it does.
    pub(crate) fn new(queue: u16, reports: Sender<Report>) -> Reporter {
        let end = End { next: None, cause: Some(Cause::NotServed) };
        Reporter { queue, reports, end }
    }

    fn began(&self, told: Sender<Told>) {
        self.reports.send(Report { queue: self.queue, news: News::Began(told) });
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.reports.send(Report { queue: self.queue, news: News::Ended(self.end) });
    }
}

/// What one worker needs to serve one queue.
pub struct QueueServer<V> {
    /// The worker's executor.
    pub handle: Handle,
    /// The worker's ring.
    pub ring: Ring,
    /// The volume, for this worker.
    pub volume: V,
    /// From a session.
    pub start: QueueStart,
}

impl<V: Volume> QueueServer<V> {
    /// Serve until the session says stop, or the guest does what no driver does.
    pub async fn serve(self) {
        let QueueServer { handle, ring, volume, start } = self;
        let kick = Arc::clone(&start.kick);
        serve(&handle, volume, start, async || ring.read_count(&kick).await.is_ok()).await;
    }
}

/// Serve a queue. `kicked` waits for the driver; `false` says that it cannot be heard.
pub(crate) async fn serve<V: Volume>(
    handle: &Handle,
    volume: V,
    start: QueueStart,
    kicked: impl AsyncFn() -> bool,
) {
    let QueueStart { vring, area, call, base, mut reporter, limits, .. } = start;
    let (told, mut inbox) = mailbox(handle);
    reporter.began(told);
    let slots = usize::from(vring.entries()).min(limits.slots);
    let served = Rc::new(Served {
        facts: volume.facts(),
        volume,
        under_way: RefCell::new(vec![false; usize::from(vring.entries())]),
        vring,
        area,
        call: RefCell::new(call),
        is_volatile: start.is_volatile,
        counters: start.counters,
        credit: Credit::new(slots, limits.bytes_in_flight_max, None),
        jobs: Queue::new(),
        free: Cell::new(slots),
        used: Cell::new(0),
        cause: Cell::new(None),
        changed: Signal::new(),
    });
    let running = Slots::start(handle, slots, || Rc::clone(&served).run_slot());
    let mut taker = Taker { served: &served, left: LeftBehind::default() };
    let taken = taker.run(base, kicked, &mut inbox).await;
    let next = taker.left.next;
    for _ in 0..slots {
        served.jobs.push(None);
    }
    running.all_ended().await;
    let cause = taken.err().map(Cause::from).or(served.cause.get());
    drop(served);
    reporter.end = End { next: Some(next), cause };
}

/// What the slots of a queue share.
struct Served<V> {
    volume: V,
    facts: VolumeFacts,
    vring: Vring,
    area: Option<QueueArea>,
    call: RefCell<Option<Box<Notifier>>>,
    is_volatile: Arc<AtomicBool>,
    counters: Arc<VhostCounters>,
    credit: Credit,
    /// Heads of requests; `None` ends a slot.
    jobs: Queue<Option<u16>>,
    /// Slots without a request.
    free: Cell<usize>,
    /// Answers so far, in 16 bits.
    used: Cell<u16>,
    /// Which heads are under way.
    under_way: RefCell<Vec<bool>>,
    /// Why it cannot go on.
    cause: Cell<Option<Cause>>,
    /// Told when a slot is free after none was, or it cannot go on.
    changed: Signal,
}

/// Takes requests off the ring.
struct Taker<'a, V> {
    served: &'a Served<V>,
    left: LeftBehind,
}

/// Why a taker goes on.
enum Woken {
    Kicked,
    Told(Told),
    Changed,
}

impl<V: Volume> Taker<'_, V> {
    /// Until the session says stop.
    async fn run(
        &mut self,
        base: u16,
        kicked: impl AsyncFn() -> bool,
        inbox: &mut Receiver<Told>,
    ) -> Result<(), Fault> {
        self.begin(base)?;
        loop {
            let woken = match inbox.try_receive() {
                Some(told) => Woken::Told(told),
                None if self.take_what_is_there()? => self.wait(kicked(), inbox).await?,
                // No slot is free: new requests would not be taken anyway.
                None => self.wait(std::future::pending(), inbox).await?,
            };
            match woken {
                Woken::Told(Told::Stop) => return Ok(()),
                Woken::Told(Told::Call(call)) => drop(self.served.call.replace(call)),
                Woken::Kicked | Woken::Changed => {}
            }
            if self.served.cause.get().is_some() {
                return Ok(());
            }
        }
    }

    /// Find out where to begin.
    fn begin(&mut self, base: u16) -> Result<(), Fault> {
        let used = self.served.vring.used_index()?;
        self.served.used.set(used);
        self.left = match &self.served.area {
            Some(area) => area.begin(used)?,
            None => LeftBehind { next: base, ..LeftBehind::default() },
        };
        // The first is at the end.
        self.left.heads.reverse();
        Ok(())
    }

    /// Take requests while slots are free. `true` if there are none left, and the driver says so
    /// when there are some.
    fn take_what_is_there(&mut self) -> Result<bool, Fault> {
        let served = self.served;
        while served.free.get() > 0 {
            if let Some(head) = self.left.heads.pop() {
                add(&served.counters.repeated, 1);
                served.hand_over(head);
                continue;
            }
            if !self.is_one_there()? {
                served.vring.ask_to_hear(self.left.next)?;
                if !self.is_one_there()? {
                    return Ok(true);
                }
            }
            let head = served.vring.head(self.left.next)?;
            if served.under_way.borrow()[usize::from(head)] {
                return Err(Fault("a request that is under way comes again"));
            }
            if let Some(area) = &served.area {
                area.note(head, self.left.counter)?;
            }
            self.left.counter = self.left.counter.wrapping_add(1);
            self.left.next = self.left.next.wrapping_add(1);
            served.hand_over(head);
        }
        Ok(false)
    }

    fn is_one_there(&self) -> Result<bool, Fault> {
        let count = self.served.vring.available_index()?.wrapping_sub(self.left.next);
        match count <= self.served.vring.entries() {
            true => Ok(count > 0),
            false => Err(Fault("more requests than the ring has entries")),
        }
    }

    /// Wait for a kick (`false`: there cannot be any), the session, a free slot or a reason to end.
    async fn wait(
        &self,
        kicked: impl Future<Output = bool>,
        inbox: &mut Receiver<Told>,
    ) -> Result<Woken, Fault> {
        let (mut kicked, mut told) = (pin!(kicked), pin!(inbox.receive()));
        let mut changed = pin!(self.served.changed.changed());
        let woken = poll_fn(|context| {
            if let Poll::Ready(told) = told.as_mut().poll(context) {
                return Poll::Ready(Some(Woken::Told(told)));
            }
            if let Poll::Ready(()) = changed.as_mut().poll(context) {
                return Poll::Ready(Some(Woken::Changed));
            }
            kicked.as_mut().poll(context).map(|is_well| is_well.then_some(Woken::Kicked))
        });
        woken.await.ok_or(Fault("an eventfd that cannot be read"))
    }
}

impl<V: Volume> Served<V> {
    /// Give a request to a slot; one is free.
    fn hand_over(&self, head: u16) {
        self.under_way.borrow_mut()[usize::from(head)] = true;
        self.free.set(self.free.get() - 1);
        self.jobs.push(Some(head));
    }

    async fn run_slot(self: Rc<Self>) {
        let mut chain = Chain::default();
        while let Some(head) = self.jobs.pop().await {
            let ended = self.carry_out(head, &mut chain).await;
            let ended = ended.and_then(|bytes| Ok(self.answer(head, bytes)?));
            if let Err(cause) = ended {
                self.cause.set(Some(self.cause.get().unwrap_or(cause)));
            }
            let free = self.free.replace(self.free.get() + 1);
            // Else the taker waits for a kick, and this is nothing to it.
            if free == 0 || self.cause.get().is_some() {
                self.changed.notify_all();
            }
        }
    }

    /// Carry a request out. How many bytes were written to the guest.
    async fn carry_out(&self, head: u16, chain: &mut Chain) -> Result<u32, Cause> {
        let memory = self.vring.memory();
        chain.gather(memory, self.vring.table(), head)?;
        let parts = spans::take_apart(memory, chain)?;
        // What is not in the volume as of the last look may be in it by now.
        let admitted = parts.asked.admit(&self.facts);
        let (status, bytes) = match admitted.or_else(|_| parts.asked.admit(&self.volume.facts())) {
            Err(status) => (status, 0),
            Ok(request) => {
                self.counters.count(&request);
                self.obey(request, chain).await?
            }
        };
        if status != Status::Done {
            add(&self.counters.errors, 1);
        }
        let stored = memory.store(parts.status_at, &[status.byte()]);
        stored.ok_or(Fault("a status outside the guest's memory"))?;
        Ok(bytes + 1)
    }

    /// The status, and how many bytes of data were written to the guest.
    async fn obey(&self, request: VhostRequest, chain: &Chain) -> Result<(Status, u32), Cause> {
        let is_durable = !self.is_volatile.load(Ordering::Relaxed);
        let status = match request {
            VhostRequest::Read(extent) => return self.read(extent, chain).await,
            VhostRequest::Write(extent) => self.write(extent, chain, is_durable).await?,
            VhostRequest::Flush => self.submit(Command::Flush, Extent::default(), false).await?,
            VhostRequest::Discard(extent) => {
                self.submit(Command::Discard, extent, is_durable).await?
            }
            VhostRequest::WriteZeroes { extent, may_unmap } => {
                self.submit(Command::WriteZeroes { may_unmap }, extent, is_durable).await?
            }
            VhostRequest::Identify => {
                let name = name(&self.facts);
                let room = to_usize(chain.writable_bytes() - 1).min(name.len());
                spans::store(self.vring.memory(), &chain.writable, 0, &name[..room])?;
                return Ok((Status::Done, u32::try_from(room).expect("short")));
            }
        };
        Ok((status, 0))
    }

    async fn read(&self, extent: Extent, chain: &Chain) -> Result<(Status, u32), Cause> {
        for piece in pieces(extent, u64::from(self.facts.request_bytes_max)) {
            self.volume.turn(Transfer::Read, piece.bytes).await;
            let _ticket = self.credit.ticket(piece.bytes).await;
            let buffer = self.volume.buffer(to_usize(piece.bytes)).await;
            let data = match read(&self.volume, buffer, piece).await {
                Ok(data) => data,
                Err(error) => return Ok((self.status_of(error)?, 0)),
            };
            let skip = piece.offset - extent.offset;
            spans::store(self.vring.memory(), &chain.writable, skip, &data)?;
        }
        Ok((Status::Done, u32::try_from(extent.bytes).expect("some MiB")))
    }

    async fn write(
        &self,
        extent: Extent,
        chain: &Chain,
        is_durable: bool,
    ) -> Result<Status, Cause> {
        for piece in pieces(extent, u64::from(self.facts.request_bytes_max)) {
            self.volume.turn(Transfer::Write, piece.bytes).await;
            let _ticket = self.credit.ticket(piece.bytes).await;
            let mut buffer = self.volume.buffer(to_usize(piece.bytes)).await;
            let skip = to_u64(HEAD_BYTES) + (piece.offset - extent.offset);
            spans::load(self.vring.memory(), &chain.readable, skip, &mut buffer)?;
            let status = self.submit(Command::Write(buffer.freeze()), piece, is_durable).await?;
            if status != Status::Done {
                return Ok(status);
            }
        }
        Ok(Status::Done)
    }

    async fn submit(&self, command: Command, extent: Extent, fua: bool) -> Result<Status, Cause> {
        match self.volume.submit(Request { command, extent, fua }).await {
            Ok(Reply::Done | Reply::Data(_)) => Ok(Status::Done),
            Err(error) => self.status_of(error),
        }
    }

    /// What a failed request is answered with. Of a volume that is stopped it is not answered, if
    /// the next backend will get it.
    fn status_of(&self, error: VolumeError) -> Result<Status, Cause> {
        match error.kind {
            VolumeErrorKind::Stopped if self.area.is_some() => Err(Cause::VolumeStopped),
            _ => Ok(Status::Failed),
        }
    }

    fn answer(&self, head: u16, bytes: u32) -> Result<(), Fault> {
        let before = self.used.get();
        let now = before.wrapping_add(1);
        if let Some(area) = &self.area {
            area.begin_answer(head)?;
        }
        self.vring.put_answer(before, head, bytes)?;
        self.vring.show_answers(now)?;
        if let Some(area) = &self.area {
            area.strike_off(head, now)?;
        }
        self.used.set(now);
        self.under_way.borrow_mut()[usize::from(head)] = false;
        if !self.vring.wants_to_hear(before, now)? {
            return Ok(());
        }
        match self.call.borrow_mut().as_mut().map(|call| call.notify()) {
            Some(Err(_)) => Err(Fault("an eventfd that cannot be signalled")),
            Some(Ok(())) | None => Ok(()),
        }
    }
}
