//! The configuration of an engine.

use crate::aside::Aside;
use crate::error::Refusal;
use crate::limits::{Limiter, VolumeLimits};
use crate::watch::silence::SilenceLimits;
use crate::watch::slow::SlowLimits;
use crate::written::kept::KeptMemory;
use ashlar_device::Opener;
use ashlar_ondisk::ProcessName;
use ashlar_parity::Kernel;
use ashlar_ring::{EntryBytes, affinity};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Largest request, bytes; also the length of the shared run of zeros.
pub(crate) const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Payloads of more than a block and at most this many bytes have a class of buffers of their own.
pub(crate) const MIDDLE_BYTES: usize = 65_536;
/// The largest buffers that a worker has at least.
pub(crate) const LARGE_MIN: usize = 8;
/// The `payload_bytes` from which on a worker has no more than these say.
pub(crate) const PAYLOAD_BYTES_MIN: usize = 2 * LARGE_MIN * REQUEST_BYTES_MAX;

/// Who else's data is on a device: one for each signature found, none for a blank device.
pub type Signatures = Arc<dyn Fn(&str, Ends) -> Vec<ForeignSignature> + Send + Sync>;

/// What is known of both ends of a device before it is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ends {
    /// Nothing.
    Unknown,
    /// They hold what Ashlar writes there, and zeros: a signature can only be beside the device.
    Ours,
}

/// Overwrites all that [`Signatures`] finds on a device. If something stays, a line says what.
pub type Wiper = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// A signature of somebody else on a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignSignature {
    /// What it is, for people.
    pub words: String,
    /// Where it begins, bytes; `None`: the device could not be looked at.
    pub offset: Option<u64>,
}

/// What an engine is started with.
#[derive(Clone)]
pub struct EngineConfig {
    /// Workers, one thread and one ring each.
    pub worker_count: usize,
    /// Cores that workers are bound to, in turn; if it is empty, none is bound.
    pub cores: Vec<usize>,
    /// Memory for request payloads on each worker, bytes.
    pub payload_bytes: usize,
    /// Entries of each worker's ring.
    pub ring_entries: u32,
    /// How large each entry is.
    pub ring_entry_bytes: EntryBytes,
    /// The kernel may have workers wait for write-back while it frees memory: it is to make no
    /// threads for them during requests. What blocks, such as flushes, is done one by one then.
    pub waits_in_reclaim: bool,
    /// How long a worker that has nothing to do looks for completions before it sleeps, at most,
    /// as long as that is of use. Zero: it sleeps at once. [`Duration::MAX`]: it never sleeps.
    pub spin_most: Duration,
    /// How devices are opened.
    pub opener: Arc<dyn Opener>,
    /// How foreign signatures are found; `None`: there are none.
    pub signatures: Option<Signatures>,
    /// How they are wiped.
    pub wiper: Wiper,
    /// Where devices are opened and looked at, which may block: not on a worker, if other arrays
    /// have requests there.
    pub aside: Aside,
    /// Tunables of arrays that name none.
    pub tuning: ArrayTuning,
    /// Name of the parity kernel; `None` takes the best this CPU has.
    pub kernel: Option<String>,
    /// Who runs arrays here, for the heartbeat on their members. `None`: no heartbeat is written or
    /// looked for.
    pub runner: Option<Runner>,
    /// Memory that survives a killed process. `None`: a first write is answered after a flush.
    pub kept_memory: Option<Arc<dyn KeptMemory>>,
    /// A panic of a worker ends this process at once, as if it had been killed: but a panic of work
    /// that only creates, starts or looks at an array is a refusal. If not, panics go through the
    /// executor, as tests want them.
    pub panics_end_process: bool,
    /// The wall clock, seconds since 1970: only ever displayed.
    pub wall_clock_s: fn() -> u64,
}

impl EngineConfig {
    /// Defaults: one worker for each allowed core, unpinned, 64 MiB of payload each, no signatures
    /// known, devices opened on the spot.
    pub fn new(opener: Arc<dyn Opener>) -> Self {
        EngineConfig {
            worker_count: affinity::cores().map_or(1, |cores| cores.len()),
            cores: Vec::new(),
            payload_bytes: 64 << 20,
            ring_entries: 1024,
            ring_entry_bytes: EntryBytes::Narrow,
            waits_in_reclaim: false,
            spin_most: Duration::ZERO,
            opener,
            signatures: None,
            wiper: Arc::new(|_| Ok(())),
            aside: Arc::new(|work| work()),
            tuning: ArrayTuning::default(),
            kernel: None,
            runner: None,
            kept_memory: None,
            panics_end_process: false,
            wall_clock_s: || {
                let since = std::time::UNIX_EPOCH.elapsed();
                since.map_or(0, |elapsed| elapsed.as_secs())
            },
        }
    }

    /// The least `payload_bytes` that a worker takes as they are.
    pub fn payload_bytes_min() -> usize {
        PAYLOAD_BYTES_MIN
    }

