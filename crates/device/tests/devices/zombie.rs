//! The claim on which takeover rests: a killed process keeps its devices until its last write has landed.
//!
//! A frozen file system holds the write up for as long as the test likes. That needs root, a loop device and mount;
//! without, the test says so by its name.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ashlar_device::{Access, FileDevice, Opened, write};
use tempfile::TempDir;

use crate::block::Loop;
use crate::world::{pattern, run_on_ring};

const TEST: &str = "a_killed_writer_holds_its_file_until_its_write_has_landed";
/// Set for the process that is to be killed: the file it writes to.
const ROLE: &str = "ASHLAR_TEST_WRITE_TO";
const FILE_BYTES: usize = 1 << 20;

/// A mounted file system, thawed and unmounted when dropped.
struct Mounted {
    at: TempDir,
    _device: Loop,
}

fn succeeds(program: &str, arguments: &[&Path]) -> bool {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let reason = String::from_utf8_lossy(&output.stderr);
            eprintln!("SKIPPED {TEST}: {program}: {}", reason.trim());
            false
        }
        Err(error) => {
            eprintln!("SKIPPED {TEST}: {program}: {error}");
            false
        }
    }
}

impl Mounted {
    fn new() -> Option<Mounted> {
        let device = Loop::new(TEST, 64 << 20)?;
        let at = tempfile::tempdir().expect("a directory for the test");
        let is_mounted = succeeds("/usr/sbin/mkfs.ext4", &[Path::new("-q"), &device.path])
            && succeeds("mount", &[&device.path, at.path()]);
        is_mounted.then_some(Mounted { at, _device: device })
    }

    fn freeze(&self) -> bool {
        succeeds("/usr/sbin/fsfreeze", &[Path::new("-f"), self.at.path()])
    }

    fn thaw(&self) {
        let _ = Command::new("/usr/sbin/fsfreeze").arg("-u").arg(self.at.path()).output();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.thaw();
        let _ = Command::new("umount").arg(self.at.path()).status();
    }
}

/// The process that is to be killed: opens the file, and writes to it when told to.
fn write_when_told(path: &str) {
    let opened = FileDevice::open(path, Access::Exclusive, Duration::ZERO).expect("free");
    println!("opened");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("told");
    run_on_ring(async |handle, supply| {
        let device = opened.attach(&handle);
        let writing = write(&*device, &supply, 0, pattern(FILE_BYTES, 1).freeze());
        // One turn of the reactor hands the write to the kernel.
        handle.sleep(Duration::from_millis(1)).await;
        println!("writing");
        writing.await.expect("written");
    });
}

fn start_writer(path: &Path) -> Child {
    Command::new(env::current_exe().expect("this test program"))
        .args(["--exact", &format!("zombie::{TEST}"), "--nocapture"])
        .env(ROLE, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test program starts again")
}

fn await_line(output: &mut impl BufRead, wanted: &str) {
    let mut line = String::new();
    while !line.contains(wanted) {
        line.clear();
        assert!(output.read_line(&mut line).expect("text") > 0, "it ended before it was {wanted}");
    }
}

#[test]
fn a_killed_writer_holds_its_file_until_its_write_has_landed() {
    if let Ok(path) = env::var(ROLE) {
        return write_when_told(&path);
    }
    let Some(mounted) = Mounted::new() else { return };
    let path: PathBuf = mounted.at.path().join("member");
    fs::write(&path, vec![0; FILE_BYTES]).expect("written");
    fs::File::open(&path).expect("there").sync_all().expect("on the disk");
    let mut writer = start_writer(&path);
    let mut output = BufReader::new(writer.stdout.take().expect("piped"));
    await_line(&mut output, "opened");
    if !mounted.freeze() {
        writer.kill().expect("killed");
        writer.wait().expect("ended");
        return;
    }
    writer.stdin.as_mut().expect("piped").write_all(b"now\n").expect("told");
    await_line(&mut output, "writing");
    writer.kill().expect("killed");

    let name = path.to_str().expect("a plain name");
    // Long enough for a killed process to be gone if nothing held it.
    let refused = FileDevice::open(name, Access::Exclusive, Duration::from_millis(500));
    assert!(refused.is_err(), "its write has not landed yet");
    mounted.thaw();
    let successor = FileDevice::open(name, Access::Exclusive, Duration::from_secs(60));
    let successor = successor.expect("free once the write has landed");
    let at_takeover = fs::read(&path).expect("read");
    writer.wait().expect("ended");
    assert!(fs::read(&path).expect("read") == at_takeover, "a write landed after takeover");
    drop(successor);
}
