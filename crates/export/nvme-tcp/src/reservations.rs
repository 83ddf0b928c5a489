//! How the reservations of a namespace change, survive, and keep others out.
//!
//! What must stay true: a change is stored before it counts and before it is answered; if it cannot
//! be stored, nothing has changed. A host that lost its rights has no command under way when the
//! one that took them is answered. Changes of one namespace come one after the other; they wait for
//! files, so they are made aside and never on a worker.

use ashlar_nvme_protocol::Status;
use ashlar_nvme_protocol::command::{
    IoCommand, ReservationAcquire, ReservationRegister, ReservationRelease,
};
use ashlar_nvme_protocol::nqn::HostId;
use ashlar_nvme_protocol::reservation::{
    Keys, NotReservations, Notified, ReportedController, Reservations,
};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Carries work out on a thread that may wait.
pub type Aside = Arc<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

/// Where reservations outlive the process. Called aside; may wait.
pub trait ReservationStore: Send + Sync {
    /// What was stored last for the namespace with this NGUID. The flag says whether this host has
    /// been up all the time since: then what was stored counts, whether it was to survive a loss of
    /// power or not.
    ///
    /// # Errors
    /// It cannot be read: the namespace must not be served.
    fn load(&self, nguid: &[u8; 16]) -> io::Result<Option<(Vec<u8>, bool)>>;

    /// Store it; durable when this returns.
    ///
    /// # Errors
    /// It may or may not have been stored.
    fn save(&self, nguid: &[u8; 16], bytes: &[u8]) -> io::Result<()>;
}

/// The reservations of one namespace, and the commands that they can keep out.
pub(crate) struct Fence {
    state: Mutex<Reservations>,
    /// Whether any reservation is held: if not, commands look no further.
    is_held: AtomicBool,
    /// Held by a change from its beginning to its end.
    changing: Mutex<()>,
    under_way: Mutex<Vec<(HostId, Weak<UnderWay>)>>,
}

/// Commands of one queue that read or write the namespace now.
#[derive(Default)]
pub(crate) struct UnderWay(AtomicU64);

/// One such command.
pub(crate) struct Passing(Arc<UnderWay>);

impl Drop for Passing {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What a reservation command wants changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Register(ReservationRegister, Keys),
    Acquire(ReservationAcquire, Keys),
    Release(ReservationRelease, u64),
    /// Set Features, Reservation Persistence.
    Persist(bool),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why the reservations of a namespace cannot be known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("its stored reservations cannot be read: {0}")]
    Read(io::Error),
    #[error("its stored reservations cannot be used: {0}")]
    Content(NotReservations),
}

impl Fence {
    /// What the store knows of a namespace.
    pub fn load(store: &dyn ReservationStore, nguid: &[u8; 16]) -> Result<Fence, LoadError> {
        let state = match store.load(nguid).map_err(LoadError::Read)? {
            None => Reservations::default(),
            Some((bytes, was_up)) => {
                let state = Reservations::from_bytes(&bytes, nguid).map_err(LoadError::Content)?;
                if was_up || state.persists() { state } else { Reservations::default() }
            }
        };
        Ok(Fence::new(state))
    }

    fn new(state: Reservations) -> Fence {
        Fence {
            is_held: AtomicBool::new(state.kind().is_some()),
            state: Mutex::new(state),
            changing: Mutex::new(()),
            under_way: Mutex::new(Vec::new()),
        }
    }

    /// A queue of `host` begins to use the namespace.
    pub fn enter(&self, host: HostId) -> Arc<UnderWay> {
        let own = Arc::new(UnderWay::default());
        let mut all = locked(&self.under_way);
        all.retain(|(_, it)| it.strong_count() > 0);
        all.push((host, Arc::downgrade(&own)));
        own
    }

    /// Let a command through, or not. While the value lives, the command is under way.
    ///
    /// The order matters: first it is under way, then it looks. A change does it the other way
    /// round, so one of the two sees the other.
    pub fn pass(
        &self,
        own: &Arc<UnderWay>,
        host: HostId,
        command: &IoCommand,
    ) -> Result<Passing, Status> {
        own.0.fetch_add(1, Ordering::SeqCst);
        let passing = Passing(Arc::clone(own));
        if self.is_held.load(Ordering::SeqCst) {
            locked(&self.state).admit(host, command)?;
        }
        Ok(passing)
    }

    /// Whether a command of a host that lost its rights is still under way.
    pub fn is_passed_by_others(&self, write: &IoCommand) -> bool {
        let state = locked(&self.state);
        let is_busy =
            |it: &Weak<UnderWay>| it.upgrade().is_some_and(|it| it.0.load(Ordering::SeqCst) > 0);
        let all = locked(&self.under_way);
        all.iter().any(|(host, it)| state.admit(*host, write).is_err() && is_busy(it))
    }

    /// Make a change: aside, because storing it waits.
    ///
    /// # Errors
    /// The [`Status`] to answer with; then nothing has changed.
    pub fn change(
        &self,
        store: &dyn ReservationStore,
        nguid: &[u8; 16],
        host: HostId,
        change: &Change,
    ) -> Result<Notified, Status> {
        let _one_at_a_time = locked(&self.changing);
        let before = locked(&self.state).clone();
        let mut after = before.clone();
        let notified = match change {
            Change::Register(command, keys) => after.register(host, command, *keys)?,
            Change::Acquire(command, keys) => after.acquire(host, command, *keys)?,
            Change::Release(command, key) => after.release(host, command, *key)?,
            Change::Persist(persists) => {
                after.set_persists(*persists);
                Notified::default()
            }
        };
        if after == before {
            return Ok(notified);
        }
        if store.save(nguid, &after.to_bytes(nguid)).is_err() {
            return Err(Status::INTERNAL_ERROR);
        }
        let is_held = after.kind().is_some();
        *locked(&self.state) = after;
        self.is_held.store(is_held, Ordering::SeqCst);
        Ok(notified)
    }

    /// The answer to Reservation Report.
    pub fn report(&self, controllers: &[ReportedController]) -> Vec<u8> {
        locked(&self.state).report(controllers)
    }

    /// Whether the reservations survive a loss of power.
    pub fn persists(&self) -> bool {
        locked(&self.state).persists()
    }
}
