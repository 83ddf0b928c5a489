//! The engine: its workers, its arrays, and the door through which the control side comes in.
//!
//! What must stay true: control work runs on a worker's executor like everything else, never on the
//! caller's thread; a command either does all it says or refuses with nothing changed. `Engine` is a
//! handle: clone it freely, any thread may use it.

use crate::array::{Array, ArrayId, ArrayTuning};
use crate::assemble::{AssembleSpec, assemble};
use crate::create::{CreateReport, CreateSpec, create};
use crate::error::Refusal;
use crate::event::{EventLog, names};
use crate::ownership::Runner;
use crate::shard::Shard;
use crate::volume::ArrayVolume;
use crate::worker::{Message, Worker, WorkerLoad, WorkerParts};
use ashlar_device::Opener;
use ashlar_parity::Kernel;
use ashlar_ring::mailbox::{Receiver, Sender, mailbox};
use ashlar_ring::{Executor, Handle, Ring, RingConfig, Schedule, affinity};
use ashlar_units::MemberIdx;
use futures_channel::oneshot;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

/// Who else's data is on a device: one line for each signature found, none for a blank device.
pub type Signatures = Arc<dyn Fn(&str) -> Vec<String> + Send + Sync>;

/// What an engine is started with.
#[derive(Clone)]
pub struct EngineConfig {
    /// Workers, one thread and one ring each.
    pub worker_count: usize,
    /// Bind each worker to a core of its own.
    pub pin_cores: bool,
    /// Memory for request payloads on each worker, bytes.
    pub payload_bytes: usize,
    /// Entries of each worker's ring.
    pub ring_entries: u32,
    /// How devices are opened.
    pub opener: Arc<dyn Opener>,
    /// How foreign signatures are found.
    pub signatures: Signatures,
    /// Tunables of arrays that name none.
    pub tuning: ArrayTuning,
    /// Name of the parity kernel; `None` takes the best this CPU has.
    pub kernel: Option<String>,
    /// Who runs arrays here, for the heartbeat on their members. `None`: no heartbeat is written or looked for.
    pub runner: Option<Runner>,
    /// The wall clock, seconds since 1970: only ever displayed.
    pub wall_clock_s: fn() -> u64,
}

impl EngineConfig {
    /// Defaults: one worker for each allowed core, unpinned, 64 MiB of payload each, no signatures known.
    pub fn new(opener: Arc<dyn Opener>) -> Self {
        EngineConfig {
            worker_count: affinity::cores().map_or(1, |cores| cores.len()),
            pin_cores: false,
            payload_bytes: 64 << 20,
            ring_entries: 1024,
            opener,
            signatures: Arc::new(|_| Vec::new()),
            tuning: ArrayTuning::default(),
            kernel: None,
            runner: None,
            wall_clock_s: || {
                let since = std::time::UNIX_EPOCH.elapsed();
                since.map_or(0, |elapsed| elapsed.as_secs())
            },
        }
    }
}

impl EngineConfig {
    /// The `payload_bytes` with which `count` requests of `bytes` each can be in flight on a worker at once; `None` if
    /// that is more than can be addressed.
    pub fn payload_bytes_for(count: usize, bytes: u64) -> Option<usize> {
        crate::worker::payload_bytes_for(count, bytes)
    }

    /// The parity kernel that arrays will use.
    ///
    /// # Errors
    /// If this CPU has none of that name; lists those it has.
    pub fn parity_kernel(&self) -> Result<Kernel, Refusal> {
        let Some(name) = &self.kernel else { return Ok(Kernel::best()) };
        Kernel::by_name(name).map_err(|_| {
            let here: Vec<&str> = Kernel::all().map(Kernel::name).collect();
            let what = format!("this CPU has no parity kernel '{name}'; nothing was started");
            Refusal::new("engine.no_kernel", what, format!("choose one of {}", here.join(", ")))
        })
    }
}

/// A running engine.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

/// What all handles and workers of an engine share.
pub(crate) struct Shared {
    pub(crate) config: EngineConfig,
    pub(crate) events: Arc<EventLog>,
    pub(crate) spares: Arc<crate::spare::SparePools>,
    pub(crate) loads: Vec<Arc<WorkerLoad>>,
    peers: Box<[Sender<Message>]>,
    arrays: Mutex<Vec<Option<Arc<Array>>>>,
    threads: Mutex<Vec<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

/// Events kept for followers.
const EVENTS_KEPT: usize = 4096;

impl Engine {
    /// Start the worker threads.
    ///
    /// # Errors
    /// If a thread, a ring or a pool cannot be had.
    pub fn start(config: EngineConfig) -> io::Result<Engine> {
        let mut starting = Vec::new();
        for index in 0..config.worker_count {
            starting.push(StartingThread::spawn(index, &config)?);
        }
        let mut peers = Vec::new();
        for thread in &starting {
            peers.push(thread.sender.recv().map_err(|_| dead_worker())??);
        }
        let engine = Engine::with_peers(config, peers.into());
        for thread in starting {
            let load = Arc::clone(&engine.shared.loads[thread.index]);
            let started = (engine.shared.peers.clone(), load);
            thread.go.send(started).map_err(|_| dead_worker())?;
            thread.ready.recv().map_err(|_| dead_worker())??;
            engine.shared.threads().push((thread.stop, thread.thread));
        }
        Ok(engine)
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
        let engine = Engine::with_peers(config, peers.into());
        for (index, mailbox) in mailboxes.into_iter().enumerate() {
            let load = Arc::clone(&engine.shared.loads[index]);
            let peers = engine.shared.peers.clone();
            let payload_bytes = engine.shared.config.payload_bytes;
            let parts = WorkerParts { index, handle: handle.clone(), payload_bytes, peers, load };
            Worker::start(parts, mailbox)?;
        }
        Ok(engine)
    }

