//! Claims about the record of writes.

use std::fs::File;
use std::sync::Arc;

use ashlar_device::{
    Access, CommandKind, FaultKind, FaultyOpener, Opener, PathOpener, RecordKind, Recorder,
    RecordingOpener, flush, read, read_record, write, write_durable, write_zeroes,
};
use ashlar_iobuf::BufMut;

use crate::world::{pattern, run};

use RecordKind::{Done, Failed, Flush, Opened, Write, WriteDurable, WriteZeroes};

#[test]
fn what_changes_a_device_is_recorded_with_its_bytes_in_order_and_reads_are_not() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("record");
    let recorder = Arc::new(Recorder::create(&path).expect("created"));
    let faulty = FaultyOpener::new(Arc::new(PathOpener::new()));
    let control = faulty.control("mem:a:1MiB");
    let opener = RecordingOpener::new(Arc::new(faulty), recorder);
    let _looked_at = opener.open("mem:b:1MiB", Access::ReadOnly).expect("opened");
    run(async |handle, supply| {
        let opened = opener.open("mem:a:1MiB", Access::Exclusive).expect("opened");
        let device = opened.attach(&handle);
        write(&*device, &supply, 4096, pattern(8192, 1).freeze()).await.expect("written");
        read(&*device, &supply, 4096, BufMut::zeroed(512)).await.expect("read");
        flush(&*device, &supply).await.expect("flushed");
        control.fail(CommandKind::WriteDurable, FaultKind::Media);
        write_durable(&*device, &supply, 0, pattern(512, 2).freeze()).await.expect_err("fails");
        write_zeroes(&*device, &supply, 8192, 1024).await.expect("zeroed");
    });
    let entries = read_record(&path).expect("a record");
    let told: Vec<_> = entries.iter().map(|it| (it.kind, it.number, it.offset, it.bytes)).collect();
    let wanted = [
        (Opened, 0, 1 << 20, 0),
        (Write, 1, 4096, 8192),
        (Done, 1, 0, 0),
        (Flush, 2, 0, 0),
        (Done, 2, 0, 0),
        (WriteDurable, 3, 0, 512),
        (Failed, 3, 0, 0),
        (WriteZeroes, 4, 8192, 1024),
        (Done, 4, 0, 0),
    ];
    assert_eq!(told, wanted);
    assert_eq!(entries[0].payload, b"mem:a:1MiB");
    assert_eq!(entries[1].payload, pattern(8192, 1)[..]);
    assert_eq!(entries[5].payload, pattern(512, 2)[..]);
    assert!(entries.windows(2).all(|two| two[0].at_ns <= two[1].at_ns));
    cut_records_are_read_up_to_there(&path, entries.len());
}

fn cut_records_are_read_up_to_there(path: &std::path::Path, whole: usize) {
    let file = File::options().write(true).open(path).expect("open");
    let bytes = file.metadata().expect("there").len();
    file.set_len(bytes - 1).expect("cut");
    assert_eq!(read_record(path).expect("a record").len(), whole - 1);
    // In the middle of a payload: the beginning of the write is gone with it.
    file.set_len(16 + 48 + 10 + 48 + 8191).expect("cut");
    assert_eq!(read_record(path).expect("a record").len(), 1);
    file.set_len(15).expect("cut");
    assert!(read_record(path).is_err(), "not even the head");
}
