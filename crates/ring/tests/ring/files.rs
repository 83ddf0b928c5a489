//! Reads, writes and syncs of files: what comes back, however many there are, and rings that cannot
//! be.

use crate::{BLOCK, temporary_file, world};
use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::local::Semaphore;
use ashlar_ring::{Ring, RingConfig};
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

#[test]
fn written_data_is_read_back_and_synced_and_punched() {
    let (mut executor, _, ring) = world(8);
    let file = temporary_file();
    executor.block_on(async {
        let (wrote, _) = ring.write_at(&file, 8192, Buf::copied(&[7; BLOCK])).await;
        assert_eq!(wrote.expect("write"), BLOCK);
        let (wrote, _) = ring.write_at_durably(&file, 4096, Buf::copied(&[6; BLOCK])).await;
        assert_eq!(wrote.expect("durable write"), BLOCK);
        ring.fsync(&file, true).await.expect("data sync");
        ring.fsync(&file, false).await.expect("sync");
        let (read, buf) = ring.read_at(&file, 4096, BufMut::zeroed(3 * BLOCK)).await;
        assert_eq!(read.expect("read up to the end of the file"), 2 * BLOCK);
        assert_eq!(&buf[..BLOCK], [6; BLOCK]);
        assert_eq!(&buf[BLOCK..2 * BLOCK], [7; BLOCK]);
        let zero_range_keeping_size = 0x10 | 0x01;
        ring.fallocate(&file, zero_range_keeping_size, 8192, 4096).await.expect("zero range");
        let (read, buf) = ring.read_at(&file, 8192, BufMut::copied(&[1; BLOCK])).await;
        assert_eq!(read.expect("read"), BLOCK);
        assert_eq!(&buf[..], [0; BLOCK]);
        ring.fallocate(&file, 0, 0, 1 << 20).await.expect("grow");
        let (read, _) = ring.read_at(&file, 1 << 20, BufMut::zeroed(BLOCK)).await;
        assert_eq!(read.expect("read at the end"), 0);
    });
}

#[test]
fn errors_of_the_kernel_come_back_with_the_buffer() {
    let (mut executor, _, ring) = world(8);
    let read_only = Arc::new(OwnedFd::from(std::fs::File::open("/dev/null").expect("/dev/null")));
    executor.block_on(async {
        let (wrote, buf) = ring.write_at(&read_only, 0, Buf::copied(b"data")).await;
        assert_eq!(wrote.expect_err("not writable").raw_os_error(), Some(9));
        assert_eq!(&buf[..], b"data");
        let punch_without_keeping_size = 0x02;
        let file = temporary_file();
        let error = ring.fallocate(&file, punch_without_keeping_size, 0, 4096).await;
        assert!(error.is_err());
    });
}

#[test]
fn ten_thousand_operations_go_through_a_ring_of_64() {
    const OPERATIONS: u64 = 10_000;
    let (mut executor, handle, ring) = world(64);
    let file = temporary_file();
    let done = Rc::new(Cell::new(0));
    let all = Semaphore::new(1);
    let last = Rc::new(Cell::new(all.try_acquire()));
    for number in 0..OPERATIONS {
        let (ring, file) = (ring.clone(), Arc::clone(&file));
        let (done, last) = (Rc::clone(&done), Rc::clone(&last));
        handle.spawn(async move {
            let (wrote, buf) =
                ring.write_at(&file, number * 8, Buf::copied(&number.to_le_bytes())).await;
            assert_eq!(wrote.expect("write"), 8);
            drop(buf);
            let (read, buf) = ring.read_at(&file, number * 8, BufMut::zeroed(8)).await;
            assert_eq!(read.expect("read"), 8);
            assert_eq!(buf[..], number.to_le_bytes());
            done.set(done.get() + 1);
            if done.get() == OPERATIONS {
                drop(last.take());
            }
        });
    }
    executor.block_on(all.acquire());
    let load = ring.load();
    assert_eq!((load.in_flight, load.in_flight_max, load.in_line), (0, 64, 0));
}

#[test]
fn ring_of_impossible_size_is_refused() {
    for entries in [0, 8193, u32::MAX] {
        let refused = Ring::new(RingConfig::of(entries)).err().expect("refused");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
    assert!(Ring::new(RingConfig::of(8192)).is_ok());
}
