//! Claims about devices around devices.

use std::sync::Arc;
use std::time::Duration;

use ashlar_device::{
    Access, CommandKind, CountedDevice, Fault, FaultControl, FaultKind, FaultyDevice, FaultyOpener,
    MemDevice, Opened, Opener, PathOpener, discard, flush, read, write, write_durable,
    write_zeroes,
};
use ashlar_iobuf::BufMut;
use ashlar_units::Extent;

use crate::world::{pattern, run, run_on_ring};

const MIB: u64 = 1 << 20;

fn faulty() -> (FaultyDevice, FaultControl) {
    let control = FaultControl::new();
    let inner = Arc::new(MemDevice::new("mem:a", MIB));
    (FaultyDevice::new(inner, control.clone()), control)
}

#[test]
fn without_faults_a_faulty_device_is_the_device_below() {
    run(async |handle, supply| {
        let (opened, control) = faulty();
        let device = opened.attach(&handle);
        write(&*device, &supply, 0, pattern(4096, 1).freeze()).await.expect("written");
        control.vanish();
        control.heal();
        let got = read(&*device, &supply, 0, BufMut::zeroed(4096)).await.expect("read");
        assert_eq!(&got[..], &pattern(4096, 1)[..]);
        assert_eq!(device.facts().path, "mem:a");
    });
}

#[test]
fn a_kind_of_command_that_fails_leaves_the_others_and_the_device_alone() {
    run(async |handle, supply| {
        let (opened, control) = faulty();
        let device = opened.attach(&handle);
        control.fail(CommandKind::Write, FaultKind::NoSpace);
        let refused = write(&*device, &supply, 0, pattern(4096, 1).freeze()).await;
        assert_eq!(refused, Err(Fault::NO_SPACE));
        let got = read(&*device, &supply, 0, BufMut::zeroed(4096)).await.expect("read");
        assert!(got.iter().all(|byte| *byte == 0), "nothing was written");
        control.fail(CommandKind::Flush, FaultKind::TimedOut);
        assert_eq!(flush(&*device, &supply).await, Err(Fault::TIMED_OUT));
        control.heal();
        flush(&*device, &supply).await.expect("flushed");
    });
}

#[test]
fn broken_media_reads_again_exactly_where_it_was_rewritten() {
    run(async |handle, supply| {
        let (opened, control) = faulty();
        let device = opened.attach(&handle);
        control.break_media(Extent::new(4096, 8192));
        let failed =
            read(&*device, &supply, 0, BufMut::zeroed(8192)).await.expect_err("touches it");
        assert_eq!((failed.fault, failed.buffer.len()), (Fault::MEDIA, 8192));
        discard(&*device, &supply, 4096, 8192).await.expect("discarded, which heals nothing");
        write(&*device, &supply, 4096, pattern(4096, 1).freeze()).await.expect("written");
        read(&*device, &supply, 0, BufMut::zeroed(8192)).await.expect("rewritten");
        read(&*device, &supply, 8192, BufMut::zeroed(512)).await.expect_err("still broken");
        write_zeroes(&*device, &supply, 8192, 4096).await.expect("zeroed");
        read(&*device, &supply, 0, BufMut::zeroed(16_384)).await.expect("all rewritten");
    });
}

#[test]
fn delayed_commands_take_longer_and_meet_the_faults_of_their_end() {
    run(async |handle, supply| {
        let (opened, control) = faulty();
        let device = opened.attach(&handle);
        control.delay(Duration::from_secs(30));
        let begin = handle.now();
        let first = write(&*device, &supply, 0, pattern(512, 1).freeze());
        let second = flush(&*device, &supply);
        first.await.expect("written");
        second.await.expect("flushed");
        assert_eq!(handle.now().since(begin), Duration::from_secs(30), "both at once");
        let reading = read(&*device, &supply, 0, BufMut::zeroed(512));
        control.vanish();
        assert_eq!(reading.await.expect_err("gone meanwhile").fault, Fault::GONE);
    });
}

#[test]
fn an_opener_puts_each_path_under_a_control_of_its_own() {
    let opener = FaultyOpener::new(Arc::new(PathOpener::new()));
    run(async |handle, supply| {
        let open = |path: &str| opener.open(path, Access::Exclusive).expect("memory");
        let (a, b) = (open("mem:a:1M").attach(&handle), open("mem:b:1M").attach(&handle));
        opener.control("mem:a:1M").vanish();
        assert_eq!(flush(&*a, &supply).await, Err(Fault::GONE));
        flush(&*b, &supply).await.expect("the other one lives");
        let refused = opener.open("mem:a:1M", Access::ReadOnly).err().expect("gone");
        assert!(refused.to_string().contains("gone"));
    });
}

