//! One connection, from greeting to end: how bytes from a client become a request.
//!
//! A request's way: `receive_requests` takes its header, lets `admit` judge it, waits for a ticket
//! (a free slot and room for its bytes), receives a write's payload straight into a buffer of the
//! volume, and hands the job to a slot. The slot submits it to the volume and queues the reply. The
//! sender sends it.
//!
//! What must stay true: whatever a header claims, its payload is consumed before the next header,
//! or the connection ends. While all slots are busy nothing is received. When the connection ends,
//! requests in flight are finished and no task, buffer or descriptor stays. Not here: accepting
//! (`server`), carrying out (`slot`).

use crate::admit::{NbdRequest, Terms};
use crate::counters::{NbdCounters, add};
use crate::inbound::{Inbound, receive_head};
use crate::negotiate::{Agreement, Negotiation, PAYLOAD_BYTES_MAX, Protection, Step};
use crate::options::{OPTION_HEADER_BYTES, decode_option_header, greeting};
use crate::outbound::{Outbound, ReplyEncoder};
use crate::slot::{Group, Job, Shared, Work};
use crate::socket::Socket;
use crate::tls::TlsTerms;
use crate::wire::{BadMagic, RequestHead};
use crate::{Exports, Limits};
use ashlar_iobuf::Buf;
use ashlar_ring::local::Queue;
use ashlar_ring::{Handle, Ring, within};
use ashlar_session::{Credit, Share, Slots, Stream, pieces};
use ashlar_units::{Extent, to_usize};
use ashlar_volume::{Transfer, Volume};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// How a session ended when nothing went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionEnd {
    /// The client left during the handshake.
    Aborted,
    /// The client said that it leaves.
    Disconnected,
    /// The client closed the connection between two requests.
    HungUp,
}

