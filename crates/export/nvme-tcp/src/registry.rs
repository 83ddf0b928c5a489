//! The controllers of all hosts, and the queues that belong to each.
//!
//! What must stay true: a controller is in here from its Connect until its admin queue ends; a
//! queue belongs to one controller and has an identifier of its own there; when a controller goes,
//! its I/O queues are told to end.

use crate::target::HostTerms;
use ashlar_nvme_protocol::Status;
use ashlar_nvme_protocol::identify::ControllerKind;
use ashlar_nvme_protocol::log::ReservationNotice;
use ashlar_nvme_protocol::nqn::Host;
use ashlar_ring::mailbox::Sender;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Told to the admin queue of a controller.
pub(crate) enum AdminMessage {
    /// A namespace appeared, disappeared or changed.
    Namespace(u32),
    /// The discovery log page changed.
    Discovery,
    /// Something happened to a reservation.
    Reservation(ReservationNotice),
    /// An I/O queue answers: whether the command that this Abort named was given up.
    Aborted { abort: u16, was: bool },
    /// A change of reservation persistence came through, or did not.
    Persisted { command: u16, result: Result<(), Status> },
    /// The host shuts the controller down: make everything durable.
    ShutDown,
    /// End the controller.
    End,
}

/// Told to an I/O queue.
pub(crate) enum IoMessage {
    /// The table of namespaces changed: forget what is open.
    Namespaces,
    /// Give this command up if it has not begun, and tell the admin queue.
    Abort { command: u16, abort: u16, admin: Sender<AdminMessage> },
    /// End the queue.
    End,
}

/// One controller.
pub(crate) struct ControllerEntry {
    pub id: u16,
    pub host: Host,
    pub kind: ControllerKind,
    /// On which terms its host is let in.
    pub terms: HostTerms,
    pub admin: Sender<AdminMessage>,
    is_ready: AtomicBool,
    has_traffic: AtomicBool,
    queues: Mutex<BTreeMap<u16, Sender<IoMessage>>>,
}

impl ControllerEntry {
    /// Whether I/O queues may be connected and used.
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    pub fn set_ready(&self, is_ready: bool) {
        self.is_ready.store(is_ready, Ordering::Release);
    }

    /// A command came on any queue.
    pub fn saw_traffic(&self) {
        // Read first: a line that all queues write would travel between cores.
        if !self.has_traffic.load(Ordering::Relaxed) {
            self.has_traffic.store(true, Ordering::Relaxed);
        }
    }

    /// Whether one came since this was asked last.
    pub fn take_traffic(&self) -> bool {
        self.has_traffic.swap(false, Ordering::Relaxed)
    }

    /// A new queue; `None` if there is one with this identifier.
    pub fn add_queue(
        self: &Arc<ControllerEntry>,
        id: u16,
        queue: Sender<IoMessage>,
    ) -> Option<QueueEntry> {
        let mut queues = locked(&self.queues);
        if queues.contains_key(&id) {
            return None;
        }
        queues.insert(id, queue);
        let has_left = AtomicBool::new(false);
        Some(QueueEntry { controller: Arc::clone(self), id, has_left })
    }

    /// Tell one queue; `false` if it is not there.
    pub fn tell_queue(&self, id: u16, message: IoMessage) -> bool {
        let queue = locked(&self.queues).get(&id).cloned();
        let is_there = queue.is_some();
        if let Some(queue) = queue {
            queue.send(message);
        }
        is_there
    }

    /// Tell all queues.
    pub fn tell_queues(&self, message: impl Fn() -> IoMessage) {
        locked(&self.queues).values().for_each(|queue| queue.send(message()));
    }
}

/// A queue's own place in its controller; given up when dropped.
pub(crate) struct QueueEntry {
    pub controller: Arc<ControllerEntry>,
    id: u16,
    has_left: AtomicBool,
}

impl QueueEntry {
    /// Free the identifier: before the host can see that the queue has ended, or it would be told
    /// that its next queue is one too many.
    pub fn leave(&self) {
        if !self.has_left.swap(true, Ordering::AcqRel) {
            locked(&self.controller.queues).remove(&self.id);
        }
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        self.leave();
    }
}

/// All controllers.
#[derive(Default)]
pub(crate) struct Registry(Mutex<Controllers>);

#[derive(Default)]
struct Controllers {
    by_id: BTreeMap<u16, Arc<ControllerEntry>>,
    last: u16,
}

/// A controller's own place; given up when dropped, with all its I/O queues.
pub(crate) struct ControllerPlace {
    registry: Arc<Registry>,
    pub entry: Arc<ControllerEntry>,
}

/// Highest CNTLID that may be given.
const ID_MAX: u16 = 0xffef;

/// What a new controller is made of.
pub(crate) struct NewController {
    pub host: Host,
    pub kind: ControllerKind,
    pub terms: HostTerms,
    pub admin: Sender<AdminMessage>,
}

impl Registry {
    /// Enter a controller; `None` if there are `most` of them.
    pub fn enter(self: &Arc<Registry>, new: NewController, most: usize) -> Option<ControllerPlace> {
        let mut controllers = self.controllers();
        if controllers.by_id.len() >= most.min(usize::from(ID_MAX)) {
            return None;
        }
        let mut id = controllers.last;
        loop {
            id = if id >= ID_MAX { 1 } else { id + 1 };
            if !controllers.by_id.contains_key(&id) {
                break;
            }
        }
        let entry = Arc::new(ControllerEntry {
            id,
            host: new.host,
            kind: new.kind,
            terms: new.terms,
            admin: new.admin,
            is_ready: AtomicBool::new(false),
            has_traffic: AtomicBool::new(false),
            queues: Mutex::default(),
        });
        controllers.last = id;
        controllers.by_id.insert(id, Arc::clone(&entry));
        Some(ControllerPlace { registry: Arc::clone(self), entry })
    }

    /// The controller of this CNTLID.
    pub fn find(&self, id: u16) -> Option<Arc<ControllerEntry>> {
        self.controllers().by_id.get(&id).cloned()
    }

    /// All controllers of a kind, by rising identifiers.
    pub fn of_kind(&self, kind: ControllerKind) -> Vec<Arc<ControllerEntry>> {
        let controllers = self.controllers();
        controllers.by_id.values().filter(|it| it.kind == kind).cloned().collect()
    }

    /// Controllers.
    pub fn count(&self) -> usize {
        self.controllers().by_id.len()
    }

    fn controllers(&self) -> MutexGuard<'_, Controllers> {
        locked(&self.0)
    }
}

impl Drop for ControllerPlace {
    fn drop(&mut self) {
        self.registry.controllers().by_id.remove(&self.entry.id);
        self.entry.set_ready(false);
        self.entry.tell_queues(|| IoMessage::End);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