#[test]
fn counts_tell_commands_bytes_faults_and_latency_by_kind() {
    run(async |handle, supply| {
        let (inner, control) = faulty();
        let counted = CountedDevice::new(Arc::new(inner));
        let (device, stats) = (counted.attach(&handle), counted.stats());
        for at in 0..3 {
            write(&*device, &supply, at * 4096, pattern(4096, 1).freeze()).await.expect("written");
        }
        control.break_media(Extent::new(0, 512));
        read(&*device, &supply, 0, BufMut::zeroed(512)).await.expect_err("broken");
        control.delay(Duration::from_micros(7));
        read(&*device, &supply, 512, BufMut::zeroed(1024)).await.expect("read");
        let writes = stats.of(CommandKind::Write);
        assert_eq!((writes.done, writes.bytes, writes.faults), (3, 12_288, 0));
        let reads = stats.of(CommandKind::Read);
        assert_eq!((reads.done, reads.bytes, reads.faults), (1, 1024, 1));
        assert_eq!((reads.latency_ns_sum, reads.latency_ns_max), (7000, 7000));
        assert_eq!(stats.of(CommandKind::Flush), Default::default());
        assert_eq!((stats.in_flight(), stats.in_flight_max()), (0, 1));
    });
}

#[test]
fn a_durable_write_is_a_kind_of_its_own_and_heals_broken_media_like_any_write() {
    run(async |handle, supply| {
        let (inner, control) = faulty();
        let counted = CountedDevice::new(Arc::new(inner));
        let (device, stats) = (counted.attach(&handle), counted.stats());
        control.break_media(Extent::new(0, 8192));
        write_durable(&*device, &supply, 4096, pattern(4096, 1).freeze()).await.expect("written");
        let got = read(&*device, &supply, 4096, BufMut::zeroed(4096)).await.expect("healed");
        assert_eq!(got[..], pattern(4096, 1)[..]);
        read(&*device, &supply, 0, BufMut::zeroed(4096)).await.expect_err("still broken");
        control.fail(CommandKind::WriteDurable, FaultKind::Media);
        let refused = write_durable(&*device, &supply, 0, pattern(4096, 1).freeze()).await;
        assert_eq!(refused, Err(Fault::MEDIA));
        write(&*device, &supply, 0, pattern(4096, 2).freeze()).await.expect("of another kind");
        let durable = stats.of(CommandKind::WriteDurable);
        assert_eq!((durable.done, durable.bytes, durable.faults), (1, 4096, 1));
        assert_eq!(stats.of(CommandKind::Write).done, 1);
    });
}

#[test]
fn the_most_commands_in_flight_are_counted_over_all_workers() {
    run(async |handle, supply| {
        let (inner, control) = faulty();
        control.delay(Duration::from_millis(1));
        let counted = CountedDevice::new(Arc::new(inner));
        let (one, other) = (counted.attach(&handle), counted.attach(&handle));
        let flushes: Vec<_> =
            (0..10).flat_map(|_| [flush(&*one, &supply), flush(&*other, &supply)]).collect();
        assert_eq!(counted.stats().in_flight(), 20);
        for flushing in flushes {
            flushing.await.expect("flushed");
        }
        assert_eq!((counted.stats().in_flight(), counted.stats().in_flight_max()), (0, 20));
    });
}

#[test]
fn a_counted_file_answers_as_the_file_does() {
    let file = tempfile::NamedTempFile::new().expect("a file for the test");
    file.as_file().set_len(MIB).expect("sparse");
    let path = file.path().to_str().expect("a plain name");
    run_on_ring(async |handle, supply| {
        let opened = PathOpener::new().open(path, Access::Exclusive).expect("free");
        let counted = CountedDevice::new(opened);
        let device = counted.attach(&handle);
        let writes: Vec<_> = (0..8u8)
            .map(|at| write(&*device, &supply, u64::from(at) * 4096, pattern(4096, at).freeze()))
            .collect();
        for written in writes {
            written.await.expect("written");
        }
        let got = read(&*device, &supply, 4096, BufMut::zeroed(4096)).await.expect("read");
        assert_eq!(&got[..], &pattern(4096, 1)[..]);
        let stats = counted.stats();
        assert_eq!((stats.of(CommandKind::Write).done, stats.in_flight_max()), (8, 8));
        assert!(stats.of(CommandKind::Read).latency_ns_max > 0);
    });
}
