//! What end-to-end tests do with a world besides: contents of files, addresses for foreign clients,
//! refusals.

use crate::world::World;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

impl World {
    /// A daemon with two workers that serves NBD on a Unix socket.
    pub fn new() -> World {
        let mut world = World::without_daemon();
        world.start(&[]);
        world
    }

    /// The number of the daemon's process.
    pub fn id(&self) -> u32 {
        self.daemon.as_ref().expect("it runs").id()
    }

    /// Stop the daemon where it is: nothing that asks it is answered until it may go on.
    pub fn halt(&self) {
        self.signal(Signal::STOP);
    }

    /// It may go on.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let id = Pid::from_child(self.daemon.as_ref().expect("it runs"));
        kill_process(id, signal).expect("it runs");
    }

    /// What the daemon said since it serves.
    pub fn said(&self) -> String {
        self.said.lock().expect("nobody panics with it").clone()
    }

    /// The NBD address of a volume.
    pub fn uri(&self, volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket={}", self.folder.path().join("nbd.sock").display())
    }

    /// A file of `bytes` bytes that look random and are the same every time.
    pub fn noise(&self, name: &str, bytes: usize) -> PathBuf {
        self.noise_from(name, bytes, 1)
    }

    /// The same, different for each seed; a seed is not 0.
    pub fn noise_from(&self, name: &str, bytes: usize, seed: u64) -> PathBuf {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed);
        let mut content = Vec::with_capacity(bytes + 8);
        while content.len() < bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            content.extend_from_slice(&state.to_le_bytes());
        }
        content.truncate(bytes);
        std::fs::write(self.path(name), content).expect("write");
        self.path(name)
    }

    /// Run a command that must be refused in one line, and return the line.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{arguments:?}: {complaint}");
        complaint
    }

    /// What is missing beside the arrays, and why: a line for each.
    pub fn missing(&self) -> Vec<String> {
        let all = self.status()["missing"].as_array().expect("a list").clone();
        let line = |it: &serde_json::Value| {
            let word = |name: &str| it[name].as_str().expect("text").to_owned();
            format!("{}: {}", word("name"), word("reason"))
        };
        all.iter().map(line).collect()
    }

    /// A line with the world's folder left out and every UUID as `UUID`, so that it can be
    /// compared.
    pub fn anonymous(&self, line: &str) -> String {
        let folder = format!("{}/", self.folder.path().display());
        let line = line.replace(&folder, "");
        let is_uuid = |word: &str| {
            word.len() == 36 && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
        };
        let mut anonymous = String::new();
        for word in line.split_inclusive([' ', '(', ',', ';', ')']) {
            let (text, end) = word.split_at_checked(36).unwrap_or((word, ""));
            anonymous.push_str(if is_uuid(text) { "UUID" } else { text });
            anonymous.push_str(end);
        }
        anonymous
    }

    /// The content of files, to see whether it changed.
    pub fn snapshot(&self, names: &[&str]) -> Vec<u64> {
        let sum = |bytes: &[u8]| {
            let words = bytes.chunks_exact(8);
            words.fold(0_u64, |sum, word| {
                let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
                (sum.rotate_left(5) ^ word).wrapping_mul(0x517C_C1B7_2722_0A95)
            })
        };
        names.iter().map(|name| sum(&std::fs::read(self.path(name)).expect("read"))).collect()
    }
}

/// What a daemon of its own lacks that is started so; it serves all the same.
pub fn lacks(arguments: &[&str]) -> String {
    let mut world = World::without_daemon();
    world.start(arguments);
    let missing = world.missing().join("\n");
    assert!(world.end().success());
    missing
}

/// Change one byte of a file at `offset`.
pub fn flip(path: &Path, offset: u64) {
    let file = File::options().read(true).write(true).open(path).expect("open");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    file.write_all_at(&[byte[0] ^ 0x55], offset).expect("write");
}

/// Whether `found` begins with all of `wanted`.
pub fn starts_with(found: &Path, wanted: &Path) -> bool {
    let wanted = std::fs::read(wanted).expect("read");
    let found = std::fs::read(found).expect("read");
    found.get(..wanted.len()) == Some(wanted.as_slice())
}
