//! A panic, planted in a program that is built for tests: what it does to everybody else.
//!
//! What must stay true: a panic of work that starts or makes an array is a refusal, and the others
//! go on. Any other panic of a worker ends the process at once, with a last line that says so. The
//! next one finds everything that was answered. Nobody waits for a process that is none any more.

use crate::raw_nbd::RawNbd;
use crate::world::World;
use std::io::Read;
use std::process::Stdio;

const MEMBERS: [&str; 4] = ["m0", "m1", "m2", "m3"];
const OTHERS: [&str; 3] = ["o0", "o1", "o2"];

/// Two arrays, each with a block that was answered and not flushed.
fn two_arrays() -> World {
    let world = World::new();
    OTHERS.iter().for_each(|name| world.sparse(name, 32 << 20));
    world.ok(&[&["create", "other", "--level", "5"] as &[&str], &OTHERS].concat());
    world.create("tank0", 4, &["--level", "6"]);
    RawNbd::open(&world, "other").write(0, &[0x0F; 4096]).expect("it runs");
    RawNbd::open(&world, "tank0").write(8192, &[0x7A; 4096]).expect("it runs");
    world
}

fn start_with(world: &mut World, place: &str, devices: &[&str]) {
    let mut program = world.command();
    program.env("ASHLAR_PANIC_AT", place).stderr(Stdio::piped());
    world.start_by(program, devices);
}

fn all_is_there(world: &World) {
    assert_eq!(RawNbd::open(world, "other").read(0, 4096), Ok(vec![0x0F; 4096]));
    assert_eq!(RawNbd::open(world, "tank0").read(8192, 4096), Ok(vec![0x7A; 4096]));
}

#[test]
fn a_panic_of_a_start_refuses_that_start_and_ends_nobody_else() {
    let mut world = two_arrays();
    world.kill();
    start_with(&mut world, "start of tank0", &OTHERS);
    let mut other = RawNbd::open(&world, "other");
    for _ in 0..2 {
        let line = world.refused(&[&["assemble"] as &[&str], &MEMBERS].concat());
        assert!(line.contains("this met a bug of ashlar"), "{line}");
        assert!(RawNbd::try_open(&world, "tank0").is_none(), "it does not run");
        assert_eq!(other.read(0, 4096), Ok(vec![0x0F; 4096]));
    }
    assert_eq!(world.status()["arrays"].as_array().map(Vec::len), Some(1));
    world.kill();
    world.start(&[&OTHERS[..], &MEMBERS].concat());
    all_is_there(&world);
}

#[test]
fn a_panic_of_a_creation_refuses_it_and_ends_nobody_else() {
    let mut world = two_arrays();
    world.kill();
    start_with(&mut world, "creation of tank1", &[&OTHERS[..], &MEMBERS].concat());
    ["n0", "n1"].iter().for_each(|name| world.sparse(name, 32 << 20));
    let line = world.refused(&["create", "tank1", "--level", "1", "n0", "n1"]);
    assert!(line.contains("this met a bug of ashlar"), "{line}");
    all_is_there(&world);
}

#[test]
fn any_other_panic_ends_the_process_at_once_and_the_next_one_finds_what_was_answered() {
    let mut world = two_arrays();
    world.kill();
    start_with(&mut world, "flush of tank0", &[&OTHERS[..], &MEMBERS].concat());
    RawNbd::open(&world, "other").write(0, &[0x0F; 4096]).expect("it runs");
    let (mut tank, mut other) = (RawNbd::open(&world, "tank0"), RawNbd::open(&world, "other"));
    tank.write(8192, &[0x7A; 4096]).expect("it runs");
    tank.begin_flush();
    assert!(tank.is_cut_off() && other.is_cut_off(), "a client waits for a dead process");
    let mut said = String::new();
    let stderr = world.daemon.as_mut().and_then(|daemon| daemon.stderr.take());
    let status = world.ended();
    stderr.expect("piped").read_to_string(&mut said).expect("text");
    assert!(!status.success(), "{status}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.contains("the process ends now") && last.contains("after a kill"), "{said}");
    world.start(&[&OTHERS[..], &MEMBERS].concat());
    all_is_there(&world);
}
