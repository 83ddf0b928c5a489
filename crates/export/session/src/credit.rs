//! What one session may have in flight: slots, bytes of payload, and of its address's share of
//! buffers.
//!
//! What must stay true: whoever takes a ticket holds its slot and its bytes until the ticket is
//! dropped.

use crate::share::Share;
use ashlar_ring::local::{Permit, Semaphore, Signal};
use std::cell::Cell;
use std::rc::Rc;

/// What one session may have in flight.
pub struct Credit {
    slots: Semaphore,
    bytes_max: u64,
    share: Option<Rc<Share>>,
    held: Rc<Held>,
}

struct Held {
    bytes: Cell<u64>,
    /// Told when a ticket went back.
    released: Signal,
}

/// A slot, and a share of the session's bytes. Goes back when dropped.
pub struct Ticket {
    bytes: u64,
    held: Rc<Held>,
    slot: Option<Permit>,
    of_share: Option<Permit>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        drop((self.slot.take(), self.of_share.take()));
        self.held.bytes.set(self.held.bytes.get() - self.bytes);
        self.held.released.notify_all();
    }
}

impl Credit {
    /// A number of slots and of bytes, for a session whose address has this share of the buffers;
    /// none if it is of this machine.
    pub fn new(slots: usize, bytes_max: u64, share: Option<Rc<Share>>) -> Credit {
        let held = Rc::new(Held { bytes: Cell::new(0), released: Signal::new() });
        Credit { slots: Semaphore::new(slots), bytes_max, share, held }
    }

    /// Wait for a slot, for room for `bytes` in one buffer, and for that buffer's place in the
    /// address's share. An idle session has room for any one piece.
    pub async fn ticket(&self, bytes: u64) -> Ticket {
        let slot = self.slots.acquire().await;
        while self.held.bytes.get() > 0 && self.held.bytes.get() + bytes > self.bytes_max {
            self.held.released.changed().await;
        }
        // It counts while it waits for the address's share: others of the session do not overtake.
        self.held.bytes.set(self.held.bytes.get() + bytes);
        let mut ticket =
            Ticket { bytes, held: self.held.clone(), slot: Some(slot), of_share: None };
        if let Some(share) = &self.share {
            ticket.of_share = share.take(bytes).await;
        }
        ticket
    }

    /// Wait until every ticket is back.
    pub async fn all_back(&self) {
        while self.slots.in_use() > 0 {
            self.held.released.changed().await;
        }
    }
}
