//! One connection of a frontend, from its first message to its end.
//!
//! What must stay true: messages are obeyed one after the other; whatever a header claims, no more
//! than the longest message is received; when the connection ends, for whatever reason, queues
//! finish what they took, and nothing of the guest is touched after that. Not here: what messages
//! mean (`device`).

use crate::chain::Fault;
use crate::counters::VhostCounters;
use crate::device::{Answer, Device, DeviceSetting};
use crate::growth::Growth;
use crate::memory::MemoryError;
use crate::queue::QueueStart;
use crate::wire::{self, HEADER_BYTES, Header, REGIONS_MAX, flag};
use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::mailbox::Receiver;
use ashlar_ring::{Handle, Notifier, Ring, until, within};
use ashlar_session::SessionLimits;
use ashlar_volume::VolumeFacts;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// Why a session was given up. What was answered before stays answered.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The socket failed, or ended within a message.
    #[error("the connection failed: {0}")]
    Socket(#[from] io::Error),
    /// The first message did not come.
    #[error("the handshake did not end in time")]
    HandshakeTimeout,
    /// A message stopped arriving.
    #[error("a message did not arrive in time")]
    ContentTimeout,
    /// The frontend did not read its replies.
    #[error("replies were not read in time")]
    SendTimeout,
    /// It is of a part of the protocol that was not agreed on.
    #[error("message {request} is not spoken here")]
    NotSpoken {
        /// Its number.
        request: u32,
    },
    /// It makes no sense.
    #[error("message {request} makes no sense")]
    Malformed {
        /// Its number.
        request: u32,
    },
    /// The guest's memory cannot be used.
    #[error("{0}")]
    Memory(#[from] MemoryError),
    /// A descriptor is none that can be signalled.
    #[error("an eventfd that is none: {0}")]
    Event(#[source] io::Error),
    /// Nothing is wrong with the frontend.
    #[error("the volume was stopped")]
    VolumeStopped,
    /// No worker took a queue.
    #[error("queue {queue} is not served: the volume is stopped, or too many queues run")]
    NotServed {
        /// Which queue.
        queue: u16,
    },
    /// The guest did what no driver does.
    #[error("queue {queue} is broken: {fault}")]
    Broken {
        /// Which queue.
        queue: u16,
        /// What it did.
        fault: Fault,
    },
}

/// What one worker needs to serve one connection.
pub struct VhostServer {
    /// The worker's executor.
    pub handle: Handle,
    /// The worker's ring.
    pub ring: Ring,
    /// The volume as it is now: the client is told so.
    pub facts: VolumeFacts,
    /// Bounds of the session.
    pub limits: SessionLimits,
    /// Shared with other sessions of the volume.
    pub counters: Arc<VhostCounters>,
}

/// A message.
pub(crate) struct Message {
    pub(crate) request: u32,
    pub(crate) content: Vec<u8>,
    pub(crate) files: Vec<OwnedFd>,
}

/// Why a session looks up.
enum Woken {
    Heard(Box<Result<Option<(Header, Message)>, SessionError>>),
    Broken(SessionError),
    Ended,
}

impl VhostServer {
    /// Serve one connection until the frontend leaves or `ended` resolves. `sizes` brings the
    /// volume's size in bytes after each growth. `place` hands each queue to a worker, which serves
    /// it with a [`QueueServer`](crate::QueueServer); if it drops the queue instead, that is not
    /// served.
    ///
    /// When this resolves no queue runs any more.
    ///
    /// # Errors
    /// [`SessionError`]: for the log; the frontend has been dropped.
    ///
    /// # Cancellation
    /// Queues go on. Let `ended` resolve instead.
    pub async fn serve(
        &self,
        socket: OwnedFd,
        ended: impl Future<Output = ()>,
        sizes: Receiver<u64>,
        place: impl Fn(QueueStart),
    ) -> Result<(), SessionError> {
        let growth = Rc::new(Growth::new(self.facts.size_bytes));
        let setting = DeviceSetting {
            facts: self.facts.clone(),
            growth: Rc::clone(&growth),
            counters: Arc::clone(&self.counters),
            limits: self.limits.clone(),
            notify: |event| Notifier::new(event).map(Some),
        };
        let mut device = Device::new(&self.handle, setting, place);
        let inbound = Inbound { server: self, socket: Arc::new(socket) };
        let ended = pin!(ended);
        let heard = inbound.hear(&mut device, ended);
        let result = until(heard, growth.follow(self, sizes)).await;
        device.stop_all().await;
        result.expect("following sizes has no end")
    }
}

/// The connection.
struct Inbound<'a> {
    server: &'a VhostServer,
    socket: Arc<OwnedFd>,
}

impl Inbound<'_> {
    async fn hear<P: Fn(QueueStart)>(
        &self,
        device: &mut Device<P>,
        mut ended: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), SessionError> {
        let mut is_first = true;
        loop {
            let receiving = self.receive(std::mem::take(&mut is_first));
            let heard = match first_of(receiving, device, ended.as_mut()).await {
                Woken::Heard(heard) => (*heard)?,
                Woken::Broken(error) => return Err(error),
                Woken::Ended => return Ok(()),
            };
            let Some((header, message)) = heard else { return Ok(()) };
            let obeyed = device.obey(message).await;
            let wants_reply = header.flags & flag::NEEDS_REPLY != 0 && device.has_replies();
            self.answer(header.request, wants_reply, obeyed).await?;
        }
    }

    /// Answer a message. What was wrong with it comes back, after the frontend was told.
    async fn answer(
        &self,
        request: u32,
        wants_reply: bool,
        obeyed: Result<Answer, SessionError>,
    ) -> Result<(), SessionError> {
        let verdict = |verdict: u64| wire::reply(request, &verdict.to_ne_bytes());
        match obeyed {
            Ok(Answer::Content(content)) => self.send(wire::reply(request, &content), None).await,
            Ok(Answer::WithFile(content, file)) => {
                self.send(wire::reply(request, &content), Some(file)).await
            }
            Ok(Answer::Obeyed) if wants_reply => self.send(verdict(0), None).await,
            Ok(Answer::Obeyed) => Ok(()),
            Err(error) => {
                if wants_reply {
                    // What it is told of comes first.
                    let _told = self.send(verdict(1), None).await;
                }
                Err(error)
            }
        }
    }

    async fn send(&self, bytes: Vec<u8>, file: Option<OwnedFd>) -> Result<(), SessionError> {
        let VhostServer { handle, ring, limits, .. } = self.server;
        let length = bytes.len();
        let files: Vec<Arc<OwnedFd>> = file.into_iter().map(Arc::new).collect();
        let sending = ring.send_with(&self.socket, vec![Buf::copied(&bytes)], files);
        let sent = within(handle, limits.send_time, sending).await;
        let sent = sent.ok_or(SessionError::SendTimeout)?.0?;
        // A message is far shorter than what a socket holds.
        if sent < length { Err(SessionError::SendTimeout) } else { Ok(()) }
    }

    /// The next message; `None` at the end of the connection.
    async fn receive(&self, is_first: bool) -> Result<Option<(Header, Message)>, SessionError> {
        let VhostServer { handle, limits, .. } = self.server;
        let mut files = Vec::new();
        let mut head = Vec::new();
        let first = self.receive_some(HEADER_BYTES, &mut files);
        let first = match is_first {
            true => within(handle, limits.handshake_time, first).await,
            false => Some(first.await),
        };
        head.extend_from_slice(&first.ok_or(SessionError::HandshakeTimeout)??);
        if head.is_empty() {
            return Ok(None);
        }
        let rest = self.receive_rest(head, &mut files);
        let rest = within(handle, limits.payload_time, rest).await;
        let (header, content) = rest.ok_or(SessionError::ContentTimeout)??;
        let message = Message { request: header.request, content, files };
        Ok(Some((header, message)))
    }

    /// What is left of a header, and the content.
    async fn receive_rest(
        &self,
        mut head: Vec<u8>,
        files: &mut Vec<OwnedFd>,
    ) -> Result<(Header, Vec<u8>), SessionError> {
        self.fill(&mut head, HEADER_BYTES, files).await?;
        let header: Header = wire::content(&head).expect("any bytes are one");
        let bytes = wire::content_bytes(&header);
        let bytes = bytes.ok_or(SessionError::Malformed { request: header.request })?;
        let mut content = Vec::new();
        self.fill(&mut content, bytes, files).await?;
        Ok((header, content))
    }

    async fn fill(
        &self,
        into: &mut Vec<u8>,
        bytes: usize,
        files: &mut Vec<OwnedFd>,
    ) -> io::Result<()> {
        while into.len() < bytes {
            let more = self.receive_some(bytes - into.len(), files).await?;
            if more.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            into.extend_from_slice(&more);
        }
        Ok(())
    }

    async fn receive_some(&self, bytes: usize, files: &mut Vec<OwnedFd>) -> io::Result<BufMut> {
        let buffer = BufMut::zeroed(bytes);
        let (received, mut buffer) = self.server.ring.receive_with(&self.socket, buffer).await;
        let (bytes, more) = received?;
        files.extend(more);
        // Each byte may bring some.
        if files.len() > REGIONS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors"));
        }
        buffer.truncate(bytes);
        Ok(buffer)
    }
}

/// What comes first: a message, a broken queue, or the end.
async fn first_of<P: Fn(QueueStart)>(
    receiving: impl Future<Output = Result<Option<(Header, Message)>, SessionError>>,
    device: &mut Device<P>,
    mut ended: Pin<&mut impl Future<Output = ()>>,
) -> Woken {
    let (mut receiving, mut broken) = (pin!(receiving), pin!(device.wait_until_broken()));
    poll_fn(|context| {
        if let Poll::Ready(()) = ended.as_mut().poll(context) {
            return Poll::Ready(Woken::Ended);
        }
        if let Poll::Ready(error) = broken.as_mut().poll(context) {
            return Poll::Ready(Woken::Broken(error));
        }
        receiving.as_mut().poll(context).map(|heard| Woken::Heard(Box::new(heard)))
    })
    .await
}
