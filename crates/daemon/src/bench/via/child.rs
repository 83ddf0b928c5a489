//! A daemon of its own for a measurement, with an array of memory devices: `ashlar serve` as a
//! child of this process, so that its CPU time is told apart from the client's.
//!
//! What must stay true: the daemon and all that it made here are gone when this is dropped.

use super::{Via, ViaSpec};
use crate::bench::{BenchSpec, NAME, StripeWrites};
use ashlar_api::v1::array::{Create, Declustering};
use ashlar_api::v1::export::{FuseAttach, UblkAttach};
use ashlar_api::v1::status::{GetStatus, WorkerStatus};
use ashlar_api::v1::tuning::{SetTuning, Tuning};
use ashlar_api::{ApiError, Call, Client, ClientError, codes};
use ashlar_units::to_u64;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::Instant;

/// How long a daemon may take until it serves, and until it is gone.
const START_MAX: Duration = Duration::from_secs(30);
const END_MAX: Duration = Duration::from_secs(20);
/// How often to look.
const POLL: Duration = Duration::from_millis(20);
/// How long a volume that was let go may still be in use.
const DETACH_TRIES: u32 = 100;

/// Folder of the vhost-user sockets.
const VHOST: &str = "vhost";

/// Name of the NVMe subsystem.
pub(super) const SUBSYSTEM: &str = "nqn.2024-01.example:bench";

/// What stands in the way of a measurement, for people.
pub(super) fn fault(what: &str, error: impl std::fmt::Display) -> ApiError {
    let hint = "nothing is left running; 'ashlar bench' without --via measures the engine alone";
    ApiError::new("bench.failed", format!("{what}: {error}"), hint)
}

/// A folder for sockets and mounts, gone when this is dropped.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn make() -> io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("ashlar-bench-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Folder(path))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let folders =
            ["volumes/bench", "volumes", "nvme", VHOST, "state/events", "state", "written"]
                .map(|name| self.path(name));
        // Never into a mount: only empty folders go, and files one by one.
        for folder in folders.iter().chain([&self.0]) {
            let files = fs::read_dir(folder).into_iter().flatten().flatten();
            for file in files.filter(|it| it.file_type().is_ok_and(|kind| !kind.is_dir())) {
                let _kept = fs::remove_file(file.path());
            }
            let _kept = fs::remove_dir(folder);
        }
    }
}

/// A process that ends when this is dropped.
pub(super) struct Process(Child);

impl Process {
    pub(super) fn start(command: &mut Command) -> io::Result<Process> {
        // A ^C of the terminal is for this process, which ends the others in order.
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map(Process)
    }

    /// Whether it has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let id = Pid::from_child(&self.0);
        let end = Instant::now() + END_MAX;
        // A second signal is for one that waits for users of a volume.
        for _ in 0..2 {
            let _gone = kill_process(id, Signal::TERM);
            while !self.has_ended() && Instant::now() < end {
                std::thread::sleep(POLL);
            }
        }
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// A daemon that serves an array of memory devices.
pub(super) struct Daemon {
    process: Process,
    client: Client,
    /// Where the volume is: a socket, a file, a device or an address.
    pub(super) at: String,
}

impl Daemon {
    /// Start one with the array of `spec`, and serve its volume via the export that is measured.
    pub(super) fn start(
        measured: &ViaSpec,
        spec: &BenchSpec,
        folder: &Folder,
    ) -> Result<Daemon, ApiError> {
        let socket = folder.path("control.sock");
        let port = free_port().map_err(|error| fault("no port of this machine is free", error))?;
        let via = measured.via;
        let mut command = Command::new(&measured.program);
        command.arg("--socket").arg(&socket).arg("serve");
        command.arg("--fuse").arg(folder.path("volumes"));
        command.arg("--memory-devices").arg(spec.memory_bytes().to_string());
        if spec.workers > 0 {
            command.arg("--workers").arg(spec.workers.to_string());
        }
        if let Some(spin_us) = measured.spin_us {
            command.arg("--spin-us").arg(spin_us.to_string());
        }
        let nbd = folder.path("nbd.sock");
        match via {
            Via::Nbd => drop(command.arg("--nbd").arg(format!("unix:{}", nbd.display()))),
            Via::NvmeTcp => {
                let config = folder.path("bench.toml");
                fs::write(&config, nvme_config(folder, port))
                    .map_err(|error| fault("the configuration cannot be written", error))?;
                command.arg("--config").arg(config);
            }
            Via::VhostUser => drop(command.arg("--vhost-user").arg(folder.path(VHOST))),
            Via::Fuse | Via::Loop | Via::Ublk => {}
        }
        let process = Process::start(&mut command)
            .map_err(|error| fault("a daemon cannot be started", error))?;
        let client = Client::new(&socket).map_err(|error| fault("no client", error))?;
        let mut daemon = Daemon { process, client, at: String::new() };
        daemon.until_served()?;
        daemon.call(&create(spec))?;
        if let Some(wait) = spec.merge_wait {
            daemon.call(&set_merge_wait(wait))?;
        }
        daemon.at = match via {
            Via::Nbd => nbd.display().to_string(),
            Via::NvmeTcp => format!("127.0.0.1:{port}"),
            Via::Fuse | Via::Loop => daemon.call(&FuseAttach { array: NAME.to_owned() })?.file,
            Via::Ublk => daemon.call(&UblkAttach { array: NAME.to_owned() })?.device,
            Via::VhostUser => {
                let socket = folder.path(VHOST).join(format!("{NAME}.sock"));
                daemon.until_there(&socket)?;
                socket.display().to_string()
            }
        };
        Ok(daemon)
    }

