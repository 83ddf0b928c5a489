//! What cannot be had beside the arrays: they run without it, it is told, and it comes by itself.
//! Found without being started: an array of another host.
//!
//! What was lost: at boot no array started, because the port of the metrics was taken, or a folder
//! of certificates or sockets was not there yet. File systems depend on arrays.

use crate::tools::{all_here, own_port, run, skipped, wait_for};
use crate::world::World;
use std::net::TcpListener;

#[test]
fn arrays_run_without_what_is_missing_beside_them_and_it_comes_by_itself() {
    let mut world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    assert!(world.end().success());
    let port = own_port();
    let taken = TcpListener::bind(("127.0.0.1", port)).expect("free");
    let folder = world.folder.path().display().to_string();
    world.sparse("plain", 1);
    let config = format!(
        "[serve]\nmetrics = \"127.0.0.1:{port}\"\n\
         [[array]]\nname = \"tank0\"\ndevices = [\"{folder}/m?\"]\nattach = true\n\
         [[nbd]]\nlisten = \"unix:{folder}/later/nbd.sock\"\n\
         [[nbd]]\nlisten = \"127.0.0.1:0\"\ntls = {{ directory = \"{folder}/certificates\" }}\n\
         [vhost_user]\ndirectory = \"{folder}/later/disks\"\n\
         [nvme_tcp]\nlisten = [\"127.0.0.1:{}\"]\ntrusted_network = true\n\
         state = \"{folder}/plain/nvme\"\n\
         [fuse]\ndirectory = \"{folder}/plain/volumes\"\n",
        own_port()
    );
    std::fs::write(world.path("a.toml"), config).expect("written");
    world.start(&["--config", "a.toml"]);
    assert_eq!(world.array()["state"], "clean");
    let missing = world.missing();
    let lacks = |missing: &[String], name: &str| missing.iter().any(|it| it.starts_with(name));
    let (socket, tls) = (format!("NBD at unix:{folder}/later"), "NBD at 127.0.0.1:0: ");
    let all = [
        "NVMe/TCP: ",
        "attached files in ",
        "metrics at ",
        "the attachment of 'tank0': ",
        "vhost-user in ",
        &socket,
        tls,
    ];
    for name in all {
        assert!(lacks(&missing, name), "{name} {missing:?}");
    }
    assert_eq!(missing.len(), all.len(), "{missing:?}");
    let checked = world.run(&["status", "--check"]);
    assert_eq!(checked.status.code(), Some(3), "{checked:?}");
    let screen = world.ok(&["status"]);
    assert!(screen.contains("MISSING metrics at 127.0.0.1"), "{screen}");
    let events = world.ok(&["events", "--json"]);
    let told = events.lines().filter(|line| line.contains("service.missing")).count();
    assert!(told >= all.len(), "{events}");
    assert!(world.ok(&["metrics"]).contains("ashlar_service_missing{service=\"metrics at "));

    drop(taken);
    std::fs::create_dir(world.path("later")).expect("made");
    std::fs::remove_file(world.path("plain")).expect("ours");
    let left = |missing: &[String]| {
        let is_attached = !lacks(missing, "the attachment");
        // Attaching needs FUSE, loop devices and root; the certificates never come.
        let most = 1 + usize::from(!is_attached);
        missing.len() <= most && lacks(missing, tls)
    };
    wait_for("what was missing comes back", || left(&world.missing()));
    assert!(world.path("later/nbd.sock").exists() && world.path("later/disks/tank0.sock").exists());
    assert!(world.ok(&["events", "--json"]).contains("service.returned"));
    let volumes = world.ok(&["volumes"]);
    assert!(volumes.contains("nvme-tcp") && volumes.contains("vhost-user"), "{volumes}");
    world.ok(&["detach", "tank0"]);
    assert!(world.end().success());
}

#[test]
fn a_configuration_that_makes_no_sense_still_starts_nothing() {
    let world = World::without_daemon();
    for text in [
        "[[array]]\ndevices = [\"/dev/[z\"]\n",
        "[start]\nscan = true\ndevices = [\"/dev/[z\"]\n",
        "[[nbd]]\nlisten = \"127.0.0.1:0\"\ntls = { directory = \"a\", key = \"b\" }\n",
        "[nvme_tcp]\nlisten = [\"127.0.0.1:1\"]\ntrusted_network = true\n\
         [[nvme_tcp.host]]\nnqn = \"nonsense\"\n",
    ] {
        std::fs::write(world.path("a.toml"), text).expect("written");
        let line = world.refused(&["serve", "--config", "a.toml"]);
        assert!(line.contains("nothing was started"), "{text}: {line}");
    }
    assert!(!world.path("control.sock").exists());
}

