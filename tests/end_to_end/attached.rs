//! Volumes that are attached and in use: what `detach`, `stop` and SIGTERM may do to whoever has
//! them open.
//!
//! A failed `detach` used to strike the volume off the books: `stop` then said "stopped and clean"
//! while a loop device had 8 MiB of buffered writes, and these were lost.

use crate::contents::starts_with;
use crate::tools::{all_here, run, skipped, wait_for};
use crate::world::{MEMBER_BYTES, World};
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const BUFFERED_BYTES: usize = 8 << 20;
const MEMBERS: [&str; 5] = ["m0", "m1", "m2", "m3", "m4"];

/// An attached volume with writes in the page cache of its loop device, which is open.
struct InUse {
    world: World,
    device: String,
    file: File,
    noise: PathBuf,
}

/// `None` after saying why `test` cannot run here.
fn in_use(test: &str) -> Option<InUse> {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        skipped(test, "needs root and loop devices");
        return None;
    }
    if !all_here(test, &["losetup", "nbdcopy"]) {
        return None;
    }
    let world = World::new();
    world.create("tank0", MEMBERS.len(), &["--level", "6"]);
    let device = world.ok(&["attach", "--via", "loop", "tank0"]).trim().to_owned();
    let noise = world.noise("noise", BUFFERED_BYTES);
    let mut file = File::options().write(true).open(&device).expect("the loop device");
    file.write_all(&std::fs::read(&noise).expect("noise")).expect("into the page cache");
    Some(InUse { world, device, file, noise })
}

fn holds(world: &World, wanted: &Path) -> bool {
    let copy = world.path("copy");
    run("nbdcopy", &[&world.uri("tank0"), copy.to_str().expect("text")]);
    starts_with(&copy, wanted)
}

#[test]
fn a_detach_that_fails_leaves_the_volume_in_use() {
    let Some(used) = in_use("a_detach_that_fails_leaves_the_volume_in_use") else { return };
    let InUse { world, device, file, noise } = used;
    let line = world.refused(&["detach", "tank0"]);
    assert!(line.contains("open") && line.contains(&device), "{line}");
    let line = world.refused(&["stop", "tank0"]);
    assert!(line.contains("is attached as"), "{line}");
    file.sync_all().expect("nothing was lost");
    drop(file);
    world.ok(&["detach", "tank0"]);
    assert!(holds(&world, &noise));
    world.ok(&["stop", "tank0"]);
}

#[test]
fn sigterm_waits_until_nobody_has_an_attached_volume_open() {
    let test = "sigterm_waits_until_nobody_has_an_attached_volume_open";
    let Some(InUse { mut world, device, file, noise }) = in_use(test) else { return };
    world.ask_to_end();
    // It goes on answering: it waits for the loop device, and says so.
    while world.run(&["volumes"]).status.success()
        && loop_is_there(&world, &device)
        && !told(&world)
    {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(told(&world), "{}", world.said());
    file.sync_all().expect("nothing was lost");
    drop(file);
    assert!(world.ended().success());
    assert!(!loop_is_there(&world, &device), "a loop device over a volume that is gone");
    world.start(&MEMBERS);
    assert!(holds(&world, &noise));
}

#[test]
fn a_mount_that_somebody_took_away_is_made_again() {
    let test = "a_mount_that_somebody_took_away_is_made_again";
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return skipped(test, "needs root and FUSE");
    }
    let world = World::new();
    world.create("tank0", MEMBERS.len(), &["--level", "6"]);
    let path = world.ok(&["attach", "--file", "tank0"]).trim().to_owned();
    run("umount", &["-l", &path]);
    // The servers hear of it in a moment; until then the line says that it is open.
    let again = (0..6000).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        let output = world.run(&["attach", "--file", "tank0"]);
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    });
    let again = again.expect("attached again");
    assert!(std::fs::metadata(&again).is_ok_and(|file| file.len() > 0), "{again}");
    world.ok(&["detach", "tank0"]);
}

/// What an entry says is done at each start, and no longer once it does not say so.
#[test]
fn a_volume_is_attached_at_a_start_because_its_entry_says_so() {
    let test = "a_volume_is_attached_at_a_start_because_its_entry_says_so";
    let is_possible = ["/dev/loop-control", "/dev/fuse"].iter().all(|it| Path::new(it).exists());
    if !rustix::process::geteuid().is_root() || !is_possible {
        return skipped(test, "needs root, loop devices and FUSE");
    }
    let mut world = World::new();
    world.create("tank0", MEMBERS.len(), &["--level", "6"]);
    assert!(world.end().success());
    let config = world.path("ashlar.toml");
    for attach in [true, false] {
        let devices = world.path("m*");
        let entry = format!("[[array]]\nname = \"tank0\"\ndevices = [{devices:?}]\n");
        std::fs::write(&config, format!("{entry}attach = {attach}\n")).expect("written");
        std::fs::set_permissions(&config, Permissions::from_mode(0o600)).expect("ours");
        world.start(&["--config", config.to_str().expect("text")]);
        wait_for("the start", || world.status()["arrays"][0]["state"] == "clean");
        // It waits until all that belongs to a start is done.
        world.ok(&["set", "tank0", "job_floor=64M"]);
        let status = world.status();
        let exports = status["exports"].as_array().expect("a list");
        let is_attached = exports.iter().any(|it| it["array"] == "tank0");
        assert_eq!(is_attached, attach, "{exports:?}");
        assert!(world.end().success());
    }
}

