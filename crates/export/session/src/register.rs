//! The sessions of all workers, by number.
//!
//! What must stay true: a session is known from its first byte to its last, with the volume it
//! opened, so that stopping an array can end exactly the sessions that use it.
//! Not here: the sessions themselves. One is told to end by a message to its worker.

use ashlar_ring::Handle;
use ashlar_ring::mailbox::{Receiver, Sender, mailbox};
use ashlar_units::to_u64;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections in the handshake are at most this part of all that may be there.
const HALF_OPEN_PART: u64 = 4;

/// All sessions of an export.
#[derive(Default)]
pub struct Sessions(Mutex<Register>);

#[derive(Default)]
struct Register {
    begun: u64,
    sessions: BTreeMap<u64, Session>,
}

/// One connection.
struct Session {
    /// What it opened, once it did.
    volume: Option<String>,
    /// In the handshake, and not told to end.
    is_half_open: bool,
    /// A message ends it.
    end: Sender<()>,
}

/// A session's own line in the register; struck off when dropped.
pub struct SessionEntry {
    sessions: Arc<Sessions>,
    number: u64,
}

impl Sessions {
    /// Enter a session of the worker of `handle`. A message in the mailbox tells it to end.
    ///
    /// With more than a quarter of `sessions_max` in the handshake, the oldest of them is told to
    /// end: whoever opens many and leaves them so makes room with their own, and an honest client,
    /// which takes one round trip or a few, gets through.
    pub fn enter(
        self: &Arc<Sessions>,
        handle: &Handle,
        sessions_max: u64,
    ) -> (SessionEntry, Receiver<()>) {
        let (end, ended) = mailbox(handle);
        let mut register = self.register();
        let number = register.begun;
        register.begun += 1;
        register.sessions.insert(number, Session { volume: None, is_half_open: true, end });
        register.end_oldest_half_open(sessions_max / HALF_OPEN_PART);
        (SessionEntry { sessions: Arc::clone(self), number }, ended)
    }

    /// How many sessions opened the volume.
    pub fn users_of(&self, volume: &str) -> usize {
        let register = self.register();
        register.sessions.values().filter(|it| it.volume.as_deref() == Some(volume)).count()
    }

    /// Tell the sessions that opened the volume to end.
    pub fn end_users_of(&self, volume: &str) {
        for session in self.register().sessions.values() {
            if session.volume.as_deref() == Some(volume) {
                session.end.send(());
            }
        }
    }

    fn register(&self) -> MutexGuard<'_, Register> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Register {
    fn end_oldest_half_open(&mut self, most: u64) {
        let half_open = self.sessions.values_mut().filter(|session| session.is_half_open);
        if to_u64(half_open.count()) <= most.max(1) {
            return;
        }
        let mut half_open = self.sessions.values_mut().filter(|session| session.is_half_open);
        if let Some(oldest) = half_open.next() {
            oldest.is_half_open = false;
            oldest.end.send(());
        }
    }
}

impl SessionEntry {
    /// Note which volume it opened.
    pub fn opened(&self, volume: &str) {
        self.change(|session| session.volume = Some(volume.to_owned()));
    }

    /// Note that the handshake is over.
    pub fn began(&self) {
        self.change(|session| session.is_half_open = false);
    }

    /// The volume that it opened.
    pub fn volume(&self) -> Option<String> {
        self.sessions.register().sessions.get(&self.number)?.volume.clone()
    }

    fn change(&self, change: impl FnOnce(&mut Session)) {
        if let Some(session) = self.sessions.register().sessions.get_mut(&self.number) {
            change(session);
        }
    }
}

impl Drop for SessionEntry {
    fn drop(&mut self) {
        let gone = self.sessions.register().sessions.remove(&self.number);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::Sessions;
    use ashlar_ring::{Executor, Schedule, VirtualReactor};
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    fn is_told(receive: impl Future<Output = ()>) -> bool {
        pin!(receive).poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn users_of_a_volume_are_told_to_end_and_others_are_not() {
        let executor = Executor::new(Box::new(VirtualReactor::new()), Schedule::InOrder);
        let sessions = Arc::new(Sessions::default());
        let enter = || sessions.enter(&executor.handle(), 100);
        let [mut one, mut other, mut none] = [enter(), enter(), enter()];
        one.0.opened("a");
        other.0.opened("b");
        assert_eq!(["a", "b", "c"].map(|name| sessions.users_of(name)), [1, 1, 0]);
        sessions.end_users_of("a");
        assert!(is_told(one.1.receive()));
        assert!(!is_told(other.1.receive()));
        assert!(!is_told(none.1.receive()));
        assert_eq!(one.0.volume().as_deref(), Some("a"));
        drop(one);
        assert_eq!(sessions.users_of("a"), 0);
    }

    #[test]
    fn the_oldest_of_too_many_in_the_handshake_goes() {
        let executor = Executor::new(Box::new(VirtualReactor::new()), Schedule::InOrder);
        let sessions = Arc::new(Sessions::default());
        let enter = || sessions.enter(&executor.handle(), 8);
        let mut first = enter();
        first.0.began();
        let mut waiting = [enter(), enter()];
        assert!(!is_told(waiting[0].1.receive()));
        let _one_too_many = enter();
        assert!(is_told(waiting[0].1.receive()), "the oldest in the handshake");
        assert!(!is_told(waiting[1].1.receive()));
        assert!(!is_told(first.1.receive()), "it is past the handshake");
    }
}
