//! The server of one volume, on a thread of its own. What must stay true: it ends with its client,
//! or when it is killed; a killed one finishes nothing.

use crate::client::PATIENCE;
use ashlar_iobuf::BufMut;
use ashlar_ring::mailbox::{self, Sender, mailbox};
use ashlar_ring::{Executor, Handle, Ring, RingConfig, Schedule, until};
use ashlar_session::SessionLimits;
use ashlar_units::Extent;
use ashlar_vhost_user::{QueueServer, VhostCounters, VhostServer};
use ashlar_volume::{
    AllocationRun, Command, MemVolume, Reply, Request, Transfer, Volume, VolumeError,
    VolumeErrorKind, VolumeFacts,
};
use std::future::{pending, poll_fn};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

/// How the volume of a server behaves.
#[derive(Clone, Copy, Default)]
pub struct Setting {
    /// Writes are refused.
    pub is_read_only: bool,
    /// Writes to the second half are never answered.
    pub is_stuck: bool,
    /// It is stopped: flushes are refused.
    pub is_stopped: bool,
    /// No queue is served.
    pub is_full: bool,
    /// How long a client may say nothing at first, and pause within a message.
    pub patience: Option<Duration>,
}

/// A running server.
pub struct Server {
    thread: JoinHandle<()>,
    ends: Receiver<Vec<Result<(), String>>>,
    kill: Sender<()>,
    /// One for each connection.
    sizes: Vec<Sender<u64>>,
    size_bytes: Arc<AtomicU64>,
    pub counters: Arc<VhostCounters>,
    flushes: Arc<AtomicU64>,
}

/// Before it grows.
pub const VOLUME_BYTES: u64 = 8 << 20;
/// All that it can grow to.
pub const GROWN_BYTES: u64 = 16 << 20;

/// A server for these connections, all of them on one thread.
pub fn start(sockets: Vec<UnixStream>, setting: Setting) -> Server {
    let (tell, told) = channel();
    let (tell_ends, ends) = channel();
    let (counters, flushes) = (Arc::<VhostCounters>::default(), Arc::<AtomicU64>::default());
    let own = (Arc::clone(&counters), Arc::clone(&flushes));
    let size_bytes = Arc::new(AtomicU64::new(VOLUME_BYTES));
    let own_size = Arc::clone(&size_bytes);
    let thread = std::thread::spawn(move || {
        let ring = Ring::new(RingConfig::of(64)).expect("these tests need io_uring");
        let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
        let (kill, mut killed) = mailbox(&executor.handle());
        let mailboxes = sockets.iter().map(|_| mailbox(&executor.handle()));
        let (sizes, grown): (Vec<_>, Vec<_>) = mailboxes.unzip();
        tell.send((kill, sizes)).expect("the test waits");
        let volume = MemVolume::new("disk", GROWN_BYTES);
        if setting.is_read_only {
            volume.set_read_only();
        }
        let volume = TestVolume { volume, setting, size_bytes: own_size };
        let serving = Serving { handle: executor.handle(), ring, volume: volume.clone(), setting };
        let sockets = sockets.into_iter().zip(grown).collect();
        let all = serving.serve_all(sockets, own.0);
        let ended = executor.block_on(until(all, killed.receive()));
        own.1.store(volume.volume.flush_count(), Ordering::Relaxed);
        // A test that does not want to know has gone on.
        let _gone = tell_ends.send(ended.unwrap_or_default());
    });
    let (kill, sizes) = told.recv().expect("the server starts");
    Server { thread, ends, kill, sizes, size_bytes, counters, flushes }
}

/// What the connections of a server share.
struct Serving {
    handle: Handle,
    ring: Ring,
    volume: TestVolume,
    setting: Setting,
}

impl Serving {
    async fn serve_all(
        self,
        sockets: Vec<(UnixStream, mailbox::Receiver<u64>)>,
        counters: Arc<VhostCounters>,
    ) -> Vec<Result<(), String>> {
        let Serving { handle, ring, volume, setting } = self;
        let mut limits = SessionLimits::default();
        if let Some(patience) = setting.patience {
            (limits.handshake_time, limits.payload_time) = (patience, patience);
        }
        let serve = |(socket, sizes): (UnixStream, mailbox::Receiver<u64>)| {
            let server = VhostServer {
                handle: handle.clone(),
                ring: ring.clone(),
                facts: volume.facts(),
                limits: limits.clone(),
                counters: Arc::clone(&counters),
            };
            let (ring, volume) = (ring.clone(), volume.clone());
            async move {
                let place = |start| {
                    if setting.is_full {
                        return drop(start);
                    }
                    let (handle, ring) = (server.handle.clone(), ring.clone());
                    let volume = volume.clone();
                    let queue = QueueServer { handle, ring, volume, start };
                    server.handle.spawn(queue.serve());
                };
                let served = server.serve(socket.into(), pending(), sizes, place).await;
                served.map_err(|error| error.to_string())
            }
        };
        let mut all: Vec<_> = sockets.into_iter().map(|socket| Box::pin(serve(socket))).collect();
        let mut ends = vec![None; all.len()];
        poll_fn(|context| {
            for (session, end) in all.iter_mut().zip(&mut ends) {
                if end.is_none()
                    && let Poll::Ready(ended) = session.as_mut().poll(context)
                {
                    *end = Some(ended);
                }
            }
            if ends.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        ends.into_iter().flatten().collect()
    }
}

impl Server {
    /// How each connection ended, once all have; flushes and durable writes of the volume.
    pub fn ends(self) -> (Vec<Result<(), String>>, u64) {
        let ends = self.ends.recv_timeout(PATIENCE).expect("the server ends, and does not panic");
        (ends, self.flushes.load(Ordering::Relaxed))
    }

    /// How its only connection ended.
    pub fn end(self) -> Result<(), String> {
        self.ends().0.pop().expect("one connection")
    }

    /// The volume grows, and every connection is told.
    pub fn grow(&self, size_bytes: u64) {
        self.size_bytes.store(size_bytes, Ordering::Relaxed);
        self.sizes.iter().for_each(|sizes| sizes.send(size_bytes));
    }

    /// End it where it is.
    pub fn kill(self) {
        self.kill.send(());
        self.thread.join().expect("the server does not panic");
    }
}

/// A volume in memory, half of which may be stuck.
#[derive(Clone)]
struct TestVolume {
    volume: MemVolume,
    setting: Setting,
    size_bytes: Arc<AtomicU64>,
}

impl Volume for TestVolume {
    fn facts(&self) -> VolumeFacts {
        VolumeFacts { size_bytes: self.size_bytes.load(Ordering::Relaxed), ..self.volume.facts() }
    }

    async fn turn(&self, transfer: Transfer, bytes: u64) {
        self.volume.turn(transfer, bytes).await;
    }

    async fn buffer(&self, bytes: usize) -> BufMut {
        self.volume.buffer(bytes).await
    }

    async fn submit(&self, request: Request) -> Result<Reply, VolumeError> {
        let is_write = matches!(request.command, Command::Write(_));
        if self.setting.is_stuck && is_write && request.extent.offset >= VOLUME_BYTES / 2 {
            return pending().await;
        }
        if self.setting.is_stopped && matches!(request.command, Command::Flush) {
            return Err(VolumeError::new(VolumeErrorKind::Stopped, request.extent));
        }
        self.volume.submit(request).await
    }

    async fn allocation(
        &self,
        extent: Extent,
        runs_max: usize,
    ) -> Result<Vec<AllocationRun>, VolumeError> {
        self.volume.allocation(extent, runs_max).await
    }
}
