//! The daemon is killed, or hands over to the next one, under whoever has an attached file, or a
//! loop device on it, open: they see a pause.
//!
//! A killed daemon used to leave a file and a device that answered errors for ever. The next daemon
//! took the dead mount away, and file systems on it were lost until they were mounted again.

use crate::tools::{all_here, run, skipped, wait_for};
use crate::world::World;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

const MEMBERS: [&str; 5] = ["m0", "m1", "m2", "m3", "m4"];
/// Where a file's content is not touched by the load.
const ASIDE: u64 = 64 << 20;

/// How often the daemon is killed: `ASHLAR_ATTACHED_KILLS`, else so often.
pub fn kills(everyday: usize) -> usize {
    let told = std::env::var("ASHLAR_ATTACHED_KILLS");
    told.map_or(everyday, |text| text.parse().expect("a number"))
}

/// A world that takes away what its daemon has left, if a test fails.
pub struct Kept(pub World);

impl Kept {
    /// `None` after saying why `test` cannot run here.
    fn new(test: &str, programs: &[&str]) -> Option<Kept> {
        Kept::of(test, programs, &[])
    }

    /// With an array of these further arguments.
    fn of(test: &str, programs: &[&str], more: &[&str]) -> Option<Kept> {
        let kept = Kept::bare(test, programs)?;
        let shape = ["--level", "6", "--strip-size", "16K"];
        kept.0.create("tank0", MEMBERS.len(), &[&shape, more].concat());
        Some(kept)
    }

    /// Without any array.
    pub fn bare(test: &str, programs: &[&str]) -> Option<Kept> {
        let has_loop = Path::new("/dev/loop-control").exists();
        if !rustix::process::geteuid().is_root() || !has_loop || !Path::new("/dev/fuse").exists() {
            skipped(test, "needs root, FUSE and loop devices");
            return None;
        }
        if !all_here(test, programs) {
            return None;
        }
        Some(Kept(World::new()))
    }

    fn file(&self) -> PathBuf {
        self.0.path("volumes/tank0")
    }

    pub fn attach(&self, how: &[&str]) -> String {
        self.0.ok(&[&["attach"], how, &["tank0"]].concat()).trim().to_owned()
    }

    fn kill_and_return(&mut self) {
        self.0.kill();
        self.0.start(&MEMBERS);
    }

    fn times_resumed(&self) -> usize {
        self.0.said().matches("is served again").count()
    }

    /// The process that keeps the descriptors: a child of the daemon that started it.
    fn keeper(&self) -> Option<u32> {
        let daemon = self.0.id().to_string();
        let all = std::fs::read_dir("/proc").expect("processes").flatten();
        let mut all = all.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
        all.find(|id| {
            let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let about = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            let parent = about.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
            String::from_utf8_lossy(&line).contains("keeper\0--wait") && parent == Some(&daemon)
        })
    }
}

/// Programs that look at the file would wait with everybody else, so they are not asked.
impl Drop for Kept {
    fn drop(&mut self) {
        use rustix::mount::{UnmountFlags, unmount};
        // If a test fails it is mounted still.
        let _none = unmount(self.file(), UnmountFlags::FORCE | UnmountFlags::DETACH);
    }
}

/// Load that checks what it has written, until it is told to end.
pub struct FioLoad {
    fio: Child,
    report: PathBuf,
}

impl FioLoad {
    pub fn on(place: &str, report: PathBuf) -> FioLoad {
        let place = format!("--filename={place}");
        FioLoad::with(&["--ioengine=libaio", "--direct=1", &place], report)
    }

    fn with(engine: &[&str], report: PathBuf) -> FioLoad {
        let fio = Command::new("fio")
            .args(["--name=load", "--rw=randwrite", "--bs=4k", "--iodepth=32", "--size=48M"])
            .args(["--verify=crc32c", "--verify_backlog=512", "--verify_state_save=0"])
            .args(["--time_based", "--runtime=36000", "--eta=never"])
            .args(engine)
            .arg(format!("--output={}", report.display()))
            .spawn()
            .expect("fio runs");
        FioLoad { fio, report }
    }

