//! Everything that must be refused: one clear line, exit code 1, nothing written. Not here: starts
//! (`refused_starts.rs`).

use crate::raw_nbd::{INVALID, NO_SPACE, RawNbd};
use crate::world::{MEMBER_BYTES, World};
use std::os::unix::fs::FileExt;

/// Arguments of `ashlar create`, and the line.
const CREATE: [(&[&str], &str); 26] = [
    (
        &["-l", "6", "m0", "m1", "m2"],
        "ashlar: raid6 needs at least 4 members and got 3; nothing was written",
    ),
    (
        &["-l", "1", "m0", "m1", "m2", "m3", "m4"],
        "ashlar: raid1 takes at most 4 members and got 5; use raid10; nothing was written",
    ),
    (
        &["-l", "n+m", "--parity", "40", "m0", "m1", "m2", "m3"],
        "ashlar: n+m takes 1 to 32 parity strips and got 40; nothing was written",
    ),
    (
        &["-l", "n+m", "m0", "m1", "m2", "m3"],
        "ashlar: level n+m needs the number of parity strips; \
         add --parity with a number from 1 to 32",
    ),
    (
        &["-l", "60", "m0", "m1", "m2", "m3"],
        "ashlar: raid60 needs the number of members per group, from 4 to 64; nothing was written",
    ),
    (
        &["-l", "5", "m0", "m1", "m1"],
        "ashlar: m1 is given twice; nothing was written; \
         each member and each spare needs a device of its own",
    ),
    (
        &["-l", "5", "m0", "m1", "./m1"],
        "ashlar: m1 is given twice; nothing was written; \
         each member and each spare needs a device of its own",
    ),
    (
        &["-l", "5", "m0", "m1", "gone"],
        "ashlar: gone: there is no such device or file; check the name; nothing was written",
    ),
    (
        &["-l", "5", "m0", "m1", "small"],
        "ashlar: small: 1048576 bytes are too small for a member: 4194304 are needed; \
         use larger devices or smaller strips; nothing was written",
    ),
    (
        &["-l", "5", "m0", "m1", "foreign"],
        "ashlar: foreign carries ext2 at byte 1080; nothing was written; \
         if its content may go, say so by name: --destroy foreign",
    ),
    (
        &["-l", "5", "m0", "m1", "folder"],
        "ashlar: folder: neither a block device nor a regular file; name one of these; \
         nothing was written",
    ),
    (
        &["-l", "5", "-n", "4", "m0", "m1", "m2"],
        "ashlar: 3 devices given and --raid-devices says 4; nothing was written; \
         name every member once, spares with --spare",
    ),
    (
        &["-l", "5", "--strip-size", "64", "m0", "m1", "m2"],
        "ashlar: a strip of 64 B is not possible; for 64 KiB write --strip-size 64K",
    ),
    (
        &["-l", "5", "--size", "1.5G", "m0", "m1", "m2"],
        "ashlar: m0 has 64 MiB, and 1.50 GiB of each device were to be used; \
         use larger devices, or less of each; nothing was written",
    ),
    (
        &["-l", "5", "--size", "1", "m0", "m1", "m2"],
        "ashlar: m0: 1 bytes are too small for a member: 4194304 are needed; \
         use more of each device, or smaller strips; nothing was written",
    ),
    (
        &["-l", "5", "--block-size", "1K", "m0", "m1", "m2"],
        "ashlar: a logical block of 1 KiB is not possible; nothing was done; take 512 or 4096",
    ),
    (
        &["-l", "5", "--destroy", "m4", "m0", "m1", "m2"],
        "ashlar: --destroy names m4, which is not among the devices; nothing was written; \
         name only devices that the array takes, as they are named there",
    ),
    (
        &["-l", "5", "--spare", "m0", "m0", "m1", "m2"],
        "ashlar: m0 is given twice; nothing was written; \
         each member and each spare needs a device of its own",
    ),
    (
        &["-l", "5", "--spare", "m4", "--spare", "m4", "m0", "m1", "m2"],
        "ashlar: m4 is given twice; nothing was written; \
         each member and each spare needs a device of its own",
    ),
    (
        &["-l", "5", "m0", "m1", "pipe"],
        "ashlar: pipe: neither a block device nor a regular file; name one of these; \
         nothing was written",
    ),
    (
        &["-l", "5", "m0", "m1", "/dev/tty"],
        "ashlar: /dev/tty: neither a block device nor a regular file; name one of these; \
         nothing was written",
    ),
    (
        &["-l", "5", "--spare", "pipe", "m0", "m1", "m2"],
        "ashlar: pipe: neither a block device nor a regular file; name one of these; \
         nothing was written",
    ),
    (
        &["-l", "6", "--declustered", "--stripe-width", "5", "m0", "m1", "m2", "m3"],
        "ashlar: stripes of 5 strips and 0 spare columns need 5 members and there are 4; \
         take narrower stripes, fewer spares or more drives; nothing was written",
    ),
    (
        &["-l", "60", "--declustered", "--stripe-width", "4", "m0", "m1", "m2", "m3"],
        "ashlar: raid60 cannot be declustered; nothing was written; take level 5, 6, 7.3 or n+m",
    ),
    (
        &["-l", "draid1:2d:2s", "m0", "m1", "m2", "m3"],
        "ashlar: stripes of 3 strips and 2 spare columns need 5 members and there are 4; \
         take narrower stripes, fewer spares or more drives; nothing was written",
    ),
    (
        &["-l", "raidz2", "m0", "m1", "m2", "m3"],
        "ashlar: invalid value 'raidz2' for '--level <LEVEL>': 'raidz2' is not a level; \
         write 0, 1, 5, 6, 7.3, n+m, 10, 50, 60 or 70; nothing was done; two parities are level 6; \
         see 'ashlar create --help'",
    ),
];

