//! Two workers, each with its thread, ring and executor, on one mount: the kernel gives requests to
//! either.

use crate::tools::may_mount;
use ashlar_fuse::{BusyBlocks, FuseCounters, FuseServer, Leave, Mount, MountBy, mount};
use ashlar_iobuf::BufMut;
use ashlar_ring::{Executor, Handle, Ring, RingConfig, Schedule};
use ashlar_units::{Extent, to_usize};
use ashlar_volume::{
    AllocationRun, Command, MemVolume, Reply, Request, Transfer, Volume, VolumeError, VolumeFacts,
};
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
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

    async fn turn(&self, transfer: Transfer, bytes: u64) {
        let _without_limits = (transfer, bytes);
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

struct Worker {
    thread: JoinHandle<std::io::Result<()>>,
    counters: Arc<FuseCounters>,
}

/// Bytes, and what the workers of a mount share.
#[derive(Clone)]
struct Shared {
    bytes: Arc<Mutex<Vec<u8>>>,
    busy: Arc<BusyBlocks>,
    leave: Leave,
}

impl Shared {
    fn new() -> Shared {
        let bytes = Arc::new(Mutex::new(vec![0; 1 << 20]));
        Shared { bytes, busy: Arc::default(), leave: Leave::new().unwrap() }
    }
}

fn start_worker(device: &Arc<OwnedFd>, shared: &Shared) -> Worker {
    let (device, shared, counters) = (device.clone(), shared.clone(), Arc::default());
    let counted = Arc::clone(&counters);
    let thread = std::thread::spawn(move || {
        let ring = Ring::new(RingConfig::of(64))?;
        let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
        let handle = executor.handle();
        let volume = Common { bytes: shared.bytes, handle: handle.clone() };
        let mut server = FuseServer::new(handle, ring, device, volume)?;
        (server.counters, server.busy, server.leave) = (counted, shared.busy, shared.leave);
        executor.block_on(server.serve())
    });
    Worker { thread, counters }
}

fn start_workers(mount: &Mount, shared: &Shared) -> Vec<Worker> {
    mount.devices().iter().map(|device| start_worker(device, shared)).collect()
}

#[test]
fn two_workers_share_a_mount_and_do_not_undo_each_others_writes() {
    if !may_mount("two_workers_share_a_mount_and_do_not_undo_each_others_writes") {
        return;
    }
    const WRITERS: u8 = 16;
    const ROUNDS: usize = 40;
    let place = tempfile::NamedTempFile::new().unwrap();
    let mut mount = mount(place.path(), MountBy::System, 2).unwrap();
    let shared = Shared::new();
    let workers = start_workers(&mount, &shared);
    // The kernel gives requests to whoever asks first: both ask before the load begins.
    let first = OpenOptions::new().write(true).open(mount.file()).unwrap();
    for _ in 0..100_000 {
        first.write_all_at(&[1; 256], 0).unwrap();
        if workers.iter().all(|it| it.counters.writes.load(Ordering::Relaxed) > 0) {
            break;
        }
    }
    drop(first);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let path = mount.file().to_owned();
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
    let bytes = shared.bytes.lock().unwrap();
    let written = &bytes[..ROUNDS * usize::from(WRITERS) * 256];
    for (piece, writer) in written.chunks_exact(256).zip((0..WRITERS).cycle()) {
        assert!(piece.iter().all(|byte| *byte == writer + 1));
    }
}

/// One set of workers leaves with requests under way and others waiting, as an ordered handover
/// does; another takes the mount over, with more workers than there were.
#[test]
fn workers_that_leave_are_a_pause_and_their_successors_miss_no_request() {
    if !may_mount("workers_that_leave_are_a_pause_and_their_successors_miss_no_request") {
        return;
    }
    let place = tempfile::NamedTempFile::new().unwrap();
    let mut mount = mount(place.path(), MountBy::System, 2).unwrap();
    let mut shared = Shared::new();
    let mut workers = start_workers(&mount, &shared);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0_u8..8 {
            let (path, is_over) = (mount.file().to_owned(), &is_over);
            scope.spawn(move || {
                let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
                let at = u64::from(writer) * 8192;
                for round in (0..=u8::MAX).cycle() {
                    file.write_all_at(&[round; 8192], at).unwrap();
                    let mut back = [0; 8192];
                    file.read_exact_at(&mut back, at).unwrap();
                    assert_eq!(back, [round; 8192]);
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        for round in 0..5 {
            while !workers.iter().any(|it| it.counters.writes.load(Ordering::Relaxed) > 50) {
                std::thread::yield_now();
            }
            shared.leave.tell().unwrap();
            for worker in workers.drain(..) {
                worker.thread.join().unwrap().unwrap();
            }
            let devices = mount.devices().to_vec();
            let file = mount.file().to_owned();
            let next = Mount::taken_over(file, MountBy::System, devices, 2 + round).unwrap();
            std::mem::replace(&mut mount, next).leave();
            shared.leave = Leave::new().unwrap();
            workers = start_workers(&mount, &shared);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    mount.unmount().unwrap();
    for worker in workers {
        worker.thread.join().unwrap().unwrap();
    }
}
