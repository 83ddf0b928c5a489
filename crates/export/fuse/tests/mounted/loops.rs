//! Loop devices on the files, and ext4 on those: how most programs will meet this export.

use crate::server::{Mounted, Setup};
use crate::tools::{may_loop, run, try_run};
use std::path::Path;

/// Each try starts programs of its own, so the other one has started before the last.
const TRIES_MAX: u32 = 200;

/// A loop device; detached when dropped, so that a failed test does not leave the mount busy.
struct Loop(String);

impl Loop {
    fn attach(mounted: &Mounted, arguments: &[&str]) -> Loop {
        let disk = mounted.disk();
        let attached = run("losetup", &[arguments, &["--find", "--show", &disk]].concat());
        Loop(attached.trim().to_owned())
    }

    /// The kernel falls back to buffered I/O without a word.
    fn is_direct(&self) -> bool {
        let listed = run("losetup", &["--noheadings", "--output", "DIO", &self.0]);
        listed.trim() == "1"
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        try_run("losetup", &["--detach", &self.0]);
    }
}

/// A file system; unmounted when dropped.
struct FileSystem(tempfile::TempDir);

impl FileSystem {
    fn mount(device: &Loop) -> FileSystem {
        let directory = tempfile::tempdir().unwrap();
        run("mount", &["-o", "discard", &device.0, directory.path().to_str().unwrap()]);
        FileSystem(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for FileSystem {
    /// A program that another test starts has our open files until it runs, and the file system is
    /// busy. Left mounted, it would lose its files with the directory.
    fn drop(&mut self) {
        let place = self.0.path().to_str().unwrap();
        let is_gone = (0..TRIES_MAX).any(|_| try_run("umount", &[place]).0);
        assert!(is_gone || std::thread::panicking(), "{place} stays busy");
    }
}

fn content(file: usize) -> Vec<u8> {
    (0..file * 40_000 + 1).map(|at| u8::try_from((at * 7 + file) % 253).unwrap()).collect()
}

fn write_files(root: &Path) {
    for file in 0..20 {
        std::fs::write(root.join(format!("file-{file}")), content(file)).unwrap();
    }
    for file in (0..20).step_by(3) {
        std::fs::remove_file(root.join(format!("file-{file}"))).unwrap();
    }
}

fn check_files(root: &Path) {
    for file in 0..20 {
        let path = root.join(format!("file-{file}"));
        if file % 3 == 0 {
            assert!(!path.exists());
        } else {
            assert!(std::fs::read(path).unwrap() == content(file), "file {file}");
        }
    }
}

fn ext4_lives_on_a_loop(setup: Setup, arguments: &[&str]) {
    let mounted = Mounted::new(setup);
    {
        let device = Loop::attach(&mounted, arguments);
        assert_eq!(device.is_direct(), arguments[0] == "--direct-io=on");
        run("mkfs.ext4", &["-q", "-F", &device.0]);
        let file_system = FileSystem::mount(&device);
        write_files(file_system.path());
        drop(file_system);
        check_files(FileSystem::mount(&device).path());
        run("e2fsck", &["-f", "-n", &device.0]);
    }
    // A new loop device starts with an empty cache: what is there now came through the export.
    let device = Loop::attach(&mounted, &["--read-only", "--direct-io=on"]);
    run("e2fsck", &["-f", "-n", &device.0]);
    drop(device);
    mounted.stop();
}

#[test]
fn ext4_on_a_loop_with_direct_io() {
    if may_loop("ext4_on_a_loop_with_direct_io") {
        ext4_lives_on_a_loop(Setup::default(), &["--direct-io=on"]);
    }
}

#[test]
fn ext4_on_a_buffered_loop() {
    if may_loop("ext4_on_a_buffered_loop") {
        ext4_lives_on_a_loop(Setup::default(), &["--direct-io=off"]);
    }
}

#[test]
fn ext4_on_loops_over_blocks_of_4096_bytes() {
    if may_loop("ext4_on_loops_over_blocks_of_4096_bytes") {
        for arguments in [
            &["--direct-io=on"][..],
            &["--direct-io=off"],
            &["--direct-io=on", "--sector-size=4096"],
        ] {
            let setup = Setup { logical_block_bytes: 4096, ..Setup::default() };
            ext4_lives_on_a_loop(setup, arguments);
        }
    }
}