#[test]
fn bad_arrays_are_refused_before_anything_is_written() {
    let world = World::new();
    let members = world.members(5);
    world.sparse("small", 1 << 20);
    world.sparse("foreign", MEMBER_BYTES);
    std::fs::create_dir(world.path("folder")).expect("made");
    pipe(&world, "pipe");
    // The magic of ext4: what libblkid looks for is enough to be refused.
    let foreign = std::fs::File::options().write(true).open(world.path("foreign")).expect("open");
    foreign.write_all_at(&[0x53, 0xEF], 1024 + 56).expect("write");
    foreign.write_all_at(&[1, 0, 0, 0], 1024 + 76).expect("write");
    for (arguments, line) in CREATE {
        same_line(&world, &[&["create", "t"], arguments].concat(), line);
    }
    for name in ["", "t/../x"] {
        let line = world.refused(&["create", name, "-l", "5", "m0", "m1", "m2"]);
        assert!(line.contains("name"), "{line}");
    }
    for member in members {
        let bytes = std::fs::read(world.path(&member)).expect("read");
        assert!(bytes.iter().all(|byte| *byte == 0), "{member} was written to");
    }
}

/// A pipe that nobody writes into: whoever opens it for reading waits for ever.
fn pipe(world: &World, name: &str) {
    let made = std::process::Command::new("mkfifo").arg(world.path(name)).status();
    assert!(made.expect("mkfifo is everywhere").success());
}

#[test]
fn a_folder_a_pipe_and_a_terminal_are_no_devices_for_any_command() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    std::fs::create_dir(world.path("folder")).expect("made");
    pipe(&world, "pipe");
    for name in ["folder", "pipe", "/dev/tty", "/dev/null"] {
        for command in [
            &["examine"] as &[&str],
            &["salvage"],
            &["assemble"],
            &["assemble", "--dry-run"],
            &["spare", "add"],
            &["spare", "add", "--dry-run"],
            &["replace", "tank0", "1"],
            &["replace", "tank0", "1", "--dry-run"],
            &["re-add", "tank0"],
        ] {
            let line = world.refused(&[command, &[name]].concat());
            let says = "neither a block device nor a regular file";
            assert!(line.contains(says), "{command:?} {name}: {line}");
        }
    }
    assert_eq!(world.array()["state"], "clean");
}

