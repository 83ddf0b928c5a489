//! When a command of an I/O queue may begin: it needs a slot and room for its bytes. If its data
//! must be requested, it also needs a buffer and room among the awaited data.
//!
//! What must stay true: commands begin in order of arrival. Nothing that waits here blocks the
//! receive loop. Requested data that has not come is bounded.

use crate::io::Arriving;
use crate::outbound::Outgoing;
use crate::slot::{Job, SlotShared};
use ashlar_iobuf::BufMut;
use ashlar_nvme_protocol::command::IoCommand;
use ashlar_nvme_protocol::pdu::{Body, Fatal, H2cData};
use ashlar_nvme_protocol::transfer::{Piece, Transfers};
use ashlar_ring::Handle;
use ashlar_ring::local::Signal;
use ashlar_session::Ticket;
use ashlar_units::{Nanos, to_u64, to_usize};
use ashlar_volume::{Transfer, Volume};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// A command that may not have begun.
pub struct Pending<V: Volume> {
    pub job: Job<V>,
    /// Data to ask for, in bytes.
    pub asks: u32,
    /// Bytes that it holds until it is answered.
    pub bytes: u32,
}

/// Commands that wait to begin, and those whose data was asked for.
pub struct Line<V: Volume> {
    waiting: RefCell<VecDeque<Pending<V>>>,
    transfers: RefCell<Transfers>,
    arriving: RefCell<Vec<Option<Arriving<V>>>>,
    awaited_bytes: Cell<u64>,
    awaited_bytes_max: u64,
    /// Something came into the line, or there is more room.
    changed: Signal,
    /// The task is at work on the first of the line.
    is_busy: Cell<bool>,
}

/// The output of `work` if it need not wait.
pub fn at_once<T>(work: impl Future<Output = T>) -> Option<T> {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

impl<V: Volume> Line<V> {
    pub fn new(transfers: Transfers, awaited_bytes_max: u64) -> Line<V> {
        Line {
            waiting: RefCell::default(),
            transfers: RefCell::new(transfers),
            arriving: RefCell::default(),
            awaited_bytes: Cell::new(0),
            awaited_bytes_max,
            changed: Signal::new(),
            is_busy: Cell::new(false),
        }
    }

    /// A command begins if nothing waits and it need not; else it waits in line.
    pub fn enter(&self, pending: Pending<V>, shared: &SlotShared<V>, now: Nanos) {
        let is_first = !self.is_busy.get() && self.waiting.borrow().is_empty();
        let left = if is_first { self.try_begin(pending, shared, now) } else { Some(pending) };
        if let Some(pending) = left {
            self.waiting.borrow_mut().push_back(pending);
            self.changed.notify_all();
        }
    }

    fn try_begin(
        &self,
        mut pending: Pending<V>,
        shared: &SlotShared<V>,
        now: Nanos,
    ) -> Option<Pending<V>> {
        if !self.has_room(pending.asks) {
            return Some(pending);
        }
        let Some(ticket) = at_once(shared.credit.ticket(u64::from(pending.bytes))) else {
            return Some(pending);
        };
        if pending.asks == 0 {
            self.hand_over(pending.job, ticket, shared);
            return None;
        }
        let Some(buffer) = at_once(buffer_for(&pending)) else {
            pending.job.ticket = None;
            return Some(pending);
        };
        pending.job.ticket = Some(ticket);
        self.ask(pending, buffer, shared, now);
        None
    }

    fn has_room(&self, asks: u32) -> bool {
        let awaited = self.awaited_bytes.get();
        asks == 0 || awaited == 0 || awaited + u64::from(asks) <= self.awaited_bytes_max
    }

    fn hand_over(&self, mut job: Job<V>, ticket: Ticket, shared: &SlotShared<V>) {
        job.ticket = Some(ticket);
        shared.jobs.push(Some(job));
    }

    /// Ask for the data of a command that has its ticket.
    fn ask(&self, pending: Pending<V>, data: BufMut, shared: &SlotShared<V>, now: Nanos) {
        let mut job = pending.job;
        job.has_turn = true;
        let r2t = self.transfers.borrow_mut().open(job.id, pending.asks);
        let r2t = r2t.expect("as many transfers as slots, and each holds one");
        let at = usize::from(r2t.transfer);
        let mut arriving = self.arriving.borrow_mut();
        if arriving.len() <= at {
            arriving.resize_with(at + 1, || None);
        }
        arriving[at] = Some(Arriving { job, data, since: now, is_bad: false });
        self.awaited_bytes.set(self.awaited_bytes.get() + u64::from(pending.asks));
        shared.out.push(Outgoing { body: Some(Body::R2t(r2t)), ..Outgoing::default() });
    }

    /// The task: the first of the line, then the next.
    pub async fn run(&self, handle: &Handle, shared: &SlotShared<V>) -> Infallible {
        loop {
            let Some(mut pending) = self.waiting.borrow_mut().pop_front() else {
                self.is_busy.set(false);
                self.changed.changed().await;
                continue;
            };
            self.is_busy.set(true);
            while !self.has_room(pending.asks) {
                self.changed.changed().await;
            }
            let ticket = shared.credit.ticket(u64::from(pending.bytes)).await;
            if pending.asks == 0 {
                self.hand_over(pending.job, ticket, shared);
                continue;
            }
            let buffer = buffer_for(&pending).await;
            pending.job.ticket = Some(ticket);
            self.ask(pending, buffer, shared, handle.turn_now());
        }
    }

    /// Judge data, and take the command that it is of.
    pub fn accept(&self, header: &H2cData) -> Result<(Piece, Arriving<V>), Fatal> {
        let piece = self.transfers.borrow_mut().accept(header)?;
        let arriving = self.arriving.borrow_mut()[usize::from(piece.transfer)].take();
        Ok((piece, arriving.expect("an open transfer has its command")))
    }

    /// More of its data is to come.
    pub fn put_back(&self, transfer: u16, arriving: Arriving<V>) {
        self.arriving.borrow_mut()[usize::from(transfer)] = Some(arriving);
    }

    /// All data of a command, this many bytes, is there.
    pub fn arrived(&self, bytes: usize) {
        self.awaited_bytes.set(self.awaited_bytes.get() - to_u64(bytes));
        self.changed.notify_all();
    }

    /// When the oldest data that has not come was asked for.
    pub fn oldest(&self) -> Option<Nanos> {
        self.arriving.borrow().iter().flatten().map(|it| it.since).min()
    }

    /// Take a command out of the line, if it waits there.
    pub fn remove(&self, id: u16) -> Option<Pending<V>> {
        let mut waiting = self.waiting.borrow_mut();
        let at = waiting.iter().position(|pending| pending.job.id == id)?;
        waiting.remove(at)
    }

    /// Give everything up that has not begun.
    pub fn clear(&self) {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        let arriving = std::mem::take(&mut *self.arriving.borrow_mut());
        drop((waiting, arriving));
    }
}

/// A buffer for data that is asked for. A compare reads into another buffer while it holds this
/// one, so this one is not of the pool: two of the pool could wait for each other. A write has its
/// turn then.
async fn buffer_for<V: Volume>(pending: &Pending<V>) -> BufMut {
    let bytes = to_usize(u64::from(pending.asks));
    match pending.job.command {
        IoCommand::Write { .. } => {
            let volume = &pending.job.namespace.volume;
            volume.turn(Transfer::Write, to_u64(bytes)).await;
            volume.buffer(bytes).await
        }
        _ => BufMut::zeroed(bytes),
    }
}
