//! The server under test: one worker in a thread, volumes in memory, everything it did to look at
//! afterwards.

use ashlar_iobuf::BufMut;
use ashlar_nbd::{Exports, Limits, NbdCounters, NbdServer};
use ashlar_ring::local::Signal;
use ashlar_ring::mailbox::{Sender, mailbox};
use ashlar_ring::{Executor, Handle, Ring, RingConfig, Schedule, until};
use ashlar_session::{Acceptor, Listen, listen};
use ashlar_units::Extent;
use ashlar_volume::{
    AllocationRun, MemVolume, Reply, Request, Transfer, Volume, VolumeError, VolumeFacts,
};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

/// A volume in memory that counts who holds it and what reaches it.
#[derive(Clone)]
pub struct Watched {
    inner: MemVolume,
    _clone: Rc<()>,
    submitted: Arc<AtomicU64>,
}

impl Volume for Watched {
    fn facts(&self) -> VolumeFacts {
        self.inner.facts()
    }

    async fn turn(&self, transfer: Transfer, bytes: u64) {
        self.inner.turn(transfer, bytes).await;
    }

    async fn buffer(&self, bytes: usize) -> BufMut {
        self.inner.buffer(bytes).await
    }

    async fn submit(&self, request: Request) -> Result<Reply, VolumeError> {
        self.submitted.fetch_add(1, Ordering::Relaxed);
        self.inner.submit(request).await
    }

    async fn allocation(
        &self,
        extent: Extent,
        runs_max: usize,
    ) -> Result<Vec<AllocationRun>, VolumeError> {
        self.inner.allocation(extent, runs_max).await
    }
}

#[derive(Clone)]
struct Watch(Vec<Watched>);

impl Exports for Watch {
    type Volume = Watched;

    fn names(&self) -> Vec<String> {
        self.0.iter().map(|volume| volume.facts().name).collect()
    }

    fn open(&self, name: &str) -> Option<Watched> {
        let is_wanted = |volume: &&Watched| name.is_empty() || volume.facts().name == name;
        self.0.iter().find(is_wanted).cloned()
    }
}

/// A running server. [`TestServer::stop`] checks that no session left anything behind.
pub struct TestServer {
    directory: tempfile::TempDir,
    uri: String,
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
    pub counters: Arc<NbdCounters>,
    pub submitted: Arc<AtomicU64>,
    /// How each session ended, as text.
    pub ends: Arc<Mutex<Vec<String>>>,
}

impl TestServer {
    /// Serve what `volumes` makes, with default limits.
    pub fn start(volumes: impl FnOnce() -> Vec<MemVolume> + Send + 'static) -> TestServer {
        TestServer::with_limits(Limits::default(), volumes)
    }

    /// One volume called `disk`.
    pub fn with_disk(size_bytes: u64) -> TestServer {
        TestServer::start(move || vec![MemVolume::new("disk", size_bytes)])
    }

    pub fn with_limits(
        limits: Limits,
        volumes: impl FnOnce() -> Vec<MemVolume> + Send + 'static,
    ) -> TestServer {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nbd.sock");
        let uri = format!("nbd+unix:///?socket={}", path.display());
        let listener = listen(&Listen::Unix(path, 0o600)).unwrap();
        TestServer::on(listener, directory, uri, limits, volumes)
    }

    /// On a port of the loopback address.
    pub fn on_tcp(volumes: impl FnOnce() -> Vec<MemVolume> + Send + 'static) -> TestServer {
        let listener = listen(&Listen::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let socket = TcpListener::from(listener.try_clone().unwrap());
        let uri = format!("nbd://{}", socket.local_addr().unwrap());
        let directory = tempfile::tempdir().unwrap();
        TestServer::on(listener, directory, uri, Limits::default(), volumes)
    }

    fn on(
        listener: Arc<OwnedFd>,
        directory: tempfile::TempDir,
        uri: String,
        limits: Limits,
        volumes: impl FnOnce() -> Vec<MemVolume> + Send + 'static,
    ) -> TestServer {
        let counters = Arc::new(NbdCounters::default());
        let submitted = Arc::new(AtomicU64::new(0));
        let ends = Arc::new(Mutex::new(Vec::new()));
        let (started, wait) = mpsc::channel();
        let shared = (counters.clone(), submitted.clone(), ends.clone());
        let thread = std::thread::spawn(move || {
            let ring = Ring::new(RingConfig::of(256)).unwrap();
            let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
            let handle = executor.handle();
            let (stop, mut stopped) = mailbox(&handle);
            started.send(stop).unwrap();
            let clones = Rc::new(());
            let watched =
                |inner| Watched { inner, _clone: clones.clone(), submitted: shared.1.clone() };
            let exports = Watch(volumes().into_iter().map(watched).collect());
            let own = 1 + exports.0.len();
            let counters = shared.0;
            let server = NbdServer {
                handle: handle.clone(),
                ring,
                exports,
                limits,
                counters,
                share: None,
                tls: None,
            };
            let stopping = Signal::new();
            let serving = accept(&server, listener, shared.2, stopping.clone());
            executor.block_on(until(serving, stopped.receive()));
            stopping.notify_all();
            executor.block_on(settle(&handle, || Rc::strong_count(&clones) == own));
        });
        let stop = wait.recv().unwrap();
        TestServer { directory, uri, stop, thread: Some(thread), counters, submitted, ends }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("nbd.sock")
    }

    pub fn uri(&self) -> String {
        self.uri.clone()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Wait until `is_met`, which must come to pass; a hang is the failure.
    pub fn until(&self, is_met: impl Fn(&TestServer) -> bool) {
        while !is_met(self) {
            assert!(!self.thread.as_ref().unwrap().is_finished(), "the server died");
            std::thread::yield_now();
        }
    }

    /// Wait until all sessions have ended, stop, and fail if a session's task or volume is left.
    pub fn stop(self) {
        self.until(|server| server.counters.sessions.open.load(Ordering::Relaxed) == 0);
        self.stop_now();
    }

    /// Stop with sessions open: their futures are dropped, and nothing of them may be left.
    pub fn stop_now(mut self) {
        self.stop.send(());
        self.thread.take().unwrap().join().unwrap();
    }
}

async fn accept(
    server: &NbdServer<Watch>,
    listener: Arc<OwnedFd>,
    ends: Arc<Mutex<Vec<String>>>,
    stopping: Signal,
) {
    let acceptor = Acceptor {
        handle: server.handle.clone(),
        ring: server.ring.clone(),
        listener,
        sessions_max: server.limits.session.sessions_max,
        sessions: server.counters.sessions.clone(),
    };
    let error = acceptor
        .run(|socket| {
            let (server, ends, stopping) = (server.clone(), ends.clone(), stopping.clone());
            server.handle.clone().spawn(async move {
                let serving = async {
                    let end = match server.serve(socket).await {
                        Ok(end) => format!("{end:?}"),
                        Err(error) => error.to_string(),
                    };
                    ends.lock().unwrap().push(end);
                };
                until(serving, stopping.changed()).await;
            });
        })
        .await;
    panic!("the listener failed: {error}");
}

/// Let tasks run until only this function's caller is left holding anything.
async fn settle(handle: &Handle, is_met: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if is_met() {
            return;
        }
        handle.sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("a session left tasks behind");
}
