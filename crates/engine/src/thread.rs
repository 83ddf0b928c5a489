//! A worker thread. It starts together with all others, since each knows the mailboxes of all, and
//! runs until it is told to stop.
//!
//! What must stay true: nothing runs before every thread has its ring and its memory. If one has
//! not, the starter gets the first error. Stopping a worker waits until its work is done. It does
//! not wait for the thread itself: the kernel keeps that for as long as a device has one of its
//! commands. A worker that panics is no worker without a thread: it ends the process, if it is to.

use crate::config::EngineConfig;
use crate::stripe_tasks;
use crate::worker::{Message, Worker, WorkerLoad, WorkerParts};
use ashlar_ring::mailbox::{Receiver, Sender, mailbox};
use ashlar_ring::{Executor, Ring, RingConfig, Schedule, affinity};
use futures_channel::oneshot;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

/// What a thread waits for: the mailboxes of all, and where its load is counted.
type GoMessage = (Box<[Sender<Message>]>, Arc<WorkerLoad>);

/// A worker thread that runs.
pub(crate) struct WorkerThread {
    stop: oneshot::Sender<()>,
    ended: mpsc::Receiver<()>,
}

impl WorkerThread {
    /// Tells it to stop, and waits until it has let go of all it had.
    ///
    /// # Panics
    /// If the thread did.
    pub(crate) fn end(self) {
        // A worker that died has nobody to tell.
        let _dead = self.stop.send(());
        assert!(self.ended.recv().is_ok(), "a worker thread panicked");
    }
}

/// All worker threads of an engine, each with its ring, waiting for the mailboxes of all.
pub(crate) struct StartingThreads(Vec<StartingThread>);

impl StartingThreads {
    /// Starts one for each worker; the mailboxes that they have.
    ///
    /// # Errors
    /// If a thread or a ring cannot be had.
    pub(crate) fn spawn(config: &EngineConfig) -> io::Result<(Self, Box<[Sender<Message>]>)> {
        let mut starting = Vec::new();
        for index in 0..config.worker_count {
            starting.push(StartingThread::spawn(index, config)?);
        }
        let mut peers = Vec::new();
        for thread in &starting {
            peers.push(thread.sender.recv().map_err(|_| dead_worker())??);
        }
        Ok((StartingThreads(starting), peers.into()))
    }

    /// Hands all of them what they wait for.
    ///
    /// # Errors
    /// If the memory of a worker cannot be had.
    pub(crate) fn go(
        self,
        peers: &[Sender<Message>],
        loads: &[Arc<WorkerLoad>],
    ) -> io::Result<Vec<WorkerThread>> {
        let mut running = Vec::new();
        for (thread, load) in self.0.into_iter().zip(loads) {
            thread.go.send((peers.into(), Arc::clone(load))).map_err(|_| dead_worker())?;
            thread.ready.recv().map_err(|_| dead_worker())??;
            running.push(WorkerThread { stop: thread.stop, ended: thread.ended });
        }
        Ok(running)
    }
}

fn dead_worker() -> io::Error {
    io::Error::other("a worker thread ended while it was started")
}

/// A worker thread that waits for the mailboxes of all others.
struct StartingThread {
    sender: mpsc::Receiver<io::Result<Sender<Message>>>,
    go: mpsc::Sender<GoMessage>,
    ready: mpsc::Receiver<io::Result<()>>,
    stop: oneshot::Sender<()>,
    ended: mpsc::Receiver<()>,
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
        let (ended_in, ended) = mpsc::channel();
        let ends = ThreadEnds { sender: sender_in, go: go_out, ready: ready_in, stop: stop_out };
        let config = config.clone();
        std::thread::Builder::new().name(format!("ashlar-worker-{index}")).spawn(move || {
            run_thread(index, &config, ends);
            // Nobody waits for one that was never told to stop.
            let _unwanted = ended_in.send(());
        })?;
        Ok(StartingThread { sender, go, ready, stop, ended })
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
            // The starter gets the error; if it is gone there is nothing to do.
            let _told = ends.sender.send(Err(error));
            return;
        }
    };
    let Ok((peers, load)) = ends.go.recv() else { return };
    let handle = executor.handle();
    let parts = WorkerParts {
        index,
        handle,
        payload_bytes: config.payload_bytes,
        peers,
        load,
        start_task: stripe_tasks::start,
    };
    let started = Worker::start(parts, receiver);
    let is_started = started.is_ok();
    let told = ends.ready.send(started.map(drop));
    if is_started && told.is_ok() {
        let stopped = async {
            // A dropped sender means the same as a message: stop.
            let _stop = ends.stop.await;
        };
        if !config.panics_end_process {
            return executor.block_on(stopped);
        }
        // Whoever said why ends the process there already, but for panics that were handed on.
        let ended = catch_unwind(AssertUnwindSafe(|| executor.block_on(stopped)));
        if ended.is_err() {
            // Nothing is dropped first: what an export drops, it answers.
            std::process::abort();
        }
    }
}

type Made = (Executor, Sender<Message>, Receiver<Message>);

fn make_executor(index: usize, config: &EngineConfig) -> io::Result<Made> {
    if let Some(core) = config.cores.get(index % config.cores.len().max(1)) {
        affinity::pin_to(*core)?;
    }
    let (entries, entry_bytes) = (config.ring_entries, config.ring_entry_bytes);
    let ring = Ring::new(RingConfig { entries, entry_bytes })?;
    if config.waits_in_reclaim {
        ring.keep_one_thread();
    } else {
        ring.make_thread();
    }
    let executor = Executor::new(ring.spinning_reactor(config.spin_most), Schedule::InOrder);
    let (sender, receiver) = mailbox(&executor.handle());
    Ok((executor, sender, receiver))
}
