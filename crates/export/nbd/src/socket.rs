//! The socket of one connection: in clear text, or through TLS once the client has asked for it.
//!
//! What must stay true: a connection in clear text pays one comparison a call for TLS. A secured
//! connection never returns to clear text. One task receives and one sends at a time, and each may
//! be dropped at any moment. Not here: what the bytes mean, and which clients must use TLS
//! (`negotiate`).

use crate::tls::{Channel, TlsTerms};
use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::{BufResult, Ring};
use std::cell::OnceCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// Both directions of a connection.
pub struct Socket {
    ring: Ring,
    descriptor: Arc<OwnedFd>,
    tls: OnceCell<Channel>,
}

impl Socket {
    pub fn new(ring: Ring, descriptor: OwnedFd) -> Rc<Socket> {
        Rc::new(Socket { ring, descriptor: Arc::new(descriptor), tls: OnceCell::new() })
    }

    /// Receive once, up to the buffer's length; 0 is the end of the stream.
    ///
    /// # Errors
    /// What the socket says; `InvalidData` if it is not what the TLS peer sent, `UnexpectedEof` if
    /// it was cut off.
    pub async fn receive(&self, buf: BufMut) -> BufResult<usize, BufMut> {
        match self.tls.get() {
            None => self.ring.receive(&self.descriptor, buf).await,
            // In a box, so that sessions in clear text need not have room for it.
            Some(channel) => Box::pin(channel.receive(self, buf)).await,
        }
    }

    /// Fill the whole buffer.
    ///
    /// # Errors
    /// `UnexpectedEof` if the stream ends before; else as [`Socket::receive`].
    pub async fn receive_all(&self, buf: BufMut) -> BufResult<(), BufMut> {
        match self.tls.get() {
            None => self.ring.receive_all(&self.descriptor, buf).await,
            Some(channel) => Box::pin(channel.receive_all(self, buf)).await,
        }
    }

    /// Send all bytes of all parts, in order.
    ///
    /// # Errors
    /// What the socket says; how much was sent is not known then.
    pub async fn send_all(&self, parts: Vec<Buf>) -> BufResult<(), Vec<Buf>> {
        match self.tls.get() {
            None => self.ring.send_all(&self.descriptor, parts).await,
            Some(channel) => Box::pin(channel.send_all(self, parts)).await,
        }
    }

    /// Make a TLS session of the connection, before anything is sent or received through it.
    ///
    /// # Errors
    /// The client shows no certificate that these terms accept, or breaks the protocol off.
    ///
    /// # Panics
    /// If it is one already.
    pub async fn secure(&self, terms: &TlsTerms) -> io::Result<()> {
        let channel = Box::pin(Channel::open(self, terms)).await?;
        assert!(self.tls.set(channel).is_ok(), "a connection is secured once");
        Ok(())
    }

    /// Tell a TLS peer that nothing follows. Nothing else may be sending.
    pub async fn say_goodbye(&self) {
        if let Some(channel) = self.tls.get() {
            Box::pin(channel.close(self)).await;
        }
    }

    /// End both directions at once; tasks that wait for one of them get an error.
    pub fn break_off(&self) {
        // It can only fail because the peer was faster.
        let _ = rustix::net::shutdown(&*self.descriptor, rustix::net::Shutdown::Both);
    }

    /// Receive what the network carries, TLS or not.
    pub async fn receive_raw(&self, buf: BufMut) -> BufResult<usize, BufMut> {
        self.ring.receive(&self.descriptor, buf).await
    }

    /// Send what the network is to carry.
    pub async fn send_raw(&self, parts: Vec<Buf>) -> BufResult<(), Vec<Buf>> {
        self.ring.send_all(&self.descriptor, parts).await
    }
}
