//! What all handles and workers of an engine share: its configuration, its arrays, and the way to
//! its workers.
//!
//! What must stay true: work for a worker is sent to it and runs there, never on the caller's
//! thread.

use crate::array::{Array, ArrayId};
use crate::config::EngineConfig;
use crate::error::Refusal;
use crate::event::{EventLog, names};
use crate::local_array::LocalArray;
use crate::spare::SparePools;
use crate::worker::{Message, Worker, WorkerLoad};
use ashlar_ondisk::{ArrayName, Superblock};
use ashlar_ring::contained;
use ashlar_ring::mailbox::Sender;
use futures_channel::oneshot;
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

/// What all handles and workers of an engine share.
pub(crate) struct EngineState {
    pub(crate) config: EngineConfig,
    pub(crate) events: Arc<EventLog>,
    pub(crate) spares: Arc<SparePools>,
    pub(crate) loads: Vec<Arc<WorkerLoad>>,
    pub(crate) peers: Box<[Sender<Message>]>,
    arrays: Mutex<Vec<Option<Arc<Array>>>>,
    /// Arrays that are being started, and do not run yet.
    starting: Mutex<Vec<Starting>>,
    /// Arrays that start again while their clients wait. They keep their numbers and names.
    restarting: Mutex<Vec<ArrayId>>,
}

/// An array that is being started.
#[derive(Clone, Copy)]
struct Starting {
    id: ArrayId,
    uuid: Uuid,
    name: ArrayName,
}

/// A number that an array which is being started has for itself, and its name; let go when dropped.
pub(crate) struct Reserved<'r> {
    engine_state: &'r EngineState,
    pub(crate) id: ArrayId,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.engine_state.starting().retain(|starting| starting.id != self.id);
    }
}

/// An array that starts again while its clients wait; it does so no more when this is dropped.
pub(crate) struct Restarting {
    engine_state: Arc<EngineState>,
    pub(crate) id: ArrayId,
}

impl Drop for Restarting {
    fn drop(&mut self) {
        self.engine_state.restarting().retain(|id| *id != self.id);
    }
}

/// Events kept for followers.
const EVENTS_KEPT: usize = 4096;

impl EngineState {
    pub(crate) fn new(config: EngineConfig, peers: Box<[Sender<Message>]>) -> EngineState {
        let engine_state = EngineState {
            events: Arc::new(EventLog::new(EVENTS_KEPT)),
            spares: Arc::default(),
            loads: peers.iter().map(|_| Arc::default()).collect(),
            peers,
            arrays: Mutex::default(),
            starting: Mutex::default(),
            restarting: Mutex::default(),
            config,
        };
        engine_state.record_kernel();
        engine_state
    }

    /// Which kernel was chosen shows in the events from the first one on.
    fn record_kernel(&self) {
        let because = match &self.config.kernel {
            Some(_) => "asked for by name",
            None => "the best this CPU has",
        };
        if let Ok(kernel) = self.config.parity_kernel() {
            let fields =
                vec![("kernel", kernel.name().to_owned()), ("because", because.to_owned())];
            self.events.record(names::KERNEL_CHOSEN, "", fields);
        }
    }

    pub(crate) fn arrays(&self) -> MutexGuard<'_, Vec<Option<Arc<Array>>>> {
        self.arrays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn starting(&self) -> MutexGuard<'_, Vec<Starting>> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Arrays that are being started, by UUID and name.
    pub(crate) fn being_started(&self) -> Vec<(Uuid, String)> {
        let starting = self.starting();
        starting.iter().map(|it| (it.uuid, it.name.as_str().to_owned())).collect()
    }

    fn restarting(&self) -> MutexGuard<'_, Vec<ArrayId>> {
        self.restarting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The array of this number starts again from now on; `None` if it does so already.
    pub(crate) fn begin_restart(
        engine_state: &Arc<EngineState>,
        id: ArrayId,
    ) -> Option<Restarting> {
        let mut restarting = engine_state.restarting();
        if restarting.contains(&id) {
            return None;
        }
        restarting.push(id);
        Some(Restarting { engine_state: Arc::clone(engine_state), id })
    }

    /// Whether the array of this number starts again, so that its number and name stay taken.
    pub(crate) fn is_restarting(&self, id: ArrayId) -> bool {
        self.restarting().contains(&id)
    }

