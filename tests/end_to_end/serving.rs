//! What `ashlar serve` is told at its start: the parity kernel, spare pools, tunables, who may
//! connect.

use crate::raw_nbd::RawNbd;
use crate::tools::own_port;
use crate::world::{MEMBER_BYTES, World};
use std::io::Read;
use std::net::TcpStream;

#[test]
fn the_parity_kernel_is_visible_everywhere_and_can_be_forced_by_name() {
    let mut world = World::without_daemon();
    let line = world.refused(&["serve", "--kernel", "abacus"]);
    assert!(
        line.contains("no parity kernel 'abacus'; nothing was started; choose one of"),
        "{line}"
    );
    assert!(line.contains("portable, reference"), "{line}");
    world.start(&["--kernel", "portable"]);
    world.create("tank0", 4, &["--level", "6"]);
    assert!(world.ok(&["status"]).contains("kernel portable"));
    assert_eq!(world.array()["kernel"], "portable");
    let metrics = world.ok(&["metrics"]);
    assert!(metrics.contains("ashlar_kernel_info{kernel=\"portable\"} 1\n"), "{metrics}");
    assert!(metrics.contains("kernel=\"portable\",policy="), "{metrics}");
    // Beside it what the buffers are on: one answer for each pool, whichever it is here.
    let pages = metrics.lines().filter(|line| line.starts_with("ashlar_pool_info{pool=\"worker"));
    assert!(pages.clone().count() > 1, "{metrics}");
    let known =
        ["reserved huge", "transparent huge", "small"].map(|it| format!("pages=\"{it}\"}} 1"));
    for line in pages {
        assert!(known.iter().any(|known| line.ends_with(known)), "{line}");
    }
    let events = world.ok(&["events", "--json"]);
    let chosen = events.lines().find(|line| line.contains("kernel.chosen")).expect("an event");
    assert!(chosen.contains("portable") && chosen.contains("asked for by name"), "{chosen}");
    // Two members out: what the forced kernel computed is what it decodes.
    RawNbd::open(&world, "tank0").write(4096, &[5; 8192]).expect("written");
    world.ok(&["fail", "tank0", "0"]);
    world.ok(&["fail", "tank0", "1"]);
    assert_eq!(RawNbd::open(&world, "tank0").read(4096, 8192), Ok(vec![5; 8192]));
}

#[test]
fn workers_are_bound_to_the_cores_that_are_named() {
    let own = std::fs::read_to_string("/proc/self/status").expect("readable");
    let allowed = own.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let last = allowed.and_then(|list| list.trim().rsplit([',', '-']).next()).expect("a core");
    let mut world = World::without_daemon();
    let line = world.refused(&["serve", "--workers", "8191-8191"]);
    assert!(line.contains("may not use core 8191; nothing was started"), "{line}");
    let line = world.refused(&["serve", "--workers", &format!("{last}-{last}"), "--no-pin"]);
    assert!(line.contains("cores are named, and workers are not to be bound"), "{line}");
    world.start(&["--workers", &format!("{last}-{last}")]);
    let tasks = format!("/proc/{}/task", world.status()["process_id"]);
    let bound: Vec<String> = std::fs::read_dir(tasks)
        .expect("it runs")
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok())
        .filter(|status| status.starts_with("Name:\tashlar-worker-"))
        .filter_map(|status| {
            let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            cores.map(|cores| cores.trim().to_owned())
        })
        .collect();
    assert_eq!(bound, [last], "one worker, and its core");
}

#[test]
fn a_member_in_use_is_examined_as_one() {
    let world = World::new();
    world.create("tank0", 3, &["--level", "5"]);
    let running = world.ok(&["examine", "m0"]);
    assert!(running.contains("in use         open in process"), "{running}");
    assert!(running.contains("state          unclean: running, or"), "{running}");
    world.ok(&["stop", "tank0"]);
    let stopped = world.ok(&["examine", "m0"]);
    assert!(!stopped.contains("in use") && stopped.contains("state          clean\n"), "{stopped}");
    for text in [running, stopped] {
        assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
        assert!(!text.contains(" groups"), "{text}");
    }
}

/// On a busy machine the wait may be over before the requests are: so often it is tried again.
const TRIES_MAX: usize = 20;

/// The daemon waits up to five seconds for whoever has a device, a predecessor that was killed for
/// instance. Nobody else's requests may wait with it: on a worker's own thread they did.
#[test]
fn requests_go_on_while_a_device_is_waited_for() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    world.sparse("held", MEMBER_BYTES);
    let is_so = (0..TRIES_MAX).any(|_| requests_go_on_until_it_is_let_go(&world));
    assert!(is_so, "requests waited for the device, too, or it was not taken once it was let go");
}

/// Whether requests went on while a command waited for the device, which was let go then and taken.
fn requests_go_on_until_it_is_let_go(world: &World) -> bool {
    let held = std::fs::File::open(world.path("held")).expect("opens");
    held.lock().expect("nobody has it");
    let mut adding = world.command().args(["spare", "add", "held"]).spawn().expect("runs");
    let mut nbd = RawNbd::open(world, "tank0");
    let status: serde_json::Value =
        serde_json::from_str(&world.ok(&["status", "--json"])).expect("JSON");
    let descriptors = format!("/proc/{}/fd", status["process_id"]);
    let path = world.path("held").canonicalize().expect("it is there");
    let is_waited_for = || {
        let mut open = std::fs::read_dir(&descriptors).expect("the daemon runs");
        open.any(|it| it.is_ok_and(|it| std::fs::read_link(it.path()).is_ok_and(|to| to == path)))
    };
    while !is_waited_for() {
        if adding.try_wait().expect("it can be asked").is_some() {
            return false;
        }
        std::thread::yield_now();
    }
    // All over the volume, so that both workers have some.
    for piece in 0..8_u64 {
        nbd.write(piece * (4 << 20), &[7; 4096]).expect("written");
    }
    let has_ended = adding.try_wait().expect("it can be asked").is_some();
    drop(held);
    adding.wait().expect("it ends").success() && !has_ended
}

