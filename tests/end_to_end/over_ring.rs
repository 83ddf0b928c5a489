//! Attached files whose requests come over io_uring: the kernel repeats none of them, so the end of
//! the daemon is an error for whoever has a file open, at once, and not a pause.

use crate::kept::{ask_to_hand_over, hand_over, kills};
use crate::tools::{skipped, wait_for};
use crate::world::World;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
/// The daemon is told of its members and of its configuration.
const START: [&str; 7] = ["--config", "ring.toml", "m0", "m1", "m2", "m3", "m4"];
/// Writers of a load, and bytes that each writes at a time.
const WRITERS: u64 = 32;
const BLOCK: usize = 8192;
/// Nobody waits longer for an error than two minutes, however busy the machine is.
const LOOKS: u32 = 12_000;
const PAUSE: Duration = Duration::from_millis(10);

/// The kernel's parameter while a test needs it; it is the machine's, so tests take turns.
struct Parameter {
    /// Locked.
    file: File,
    before: String,
}

impl Parameter {
    fn set(value: &str) -> Parameter {
        let file = File::options().write(true).open(PARAMETER).expect("root may");
        file.lock().expect("lockable");
        let before = std::fs::read_to_string(PARAMETER).expect("readable");
        file.write_all_at(value.as_bytes(), 0).expect("settable");
        Parameter { file, before }
    }
}

impl Drop for Parameter {
    fn drop(&mut self) {
        self.file.write_all_at(self.before.trim().as_bytes(), 0).expect("settable");
    }
}

/// A daemon that is to take requests over io_uring.
struct Asked {
    world: World,
    _parameter: Parameter,
}

impl Asked {
    /// `None` after saying why `test` cannot run here.
    fn new(test: &str, parameter: &str) -> Option<Asked> {
        let needed = [PARAMETER, "/dev/fuse", "/dev/loop-control"];
        let is_possible = needed.iter().all(|it| Path::new(it).exists());
        if !rustix::process::geteuid().is_root() || !is_possible {
            skipped(test, "needs root, loop devices and FUSE over io_uring (Linux 6.14)");
            return None;
        }
        let parameter = Parameter::set(parameter);
        let mut world = World::new();
        world.create("tank0", 5, &["--level", "6", "--strip-size", "16K"]);
        assert!(world.end().success());
        let folder = world.path("volumes");
        let config = format!("[fuse]\ndirectory = \"{}\"\nio_uring = true\n", folder.display());
        std::fs::write(world.path("ring.toml"), config).expect("written");
        world.start(&START);
        Some(Asked { world, _parameter: parameter })
    }

    fn attach(&self, how: &[&str]) -> serde_json::Value {
        let arguments = [&["--json", "attach", "--not-remembered"], how, &["tank0"]].concat();
        serde_json::from_str(&self.world.ok(&arguments)).expect("JSON")
    }

