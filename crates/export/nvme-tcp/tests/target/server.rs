//! The target under test: workers in threads, volumes in memory, and everything they did to look at
//! afterwards.

use ashlar_iobuf::{BufMut, Pool, PoolClass};
use ashlar_nvme_protocol::nqn::Admitted;
use ashlar_nvme_tcp::{
    HostTerms, Identity, Limits, Namespace, NvmeServer, ReservationStore, Target, TargetConfig,
    Volumes,
};
use ashlar_ring::local::Signal;
use ashlar_ring::mailbox::{Sender, mailbox};
use ashlar_ring::{Executor, Handle, Ring, RingConfig, Schedule, until};
use ashlar_units::{Extent, to_usize};
use ashlar_volume::{
    AllocationRun, Command, Reply, Request, Transfer, Volume, VolumeError, VolumeErrorKind,
    VolumeFacts,
};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

pub const NQN: &str = "nqn.2024-01.example:array";
use crate::queue::BLOCK;

/// One volume, shared by all workers.
pub struct Disk {
    pub facts: Mutex<VolumeFacts>,
    pub bytes: Mutex<Vec<u8>>,
    /// Requests that touch it fail.
    pub failing: Mutex<Option<Extent>>,
    /// While set, flushes fail.
    pub is_sick: AtomicBool,
    /// While set, writes wait.
    pub is_held: AtomicBool,
    pub flushes: AtomicU64,
    pub durable_writes: AtomicU64,
    pub submitted: AtomicU64,
    /// Bytes of transfers whose turn has come and that were not submitted.
    pub turns: AtomicI64,
}

impl Disk {
    pub fn new(name: &str, number: u8, blocks: usize) -> Arc<Disk> {
        let facts = VolumeFacts {
            name: name.to_owned(),
            uuid: [number; 16],
            size_bytes: u64::try_from(blocks * BLOCK).expect("short"),
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            strip_bytes: 16_384,
            optimal_bytes: 65_536,
            request_bytes_max: 1 << 20,
            read_only: false,
            is_rotational: false,
        };
        Arc::new(Disk {
            facts: Mutex::new(facts),
            bytes: Mutex::new(vec![0; blocks * BLOCK]),
            failing: Mutex::default(),
            is_sick: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
            durable_writes: AtomicU64::new(0),
            submitted: AtomicU64::new(0),
            turns: AtomicI64::new(0),
        })
    }

    fn use_turn(&self, request: &Request) {
        if matches!(request.command, Command::Read(_) | Command::Write(_)) {
            let bytes = i64::try_from(request.extent.bytes).expect("short");
            let before = self.turns.fetch_sub(bytes, Ordering::Relaxed);
            assert!(before >= bytes, "{request:?} has not waited for its turn");
        }
    }

    fn apply(&self, request: Request) -> Result<Reply, VolumeError> {
        self.submitted.fetch_add(1, Ordering::Relaxed);
        self.use_turn(&request);
        self.facts.lock().unwrap().admit(&request)?;
        let extent = request.extent;
        let is_hit = |bad: Extent| bad.offset < extent.end() && extent.offset < bad.end();
        if self.failing.lock().unwrap().is_some_and(is_hit) {
            return Err(VolumeError::new(VolumeErrorKind::Io, extent));
        }
        self.durable_writes.fetch_add(u64::from(request.fua), Ordering::Relaxed);
        let range = to_usize(extent.offset)..to_usize(extent.end());
        let mut bytes = self.bytes.lock().unwrap();
        match request.command {
            Command::Flush if self.is_sick.load(Ordering::SeqCst) => {
                return Err(VolumeError::new(VolumeErrorKind::Io, extent));
            }
            Command::Flush => {
                self.flushes.fetch_add(1, Ordering::Relaxed);
            }
            Command::Read(mut buffer) => {
                buffer.copy_from_slice(&bytes[range]);
                return Ok(Reply::Data(buffer));
            }
            Command::Write(buffer) => bytes[range].copy_from_slice(&buffer),
            Command::WriteZeroes { .. } | Command::Discard => bytes[range].fill(0),
        }
        Ok(Reply::Done)
    }
}

/// The disk as one worker sees it.
#[derive(Clone)]
pub struct DiskVolume {
    disk: Arc<Disk>,
    pool: Rc<Pool>,
    handle: Handle,
    _clone: Rc<()>,
}

impl Volume for DiskVolume {
    fn facts(&self) -> VolumeFacts {
        self.disk.facts.lock().unwrap().clone()
    }