    /// The `payload_bytes` with which `count` requests of `bytes` each can be in flight on a worker
    /// at once; `None` if that is more than can be addressed.
    pub fn payload_bytes_for(count: usize, bytes: u64) -> Option<usize> {
        let class = if bytes <= ashlar_units::to_u64(MIDDLE_BYTES) {
            MIDDLE_BYTES
        } else {
            REQUEST_BYTES_MAX
        };
        count.checked_mul(2 * class)
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

/// Who runs arrays here, and how often they say so.
#[derive(Clone)]
pub struct Runner {
    /// The host, as it calls itself: what does not fit beside the process is cut.
    pub host_id: String,
    /// The kernel's id of this boot; zeros if it is not known, and then no process counts as one of
    /// this boot.
    pub boot_id: [u8; 16],
    /// This process; `None` if its own name is not known.
    pub process: Option<ProcessName>,
    /// Time between two heartbeats.
    pub interval: Duration,
    /// What is known of another process of this boot. Asked with what a heartbeat says.
    pub look: Arc<dyn Fn(ProcessName) -> ProcessState + Send + Sync>,
}

/// What is known of a process that ran an array on this boot of this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessState {
    /// It is there.
    Lives,
    /// It is not there any more, and starts nothing any more. What it asked of devices before may
    /// still be under way.
    Ended,
    /// It cannot be told from here.
    Unknown,
}

/// Tunables of one array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrayTuning {
    /// A member read that takes longer is given up on and reconstructed from the others.
    pub read_deadline: Duration,
    /// A member whose device answers nothing for so long is put out, if its group can do without
    /// it.
    pub silence: SilenceLimits,
    /// When a member that answers is too slow, and what follows.
    pub slow: SlowLimits,
    /// How long a piece of a sequential stream may wait at most to become a full stripe.
    pub merge_wait_max: Duration,
    /// Read errors on one member after which it is put out of service.
    pub read_errors_max: u64,
    /// Foreground latency that background jobs try to leave alone (95th percentile).
    pub job_latency_target: Duration,
    /// Bytes a second that a background job moves at least, whatever the foreground does.
    pub job_floor_bytes: u64,
    /// Memory for the checksum table of an array that keeps one, bytes. What is not in memory is
    /// read when it is needed.
    pub checksum_cache_bytes: u64,
    /// How long a write may wait because the members have no room for it, before it is answered
    /// with an error; `None`: without end.
    pub no_room_wait_max: Option<Duration>,
    /// Passes discards of clients on to the members as soon as that is safe, if the members then
    /// read zeros there. Not on an array with checksums.
    pub pass_discards: bool,
    /// What clients may begin in a second.
    pub limits: VolumeLimits,
}

/// The tunables of an array that runs: any thread may read them, and they may change.
///
/// What must stay true: what each request of a client asks for is read without a lock.
pub(crate) struct LiveTuning {
    all: Mutex<ArrayTuning>,
    read_deadline_ns: AtomicU64,
    /// [`WITHOUT_END`] stands for no limit.
    no_room_wait_max_ns: AtomicU64,
    pub(crate) limiter: Limiter,
}

const WITHOUT_END: u64 = u64::MAX;

impl LiveTuning {
    pub(crate) fn new(tuning: ArrayTuning) -> LiveTuning {
        let live = LiveTuning {
            all: Mutex::new(tuning),
            read_deadline_ns: AtomicU64::default(),
            no_room_wait_max_ns: AtomicU64::default(),
            limiter: Limiter::default(),
        };
        live.set(tuning);
        live
    }

    /// All of them, under a lock: not for each request.
    pub(crate) fn get(&self) -> ArrayTuning {
        *self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A member read that takes longer is given up on.
    #[inline]
    pub(crate) fn read_deadline(&self) -> Duration {
        Duration::from_nanos(self.read_deadline_ns.load(Ordering::Relaxed))
    }

    /// How long a write may wait for room; `None`: without end.
    #[inline]
    pub(crate) fn no_room_wait_max(&self) -> Option<Duration> {
        let nanos = self.no_room_wait_max_ns.load(Ordering::Relaxed);
        (nanos != WITHOUT_END).then(|| Duration::from_nanos(nanos))
    }

    /// From now on these.
    pub(crate) fn set(&self, tuning: ArrayTuning) {
        let wait = tuning.no_room_wait_max.map_or(WITHOUT_END, nanos);
        self.read_deadline_ns.store(nanos(tuning.read_deadline), Ordering::Relaxed);
        self.no_room_wait_max_ns.store(wait, Ordering::Relaxed);
        self.limiter.set(tuning.limits);
        *self.all.lock().unwrap_or_else(PoisonError::into_inner) = tuning;
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(WITHOUT_END)
}

impl Default for ArrayTuning {
    fn default() -> Self {
        ArrayTuning {
            read_deadline: Duration::from_millis(500),
            silence: SilenceLimits::default(),
            slow: SlowLimits::default(),
            merge_wait_max: Duration::from_micros(500),
            read_errors_max: 1000,
            job_latency_target: Duration::from_millis(5),
            job_floor_bytes: 16 << 20,
            checksum_cache_bytes: 64 << 20,
            no_room_wait_max: None,
            pass_discards: false,
            limits: VolumeLimits::default(),
        }
    }
}
