//! Daemon and a writer to its volume in one memory cgroup: whoever needs memory there may have to
//! wait until what the writer wrote is written back, and only the daemon can write it.
//!
//! What was lost: both stood still for ever, `kill -9` included.

use crate::tools::{all_here, run, skipped};
use crate::world::World;
use rustix::thread::{CapabilitySet, capabilities};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

const LIMIT_BYTES: u64 = 300 << 20;
const WRITTEN_MIB: usize = 900;
const MEMBER_BYTES: u64 = 1 << 30;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Nothing at all has been written in a minute.
const STANDSTILL_LOOKS: u32 = 600;

#[test]
fn a_writer_in_the_memory_cgroup_of_the_daemon_goes_on() {
    let test = "a_writer_in_the_memory_cgroup_of_the_daemon_goes_on";
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        return skipped(test, "needs root and loop devices");
    }
    if !all_here(test, &["bash", "mkfs.ext4", "mount", "umount", "dd", "setpriv"]) {
        return;
    }
    let has_capability =
        capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::SYS_RESOURCE));
    if has_capability && !writes_on(&["env"]) {
        return skipped(test, "needs a memory cgroup of its own");
    }
    if !writes_on(&["setpriv", "--bounding-set=-sys_resource"]) {
        skipped(test, "needs a memory cgroup of its own");
    }
}

/// Whether there is a memory cgroup to do it in; `starter` starts the daemon there.
fn writes_on(starter: &[&str]) -> bool {
    let Some(group) = Group::new() else { return false };
    let mut world = World::without_daemon();
    let own = world.command();
    let mut daemon = group.command(starter);
    daemon.arg(own.get_program()).current_dir(world.folder.path());
    daemon.env("ASHLAR_SOCKET", world.path("control.sock"));
    world.start_by(daemon, &["--fuse", "volumes", "--pool", "32MiB"]);
    assert!(world.missing().is_empty(), "{:?}", world.missing());
    world.create_of(MEMBER_BYTES, 4, &["--level", "6"]);
    let device = world.ok(&["attach", "--via", "loop", "tank0"]).trim().to_owned();
    run("mkfs.ext4", &["-q", "-E", "nodiscard", &device]);
    let place = world.path("mounted");
    fs::create_dir(&place).expect("a folder");
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    run("mount", &[&device, &text(&place)]);
    let large = format!("of={}", place.join("large").display());
    let mut writer = group
        .command(&["dd"])
        .args(["if=/dev/zero", &large, "bs=1M", "conv=fsync", "status=none"])
        .arg(format!("count={WRITTEN_MIB}"))
        .spawn()
        .expect("it runs");
    let is_done = goes_on(&mut writer, &device);
    if !is_done {
        let process = world.daemon.as_ref().expect("it runs").id();
        println!("{}", stacks(process));
        give_up(process, &world.path("control"));
    }
    let went = writer.wait().expect("it ends");
    run("umount", &[&text(&place)]);
    assert!(is_done && went.success(), "it stands still: {went}");
    world.ok(&["detach", "tank0"]);
    assert!(world.end().success());
    true
}

/// Whether it comes to its end, and does not stand still on the way.
fn goes_on(writer: &mut Child, device: &str) -> bool {
    let path = format!("/sys/block/{}/stat", device.trim_start_matches("/dev/"));
    let mut last = (String::new(), 0);
    while writer.try_wait().expect("ours").is_none() {
        let now = fs::read_to_string(&path).expect("a block device");
        // Sectors written: the rest counts time.
        let sectors = now.split_whitespace().nth(6).expect("a number").to_owned();
        if sectors != last.0 {
            last = (sectors, 0);
        }
        last.1 += 1;
        if last.1 > STANDSTILL_LOOKS {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    true
}

/// What the threads of a process wait for.
fn stacks(process: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let of = |task: PathBuf| format!("{}{}", read(task.join("comm")), read(task.join("stack")));
    tasks.filter_map(|task| Some(of(task.ok()?.path()))).collect()
}

/// Break the circle: the daemon's FUSE connections answer with errors.
fn give_up(process: u32, place: &Path) {
    fs::create_dir(place).expect("a folder");
    let text = place.to_str().expect("text");
    run("mount", &["-t", "fusectl", "none", text]);
    let about = fs::read_dir(format!("/proc/{process}/fdinfo")).expect("it runs");
    for descriptor in about.filter_map(Result::ok) {
        let told = fs::read_to_string(descriptor.path()).unwrap_or_default();
        let number = told.lines().find_map(|line| line.strip_prefix("fuse_connection:"));
        if let Some(number) = number {
            let _gone = fs::write(place.join(number.trim()).join("abort"), "1");
        }
    }
    run("umount", &["-l", text]);
}

/// A memory cgroup.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Group> {
        let name = format!("ashlar-test-{}", std::process::id());
        let (folder, file) = match Path::new("/sys/fs/cgroup/memory").exists() {
            true => (Path::new("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max"),
        };
        // Somebody may have asked for it already, or refuse it.
        let _is_on = fs::write(folder.join("cgroup.subtree_control"), "+memory");
        let group = Group(folder.join(name));
        fs::create_dir(&group.0).ok()?;
        fs::write(group.0.join(file), LIMIT_BYTES.to_string()).is_ok().then_some(group)
    }

    /// A program that is to run in it, to be followed by its arguments.
    fn command(&self, program: &[&str]) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", "echo $$ >\"$0\"/cgroup.procs && exec \"$@\""]);
        command.arg(&self.0).args(program);
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Ended processes leave it a moment later.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