/// The host's name changed and what was remembered is lost: nobody said that the array is down.
#[test]
fn an_array_that_is_found_and_not_started_is_told_everywhere() {
    let test = "an_array_that_is_found_and_not_started_is_told_everywhere";
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "needs root to rename the host");
    }
    if !all_here(test, &["unshare", "hostname"]) {
        return;
    }
    let mut world = World::without_daemon();
    let folder = world.folder.path().display().to_string();
    let config = format!("[start]\nscan = true\ndevices = [\"{folder}/m?\"]\ngrace_s = 1\n");
    std::fs::write(world.path("a.toml"), config).expect("written");
    let start = |world: &mut World, host: &str| {
        let mut program = std::process::Command::new("unshare");
        let own = world.command();
        program.args(["-u", "sh", "-c", "hostname \"$0\"; exec \"$@\"", host]);
        program.arg(own.get_program()).current_dir(world.folder.path());
        program.env("ASHLAR_SOCKET", world.path("control.sock"));
        world.start_by(program, &["--config", "a.toml"]);
    };
    start(&mut world, "alpha");
    world.create("tank0", 4, &["--level", "6"]);
    assert!(world.end().success());
    start(&mut world, "beta");
    let screen = world.ok(&["status"]);
    assert!(screen.contains("array  tank0    NOT STARTED: "), "{screen}");
    assert!(screen.contains("ran last on host 'alpha'"), "{screen}");
    let checked = world.run(&["status", "--check"]);
    let line = String::from_utf8_lossy(&checked.stdout).into_owned();
    let found = "ATTENTION: tank0 was found and is not started: array 'tank0' ran last on host";
    assert!(line.starts_with(found) && line.lines().count() == 1, "{line}");
    assert_eq!(checked.status.code(), Some(1));
    let events = world.ok(&["events", "--json"]);
    let told = events.lines().filter(|it| it.contains("array.not_started")).count();
    assert_eq!(told, 1, "{events}");
    world.ok(&["assemble", "--scan", "--name", "tank0"]);
    assert!(world.status()["found"].as_array().expect("a list").is_empty());
    assert_eq!(world.ok(&["status", "--check"]), "RIGHT: nothing is wrong\n");
    // One that was stopped by hand is not missed.
    world.ok(&["stop", "tank0"]);
    assert_eq!(world.ok(&["status", "--check"]), "RIGHT: nothing is wrong\n");
    assert!(world.end().success());
}

/// A file system that was made for blocks of 512 bytes did not mount over a loop device of 4096.
#[test]
fn blocks_of_an_array_are_the_same_over_every_attachment() {
    let test = "blocks_of_an_array_are_the_same_over_every_attachment";
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "needs root for loop devices");
    }
    if !all_here(test, &["losetup", "blockdev"]) {
        return;
    }
    let world = World::new();
    for bytes in ["512", "4096"] {
        world.create("tank0", 4, &["--level", "6", "--block-size", bytes]);
        let device = world.ok(&["attach", "tank0", "--via", "loop"]);
        assert_eq!(run("blockdev", &["--getss", device.trim()]).trim(), bytes);
        world.ok(&["detach", "tank0"]);
        world.ok(&["destroy", "tank0", "--confirm", "tank0"]);
    }
}

/// A dry run said that a device would be taken which the command itself refused.
#[test]
fn a_dry_run_refuses_what_the_command_refuses() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    world.sparse("small", 2 << 20);
    world.sparse("fits", crate::world::MEMBER_BYTES);
    let same = |command: &[&str]| {
        let dry = world.run(&[command, &["--dry-run"]].concat());
        let real = world.run(command);
        let line = |it: &std::process::Output| String::from_utf8_lossy(&it.stderr).into_owned();
        assert_eq!(dry.status.code(), Some(1), "{command:?} {dry:?}");
        assert_eq!(line(&dry), line(&real), "{command:?}");
    };
    same(&["replace", "tank0", "1", "small"]);
    same(&["replace", "tank0", "9", "fits"]);
    same(&["spare", "add", "small"]);
    same(&["spare", "add", "fits", "--pool", "no/pool"]);
    world.ok(&["replace", "tank0", "1", "fits"]);
    world.sparse("second", crate::world::MEMBER_BYTES);
    world.ok(&["rebuild", "wait", "tank0"]);
    world.ok(&["stop", "tank0"]);
    world.ok(&["assemble", "--read-only", "m0", "fits", "m2", "m3"]);
    same(&["replace", "tank0", "2", "second"]);
}
