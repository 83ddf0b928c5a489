//! Members that lost a part of what they held, read by `ashlar salvage`: it called them good, and
//! copies with their zeros proven.

use crate::tools::{all_here, run};
use crate::world::{MEMBER_BYTES, World};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// What happened to a member whose superblock is still to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Cut,
    Short,
    Given,
    Marks,
    Wiped,
}

fn harm(world: &World, name: &str, harm: Harm) {
    let file = File::options().write(true).open(world.path(name)).expect("ours");
    match harm {
        Harm::Cut | Harm::Short => {
            file.set_len(1 << 20).expect("cut");
            let short = if harm == Harm::Cut { 0 } else { 4 << 20 };
            file.set_len(MEMBER_BYTES - short).expect("longer");
        }
        Harm::Given => {
            file.write_all_at(b"XFSB", 0).expect("written");
            file.write_all_at(&vec![0xE4; 3 << 20], 1 << 20).expect("written");
        }
        Harm::Marks => file.write_all_at(&[0xE4; 8 << 10], 136 << 10).expect("written"),
        Harm::Wiped => file.write_all_at(&vec![0; 4 << 20], 0).expect("written"),
    }
}

/// Salvage to `copy`: exit code, what was said, and whether the copy is what clients saw.
fn salvage(world: &World, members: &[&str], seen: &[u8]) -> (i32, Value, bool) {
    let target = ["--json", "--to", "copy", "--overwrite"];
    let output = world.run(&[&["salvage"], members, &target].concat());
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let copy = std::fs::read(world.path("copy")).expect("a copy");
    (output.status.code().expect("it ends by itself"), report, copy == seen)
}

fn are_read_last(members: usize, losses: usize, arguments: &[&str]) {
    if !all_here("members_that_lost_a_part_are_read_last", &["nbdcopy"]) {
        return;
    }
    let mut world = World::new();
    let names = world.create("tank0", members, arguments);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let noise = world.noise("noise", 7 << 20);
    run("nbdcopy", &["--flush", noise.to_str().expect("text"), &world.uri("tank0")]);
    let seen = world.path("seen");
    run("nbdcopy", &[&world.uri("tank0"), seen.to_str().expect("text")]);
    let seen = std::fs::read(seen).expect("read");
    assert!(world.end().success());
    let kept: Vec<Vec<u8>> =
        names[..losses].iter().map(|name| std::fs::read(world.path(name)).expect("read")).collect();
    for what in [Harm::Cut, Harm::Short, Harm::Given, Harm::Wiped, Harm::Marks] {
        names[..losses].iter().for_each(|name| harm(&world, name, what));
        let case = format!("{arguments:?} {what:?}");
        let (exit, report, is_right) = salvage(&world, &names, &seen);
        assert!(exit == 0 && is_right, "{case}: {report}");
        for (at, member) in report["members"].as_array().expect("a list").iter().enumerate() {
            let standing = if at < losses { "doubtful" } else { "good" };
            assert_eq!(member["standing"], standing, "{case}: {report}");
        }
        if what == Harm::Marks && members - 1 == losses {
            // None of the others is there to tell of a mark.
            continue;
        }
        // Where they are needed, nothing of them is called proven.
        let (exit, report, _) = salvage(&world, &names[..members - 1], &seen);
        assert_eq!(exit, 3, "{case}: {report}");
        let unproven = report["outcome"]["unproven"]["bytes"].as_u64();
        assert!(unproven > Some(0), "{case}: {report}");
        let output = world.run(&[&["salvage"], &names[..members - 1]].concat());
        let said = String::from_utf8_lossy(&output.stdout);
        let why = match what {
            Harm::Cut => "it was cut short and made longer again",
            Harm::Short => "4 MiB are cut off",
            Harm::Given => "it carries xfs",
            Harm::Marks | Harm::Wiped => "its beginning was overwritten",
        };
        assert!(output.status.code() == Some(3) && said.contains(why), "{case}: {said}");
        for (name, bytes) in names.iter().zip(&kept) {
            std::fs::write(world.path(name), bytes).expect("as before");
        }
    }
}

#[test]
fn copies_that_lost_a_part_are_read_last() {
    are_read_last(2, 1, &["-l", "1"]);
}

#[test]
fn members_of_raid5_that_lost_a_part_are_read_last() {
    are_read_last(3, 1, &["-l", "5"]);
}

#[test]
fn members_of_raid6_that_lost_a_part_are_read_last() {
    are_read_last(5, 2, &["-l", "6"]);
}

#[test]
fn members_of_a_pool_that_lost_a_part_are_read_last() {
    are_read_last(7, 1, &["-l", "5", "--declustered", "--stripe-width", "3"]);
}