    /// Nobody got an error, and every block was right.
    pub fn end(mut self) {
        assert!(self.fio.try_wait().expect("our child").is_none(), "{}", self.said());
        let id = rustix::process::Pid::from_child(&self.fio);
        rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it runs");
        let end = self.fio.wait().expect("it ends");
        let said = self.said();
        assert!(end.success() || end.code() == Some(128), "{end}: {said}");
        assert!(said.contains("err= 0"), "{said}");
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.report).unwrap_or_default()
    }
}

/// So many ends of the daemon at different moments of the load; what is written meanwhile waits and
/// is there.
fn survives(kept: &mut Kept, place: &str, times: usize, end: fn(&mut World)) {
    let before = kept.times_resumed();
    let load = FioLoad::on(place, kept.0.path("fio"));
    let file = File::options().read(true).write(true).open(place).expect("it is there");
    for number in 0..times {
        wait_for_requests(&kept.0, "fuse", number);
        end(&mut kept.0);
        let content = vec![u8::try_from(number % 251).expect("a byte") + 1; 256 << 10];
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                file.write_all_at(&content, ASIDE)?;
                file.sync_all()
            });
            kept.0.start(&MEMBERS);
            waits.join().expect("no panic").expect("a pause and no error");
        });
        assert_eq!(kept.times_resumed(), before + number + 1, "{}", kept.0.said());
        let mut back = vec![0; content.len()];
        file.read_exact_at(&mut back, ASIDE).expect("readable");
        assert!(back == content, "end {number}: what was synced is not there");
    }
    load.end();
    let events = kept.0.ok(&["events"]);
    assert!(events.contains("attachment.resumed"), "{events}");
}

/// Have the daemon hand over to the next one, which is to be started.
pub fn hand_over(world: &mut World) {
    ask_to_hand_over(world);
    assert_eq!(world.ended().code(), Some(75), "it has handed over");
}

pub fn ask_to_hand_over(world: &World) {
    use rustix::process::{Pid, Signal, kill_process};
    let id = i32::try_from(world.id()).ok().and_then(Pid::from_raw).expect("an id");
    kill_process(id, Signal::USR2).expect("it runs");
}

/// Wait until this daemon has carried out some more requests: not always as many.
fn wait_for_requests(world: &World, protocol: &str, number: usize) {
    let wanted = requests(world, protocol) + 200 + u64::try_from(number % 7).expect("small") * 300;
    wait_for("requests of the load", || requests(world, protocol) > wanted);
}

/// Requests over this protocol that this daemon has carried out.
fn requests(world: &World, protocol: &str) -> u64 {
    let status: serde_json::Value =
        serde_json::from_str(&world.ok(&["status", "--json"])).expect("JSON");
    let exports = status["exports"].as_array().expect("a list");
    let export = exports.iter().find(|export| export["protocol"] == protocol);
    export.and_then(|export| export["requests"].as_u64()).unwrap_or(0)
}

#[test]
fn a_killed_daemon_is_a_pause_for_whoever_has_an_attached_file_open() {
    let test = "a_killed_daemon_is_a_pause_for_whoever_has_an_attached_file_open";
    let Some(mut kept) = Kept::new(test, &["fio"]) else { return };
    let file = kept.attach(&["--file"]);
    survives(&mut kept, &file, kills(4), World::kill);
    assert_eq!(kept.attach(&["--file"]), file, "it is attached still");
    let scrubbed = kept.0.ok(&["scrub", "tank0", "--wait"]);
    assert!(scrubbed.contains(" 0 mismatches"), "{scrubbed}");
    kept.0.ok(&["detach", "tank0"]);
    assert!(!kept.file().exists(), "an empty file is left");
    assert!(kept.0.end().success());
}

#[test]
fn a_killed_daemon_is_a_pause_for_the_loop_device_on_its_file() {
    let test = "a_killed_daemon_is_a_pause_for_the_loop_device_on_its_file";
    let Some(mut kept) = Kept::new(test, &["fio", "losetup"]) else { return };
    let device = kept.attach(&["--via", "loop"]);
    survives(&mut kept, &device, kills(4), World::kill);
    assert_eq!(kept.attach(&["--via", "loop"]), device, "the same one");
    kept.0.ok(&["detach", "tank0"]);
    assert!(kept.0.end().success());
}