    /// A free number for an array that is about to be started.
    ///
    /// # Errors
    /// If it, or another one of its name, runs or is being started.
    pub(crate) fn reserve(&self, superblock: &Superblock) -> Result<Reserved<'_>, Refusal> {
        let (uuid, name) = (superblock.array_uuid, superblock.array_name);
        let (mut arrays, mut starting) = (self.arrays(), self.starting());
        let is_it = |array: &Arc<Array>| {
            array.name() == name.as_str() || array.identity.uuid == uuid.into_bytes()
        };
        let next = "stop it first, or rename one of the two";
        if arrays.iter().flatten().any(is_it) {
            let what = format!("an array called '{name}' runs already");
            return Err(Refusal::new("array.running", what, next));
        }
        if starting.iter().any(|other| other.name == name || other.uuid == uuid) {
            let what = format!("an array called '{name}' is being started already");
            return Err(Refusal::new("array.running", what, next));
        }
        let is_free = |at: &usize| {
            let is_reserved = starting.iter().any(|other| other.id.0 == *at);
            arrays.get(*at).is_none_or(Option::is_none) && !is_reserved
        };
        let at = (0..).find(is_free).expect("numbers do not end");
        if at >= arrays.len() {
            arrays.resize(at + 1, None);
        }
        starting.push(Starting { id: ArrayId(at), uuid, name });
        Ok(Reserved { engine_state: self, id: ArrayId(at) })
    }

    /// The number that an array is to have: its own, if it starts again, or a free one.
    ///
    /// # Errors
    /// As [`EngineState::reserve`].
    pub(crate) fn number_of(
        &self,
        superblock: &Superblock,
        own: Option<ArrayId>,
    ) -> Result<(Option<Reserved<'_>>, ArrayId), Refusal> {
        if let Some(id) = own {
            return Ok((None, id));
        }
        let reserved = self.reserve(superblock)?;
        let id = reserved.id;
        Ok((Some(reserved), id))
    }

    pub(crate) async fn on_worker<T, A, F>(&self, worker: usize, action: A) -> Result<T, Refusal>
    where
        T: Send + 'static,
        A: FnOnce(Rc<Worker>) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let (answer, answered) = oneshot::channel();
        self.peers[worker].send(Message::Run(Box::new(move |worker| {
            let task = action(Rc::clone(worker));
            worker.handle.spawn(async move {
                // The caller may have gone, and then the answer is dropped.
                let _unwanted = answer.send(task.await);
            });
        })));
        answered.await.map_err(|_| {
            Refusal::new("engine.stopped", "the engine is shutting down", "start it again")
        })
    }

    /// The same for work on which no answer to a client depends: what only looks at devices, makes
    /// an array or starts one. A panic there is a refusal, if panics are not to go on. The caller
    /// undoes what the work has done, as after any refusal.
    pub(crate) async fn try_on_worker<T, A, F>(
        &self,
        worker: usize,
        action: A,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        A: FnOnce(Rc<Worker>) -> F + Send + 'static,
        F: Future<Output = Result<T, Refusal>> + 'static,
    {
        if !self.config.panics_end_process {
            return self.on_worker(worker, action).await?;
        }
        let tried = self.on_worker(worker, async move |worker: Rc<Worker>| {
            let handle = worker.handle.clone();
            contained(&handle, async move { action(worker).await }).await
        });
        tried.await?.unwrap_or_else(|text| Err(met_a_bug(&text)))
    }

    /// Run `action` on the coordinator of a running array and wait for its result.
    pub(crate) async fn on_coordinator_of<T, A, F>(
        &self,
        array: &Array,
        action: A,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        A: FnOnce(Rc<LocalArray>) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let (id, start) = (array.identity.id, std::ptr::from_ref(array).addr());
        let found = self.on_worker(array.coordinator, async move |worker: Rc<Worker>| {
            // Not the share of another start that has only begun.
            let is_its = |local: &Rc<LocalArray>| Arc::as_ptr(&local.array).addr() == start;
            Some(action(worker.local(id).filter(is_its)?).await)
        });
        found.await?.ok_or_else(stopping)
    }

    /// The one gate of all clients: they get to the array from now on, on every worker. Where it
    /// could not be started again, those that wait get errors.
    pub(crate) async fn let_clients_in(&self, id: ArrayId) -> Result<(), Refusal> {
        self.on_every_worker(move |worker| worker.let_clients_in(id)).await.map(drop)
    }

    /// Run `action` on every worker and wait for all results, in order of worker.
    pub(crate) async fn on_every_worker<T, A>(&self, action: A) -> Result<Vec<T>, Refusal>
    where
        T: Send + 'static,
        A: Fn(&Rc<Worker>) -> T + Clone + Send + 'static,
    {
        let mut results = Vec::new();
        for worker in 0..self.peers.len() {
            let action = action.clone();
            results.push(self.on_worker(worker, async move |worker| action(&worker)).await?);
        }
        Ok(results)
    }
}

fn met_a_bug(text: &str) -> Refusal {
    let what = format!(
        "this met a bug of ashlar ({}); other arrays go on, and nothing that was answered is lost",
        text.lines().next().unwrap_or_default()
    );
    let next = "report it with the daemon's log; `ashlar salvage` reads members without this code";
    Refusal::new("engine.bug", what, next)
}

/// The array has no share on the worker any more.
pub(crate) fn stopping() -> Refusal {
    Refusal::new("array.stopped", "the array is being stopped", "assemble it again if it is needed")
}