#[test]
fn what_is_done_already_is_said_and_not_done_again() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    world.sparse("new", MEMBER_BYTES);
    let same = |arguments: &[&str], wanted: &str| {
        let told = world.anonymous(world.ok(arguments).trim());
        assert_eq!(told, wanted, "{arguments:?}");
    };
    let running = "array 'tank0' is running already; nothing was changed";
    same(&["assemble", "m0", "m1", "m2", "m3"], running);
    same(&["assemble", "--dry-run", "./m3", "m1"], running);
    let line = world.refused(&["replace", "tank0", "1", "m1"]);
    assert!(line.contains("m1 is in slot 1 of 'tank0' already; nothing was changed"), "{line}");
    same(&["re-add", "tank0", "m2"], "m2 is in slot 2 of 'tank0' already; nothing was changed");
    world.ok(&["fail", "tank0", "1"]);
    same(&["fail", "tank0", "1"], "slot 1 of 'tank0' is out already; nothing was changed");
    let filled = world.ok(&["replace", "tank0", "1", "new", "--wait"]);
    assert!(filled.ends_with("slot 1 of 'tank0' is in sync\n"), "{filled}");
    same(&["rebuild", "wait", "tank0"], "every slot of 'tank0' is in sync");
    let line = world.refused(&["replace", "tank0", "1", "new"]);
    assert!(line.contains("new is in slot 1 of 'tank0' already; nothing was changed"), "{line}");
    same_line(
        &world,
        &["assemble", "m0", "m1", "m2", "m3"],
        "ashlar: array 'tank0' is running already, with 3 of these devices; the others: out of it; \
         nothing was changed; 'ashlar re-add ARRAY DEVICE' takes back a member that was away",
    );
    world.ok(&["replace", "tank0", "1", "m1", "--destroy", "m1", "--wait"]);
}

#[test]
fn a_member_of_a_running_array_is_no_use_in_a_dry_run_either() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    for name in ["x0", "x1", "x2"] {
        world.sparse(name, MEMBER_BYTES);
    }
    world.ok(&["create", "other", "--level", "5", "x0", "x1", "x2"]);
    for arguments in [
        &["replace", "tank0", "1", "x0", "--dry-run", "--destroy", "x0"] as &[&str],
        &["spare", "add", "x0", "--dry-run", "--destroy", "x0"],
        &["create", "t", "-l", "1", "m0", "m1", "--dry-run", "--destroy", "m0", "--destroy", "m1"],
    ] {
        let line = world.refused(arguments);
        assert!(
            line.contains("is in slot 0 of '") && line.contains("nothing was written"),
            "{line}"
        );
    }
}

#[test]
fn less_of_each_device_is_used_if_that_is_asked_for() {
    let world = World::new();
    world.create("tank0", 3, &["--level", "5", "--size", "16M"]);
    let volume = world.array()["volume_bytes"].as_u64().expect("a number");
    assert!(
        (24 << 20..32 << 20).contains(&volume),
        "two of three times less than 16 MiB: {volume}"
    );
    let told = world.ok(&["status"]);
    assert!(told.contains("3 of 3 in sync"), "{told}");
    world.ok(&["fail", "tank0", "0"]);
    world.sparse("small", 20 << 20);
    world.ok(&["replace", "tank0", "0", "small", "--wait"]);
    world.ok(&["stop", "tank0"]);
    world.ok(&["assemble", "small", "m1", "m2"]);
    assert_eq!(world.array()["state"], "clean", "a smaller device than the first ones is enough");
}

/// The command is refused with exactly this line, in which the world's folder is left out and UUIDs
/// are `UUID`.
pub fn same_line(world: &World, arguments: &[&str], wanted: &str) {
    let output = world.run(arguments);
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}: {output:?}");
    assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
    assert_eq!(world.anonymous(line.trim_end()), wanted, "{arguments:?}");
}

#[test]
fn members_in_use_or_of_another_array_are_not_taken() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    let line = world.refused(&["create", "t", "-l", "6", "m0", "m1", "m2", "m3"]);
    assert!(line.contains("m0"), "{line}");
    let line = world.refused(&["create", "tank0", "-l", "5", "m0", "m1", "m2"]);
    assert!(line.contains("an array called 'tank0' runs already"), "{line}");
    world.ok(&["stop", "tank0"]);
    let line = world.refused(&["create", "t", "-l", "6", "m0", "m1", "m2", "m3"]);
    assert!(line.contains("--destroy"), "{line}");
    world.ok(&["assemble", "m0", "m1", "m2", "m3"]);
    assert_eq!(world.array()["state"], "clean");
}

