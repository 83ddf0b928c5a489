//! Suites that verify what they read, over both exports: fsx, fio, stress-ng, and btrfs whose scrub
//! is an independent judge. Each runs while the array is healthy, then with two members out, then
//! while members are rebuilt one after the other.
//!
//! What must stay true: the suites are the judges of the data; here only the array's own counters
//! are looked at. `ASHLAR_FSX_OPERATIONS` and `ASHLAR_SUITE_SECONDS` say how long they run in each
//! of the three states.

use crate::tools::{all_here, run, skipped};
use crate::world::World;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Room for the smallest btrfs and the largest file of stress-ng.
const MEMBER_BYTES: u64 = 192 << 20;

/// How the kernel gets at the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// `ashlar attach`: our FUSE, and a loop device.
    Attached,
    /// NBD through libnbd's nbdfuse, and a loop device.
    Nbd,
}

/// A loop device over the volume.
struct Device<'a> {
    world: &'a World,
    way: Way,
    path: String,
    nbdfuse: Option<Child>,
}

impl Way {
    fn open(self, world: &World) -> Device<'_> {
        if self == Way::Attached {
            let path = world.ok(&["attach", "--via", "loop", "tank0"]).trim().to_owned();
            return Device { world, way: self, path, nbdfuse: None };
        }
        let place = world.path("nbdfuse");
        std::fs::create_dir(&place).expect("a folder");
        let (file, ready) = (place.join("volume"), world.path("nbdfuse.pid"));
        let nbdfuse = Command::new("nbdfuse")
            .args(["-P", text(&ready), text(&file), &world.uri("tank0")])
            .stdin(Stdio::null())
            .spawn()
            .expect("it runs");
        while !ready.exists() {
            std::thread::yield_now();
        }
        // The volume's blocks are 4 KiB, and nbdfuse passes on what is asked of it.
        let options = ["--sector-size", "4096", "--find", "--show"];
        let path = run("losetup", &[&options[..], &[text(&file)]].concat()).trim().to_owned();
        Device { world, way: self, path, nbdfuse: Some(nbdfuse) }
    }
}

impl Device<'_> {
    /// Give it back in order; what is still in the kernel's cache is written.
    fn close(mut self) {
        if self.way == Way::Attached {
            self.world.ok(&["detach", "tank0"]);
            return;
        }
        run("losetup", &["--detach", &self.path]);
        run("fusermount3", &["-u", text(&self.world.path("nbdfuse"))]);
        let mut nbdfuse = self.nbdfuse.take().expect("it was started");
        assert!(nbdfuse.wait().expect("it ends").success());
    }
}

