//! Sockets: accept, receive, send, continued until all is through.
//!
//! A call may end early (a signal, a full socket buffer); these go on where it stopped. Not here:
//! protocols.

use super::operation::Operation;
use super::submit::{BufResult, Ring, another_operation, size};
use ashlar_iobuf::{Buf, BufMut};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl Ring {
    /// Waits for a connection.
    ///
    /// # Errors
    /// What accept(2) says.
    pub async fn accept(&self, listener: &Arc<OwnedFd>) -> io::Result<OwnedFd> {
        let accept = Operation::Accept { listener: Arc::clone(listener), accepted: None };
        let outcome = self.run(accept).await;
        outcome.result?;
        let Operation::Accept { accepted, .. } = outcome.operation else { another_operation() };
        Ok(accepted.expect("a successful accept brings a connection"))
    }

    /// Receives once, up to the buffer's length; 0 is end of stream.
    ///
    /// # Errors
    /// What recv(2) says.
    pub async fn receive(&self, socket: &Arc<OwnedFd>, buf: BufMut) -> BufResult<usize, BufMut> {
        let socket = Arc::clone(socket);
        self.receive_more(Operation::Receive { socket, buf, filled: 0, all: false }).await
    }

    /// Fills the whole buffer.
    ///
    /// # Errors
    /// `UnexpectedEof` if the stream ends before, else what recv(2) says.
    pub async fn receive_all(
        &self,
        socket: &Arc<OwnedFd>,
        mut buf: BufMut,
    ) -> BufResult<(), BufMut> {
        let mut filled = 0;
        while filled < buf.len() {
            let socket = Arc::clone(socket);
            let receive = Operation::Receive { socket, buf, filled, all: true };
            let result;
            (result, buf) = self.receive_more(receive).await;
            match result {
                Ok(0) => return (Err(io::ErrorKind::UnexpectedEof.into()), buf),
                Ok(bytes) => filled += bytes,
                Err(error) => return (Err(error), buf),
            }
        }
        (Ok(()), buf)
    }

    async fn receive_more(&self, receive: Operation) -> BufResult<usize, BufMut> {
        let outcome = self.run(receive).await;
        let Operation::Receive { buf, .. } = outcome.operation else { another_operation() };
        (outcome.result.map(size), buf)
    }

    /// Sends all bytes of all parts, in order, as one message where the kernel can.
    ///
    /// # Errors
    /// What sendmsg(2) says; how much was sent before is not known then. `WriteZero` if it sends
    /// nothing.
    pub async fn send_all(
        &self,
        socket: &Arc<OwnedFd>,
        mut parts: Vec<Buf>,
    ) -> BufResult<(), Vec<Buf>> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let mut sent = 0;
        while sent < bytes {
            let send = Operation::Send { socket: Arc::clone(socket), parts, sent };
            let outcome = self.run(send).await;
            let Operation::Send { parts: back, .. } = outcome.operation else {
                another_operation()
            };
            parts = back;
            match outcome.result {
                Ok(0) => return (Err(io::ErrorKind::WriteZero.into()), parts),
                Ok(more) => sent += size(more),
                Err(error) => return (Err(error), parts),
            }
        }
        (Ok(()), parts)
    }
}
