//! Arrays that share a pattern of devices in the configuration: the documented example.
//!
//! Each start opened all devices of the pattern, those of running arrays included: ten arrays took
//! 20 s, a hundred had not started after ten minutes, and the control socket was silent meanwhile.

use crate::world::World;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::Stdio;

/// Small members, for there are many.
const MEMBER_BYTES: u64 = 16 << 20;
/// Daemons that are started to see one wait.
const TRIES_MAX: usize = 20;

/// A world in which `count` mirrors were created and stopped, their members beside each other.
fn stopped(count: usize) -> World {
    let mut world = World::new();
    for number in 0..count {
        let names = [format!("d{number}a"), format!("d{number}b")];
        names.iter().for_each(|name| world.sparse(name, MEMBER_BYTES));
        world.ok(&["create", &format!("t{number}"), "--level", "1", &names[0], &names[1]]);
        world.ok(&["stop", &format!("t{number}")]);
    }
    world.end();
    world
}

fn configured(world: &World, entries: &[String]) -> String {
    let pattern = world.path("d*").display().to_string();
    let entry = |said: &String| format!("[[array]]\n{said}\ndevices = [\"{pattern}\"]\n");
    let text: String = entries.iter().map(entry).collect();
    std::fs::write(world.path("ashlar.toml"), text).expect("written");
    world.path("ashlar.toml").display().to_string()
}

fn running(world: &World) -> Vec<String> {
    let status: serde_json::Value =
        serde_json::from_str(&world.ok(&["status", "--json"])).expect("JSON");
    let arrays = status["arrays"].as_array().expect("a list");
    let mut names: Vec<String> = arrays
        .iter()
        .map(|array| {
            assert_eq!(array["state"], "clean", "{array}");
            array["name"].as_str().expect("text").to_owned()
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_pattern_over_drives_of_several_arrays_starts_all_of_them() {
    let mut world = stopped(3);
    let file = configured(&world, &[String::new()]);
    world.start(&["--config", &file]);
    assert_eq!(running(&world), ["t0", "t1", "t2"]);
    world.end();
    // An entry that names one takes what belongs to that, and is not in the way of another.
    let file = configured(&world, &["name = \"t1\"".to_owned()]);
    world.start(&["--config", &file]);
    assert_eq!(running(&world), ["t1"]);
    world.end();
    let file = configured(&world, &[String::new(), "name = \"t1\"".to_owned()]);
    world.start(&["--config", &file]);
    assert_eq!(running(&world), ["t0", "t1", "t2"]);
}

#[test]
fn arrays_that_share_a_pattern_start_whole_and_one_that_is_not_there_is_said() {
    let mut world = stopped(8);
    let mut entries: Vec<String> = (0..8).map(|number| format!("name = \"t{number}\"")).collect();
    entries.push("name = \"elsewhere\"".to_owned());
    let file = configured(&world, &entries);
    world.start(&["--config", &file]);
    let wanted: Vec<String> = (0..8).map(|number| format!("t{number}")).collect();
    assert_eq!(running(&world), wanted);
}

/// Somebody has the members: each array waits for one of its own. All are waited for at once, that
/// is said in one line, and the control socket answers meanwhile.
#[test]
fn while_members_are_waited_for_the_control_socket_answers_and_it_is_said() {
    let world = stopped(4);
    let file = configured(&world, &[String::new()]);
    let _held: Vec<std::fs::File> = (0..4)
        .map(|number| {
            let member = std::fs::File::open(world.path(&format!("d{number}a"))).expect("opened");
            let lock = rustix::fs::FlockOperation::LockExclusive;
            rustix::fs::flock(member.as_fd(), lock).expect("locked");
            member
        })
        .collect();
    // On a busy machine the wait may be over before somebody got to ask.
    assert!((0..TRIES_MAX).any(|_| answers_while_it_waits(&world, &file)), "it never answered");
}

fn answers_while_it_waits(world: &World, file: &str) -> bool {
    let mut daemon = world
        .command()
        .args(["serve", "--no-pin", "--workers", "2", "--pool", "96MiB", "--config", file])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut lines = BufReader::new(daemon.stdout.take().expect("piped")).lines();
    let mut next = |part: &str| {
        let mut lines = lines.by_ref().map_while(Result::ok);
        lines.find(|line| line.contains(part)).unwrap_or_else(|| panic!("'{part}' is said"))
    };
    let waiting = next("waiting for");
    let status: serde_json::Value =
        serde_json::from_str(&world.ok(&["status", "--json"])).expect("JSON");
    next("control socket");
    let id = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it runs");
    assert!(daemon.wait().expect("it ends").success());
    for number in 0..4 {
        assert!(waiting.contains(&format!("d{number}a")), "{waiting}");
    }
    status["arrays"].as_array().expect("a list").is_empty()
}
