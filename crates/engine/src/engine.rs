//! The engine: its workers, its arrays, and the entry of the control side.
//!
//! What must stay true: control work runs on a worker's executor, never on the caller's thread. A
//! command does all that it says, or refuses and changes nothing. `Engine` is a handle: clone it
//! freely, and use it from any thread.

use crate::array::Array;
use crate::assemble::{Anew, AssembleSpec, WouldStart, assemble, would_assemble};
use crate::config::EngineConfig;
use crate::context::WorkerContext;
use crate::create::{CreateReport, CreateSpec, create};
use crate::engine_state::{EngineState, stopping};
use crate::error::Refusal;
use crate::event::EventLog;
use crate::local_array::LocalArray;
use crate::stop::Stopped;
use crate::stripe_tasks;
use crate::thread::{StartingThreads, WorkerThread};
use crate::volume::ArrayVolume;
use crate::worker::{Message, Worker, WorkerParts};
use ashlar_ring::Handle;
use ashlar_ring::mailbox::mailbox;
use ashlar_units::MemberIdx;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// A running engine.
#[derive(Clone)]
pub struct Engine {
    engine_state: Arc<EngineState>,
    /// None where all workers live on one executor.
    threads: Arc<Mutex<Vec<WorkerThread>>>,
}

impl Engine {
    /// Start the worker threads.
    ///
    /// # Errors
    /// If a thread, a ring or a pool cannot be had.
    pub fn start(config: EngineConfig) -> io::Result<Engine> {
        let (starting, peers) = StartingThreads::spawn(&config)?;
        let engine_state = Arc::new(EngineState::new(config, peers));
        let threads = starting.go(&engine_state.peers, &engine_state.loads)?;
        Ok(Engine { engine_state, threads: Arc::new(Mutex::new(threads)) })
    }

    /// An engine whose workers all live on one executor: for simulation. The caller drives it.
    ///
    /// # Errors
    /// If a pool cannot be had.
    pub fn on_executor(config: EngineConfig, handle: &Handle) -> io::Result<Engine> {
        let (mut peers, mut mailboxes) = (Vec::new(), Vec::new());
        for _ in 0..config.worker_count {
            let (sender, receiver) = mailbox(handle);
            peers.push(sender);
            mailboxes.push(receiver);
        }
        let engine_state = Arc::new(EngineState::new(config, peers.into()));
        for (index, mailbox) in mailboxes.into_iter().enumerate() {
            let (load, peers) =
                (Arc::clone(&engine_state.loads[index]), engine_state.peers.clone());
            let payload_bytes = engine_state.config.payload_bytes;
            let parts = WorkerParts {
                index,
                handle: handle.clone(),
                payload_bytes,
                peers,
                load,
                start_task: stripe_tasks::start,
            };
            Worker::start(parts, mailbox)?;
        }
        Ok(Engine { engine_state, threads: Arc::default() })
    }

    /// Make an array and leave it stopped; see [`CreateSpec`].
    ///
    /// # Errors
    /// A refusal, with nothing written unless it says so.
    pub async fn create(&self, spec: CreateSpec) -> Result<CreateReport, Refusal> {
        let engine_state = Arc::clone(&self.engine_state);
        let make = async move |worker| create(&worker, &engine_state, spec).await;
        self.engine_state.try_on_worker(0, make).await
    }

    /// Find the members of an array among devices and start it; see [`AssembleSpec`]. Its name.
    ///
    /// # Errors
    /// A refusal, with nothing written.
    pub async fn assemble(&self, spec: AssembleSpec) -> Result<String, Refusal> {
        let engine_state = Arc::clone(&self.engine_state);
        let start =
            async move |worker| assemble(&worker, &engine_state, spec, Anew::default()).await;
        let name = self.engine_state.try_on_worker(0, start).await?;
        // Spares among the devices came into their pools when the array had looked for some
        // already.
        self.offer_spares().await;
        Ok(name)
    }

    /// What a start with this `spec` would come to: it goes as far as the start does before that
    /// writes.
    ///
    /// # Errors
    /// The refusal that the start would end in.
    pub async fn would_assemble(&self, spec: AssembleSpec) -> Result<WouldStart, Refusal> {
        let engine_state = Arc::clone(&self.engine_state);
        let look = async move |worker| would_assemble(&worker, &engine_state, spec).await;
        self.engine_state.try_on_worker(0, look).await
    }

    /// Stop an array: finish what is under way, flush, mark it clean, let its members go.
    ///
    /// # Errors
    /// If it does not run, or its members could not be told that it stopped cleanly.
    pub async fn stop(&self, name: &str) -> Result<Stopped, Refusal> {
        let array = self.array(name)?;
        let engine_state = Arc::clone(&self.engine_state);
        let stop =
            async move |local: Rc<LocalArray>| crate::stop::stop(&local, &engine_state).await;
        self.on_coordinator_of(&array, stop).await?
    }