    async fn turn(&self, _transfer: Transfer, bytes: u64) {
        self.disk.turns.fetch_add(i64::try_from(bytes).expect("short"), Ordering::Relaxed);
    }

    async fn buffer(&self, bytes: usize) -> BufMut {
        self.pool.get(bytes).await
    }

    async fn submit(&self, request: Request) -> Result<Reply, VolumeError> {
        while self.disk.is_held.load(Ordering::SeqCst) && request.command.is_change() {
            self.handle.sleep(std::time::Duration::from_millis(1)).await;
        }
        self.disk.apply(request)
    }

    async fn allocation(
        &self,
        _extent: Extent,
        _runs_max: usize,
    ) -> Result<Vec<AllocationRun>, VolumeError> {
        Ok(Vec::new())
    }
}

#[derive(Clone)]
struct Disks {
    disks: Arc<Mutex<Vec<Arc<Disk>>>>,
    pool: Rc<Pool>,
    handle: Handle,
    clones: Rc<()>,
}

impl Volumes for Disks {
    type Volume = DiskVolume;

    fn open(&self, name: &str) -> Option<DiskVolume> {
        let disks = self.disks.lock().unwrap();
        let disk = disks.iter().find(|disk| disk.facts.lock().unwrap().name == name)?;
        Some(DiskVolume {
            disk: Arc::clone(disk),
            pool: Rc::clone(&self.pool),
            handle: self.handle.clone(),
            _clone: Rc::clone(&self.clones),
        })
    }
}

/// Reservations that outlive a target, in memory.
#[derive(Default)]
pub struct Kept {
    pub stored: Mutex<BTreeMap<[u8; 16], Vec<u8>>>,
    pub is_failing: AtomicBool,
    /// Whether the host has been up all the time.
    pub has_rebooted: AtomicBool,
}

impl ReservationStore for Kept {
    fn load(&self, nguid: &[u8; 16]) -> io::Result<Option<(Vec<u8>, bool)>> {
        let was_up = !self.has_rebooted.load(Ordering::SeqCst);
        Ok(self.stored.lock().unwrap().get(nguid).map(|bytes| (bytes.clone(), was_up)))
    }

    fn save(&self, nguid: &[u8; 16], bytes: &[u8]) -> io::Result<()> {
        if self.is_failing.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.stored.lock().unwrap().insert(*nguid, bytes.to_vec());
        Ok(())
    }
}

/// What a target is started with.
pub struct Setup {
    pub limits: Limits,
    pub hosts: Admitted<HostTerms>,
    pub kept: Arc<Kept>,
    pub disks: Vec<Arc<Disk>>,
    /// Buffers of 1 MiB of each worker; there are sixteen times as many of 64 KiB and of 4 KiB.
    pub buffers: usize,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            limits: Limits::default(),
            hosts: Admitted::Anybody(HostTerms::default()),
            kept: Arc::default(),
            disks: vec![Disk::new("disk", 1, 32_768)],
            buffers: 4,
        }
    }
}

/// A running target of two workers. [`TestTarget::stop`] checks that nothing was left behind.
pub struct TestTarget {
    pub target: Arc<Target>,
    pub disks: Arc<Mutex<Vec<Arc<Disk>>>>,
    pub kept: Arc<Kept>,
    /// How each session ended, as text.
    pub ends: Arc<Mutex<Vec<String>>>,
    workers: Vec<Worker>,
}

struct Worker {
    sockets: Sender<Option<OwnedFd>>,
    thread: Option<JoinHandle<()>>,
}

const WORKERS: usize = 2;

impl TestTarget {
    pub fn new() -> TestTarget {
        TestTarget::with(Setup::default())
    }

    pub fn with(setup: Setup) -> TestTarget {
        let identity = Identity {
            nqn: NQN.parse().expect("a name"),
            serial: "serial".to_owned(),
            model: "model".to_owned(),
            firmware: "1".to_owned(),
        };
        let kept = setup.kept;
        let target = Target::new(TargetConfig {
            identity,
            hosts: setup.hosts,
            limits: setup.limits,
            store: kept.clone(),
            aside: Arc::new(|work| drop(std::thread::spawn(work))),
        });
        target.set_portals(vec!["192.0.2.1:4420".parse().expect("an address")]);
        let disks = Arc::new(Mutex::new(setup.disks));
        let ends = Arc::new(Mutex::new(Vec::new()));
        let shared = (target.clone(), disks.clone(), ends.clone());
        let workers = (0..WORKERS).map(|_| worker(shared.clone(), setup.buffers)).collect();
        let test = TestTarget { target, disks, kept, ends, workers };
        assert!(test.refresh().is_empty(), "every volume is served");
        test
    }