impl Drop for Device<'_> {
    fn drop(&mut self) {
        // After a failed test: whatever of it is still there goes.
        if !std::thread::panicking() {
            return;
        }
        for (program, arguments) in [
            ("umount", ["-l", text(&self.world.path("mounted"))]),
            ("losetup", ["--detach", &self.path]),
            ("fusermount3", ["-uz", text(&self.world.path("nbdfuse"))]),
        ] {
            let _gone = Command::new(program).args(arguments).stderr(Stdio::null()).status();
        }
        if let Some(nbdfuse) = &mut self.nbdfuse {
            let _gone = (nbdfuse.kill(), nbdfuse.wait());
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// A number from the environment, or the one for every day.
fn wish(name: &str, everyday: u64) -> u64 {
    std::env::var(name).map_or(everyday, |text| text.parse().expect("a number"))
}

fn seconds() -> String {
    wish("ASHLAR_SUITE_SECONDS", 2).to_string()
}

/// Whether all that is needed is here; else the test says that it is skipped.
fn can_run(test: &str, programs: &[&str]) -> bool {
    let kernel = ["/dev/loop-control", "/dev/fuse"].map(|path| Path::new(path).exists());
    if !rustix::process::geteuid().is_root() || kernel != [true; 2] {
        skipped(test, "needs root, loop devices and FUSE");
        return false;
    }
    let own = ["losetup", "fusermount3", "nbdfuse"];
    all_here(test, &[&own[..], programs].concat())
}

/// Run `client` on a device in the three states, each time with a word for the state. It must find
/// what it wrote.
fn in_three_states(
    way: Way,
    prepare: impl FnOnce(&World, &str),
    client: impl Fn(&World, &str, &str) + Sync,
) {
    let world = World::new();
    world.create_of(MEMBER_BYTES, 6, &["--level", "6"]);
    let device = way.open(&world);
    prepare(&world, &device.path);
    client(&world, &device.path, "healthy");
    let mut out = vec![0, 3];
    out.iter().for_each(|slot| drop(world.ok(&["fail", "tank0", &slot.to_string()])));
    client(&world, &device.path, "degraded");
    let rebuilt = std::thread::scope(|scope| {
        let working = scope.spawn(|| client(&world, &device.path, "rebuilding"));
        let mut rebuilt = 0;
        while rebuilt < 2 || !working.is_finished() {
            let slot = out.pop().unwrap_or_else(|| {
                let slot = rebuilt % 6;
                world.ok(&["fail", "tank0", &slot.to_string()]);
                slot
            });
            rebuild(&world, slot, rebuilt);
            rebuilt += 1;
        }
        working.join().expect("every block right");
        rebuilt
    });
    let unmounted = world.path("mounted");
    if unmounted.exists() {
        run("umount", &[text(&unmounted)]);
    }
    device.close();
    let array = world.array();
    assert_eq!((&array["state"], &array["counters"]["errors"]), (&"clean".into(), &0.into()));
    let scrubbed = world.ok(&["scrub", "tank0", "--wait"]);
    assert!(scrubbed.contains(" 0 mismatches"), "{way:?} after {rebuilt} rebuilds: {scrubbed}");
}

/// Rebuild a member that is out onto a new device, and throw the old one away.
fn rebuild(world: &World, slot: usize, number: usize) {
    let device = format!("new{number}");
    world.sparse(&device, MEMBER_BYTES);
    let old = world.array()["members"][slot]["path"].as_str().map(PathBuf::from);
    world.ok(&["replace", "tank0", &slot.to_string(), &device, "--wait"]);
    if let Some(old) = old.filter(|it| it.starts_with(world.folder.path())) {
        std::fs::remove_file(old).expect("it is nobody's now");
    }
}

/// Make a file system of the device and mount it.
fn mount(world: &World, device: &str, make: &str, options: &[&str]) {
    run(make, &[options, &[device]].concat());
    let place = world.path("mounted");
    std::fs::create_dir(&place).expect("a folder");
    run("mount", &[device, text(&place)]);
}

/// Where cargo or somebody else installed fsx.
fn fsx() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("fsx")).find(|it| it.exists())
}

/// Reads must come from the device, not from the kernel's cache: it is told to forget, often.
const FSX_WEIGHTS: &str = "[weights]\nread = 10\nwrite = 10\nmapread = 5\nmapwrite = 0.3\n\
                           fsync = 0.2\nfdatasync = 0.2\n\
                           posix_fadvise = 10\ninvalidate = 0\n";

fn fsx_agrees(test: &str, way: Way) {
    if !can_run(test, &["mkfs.xfs", "mount"]) {
        return;
    }
    let Some(fsx) = fsx() else {
        return skipped(test, "fsx not installed (cargo install fsx --locked)");
    };
    let operations = wish("ASHLAR_FSX_OPERATIONS", 3000).to_string();
    let exercise = |world: &World, target: &str, config: &str, state: &str| {
        let file = world.path("fsx.toml");
        std::fs::write(&file, config).expect("write");
        let seed = state.len().to_string();
        let options = ["-N", &operations, "-S", &seed, "-f", text(&file), "-P"];
        let target = [text(world.folder.path()), target];
        run(text(&fsx), &[&options[..], &target].concat());
    };
    let of_device = format!(
        "blockmode = true\nnosizechecks = true\nflen = 1048576\n[opsize]\nmax = 65536\n\
         {FSX_WEIGHTS}close_open = 0\n\
         truncate = 0\n"
    );
    in_three_states(
        way,
        |_, _| (),
        |world, device, state| {
            exercise(world, device, &of_device, state);
        },
    );
    let of_file = format!(
        "flen = 1048576\n[opsize]\nmax = 65536\n{FSX_WEIGHTS}close_open = 1\ntruncate = 5\n\
         posix_fallocate = 2\n\
         punch_hole = 5\nsendfile = 2\ncopy_file_range = 2\n"
    );
    let prepare = |world: &World, device: &str| mount(world, device, "mkfs.xfs", &["-q", "-f"]);
    in_three_states(way, prepare, |world, _, state| {
        exercise(world, text(&world.path("mounted/file")), &of_file, state);
    });
}

#[test]
fn fsx_agrees_on_the_fuse_loop_device() {
    fsx_agrees("fsx_agrees_on_the_fuse_loop_device", Way::Attached);
}

