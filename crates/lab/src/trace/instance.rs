//! A trace instance of our own in tracefs: the global buffer, which others may be using, is never
//! touched.
//!
//! What must stay true: the instance is removed whatever happens; only the named devices are
//! traced; what the kernel had no room for is counted.

use super::event::EVENTS;
use crate::Refusal;
use rustix::fs::OFlags;
use rustix::mount::{MountFlags, mount};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TRACEFS: &str = "/sys/kernel/tracing";

#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
}

impl Instance {
    /// Trace block events of `devices`, with `buffer_kib` for each core.
    pub fn start(devices: &[(u32, u32)], buffer_kib: u64) -> Result<Instance, Refusal> {
        mounted()?;
        let path = Path::new(TRACEFS).join(format!("instances/ashlar-lab-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| refuse(&path, &error))?;
        // From here on it is removed, whichever line fails.
        let instance = Instance { path };
        instance.write("buffer_size_kb", &buffer_kib.to_string())?;
        let filter: Vec<String> = devices
            .iter()
            .map(|(major, minor)| format!("dev == {}", (major << 20) | minor))
            .collect();
        let mut found = 0;
        for (event, _) in EVENTS {
            let folder = format!("events/block/{event}");
            if instance.path.join(&folder).exists() {
                instance.write(&format!("{folder}/filter"), &filter.join(" || "))?;
                instance.write(&format!("{folder}/enable"), "1")?;
                found += 1;
            }
        }
        if found == 0 {
            let what = "this kernel has no block trace events; nothing was traced";
            return Err(Refusal::cannot_run("trace.no_events", what)
                .hint("it needs CONFIG_BLK_DEV_IO_TRACE"));
        }
        instance.write("tracing_on", "1")?;
        Ok(instance)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Refusal> {
        let path = self.path.join(name);
        std::fs::write(&path, text).map_err(|error| refuse(&path, &error))
    }

    /// Give every line to `each` as it comes, until `is_over`, and then what is still there.
    pub fn read(&self, is_over: &AtomicBool, mut each: impl FnMut(&str)) -> io::Result<()> {
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let mut pipe =
            OpenOptions::new().read(true).custom_flags(flags).open(self.path.join("trace_pipe"))?;
        let (mut buffer, mut rest) = (vec![0; 1 << 16], Vec::new());
        loop {
            // Asked before reading: what is there at the end is still read.
            let is_last = is_over.load(Ordering::Acquire);
            while let Some(got) = some(&mut pipe, &mut buffer)? {
                rest.extend_from_slice(&buffer[..got]);
                let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                String::from_utf8_lossy(&rest[..whole]).lines().for_each(&mut each);
                rest.drain(..whole);
            }
            if is_last {
                String::from_utf8_lossy(&rest).lines().for_each(&mut each);
                return Ok(());
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Stop tracing; what was traced can still be read.
    pub fn stop(&self) {
        let _ = self.write("tracing_on", "0");
    }

    /// Events that the buffers had no room for.
    pub fn lost(&self) -> u64 {
        let folders = std::fs::read_dir(self.path.join("per_cpu")).into_iter().flatten().flatten();
        let overrun = |folder: std::fs::DirEntry| {
            let text = std::fs::read_to_string(folder.path().join("stats")).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("overrun:"))?;
            line.trim().parse::<u64>().ok()
        };
        folders.filter_map(overrun).fold(0, u64::saturating_add)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.write("tracing_on", "0");
        let _ = self.write("events/enable", "0");
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Bytes that are there now; `None` if there are none.
fn some(pipe: &mut File, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match pipe.read(buffer) {
        Ok(0) => Ok(None),
        Ok(got) => Ok(Some(got)),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn mounted() -> Result<(), Refusal> {
    let folder = Path::new(TRACEFS);
    if folder.join("instances").exists() {
        return Ok(());
    }
    mount("tracefs", folder, "tracefs", MountFlags::empty(), None)
        .map_err(|error| refuse(folder, &io::Error::from(error)))
}

fn refuse(path: &Path, error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let what = format!("{}: {error}; nothing was traced", path.display());
            Refusal::cannot_run("trace.not_permitted", what).hint("run as root")
        }
        _ => Refusal::file(path, error, "this kernel's tracefs cannot be used; nothing was traced"),
    }
}
