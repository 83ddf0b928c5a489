//! Loop devices and a control group that throttles some, for tests with real devices.

use crate::skipped;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Loop devices over files, let go at the end.
pub struct Loops(pub Vec<String>);

impl Loops {
    /// With direct I/O below them; `None` if there are not enough.
    pub fn over(files: &[PathBuf]) -> Option<Loops> {
        let mut loops = Loops(Vec::new());
        for file in files {
            loops.0.push(attached(file, &["--direct-io=on"])?);
        }
        Some(loops)
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        self.0.iter().for_each(|device| detach(device));
    }
}

/// The device over a file. It is scanned, so that partitions which an earlier user left are gone.
fn attached(file: &Path, more: &[&str]) -> Option<String> {
    let mut command = Command::new("losetup");
    let output = command.args(["--find", "--show", "--partscan"]).args(more).arg(file).output();
    let made = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&made.stdout).trim().to_owned())
}

fn detach(device: &str) {
    let _gone = Command::new("losetup").args(["--detach", device]).output();
}

/// A loop device over a new file, let go at the end.
pub struct Loop(pub String);

impl Loop {
    /// Of 8 MiB; `None`, which is said, if there is none.
    pub fn over(file: &Path) -> Option<Loop> {
        Loop::of(file, 8 << 20)
    }

    /// The same of so many bytes.
    pub fn of(file: &Path, bytes: usize) -> Option<Loop> {
        if !rustix::process::geteuid().is_root() {
            skipped("not root");
            return None;
        }
        std::fs::write(file, vec![0xa5; bytes]).expect("written");
        let made = attached(file, &[]);
        if made.is_none() {
            skipped("no loop device");
        }
        made.map(Loop)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        detach(&self.0);
    }
}

/// A control group that throttles devices, taken away at the end.
pub struct Throttle {
    /// Where it is: what joins it is throttled.
    pub group: PathBuf,
}

impl Throttle {
    /// `bytes_per_s` of reads from each of `devices`. The older kind of control groups has a file
    /// of its own for it.
    pub fn reads(devices: &[String], bytes_per_s: u64) -> std::io::Result<Throttle> {
        // Tests that run beside each other have other devices.
        let name = format!("ashlar-lab-test-{}-{}", std::process::id(), number(&devices[0]));
        let v1 = Path::new("/sys/fs/cgroup/blkio");
        let (root, file, word) = match v1.is_dir() {
            true => (v1, "blkio.throttle.read_bps_device", ""),
            false => (Path::new("/sys/fs/cgroup"), "io.max", "rbps="),
        };
        let throttle = Throttle { group: root.join(name) };
        std::fs::create_dir(&throttle.group)?;
        for device in devices {
            let line = format!("{} {word}{bytes_per_s}", number(device));
            std::fs::write(throttle.group.join(file), line)?;
        }
        Ok(throttle)
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir(&self.group);
    }
}

/// `major:minor` of a block device.
fn number(device: &str) -> String {
    use std::os::unix::fs::MetadataExt;
    let facts = std::fs::metadata(device).expect("a device");
    format!("{}:{}", rustix::fs::major(facts.rdev()), rustix::fs::minor(facts.rdev()))
}
