//! The files as programs see them.

use crate::server::{Mounted, Over, Setup};
use crate::tools::{may_mount, run, try_run};
use ashlar_fuse::MountBy;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};

fn open(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from((at * 31 + at / 4096) % 251).unwrap()).collect()
}

#[test]
fn a_volume_is_a_file_of_its_size() {
    if !may_mount("a_volume_is_a_file_of_its_size") {
        return;
    }
    for over in Over::all("a_volume_is_a_file_of_its_size") {
        let mounted = Mounted::new(Setup { over, ..Setup::default() });
        let metadata = mounted.file().metadata().unwrap();
        assert!(metadata.is_file());
        assert_eq!((metadata.len(), metadata.mode() & 0o777), (64 << 20, 0o600));
        assert!(std::fs::remove_file(mounted.file()).is_err());
        assert!(std::fs::rename(mounted.file(), "/tmp/elsewhere").is_err());
        mounted.stop();
    }
}

#[test]
fn the_file_cannot_change_its_size_but_may_be_opened_for_overwriting() {
    if !may_mount("the_file_cannot_change_its_size_but_may_be_opened_for_overwriting") {
        return;
    }
    for over in Over::all("the_file_cannot_change_its_size_but_may_be_opened_for_overwriting") {
        let mounted = Mounted::new(Setup { over, ..Setup::default() });
        let file = OpenOptions::new().write(true).truncate(true).open(mounted.file()).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 64 << 20);
        assert!(file.set_len(1 << 20).is_err());
        assert!(file.set_len(64 << 20).is_ok());
        assert!(file.write_at(b"x", 64 << 20).is_err());
        assert_eq!(file.write_at(&[7; 100], (64 << 20) - 50).unwrap(), 50);
        drop(file);
        mounted.stop();
    }
}

#[test]
fn bytes_of_any_alignment_come_back() {
    if !may_mount("bytes_of_any_alignment_come_back") {
        return;
    }
    for over in Over::all("bytes_of_any_alignment_come_back") {
        for (logical_block_bytes, request_bytes_max) in
            [(512, 1 << 20), (4096, 1 << 20), (4096, 65_536)]
        {
            let setup = Setup { logical_block_bytes, request_bytes_max, over, ..Setup::default() };
            let mounted = Mounted::new(setup);
            let file = open(mounted.file());
            let content = pattern(3 << 20);
            for (at, bytes) in
                [(0, 3 << 20), (5, 1), (4095, 2), (513, 511), (1000, 1 << 20), (7, 2_000_000)]
            {
                file.write_all_at(&content[..bytes], at).unwrap();
                let mut back = vec![0; bytes];
                file.read_exact_at(&mut back, at).unwrap();
                assert!(back == content[..bytes], "{bytes} bytes at {at}");
            }
            file.sync_all().unwrap();
            let mut end = vec![0; 100];
            assert_eq!(file.read_at(&mut end, (64 << 20) - 30).unwrap(), 30);
            assert_eq!(file.read_at(&mut end, 64 << 20).unwrap(), 0);
            drop(file);
            mounted.stop();
        }
    }
}

#[test]
fn dd_with_and_without_direct_io_copies_the_file() {
    if !may_mount("dd_with_and_without_direct_io_copies_the_file") {
        return;
    }
    for over in Over::all("dd_with_and_without_direct_io_copies_the_file") {
        let mounted = Mounted::new(Setup { over, ..Setup::default() });
        let scratch = tempfile::tempdir().unwrap();
        let (source, back) = (scratch.path().join("source"), scratch.path().join("back"));
        let content = pattern(8 << 20);
        std::fs::write(&source, &content).unwrap();
        let (from, to) = (format!("if={}", source.display()), format!("of={}", mounted.disk()));
        for flags in [&["oflag=direct"][..], &["conv=fsync"], &["oflag=dsync"]] {
            run("dd", &[&[&from[..], &to, "bs=1M"], flags].concat());
            let (from, to) = (format!("if={}", mounted.disk()), format!("of={}", back.display()));
            run("dd", &[&from, &to, "bs=1M", "count=8", "iflag=direct"]);
            assert!(std::fs::read(&back).unwrap() == content, "{flags:?}");
        }
        mounted.stop();
    }
}