/// After a kill this array would start read-only: it lacks a member, and nothing but the bitmap
/// tells what was being written.
#[test]
fn a_daemon_that_hands_over_is_a_pause_even_for_a_degraded_array_without_a_log() {
    let test = "a_daemon_that_hands_over_is_a_pause_even_for_a_degraded_array_without_a_log";
    let bitmap = ["--policy", "bitmap"];
    let Some(mut kept) = Kept::of(test, &["fio", "losetup"], &bitmap) else { return };
    let device = kept.attach(&["--via", "loop"]);
    kept.0.ok(&["fail", "tank0", "1"]);
    survives(&mut kept, &device, kills(4), hand_over);
    assert_eq!(kept.0.array()["state"], "degraded");
    let times = || kept.0.said().matches("array 'tank0' is handed over (Clean)").count();
    wait_for("what the last one said", || times() >= kills(4));
    assert_eq!(times(), kills(4), "{}", kept.0.said());
    kept.0.ok(&["detach", "tank0"]);
    assert!(kept.0.end().success());
}

#[test]
fn an_array_in_memory_is_not_handed_over() {
    let mut world = World::new();
    world.ok(&["create", "fleeting", "--level", "1", "memory:64M", "memory:64M"]);
    ask_to_hand_over(&world);
    let why = "not handed over: array 'fleeting' is in the memory of this process";
    wait_for("a refusal", || world.said().contains(why));
    assert_eq!(world.array()["name"], "fleeting");
    assert!(world.end().success());
}

#[test]
fn a_mounted_file_system_and_its_keeper_outlive_the_daemon_and_end_with_the_detach() {
    let test = "a_mounted_file_system_and_its_keeper_outlive_the_daemon_and_end_with_the_detach";
    let Some(mut kept) = Kept::new(test, &["mkfs.ext4", "losetup", "mount"]) else { return };
    let device = kept.attach(&["--via", "loop"]);
    let (place, noise) = (kept.0.path("at"), kept.0.noise("noise", 4 << 20));
    std::fs::create_dir(&place).expect("a folder");
    run("mkfs.ext4", &["-q", "-F", &device]);
    run("mount", &[&device, place.to_str().expect("text")]);
    let keeper = kept.keeper().expect("a process that keeps the descriptors");
    let socket = std::fs::metadata(kept.0.path("control.keeper")).expect("its socket");
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&socket.permissions()) & 0o777, 0o600);
    std::fs::copy(&noise, place.join("copy")).expect("written");
    // A keeper that ends before the daemon does has a successor too.
    let id = rustix::process::Pid::from_raw(i32::try_from(keeper).expect("an id")).expect("one");
    rustix::process::kill_process(id, rustix::process::Signal::KILL).expect("it ran");
    wait_for("another keeper", || kept.keeper().is_some_and(|it| it != keeper));
    let keeper = kept.keeper().expect("another one");
    kept.kill_and_return();
    run("sync", &["-f", place.to_str().expect("text")]);
    assert!(std::fs::read(place.join("copy")).expect("readable") == std::fs::read(&noise).unwrap());
    let line = kept.0.refused(&["detach", "tank0"]);
    assert!(line.contains("is mounted at"), "{line}");
    run("umount", &[place.to_str().expect("text")]);
    run("e2fsck", &["-f", "-n", &device]);
    kept.0.ok(&["detach", "tank0"]);
    assert!(kept.0.end().success());
    let is_there = || Path::new(&format!("/proc/{keeper}/fd/0")).exists();
    wait_for("the end of the keeper", || !is_there());
}