/// Why a session was given up. What was answered before stays answered.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The socket failed, or ended within a message.
    #[error("the connection failed: {0}")]
    Socket(#[from] io::Error),
    /// The handshake took too long.
    #[error("the handshake did not end in time")]
    HandshakeTimeout,
    /// The client broke the handshake's rules or limits, or asked for what it cannot have.
    #[error("the handshake was broken off: {0}")]
    Handshake(&'static str),
    /// The client has no certificate that counts here, or does not speak TLS 1.3 as it should.
    #[error("no TLS session: {0}")]
    Tls(#[source] io::Error),
    /// The client sent something that is not a request.
    #[error("not a request: {0}")]
    NotARequest(#[from] BadMagic),
    /// A write with a payload beyond the announced maximum.
    #[error("a payload of {0} bytes")]
    PayloadTooLong(u64),
    /// The client did not read its replies.
    #[error("replies were not read in time")]
    SendTimeout,
    /// A payload stopped arriving.
    #[error("a payload did not arrive in time")]
    PayloadTimeout,
}

/// What one worker needs to serve connections.
#[derive(Clone)]
pub struct NbdServer<E> {
    /// The worker's executor.
    pub handle: Handle,
    /// The worker's ring.
    pub ring: Ring,
    /// The volumes on offer.
    pub exports: E,
    /// Bounds for each session.
    pub limits: Limits,
    /// Shared with the other workers.
    pub counters: Arc<NbdCounters>,
    /// What the client's address may hold here, unless it is of this machine.
    pub share: Option<Rc<Share>>,
    /// With these, clients must speak TLS and show a certificate; without, connections are clear
    /// text.
    pub tls: Option<TlsTerms>,
}

impl<E: Exports> NbdServer<E> {
    /// Serve one connection until it ends.
    ///
    /// # Errors
    /// [`SessionError`]: for the log; the client has been dropped.
    ///
    /// # Cancellation
    /// Dropping the future ends the session: the socket is shut down, requests in flight end on
    /// their own and their replies are lost. This is how to stop a session from outside.
    pub async fn serve(&self, socket: OwnedFd) -> Result<SessionEnd, SessionError> {
        let _open = self.counters.sessions.count_open();
        let socket = Socket::new(self.ring.clone(), socket)?;
        let mut inbound = Inbound::new(socket.clone());
        let (limits, tls) = (&self.limits, self.tls.as_ref());
        let handshake = Handshake { socket: &socket, limits, tls };
        let agreed = handshake.run(&self.exports, &mut inbound);
        let agreed = within(&self.handle, self.limits.session.handshake_time, agreed).await;
        let Some(agreement) = agreed.ok_or(SessionError::HandshakeTimeout)?? else {
            self.take_leave(&socket).await;
            return Ok(SessionEnd::Aborted);
        };
        add(&self.counters.sessions.total, 1);
        self.exports.began();
        inbound.widen();
        let session = Session::start(self, *agreement, socket.clone());
        let result = session.receive_requests(&mut inbound).await;
        let is_drained = session.drain().await;
        if is_drained && result.is_ok() {
            self.take_leave(&socket).await;
        }
        result
    }

    /// Let a client that left in order know that nothing was cut off behind its back.
    async fn take_leave(&self, socket: &Socket) {
        // If it does not listen any more, it does not care.
        let _ = within(&self.handle, self.limits.session.drain_time, socket.say_goodbye()).await;
    }
}

/// The first phase.
struct Handshake<'a> {
    socket: &'a Socket,
    limits: &'a Limits,
    tls: Option<&'a TlsTerms>,
}

impl Handshake<'_> {
    /// Greet and haggle until the client chooses a volume; `None` if it leaves.
    async fn run<E: Exports>(
        &self,
        exports: &E,
        inbound: &mut Inbound,
    ) -> Result<Option<Box<Agreement<E::Volume>>>, SessionError> {
        self.send(&greeting()).await?;
        let mut flags = [0; 4];
        if !inbound.take(&mut flags).await? {
            return Ok(None);
        }
        let begin = |protection| {
            let begun = Negotiation::new(u32::from_be_bytes(flags));
            let begun = begun.ok_or(SessionError::Handshake("unknown client flags"))?;
            Ok::<_, SessionError>(begun.under(protection))
        };
        let demanded = if self.tls.is_some() { Protection::TlsDemanded } else { Protection::None };
        let mut negotiation = begin(demanded)?;
        for _ in 0..self.limits.option_count_max {
            let Some((number, data)) = self.receive_option(inbound).await? else {
                return Ok(None);
            };
            let mut replies = Vec::new();
            let step = negotiation.answer(exports, number, &data, &mut replies);
            if let Step::Drop(reason) = step {
                return Err(SessionError::Handshake(reason));
            }
            self.send(&replies).await?;
            match step {
                Step::Transmit(agreement) => return Ok(Some(agreement)),
                Step::Leave => return Ok(None),
                Step::StartTls => {
                    self.start_tls(inbound).await?;
                    // Whatever was said in clear text, somebody else may have said.
                    negotiation = begin(Protection::Tls)?;
                }
                Step::Continue | Step::Drop(_) => {}
            }
        }
        Err(SessionError::Handshake("too many options"))
    }

    /// From here on through TLS. What came before the client knew that it may begin is not of a TLS
    /// session.
    async fn start_tls(&self, inbound: &Inbound) -> Result<(), SessionError> {
        if inbound.is_ahead() {
            return Err(SessionError::Handshake("bytes in clear text after STARTTLS"));
        }
        let terms = self.tls.ok_or(SessionError::Handshake("no TLS here"))?;
        self.socket.secure(terms).await.map_err(SessionError::Tls)
    }

    async fn receive_option(
        &self,
        inbound: &mut Inbound,
    ) -> Result<Option<(u32, Vec<u8>)>, SessionError> {
        let mut header = [0; OPTION_HEADER_BYTES];
        if !inbound.take(&mut header).await? {
            return Ok(None);
        }
        let (number, bytes) =
            decode_option_header(header).ok_or(SessionError::Handshake("not an option"))?;
        let bytes = to_usize(u64::from(bytes));
        if bytes > self.limits.option_bytes_max {
            return Err(SessionError::Handshake("an option is too long"));
        }
        let mut data = vec![0; bytes];
        inbound.take_rest(&mut data).await?;
        Ok(Some((number, data)))
    }

    async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.socket.send_all(vec![Buf::copied(bytes)]).await.0
    }
}

/// The second phase. Dropping it ends its tasks.
struct Session<V: Volume> {
    handle: Handle,
    limits: Limits,
    counters: Arc<NbdCounters>,
    shared: Rc<Shared<V>>,
    has_allocation_context: bool,
}

impl<V: Volume> Drop for Session<V> {
    fn drop(&mut self) {
        self.shared.out.break_off();
        for _ in 0..self.limits.session.slots {
            self.shared.jobs.push(None);
        }
        self.shared.out.stop();
    }
}

impl<V: Volume> Session<V> {
    /// Make the session's tasks: its slots and its sender.
    fn start<E>(server: &NbdServer<E>, agreement: Agreement<V>, socket: Rc<Socket>) -> Session<V> {
        let (handle, limits) = (server.handle.clone(), server.limits.clone());
        let counters = server.counters.clone();
        let encoder = ReplyEncoder { dialect: agreement.dialect, counters: counters.clone() };
        let out = Outbound::start(&handle, socket, encoder, limits.session.send_time);
        let shared = Rc::new(Shared {
            volume: agreement.volume,
            facts: agreement.facts,
            dialect: agreement.dialect,
            status_runs_max: limits.status_runs_max,
            out,
            jobs: Queue::new(),
            credit: Credit::new(
                limits.session.slots,
                limits.session.bytes_in_flight_max,
                server.share.clone(),
            ),
        });
        Slots::start(&handle, limits.session.slots, || shared.clone().run_slot());
        let has_allocation_context = agreement.has_allocation_context;
        Session { handle, limits, counters, shared, has_allocation_context }
    }