    /// The metrics say of the attached file whether its requests come over io_uring.
    fn expect_metric(&self, path: &str, is_over_ring: u8) {
        let metrics = self.world.ok(&["metrics"]);
        let labels = format!("protocol=\"fuse\",address=\"{path}\",array=\"tank0\"");
        let line = format!("ashlar_export_over_ring{{{labels}}} {is_over_ring}\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
}

fn place(attached: &serde_json::Value) -> String {
    let place = attached["device"].as_str().or(attached["file"].as_str());
    place.expect("a device or a file").to_owned()
}

fn content(writer: u64, round: u64) -> Vec<u8> {
    let byte = u8::try_from((writer * 31 + round) % 250).expect("a byte") + 1;
    vec![byte; BLOCK]
}

/// Write and sync until that fails; how many rounds went well, counted in `done` too.
fn write_until_it_fails(place: &str, writer: u64, done: &AtomicU64) -> (u64, io::Error) {
    let file = File::options().write(true).open(place).expect("it is there");
    for round in 0.. {
        let at = writer * u64::try_from(BLOCK).expect("small");
        let written = file.write_all_at(&content(writer, round), at).and_then(|()| file.sync_all());
        if let Err(error) = written {
            return (round, error);
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    unreachable!("it fails at some time")
}

/// What each writer had synced before the daemon was killed.
fn killed_under_load(world: &mut World, place: &str) -> Vec<u64> {
    let done: Vec<_> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        let start = |(writer, done)| scope.spawn(move || write_until_it_fails(place, writer, done));
        let writers: Vec<_> = (0..).zip(&done).map(start).collect();
        wait_for("two rounds of every writer", || {
            done.iter().all(|it| it.load(Ordering::Relaxed) > 1)
        });
        world.kill();
        let have_errors = (0..LOOKS).any(|_| {
            std::thread::sleep(PAUSE);
            writers.iter().all(|it| it.is_finished())
        });
        if !have_errors {
            // Else nobody would ever hear of it.
            use rustix::mount::{UnmountFlags, unmount};
            let file = world.path("volumes/tank0");
            unmount(file, UnmountFlags::FORCE | UnmountFlags::DETACH).expect("mounted");
        }
        assert!(have_errors, "users wait for a daemon that is gone");
        let ends = writers.into_iter().map(|it| it.join().expect("no panic"));
        ends.map(|(rounds, _error)| rounds).collect()
    })
}

/// What was synced is there, or what was written last and not answered.
fn check_content(place: &str, synced: &[u64]) {
    let file = File::open(place).expect("it is there");
    for (writer, rounds) in (0..).zip(synced) {
        let mut back = vec![0; BLOCK];
        let at = writer * u64::try_from(BLOCK).expect("small");
        file.read_exact_at(&mut back, at).expect("readable");
        for half in back.chunks(4096) {
            let is_of = |round: u64| half == &content(writer, round)[..half.len()];
            assert!(is_of(rounds - 1) || is_of(*rounds), "writer {writer}, round {rounds}");
        }
    }
}

#[test]
fn a_killed_daemon_is_an_error_at_once_and_the_next_one_attaches_anew() {
    let test = "a_killed_daemon_is_an_error_at_once_and_the_next_one_attaches_anew";
    let Some(mut asked) = Asked::new(test, "Y") else { return };
    for how in [&["--file"][..], &["--via", "loop"]] {
        for _ in 0..kills(3) {
            let attached = asked.attach(how);
            assert_eq!(attached["over_ring"], true, "{attached}");
            assert_eq!(attached["survives"], false, "{attached}");
            let synced = killed_under_load(&mut asked.world, &place(&attached));
            assert!(synced.iter().all(|rounds| *rounds > 0), "{synced:?}");
            asked.world.start(&START);
            let told = asked.world.said();
            assert!(told.contains("took away the mount of a daemon that is gone"), "{told}");
            let file = place(&asked.attach(&["--file"]));
            check_content(&file, &synced);
            asked.world.ok(&["detach", "tank0"]);
        }
    }
    let scrubbed = asked.world.ok(&["scrub", "tank0", "--wait"]);
    assert!(scrubbed.contains(" 0 mismatches"), "{scrubbed}");
    assert!(asked.world.end().success());
}

/// Writers who get no error, before and after `tried`.
fn undisturbed(path: &str, tried: impl FnOnce()) {
    let done: Vec<_> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let counts = || -> Vec<u64> { done.iter().map(|it| it.load(Ordering::Relaxed)).collect() };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (writer, done) in (0..).zip(&done) {
            let is_over = &is_over;
            scope.spawn(move || {
                let file = File::options().write(true).open(path).expect("it is there");
                while !is_over.load(Ordering::Relaxed) {
                    file.write_all_at(&content(writer, 0), writer * 65_536).expect("no error");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        wait_for("a write of every writer", || counts().iter().all(|it| *it > 0));
        tried();
        let before = counts();
        wait_for("one more of every writer", || {
            counts().iter().zip(&before).all(|(now, before)| now > before)
        });
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_file_over_io_uring_is_detached_only_when_nobody_uses_it() {
    let test = "a_file_over_io_uring_is_detached_only_when_nobody_uses_it";
    let Some(mut asked) = Asked::new(test, "Y") else { return };
    let path = place(&asked.attach(&["--file"]));
    assert_eq!(asked.world.status()["exports"][1]["over_ring"], true, "{}", asked.world.status());
    asked.expect_metric(&path, 1);
    undisturbed(&path, || {
        let line = asked.world.refused(&["detach", "tank0"]);
        assert!(line.contains("open somewhere"), "{line}");
    });
    asked.world.ok(&["detach", "tank0"]);
    assert!(!Path::new(&path).exists());
    assert!(asked.world.end().success());
}

#[test]
fn a_daemon_with_a_file_over_io_uring_does_not_hand_over_and_says_so() {
    let test = "a_daemon_with_a_file_over_io_uring_does_not_hand_over_and_says_so";
    let Some(mut asked) = Asked::new(test, "Y") else { return };
    let path = place(&asked.attach(&["--file"]));
    undisturbed(&path, || {
        ask_to_hand_over(&asked.world);
        let why = format!(
            "not handed over: users of {path} would get errors (its requests come over io_uring, \
             and the kernel does not repeat them); detach 'tank0' first; it goes on here\n"
        );
        wait_for("a refusal", || asked.world.said().contains(&why));
    });
    asked.world.ok(&["detach", "tank0"]);
    hand_over(&mut asked.world);
    asked.world.start(&START);
    check_content(&place(&asked.attach(&["--file"])), &[1]);
    asked.world.ok(&["detach", "tank0"]);
    assert!(asked.world.end().success());
}

#[test]
fn a_kernel_that_does_not_offer_it_serves_files_that_survive() {
    let test = "a_kernel_that_does_not_offer_it_serves_files_that_survive";
    let Some(mut asked) = Asked::new(test, "N") else { return };
    let why = "do not come over io_uring: the kernel does not offer it";
    assert!(asked.world.said().contains(why), "{}", asked.world.said());
    let output = asked.world.run(&["attach", "--file", "--not-remembered", "tank0"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && told.contains(why), "{told}");
    assert!(told.contains("echo Y > /sys/module/fuse/parameters/enable_uring"), "{told}");
    let attached = asked.attach(&["--file"]);
    assert_eq!((&attached["over_ring"], &attached["survives"]), (&false.into(), &true.into()));
    asked.expect_metric(&place(&attached), 0);
    let file = File::options().read(true).write(true).open(place(&attached)).expect("served");
    asked.world.kill();
    asked.world.start(&START);
    file.write_all_at(&[7; BLOCK], 0).expect("a pause and no error");
    drop(file);
    asked.world.ok(&["detach", "tank0"]);
    assert!(asked.world.end().success());
}

/// The rings of the workers have room for four; whoever comes later has a file that survives.
#[test]
fn files_for_which_the_rings_have_no_room_come_the_classic_way() {
    let test = "files_for_which_the_rings_have_no_room_come_the_classic_way";
    let Some(mut asked) = Asked::new(test, "Y") else { return };
    let attach = |name: &str| -> (serde_json::Value, String) {
        let output = asked.world.run(&["--json", "attach", "--not-remembered", "--file", name]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{told}");
        (serde_json::from_slice(&output.stdout).expect("JSON"), told)
    };
    for number in 1..6 {
        let name = format!("memory{number}");
        asked.world.ok(&["create", &name, "--level", "1", "memory:64M", "memory:64M"]);
        let (attached, told) = attach(&name);
        assert_eq!(attached["over_ring"], number < 5, "{attached}");
        assert_eq!(told.contains("no room for one more"), number == 5, "{told}");
        let file = File::options().write(true).open(place(&attached)).expect("served");
        file.write_all_at(&[7; BLOCK], 0).expect("served");
    }
    asked.world.ok(&["detach", "memory2"]);
    assert_eq!(attach("memory2").0["over_ring"], true, "room was given back");
    for number in 1..6 {
        asked.world.ok(&["detach", &format!("memory{number}")]);
    }
    assert!(asked.world.end().success());
}