#[test]
fn a_device_where_the_name_belongs_is_no_name() {
    let world = World::new();
    world.members(4);
    let line = world.refused(&["create", "m0", "-l", "5", "m1", "m2", "m3"]);
    assert!(line.contains("'m0' is given as the name of the array"), "{line}");
    assert!(line.contains("'ashlar create tank0 m0 ...'"), "{line}");
    assert!(line.contains("say --raid-devices 3, too"), "{line}");
    let line = world.refused(&["create", "./m0", "-l", "5", "m1", "m2", "m3"]);
    assert!(line.contains("'./m0' is a path and no name for an array"), "{line}");
    assert_eq!(world.array(), serde_json::Value::Null, "nothing was made");
    world.ok(&["create", "m0", "-l", "5", "-n", "3", "m1", "m2", "m3"]);
    assert_eq!(world.array()["name"], "m0");
}

#[test]
fn commands_for_things_that_are_not_there_are_refused() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    for (arguments, says) in [
        (&["stop", "gone"] as &[&str], "gone"),
        (&["fail", "gone", "1"], "gone"),
        (&["fail", "tank0", "4"], "slots are 0 to 3"),
        (&["fail", "tank0", "/dev/none"], "no member"),
        (&["attach", "gone"], "gone"),
        (&["status", "gone"], "gone"),
        (&["assemble", "gone"], "gone"),
        (&["assemble", "--uuid", "x", "m0"], "'x' is not a UUID"),
    ] {
        let line = world.refused(arguments);
        assert!(line.contains(says), "{arguments:?}: {line}");
    }
}

#[test]
fn the_last_member_that_holds_the_data_cannot_be_failed() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    world.ok(&["fail", "tank0", "0"]);
    world.ok(&["fail", "tank0", "1"]);
    let line = world.refused(&["fail", "tank0", "2"]);
    assert!(line.contains("no redundancy left"), "{line}");
    assert_eq!(world.array()["state"], "degraded");
    let events = world.ok(&["events"]);
    assert!(!events.contains("array.failed"), "nothing has failed: {events}");
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_request_changes_nothing_and_is_told_of() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    RawNbd::open(&world, "tank0").write(0, &[7; 8192]).expect("written");
    RawNbd::open(&world, "tank0").break_off_write(0, 8192, &[9; 5000]);
    let dropped = || {
        let events = world.ok(&["events", "--json"]);
        events.lines().find(|line| line.contains("client.dropped")).map(str::to_owned)
    };
    while dropped().is_none() {
        std::thread::yield_now();
    }
    let told = dropped().expect("just there");
    assert!(told.contains("the connection failed") && told.contains("tank0"), "{told}");
    let read = RawNbd::open(&world, "tank0").read(0, 8192).expect("read");
    assert_eq!(read, [7; 8192], "half a request is no request");
}

#[test]
fn requests_beyond_the_end_are_refused_and_the_session_goes_on() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    let mut client = RawNbd::open(&world, "tank0");
    let end = client.volume_bytes;
    assert_eq!(client.read(end, 4096), Err(INVALID));
    assert_eq!(client.read(end - 4096, 8192), Err(INVALID));
    assert_eq!(client.read(u64::MAX - 4095, 4096), Err(INVALID));
    assert_eq!(client.write(end, &[1; 4096]), Err(NO_SPACE));
    assert_eq!(client.write(end - 4096, &[1; 8192]), Err(NO_SPACE));
    assert_eq!(client.read(end - 4096, 4096), Ok(vec![0; 4096]), "nothing was written");
    assert_eq!(client.write(end - 4096, &[1; 4096]), Ok(()));
}

