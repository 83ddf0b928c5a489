//! Claims about regular files as devices, on a real io_uring.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ashlar_device::{
    Access, Change, DeviceKind, Fault, FaultKind, FileDevice, MemDevice, Opened, discard, flush,
    read, write, write_durable, write_zeroes,
};
use ashlar_iobuf::BufMut;
use ashlar_ring::PARTS_MAX;
use ashlar_units::to_u64;
use tempfile::NamedTempFile;

use crate::world::{pattern, run_on_ring};

const MIB: usize = 1 << 20;

/// A sparse file of `bytes` bytes.
fn sparse(bytes: usize) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a file for the test");
    file.as_file().set_len(u64::try_from(bytes).expect("small")).expect("sparse");
    file
}

fn name(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

fn open(path: &Path) -> FileDevice {
    FileDevice::open(name(path), Access::Exclusive, Duration::ZERO).expect("free")
}

/// Opens what was let go of. Waits, because a test beside this one may be starting a process: that
/// has copies of all descriptors for a moment.
fn open_again(path: &Path) {
    let opened = FileDevice::open(name(path), Access::Exclusive, Duration::from_secs(60));
    drop(opened.expect("free again"));
}

fn refusal(path: &Path) -> String {
    match FileDevice::open(name(path), Access::Exclusive, Duration::ZERO) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(refusal) => refusal.to_string(),
    }
}

#[test]
fn a_file_keeps_what_was_written_and_flushed() {
    let file = sparse(4 * MIB);
    run_on_ring(async |handle, supply| {
        let opened = open(file.path());
        let facts = opened.facts().clone();
        assert_eq!((facts.kind, facts.size_bytes), (DeviceKind::File, 4 << 20));
        assert!(facts.has_volatile_cache && facts.discard_reads_zeros);
        let device = opened.attach(&handle);
        write(&*device, &supply, 8192, pattern(3 * MIB, 1).freeze()).await.expect("written");
        flush(&*device, &supply).await.expect("flushed");
        let got = read(&*device, &supply, 8192, BufMut::zeroed(3 * MIB)).await.expect("read");
        assert!(got[..] == pattern(3 * MIB, 1)[..]);
    });
    let content = fs::read(file.path()).expect("read");
    assert_eq!(content.len(), 4 * MIB);
    assert!(content[8192..8192 + 3 * MIB] == pattern(3 * MIB, 1)[..]);
    assert!(content[..8192].iter().all(|byte| *byte == 0));
}

#[test]
fn a_file_keeps_durable_writes_from_any_memory() {
    let file = sparse(MIB);
    run_on_ring(async |handle, supply| {
        let device = open(file.path()).attach(&handle);
        let aligned = pattern(8192, 3).freeze();
        let shifted = pattern(8192 + 1, 4).freeze().slice(1..8193);
        write_durable(&*device, &supply, 0, aligned).await.expect("written");
        write_durable(&*device, &supply, 8192, shifted).await.expect("written");
    });
    let content = fs::read(file.path()).expect("read");
    assert!(content[..8192] == pattern(8192, 3)[..]);
    assert!(content[8192..16_384] == pattern(8192 + 1, 4)[1..]);
    assert_eq!(content.len(), MIB);
}

#[test]
fn parts_come_to_lie_one_after_the_other_however_many_there_are_and_wherever_they_were() {
    let file = sparse(MIB);
    let count = u8::try_from(PARTS_MAX + 7).expect("few");
    // Every third is not where direct I/O could take it from.
    let part = |at: u8| {
        let shift = usize::from(at.is_multiple_of(3));
        pattern(4096 + shift, at).freeze().slice(shift..4096 + shift)
    };
    let wanted: Vec<u8> = (0..count).flat_map(|at| part(at).to_vec()).collect();
    run_on_ring(async |handle, supply| {
        let memory = MemDevice::new("m", to_u64(MIB));
        let devices = [open(file.path()).attach(&handle), memory.attach(&handle)];
        for (device, is_durable) in devices.iter().zip([true, false]) {
            let command = ashlar_device::Command::WriteParts {
                parts: (0..count).map(part).collect(),
                is_durable,
            };
            assert_eq!(command.bytes(), to_u64(wanted.len()));
            let (done, pending) = supply.pair();
            device.submit(8192, command, done);
            pending.await.expect("ended").result.expect("written");
            let got = read(&**device, &supply, 8192, BufMut::zeroed(wanted.len())).await;
            assert!(got.expect("read")[..] == wanted[..]);
        }
    });
    assert!(fs::read(file.path()).expect("read")[8192..8192 + wanted.len()] == wanted[..]);
}

