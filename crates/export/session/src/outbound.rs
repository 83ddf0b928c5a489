//! The sending half of a connection: one task puts answers that are ready into as few sends as it
//! can.
//!
//! What must stay true: the parts of one answer (heads, data) are neighbours on the wire. What an
//! answer holds (its slot, its buffer) is given back only after it was sent or the connection is
//! lost. After the first failed send nothing more is sent. A client that does not read holds a
//! session no longer than its limits say, and a send costs no timer. Not here: what an answer looks
//! like ([`Encoder`]).

use crate::stream::Stream;
use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::Handle;
use ashlar_ring::local::{Permit, Queue, Semaphore, Signal};
use ashlar_units::Nanos;
use std::cell::Cell;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Answers in one send.
const BATCH_MAX: usize = 64;

/// How a protocol puts its answers into bytes.
pub trait Encoder: 'static {
    /// What is ready to leave, and what it holds: dropped when it left.
    type Answer: 'static;

    /// Most bytes of one answer that are not data.
    const HEAD_BYTES_MAX: usize;

    /// Put an answer behind those that leave with the same send.
    fn encode(&self, answer: &Self::Answer, batch: &mut Batch);
}

/// What leaves with one send: heads side by side, and data between runs of them.
pub struct Batch {
    heads: BufMut,
    heads_end: usize,
    /// Data, and the end of the heads that leave before it.
    data: Vec<(usize, Buf)>,
}

impl Batch {
    /// Append bytes by a copy.
    pub fn head(&mut self, bytes: &[u8]) {
        self.head_with(|room| {
            room[..bytes.len()].copy_from_slice(bytes);
            bytes.len()
        });
    }

    /// Append what `encode` writes into the room that it gets; it says how many bytes that are.
    pub fn head_with(&mut self, encode: impl FnOnce(&mut [u8]) -> usize) {
        self.heads_end += encode(&mut self.heads[self.heads_end..]);
    }

    /// Append data, without a copy.
    pub fn data(&mut self, data: Buf) {
        self.data.push((self.heads_end, data));
    }

    /// List what is to be sent. Gives back the room for heads, and that for data.
    fn lay_out(mut self, parts: &mut Vec<Buf>) -> (Buf, Vec<(usize, Buf)>) {
        let heads = self.heads.freeze();
        let mut start = 0;
        for (end, data) in self.data.drain(..) {
            if start < end {
                parts.push(heads.slice(start..end));
            }
            parts.push(data);
            start = end;
        }
        if start < self.heads_end {
            parts.push(heads.slice(start..self.heads_end));
        }
        (heads, self.data)
    }
}

/// Answers on their way to a client.
pub struct Outbound<S, E: Encoder> {
    handle: Handle,
    stream: Rc<S>,
    encoder: E,
    /// The holder of the permit may send.
    wire: Semaphore,
    /// `None` ends the task.
    ready: Queue<Option<E::Answer>>,
    /// Since when a send is under way.
    sends_since: Cell<Option<Nanos>>,
    is_broken: Cell<bool>,
    is_too_slow: Cell<bool>,
    has_ended: Cell<bool>,
    ended: Signal,
}

impl<S: Stream + 'static, E: Encoder> Outbound<S, E> {
    /// Begin to send, and give the connection up when one send takes longer than `send_time`.
    pub fn start(
        handle: &Handle,
        stream: Rc<S>,
        encoder: E,
        send_time: Duration,
    ) -> Rc<Outbound<S, E>> {
        let out = Rc::new(Outbound {
            handle: handle.clone(),
            stream,
            encoder,
            wire: Semaphore::new(1),
            ready: Queue::new(),
            sends_since: Cell::new(None),
            is_broken: Cell::new(false),
            is_too_slow: Cell::new(false),
            has_ended: Cell::new(false),
            ended: Signal::new(),
        });
        handle.spawn(Outbound::watch(Rc::downgrade(&out), handle.clone(), send_time));
        handle.spawn(out.clone().run());
        out
    }

    /// Queue an answer.
    pub fn push(&self, answer: E::Answer) {
        self.ready.push(Some(answer));
    }

    /// End the sending task once it has sent what is queued.
    pub fn stop(&self) {
        self.ready.push(None);
    }

    /// Wait until the sending task has ended.
    pub async fn all_sent(&self) {
        while !self.has_ended.get() {
            self.ended.changed().await;
        }
    }

    /// Give the connection up: both directions end at once.
    pub fn break_off(&self) {
        self.is_broken.set(true);
        self.stream.break_off();
    }

    /// Whether the connection is lost.
    pub fn is_broken(&self) -> bool {
        self.is_broken.get()
    }

    /// Whether the connection was given up because the client did not read.
    pub fn is_too_slow(&self) -> bool {
        self.is_too_slow.get()
    }

    /// How answers become bytes.
    pub fn encoder(&self) -> &E {
        &self.encoder
    }

    /// The right to send, for an answer that leaves with several sends.
    pub async fn hold_wire(&self) -> Permit {
        self.wire.acquire().await
    }

    /// Send while holding the wire; the parts come back unless the connection is lost.
    pub async fn send(&self, parts: Vec<Buf>) -> Vec<Buf> {
        if self.is_broken.get() {
            return parts;
        }
        self.sends_since.set(Some(self.handle.turn_now()));
        let (result, parts) = self.stream.send_all(parts).await;
        self.sends_since.set(None);
        if result.is_err() {
            self.break_off();
        }
        parts
    }

    /// The sending task. Buffers are made once and reused.
    async fn run(self: Rc<Self>) {
        let new_heads = || BufMut::zeroed(BATCH_MAX * E::HEAD_BYTES_MAX);
        let (mut heads, mut data) = (new_heads(), Vec::with_capacity(BATCH_MAX));
        let mut parts = Vec::with_capacity(2 * BATCH_MAX);
        let mut answers = Vec::with_capacity(BATCH_MAX);
        while self.collect(&mut answers).await {
            let wire = self.hold_wire().await;
            let mut batch = Batch { heads, heads_end: 0, data };
            answers.iter().for_each(|answer| self.encoder.encode(answer, &mut batch));
            let all_heads;
            (all_heads, data) = batch.lay_out(&mut parts);
            parts = self.send(parts).await;
            drop(wire);
            parts.clear();
            answers.clear();
            // Only a send that the ring still holds on to keeps the heads; then others take their
            // place.
            heads = all_heads.try_into_mut().unwrap_or_else(|_| new_heads());
        }
        self.has_ended.set(true);
        self.ended.notify_all();
    }

    /// Wait for an answer and take what else is ready. `false` when there is nothing left to send
    /// for ever.
    async fn collect(&self, answers: &mut Vec<E::Answer>) -> bool {
        let Some(first) = self.ready.pop().await else { return false };
        answers.push(first);
        while answers.len() < BATCH_MAX {
            match self.ready.try_pop() {
                Some(Some(answer)) => answers.push(answer),
                Some(None) => {
                    self.stop();
                    break;
                }
                None => break,
            }
        }
        true
    }

    /// Give the connection up when one send takes longer than `send_time`. Looks four times in that
    /// time; holds nothing, so that it never keeps a session. Ends with the session.
    async fn watch(out: Weak<Self>, handle: Handle, send_time: Duration) {
        loop {
            handle.sleep(send_time / 4).await;
            let Some(out) = out.upgrade() else { return };
            let since = out.sends_since.get();
            if since.is_some_and(|since| handle.turn_now().since(since) >= send_time) {
                out.is_too_slow.set(true);
                // The send ends with an error, and everything it held goes back.
                return out.break_off();
            }
        }
    }
}
