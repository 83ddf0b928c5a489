//! The sending half of a connection: one task puts PDUs that are ready into as few sends as it can.
//!
//! What must stay true: the parts of one PDU (header, data, digest) are neighbours on the wire, and
//! a completion comes behind the data of its command; what a PDU holds (its slot, its buffer) is
//! given back only after it was sent or the connection is lost; after the first failed send nothing
//! more is sent.

use ashlar_iobuf::{Buf, BufMut};
use ashlar_nvme_protocol::Completion;
use ashlar_nvme_protocol::digest::{DIGEST_BYTES, digest};
use ashlar_nvme_protocol::pdu::{Body, C2hData, HEADER_BYTES_MAX, Terms, encode};
use ashlar_ring::local::{Queue, Signal};
use ashlar_ring::{Handle, Ring};
use ashlar_session::{Sends, Stall, Ticket};
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// Answers in one send.
const BATCH_MAX: usize = 64;

/// Header and digest of data, and a completion with its digest behind them.
const HEADS_BYTES_MAX: usize = HEADER_BYTES_MAX + DIGEST_BYTES + 32;

/// What is ready to leave: data, a PDU without data, or both in this order.
#[derive(Default)]
pub struct Outgoing {
    pub data: Option<(C2hData, Buf)>,
    pub body: Option<Body>,
    /// A whole PDU that is encoded already.
    pub raw: Option<Buf>,
    /// Released when it left.
    pub ticket: Option<Ticket>,
}

impl Outgoing {
    /// A completion and nothing else.
    pub fn completion(completion: Completion, ticket: Option<Ticket>) -> Outgoing {
        Outgoing { body: Some(Body::CapsuleResp(completion)), ticket, ..Outgoing::default() }
    }
}

pub struct Outbound {
    handle: Handle,
    ring: Ring,
    socket: Arc<OwnedFd>,
    terms: Terms,
    /// `None` ends the task.
    ready: Queue<Option<Outgoing>>,
    stall: Stall,
    is_broken: Cell<bool>,
    is_too_slow: Cell<bool>,
    has_ended: Cell<bool>,
    ended: Signal,
}

impl Outbound {
    pub fn new(handle: Handle, ring: Ring, socket: Arc<OwnedFd>, terms: Terms) -> Rc<Outbound> {
        Rc::new(Outbound {
            handle,
            ring,
            socket,
            terms,
            ready: Queue::new(),
            stall: Stall::default(),
            is_broken: Cell::new(false),
            is_too_slow: Cell::new(false),
            has_ended: Cell::new(false),
            ended: Signal::new(),
        })
    }

    /// Queue what is ready.
    pub fn push(&self, outgoing: Outgoing) {
        self.ready.push(Some(outgoing));
    }

    /// End the sending task once it has sent what is queued.
    pub fn stop(&self) {
        self.ready.push(None);
    }

    /// Give the connection up: both directions end at once.
    pub fn break_off(&self) {
        self.is_broken.set(true);
        // It can only fail because the peer was faster.
        let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
    }

    /// Whether the connection is lost.
    pub fn is_broken(&self) -> bool {
        self.is_broken.get()
    }

    /// Whether the connection was given up because the host did not read.
    pub fn is_too_slow(&self) -> bool {
        self.is_too_slow.get()
    }

    /// Wait until the task has ended.
    pub async fn all_sent(&self) {
        while !self.has_ended.get() {
            self.ended.changed().await;
        }
    }

    async fn send(&self, parts: Vec<Buf>) -> Vec<Buf> {
        if self.is_broken.get() {
            return parts;
        }
        self.stall.begin(self.handle.turn_now());
        let (result, parts) = self.ring.send_all(&self.socket, parts).await;
        self.stall.end();
        if result.is_err() {
            self.break_off();
        }
        parts
    }

    /// The sending task. Buffers are made once and reused.
    pub async fn run(self: Rc<Self>) {
        let mut heads = BufMut::zeroed(BATCH_MAX * HEADS_BYTES_MAX);
        let mut parts = Vec::with_capacity(2 * BATCH_MAX);
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while self.collect(&mut batch).await {
            let all_heads = self.lay_out(heads, &batch, &mut parts);
            parts = self.send(parts).await;
            parts.clear();
            batch.drain(..).for_each(|outgoing: Outgoing| drop(outgoing.ticket));
            // Only a send that the ring still holds on to keeps the heads; then others take their
            // place.
            heads = all_heads
                .try_into_mut()
                .unwrap_or_else(|_| BufMut::zeroed(BATCH_MAX * HEADS_BYTES_MAX));
        }
        self.has_ended.set(true);
        self.ended.notify_all();
    }

    /// Wait for something and take what else is ready. `false` when there is nothing left for ever.
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

    /// Encode headers and digests side by side and list what is to be sent: runs of these, and data
    /// between them.
    fn lay_out(&self, mut heads: BufMut, batch: &[Outgoing], parts: &mut Vec<Buf>) -> Buf {
        // Where each answer's header of data ends: there the run is cut.
        let mut cuts = [0; BATCH_MAX];
        let mut end = 0;
        for (outgoing, cut) in batch.iter().zip(&mut cuts) {
            if let Some((header, data)) = &outgoing.data {
                let length = u32::try_from(data.len()).expect("a command has at most 1 GiB");
                let header = encode(&Body::C2hData(*header), length, &self.terms);
                end += put(&mut heads[end..], header.as_bytes());
                *cut = end;
                if header.has_data_digest {
                    end += put(&mut heads[end..], &digest(data));
                }
            }
            if let Some(body) = &outgoing.body {
                end += put(&mut heads[end..], encode(body, 0, &self.terms).as_bytes());
            }
        }
        let heads = heads.freeze();
        let mut start = 0;
        for (outgoing, &cut) in batch.iter().zip(&cuts) {
            let Some((_, data)) = &outgoing.data else { continue };
            parts.push(heads.slice(start..cut));
            parts.push(data.clone());
            start = cut;
        }
        if start < end {
            parts.push(heads.slice(start..end));
        }
        // Nothing follows a PDU that is encoded already: it says why the connection ends.
        parts.extend(batch.iter().filter_map(|outgoing| outgoing.raw.clone()));
        heads
    }
}

fn put(room: &mut [u8], bytes: &[u8]) -> usize {
    room[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}

impl Sends for Outbound {
    fn stall(&self) -> &Stall {
        &self.stall
    }

    fn give_up(&self) {
        self.is_too_slow.set(true);
        // The send ends with an error, and everything it held goes back.
        self.break_off();
    }
}
