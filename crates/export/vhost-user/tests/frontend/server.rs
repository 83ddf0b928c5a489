//! The server of one volume, on a thread of its own. What must stay true: it ends with its client,
//! or when it is killed; a killed one finishes nothing.

use crate::client::PATIENCE;
use ashlar_iobuf::BufMut;
use ashlar_ring::mailbox::{Sender, mailbox};
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
    pub counters: Arc<VhostCounters>,
    flushes: Arc<AtomicU64>,
}

pub const VOLUME_BYTES: u64 = 8 << 20;

/// A server for these connections, all of them on one thread.
pub fn start(sockets: Vec<UnixStream>, setting: Setting) -> Server {
    let (tell, told) = channel();
    let (tell_ends, ends) = channel();
    let (counters, flushes) = (Arc::<VhostCounters>::default(), Arc::<AtomicU64>::default());
    let own = (Arc::clone(&counters), Arc::clone(&flushes));
    let thread = std::thread::spawn(move || {
        let ring = Ring::new(RingConfig::of(64)).expect("these tests need io_uring");
        let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
        let (kill, mut killed) = mailbox(&executor.handle());
        tell.send(kill).expect("the test waits");
        let volume = MemVolume::new("disk", VOLUME_BYTES);
        if setting.is_read_only {
            volume.set_read_only();
        }
        let volume = TestVolume { volume, setting };
        let all = serve_all(executor.handle(), (ring, volume.clone()), (sockets, setting), own.0);
        let ended = executor.block_on(until(all, killed.receive()));
        own.1.store(volume.volume.flush_count(), Ordering::Relaxed);
        // A test that does not want to know has gone on.
        let _gone = tell_ends.send(ended.unwrap_or_default());
    });
    Server { thread, ends, kill: told.recv().expect("the server starts"), counters, flushes }
}

async fn serve_all(
    handle: Handle,
    (ring, volume): (Ring, TestVolume),
    (sockets, setting): (Vec<UnixStream>, Setting),
    counters: Arc<VhostCounters>,
) -> Vec<Result<(), String>> {
    let mut limits = SessionLimits::default();
    if let Some(patience) = setting.patience {
        (limits.handshake_time, limits.payload_time) = (patience, patience);
    }
    let serve = |socket: UnixStream| {
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
            let served = server.serve(socket.into(), pending(), place).await;
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
}

impl Volume for TestVolume {
    fn facts(&self) -> VolumeFacts {
        self.volume.facts()
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