#[test]
fn fsx_agrees_over_nbd() {
    fsx_agrees("fsx_agrees_over_nbd", Way::Nbd);
}

fn fio_verifies(test: &str, way: Way) {
    if !can_run(test, &["fio"]) {
        return;
    }
    in_three_states(
        way,
        |_, _| (),
        |world, device, _| {
            let runtime = format!("--runtime={}", seconds());
            let target = match way {
                Way::Attached => ["--ioengine=libaio".to_owned(), format!("--filename={device}")],
                Way::Nbd => ["--ioengine=nbd".to_owned(), format!("--uri={}", world.uri("tank0"))],
            };
            let [engine, target] = &target;
            let options = [
                "--name=verify",
                "--direct=1",
                "--rw=randrw",
                "--bsrange=4k-256k",
                "--iodepth=16",
                "--size=64M",
                "--verify=crc32c",
                "--verify_fatal=1",
                "--verify_backlog=64",
                "--do_verify=1",
                "--verify_state_save=0",
                "--time_based",
            ];
            run("fio", &[&options[..], &[engine, target, &runtime]].concat());
        },
    );
}

#[test]
fn fio_verifies_the_fuse_loop_device_in_three_states() {
    fio_verifies("fio_verifies_the_fuse_loop_device_in_three_states", Way::Attached);
}

#[test]
fn fio_verifies_nbd_in_three_states() {
    fio_verifies("fio_verifies_nbd_in_three_states", Way::Nbd);
}

fn stressors_verify(test: &str, way: Way) {
    if !can_run(test, &["stress-ng", "mkfs.ext4", "mount"]) {
        return;
    }
    let prepare = |world: &World, device: &str| mount(world, device, "mkfs.ext4", &["-q", "-F"]);
    in_three_states(way, prepare, |world, _, _| {
        let stressors = [
            "--hdd",
            "1",
            "--hdd-bytes",
            "32M",
            "--hdd-opts",
            "dsync,wr-rnd,rd-rnd,fadv-dontneed",
            "--copy-file",
            "1",
            "--copy-file-bytes",
            "128M",
            "--fallocate",
            "1",
            "--fallocate-bytes",
            "32M",
            "--readahead",
            "1",
            "--readahead-bytes",
            "32M",
            "--seek",
            "1",
            "--seek-size",
            "32M",
            "--sync-file",
            "1",
            "--sync-file-bytes",
            "32M",
        ];
        let place = world.path("mounted");
        let how = ["--verify", "--timeout", &seconds(), "--temp-path", text(&place)];
        run("stress-ng", &[&stressors[..], &how].concat());
    });
}

#[test]
fn stressors_verify_what_they_wrote_on_the_fuse_loop_device() {
    let test = "stressors_verify_what_they_wrote_on_the_fuse_loop_device";
    stressors_verify(test, Way::Attached);
}

#[test]
fn stressors_verify_what_they_wrote_over_nbd() {
    stressors_verify("stressors_verify_what_they_wrote_over_nbd", Way::Nbd);
}

fn btrfs_judges(test: &str, way: Way) {
    if !can_run(test, &["mkfs.btrfs", "btrfs", "mount"]) {
        return;
    }
    let prepare = |world: &World, device: &str| mount(world, device, "mkfs.btrfs", &["-q", "-f"]);
    in_three_states(way, prepare, |world, _, state| {
        let place = world.path("mounted");
        let noise = world.noise_from(state, 24 << 20, state.len().try_into().expect("short"));
        let copy = place.join("copy");
        run("cp", &[text(&noise), text(&copy)]);
        run("sync", &["-f", text(&place)]);
        let judged = run("btrfs", &["scrub", "start", "-B", "-r", text(&place)]);
        assert!(judged.contains("no errors found"), "{way:?} {state}: {judged}");
        // Not from the cache: what the devices hold.
        std::fs::write("/proc/sys/vm/drop_caches", "1").expect("root may");
        assert!(std::fs::read(copy).expect("read") == std::fs::read(noise).expect("read"));
    });
}

#[test]
fn the_scrub_of_btrfs_finds_nothing_on_the_fuse_loop_device() {
    let test = "the_scrub_of_btrfs_finds_nothing_on_the_fuse_loop_device";
    btrfs_judges(test, Way::Attached);
}

#[test]
fn the_scrub_of_btrfs_finds_nothing_over_nbd() {
    btrfs_judges("the_scrub_of_btrfs_finds_nothing_over_nbd", Way::Nbd);
}
