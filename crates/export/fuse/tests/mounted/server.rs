//! A server under test: a volume in memory, served by one worker, on a mount of its own.

use ashlar_fuse::{FuseServer, Mount, MountBy, mount};
use ashlar_ring::{Executor, Ring, RingConfig, Schedule};
use ashlar_volume::MemVolume;
use std::path::Path;
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

/// A mounted volume.
pub struct Mounted {
    mount: Mount,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    _place: tempfile::NamedTempFile,
}

impl Mounted {
    pub fn new(setup: Setup) -> Mounted {
        let place = tempfile::NamedTempFile::new().unwrap();
        let mount = mount(place.path(), setup.by, 1).unwrap();
        let device = mount.devices()[0].clone();
        let thread = std::thread::spawn(move || {
            let ring = Ring::new(RingConfig::of(64))?;
            let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
            let volume = MemVolume::new("disk", setup.size_bytes).with_facts(|facts| {
                facts.logical_block_bytes = setup.logical_block_bytes;
                facts.request_bytes_max = setup.request_bytes_max;
                facts.read_only = setup.read_only;
            });
            let worker = (executor.handle(), ring);
            let server = FuseServer::new(worker, device, volume)?;
            let counters = server.counters.clone();
            let end = executor.block_on(server.serve());
            assert_eq!(counters.buffers_replaced.load(std::sync::atomic::Ordering::Relaxed), 0);
            end
        });
        Mounted { mount, thread: Some(thread), _place: place }
    }

    pub fn file(&self) -> &Path {
        self.mount.file()
    }

    pub fn disk(&self) -> String {
        self.file().to_str().unwrap().to_owned()
    }

    /// Unmount, and fail unless the server ends by itself without an error.
    pub fn stop(mut self) {
        self.mount.unmount().unwrap();
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}
