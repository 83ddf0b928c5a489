//! Reads and writes of any alignment, compared with a plain array of bytes.

use crate::io::{BusyBlocks, FileIo};
use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::{Executor, Handle, Schedule, VirtualReactor};
use ashlar_units::{Extent, to_usize};
use ashlar_volume::{
    AllocationRun, Command, MemVolume, Reply, Request, Transfer, Volume, VolumeError, VolumeFacts,
};
use proptest::prelude::{Just, any, prop_oneof, proptest};
use rustix::io::Errno;
use std::rc::Rc;
use std::time::Duration;

/// A volume of large blocks and short requests that takes its time.
#[derive(Clone)]
struct Coarse {
    inner: MemVolume,
    facts: VolumeFacts,
    handle: Handle,
}

impl Coarse {
    fn new(handle: &Handle, block_bytes: u32, size_bytes: u64) -> Coarse {
        let inner = MemVolume::new("v", size_bytes).with_facts(|facts| {
            facts.logical_block_bytes = block_bytes;
            facts.request_bytes_max = 16_384;
        });
        Coarse { facts: inner.facts(), inner, handle: handle.clone() }
    }
}

impl Volume for Coarse {
    fn facts(&self) -> VolumeFacts {
        self.facts.clone()
    }

    async fn turn(&self, transfer: Transfer, bytes: u64) {
        self.inner.turn(transfer, bytes).await;
    }

    async fn buffer(&self, bytes: usize) -> BufMut {
        self.inner.buffer(bytes).await
    }

    async fn submit(&self, request: Request) -> Result<Reply, VolumeError> {
        if let Command::Write(data) = &request.command {
            assert_eq!(data.address() % 512, 0, "devices want aligned memory");
        }
        self.handle.sleep(Duration::from_micros(1 + self.handle.random_u64() % 200)).await;
        self.inner.submit(request).await
    }

    async fn allocation(
        &self,
        extent: Extent,
        runs_max: usize,
    ) -> Result<Vec<AllocationRun>, VolumeError> {
        self.inner.allocation(extent, runs_max.min(2)).await
    }
}

const SIZE: u64 = 65_536;

fn run<T>(seed: u64, test: impl AsyncFnOnce(Handle) -> T) -> T {
    let mut executor = Executor::new(Box::new(VirtualReactor::new()), Schedule::Seeded(seed));
    let handle = executor.handle();
    executor.block_on(test(handle))
}

fn io<'a>(handle: &'a Handle, busy: &'a BusyBlocks, volume: &'a Coarse) -> FileIo<'a, Coarse> {
    FileIo { handle, busy, volume, facts: &volume.facts }
}

proptest! {
    #[test]
    fn changes_of_any_alignment_leave_what_an_array_would_hold(
        block_bytes in prop_oneof![Just(512u32), Just(4096)],
        changes in proptest::collection::vec(
            (0..SIZE + 100, 1..40_000u64, any::<u8>(), 0..3u8),
            1..12,
        ),
    ) {
        run(1, async |handle| {
            let (busy, volume) = (BusyBlocks::new(), Coarse::new(&handle, block_bytes, SIZE));
            let io = io(&handle, &busy, &volume);
            let mut model = vec![0; to_usize(SIZE)];
            for (offset, bytes, value, kind) in changes {
                let fill = if kind == 0 { value } else { 0 };
                let end = (offset + bytes).min(SIZE);
                if kind == 0 {
                    let data = Buf::copied(&vec![value; to_usize(bytes)]);
                    let written = io.write(offset, &data, false).await;
                    let expected = if offset < SIZE { Ok(end - offset) } else { Err(Errno::NOSPC) };
                    assert_eq!(written, expected);
                } else {
                    io.write_zeroes(Extent::new(offset, bytes), kind == 1).await.unwrap();
                }
                if offset < SIZE {
                    model[to_usize(offset)..to_usize(end)].fill(fill);
                }
                let read = io.read(Extent::new(offset / 2, bytes)).await.unwrap();
                let end = (offset / 2 + bytes).min(SIZE);
                assert!(*read == model[to_usize(offset / 2)..to_usize(end)]);
            }
            assert!(*io.read(Extent::new(0, SIZE + 1)).await.unwrap() == model[..]);
            assert!(busy.is_idle());
        });
    }
}

#[test]
fn writers_of_one_block_do_not_undo_each_other() {
    for seed in 0..50 {
        run(seed, async |handle| {
            let volume = Coarse::new(&handle, 4096, SIZE);
            let busy = Rc::new(BusyBlocks::new());
            let done = ashlar_ring::local::Semaphore::new(32);
            for part in 0u8..32 {
                let (spawned, volume, busy) = (handle.clone(), volume.clone(), busy.clone());
                let permit = done.acquire().await;
                handle.spawn(async move {
                    let data = Buf::copied(&[part + 1; 256]);
                    let io = io(&spawned, &busy, &volume);
                    io.write(u64::from(part) * 256, &data, false).await.unwrap();
                    drop(permit);
                });
            }
            while done.in_use() > 0 {
                handle.sleep(Duration::from_micros(100)).await;
            }
            let all = io(&handle, &busy, &volume).read(Extent::new(0, 8192)).await.unwrap();
            for part in 0u8..32 {
                let from = usize::from(part) * 256;
                assert!(all[from..from + 256].iter().all(|byte| *byte == part + 1), "seed {seed}");
            }
        });
    }
}

#[test]
fn seeking_finds_data_and_holes() {
    run(1, async |handle| {
        let (busy, volume) = (BusyBlocks::new(), Coarse::new(&handle, 512, SIZE));
        let io = io(&handle, &busy, &volume);
        for at in [8192, 16_384, 40_960] {
            io.write(at, &Buf::copied(&[1; 4096]), false).await.unwrap();
        }
        assert_eq!(io.seek(0, true).await, Ok(8192));
        assert_eq!(io.seek(100, false).await, Ok(100));
        assert_eq!(io.seek(8200, true).await, Ok(8200));
        assert_eq!(io.seek(8200, false).await, Ok(12_288));
        assert_eq!(io.seek(20_480, true).await, Ok(40_960));
        assert_eq!(io.seek(45_056, true).await, Err(Errno::NXIO));
        assert_eq!(io.seek(40_960, false).await, Ok(45_056));
        assert_eq!(io.seek(SIZE, false).await, Err(Errno::NXIO));
    });
}

#[test]
fn failures_become_error_numbers() {
    run(1, async |handle| {
        let (busy, volume) = (BusyBlocks::new(), Coarse::new(&handle, 512, SIZE));
        volume.inner.fail_at(Extent::new(4096, 4096));
        let io = io(&handle, &busy, &volume);
        assert_eq!(io.read(Extent::new(0, 8192)).await.map(drop), Err(Errno::IO));
        assert_eq!(io.write(5000, &Buf::copied(&[1]), true).await, Err(Errno::IO));
        assert!(busy.is_idle(), "a failed write lets its block go");
        volume.inner.set_read_only();
        assert_eq!(io.write(0, &Buf::copied(&[1; 512]), true).await, Err(Errno::ROFS));
    });
}
