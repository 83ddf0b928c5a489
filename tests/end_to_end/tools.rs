//! Foreign programs, and what to do where one is missing; waits, and ports for daemons.

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How often to look for what is waited for, and the pause before the next look: two minutes or
/// more.
const TRIES: u32 = 12_000;
const PAUSE: Duration = Duration::from_millis(10);

/// Whether all of these programs are here. If not, says on stderr that `test` is skipped and why.
pub fn all_here(test: &str, programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs.iter().filter(|name| !is_here(name)).copied().collect();
    if missing.is_empty() {
        return true;
    }
    skipped(test, &format!("{} not installed", missing.join(", ")));
    false
}

/// Wait until it is so; fail if that takes much longer than it can.
pub fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let is_so = (0..TRIES).any(|_| {
        let is_so = is_so();
        if !is_so {
            std::thread::sleep(PAUSE);
        }
        is_so
    });
    assert!(is_so, "waited in vain for {what}");
}

/// A port for a daemon of a test. It is held until this process ends, so that nobody else chooses
/// it, and listened at by the daemon only.
pub fn own_port() -> u16 {
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    let held = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
    sockopt::set_socket_reuseaddr(&held, true).expect("a socket");
    bind(&held, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let held = TcpListener::from(held);
    let port = held.local_addr().expect("it has one").port();
    let _held = held.into_raw_fd();
    port
}

/// Say that a test does not run here. Written past the test runner, which hides what passing tests
/// print.
pub fn skipped(test: &str, why: &str) {
    let line = format!("skipped: {test}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("stderr is there");
}

fn is_here(program: &str) -> bool {
    let folders = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    folders.split(':').any(|folder| Path::new(folder).join(program).exists())
}

/// Run a program that must succeed, and return what it printed.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .output()
        .expect("the program runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {complaint}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A file system of 256 KiB, mounted for one test.
pub struct SmallRoom(PathBuf);

impl SmallRoom {
    /// Mounted at `place`, which is made; `None` after saying why `test` cannot run here.
    pub fn at(test: &str, place: PathBuf) -> Option<SmallRoom> {
        if !rustix::process::geteuid().is_root() || !all_here(test, &["mount"]) {
            skipped(test, "needs root to mount a small file system");
            return None;
        }
        std::fs::create_dir(&place).expect("ours");
        let path = place.to_str().expect("text");
        run("mount", &["-t", "tmpfs", "-o", "size=256k", "none", path]);
        Some(SmallRoom(place))
    }

    /// Fill it until nothing fits any more.
    pub fn fill(&self) {
        let mut filler = File::create(self.0.join("filler")).expect("ours");
        let is_full = (0..256).any(|_| filler.write_all(&[0; 4096]).is_err());
        assert!(is_full, "256 KiB are not full after 1 MiB");
    }

    /// Make room again.
    pub fn make_room(&self) {
        std::fs::remove_file(self.0.join("filler")).expect("ours");
    }
}

impl Drop for SmallRoom {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
