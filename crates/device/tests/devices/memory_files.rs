//! Claims about files whose bytes are in the kernel's memory: they are what other files are, and
//! answer within the call.

use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::rc::Rc;
use std::time::Duration;

use ashlar_device::{
    Access, Change, Command, Device, Fault, FileDevice, Opened, Outcome, read, write,
};
use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::{Completions, Handle, PARTS_MAX};
use ashlar_units::to_u64;
use tempfile::{NamedTempFile, TempDir};

use crate::world::{pattern, run_on_ring};

const FILE_BYTES: u64 = 1 << 20;

/// Runs `body` on a file in memory; says so if there are none here.
fn on_file(
    test: &str,
    body: impl AsyncFnOnce(&NamedTempFile, Rc<dyn Device>, Completions<Outcome>),
) {
    let Ok(file) = NamedTempFile::new_in("/dev/shm") else {
        return eprintln!("skipped: {test}: no /dev/shm");
    };
    file.as_file().set_len(FILE_BYTES).expect("sparse");
    run_on_ring(async |handle, supply| match attach(file.path(), &handle) {
        Some(device) => body(&file, device, supply).await,
        None => eprintln!("skipped: {test}: files in memory have no direct I/O in this kernel"),
    });
}

fn attach(path: &Path, handle: &Handle) -> Option<Rc<dyn Device>> {
    let path = path.to_str().expect("a plain name");
    let opened = FileDevice::open(path, Access::Exclusive, Duration::ZERO).ok()?;
    Some(opened.attach(handle))
}

fn now(device: &dyn Device, offset: u64, command: Command) -> Outcome {
    assert!(device.runs_now());
    device.run_now(offset, command).expect("it carries out all commands")
}

#[test]
fn a_file_in_memory_answers_within_the_call() {
    on_file("a_file_in_memory_answers_within_the_call", async |_, device, _| {
        let content = pattern(8192, 1).freeze();
        for command in [
            Command::Write(content.clone()),
            Command::WriteDurable(content.clone()),
            Command::WriteWhole(content.slice(0..4096)),
            Command::Flush,
            Command::WriteZeroes { bytes: 0 },
            Command::Discard { bytes: 0 },
        ] {
            assert_eq!(now(&*device, 4096, command).result, Ok(()));
        }
        let got = now(&*device, 4096, Command::Read(BufMut::zeroed(8192))).buffer;
        assert!(got.expect("the buffer comes back")[..] == content[..]);
        assert_eq!(device.look_at_commands().under_way, 0);
    });
}

#[test]
fn parts_of_a_file_in_memory_lie_one_after_the_other() {
    on_file("parts_of_a_file_in_memory_lie_one_after_the_other", async |_, device, _| {
        let count = PARTS_MAX + 3;
        let whole = pattern(count * 4096, 5).freeze();
        let parts: Vec<Buf> =
            (0..count).map(|at| whole.slice(at * 4096..(at + 1) * 4096)).collect();
        let written = now(&*device, 8192, Command::WriteParts { parts, is_durable: true });
        assert_eq!(written.result, Ok(()));
        let got = now(&*device, 8192, Command::Read(BufMut::zeroed(whole.len()))).buffer;
        assert!(got.expect("the buffer comes back")[..] == whole[..]);
    });
}

#[test]
fn a_file_in_memory_that_was_cut_short_is_neither_believed_nor_made_to_grow() {
    let test = "a_file_in_memory_that_was_cut_short_is_neither_believed_nor_made_to_grow";
    on_file(test, async |file, device, supply| {
        file.as_file().set_len(FILE_BYTES / 2).expect("cut");
        let read = read(&*device, &supply, FILE_BYTES / 2 - 4096, BufMut::zeroed(8192)).await;
        assert_eq!(read.expect_err("beyond the end").fault, Fault::SHORTER);
        let written = write(&*device, &supply, FILE_BYTES - 4096, pattern(4096, 1).freeze()).await;
        assert_eq!(written, Err(Fault::SHORTER));
        let zeroed = now(&*device, FILE_BYTES - 4096, Command::WriteZeroes { bytes: 4096 });
        assert_eq!(zeroed.result, Err(Fault::SHORTER));
        assert_eq!(file.as_file().metadata().expect("there").len(), FILE_BYTES / 2);
        assert_eq!(device.look().expect("a file can change")(), Some(Change::Shorter));
    });
}

#[test]
fn a_file_in_memory_that_was_given_up_or_is_at_its_end_takes_nothing() {
    let test = "a_file_in_memory_that_was_given_up_or_is_at_its_end_takes_nothing";
    on_file(test, async |file, device, _| {
        let block = || Command::Write(pattern(4096, 1).freeze());
        assert_eq!(now(&*device, FILE_BYTES, block()).result, Err(Fault::NO_SPACE));
        device.give_up();
        assert_eq!(now(&*device, 0, block()).result, Err(Fault::TIMED_OUT));
        let read = now(&*device, 0, Command::Read(BufMut::zeroed(4096)));
        assert_eq!((read.result, read.buffer.is_some()), (Err(Fault::TIMED_OUT), true));
        let stored = std::fs::read(file.path()).expect("there");
        assert_eq!(to_u64(stored.len()), FILE_BYTES);
        assert!(stored.iter().all(|byte| *byte == 0));
    });
}

/// A small file system in memory, unmounted when it is dropped.
struct Small(TempDir);

impl Small {
    fn new() -> Option<Small> {
        let folder = tempfile::tempdir().expect("a directory for the test");
        let mut mount = Program::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(folder.path());
        let is_mounted = mount.output().is_ok_and(|mounted| mounted.status.success());
        is_mounted.then(|| Small(folder))
    }

    fn file(&self) -> PathBuf {
        let path = self.0.path().join("member");
        std::fs::File::create(&path).expect("made").set_len(FILE_BYTES).expect("sparse");
        path
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _gone = Program::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

#[test]
fn a_file_in_memory_without_room_says_so() {
    let Some(small) = Small::new() else {
        return eprintln!("skipped: a_file_in_memory_without_room_says_so: cannot mount here");
    };
    let path = small.file();
    run_on_ring(async |handle, supply| {
        let Some(device) = attach(&path, &handle) else { return };
        for offset in [0, 8192] {
            let written = write(&*device, &supply, offset, pattern(128 << 10, 1).freeze()).await;
            assert_eq!(written, Err(Fault::from_errno(28)));
        }
        let parts = vec![pattern(64 << 10, 1).freeze(), pattern(64 << 10, 2).freeze()];
        let joined = now(&*device, 0, Command::WriteParts { parts, is_durable: false });
        assert_eq!(joined.result, Err(Fault::from_errno(28)));
    });
}
