//! Sends that a client does not read.
//!
//! What must stay true: a client that neither reads nor writes holds a session no longer than its
//! limits say; a send costs no timer.

use ashlar_ring::Handle;
use ashlar_units::Nanos;
use std::cell::Cell;
use std::rc::Weak;
use std::time::Duration;

/// Since when a send is under way that its client does not read.
#[derive(Default)]
pub struct Stall {
    since: Cell<Option<Nanos>>,
}

impl Stall {
    /// A send begins.
    pub fn begin(&self, now: Nanos) {
        self.since.set(Some(now));
    }

    /// It has ended.
    pub fn end(&self) {
        self.since.set(None);
    }

    /// Give a session up when one send takes longer than `send_time`. Looks four times in that
    /// time; holds nothing, so that it never keeps a session. Ends with the session.
    pub async fn watch<S: Sends>(session: Weak<S>, handle: Handle, send_time: Duration) {
        loop {
            handle.sleep(send_time / 4).await;
            let Some(session) = session.upgrade() else { return };
            let since = session.stall().since.get();
            if since.is_some_and(|since| handle.turn_now().since(since) >= send_time) {
                return session.give_up();
            }
        }
    }
}

/// The sending half of a session.
pub trait Sends {
    /// Since when it sends.
    fn stall(&self) -> &Stall;

    /// The client does not read: end the send that is under way, so that everything it holds goes
    /// back.
    fn give_up(&self);
}