    /// Have the target look at the disks again. What it will not serve is returned.
    pub fn refresh(&self) -> Vec<String> {
        let disks = self.disks.lock().unwrap();
        let namespaces = disks.iter().zip(1..).map(|(disk, id)| {
            let facts = disk.facts.lock().unwrap().clone();
            Namespace { id, facts }
        });
        let left_out = self.target.set_namespaces(namespaces.collect());
        left_out.iter().map(ToString::to_string).collect()
    }

    /// A connection that this worker serves.
    pub fn connect(&self, worker: usize) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        self.workers[worker].sockets.send(Some(theirs.into()));
        ours
    }

    pub fn disk(&self) -> Arc<Disk> {
        Arc::clone(&self.disks.lock().unwrap()[0])
    }

    /// Wait until `is_met`, which must come to pass; a hang is the failure.
    pub fn until(&self, is_met: impl Fn(&TestTarget) -> bool) {
        while !is_met(self) {
            for worker in &self.workers {
                let thread = worker.thread.as_ref().unwrap();
                assert!(!thread.is_finished(), "a worker died");
            }
            std::thread::yield_now();
        }
    }

    /// The counter, which only rises.
    pub fn count(&self, counter: impl Fn(&ashlar_nvme_tcp::NvmeCounters) -> &AtomicU64) -> u64 {
        counter(self.target.counters()).load(Ordering::Relaxed)
    }

    /// Wait until all sessions have ended, stop, and fail if a task, volume or buffer is left.
    pub fn stop(self) {
        let open = |it: &TestTarget| it.count(|counters| &counters.sessions.open);
        self.until(|it| open(it) == 0);
        assert_eq!(self.target.controllers(), 0);
        self.stop_now();
    }

    /// Stop with sessions open: their futures are dropped, and nothing of them may be left.
    pub fn stop_now(mut self) {
        for worker in &mut self.workers {
            worker.sockets.send(None);
            worker.thread.take().unwrap().join().unwrap();
        }
        let users = |disk: &Arc<Disk>| self.target.users_of(&disk.facts.lock().unwrap().name);
        assert!(self.disks.lock().unwrap().iter().all(|disk| users(disk) == 0));
    }
}

type Shared = (Arc<Target>, Arc<Mutex<Vec<Arc<Disk>>>>, Arc<Mutex<Vec<String>>>);

fn worker((target, disks, ends): Shared, buffers: usize) -> Worker {
    let (started, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let ring = Ring::new(RingConfig::of(256)).unwrap();
        let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
        let handle = executor.handle();
        let (sockets, mut arriving) = mailbox::<Option<OwnedFd>>(&handle);
        started.send(sockets).unwrap();
        let class = |bytes: usize, count: usize| PoolClass { buffer_bytes: bytes, count };
        let classes =
            [class(4096, 16 * buffers), class(65_536, 16 * buffers), class(1 << 20, buffers)];
        let pool = Rc::new(Pool::new(&classes).unwrap());
        let clones = Rc::new(());
        let volumes =
            Disks { disks, pool: pool.clone(), handle: handle.clone(), clones: clones.clone() };
        let server = NvmeServer { handle: handle.clone(), ring, volumes, target, share: None };
        let stopping = Signal::new();
        executor.block_on(async {
            while let Some(socket) = arriving.receive().await {
                let (server, ends, stopping) = (server.clone(), ends.clone(), stopping.clone());
                handle.spawn(async move {
                    let served = until(server.serve(socket), stopping.changed()).await;
                    let end = match served {
                        None => return,
                        Some(Ok(end)) => format!("{end:?}"),
                        Some(Err(error)) => error.to_string(),
                    };
                    ends.lock().unwrap().push(end);
                });
            }
        });
        stopping.notify_all();
        let is_settled = || {
            let usage = pool.usage();
            Rc::strong_count(&clones) == 2 && usage.classes.iter().all(|it| it.in_use == 0)
        };
        executor.block_on(settle(&handle, is_settled));
    });
    Worker { sockets: wait.recv().unwrap(), thread: Some(thread) }
}

/// Let tasks run until only this function's caller is left holding anything.
async fn settle(handle: &Handle, is_met: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if is_met() {
            return;
        }
        handle.sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("a session left tasks, volumes or buffers behind");
}
