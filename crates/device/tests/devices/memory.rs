//! Claims about the devices without hardware, and about starting commands and waiting for them.

use ashlar_device::{
    Device, Fault, FaultKind, MemDevice, NullDevice, Opened, discard, flush, read, write,
    write_zeroes,
};
use ashlar_iobuf::BufMut;
use std::rc::Rc;

use crate::world::{pattern, run};

const MIB: u64 = 1 << 20;

#[test]
fn memory_reads_what_was_written_across_pages() {
    run(async |handle, supply| {
        let device = MemDevice::new("mem:a", MIB).attach(&handle);
        let sent = pattern(200 * 1024, 3);
        let offset = 60 * 1024;
        write(&*device, &supply, offset, sent.freeze()).await.expect("written");
        let got = read(&*device, &supply, offset, BufMut::zeroed(200 * 1024)).await.expect("read");
        assert_eq!(&got[..], &pattern(200 * 1024, 3)[..]);
        let before = read(&*device, &supply, offset - 512, BufMut::zeroed(512)).await;
        assert!(
            before.expect("read").iter().all(|byte| *byte == 0),
            "the byte before is untouched"
        );
    });
}

#[test]
fn memory_that_is_taken_at_once_keeps_what_it_holds() {
    let memory = MemDevice::new("mem:a", MIB);
    memory.poke(100, b"held");
    memory.take_memory(130 * 1024);
    assert_eq!(memory.used_bytes(), 192 * 1024);
    memory.take_memory(u64::MAX);
    assert_eq!(memory.used_bytes(), MIB);
    let mut held = [1; 6];
    memory.peek(99, &mut held);
    assert_eq!(&held, b"\0held\0");
}

#[test]
fn memory_never_written_reads_zeros_and_takes_no_memory() {
    run(async |handle, supply| {
        let memory = MemDevice::new("mem:a", 1 << 34);
        let device = memory.attach(&handle);
        let got = read(&*device, &supply, 1 << 33, pattern(8192, 9)).await.expect("read");
        assert!(got.iter().all(|byte| *byte == 0));
        assert_eq!(memory.used_bytes(), 0);
    });
}

#[test]
fn many_commands_run_at_once_and_are_awaited_in_any_order() {
    run(async |handle, supply| {
        let device = MemDevice::new("mem:a", MIB).attach(&handle);
        let writes: Vec<_> = (0..16u8)
            .map(|at| write(&*device, &supply, u64::from(at) * 4096, pattern(4096, at).freeze()))
            .collect();
        for written in writes.into_iter().rev() {
            written.await.expect("written");
        }
        flush(&*device, &supply).await.expect("flushed");
        for at in 0..16u8 {
            let got = read(&*device, &supply, u64::from(at) * 4096, BufMut::zeroed(4096)).await;
            assert_eq!(&got.expect("read")[..], &pattern(4096, at)[..]);
        }
    });
}

#[test]
fn workers_share_the_bytes_of_one_memory() {
    run(async |handle, supply| {
        let memory = MemDevice::new("mem:a", MIB);
        let (one, other) = (memory.attach(&handle), memory.attach(&handle));
        write(&*one, &supply, 512, pattern(512, 1).freeze()).await.expect("written");
        let got = read(&*other, &supply, 512, BufMut::zeroed(512)).await.expect("read");
        assert_eq!(&got[..], &pattern(512, 1)[..]);
        let mut peeked = [0; 512];
        memory.peek(512, &mut peeked);
        assert_eq!(peeked, pattern(512, 1)[..]);
        memory.poke(1024, &[5; 512]);
        let got = read(&*other, &supply, 1024, BufMut::zeroed(512)).await.expect("read");
        assert!(got.iter().all(|byte| *byte == 5));
    });
}