    /// The receive loop: headers become requests, and these jobs.
    async fn receive_requests(&self, inbound: &mut Inbound) -> Result<SessionEnd, SessionError> {
        let dialect = self.shared.dialect;
        let terms = Terms {
            facts: &self.shared.facts,
            dialect,
            has_allocation_context: self.has_allocation_context,
        };
        loop {
            let received = receive_head(inbound, dialect).await;
            if self.shared.out.is_too_slow() {
                return Err(SessionError::SendTimeout);
            }
            let Some(head) = received? else { return Ok(SessionEnd::HungUp) };
            if self.shared.out.is_broken() {
                return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
            }
            if head.payload_bytes > u64::from(PAYLOAD_BYTES_MAX) {
                return Err(SessionError::PayloadTooLong(head.payload_bytes));
            }
            if let Some(kind) = head.kind() {
                self.counters.count(kind);
            }
            match terms.admit(&head) {
                Ok(NbdRequest::Disconnect) => return Ok(SessionEnd::Disconnected),
                Ok(NbdRequest::Write { extent, fua }) => {
                    self.receive_write(inbound, &head, extent, fua).await?;
                }
                Ok(NbdRequest::Read(extent)) => self.start_read(&head, extent).await,
                Ok(request) => self.start_job(&head, request, 0).await,
                Err(error) => {
                    self.in_time(inbound.skip(head.payload_bytes)).await?;
                    self.shared.refuse(head.cookie, head.offset, error).await;
                }
            }
        }
    }

    /// Receive a write's payload, piece by piece, each straight into a buffer of the volume.
    async fn receive_write(
        &self,
        inbound: &mut Inbound,
        head: &RequestHead,
        extent: Extent,
        fua: bool,
    ) -> Result<(), SessionError> {
        let group = self.group_for(extent);
        for piece in pieces(extent, self.shared.piece_bytes_max()) {
            self.shared.volume.turn(Transfer::Write, piece.bytes).await;
            let ticket = self.shared.credit.ticket(piece.bytes).await;
            let mut payload = self.shared.volume.buffer(to_usize(piece.bytes)).await;
            let filled = inbound.fill_from_held(&mut payload);
            if filled < payload.len() {
                payload = self.in_time(inbound.fill(payload, filled)).await?;
            }
            add(&self.counters.written_bytes, piece.bytes);
            let request = NbdRequest::Write { extent: piece, fua };
            let payload = Some(payload.freeze());
            self.hand_over(head, Work { request, payload, ticket, group: group.clone() });
        }
        Ok(())
    }

    /// Where a reply may have parts, a long read becomes several jobs; else one job sends its
    /// pieces in order.
    async fn start_read(&self, head: &RequestHead, extent: Extent) {
        if !self.shared.dialect.has_parts() {
            let bytes = extent.bytes.min(self.shared.piece_bytes_max());
            return self.start_job(head, NbdRequest::Read(extent), bytes).await;
        }
        let group = self.group_for(extent);
        for piece in pieces(extent, self.shared.piece_bytes_max()) {
            let ticket = self.shared.credit.ticket(piece.bytes).await;
            let request = NbdRequest::Read(piece);
            self.hand_over(head, Work { request, payload: None, ticket, group: group.clone() });
        }
    }

    /// Wait for a slot and for room for `bytes`, then start a request that is one job.
    async fn start_job(&self, head: &RequestHead, request: NbdRequest, bytes: u64) {
        let ticket = self.shared.credit.ticket(bytes).await;
        self.hand_over(head, Work { request, payload: None, ticket, group: None });
    }

    fn hand_over(&self, head: &RequestHead, work: Work) {
        let job = Job { cookie: head.cookie, request_offset: head.offset, work };
        self.shared.jobs.push(Some(job));
    }

    /// Requests of one piece, which is nearly all, need no group and so no allocation.
    fn group_for(&self, extent: Extent) -> Option<Rc<Group>> {
        let count = extent.bytes.div_ceil(self.shared.piece_bytes_max());
        (count > 1).then(|| Group::new(count))
    }

    async fn in_time<T>(
        &self,
        receiving: impl Future<Output = io::Result<T>>,
    ) -> Result<T, SessionError> {
        let received = within(&self.handle, self.limits.session.payload_time, receiving).await;
        Ok(received.ok_or(SessionError::PayloadTimeout)??)
    }

    /// Let requests in flight end and their replies leave; not for ever. Whether they did.
    async fn drain(&self) -> bool {
        let all_back = self.shared.credit.all_back();
        // Too slow: dropping the session breaks the connection off, which frees what waits for the
        // client.
        within(&self.handle, self.limits.session.drain_time, all_back).await.is_some()
    }
}
