//! The size of a device whose volume grows while a frontend has it.
//!
//! What must stay true: the device says the new size before the frontend is told of a change; a
//! frontend that does not take its notices loses these and nothing else.

use crate::session::VhostServer;
use crate::wire::{self, notice};
use ashlar_iobuf::Buf;
use ashlar_ring::mailbox::Receiver;
use ashlar_ring::within;
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// How large the device is, and where its frontend hears of a change.
pub(crate) struct Growth {
    size_bytes: Cell<u64>,
    channel: RefCell<Option<Arc<OwnedFd>>>,
}

impl Growth {
    /// Of a device of this size; its frontend does not listen yet.
    pub(crate) fn new(size_bytes: u64) -> Growth {
        Growth { size_bytes: Cell::new(size_bytes), channel: RefCell::default() }
    }

    /// The size now.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes.get()
    }

    /// The frontend listens at the other end of this socket.
    pub(crate) fn listen_at(&self, channel: OwnedFd) {
        self.channel.replace(Some(Arc::new(channel)));
    }

    /// Take every size of `sizes`, and tell the frontend. Does not resolve.
    pub(crate) async fn follow(&self, server: &VhostServer, mut sizes: Receiver<u64>) {
        loop {
            self.size_bytes.set(sizes.receive().await);
            let channel = self.channel.borrow().clone();
            if let Some(channel) = channel
                && !is_told(server, &channel).await
            {
                self.channel.take();
            }
        }
    }
}

/// Whether the notice went out.
async fn is_told(server: &VhostServer, channel: &Arc<OwnedFd>) -> bool {
    let bytes = wire::notice(notice::CONFIG_CHANGED);
    let length = bytes.len();
    let sending = server.ring.send_with(channel, vec![Buf::copied(&bytes)], Vec::new());
    let sent = within(&server.handle, server.limits.send_time, sending).await;
    sent.is_some_and(|(sent, _)| sent.is_ok_and(|sent| sent == length))
}