#[test]
fn zeroed_and_discarded_ranges_read_zeros_and_whole_pages_are_freed() {
    run(async |handle, supply| {
        let memory = MemDevice::new("mem:a", MIB);
        let device = memory.attach(&handle);
        write(&*device, &supply, 0, pattern(256 * 1024, 1).freeze()).await.expect("written");
        assert_eq!(memory.used_bytes(), 256 * 1024);
        write_zeroes(&*device, &supply, 512, 512).await.expect("zeroed");
        discard(&*device, &supply, 32 * 1024, 128 * 1024).await.expect("discarded");
        assert_eq!(memory.used_bytes(), 192 * 1024, "one page was covered as a whole");
        let got = read(&*device, &supply, 0, BufMut::zeroed(256 * 1024)).await.expect("read");
        let mut wanted = pattern(256 * 1024, 1);
        wanted[512..1024].fill(0);
        wanted[32 * 1024..160 * 1024].fill(0);
        assert_eq!(&got[..], &wanted[..]);
    });
}

#[test]
fn beyond_the_end_reads_are_media_faults_and_writes_no_space() {
    run(async |handle, supply| {
        for device in [
            MemDevice::new("mem:a", MIB + 511).attach(&handle),
            NullDevice::new("null:a", MIB + 511).attach(&handle),
        ] {
            assert_eq!(device.facts().size_bytes, MIB, "rounded down to blocks");
            let failed = read(&*device, &supply, MIB - 512, BufMut::zeroed(1024)).await;
            let failed = failed.expect_err("ends beyond the device");
            assert_eq!(failed.fault.kind, FaultKind::Media);
            assert_eq!(failed.buffer.len(), 1024, "the buffer comes back");
            let refused = write(&*device, &supply, u64::MAX - 511, pattern(512, 0).freeze()).await;
            assert_eq!(refused, Err(Fault::NO_SPACE));
            let refused = write_zeroes(&*device, &supply, MIB, 512).await;
            assert_eq!(refused, Err(Fault::NO_SPACE));
            assert_eq!(discard(&*device, &supply, MIB, 512).await, Err(Fault::NO_SPACE));
        }
    });
}

#[test]
#[should_panic(expected = "offset 100 in blocks of 512 on mem:a")]
fn a_misaligned_offset_is_a_bug_of_the_caller() {
    run(async |handle, supply| {
        let device = MemDevice::new("mem:a", MIB).attach(&handle);
        let _ = read(&*device, &supply, 100, BufMut::zeroed(512)).await;
    });
}

#[test]
fn null_completes_everything_and_leaves_read_buffers_alone() {
    run(async |handle, supply| {
        let device = NullDevice::new("null:a", MIB).attach(&handle);
        write(&*device, &supply, 0, pattern(4096, 1).freeze()).await.expect("accepted");
        let got = read(&*device, &supply, 0, pattern(4096, 7)).await.expect("read");
        assert_eq!(&got[..], &pattern(4096, 7)[..]);
        flush(&*device, &supply).await.expect("flushed");
        discard(&*device, &supply, 0, 4096).await.expect("discarded");
        assert!(!device.facts().discard_reads_zeros);
    });
}

/// Drops every completion, as a worker that stops does.
struct Stopping(Rc<dyn Device>);
impl Device for Stopping {
    fn facts(&self) -> &ashlar_device::DeviceFacts {
        self.0.facts()
    }
    fn look_at_commands(&self) -> ashlar_device::Owed {
        self.0.look_at_commands()
    }
    fn give_up(&self) {}
    fn submit(
        &self,
        _offset: u64,
        _command: ashlar_device::Command,
        _done: ashlar_ring::Completion<ashlar_device::Outcome>,
    ) {
    }
}

#[test]
fn a_command_that_is_never_completed_counts_as_gone() {
    run(async |handle, supply| {
        let device = Stopping(MemDevice::new("mem:a", MIB).attach(&handle));
        let failed = read(&device, &supply, 0, BufMut::zeroed(512)).await.expect_err("dropped");
        assert_eq!(failed.fault, Fault::GONE);
        assert_eq!(flush(&device, &supply).await, Err(Fault::GONE));
    });
}