    fn until_there(&mut self, socket: &Path) -> Result<(), ApiError> {
        let end = Instant::now() + START_MAX;
        while !socket.exists() {
            if self.process.has_ended() || Instant::now() > end {
                return Err(fault("the daemon does not serve", socket.display()));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn until_served(&mut self) -> Result<(), ApiError> {
        let end = Instant::now() + START_MAX;
        loop {
            match self.client.call(&GetStatus {}) {
                Ok(_) => return Ok(()),
                Err(error) if self.process.has_ended() || Instant::now() > end => {
                    return Err(fault("the daemon does not serve", error));
                }
                Err(_) => std::thread::sleep(POLL),
            }
        }
    }

    fn call<C: Call>(&self, call: &C) -> Result<C::Answer, ApiError> {
        self.client.call(call).map_err(|error| match error {
            ClientError::Refused(refusal) => refusal,
            other => fault("the daemon does not answer", other),
        })
    }

    /// What its workers counted and the CPU time of its threads so far.
    pub(super) fn look(&self) -> Result<ExportLook, ApiError> {
        let status = self.call(&GetStatus {})?;
        let array = status.arrays.iter().find(|array| array.name == NAME);
        let array = array.ok_or_else(|| ApiError::no_array(NAME))?;
        let counters = &array.counters;
        let stripe_writes = StripeWrites {
            full: counters.full_stripe_writes,
            read_modify: counters.rmw_writes,
            reconstruct: counters.rcw_writes,
            merged: counters.merged_writes,
        };
        let cpu = cpu_time(&self.process.0)
            .map_err(|error| fault("the daemon's CPU time cannot be read", error))?;
        Ok(ExportLook { workers: status.workers, stripe_writes, cpu })
    }

    /// Let go of the volume, so that the daemon ends at once.
    pub(super) fn detach(&self) {
        let call = ashlar_api::v1::export::FuseDetach { array: NAME.to_owned(), give_up: false };
        for _ in 0..DETACH_TRIES {
            match self.client.call(&call) {
                Err(ClientError::Refused(refusal)) if refusal.code == codes::EXPORT_BUSY => {
                    std::thread::sleep(POLL);
                }
                _ => return,
            }
        }
    }
}

/// What there is to be seen of a daemon at one moment.
pub(super) struct ExportLook {
    pub(super) workers: Vec<WorkerStatus>,
    pub(super) stripe_writes: StripeWrites,
    pub(super) cpu: Duration,
}

/// CPU time of all threads, to the nanosecond; a thread that ended in between is not in it.
fn cpu_time(child: &Child) -> io::Result<Duration> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{}/task", child.id()))? {
        let told = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        let own = told.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok());
        nanos += own.unwrap_or(0);
    }
    match nanos {
        0 => Err(io::Error::other("the kernel has no /proc/PID/schedstat")),
        nanos => Ok(Duration::from_nanos(nanos)),
    }
}

fn create(spec: &BenchSpec) -> Create {
    let device = format!("memory:{}", spec.member_bytes());
    Create {
        name: NAME.to_owned(),
        level: spec.level,
        devices: vec![device; spec.member_count],
        spares: Vec::new(),
        parity: spec.parity,
        group_members: spec.group_members,
        declustered: spec
            .stripe_width
            .map(|stripe_width| Declustering { stripe_width, ..Declustering::default() }),
        strip_bytes: Some(spec.strip_bytes),
        member_bytes: None,
        logical_block_bytes: Some(4096),
        policy: spec.policy,
        checksums: spec.checksums,
        atomic_write_bytes: spec.writes_whole.then_some(4096),
        destroy: Vec::new(),
        whole: false,
        dry_run: false,
        not_remembered: true,
    }
}

fn set_merge_wait(wait: Duration) -> SetTuning {
    let merge_wait_us = u64::try_from(wait.as_micros()).ok();
    let tuning = Tuning { merge_wait_us, ..Tuning::default() };
    SetTuning { array: NAME.to_owned(), tuning, not_remembered: true, forget: false }
}

fn nvme_config(folder: &Folder, port: u16) -> String {
    format!(
        "[nvme_tcp]\nlisten = [\"127.0.0.1:{port}\"]\ntrusted_network = true\n\
         nqn = \"{SUBSYSTEM}\"\nstate = \"{}\"\n",
        folder.path("nvme").display()
    )
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A share of a whole, as a figure for people.
pub(super) fn per(count: u64, requests: u64) -> f64 {
    count as f64 / requests.max(1) as f64
}

/// Two looks.
pub(super) struct ExportLooks {
    pub(super) before: ExportLook,
    pub(super) after: ExportLook,
}

impl ExportLooks {
    /// The difference of a counter of all workers.
    pub(super) fn grown(&self, counter: fn(&WorkerStatus) -> u64) -> u64 {
        let sum = |look: &ExportLook| look.workers.iter().map(counter).sum::<u64>();
        sum(&self.after).saturating_sub(sum(&self.before))
    }

    /// Nanoseconds of CPU time.
    pub(super) fn cpu_nanos(&self) -> u64 {
        let nanos = self.after.cpu.saturating_sub(self.before.cpu).as_nanos();
        u64::try_from(nanos).unwrap_or_else(|_| to_u64(usize::MAX))
    }
}