    /// Stop an array for a successor of this process, which goes on with its clients: as
    /// [`Engine::stop`], but a request that does not end well is never answered. Its client asks
    /// the successor again. The process is to end next.
    ///
    /// # Errors
    /// As [`Engine::stop`].
    pub async fn hand_over(&self, name: &str) -> Result<Stopped, Refusal> {
        self.array(name)?.set_handed_over();
        self.stop(name).await
    }

    /// Nobody is to wait for room behind the members any more: writes that do are answered with
    /// errors, and so is every later one that would. The array is to be stopped next.
    ///
    /// # Errors
    /// If it does not run.
    pub fn give_up_waiting(&self, name: &str) -> Result<(), Refusal> {
        self.array(name)?.room.give_up();
        Ok(())
    }

    /// Put a member out of service by hand. Its array goes on without it.
    ///
    /// # Errors
    /// If there is no such slot, or its group cannot do without it.
    pub async fn fail(&self, name: &str, member: MemberIdx) -> Result<(), Refusal> {
        let array = self.array(name)?;
        if member.at() >= array.slots.len() {
            let what = format!("array '{name}' has no slot {member}; nothing was changed");
            let next = format!("its slots are 0 to {}", array.slots.len() - 1);
            return Err(Refusal::new("member.unknown", what, next));
        }
        let take_out = async move |local: Rc<LocalArray>| {
            crate::coordinator::by_hand::take_out(&local, member).await
        };
        self.on_coordinator_of(&array, take_out).await?
    }

    /// What happened, for followers.
    pub fn events(&self) -> &EventLog {
        &self.engine_state.events
    }

    /// The same for threads that follow it by themselves.
    pub fn event_log(&self) -> Arc<EventLog> {
        Arc::clone(&self.engine_state.events)
    }

    /// Number of workers.
    pub fn worker_count(&self) -> usize {
        self.engine_state.peers.len()
    }

    /// The cores that workers are bound to, in turn; empty if none is bound.
    pub fn cores(&self) -> &[usize] {
        &self.engine_state.config.cores
    }

    /// Run `action` on a worker's thread with its context: how exports start their tasks.
    ///
    /// # Panics
    /// If there is no worker of that number.
    pub fn run_on(&self, worker: usize, action: impl FnOnce(&WorkerContext) + Send + 'static) {
        let run = move |worker: &Rc<Worker>| action(&WorkerContext { worker: Rc::clone(worker) });
        self.engine_state.peers[worker].send(Message::Run(Box::new(run)));
    }

    /// Run `action` on a worker with the volume of an array, and wait for its result.
    ///
    /// # Errors
    /// If no array of that name runs.
    pub async fn with_volume<T, A, F>(
        &self,
        worker: usize,
        name: &str,
        action: A,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        A: FnOnce(ArrayVolume) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let id = self.array(name)?.identity.id;
        let found = self.on_worker(worker, async move |worker: Rc<Worker>| {
            let entrance = worker.entrance(id)?;
            Some(action(ArrayVolume::new(entrance)).await)
        });
        found.await?.ok_or_else(stopping)
    }

    /// The running arrays.
    pub fn arrays(&self) -> Vec<Arc<Array>> {
        self.engine_state.arrays().iter().flatten().cloned().collect()
    }

    /// Arrays that are being started, by UUID and name.
    pub fn being_started(&self) -> Vec<(Uuid, String)> {
        self.engine_state.being_started()
    }

    /// The running array of that name.
    ///
    /// # Errors
    /// A refusal that lists those that run.
    pub fn array(&self, name: &str) -> Result<Arc<Array>, Refusal> {
        let arrays = self.arrays();
        if let Some(array) = arrays.iter().find(|array| array.name() == name) {
            return Ok(Arc::clone(array));
        }
        let names: Vec<&str> = arrays.iter().map(|array| array.name()).collect();
        let running = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let what = format!("no running array is called '{name}'; nothing was changed");
        Err(Refusal::new("array.unknown", what, format!("running arrays: {running}")))
    }

    pub(crate) fn engine_state(&self) -> &Arc<EngineState> {
        &self.engine_state
    }

    /// Run `action` on a worker and wait for its result.
    pub(crate) async fn on_worker<T, A, F>(&self, worker: usize, action: A) -> Result<T, Refusal>
    where
        T: Send + 'static,
        A: FnOnce(Rc<Worker>) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
    {
        self.engine_state.on_worker(worker, action).await
    }

    /// Run `action` on the coordinator of an array and wait for its result.
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
        self.engine_state.on_coordinator_of(array, action).await
    }

    /// Stop the worker threads. Arrays that still run are left as after a crash: stop them first.
    pub fn shut_down(&self) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.drain(..).for_each(WorkerThread::end);
    }
}
