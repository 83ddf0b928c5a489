//! The sending half of a connection: one task puts replies that are ready into as few sends as it
//! can.
//!
//! What must stay true: the parts of one reply part (head, payload) are neighbours on the wire. A
//! reply's slot and buffer are given back only after it was sent or the connection is lost. After
//! the first failed send nothing more is sent.

use crate::counters::{NbdCounters, add};
use crate::reply::{REPLY_HEAD_BYTES_MAX, ReplyBody, ReplyHead};
use crate::socket::Socket;
use crate::wire::Dialect;
use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::Handle;
use ashlar_ring::local::{Permit, Queue, Semaphore};
use ashlar_session::{Sends, Stall, Ticket};
use ashlar_units::to_u64;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// Replies in one send.
const BATCH_MAX: usize = 64;

/// One reply part that is ready to leave.
pub struct Outgoing {
    pub head: ReplyHead,
    pub payload: Option<Buf>,
    /// Released when the reply left.
    pub ticket: Ticket,
}

pub struct Outbound {
    handle: Handle,
    socket: Rc<Socket>,
    dialect: Dialect,
    counters: Arc<NbdCounters>,
    /// The holder of the permit may send; a long read in the simple dialect holds it for all its
    /// data.
    wire: Semaphore,
    /// `None` ends the task.
    ready: Queue<Option<Outgoing>>,
    stall: Stall,
    is_broken: Cell<bool>,
    is_too_slow: Cell<bool>,
}

impl Outbound {
    pub fn new(
        handle: Handle,
        socket: Rc<Socket>,
        dialect: Dialect,
        counters: Arc<NbdCounters>,
    ) -> Rc<Outbound> {
        Rc::new(Outbound {
            handle,
            socket,
            dialect,
            counters,
            wire: Semaphore::new(1),
            ready: Queue::new(),
            stall: Stall::default(),
            is_broken: Cell::new(false),
            is_too_slow: Cell::new(false),
        })
    }

    /// Queue a reply part.
    pub fn push(&self, outgoing: Outgoing) {
        if matches!(outgoing.head.body, ReplyBody::Error { .. }) {
            add(&self.counters.errors, 1);
        }
        self.ready.push(Some(outgoing));
    }

    /// End the sending task once it has sent what is queued.
    pub fn stop(&self) {
        self.ready.push(None);
    }

    /// Give the connection up: both directions end at once.
    pub fn break_off(&self) {
        self.is_broken.set(true);
        self.socket.break_off();
    }

    /// Whether the connection is lost.
    pub fn is_broken(&self) -> bool {
        self.is_broken.get()
    }

    /// Whether the connection was given up because the client did not read.
    pub fn is_too_slow(&self) -> bool {
        self.is_too_slow.get()
    }

    /// Count data that a client asked for.
    pub fn count_read(&self, bytes: u64) {
        add(&self.counters.read_bytes, bytes);
    }

    /// The right to send, for a reply whose pieces must be neighbours.
    pub async fn hold_wire(&self) -> Permit {
        self.wire.acquire().await
    }

    /// Send while holding the wire; the parts come back unless the connection is lost.
    pub async fn send(&self, parts: Vec<Buf>) -> Vec<Buf> {
        if self.is_broken.get() {
            return parts;
        }
        self.stall.begin(self.handle.turn_now());
        let (result, parts) = self.socket.send_all(parts).await;
        self.stall.end();
        if result.is_err() {
            self.break_off();
        }
        parts
    }

    /// The sending task. Buffers are made once and reused.
    pub async fn run(self: Rc<Self>) {
        let mut heads = BufMut::zeroed(BATCH_MAX * REPLY_HEAD_BYTES_MAX);
        let mut parts = Vec::with_capacity(2 * BATCH_MAX);
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while self.collect(&mut batch).await {
            let wire = self.hold_wire().await;
            let all_heads = self.lay_out(heads, &batch, &mut parts);
            parts = self.send(parts).await;
            drop(wire);
            parts.clear();
            batch.drain(..).for_each(|outgoing: Outgoing| drop(outgoing.ticket));
            // Only a send that the ring still holds on to keeps the heads; then others take their
            // place.
            heads = all_heads
                .try_into_mut()
                .unwrap_or_else(|_| BufMut::zeroed(BATCH_MAX * REPLY_HEAD_BYTES_MAX));
        }
    }

    /// Wait for a reply and take what else is ready. `false` when there is nothing left to send for
    /// ever.
    async fn collect(&self, batch: &mut Vec<Outgoing>) -> bool {
        let Some(first) = self.ready.pop().await else { return false };
        batch.push(first);
        while batch.len() < BATCH_MAX {
            match self.ready.try_pop() {
                Some(Some(outgoing)) => batch.push(outgoing),
                Some(None) => {
                    self.stop();
                    break;
                }
                None => break,
            }
        }
        true
    }

    /// Encode the heads side by side and list what is to be sent: runs of heads, and payloads
    /// between them.
    fn lay_out(&self, mut heads: BufMut, batch: &[Outgoing], parts: &mut Vec<Buf>) -> Buf {
        let mut ends = [0; BATCH_MAX];
        let mut end = 0;
        for (outgoing, head_end) in batch.iter().zip(&mut ends) {
            end += outgoing.head.encode(self.dialect, &mut heads[end..]);
            *head_end = end;
        }
        let heads = heads.freeze();
        let mut start = 0;
        for (outgoing, &head_end) in batch.iter().zip(&ends) {
            let Some(payload) = &outgoing.payload else { continue };
            parts.push(heads.slice(start..head_end));
            parts.push(payload.clone());
            start = head_end;
            if matches!(outgoing.head.body, ReplyBody::Data { .. }) {
                self.count_read(to_u64(payload.len()));
            }
        }
        if start < end {
            parts.push(heads.slice(start..end));
        }
        heads
    }
}

impl Sends for Outbound {
    fn stall(&self) -> &Stall {
        &self.stall
    }

    fn give_up(&self) {
        self.is_too_slow.set(true);
        self.break_off();
    }
}
