//! A server under test: a volume in memory, served by one worker, on a mount of its own.

use crate::parameter::Parameter;
use ashlar_fuse::{Agreed, FuseServer, Mount, MountBy, Queues, mount, possible_cpus};
use ashlar_ring::{EntryBytes, Executor, Ring, RingConfig, Schedule};
use ashlar_volume::MemVolume;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// How requests come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// By reading the device.
    Device,
    /// Over io_uring.
    Ring,
}

impl Over {
    /// Those that this kernel has; says for `test` which it lacks.
    pub fn all(test: &str) -> Vec<Over> {
        match Parameter::is_there(test) {
            true => vec![Over::Device, Over::Ring],
            false => vec![Over::Device],
        }
    }

    pub fn queues(self) -> Option<Queues> {
        let numbers = (0..possible_cpus().unwrap()).collect();
        (self == Over::Ring).then_some(Queues { numbers, entries: 32 })
    }
}

/// How the volumes of a test are.
#[derive(Clone, Debug)]
pub struct Setup {
    pub size_bytes: u64,
    pub logical_block_bytes: u32,
    pub request_bytes_max: u32,
    pub read_only: bool,
    pub by: MountBy,
    pub over: Over,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            size_bytes: 64 << 20,
            logical_block_bytes: 512,
            request_bytes_max: 1 << 20,
            read_only: false,
            by: MountBy::System,
            over: Over::Device,
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
        let over = setup.over;
        let offered = (over == Over::Ring).then(Parameter::on);
        let (mounted, agreed) = Mounted::asking(setup);
        assert_eq!(agreed.wait().over_ring, over == Over::Ring);
        drop(offered);
        mounted
    }

    /// Ask the kernel for what the setup says, which it may not offer.
    pub fn asking(setup: Setup) -> (Mounted, Arc<OnceLock<Agreed>>) {
        let place = tempfile::NamedTempFile::new().unwrap();
        let mount = mount(place.path(), setup.by, 1).unwrap();
        let device = mount.devices()[0].clone();
        let known = Arc::new(OnceLock::new());
        let agreed = Arc::clone(&known);
        let agreed_on = Arc::clone(&known);
        let thread = std::thread::spawn(move || {
            let ring = Ring::new(RingConfig { entries: 256, entry_bytes: EntryBytes::Wide })?;
            let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
            let volume = MemVolume::new("disk", setup.size_bytes).with_facts(|facts| {
                facts.logical_block_bytes = setup.logical_block_bytes;
                facts.request_bytes_max = setup.request_bytes_max;
                facts.read_only = setup.read_only;
            });
            let mut server = FuseServer::new(executor.handle(), ring, device, volume)?;
            server.queues = setup.over.queues();
            server.agreed = agreed;
            let counters = server.counters.clone();
            let end = executor.block_on(server.serve());
            let is_over_ring = agreed_on.get().is_some_and(|agreed| agreed.over_ring);
            assert_eq!(counters.over_ring.load(Ordering::Relaxed) > 0, is_over_ring);
            assert_eq!(counters.buffers_replaced.load(Ordering::Relaxed), 0);
            end
        });
        (Mounted { mount, thread: Some(thread), _place: place }, known)
    }

    pub fn file(&self) -> &Path {
        self.mount.file()
    }

    pub fn disk(&self) -> String {
        self.file().to_str().unwrap().to_owned()
    }

    /// End all requests with errors, as the kernel does when the last descriptor is gone.
    pub fn abort(&self) {
        use rustix::mount::{UnmountFlags, unmount};
        unmount(self.file(), UnmountFlags::FORCE | UnmountFlags::DETACH).unwrap();
    }

    /// Unmount, and fail unless the server ends by itself without an error.
    pub fn stop(mut self) {
        // It may have been aborted before.
        let _gone = self.mount.unmount();
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}