#[test]
fn an_array_that_does_not_fit_leaves_users_waiting_and_detach_gives_up() {
    let test = "an_array_that_does_not_fit_leaves_users_waiting_and_detach_gives_up";
    let Some(mut kept) = Kept::new(test, &[]) else { return };
    let file = kept.attach(&["--file"]);
    kept.0.kill();
    kept.0.start(&[]);
    assert!(
        kept.0.said().contains("its users wait until its array is started"),
        "{}",
        kept.0.said()
    );
    let told = kept.0.ok(&[&["assemble", "--read-only"] as &[&str], &MEMBERS].concat());
    assert!(told.contains("its users wait") && told.contains("read-only"), "{told}");
    let line = kept.0.refused(&["attach", "--file", "tank0"]);
    assert!(line.contains("read-only") && line.contains("ashlar detach"), "{line}");
    kept.0.ok(&["stop", "tank0"]);
    let told = kept.0.ok(&[&["assemble"] as &[&str], &MEMBERS].concat());
    assert!(told.contains("is served again"), "{told}");
    let opened = File::options().read(true).write(true).open(&file).expect("served");
    opened.write_all_at(&[7; 8192], 8192).expect("written");
    kept.0.kill();
    kept.0.start(&[]);
    // In use, so a request waits: it is said how to end that, and that ends it.
    let line = kept.0.refused(&["detach", "tank0"]);
    assert!(line.contains("ashlar detach --give-up tank0"), "{line}");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| opened.read_exact_at(&mut [0; 4096], 8192));
        kept.0.ok(&["detach", "--give-up", "tank0"]);
        assert!(waits.join().expect("no panic").is_err(), "nobody served it");
    });
    drop(opened);
    kept.0.ok(&[&["assemble"] as &[&str], &MEMBERS].concat());
    let again = kept.attach(&["--file"]);
    let mut back = [0; 8192];
    File::open(&again).expect("served").read_exact_at(&mut back, 8192).expect("readable");
    assert_eq!(back, [7; 8192]);
    kept.0.ok(&["detach", "tank0"]);
}

#[test]
fn users_get_errors_when_no_daemon_comes_in_time() {
    let test = "users_get_errors_when_no_daemon_comes_in_time";
    let Some(mut kept) = Kept::new(test, &[]) else { return };
    assert!(kept.0.end().success());
    let folder = kept.0.path("volumes");
    let config = format!("[fuse]\nfolder = \"{}\"\nkeeper_wait_s = 1\n", folder.display());
    std::fs::write(kept.0.path("short.toml"), config).expect("written");
    let arguments = ["--config", "short.toml", "m0", "m1", "m2", "m3", "m4"];
    kept.0.start(&arguments);
    let file = kept.attach(&["--file"]);
    let opened = File::open(&file).expect("served");
    kept.0.kill();
    assert!(opened.read_exact_at(&mut [0; 4096], 0).is_err(), "nobody holds it any more");
    drop(opened);
    kept.0.start(&arguments);
    assert!(kept.0.said().contains("took away the mount"), "{}", kept.0.said());
    assert_eq!(kept.attach(&["--file"]), file);
    kept.0.ok(&["detach", "tank0"]);
}

/// A program that is ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// fio speaks NBD to a server of QEMU, which speaks NBD to the daemon, and connects again.
#[test]
fn a_killed_daemon_is_a_pause_for_a_client_of_nbd_that_reconnects() {
    let test = "a_killed_daemon_is_a_pause_for_a_client_of_nbd_that_reconnects";
    if !all_here(test, &["fio", "qemu-nbd"]) {
        return;
    }
    let mut world = World::new();
    world.create("tank0", MEMBERS.len(), &["--level", "6", "--strip-size", "16K"]);
    let (from, to) = (world.path("between.sock"), world.path("nbd.sock"));
    let source = format!(
        "driver=raw,file.driver=nbd,file.server.type=unix,file.server.path={},file.export=tank0,\
         file.reconnect-delay=60",
        to.display()
    );
    let between = Command::new("qemu-nbd")
        .args(["--image-opts", "--cache=none", "--persistent", "--shared=4", "--socket"])
        .args([from.as_os_str(), source.as_ref()])
        .spawn()
        .expect("qemu-nbd runs");
    let between = Ended(between);
    wait_for("the server between", || from.exists());
    let uri = format!("--uri=nbd+unix:///?socket={}", from.display());
    let load = FioLoad::with(&["--ioengine=nbd", &uri], world.path("fio"));
    for number in 0..kills(4) {
        wait_for_requests(&world, "nbd", number);
        world.kill();
        world.start(&MEMBERS);
    }
    wait_for_requests(&world, "nbd", 0);
    load.end();
    drop(between);
    let scrubbed = world.ok(&["scrub", "tank0", "--wait"]);
    assert!(scrubbed.contains(" 0 mismatches"), "{scrubbed}");
    assert!(world.end().success());
}