/// Opening a device that does not answer takes until it does. Whoever asked for that waits, and
/// nobody else.
#[test]
fn somebody_elses_loop_device_that_is_stuck_holds_up_nobody() {
    let test = "somebody_elses_loop_device_that_is_stuck_holds_up_nobody";
    let Some(InUse { world, device, file, noise: _ }) = in_use(test) else { return };
    drop(file);
    let other = World::new();
    other.create("bank0", MEMBERS.len(), &["--level", "6"]);
    let stuck = other.ok(&["attach", "--via", "loop", "bank0"]).trim().to_owned();
    other.halt();
    let mut writer = began(
        Command::new("dd")
            .args(["if=/dev/zero", "bs=64k", "count=1", "oflag=direct"])
            .arg(format!("of={stuck}")),
    );
    world.sparse("spare", MEMBER_BYTES);
    let mut waits =
        began(world.command().args(["create", "bank1", "--level", "1", "spare", &stuck]));
    let mut looks = began(world.command().args(["assemble", "--dry-run", &stuck]));
    // They have come to the device: before that they hold up nobody.
    let has_come = (0..12_000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        waits_for_a_file_system(&world)
    });
    let ended: Vec<(Vec<&str>, bool)> = [
        vec!["status"],
        vec!["detach", "tank0"],
        vec!["attach", "tank0"],
        vec!["detach", "tank0"],
        vec!["stop", "tank0"],
    ]
    .into_iter()
    .map(|arguments| {
        let ended = ends(&world, &arguments);
        (arguments, ended)
    })
    .collect();
    other.go_on();
    for child in [&mut writer, &mut waits, &mut looks] {
        let _either_way = child.wait();
    }
    assert!(ended.iter().all(|(_, ended)| *ended), "{ended:?}");
    assert!(has_come, "nobody waited for the device");
    assert!(!loop_is_there(&world, &device));
    // It came to its end when the device did answer.
    let _either_way = world.run(&["stop", "bank1"]);
    other.ok(&["detach", "bank0"]);
}

#[test]
fn a_loop_device_that_nobody_uses_outlives_a_killed_daemon_and_is_detached_by_its_successor() {
    let test =
        "a_loop_device_that_nobody_uses_outlives_a_killed_daemon_and_is_detached_by_its_successor";
    let Some(InUse { mut world, device, file, noise }) = in_use(test) else { return };
    file.sync_all().expect("written");
    drop(file);
    world.kill();
    assert!(loop_is_there(&world, &device));
    world.start(&MEMBERS);
    assert!(world.said().contains(&format!("and {device} on it")), "{}", world.said());
    assert!(starts_with(Path::new(&device), &noise));
    world.ok(&["detach", "tank0"]);
    assert!(!loop_is_there(&world, &device));
}

/// The kernel copies requests into the daemon's memory while it is being killed.
#[test]
fn a_daemon_that_is_killed_at_the_first_writes_after_an_attach_costs_nobody_an_error() {
    let test = "a_daemon_that_is_killed_at_the_first_writes_after_an_attach_costs_nobody_an_error";
    let Some(InUse { mut world, file, .. }) = in_use(test) else { return };
    drop(file);
    world.ok(&["detach", "tank0"]);
    for round in 0..20 {
        let device = world.ok(&["attach", "--via", "loop", "tank0"]).trim().to_owned();
        let write = |at: u32| {
            let (to, seek) = (format!("of={device}"), format!("seek={}", 5 * at));
            let rest = ["if=/dev/zero", "bs=1M", "count=4", "oflag=direct"];
            began(Command::new("timeout").args(["60", "dd", &to, &seek]).args(rest))
        };
        let writers: Vec<Child> = (0..4).map(write).collect();
        std::thread::sleep(Duration::from_millis(round % 8));
        world.kill();
        world.start(&MEMBERS);
        for mut writer in writers {
            let end = writer.wait().expect("our own child");
            assert!(end.success(), "round {round}: a write failed or hangs ({end})");
        }
        world.ok(&["detach", "tank0"]);
    }
}

/// Whether a thread of the daemon waits for a file system in user space.
fn waits_for_a_file_system(world: &World) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", world.id())).expect("it runs");
    let place = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("wchan"));
    threads.flatten().any(|thread| place(thread).is_ok_and(|at| at == "request_wait_answer"))
}

fn began(command: &mut Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program runs")
}

/// Whether the command ends by itself, well or not.
fn ends(world: &World, arguments: &[&str]) -> bool {
    let mut command = Command::new("timeout");
    let ours = world.command();
    command.current_dir(world.folder.path()).arg("300").arg(ours.get_program()).args(arguments);
    command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.output().expect("timeout is everywhere").status.code() == Some(0)
}

fn told(world: &World) -> bool {
    world.said().contains("waiting for users")
}

/// Whether the loop device is over a volume of this world: another test may have its name by now.
fn loop_is_there(world: &World, device: &str) -> bool {
    let name = device.trim_start_matches("/dev/");
    let file = Path::new("/sys/block").join(name).join("loop/backing_file");
    let over = std::fs::read_to_string(file).unwrap_or_default();
    over.starts_with(world.path("").to_str().expect("text"))
}

#[test]
fn the_list_of_volumes_names_the_loop_device_of_an_attached_volume() {
    let test = "the_list_of_volumes_names_the_loop_device_of_an_attached_volume";
    let Some(InUse { world, device, file, noise: _ }) = in_use(test) else { return };
    drop(file);
    for told in [world.ok(&["volumes"]), world.ok(&["status"])] {
        assert!(told.split_whitespace().any(|it| it.trim_matches(',') == device), "{told}");
    }
    let volumes: serde_json::Value =
        serde_json::from_str(&world.ok(&["volumes", "--json"])).expect("JSON");
    let ways = volumes[0]["reached_by"].as_array().expect("a list");
    assert!(ways.iter().any(|way| way["devices"][0] == device.as_str()), "{volumes}");
    world.ok(&["detach", "tank0"]);
    assert!(!world.ok(&["volumes"]).contains(&device));
}
