//! The two directions of a connection as bytes, and the socket in clear text.
//!
//! What must stay true: one task receives and one sends at a time, and each may be dropped at any
//! moment. Not here: what the bytes mean.

use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::{BufResult, Ring};
use rustix::net::{AddressFamily, Shutdown, sockopt};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Both directions of a connection.
pub trait Stream {
    /// Receive once, up to the buffer's length; 0 is the end of the stream.
    fn receive(&self, buf: BufMut) -> impl Future<Output = BufResult<usize, BufMut>>;

    /// Fill the whole buffer. `UnexpectedEof` if the stream ends before.
    fn receive_all(&self, buf: BufMut) -> impl Future<Output = BufResult<(), BufMut>>;

    /// Send all bytes of all parts, in order. How much was sent is not known after an error.
    fn send_all(&self, parts: Vec<Buf>) -> impl Future<Output = BufResult<(), Vec<Buf>>>;

    /// End both directions at once; tasks that wait for one of them get an error.
    fn break_off(&self);
}

/// A connected socket in clear text.
pub struct PlainSocket {
    ring: Ring,
    descriptor: Arc<OwnedFd>,
}

impl PlainSocket {
    /// A socket that sends each answer at once and notices a peer that is gone.
    ///
    /// # Errors
    /// What the socket says.
    pub fn new(ring: Ring, descriptor: OwnedFd) -> io::Result<PlainSocket> {
        if sockopt::socket_domain(&descriptor)? != AddressFamily::UNIX {
            sockopt::set_tcp_nodelay(&descriptor, true)?;
            sockopt::set_socket_keepalive(&descriptor, true)?;
        }
        Ok(PlainSocket { ring, descriptor: Arc::new(descriptor) })
    }
}

impl Stream for PlainSocket {
    async fn receive(&self, buf: BufMut) -> BufResult<usize, BufMut> {
        self.ring.receive(&self.descriptor, buf).await
    }

    async fn receive_all(&self, buf: BufMut) -> BufResult<(), BufMut> {
        self.ring.receive_all(&self.descriptor, buf).await
    }

    async fn send_all(&self, parts: Vec<Buf>) -> BufResult<(), Vec<Buf>> {
        self.ring.send_all(&self.descriptor, parts).await
    }

    fn break_off(&self) {
        // It can only fail because the peer was faster.
        let _ = rustix::net::shutdown(&*self.descriptor, Shutdown::Both);
    }
}
