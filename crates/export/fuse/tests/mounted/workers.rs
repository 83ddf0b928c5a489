//! Two workers, each with its thread, ring and executor, on one mount: the kernel gives requests to
//! either.

use crate::tools::may_mount;
use ashlar_fuse::{BusyBlocks, Files, FuseCounters, FuseServer, Mount, MountBy, mount};
use ashlar_iobuf::BufMut;
use ashlar_ring::{Executor, Handle, Ring, RingConfig, Schedule};
use ashlar_units::{Extent, to_usize};
use ashlar_volume::{
    AllocationRun, Command, MemVolume, Reply, Request, Volume, VolumeError, VolumeFacts,
};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes that threads share. Each request takes a while, so that the workers get in each other's
/// way.
#[derive(Clone)]
struct Common {
    bytes: Arc<Mutex<Vec<u8>>>,
    handle: Handle,
}

impl Volume for Common {
    fn facts(&self) -> VolumeFacts {
        let size_bytes = u64::try_from(self.bytes.lock().unwrap().len()).unwrap();
        VolumeFacts {
            size_bytes,
            logical_block_bytes: 4096,
            ..MemVolume::new("disk", 4096).facts()
        }
    }

    async fn buffer(&self, bytes: usize) -> BufMut {
        BufMut::zeroed(bytes)
    }

    async fn submit(&self, request: Request) -> Result<Reply, VolumeError> {
        self.facts().admit(&request)?;
        self.handle.sleep(Duration::from_micros(200)).await;
        let range = to_usize(request.extent.offset)..to_usize(request.extent.end());
        let mut bytes = self.bytes.lock().unwrap();
        match request.command {
            Command::Read(mut data) => {
                data.copy_from_slice(&bytes[range]);
                return Ok(Reply::Data(data));
            }
            Command::Write(data) => bytes[range].copy_from_slice(&data),
            Command::WriteZeroes { .. } | Command::Discard => bytes[range].fill(0),
            Command::Flush => {}
        }
        Ok(Reply::Done)
    }

    async fn allocation(
        &self,
        extent: Extent,
        _runs_max: usize,
    ) -> Result<Vec<AllocationRun>, VolumeError> {
        Ok(vec![AllocationRun { bytes: extent.bytes, is_written: true }])
    }
}

#[derive(Clone)]
struct OneFile(Common);

impl Files for OneFile {
    type Volume = Common;

    fn names(&self) -> Vec<String> {
        vec!["disk".to_owned()]
    }

    fn open(&self, name: &str) -> Option<Common> {
        (name == "disk").then(|| self.0.clone())
    }
}

struct Worker {
    thread: JoinHandle<std::io::Result<()>>,
    counters: Arc<FuseCounters>,
}

fn start_worker(mount: &Mount, bytes: Arc<Mutex<Vec<u8>>>, busy: Arc<BusyBlocks>) -> Worker {
    let (device, counters) = (mount.device(), Arc::new(FuseCounters::default()));
    let counted = counters.clone();
    let thread = std::thread::spawn(move || {
        let ring = Ring::new(RingConfig::of(64))?;
        let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
        let handle = executor.handle();
        let files = OneFile(Common { bytes, handle: handle.clone() });
        let mut server = FuseServer::new((handle, ring), device, files, busy);
        server.counters = counted;
        executor.block_on(server.serve())
    });
    Worker { thread, counters }
}

#[test]
fn two_workers_share_a_mount_and_do_not_undo_each_others_writes() {
    if !may_mount("two_workers_share_a_mount_and_do_not_undo_each_others_writes") {
        return;
    }
    const WRITERS: u8 = 16;
    const ROUNDS: usize = 40;
    let directory = tempfile::tempdir().unwrap();
    let mut mount = mount(directory.path(), MountBy::System).unwrap();
    let bytes = Arc::new(Mutex::new(vec![0; 1 << 20]));
    let busy = Arc::new(BusyBlocks::new());
    let workers = [(); 2].map(|()| start_worker(&mount, bytes.clone(), busy.clone()));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let path = mount.directory().join("disk");
            scope.spawn(move || {
                let file = OpenOptions::new().write(true).open(path).unwrap();
                for round in 0..ROUNDS {
                    let at =
                        u64::try_from((round * usize::from(WRITERS) + usize::from(writer)) * 256);
                    file.write_all_at(&[writer + 1; 256], at.unwrap()).unwrap();
                }
            });
        }
    });
    mount.unmount().unwrap();
    for worker in workers {
        worker.thread.join().unwrap().unwrap();
        assert!(worker.counters.writes.load(Ordering::Relaxed) > 0, "both workers took part");
    }
    let bytes = bytes.lock().unwrap();
    let written = &bytes[..ROUNDS * usize::from(WRITERS) * 256];
    for (piece, writer) in written.chunks_exact(256).zip((0..WRITERS).cycle()) {
        assert!(piece.iter().all(|byte| *byte == writer + 1));
    }
}
