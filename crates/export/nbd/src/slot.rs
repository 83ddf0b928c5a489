//! How a request is carried out: the tasks that turn jobs into volume requests and replies.
//!
//! What must stay true: a job holds a ticket (its slot and its bytes) until its reply left. A slot
//! never waits for a second buffer while it holds one, so slots cannot starve each other of the
//! volume's pool. A request that was cut into pieces is answered once, after the last of them. Not
//! here: whether the request is allowed (`admit`), and where its payload comes from (`session`).

use crate::admit::NbdRequest;
use crate::outbound::{Outbound, Outgoing};
use crate::reply::{REPLY_HEAD_BYTES_MAX, ReplyBody, ReplyHead, encode_status, status_bytes};
use crate::wire::{Dialect, NbdError};
use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::local::Queue;
use ashlar_session::{Credit, PieceGroup, Ticket, pieces, read};
use ashlar_units::{Extent, to_usize};
use ashlar_volume::{AllocationRun, Command, Reply, Request, Transfer, Volume, VolumeFacts};
use std::rc::Rc;

/// What the tasks of one session share.
pub struct Shared<V> {
    pub volume: V,
    pub facts: VolumeFacts,
    pub dialect: Dialect,
    pub status_runs_max: usize,
    pub out: Rc<Outbound>,
    /// `None` ends one slot.
    pub jobs: Queue<Option<Job>>,
    pub credit: Credit,
}

/// A request that was cut into pieces: several jobs, one reply.
pub type Group = PieceGroup<NbdError>;

/// Work for a slot, and whose.
pub struct Job {
    pub cookie: u64,
    pub request_offset: u64,
    pub work: Work,
}

/// One piece of work and what it holds.
pub struct Work {
    pub request: NbdRequest,
    /// The payload of a write.
    pub payload: Option<Buf>,
    pub ticket: Ticket,
    pub group: Option<Rc<Group>>,
}

impl<V: Volume> Shared<V> {
    /// Largest payload that goes to the volume at once, in bytes.
    pub fn piece_bytes_max(&self) -> u64 {
        u64::from(self.facts.request_bytes_max)
    }

    /// One slot: jobs, one after the other.
    pub async fn run_slot(self: Rc<Self>) {
        while let Some(job) = self.jobs.pop().await {
            self.run(job).await;
        }
    }

    async fn run(&self, mut job: Job) {
        match job.work.request {
            NbdRequest::Read(extent) if extent.bytes > self.piece_bytes_max() => {
                self.read_in_order(job, extent).await;
            }
            NbdRequest::Read(extent) => {
                let result = self.read(extent).await;
                self.reply_read(job, extent, result);
            }
            NbdRequest::Write { extent, fua } => {
                let payload = job.work.payload.take().expect("the receiver attached it");
                let result = self.submit(Command::Write(payload), extent, fua).await;
                self.reply_change(job, result.err());
            }
            NbdRequest::Flush => {
                let result = self.submit(Command::Flush, Extent::default(), false).await;
                self.reply_change(job, result.err());
            }
            NbdRequest::Trim { extent, fua } => {
                let result = self.submit(Command::Discard, extent, fua).await;
                self.reply_change(job, result.err());
            }
            NbdRequest::WriteZeroes { extent, may_unmap, fua } => {
                let command = Command::WriteZeroes { may_unmap };
                let result = self.submit(command, extent, fua).await;
                self.reply_change(job, result.err());
            }
            NbdRequest::Status { extent, is_one } => self.reply_status(job, extent, is_one).await,
            NbdRequest::Cache | NbdRequest::Disconnect => self.reply_change(job, None),
        }
    }

    async fn submit(&self, command: Command, extent: Extent, fua: bool) -> Result<Reply, NbdError> {
        let request = Request { command, extent, fua };
        self.volume.submit(request).await.map_err(|error| error.kind.into())
    }

    async fn read(&self, extent: Extent) -> Result<BufMut, NbdError> {
        self.volume.turn(Transfer::Read, extent.bytes).await;
        let buffer = self.volume.buffer(to_usize(extent.bytes)).await;
        self.read_into(buffer, extent).await
    }

    async fn read_into(&self, buffer: BufMut, extent: Extent) -> Result<BufMut, NbdError> {
        read(&self.volume, buffer, extent).await.map_err(|error| error.kind.into())
    }

    /// Answer a read, or one piece of it: dialects with parts take the pieces in any order.
    fn reply_read(&self, job: Job, extent: Extent, result: Result<BufMut, NbdError>) {
        let is_last = job.work.group.as_ref().is_none_or(|group| group.settle(None));
        let (body, payload) = match result {
            Ok(data) => {
                let bytes = u32::try_from(data.len()).expect("a piece is at most 32 MiB");
                (ReplyBody::Data { offset: extent.offset, bytes, is_last }, Some(data.freeze()))
            }
            Err(error) => {
                let offset = Some(extent.offset);
                (ReplyBody::Error { error, message: text_for(error), offset, is_last }, None)
            }
        };
        self.reply(job, body, payload);
    }