    fn with_peers(config: EngineConfig, peers: Box<[Sender<Message>]>) -> Engine {
        let shared = Shared {
            events: Arc::new(EventLog::new(EVENTS_KEPT)),
            spares: Arc::default(),
            loads: peers.iter().map(|_| Arc::default()).collect(),
            peers,
            arrays: Mutex::default(),
            threads: Mutex::default(),
            config,
        };
        shared.record_kernel();
        Engine { shared: Arc::new(shared) }
    }

    /// Make an array and leave it stopped; see [`CreateSpec`].
    ///
    /// # Errors
    /// A refusal, with nothing written unless it says so.
    pub async fn create(&self, spec: CreateSpec) -> Result<CreateReport, Refusal> {
        let shared = Arc::clone(&self.shared);
        self.on_worker(0, async move |worker| create(&worker, &shared, spec).await).await?
    }

    /// Find the members of an array among devices and start it; see [`AssembleSpec`]. Its name.
    ///
    /// # Errors
    /// A refusal, with nothing written.
    pub async fn assemble(&self, spec: AssembleSpec) -> Result<String, Refusal> {
        let shared = Arc::clone(&self.shared);
        let start = async move |worker| assemble(&worker, &shared, spec).await;
        let name = self.on_worker(0, start).await??;
        // Spares among the devices came into their pools when the array had looked for some already.
        self.offer_spares().await;
        Ok(name)
    }

    /// Stop an array: finish what is under way, flush, mark it clean, let its members go.
    ///
    /// # Errors
    /// If it does not run, or its members could not be told that it stopped cleanly.
    pub async fn stop(&self, name: &str) -> Result<(), Refusal> {
        let array = self.array(name)?;
        let shared = Arc::clone(&self.shared);
        let stop = async move |shard: Rc<Shard>| crate::stop::stop(&shard, &shared).await;
        self.on_home_of(&array, stop).await?
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
        let take_out =
            async move |shard: Rc<Shard>| crate::home::take_out_by_hand(&shard, member).await;
        self.on_home_of(&array, take_out).await?
    }

    /// What happened, for followers.
    pub fn events(&self) -> &EventLog {
        &self.shared.events
    }

    /// Number of workers.
    pub fn worker_count(&self) -> usize {
        self.shared.peers.len()
    }

    /// Run `action` on a worker's thread with its context: how exports start their tasks.
    ///
    /// # Panics
    /// If there is no worker of that number.
    pub fn run_on(&self, worker: usize, action: impl FnOnce(&WorkerContext) + Send + 'static) {
        let run = move |worker: &Rc<Worker>| action(&WorkerContext { worker: Rc::clone(worker) });
        self.shared.peers[worker].send(Message::Run(Box::new(run)));
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
            let shard = worker.shard(id)?;
            Some(action(ArrayVolume::new(shard)).await)
        });
        found.await?.ok_or_else(stopping)
    }

    /// The running arrays.
    pub fn arrays(&self) -> Vec<Arc<Array>> {
        self.shared.arrays().iter().flatten().cloned().collect()
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

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Run `action` on a worker and wait for its result.
    pub(crate) async fn on_worker<T, A, F>(&self, worker: usize, action: A) -> Result<T, Refusal>
    where
        T: Send + 'static,
        A: FnOnce(Rc<Worker>) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
    {
        self.shared.on_worker(worker, action).await
    }

    /// Run `action` on the home worker of an array and wait for its result.
    pub(crate) async fn on_home_of<T, A, F>(&self, array: &Array, action: A) -> Result<T, Refusal>
    where
        T: Send + 'static,
        A: FnOnce(Rc<Shard>) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let id = array.identity.id;
        let found = self.on_worker(array.home, async move |worker: Rc<Worker>| {
            let shard = worker.shard(id)?;
            Some(action(shard).await)
        });
        found.await?.ok_or_else(stopping)
    }

    /// Stop the worker threads. Arrays that still run are left as after a crash: stop them first.
    pub fn shut_down(&self) {
        for (stop, thread) in self.shared.threads().drain(..) {
            // A worker that died has nobody to tell.
            let _dead = stop.send(());
            assert!(thread.join().is_ok(), "a worker thread panicked");
        }
    }
}