#[test]
fn more_commands_than_the_ring_holds_all_come_back() {
    let file = sparse(4 * MIB);
    run_on_ring(async |handle, supply| {
        let device = open(file.path()).attach(&handle);
        let writes: Vec<_> = (0..200u8)
            .map(|at| write(&*device, &supply, u64::from(at) * 4096, pattern(4096, at).freeze()))
            .collect();
        for written in writes {
            written.await.expect("written");
        }
        let reads: Vec<_> = (0..200u8)
            .map(|at| read(&*device, &supply, u64::from(at) * 4096, BufMut::zeroed(4096)))
            .collect();
        for (at, reading) in (0..200u8).zip(reads) {
            assert_eq!(&reading.await.expect("read")[..], &pattern(4096, at)[..]);
        }
    });
}

#[test]
fn zeroed_and_discarded_ranges_of_a_file_read_zeros_and_keep_its_size() {
    let file = sparse(4 * MIB);
    run_on_ring(async |handle, supply| {
        let device = open(file.path()).attach(&handle);
        write(&*device, &supply, 0, pattern(4 * MIB, 1).freeze()).await.expect("written");
        write_zeroes(&*device, &supply, 4096, 1 << 20).await.expect("zeroed");
        discard(&*device, &supply, 2 << 20, 2 << 20).await.expect("discarded");
        discard(&*device, &supply, 0, 0).await.expect("nothing to do");
        write_zeroes(&*device, &supply, 0, 0).await.expect("nothing to do");
    });
    let content = fs::read(file.path()).expect("read");
    let mut wanted = pattern(4 * MIB, 1);
    wanted[4096..4096 + MIB].fill(0);
    wanted[2 * MIB..].fill(0);
    assert!(content[..] == wanted[..]);
}

#[test]
fn buffers_that_are_not_aligned_work_all_the_same() {
    let file = sparse(MIB);
    run_on_ring(async |handle, supply| {
        let device = open(file.path()).attach(&handle);
        let mut odd = pattern(8192 + 100, 1);
        drop(odd.split_to(100));
        write(&*device, &supply, 0, odd.freeze()).await.expect("written");
        let mut odd = BufMut::zeroed(8192 + 1);
        drop(odd.split_to(1));
        let address = odd.address();
        let got = read(&*device, &supply, 0, odd).await.expect("read");
        assert_eq!(got.address(), address, "the caller's own buffer comes back");
        assert_eq!(&got[..], &pattern(8192 + 100, 1)[100..]);
    });
}

#[test]
fn a_file_that_got_shorter_is_gone_and_stays_so_when_it_grows_again() {
    let file = sparse(MIB);
    run_on_ring(async |handle, supply| {
        let device = open(file.path()).attach(&handle);
        file.as_file().set_len(512 * 1024).expect("cut");
        let failed = read(&*device, &supply, 508 * 1024, BufMut::zeroed(8192)).await;
        let failed = failed.expect_err("beyond the end");
        assert_eq!(failed.fault, Fault::SHORTER);
        assert_eq!(failed.buffer.len(), 8192, "the whole buffer comes back");
        file.as_file().set_len(to_u64(MIB)).expect("grown");
        for offset in [0, 512 * 1024] {
            let failed = read(&*device, &supply, offset, BufMut::zeroed(4096)).await;
            assert_eq!(failed.expect_err("zeros are not what was there").fault, Fault::SHORTER);
        }
    });
}