    /// A long read in the simple dialect. Its data must be one run on the wire and success stands
    /// before it, so the wire is held from the first piece on, one buffer goes round, and a later
    /// failure can only be told by dropping the connection, as the protocol wants it.
    async fn read_in_order(&self, job: Job, extent: Extent) {
        let mut wire = None;
        // All of it before the wire is held.
        for piece in pieces(extent, self.piece_bytes_max()) {
            self.volume.turn(Transfer::Read, piece.bytes).await;
        }
        let piece_bytes_max = to_usize(self.piece_bytes_max());
        let mut buffer = self.volume.buffer(piece_bytes_max).await;
        let mut at = extent.offset;
        while at < extent.end() {
            let piece = Extent::new(at, self.piece_bytes_max().min(extent.end() - at));
            buffer.truncate(to_usize(piece.bytes));
            let data = match self.read_into(buffer, piece).await {
                Ok(data) => data,
                Err(error) if wire.is_none() => return self.reply_read(job, extent, Err(error)),
                Err(_) => return self.out.break_off(),
            };
            let mut parts = Vec::with_capacity(2);
            if wire.is_none() {
                wire = Some(self.out.hold_wire().await);
                parts.push(self.success_head(job.cookie));
            }
            parts.push(data.freeze());
            let sent = self.out.send(parts).await.pop().expect("parts come back");
            if self.out.is_broken() {
                return;
            }
            self.out.encoder().count_read(piece.bytes);
            at = piece.end();
            // While this job holds the wire, others hold the pool's buffers: waiting for one could
            // be for ever. So if the volume keeps a share of what it gave, memory of our own takes
            // its place.
            buffer = sent.try_into_mut().unwrap_or_else(|_| BufMut::zeroed(piece_bytes_max));
        }
        drop(wire);
    }

    fn success_head(&self, cookie: u64) -> Buf {
        let mut head = BufMut::zeroed(REPLY_HEAD_BYTES_MAX);
        let body = ReplyBody::Done;
        let bytes = ReplyHead { cookie, request_offset: 0, body }.encode(self.dialect, &mut head);
        head.truncate(bytes);
        head.freeze()
    }

    /// Answer a request without data, or note the end of a piece of one.
    fn reply_change(&self, job: Job, error: Option<NbdError>) {
        let mut error = error;
        if let Some(group) = &job.work.group {
            if !group.settle(error) {
                return;
            }
            error = group.error();
        }
        let body = match error {
            None => ReplyBody::Done,
            Some(error) => {
                ReplyBody::Error { error, message: text_for(error), offset: None, is_last: true }
            }
        };
        self.reply(job, body, None);
    }

    async fn reply_status(&self, job: Job, extent: Extent, is_one: bool) {
        let runs_max = if is_one { 1 } else { self.status_runs_max };
        let runs = match self.volume.allocation(extent, runs_max).await {
            Ok(runs) => runs,
            Err(error) => return self.reply_change(job, Some(error.kind.into())),
        };
        let payload = self.status_payload(&runs);
        let payload_bytes = u32::try_from(payload.len()).expect("runs are bounded");
        self.reply(job, ReplyBody::Status { payload_bytes }, Some(payload));
    }

    fn status_payload(&self, runs: &[AllocationRun]) -> Buf {
        let mut payload = BufMut::zeroed(status_bytes(self.dialect, runs.len()));
        encode_status(self.dialect, runs, &mut payload);
        payload.freeze()
    }

    fn reply(&self, job: Job, body: ReplyBody, payload: Option<Buf>) {
        let head = ReplyHead { cookie: job.cookie, request_offset: job.request_offset, body };
        self.push(Outgoing { head, payload, _ticket: job.work.ticket });
    }

    /// Answer a request that was not let in.
    pub async fn refuse(&self, cookie: u64, request_offset: u64, error: NbdError) {
        let ticket = self.credit.ticket(0).await;
        let body =
            ReplyBody::Error { error, message: text_for(error), offset: None, is_last: true };
        let head = ReplyHead { cookie, request_offset, body };
        self.push(Outgoing { head, payload: None, _ticket: ticket });
    }

    fn push(&self, outgoing: Outgoing) {
        if matches!(outgoing.head.body, ReplyBody::Error { .. }) {
            self.out.encoder().count_error();
        }
        self.out.push(outgoing);
    }
}

fn text_for(error: NbdError) -> &'static str {
    match error {
        NbdError::Permission => "the volume is read-only",
        NbdError::Io => "the blocks cannot be read or written",
        NbdError::Invalid => "unknown, misaligned or outside the volume",
        NbdError::NoSpace => "beyond the end, or no space left",
        NbdError::Overflow => "too long for one reply",
        NbdError::NotSupported => "zeroing this would not be fast",
        NbdError::Shutdown => "the volume is being stopped",
    }
}
