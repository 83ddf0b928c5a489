//! Sockets beyond plain bytes: descriptors beside a message, and sends without a copy.
//!
//! What must stay true: parts that were sent without a copy are not given back before the kernel is
//! done with them, which may be as late as the peer's answer to the last byte. Not here: plain
//! sends (`stream`).

use super::descriptors::{ReceivedDescriptors, SentDescriptors};
use super::in_flight::Done;
use super::operation::{Operation, OperationOutcome};
use super::submit::{BufResult, CancelOnDrop, Ring, another_operation, size};
use crate::Pending;
use ashlar_iobuf::{Buf, BufMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl Ring {
    /// Sends once, with descriptors beside the first byte; may send less than all parts. How much
    /// it was.
    ///
    /// # Errors
    /// What sendmsg(2) says.
    ///
    /// # Panics
    /// If there are more than [`DESCRIPTORS_MAX`](crate::DESCRIPTORS_MAX) descriptors.
    pub async fn send_with(
        &self,
        socket: &Arc<OwnedFd>,
        parts: Vec<Buf>,
        descriptors: Vec<Arc<OwnedFd>>,
    ) -> BufResult<usize, Vec<Buf>> {
        let (socket, with) = (Arc::clone(socket), SentDescriptors::new(descriptors));
        let outcome = self.run(Operation::SendWith { socket, parts, with }).await;
        let Operation::SendWith { parts, .. } = outcome.operation else { another_operation() };
        (outcome.result.map(size), parts)
    }

    /// Receives once, up to the buffer's length (0 is the end of the stream), and the descriptors
    /// that came with it.
    ///
    /// # Errors
    /// What recvmsg(2) says; `InvalidData` if more descriptors came than
    /// [`DESCRIPTORS_MAX`](crate::DESCRIPTORS_MAX): they are closed.
    pub async fn receive_with(
        &self,
        socket: &Arc<OwnedFd>,
        buf: BufMut,
    ) -> BufResult<(usize, Vec<OwnedFd>), BufMut> {
        let (socket, with) = (Arc::clone(socket), ReceivedDescriptors::new());
        let outcome = self.run(Operation::ReceiveWith { socket, buf, with }).await;
        let Operation::ReceiveWith { buf, with, .. } = outcome.operation else {
            another_operation()
        };
        (outcome.result.map(|bytes| (size(bytes), with.descriptors)), buf)
    }

    /// Sends once without a copy, from byte `sent` of the parts on; may send less than all.
    /// Resolves when that is queued, so that the next send may begin; the hold tells when the parts
    /// are free.
    ///
    /// # Errors
    /// What sendmsg(2) says; `InvalidInput` from a kernel that cannot (before 6.1).
    pub async fn send_uncopied(
        &self,
        socket: &Arc<OwnedFd>,
        parts: Vec<Buf>,
        sent: usize,
    ) -> BufResult<usize, SendHold> {
        let (queued, told) = self.shared.queued.pair();
        let (done, pending) = self.shared.one_shots.pair();
        let (socket, queued) = (Arc::clone(socket), Some(queued));
        let send = Operation::SendUncopied { socket, parts, sent, queued, was_copied: false };
        let ticket = self.shared.in_flight.borrow_mut().start(send, Done::OneShot(done));
        let mut guard = CancelOnDrop { ring: self, ticket: Some(ticket) };
        let told = told.await;
        guard.ticket = None;
        match told {
            Some(result) => (result.map(size), SendHold { pending }),
            // There is nothing to wait for any more.
            None => {
                let OperationOutcome { result, operation } = end_of(pending).await;
                let ended = OperationOutcome { result: Ok(0), operation };
                (result.map(size), SendHold { pending: Pending::ready(ended) })
            }
        }
    }
}

/// Parts that were sent without a copy, and that the kernel may still read. Dropping it gives them
/// back as soon as the kernel is done.
pub struct SendHold {
    pending: Pending<OperationOutcome>,
}

impl SendHold {
    /// Waits until the kernel is done with the parts. Whether it copied them after all, as it does
    /// for peers on this machine: then a plain send would have cost less.
    pub async fn released(self) -> (Vec<Buf>, bool) {
        let Operation::SendUncopied { parts, was_copied, .. } =
            end_of(self.pending).await.operation
        else {
            another_operation()
        };
        (parts, was_copied)
    }
}

async fn end_of(pending: Pending<OperationOutcome>) -> OperationOutcome {
    pending.await.expect("a ring reaps all")
}