#[test]
fn the_pools_of_an_array_and_its_tunables_come_from_the_configuration_at_each_start() {
    let mut world = World::without_daemon();
    world.start(&[]);
    world.create("tank0", 4, &["--level", "6"]);
    for (spare, pool) in [("s0", "spares"), ("s1", "slow"), ("s2", "fast")] {
        world.sparse(spare, MEMBER_BYTES);
        world.ok(&["spare", "add", spare, "--pool", pool]);
    }
    assert!(world.end().success());
    let folder = world.folder.path().display();
    let config = format!(
        "[[array]]\nname = \"tank0\"\ndevices = [\"{folder}/m?\", \"{folder}/s?\"]\n\
         spare_pools = [\"fast\", \"slow\"]\n[array.tuning]\njob_floor = \"64MiB\"\n"
    );
    std::fs::write(world.path("a.toml"), config).expect("write");
    // Twice, since what lasts over one start only does not last.
    for (slot, spare) in [("1", "s2"), ("2", "s1")] {
        world.start(&["--config", "a.toml"]);
        assert_eq!(world.array()["spare_pools"], serde_json::json!(["fast", "slow"]));
        world.ok(&["fail", "tank0", slot]);
        let taken = || {
            let member = world.array()["members"][slot.parse::<usize>().expect("a number")].clone();
            member["state"] == "in_sync"
                && member["path"].as_str().is_some_and(|it| it.ends_with(spare))
        };
        while !taken() {
            std::thread::yield_now();
        }
        assert!(world.end().success());
    }
    world.start(&["--config", "a.toml"]);
    world.ok(&["fail", "tank0", "3"]);
    let missing = || world.ok(&["events", "--json"]).contains("spare.missing");
    while !missing() {
        std::thread::yield_now();
    }
    let left = world.ok(&["status"]);
    assert!(left.contains("pool   spares") && left.contains("s0"), "not its pool: {left}");
}

#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    let commands: [&[&str]; 8] = [
        &["examine", "m0", "m1", "m2", "m3"],
        &["status"],
        &["status", "--json"],
        &["events"],
        &["events", "--json"],
        &["metrics"],
        &["volumes"],
        &["completions", "bash"],
    ];
    for command in commands {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = world.command().args(command).stdout(writer).output().expect("it runs");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), complaint.as_ref()), (Some(141), ""), "{command:?}");
    }
}

#[test]
fn nbd_is_not_served_to_a_network_that_nobody_said_is_trusted() {
    let mut world = World::without_daemon();
    let line = world.refused(&["serve", "--nbd", "0.0.0.0:0"]);
    assert!(line.contains("clear text without a login"), "{line}");
    assert!(line.contains("--nbd-trusted-network"), "{line}");
    std::fs::write(world.path("a.toml"), "[[nbd]]\nlisten = \"[::]:0\"\n").expect("write");
    let line = world.refused(&["serve", "--config", "a.toml"]);
    assert!(line.contains("trusted_network = true"), "{line}");
    assert!(!world.path("control.sock").exists(), "nothing was started");
    world.start(&["--nbd", "0.0.0.0:0", "--nbd-trusted-network"]);
    assert!(world.ok(&["status", "--json"]).contains("0.0.0.0:0"));
}

#[test]
fn one_peer_has_so_many_connections_and_no_more() {
    let mut world = World::without_daemon();
    let text = "[nbd_limits]\nconnections_per_peer = 2\n";
    std::fs::write(world.path("a.toml"), text).expect("write");
    let address = format!("127.0.0.1:{}", own_port());
    world.start(&["--config", "a.toml", "--nbd", &address, "--nbd-trusted-network"]);
    let greeted = |stream: &mut TcpStream| {
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).is_ok()
    };
    let connect = || TcpStream::connect(&address).expect("connects");
    let mut held = [connect(), connect()];
    assert!(held.iter_mut().all(greeted));
    assert!(!greeted(&mut connect()), "a third one is closed at once");
    let [first, _second] = held;
    drop(first);
    // The server learns of it a moment later.
    while !greeted(&mut connect()) {
        std::thread::yield_now();
    }
}

/// It started without a member that was as good as the others, and did not say why.
#[test]
fn a_start_that_lacks_open_files_is_refused_and_says_so() {
    use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    world.ok(&["stop", "tank0"]);
    let process = rustix::process::Pid::from_child(world.daemon.as_ref().expect("it runs"));
    let open = std::fs::read_dir(format!("/proc/{}/fd", world.id())).expect("it runs").count();
    // One for the caller, and two for four members.
    let few = u64::try_from(open).expect("few") + 3;
    let maximum = getrlimit(Resource::Nofile).maximum;
    let lowered = Rlimit { current: Some(few), maximum };
    let before = prlimit(Some(process), Resource::Nofile, lowered).expect("ours");
    let line = world.refused(&["assemble", "m0", "m1", "m2", "m3"]);
    assert!(line.contains("too many files are open"), "{line}");
    assert!(line.contains("raise the limit") && line.contains("nothing was written"), "{line}");
    prlimit(Some(process), Resource::Nofile, before).expect("ours");
    world.ok(&["assemble", "m0", "m1", "m2", "m3"]);
    assert_eq!(world.array()["state"], "clean");
}
