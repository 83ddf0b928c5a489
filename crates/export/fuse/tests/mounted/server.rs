//! Servers under test: volumes in memory, served by one worker or two, on a mount of their own.

use ashlar_fuse::{BusyBlocks, Files, FuseServer, Mount, MountBy, mount};
use ashlar_iobuf::BufMut;
use ashlar_ring::{Executor, Ring, RingConfig, Schedule};
use ashlar_units::Extent;
use ashlar_volume::{AllocationRun, MemVolume, Reply, Request, Volume, VolumeError, VolumeFacts};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// How the volumes of a test are.
#[derive(Clone, Debug)]
pub struct Setup {
    pub size_bytes: u64,
    pub logical_block_bytes: u32,
    pub request_bytes_max: u32,
    pub read_only: bool,
    pub by: MountBy,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            size_bytes: 64 << 20,
            logical_block_bytes: 512,
            request_bytes_max: 1 << 20,
            read_only: false,
            by: MountBy::System,
        }
    }
}

/// A volume in memory with other facts than the plain one.
#[derive(Clone)]
pub struct Shaped {
    inner: MemVolume,
    facts: VolumeFacts,
}

impl Volume for Shaped {
    fn facts(&self) -> VolumeFacts {
        self.facts.clone()
    }

    async fn buffer(&self, bytes: usize) -> BufMut {
        self.inner.buffer(bytes).await
    }

    async fn submit(&self, request: Request) -> Result<Reply, VolumeError> {
        self.facts.admit(&request)?;
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
struct Shelf {
    names: Arc<Mutex<Vec<String>>>,
    /// Every volume there may be; shown are those whose names are listed.
    volumes: Vec<Shaped>,
}

impl Files for Shelf {
    type Volume = Shaped;

    fn names(&self) -> Vec<String> {
        self.names.lock().unwrap().clone()
    }

    fn open(&self, name: &str) -> Option<Shaped> {
        let is_shown = self.names.lock().unwrap().iter().any(|shown| shown == name);
        let volume = self.volumes.iter().find(|volume| volume.facts.name == name);
        volume.filter(|_| is_shown).cloned()
    }
}

/// A mounted directory with `disk` in it, and `spare` once it is shown.
pub struct Mounted {
    mount: Mount,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    names: Arc<Mutex<Vec<String>>>,
    _directory: tempfile::TempDir,
}

impl Mounted {
    pub fn new(setup: Setup) -> Mounted {
        let directory = tempfile::tempdir().unwrap();
        let mount = mount(directory.path(), setup.by).unwrap();
        let names = Arc::new(Mutex::new(vec!["disk".to_owned()]));
        let (device, shown) = (mount.device(), names.clone());
        let thread = std::thread::spawn(move || {
            let ring = Ring::new(RingConfig::of(64))?;
            let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
            let volumes = ["disk", "spare"].map(|name| {
                let inner = MemVolume::new(name, setup.size_bytes);
                let facts = VolumeFacts {
                    logical_block_bytes: setup.logical_block_bytes,
                    request_bytes_max: setup.request_bytes_max,
                    read_only: setup.read_only,
                    ..inner.facts()
                };
                Shaped { inner, facts }
            });
            let shelf = Shelf { names: shown, volumes: volumes.to_vec() };
            let worker = (executor.handle(), ring);
            let server = FuseServer::new(worker, device, shelf, Arc::new(BusyBlocks::new()));
            let counters = server.counters.clone();
            let end = executor.block_on(server.serve());
            assert_eq!(counters.buffers_replaced.load(std::sync::atomic::Ordering::Relaxed), 0);
            end
        });
        Mounted { mount, thread: Some(thread), names, _directory: directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.mount.directory().join(name)
    }

    pub fn disk(&self) -> String {
        self.path("disk").to_str().unwrap().to_owned()
    }

    pub fn show(&self, names: &[&str]) {
        *self.names.lock().unwrap() = names.iter().map(|&name| name.to_owned()).collect();
    }

    /// Unmount, and fail unless the server ends by itself without an error.
    pub fn stop(mut self) {
        self.mount.unmount().unwrap();
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}
