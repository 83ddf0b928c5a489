//! One connection, from its first byte to its last.
//!
//! What must stay true: a connection is a queue or nothing; when it ends, its commands under way
//! are finished and no task, buffer or descriptor stays; a host that broke a rule of the transport
//! is told which before the connection ends.
//! Not here: accepting; the caller does, and chooses the worker.

use crate::admin::{AdminSession, NewAdmin};
use crate::counters::add;
use crate::handshake::{Connected, Handshake, Role};
use crate::inbound::{PduInbound, ReceiveError};
use crate::io::IoSession;
use crate::outbound::{Outbound, Outgoing, PduEncoder};
use crate::{Target, Volumes};
use ashlar_iobuf::Buf;
use ashlar_nvme_protocol::connection::Connection;
use ashlar_nvme_protocol::pdu::{Fatal, Side, TermReq, encode_term_req};
use ashlar_ring::{Handle, Ring, within};
use ashlar_session::{PlainSocket, Share, Stream};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// How a connection ended when nothing went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionEnd {
    /// The host left before it was a queue, or was refused.
    Aborted,
    /// The host closed the connection between two PDUs, or asked for its end.
    HungUp,
    /// The controller ended it: it was reset, or its admin queue is gone.
    Ended,
}

/// Why a connection was given up. What was answered before stays answered.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The socket failed, or ended within a PDU.
    #[error("the connection failed: {0}")]
    Socket(#[from] io::Error),
    /// The host broke a rule of the transport.
    #[error("a rule of the transport was broken: {0}")]
    Fatal(Fatal),
    /// The host ended it because of an error of ours, as it sees it.
    #[error("the host gave the connection up: {:?} {:#x}", .0.status, .0.info)]
    GivenUp(TermReq),
    /// It took too long to become a queue.
    #[error("no queue was connected in time")]
    HandshakeTimeout,
    /// The host could not prove who it is.
    #[error("host {0} could not prove who it is")]
    Authentication(String),
    /// More commands at a time than the queue has room for.
    #[error("more commands than the queue has room for")]
    QueueFull,
    /// Data that was asked for, or the rest of a PDU, stopped arriving.
    #[error("data did not arrive in time")]
    DataTimeout,
    /// The host did not read its answers.
    #[error("answers were not read in time")]
    SendTimeout,
    /// The host was silent for longer than its keep-alive timeout.
    #[error("host {0} was silent for longer than its keep-alive timeout")]
    KeepAlive(String),
}

impl From<ReceiveError> for SessionError {
    fn from(error: ReceiveError) -> SessionError {
        match error {
            ReceiveError::Socket(error) => SessionError::Socket(error),
            ReceiveError::Fatal(fatal) => SessionError::Fatal(fatal),
        }
    }
}

/// What one worker needs to serve connections.
#[derive(Clone)]
pub struct NvmeServer<V> {
    /// The worker's executor.
    pub handle: Handle,
    /// The worker's ring.
    pub ring: Ring,
    /// The volumes of this worker.
    pub volumes: V,
    /// Shared with the other workers.
    pub target: Arc<Target>,
    /// What the host's address may hold here, unless it is of this machine.
    pub share: Option<Rc<Share>>,
}

impl<V: Volumes> NvmeServer<V> {
    /// Serve one connection until it ends.
    ///
    /// # Errors
    /// [`SessionError`]: for the log; the host has been dropped.
    ///
    /// # Cancellation
    /// Dropping the future ends the connection: the socket is shut down, requests under way end on
    /// their own and their answers are lost. This is how to stop a session from outside.
    pub async fn serve(&self, socket: OwnedFd) -> Result<SessionEnd, SessionError> {
        let _open = self.target.counters.sessions.count_open();
        let local = local_address(&socket);
        let socket = Rc::new(PlainSocket::new(self.ring.clone(), socket)?);
        let connection = Connection::new(self.target.config.limits.offer());
        let mut inbound = PduInbound::new(socket.clone(), connection);
        let handshake = Handshake::new(self, &socket);
        let limit = self.target.config.limits.session.handshake_time;
        let connected = within(&self.handle, limit, handshake.run(&mut inbound)).await;
        match connected.unwrap_or(Err(SessionError::HandshakeTimeout)) {
            Ok(Some(connected)) => self.run(connected, &mut inbound, &socket, local).await,
            Ok(None) => Ok(SessionEnd::Aborted),
            Err(error) => {
                self.tell_fatal(&inbound, &socket, &error).await;
                Err(error)
            }
        }
    }

    async fn run(
        &self,
        connected: Connected,
        inbound: &mut PduInbound,
        socket: &Rc<PlainSocket>,
        local: Option<IpAddr>,
    ) -> Result<SessionEnd, SessionError> {
        add(&self.target.counters.sessions.total, 1);
        self.volumes.began(connected.host_name());
        let encoder = PduEncoder { terms: inbound.connection().terms() };
        let send_time = self.target.config.limits.session.send_time;
        let out = Outbound::start(&self.handle, socket.clone(), encoder, send_time);
        let Connected { queue, role } = connected;
        let result = match role {
            Role::Admin { place, messages, keep_alive_ms } => {
                let new = NewAdmin { place, queue, keep_alive_ms, local };
                let session = AdminSession::new(self, new, out.clone());
                let result = session.run(inbound, messages).await;
                self.close(&out, inbound, &result).await;
                result
            }
            Role::Io { place, messages } => {
                inbound.widen();
                let session = IoSession::start(self, place, queue, out.clone());
                let result = session.run(inbound, messages).await;
                session.drain().await;
                self.close(&out, inbound, &result).await;
                result
            }
        };
        if out.is_too_slow() { Err(SessionError::SendTimeout) } else { result }
    }

    /// Let what is answered leave, and behind it why the connection ends; not for ever.
    async fn close(
        &self,
        out: &Outbound,
        inbound: &PduInbound,
        result: &Result<SessionEnd, SessionError>,
    ) {
        if let Err(SessionError::Fatal(fatal)) = result {
            let pdu = encode_term_req(Side::Controller, *fatal, inbound.last_header());
            let raw = Some(Buf::copied(&pdu));
            out.push(Outgoing { raw, ..Outgoing::default() });
        }
        out.stop();
        let limit = self.target.config.limits.session.drain_time;
        within(&self.handle, limit, out.all_sent()).await;
        out.break_off();
    }

    /// Tell a host that is no queue yet which rule it broke.
    async fn tell_fatal(&self, inbound: &PduInbound, socket: &PlainSocket, error: &SessionError) {
        let SessionError::Fatal(fatal) = error else { return };
        let pdu = encode_term_req(Side::Controller, *fatal, inbound.last_header());
        let limit = self.target.config.limits.session.drain_time;
        let send = socket.send_all(vec![Buf::copied(&pdu)]);
        // If it does not listen any more, it does not care.
        let _ = within(&self.handle, limit, send).await;
    }
}

fn local_address(socket: &OwnedFd) -> Option<IpAddr> {
    let address = rustix::net::getsockname(socket).ok()?;
    SocketAddr::try_from(address).ok().map(|address| address.ip())
}
