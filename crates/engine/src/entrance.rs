//! The way of clients into an array on one worker. Volumes of exports hold it, and it holds the
//! worker's share of the array. It is the one gate of all exports.
//!
//! What must stay true: there is none before the array's start is recorded and its log applied, and
//! none for a dry run: until then nobody finds the volume. While it is shut no request begins, and
//! those that come wait. The share goes when the array has stopped, and with it the devices,
//! whoever still holds the volume. Another start may put its share into one that is shut: its
//! clients have only waited.
//!
//! Not here: who opens it (`EngineState::let_clients_in`), who shuts it, and for how long
//! (`grow.rs`).

use crate::local_array::LocalArray;
use crate::worker::Worker;
use ashlar_ring::local::Signal;
use ashlar_volume::{VolumeErrorKind, VolumeFacts};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The way into an array on one worker.
pub(crate) struct Entrance {
    pub(crate) worker: Rc<Worker>,
    local: RefCell<Option<Rc<LocalArray>>>,
    /// What does not change while the array runs.
    facts: VolumeFacts,
    /// Bytes of the volume while no share is here: a growth before has made it larger.
    size_bytes: Cell<u64>,
    is_shut: Cell<bool>,
    /// A successor of this process answers what comes from here on.
    is_handed_over: Cell<bool>,
    /// Requests that are inside.
    requests: Cell<usize>,
    opened: Signal,
}

impl Entrance {
    /// An open one.
    pub(crate) fn new(local: &Rc<LocalArray>) -> Rc<Entrance> {
        Rc::new(Entrance {
            worker: Rc::clone(&local.worker),
            facts: local.facts.clone(),
            size_bytes: Cell::new(local.facts.size_bytes),
            local: RefCell::new(Some(Rc::clone(local))),
            is_shut: Cell::new(false),
            is_handed_over: Cell::new(false),
            requests: Cell::new(0),
            opened: Signal::new(),
        })
    }

    /// The name of the array.
    pub(crate) fn name(&self) -> &str {
        &self.facts.name
    }

    /// The facts of the volume. Its size never falls, also while the array starts again.
    pub(crate) fn facts(&self) -> VolumeFacts {
        let facts = self.facts.clone();
        match self.local.borrow().as_deref() {
            None => VolumeFacts { size_bytes: self.size_bytes.get(), ..facts },
            Some(LocalArray { array, .. }) => {
                let (read_only, size_bytes) = (array.is_read_only(), array.volume_bytes());
                VolumeFacts { read_only, size_bytes, ..facts }
            }
        }
    }

    /// The share that is here, if its volume has limits.
    #[inline]
    pub(crate) fn limited(&self) -> Option<Rc<LocalArray>> {
        let local = self.local.borrow();
        local.as_ref().filter(|local| local.array.tuning.limiter.is_set()).map(Rc::clone)
    }

    /// Whether requests wait here for another start of the array.
    pub(crate) fn is_shut(&self) -> bool {
        self.is_shut.get()
    }

    /// Whether who comes now would be served: not while the array stops.
    pub(crate) fn is_to_be_found(&self) -> bool {
        let local = self.local.borrow();
        self.is_shut.get() || local.as_ref().is_some_and(|local| !local.array.is_stopping())
    }

    /// Requests that are inside.
    pub(crate) fn requests(&self) -> usize {
        self.requests.get()
    }

    /// Go in at once; `None` while it is shut.
    ///
    /// # Errors
    /// If the array was stopped, or could not be started again.
    #[inline]
    pub(crate) fn try_enter(&self) -> Result<Option<Inside<'_>>, VolumeErrorKind> {
        if self.is_shut.get() {
            return Ok(None);
        }
        let local = self.local.borrow().as_ref().map(Rc::clone).ok_or(VolumeErrorKind::Stopped)?;
        self.requests.set(self.requests.get() + 1);
        Ok(Some(Inside { entrance: self, local }))
    }

    /// Go in, once it is open. Who comes after a successor has taken over waits for that one.
    ///
    /// # Errors
    /// As [`Entrance::try_enter`].
    pub(crate) async fn enter(&self) -> Result<Inside<'_>, VolumeErrorKind> {
        loop {
            if self.is_handed_over.get() {
                return std::future::pending().await;
            }
            let change = self.opened.changed();
            if let Some(inside) = self.try_enter()? {
                return Ok(inside);
            }
            change.await;
        }
    }

    /// From now on nobody goes in.
    pub(crate) fn shut(&self) {
        self.is_shut.set(true);
    }

    /// The array was stopped: its share goes, and with it the devices.
    ///
    /// # Panics
    /// If somebody is inside one that is shut.
    pub(crate) fn vacate(&self) {
        let is_empty = !self.is_shut.get() || self.requests.get() == 0;
        assert!(is_empty, "clients were waited for");
        if let Some(local) = self.local.take() {
            self.size_bytes.set(local.array.volume_bytes());
            self.is_handed_over.set(local.array.is_handed_over());
        }
    }

    /// Whoever waits goes in, to this share. None: the array could not be started again.
    pub(crate) fn open(&self, local: Option<Rc<LocalArray>>) {
        *self.local.borrow_mut() = local;
        self.is_shut.set(false);
        self.opened.notify_all();
    }
}

/// A request inside. It is out when this is dropped.
pub(crate) struct Inside<'e> {
    entrance: &'e Entrance,
    pub(crate) local: Rc<LocalArray>,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.entrance.requests.set(self.entrance.requests.get() - 1);
    }
}
