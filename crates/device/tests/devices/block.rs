//! Claims about block devices, on loop devices. They need root and loop devices; without, each says
//! so by its name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ashlar_device::{
    Access, Change, DeviceKind, Fault, FileDevice, Holder, Opened, discard, flush, holders, read,
    write, write_zeroes,
};
use ashlar_iobuf::BufMut;
use tempfile::{NamedTempFile, TempDir};

use crate::world::{pattern, run_on_ring};

/// A loop device over a file, gone when dropped.
pub struct Loop {
    pub path: PathBuf,
    pub backing: NamedTempFile,
}

impl Loop {
    /// A loop device of `bytes` bytes, or `None` after saying why `test` cannot run here.
    pub fn new(test: &str, bytes: u64) -> Option<Loop> {
        let backing = NamedTempFile::new().expect("a file for the test");
        backing.as_file().set_len(bytes).expect("sparse");
        let made = ["losetup", "/usr/sbin/losetup"].iter().find_map(|program| {
            Command::new(program).args(["--find", "--show"]).arg(backing.path()).output().ok()
        });
        let Some(made) = made else {
            eprintln!("SKIPPED {test}: there is no losetup");
            return None;
        };
        if !made.status.success() {
            let reason = String::from_utf8_lossy(&made.stderr);
            eprintln!("SKIPPED {test}: no loop device: {}", reason.trim());
            return None;
        }
        let path = String::from_utf8(made.stdout).expect("a plain name");
        Some(Loop { path: PathBuf::from(path.trim()), backing })
    }

    pub fn name(&self) -> &str {
        self.path.to_str().expect("a plain name")
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detach = |program| Command::new(program).arg("-d").arg(&self.path).status();
        let _ = detach("losetup").or_else(|_| detach("/usr/sbin/losetup"));
    }
}

/// A mounted file system on a loop device, thawed and unmounted when dropped.
pub struct Mounted {
    pub at: TempDir,
    pub device: Loop,
    test: &'static str,
}

fn succeeds(test: &str, program: &str, arguments: &[&Path]) -> bool {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let reason = String::from_utf8_lossy(&output.stderr);
            eprintln!("SKIPPED {test}: {program}: {}", reason.trim());
            false
        }
        Err(error) => {
            eprintln!("SKIPPED {test}: {program}: {error}");
            false
        }
    }
}

impl Mounted {
    /// `None` after saying why `test` cannot run here.
    pub fn new(test: &'static str) -> Option<Mounted> {
        let device = Loop::new(test, 64 << 20)?;
        let at = tempfile::tempdir().expect("a directory for the test");
        let is_mounted = succeeds(test, "/usr/sbin/mkfs.ext4", &[Path::new("-q"), &device.path])
            && succeeds(test, "mount", &[&device.path, at.path()]);
        is_mounted.then_some(Mounted { at, device, test })
    }

    /// Holds up every write until thawed; `false` after saying why that cannot be done here.
    pub fn freeze(&self) -> bool {
        succeeds(self.test, "/usr/sbin/fsfreeze", &[Path::new("-f"), self.at.path()])
    }

    pub fn thaw(&self) {
        let _ = Command::new("/usr/sbin/fsfreeze").arg("-u").arg(self.at.path()).output();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.thaw();
        let _ = Command::new("umount").arg(self.at.path()).status();
    }
}

fn open(path: &Path) -> Result<FileDevice, String> {
    let name = path.to_str().expect("a plain name");
    FileDevice::open(name, Access::Exclusive, Duration::ZERO).map_err(|refusal| refusal.to_string())
}

#[test]
fn a_block_device_keeps_what_was_written_and_zeroes_what_it_is_told() {
    let test = "a_block_device_keeps_what_was_written_and_zeroes_what_it_is_told";
    let Some(device) = Loop::new(test, 8 << 20) else { return };
    run_on_ring(async |handle, supply| {
        let opened = open(&device.path).expect("free");
        let facts = opened.facts().clone();
        assert_eq!((facts.kind, facts.size_bytes), (DeviceKind::Block, 8 << 20));
        assert!(facts.is_direct && facts.memory_alignment <= 4096, "{facts:?}");
        let attached = opened.attach(&handle);
        write(&*attached, &supply, 0, pattern(2 << 20, 1).freeze()).await.expect("written");
        write_zeroes(&*attached, &supply, 4096, 1 << 20).await.expect("zeroed");
        match discard(&*attached, &supply, 3 << 19, 1 << 19).await {
            Ok(()) => assert!(facts.discard_reads_zeros, "{facts:?}"),
            Err(fault) => assert_eq!(fault.kind, Fault::UNSUPPORTED.kind),
        }
        flush(&*attached, &supply).await.expect("flushed");
        let got = read(&*attached, &supply, 0, BufMut::zeroed(2 << 20)).await.expect("read");
        let mut wanted = pattern(2 << 20, 1);
        wanted[4096..4096 + (1 << 20)].fill(0);
        if facts.discard_reads_zeros {
            wanted[3 << 19..].fill(0);
        }
        assert!(got[..] == wanted[..]);
        assert!(fs::read(device.backing.path()).expect("read")[..2 << 20] == wanted[..]);
    });
}

#[test]
fn a_block_device_is_held_by_one_at_a_time() {
    let Some(device) = Loop::new("a_block_device_is_held_by_one_at_a_time", 8 << 20) else {
        return;
    };
    let held = open(&device.path).expect("free");
    let refused = open(&device.path).err().expect("held");
    assert!(refused.contains("in use"), "{refused}");
    let looking = FileDevice::open(device.name(), Access::ReadOnly, Duration::ZERO);
    assert!(looking.is_ok(), "looking is allowed");
    drop(held);
    // A test beside this one may be starting a process, which has copies of all descriptors for a
    // moment.
    let again = FileDevice::open(device.name(), Access::Exclusive, Duration::from_secs(60));
    assert!(again.is_ok(), "free again");
}

#[test]
fn a_mounted_block_device_is_refused_by_its_mount_point() {
    let test = "a_mounted_block_device_is_refused_by_its_mount_point";
    let Some(mounted) = Mounted::new(test) else { return };
    let found = holders(&mounted.device.path).expect("there");
    assert!(found.contains(&Holder::Mount(mounted.at.path().to_owned())), "{found:?}");
    let refused = open(&mounted.device.path).err().expect("mounted");
    let wanted = format!("in use: mounted on {}", mounted.at.path().display());
    assert!(refused.contains(&wanted), "{refused}");
}

#[test]
fn a_look_tells_that_the_file_beneath_a_loop_device_was_cut_short() {
    let test = "a_look_tells_that_the_file_beneath_a_loop_device_was_cut_short";
    let Some(device) = Loop::new(test, 8 << 20) else { return };
    run_on_ring(async |handle, _supply| {
        let attached = open(&device.path).expect("free").attach(&handle);
        let look = || attached.look().expect("a block device can change")();
        assert_eq!(look(), None);
        device.backing.as_file().set_len(4 << 20).expect("cut");
        assert_eq!(look(), Some(Change::Shorter));
        device.backing.as_file().set_len(8 << 20).expect("grown");
        assert_eq!(look(), Some(Change::Shorter), "what was cut off is lost");
    });
}