#[test]
fn a_file_that_got_shorter_does_not_grow_by_a_write() {
    let file = sparse(MIB);
    run_on_ring(async |handle, supply| {
        let device = open(file.path()).attach(&handle);
        file.as_file().set_len(512 * 1024).expect("cut");
        for offset in [to_u64(MIB) - 4096, 512 * 1024, 0] {
            let refused = write(&*device, &supply, offset, pattern(4096, 1).freeze()).await;
            assert_eq!(refused, Err(Fault::SHORTER));
        }
        let zeroed = write_zeroes(&*device, &supply, to_u64(MIB) - 4096, 4096).await;
        assert_eq!(zeroed, Err(Fault::SHORTER));
    });
    assert_eq!(fs::metadata(file.path()).expect("there").len(), 512 * 1024);
}

#[test]
fn a_look_tells_what_changed_beneath_an_open_file() {
    let folder = tempfile::tempdir().expect("a directory for the test");
    let path = folder.path().join("member");
    let file = fs::File::create(&path).expect("made");
    file.set_len(to_u64(MIB)).expect("sized");
    run_on_ring(async |handle, _supply| {
        let device = open(&path).attach(&handle);
        let look = || device.look().expect("a file can change")();
        assert_eq!(look(), None);
        fs::rename(&path, folder.path().join("other")).expect("renamed");
        assert_eq!(look(), Some(Change::PathReplaced));
        fs::write(&path, "somebody else's").expect("written");
        assert_eq!(look(), Some(Change::PathReplaced));
        file.set_len(to_u64(MIB) - 1).expect("cut");
        assert_eq!(look(), Some(Change::Shorter));
        file.set_len(to_u64(MIB)).expect("grown");
        assert_eq!(look(), Some(Change::Shorter), "what was cut off is lost");
    });
}

#[test]
fn commands_beyond_the_end_are_refused_before_the_file_grows() {
    let file = sparse(MIB);
    run_on_ring(async |handle, supply| {
        let device = open(file.path()).attach(&handle);
        let refused = write(&*device, &supply, 1 << 20, pattern(4096, 1).freeze()).await;
        assert_eq!(refused, Err(Fault::NO_SPACE));
        assert_eq!(write_zeroes(&*device, &supply, 1 << 20, 4096).await, Err(Fault::NO_SPACE));
    });
    assert_eq!(fs::metadata(file.path()).expect("there").len(), 1 << 20);
}

#[test]
fn a_file_opened_to_look_at_cannot_be_written() {
    let file = sparse(MIB);
    run_on_ring(async |handle, supply| {
        let _held = open(file.path());
        let looking = FileDevice::open(name(file.path()), Access::ReadOnly, Duration::ZERO);
        let device = looking.expect("also while it is held").attach(&handle);
        read(&*device, &supply, 0, BufMut::zeroed(4096)).await.expect("read");
        let refused = write(&*device, &supply, 0, pattern(4096, 1).freeze()).await;
        assert_eq!(refused.expect_err("read-only").kind, FaultKind::Gone);
    });
}

#[test]
fn what_is_no_device_is_refused_with_a_reason() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    assert!(refusal(&directory.path().join("none")).contains("no such device or file"));
    assert!(refusal(directory.path()).contains("neither a block device nor a regular file"));
    assert!(refusal(Path::new("/dev/null")).contains("neither a block device nor a regular file"));
    let empty = NamedTempFile::new().expect("a file for the test");
    assert!(refusal(empty.path()).contains("no space"));
}

#[test]
fn a_file_is_free_again_once_its_device_is_dropped() {
    let file = sparse(MIB);
    run_on_ring(async |handle, supply| {
        let opened = open(file.path());
        let device = opened.attach(&handle);
        let reads: Vec<_> =
            (0..4).map(|_| read(&*device, &supply, 0, BufMut::zeroed(4096))).collect();
        for reading in reads {
            reading.await.expect("read");
        }
        assert!(refusal(file.path()).contains("in use: by ashlar itself"));
        drop((opened, device));
        // The tasks that waited for the kernel have to run once more to see that their device is
        // gone.
        for _ in 0..100 {
            handle.yield_now().await;
        }
        open_again(file.path());
    });
}