#[test]
fn what_is_not_understood_is_refused_in_one_line_with_exit_code_2() {
    let world = World::without_daemon();
    for (arguments, line) in [
        (
            &["create", "t", "--levl", "6"] as &[&str],
            "ashlar: unexpected argument '--levl' found; nothing was done; \
             see 'ashlar create --help'",
        ),
        (
            &["create", "t", "m0"],
            "ashlar: the following required arguments were not provided: --level <LEVEL>; \
             nothing was done; see 'ashlar create --help'",
        ),
        (
            &["create", "t", "-l", "8", "m0"],
            "ashlar: invalid value '8' for '--level <LEVEL>': '8' is not a level; write 0, 1, 5, \
             6, 7.3, n+m, 10, 50, 60 or 70; nothing was done; see 'ashlar create --help'",
        ),
        (
            &["create", "t", "-l", "6", "--strip-size", "64Q", "m0"],
            "ashlar: invalid value '64Q' for '--strip-size <SIZE>': '64Q' is not a size; \
             write for example 64K, 1.5TiB or 500GB; nothing was done; see 'ashlar create --help'",
        ),
        (
            &["scrub", "tank0", "--pause", "--cancel"],
            "ashlar: the argument '--pause' cannot be used with '--cancel'; nothing was done; \
             see 'ashlar scrub --help'",
        ),
        (
            &["delete", "tank0"],
            "ashlar: unrecognized subcommand 'delete'; nothing was done; 'ashlar stop ARRAY' keeps \
             its data; 'ashlar destroy ARRAY' ends it, 'ashlar wipe DEVICE' clears a device; see \
             'ashlar --help'",
        ),
        (
            &["serve", "--workers", "0"],
            "ashlar: invalid value '0' for '--workers <COUNT|CORES>': 0 workers are not possible: \
             take 1 or more; nothing was done; see 'ashlar serve --help'",
        ),
        (
            &[],
            "ashlar: 'ashlar' requires a subcommand but one was not provided [subcommands: serve, \
             create, assemble, stop, destroy, rename, set, status, top, volumes, fail, locate, \
             replace, re-add, grow, spare, wipe, scrub, rebuild, job, attach, detach, events, \
             notify, metrics, keeper, partition, examine, salvage, bench, lab, completions, man, \
             openapi, help]; nothing was done; see 'ashlar --help'",
        ),
    ] {
        assert_eq!(world.run(arguments).status.code(), Some(2), "{arguments:?}");
        same_line(&world, arguments, line);
    }
}

#[test]
fn a_daemon_that_makes_no_sense_is_not_started() {
    let world = World::without_daemon();
    let whole = |line: String| world.anonymous(line.trim_end());
    assert_eq!(
        whole(world.refused(&["serve", "--workers", "2", "--pool", "1K"])),
        "ashlar: a pool of 1 KiB is not possible for 2 workers: take 32 MiB or more; correct it; \
         nothing was started"
    );
    let line = world.refused(&["serve", "--workers", "1000"]);
    assert!(line.contains("1000 workers are not possible on"), "{line}");
    assert!(line.contains("cores: take 1 to"), "{line}");
    let line = world.refused(&["serve", "--socket", "nodir/control.sock"]);
    assert!(
        line.contains("nodir/control.sock: its directory is not there; nothing was started"),
        "{line}"
    );
    assert!(!world.path("nodir").exists(), "it was made");
    assert!(!world.path("control.sock").exists());
}

#[test]
fn a_second_daemon_on_the_same_socket_is_refused() {
    let world = World::new();
    let line = world.refused(&["serve"]);
    assert!(line.contains("a daemon runs there already"), "{line}");
    world.ok(&["status"]);
}

#[test]
fn a_configuration_with_an_unknown_key_starts_nothing() {
    let world = World::without_daemon();
    std::fs::write(world.path("a.toml"), "[serve]\nworker = 3\n").expect("write");
    let line = world.refused(&["serve", "--config", "a.toml"]);
    assert!(line.contains("a.toml line 2: unknown field `worker`"), "{line}");
    for text in [
        "[serv]\n",
        "[[array]]\nname = \"tank0\"\n",
        "[[array]]\ndevices = []\n",
        "[[array]]\ndevices = [\"m0\"]\nspare = \"x\"\n",
        "[serve]\nworkers = 0\n",
        "[[nbd]]\nlisten = 10809\n",
        "[[nbd]]\nlisten = \"unix:/a\"\ntls = true\n",
        "[fuse]\n",
        "[serve\n",
    ] {
        std::fs::write(world.path("a.toml"), text).expect("write");
        let line = world.refused(&["serve", "--config", "a.toml"]);
        assert!(line.contains("a.toml") && line.contains("nothing was started"), "{text}: {line}");
    }
    assert!(!world.path("control.sock").exists());
}