fn stopping() -> Refusal {
    Refusal::new("array.stopped", "the array is being stopped", "assemble it again if it is needed")
}

fn dead_worker() -> io::Error {
    io::Error::other("a worker thread ended while it was started")
}

impl Shared {
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

    fn threads(&self) -> MutexGuard<'_, Vec<(oneshot::Sender<()>, JoinHandle<()>)>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free number for an array that is about to run.
    pub(crate) fn free_id(&self) -> ArrayId {
        let mut arrays = self.arrays();
        let at = arrays.iter().position(Option::is_none).unwrap_or(arrays.len());
        if at == arrays.len() {
            arrays.push(None);
        }
        ArrayId(at)
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
                // Whoever asked may have gone: then nobody wants the answer.
                let _unwanted = answer.send(task.await);
            });
        })));
        answered.await.map_err(|_| {
            Refusal::new("engine.stopped", "the engine is shutting down", "start it again")
        })
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

/// What an export gets to start its tasks on a worker.
pub struct WorkerContext {
    worker: Rc<Worker>,
}

impl WorkerContext {
    /// The worker's number.
    pub fn index(&self) -> usize {
        self.worker.index
    }

    /// The worker's executor.
    pub fn handle(&self) -> Handle {
        self.worker.handle.clone()
    }

    /// The worker's ring; `None` in a simulation.
    pub fn ring(&self) -> Option<Ring> {
        self.worker.handle.ring()
    }

    /// The volume of a running array, on this worker.
    pub fn volume(&self, name: &str) -> Option<ArrayVolume> {
        let mut shards = self.worker.shards().into_iter();
        shards.find(|shard| shard.array.name() == name).map(ArrayVolume::new)
    }

    /// Names of the arrays that run here.
    pub fn names(&self) -> Vec<String> {
        self.worker.shards().iter().map(|shard| shard.array.name().to_owned()).collect()
    }

    /// Another handle to the same context.
    #[must_use]
    pub fn again(&self) -> WorkerContext {
        WorkerContext { worker: Rc::clone(&self.worker) }
    }
}

type GoMessage = (Box<[Sender<Message>]>, Arc<WorkerLoad>);

/// A worker thread that waits for the mailboxes of all others.
struct StartingThread {
    index: usize,
    sender: mpsc::Receiver<io::Result<Sender<Message>>>,
    go: mpsc::Sender<GoMessage>,
    ready: mpsc::Receiver<io::Result<()>>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// The thread's ends of the channels.
struct ThreadEnds {
    sender: mpsc::Sender<io::Result<Sender<Message>>>,
    go: mpsc::Receiver<GoMessage>,
    ready: mpsc::Sender<io::Result<()>>,
    stop: oneshot::Receiver<()>,
}

impl StartingThread {
    fn spawn(index: usize, config: &EngineConfig) -> io::Result<StartingThread> {
        let (sender_in, sender) = mpsc::channel();
        let (go, go_out) = mpsc::channel();
        let (ready_in, ready) = mpsc::channel();
        let (stop, stop_out) = oneshot::channel();
        let ends = ThreadEnds { sender: sender_in, go: go_out, ready: ready_in, stop: stop_out };
        let config = config.clone();
        let thread = std::thread::Builder::new()
            .name(format!("ashlar-worker-{index}"))
            .spawn(move || run_thread(index, &config, ends))?;
        Ok(StartingThread { index, sender, go, ready, stop, thread })
    }
}

/// One worker thread, from its ring to its end.
fn run_thread(index: usize, config: &EngineConfig, ends: ThreadEnds) {
    let made = make_executor(index, config);
    let (mut executor, receiver) = match made {
        Ok((executor, sender, receiver)) => {
            if ends.sender.send(Ok(sender)).is_err() {
                return;
            }
            (executor, receiver)
        }
        Err(error) => {
            // Whoever started us is told; if it is gone there is nothing to do.
            let _told = ends.sender.send(Err(error));
            return;
        }
    };
    let Ok((peers, load)) = ends.go.recv() else { return };
    let handle = executor.handle();
    let parts = WorkerParts { index, handle, payload_bytes: config.payload_bytes, peers, load };
    let started = Worker::start(parts, receiver);
    let is_started = started.is_ok();
    let told = ends.ready.send(started.map(drop));
    if is_started && told.is_ok() {
        executor.block_on(async {
            // A dropped sender means the same as a message: stop.
            let _stop = ends.stop.await;
        });
    }
}

type Made = (Executor, Sender<Message>, Receiver<Message>);

fn make_executor(index: usize, config: &EngineConfig) -> io::Result<Made> {
    if config.pin_cores {
        let cores = affinity::cores()?;
        affinity::pin_to(cores[index % cores.len()])?;
    }
    let ring = Ring::new(RingConfig { entries: config.ring_entries })?;
    let executor = Executor::new(ring.reactor(), Schedule::InOrder);
    let (sender, receiver) = mailbox(&executor.handle());
    Ok((executor, sender, receiver))
}
