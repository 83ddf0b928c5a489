//! What all handles and workers of an engine share: its configuration, its arrays, and the way onto its workers.
//!
//! What must stay true: work for a worker is sent to it and runs there, never on the caller's thread.

use crate::array::{Array, ArrayId};
use crate::config::EngineConfig;
use crate::error::Refusal;
use crate::event::{EventLog, names};
use crate::spare::SparePools;
use crate::worker::{Message, Worker, WorkerLoad};
use ashlar_ring::mailbox::Sender;
use futures_channel::oneshot;
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What all handles and workers of an engine share.
pub(crate) struct Roster {
    pub(crate) config: EngineConfig,
    pub(crate) events: Arc<EventLog>,
    pub(crate) spares: Arc<SparePools>,
    pub(crate) loads: Vec<Arc<WorkerLoad>>,
    pub(crate) peers: Box<[Sender<Message>]>,
    arrays: Mutex<Vec<Option<Arc<Array>>>>,
}

/// Events kept for followers.
const EVENTS_KEPT: usize = 4096;

impl Roster {
    pub(crate) fn new(config: EngineConfig, peers: Box<[Sender<Message>]>) -> Roster {
        let roster = Roster {
            events: Arc::new(EventLog::new(EVENTS_KEPT)),
            spares: Arc::default(),
            loads: peers.iter().map(|_| Arc::default()).collect(),
            peers,
            arrays: Mutex::default(),
            config,
        };
        roster.record_kernel();
        roster
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
