//! The claim on which takeover rests: a killed process keeps its devices until its last write has
//! landed or was given up, and none lands afterwards.
//!
//! A frozen file system holds the write back for as long as the test likes. That needs root, a loop
//! device and mount. Without them, the test says so by its name.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ashlar_device::{Access, FileDevice, Opened, write};

use crate::block::Mounted;
use crate::world::{pattern, run_on_ring};

const TEST: &str = "a_killed_writer_holds_its_file_until_its_write_is_over";
/// Set for the process that is to be killed: the file it writes to.
const ROLE: &str = "ASHLAR_TEST_WRITE_TO";
const FILE_BYTES: usize = 1 << 20;

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
fn a_killed_writer_holds_its_file_until_its_write_is_over() {
    if let Ok(path) = env::var(ROLE) {
        return write_when_told(&path);
    }
    let Some(mounted) = Mounted::new(TEST) else { return };
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
    assert!(refused.is_err(), "its write is still under way");
    mounted.thaw();
    let successor = FileDevice::open(name, Access::Exclusive, Duration::from_secs(60));
    let successor = successor.expect("free once the write is over");
    let at_takeover = fs::read(&path).expect("read");
    writer.wait().expect("ended");
    assert!(fs::read(&path).expect("read") == at_takeover, "a write landed after takeover");
    drop(successor);
}
