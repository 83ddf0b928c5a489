//! The socket of one connection: in clear text, or through TLS once the client has asked for it.
//!
//! What must stay true: a connection in clear text pays one comparison a call for TLS. A secured
//! connection never returns to clear text. One task receives and one sends at a time, and each may
//! be dropped at any moment. Not here: what the bytes mean, and which clients must use TLS
//! (`negotiate`).

use crate::tls::{Channel, TlsTerms};
use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::{BufResult, Ring};
use ashlar_session::{PlainSocket, Stream};
use std::cell::OnceCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Both directions of a connection.
pub struct Socket {
    /// What the network carries, TLS or not.
    plain: PlainSocket,
    tls: OnceCell<Channel>,
}

impl Socket {
    pub fn new(ring: Ring, descriptor: OwnedFd) -> io::Result<Rc<Socket>> {
        let plain = PlainSocket::new(ring, descriptor)?;
        Ok(Rc::new(Socket { plain, tls: OnceCell::new() }))
    }

    /// Make a TLS session of the connection, before anything is sent or received through it.
    ///
    /// # Errors
    /// The client shows no certificate that these terms accept, or breaks the protocol off.
    ///
    /// # Panics
    /// If it is one already.
    pub async fn secure(&self, terms: &TlsTerms) -> io::Result<()> {
        let channel = Box::pin(Channel::open(&self.plain, terms)).await?;
        assert!(self.tls.set(channel).is_ok(), "a connection is secured once");
        Ok(())
    }

    /// Tell a TLS peer that nothing follows. Nothing else may be sending.
    pub async fn say_goodbye(&self) {
        if let Some(channel) = self.tls.get() {
            Box::pin(channel.close(&self.plain)).await;
        }
    }
}

/// Receiving also fails with `InvalidData` if the bytes are not what the TLS peer sent, and with
/// `UnexpectedEof` if it was cut off.
impl Stream for Socket {
    async fn receive(&self, buf: BufMut) -> BufResult<usize, BufMut> {
        match self.tls.get() {
            None => self.plain.receive(buf).await,
            // In a box, so that sessions in clear text need not have room for it.
            Some(channel) => Box::pin(channel.receive(&self.plain, buf)).await,
        }
    }

    async fn receive_all(&self, buf: BufMut) -> BufResult<(), BufMut> {
        match self.tls.get() {
            None => self.plain.receive_all(buf).await,
            Some(channel) => Box::pin(channel.receive_all(&self.plain, buf)).await,
        }
    }

    async fn send_all(&self, parts: Vec<Buf>) -> BufResult<(), Vec<Buf>> {
        match self.tls.get() {
            None => self.plain.send_all(parts).await,
            Some(channel) => Box::pin(channel.send_all(&self.plain, parts)).await,
        }
    }

    fn break_off(&self) {
        self.plain.break_off();
    }
}