#[test]
fn holes_are_punched_and_ranges_zeroed() {
    if !may_mount("holes_are_punched_and_ranges_zeroed") {
        return;
    }
    for over in Over::all("holes_are_punched_and_ranges_zeroed") {
        let mounted = Mounted::new(Setup { logical_block_bytes: 4096, over, ..Setup::default() });
        let file = open(mounted.file());
        let mut content = pattern(1 << 20);
        file.write_all_at(&content, 0).unwrap();
        for (how, at, bytes) in [
            ("--punch-hole", 65_536, 131_072),
            ("--zero-range", 300_000, 10_001),
            ("--punch-hole", 5, 3),
        ] {
            let (offset, length) = (at.to_string(), bytes.to_string());
            run("fallocate", &[how, "--offset", &offset, "--length", &length, &mounted.disk()]);
            content[at..at + bytes].fill(0);
        }
        run("fallocate", &["--length", "64M", &mounted.disk()]);
        assert!(!try_run("fallocate", &["--length", "65M", &mounted.disk()]).0);
        assert!(
            !try_run("fallocate", &["--collapse-range", "--length", "4096", &mounted.disk()]).0
        );
        let mut back = vec![0; 1 << 20];
        file.read_exact_at(&mut back, 0).unwrap();
        assert!(back == content);
        let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap();
        assert_eq!(hole, 65_536);
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(hole)).unwrap(), 196_608);
        drop(file);
        mounted.stop();
    }
}

#[test]
fn many_programs_write_at_once() {
    if !may_mount("many_programs_write_at_once") {
        return;
    }
    for over in Over::all("many_programs_write_at_once") {
        let mounted = Mounted::new(Setup { logical_block_bytes: 4096, over, ..Setup::default() });
        let path = mounted.file();
        std::thread::scope(|scope| {
            for writer in 0u8..16 {
                scope.spawn(move || {
                    let file = open(path);
                    for round in 0..50 {
                        let at = (round * 16 + u64::from(writer)) * 1000;
                        file.write_all_at(&[writer + 1; 1000], at).unwrap();
                    }
                });
            }
        });
        let file = open(path);
        let mut all = vec![0; 50 * 16 * 1000];
        file.read_exact_at(&mut all, 0).unwrap();
        for (piece, index) in all.chunks_exact(1000).zip((0u8..16).cycle()) {
            assert!(piece.iter().all(|byte| *byte == index + 1));
        }
        drop(file);
        mounted.stop();
    }
}

#[test]
fn a_read_only_volume_can_only_be_read() {
    if !may_mount("a_read_only_volume_can_only_be_read") {
        return;
    }
    for over in Over::all("a_read_only_volume_can_only_be_read") {
        let mounted = Mounted::new(Setup { read_only: true, over, ..Setup::default() });
        let path = mounted.file();
        assert!(OpenOptions::new().write(true).open(path).is_err());
        assert_eq!(File::open(path).unwrap().read_at(&mut [1; 16], 0).unwrap(), 16);
        mounted.stop();
    }
}

#[test]
fn fusermount_mounts_and_unmounts() {
    if !may_mount("fusermount_mounts_and_unmounts") {
        return;
    }
    for over in Over::all("fusermount_mounts_and_unmounts") {
        if !try_run("fusermount3", &["--version"]).0 {
            panic!("fusermount3 does not work: apt-get install fuse3");
        }
        let mounted = Mounted::new(Setup { by: MountBy::Fusermount, over, ..Setup::default() });
        open(mounted.file()).write_all_at(b"through fusermount3", 77).unwrap();
        let mut back = [0; 19];
        open(mounted.file()).read_exact_at(&mut back, 77).unwrap();
        assert_eq!(&back, b"through fusermount3");
        mounted.stop();
    }
}

#[test]
fn dropping_a_mount_takes_it_away() {
    if !may_mount("dropping_a_mount_takes_it_away") {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let mount = ashlar_fuse::mount(file.path(), MountBy::System, 2).unwrap();
    let is_listed = || {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.contains(file.path().to_str().unwrap())
    };
    assert!(is_listed());
    drop(mount);
    assert!(!is_listed());
}