/// Another process that has the lock of `path` until its input ends.
fn lock_elsewhere(path: &Path) -> Child {
    let mut child = Command::new("flock")
        .arg(path)
        .args(["sh", "-c", "echo locked; cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("flock is part of util-linux");
    let mut line = String::new();
    let output = child.stdout.as_mut().expect("piped");
    BufReader::new(output).read_line(&mut line).expect("it has the lock");
    assert_eq!(line, "locked\n");
    child
}

#[test]
fn a_file_locked_by_another_process_is_refused_by_that_process_name() {
    let file = sparse(MIB);
    let mut child = lock_elsewhere(file.path());
    let refused = refusal(file.path());
    assert!(refused.contains("in use: open in process") && refused.contains("flock"), "{refused}");
    drop(child.stdin.take());
    child.wait().expect("ended");
    open_again(file.path());
}

#[test]
fn a_successor_waits_until_the_holder_is_gone() {
    let file = sparse(MIB);
    let mut child = lock_elsewhere(file.path());
    let path = name(file.path()).to_owned();
    let (about_to_wait, waits) = std::sync::mpsc::channel();
    let successor = std::thread::spawn(move || {
        about_to_wait.send(()).expect("somebody listens");
        FileDevice::open(&path, Access::Exclusive, Duration::from_secs(60)).map(drop)
    });
    waits.recv().expect("begun");
    child.kill().expect("killed");
    let mut input = child.stdin.take().expect("piped");
    let _ = input.write_all(b"the shell below has the lock until its input ends");
    drop(input);
    child.wait().expect("ended");
    successor.join().expect("no panic").expect("got it once the holder was gone");
}

#[test]
fn a_file_that_only_the_page_cache_could_write_is_opened_for_looking_only() {
    let test = "a_file_that_only_the_page_cache_could_write_is_opened_for_looking_only";
    let place = tempfile::tempdir().expect("a folder");
    let mounted = Command::new("mount").args(["-t", "ramfs", "none"]).arg(place.path()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: {test}: needs root to mount a file system without direct I/O");
        return;
    }
    let path = place.path().join("member");
    std::fs::write(&path, vec![7; 1 << 20]).expect("room");
    let path = path.to_str().expect("text").to_owned();
    let exclusive = FileDevice::open(&path, Access::Exclusive, Duration::ZERO).map(drop);
    let looking = FileDevice::open(&path, Access::ReadOnly, Duration::ZERO);
    let is_direct = looking.map(|device| device.facts().is_direct);
    let unmounted = Command::new("umount").arg(place.path()).status();
    assert!(unmounted.expect("it runs").success());
    let refusal = exclusive.expect_err("no member").to_string();
    assert!(refusal.contains("no direct I/O"), "{refusal}");
    assert_eq!(is_direct.ok(), Some(false));
}

#[test]
fn memory_file_systems_work_where_they_do_direct_io() {
    let shm = Path::new("/dev/shm");
    let Ok(file) = NamedTempFile::new_in(shm) else {
        eprintln!("skipped: memory_file_systems_work_where_they_do_direct_io: no /dev/shm");
        return;
    };
    file.as_file().set_len(1 << 20).expect("sparse");
    let path = file.path().to_str().expect("text");
    if FileDevice::open(path, Access::Exclusive, Duration::ZERO).is_err() {
        eprintln!(
            "skipped: memory_file_systems_work_where_they_do_direct_io: this kernel's do not"
        );
        return;
    }
    run_on_ring(async |handle, supply| {
        let device = open(file.path()).attach(&handle);
        write(&*device, &supply, 0, pattern(65_536, 1).freeze()).await.expect("written");
        // This file system punches holes and knows no other way to zero: zeros are written.
        write_zeroes(&*device, &supply, 4096, 4096).await.expect("zeroed");
        write_zeroes(&*device, &supply, 16_384, 4096).await.expect("zeroed again");
        discard(&*device, &supply, 32_768, 32_768).await.expect("discarded");
        flush(&*device, &supply).await.expect("flushed");
        let got = read(&*device, &supply, 0, BufMut::zeroed(65_536)).await.expect("read");
        let mut wanted = pattern(65_536, 1);
        wanted[4096..8192].fill(0);
        wanted[16_384..20_480].fill(0);
        wanted[32_768..].fill(0);
        assert!(got[..] == wanted[..]);
    });
}
