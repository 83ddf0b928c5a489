//! One connection's TLS records.
//!
//! What must stay true: the memory of rustls is bounded. It gets bytes only while nothing that it
//! opened waits to be taken. It seals only after everything sealed before has left. No borrow of it
//! lasts over a wait, so the receiving and the sending task never meet in it. Not here: sockets
//! (`socket`), certificates (`terms`).

use super::TlsTerms;
use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::BufResult;
use ashlar_session::{PlainSocket, Stream};
use rustls::ServerConnection;
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice, Read, Write};

/// Room for received records that rustls was not fed yet, in bytes: two long records.
const SEALED_IN_BYTES: usize = 32 << 10;

/// The most that is sealed before it is sent, in bytes of plain text.
const SEAL_BYTES_MAX: usize = 64 << 10;

/// Room for as much when sealed: each record of up to 16 KiB adds 22 bytes, and a change of keys is
/// a short one.
const SEALED_OUT_BYTES: usize = SEAL_BYTES_MAX + (1 << 10);

/// A TLS session over a socket.
pub struct Channel {
    session: RefCell<ServerConnection>,
    incoming: RefCell<Incoming>,
    /// Absent while a send is under way.
    outgoing: Cell<Option<BufMut>>,
}

/// Received records.
struct Incoming {
    /// Absent while a receive is under way.
    sealed: Option<BufMut>,
    /// What of it rustls was not fed yet.
    start: usize,
    end: usize,
}

impl Channel {
    /// Shake hands: show the server's certificate and demand one of the client.
    ///
    /// # Errors
    /// The client shows none that the terms accept, or breaks off. It was told why, if it still
    /// listens.
    pub async fn open(socket: &PlainSocket, terms: &TlsTerms) -> io::Result<Channel> {
        let mut session = ServerConnection::new(terms.0.clone()).map_err(invalid)?;
        session.set_buffer_limit(Some(SEAL_BYTES_MAX));
        let channel = Channel {
            session: RefCell::new(session),
            incoming: RefCell::new(Incoming { sealed: None, start: 0, end: 0 }),
            outgoing: Cell::new(None),
        };
        while channel.session.borrow().is_handshaking() {
            let fed = channel.receive_records(socket).await;
            // Also what a failed step has to say.
            let flushed = channel.flush(socket).await;
            if fed? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            flushed?;
        }
        Ok(channel)
    }

    /// As [`Stream::receive`].
    pub async fn receive(&self, socket: &PlainSocket, mut buf: BufMut) -> BufResult<usize, BufMut> {
        loop {
            match self.take_opened(&mut buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return (done, buf),
            }
            if let Err(error) = self.receive_records(socket).await {
                return (Err(error), buf);
            }
        }
    }

    /// As [`Stream::receive_all`].
    pub async fn receive_all(
        &self,
        socket: &PlainSocket,
        mut buf: BufMut,
    ) -> BufResult<(), BufMut> {
        let mut filled = 0;
        while filled < buf.len() {
            let step = match self.take_opened(&mut buf[filled..]) {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.receive_records(socket).await.map(|_| 0)
                }
                taken => taken,
            };
            match step {
                Ok(bytes) => filled += bytes,
                Err(error) => return (Err(error), buf),
            }
        }
        (Ok(()), buf)
    }

    /// As [`Stream::send_all`].
    pub async fn send_all(&self, socket: &PlainSocket, parts: Vec<Buf>) -> BufResult<(), Vec<Buf>> {
        let result = self.send_parts(socket, &parts).await;
        (result, parts)
    }

    /// Say that nothing follows, as far as the client still listens.
    pub async fn close(&self, socket: &PlainSocket) {
        self.session.borrow_mut().send_close_notify();
        // Nobody is left to be told.
        let _ = self.flush(socket).await;
    }

    /// Take opened bytes; `WouldBlock` if there are none, 0 after the client's last.
    fn take_opened(&self, room: &mut [u8]) -> io::Result<usize> {
        self.session.borrow_mut().reader().read(room)
    }

    /// Feed received records to rustls, from the socket when none are left. 0 is the end of the
    /// stream, which `take_opened` then reports.
    async fn receive_records(&self, socket: &PlainSocket) -> io::Result<usize> {
        let room = {
            let mut incoming = self.incoming.borrow_mut();
            let is_used_up = incoming.start == incoming.end;
            is_used_up.then(|| {
                let sealed = incoming.sealed.take();
                sealed.unwrap_or_else(|| BufMut::zeroed(SEALED_IN_BYTES))
            })
        };
        if let Some(room) = room {
            let (result, sealed) = socket.receive(room).await;
            let mut incoming = self.incoming.borrow_mut();
            (incoming.start, incoming.end) = (0, 0);
            incoming.sealed = Some(sealed);
            incoming.end = result?;
        }
        self.feed()
    }

    fn feed(&self) -> io::Result<usize> {
        let mut incoming = self.incoming.borrow_mut();
        let (start, end) = (incoming.start, incoming.end);
        let mut session = self.session.borrow_mut();
        let sealed = incoming.sealed.as_ref().expect("no receive is under way");
        let bytes = session.read_tls(&mut &sealed[start..end])?;
        incoming.start += bytes;
        session.process_new_packets().map_err(invalid)?;
        Ok(bytes)
    }

    /// Seal and send, as much at once as may be held. Parts that fit share a record.
    async fn send_parts(&self, socket: &PlainSocket, parts: &[Buf]) -> io::Result<()> {
        let full = parts.iter().filter(|part| !part.is_empty());
        let mut slices: Vec<IoSlice<'_>> = full.map(|part| IoSlice::new(part)).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let bytes = self.session.borrow_mut().writer().write_vectored(rest)?;
            if bytes == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut rest, bytes);
            self.flush(socket).await?;
        }
        Ok(())
    }

    /// Send everything that is sealed.
    async fn flush(&self, socket: &PlainSocket) -> io::Result<()> {
        while self.session.borrow().wants_write() {
            let outgoing = self.outgoing.take();
            let mut sealed = outgoing.unwrap_or_else(|| BufMut::zeroed(SEALED_OUT_BYTES));
            let bytes = self.session.borrow_mut().write_tls(&mut &mut sealed[..])?;
            let sealed = sealed.freeze();
            let (result, parts) = socket.send_all(vec![sealed.slice(0..bytes)]).await;
            drop(parts);
            self.outgoing.set(sealed.try_into_mut().ok());
            result?;
        }
        Ok(())
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
