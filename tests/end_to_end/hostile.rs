//! Hostile clients: other users at the control socket, and connections without progress. Not here:
//! what a reply carries besides its data (`leftovers.rs`).
//!
//! What must stay true: the daemon under test is the real one, with its own limits. Nothing here
//! waits for a time to pass.

use crate::leftovers::Tap;
use crate::tools::{all_here, run, skipped, wait_for};
use crate::world::World;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};

/// A user and a group of nobody who matters.
const STRANGER: &str = "65534";
const GROUP: u32 = 43_210;

/// The program as a stranger with these further groups.
fn as_stranger(world: &World, groups: &[&str], arguments: &[&str]) -> Output {
    let program = world.path("ashlar");
    if !program.exists() {
        // By another process: one that tests beside start while this one writes it would have it
        // open, and then it cannot be run (ETXTBSY).
        run("cp", &[env!("CARGO_BIN_EXE_ashlar"), program.to_str().expect("text")]);
        // Everybody may look for the socket; who may use it is the question.
        for path in [world.folder.path(), &program] {
            std::fs::set_permissions(path, Permissions::from_mode(0o755)).expect("ours");
        }
    }
    Command::new("setpriv")
        .args(["--reuid", STRANGER, "--regid", STRANGER])
        .args(groups)
        .arg(program)
        .args(arguments)
        .env("ASHLAR_SOCKET", world.path("control.sock"))
        .output()
        .expect("setpriv runs")
}

fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Any local user once overwrote volumes over loopback TCP, beneath mounted file systems.
#[test]
fn nbd_is_for_root_and_its_group_by_default() {
    let test = "nbd_is_for_root_and_its_group_by_default";
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "needs root to be somebody else");
    }
    if !all_here(test, &["setpriv", "nbdinfo"]) {
        return;
    }
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    std::fs::set_permissions(world.folder.path(), Permissions::from_mode(0o755)).expect("ours");
    let look_as = |who: &[&str]| {
        let mut looks = Command::new("setpriv");
        looks.args(who).args(["nbdinfo", &world.uri("tank0")]).output().expect("setpriv runs")
    };
    let refused = look_as(&["--reuid", STRANGER, "--regid", STRANGER, "--clear-groups"]);
    let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && complaint.contains("Permission denied"), "{complaint}");
    assert!(look_as(&[]).status.success(), "root is let in");
    let line = world.refused(&["serve", "--socket", "other.sock", "--nbd", "127.0.0.1:0"]);
    assert!(line.contains("every user of this machine"), "{line}");
}

#[test]
fn the_control_socket_is_for_root_and_its_group_and_the_books_say_who_asked() {
    let test = "the_control_socket_is_for_root_and_its_group_and_the_books_say_who_asked";
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "needs root to be somebody else");
    }
    if !all_here(test, &["setpriv"]) {
        return;
    }
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    let socket = world.path("control.sock");
    let mode = std::fs::metadata(&socket).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let nobody = ["--clear-groups"];
    let line = complaint(&as_stranger(&world, &nobody, &["fail", "tank0", "1"]));
    assert!(line.contains("Permission denied") && !line.contains("no daemon"), "{line}");

    // Whoever makes it wider by mistake has not let everybody in.
    std::fs::set_permissions(&socket, Permissions::from_mode(0o666)).expect("ours");
    let line = complaint(&as_stranger(&world, &nobody, &["fail", "tank0", "1"]));
    assert!(line.contains("user 65534 may not use the control socket; nothing was done"), "{line}");
    assert_eq!(world.array()["state"], "clean", "nothing was done");

    // Its group may, as one of the further groups of who asks.
    std::os::unix::fs::chown(&socket, None, Some(GROUP)).expect("root");
    std::fs::set_permissions(&socket, Permissions::from_mode(0o660)).expect("ours");
    let group = ["--groups", "43210"];
    let done = as_stranger(&world, &group, &["fail", "tank0", "1"]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(world.array()["state"], "degraded");

    let events = world.ok(&["events", "--json"]);
    let of = |name: &str, uid: &str| {
        let lines = events.lines().filter(|line| line.contains(name));
        lines.filter(|line| line.contains(&format!("\"uid\":\"{uid}\""))).count()
    };
    assert_eq!(of("control.refused", STRANGER), 1, "{events}");
    assert_eq!(of("control.called", STRANGER), 1, "{events}");
    assert!(of("control.called", "0") >= 1, "who created it: {events}");
    let failed =
        events.lines().find(|line| line.contains("control.called") && line.contains(STRANGER));
    let failed = failed.expect("counted");
    assert!(
        failed.contains("/v1/members/fail") && failed.contains("\"answer\":\"done\""),
        "{failed}"
    );
}

/// The greeting of the server, taken: the connection is in the handshake.
fn half_open(world: &World) -> Option<UnixStream> {
    let mut stream = UnixStream::connect(world.path("nbd.sock")).ok()?;
    stream.read_exact(&mut [0; 18]).ok()?;
    Some(stream)
}

/// Bytes of memory that the daemon has now.
fn resident_bytes(world: &World) -> u64 {
    let stream = UnixStream::connect(world.path("nbd.sock")).expect("it listens");
    let daemon = rustix::net::sockopt::socket_peercred(&stream).expect("a local socket").pid;
    let status = std::fs::read_to_string(format!("/proc/{daemon}/status"));
    let status = status.expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn connections_that_never_get_on_keep_nobody_out_and_hold_little() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    let mut before = Tap::open(&world, false);
    before.write(0, &[0x11; 4096]);
    let memory = resident_bytes(&world);
    // Each holds all that somebody may hold who has not chosen a volume: an option that never comes
    // to its end.
    let mut option = vec![0, 0, 0, 3];
    option.extend(b"IHAVEOPT\0\0\0\x07");
    option.extend((16_u32 << 10).to_be_bytes());
    option.resize(option.len() + (16 << 10) - 1, 0x22);
    let mut held = Vec::new();
    let mut most = 0;
    for round in 0..2000 {
        let Some(mut stream) = half_open(&world) else { continue };
        // It may have been ended in favour of a newer one.
        let _gone = stream.write_all(&option);
        held.push(stream);
        if round % 250 == 249 {
            // Who was there goes on, and who comes gets in.
            assert_eq!(before.read(0, 4096).as_deref(), Ok(&[0x11; 4096][..]));
            assert_eq!(Tap::open(&world, true).read(0, 4096).as_deref(), Ok(&[0x11; 4096][..]));
            most = most.max(resident_bytes(&world));
        }
    }
    assert!(held.len() > 1000, "only {} were let in at all", held.len());
    let still_there = || held.iter().filter(|stream| is_open(stream)).count();
    assert!(still_there() > 0, "none is half open");
    wait_for("257 half-open ones at most", || still_there() <= 257);
    let each = most.saturating_sub(memory) / 256;
    println!(
        "{} KiB more for 256 half-open connections, {each} bytes each",
        (most - memory.min(most)) >> 10
    );
    // Each may hold 16 KiB of an option and 2 KiB that were received; the rest is the session
    // itself, and what the allocator keeps of connections that were ended.
    assert!(each <= 64 << 10, "{each} bytes for each half-open connection");
}

/// Whether the server has not closed the connection.
fn is_open(stream: &UnixStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    let mut stream = stream;
    let got = stream.read(&mut [0; 64]);
    matches!(got, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}
