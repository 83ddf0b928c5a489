//! One peer opens all connections that it can get, and leaves them open: at the metrics listener as
//! a user without rights, at the control socket as root.
//!
//! What must stay true: status, NBD, scrapes and `replace` work meanwhile. Nothing here waits for a
//! time to pass, so nobody is let in because an idle connection timed out.

use crate::raw_nbd::RawNbd;
use crate::tools::{all_here, own_port, skipped, wait_for};
use crate::world::{MEMBER_BYTES, World};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

/// Opens `$1` connections to port `$2` of this machine, says how many, and holds them until its
/// input ends.
const HOLD: &str = "n=0; while [ $n -lt $1 ]; do
    exec {fd}<>/dev/tcp/127.0.0.1/$2 || break
    n=$((n + 1))
done 2>/dev/null; echo $n; read -r _";

/// A process of nobody that holds connections; it ends when dropped.
struct Crowd(Child);

impl Crowd {
    /// Open `count` connections to `port`, and how many it became.
    fn open(count: usize, port: u16) -> (Crowd, usize) {
        let mut crowd = Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .args(["prlimit", "--nofile=4096:4096", "bash", "-c", HOLD, "hold"])
            .args([count.to_string(), port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("setpriv runs");
        let mut line = String::new();
        let said = crowd.stdout.take().expect("piped");
        BufReader::new(said).read_line(&mut line).expect("it says how many");
        (Crowd(crowd), line.trim().parse().expect("a number"))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _gone = self.0.wait();
    }
}

/// Start the daemon with no more than `count` descriptors.
fn start_with_descriptors(world: &mut World, count: usize, arguments: &[&str]) {
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--nofile={count}:{count}")).arg(env!("CARGO_BIN_EXE_ashlar"));
    limited.current_dir(world.folder.path());
    limited.env("ASHLAR_SOCKET", world.path("control.sock"));
    world.start_by(limited, arguments);
}

/// The port of the metrics listener.
fn metrics_port(world: &World) -> u16 {
    let said = world.said();
    let line = said.lines().find_map(|line| line.split_once("metrics at http://127.0.0.1:"));
    let port = line.and_then(|(_, rest)| rest.strip_suffix("/metrics"));
    port.and_then(|port| port.parse().ok()).expect(&said)
}

/// What the metrics listener answers.
fn scraped(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Two processes of nobody once took every descriptor of the daemon: status, NBD and `replace`
/// stood still.
#[test]
fn thousands_of_idle_connections_to_the_metrics_listener_keep_nobody_out() {
    let test = "thousands_of_idle_connections_to_the_metrics_listener_keep_nobody_out";
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "needs root to be somebody else");
    }
    if !all_here(test, &["setpriv", "prlimit", "bash"]) {
        return;
    }
    let mut world = World::without_daemon();
    start_with_descriptors(&mut world, 1024, &["--metrics", "127.0.0.1:0"]);
    world.create("tank0", 4, &["--level", "6"]);
    world.sparse("new", MEMBER_BYTES);
    let mut before = RawNbd::open(&world, "tank0");
    before.write(0, &[7; 8192]).expect("written");
    let port = metrics_port(&world);
    let crowds = [Crowd::open(1500, port), Crowd::open(1500, port)];
    assert!(crowds.iter().map(|(_, count)| count).sum::<usize>() > 1024, "too few to tell");

    assert_eq!(before.read(0, 8192), Ok(vec![7; 8192]), "who was there goes on");
    assert_eq!(RawNbd::open(&world, "tank0").read(0, 8192), Ok(vec![7; 8192]), "who comes gets in");
    assert!(scraped(port).ends_with("# EOF\n"), "an honest scrape is answered");
    world.ok(&["replace", "tank0", "1", "new", "--wait"]);
    assert_eq!(world.array()["state"], "clean");
    let told = scraped(port);
    assert!(told.contains("ashlar_pool_high_water{pool=\"metrics.connections\"}"), "{told}");
}

/// Every seat of the control socket, taken by root and left idle, once kept root out.
#[test]
fn root_cannot_lock_root_out_of_the_control_socket() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    let connect = || UnixStream::connect(world.path("control.sock")).expect("it listens");
    let mut held: Vec<UnixStream> = (0..200).map(|_| connect()).collect();
    assert_eq!(world.array()["state"], "clean", "idle connections make room");
    // Followers of events, and heads and bodies that never come to their end.
    for (begun, what) in [
        ("GET /v1/events/follow HTTP/1.1\r\nhost: a\r\n\r\n", "followers"),
        ("GET /v1/status HTTP/1.1\r\nhost: a\r\n", "heads"),
        ("POST /v1/arrays/stop HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{", "bodies"),
    ] {
        for _ in 0..100 {
            let mut stream = connect();
            stream.write_all(begun.as_bytes()).expect("sent");
            held.push(stream);
        }
        assert_eq!(world.array()["state"], "clean", "{what} make room");
    }
    let limits = world.ok(&["status", "--limits"]);
    assert!(limits.contains("control.connections"), "{limits}");
    let status: serde_json::Value =
        serde_json::from_str(&world.ok(&["status", "--json"])).expect("JSON");
    let open = || std::fs::read_dir(format!("/proc/{}/fd", status["process_id"])).expect("it runs");
    wait_for("the end of who made room", || open().count() < 200);
}

/// A daemon that could not serve with what it may have does not begin; one that has little leaves
/// some for itself.
#[test]
fn descriptors_for_devices_and_the_control_socket_are_kept() {
    let test = "descriptors_for_devices_and_the_control_socket_are_kept";
    if !all_here(test, &["prlimit"]) {
        return;
    }
    let mut world = World::without_daemon();
    let refused = Command::new("prlimit")
        .args(["--nofile=128:128", env!("CARGO_BIN_EXE_ashlar"), "serve", "--socket"])
        .arg(world.path("control.sock"))
        .output()
        .expect("prlimit runs");
    let line = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{line}");
    assert!(line.contains("128 descriptors are too few"), "{line}");
    assert!(line.contains("nothing was started"), "{line}");

    start_with_descriptors(&mut world, 400, &[]);
    world.create("tank0", 4, &["--level", "6"]);
    world.sparse("new", MEMBER_BYTES);
    let mut clients: Vec<RawNbd> = Vec::new();
    while let Some(client) = RawNbd::try_open(&world, "tank0") {
        clients.push(client);
    }
    assert!(clients.len() > 50, "only {} were let in", clients.len());
    world.ok(&["replace", "tank0", "1", "new", "--wait"]);
    assert_eq!(world.array()["state"], "clean");
}

/// A connection of somebody who opens the volume and then sends this.
fn stranger(port: u16, sends: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).expect("greeted");
    let mut hello = vec![0, 0, 0, 3];
    hello.extend(b"IHAVEOPT\0\0\0\x01\0\0\0\x05tank0");
    stream.write_all(&hello).expect("sent");
    let mut export = [0; 10];
    stream.read_exact(&mut export).expect("open");
    stream.write_all(sends).expect("sent");
    stream
}

/// The head of a request for a mebibyte.
fn mebibyte(kind: u16) -> Vec<u8> {
    let mut head = 0x2560_9513_u32.to_be_bytes().to_vec();
    head.extend([0, 0]);
    head.extend(kind.to_be_bytes());
    head.extend([0; 16]);
    head.extend((1_u32 << 20).to_be_bytes());
    head
}

/// 64 connections of one address announced a payload and sent none, or asked for data and took
/// none: each had a large buffer, and nobody else got one for a minute.
#[test]
fn one_address_does_not_hold_all_buffers() {
    let mut world = World::without_daemon();
    let port = own_port();
    let address = format!("127.0.0.1:{port}");
    world.start(&["--nbd", &address, "--nbd-trusted-network"]);
    world.create("tank0", 4, &["--level", "6"]);
    for sends in [mebibyte(1), mebibyte(0).repeat(16)] {
        let crowd: Vec<TcpStream> = (0..64).map(|_| stranger(port, &sends)).collect();
        std::thread::scope(|scope| {
            let one = || {
                let mut client = RawNbd::open(&world, "tank0");
                for at in 0..4_u64 {
                    client.write(at << 20, &vec![7; 1 << 20]).expect("written");
                    assert_eq!(client.read(at << 20, 1 << 20), Ok(vec![7; 1 << 20]));
                }
            };
            let both = [scope.spawn(one), scope.spawn(one)];
            both.into_iter().for_each(|client| client.join().expect("it ends"));
        });
        // Who does not send or take is dropped after a minute: then any client gets on.
        let events = world.ok(&["events", "--json"]);
        assert!(!events.contains("client.dropped"), "they waited for that: {events}");
        drop(crowd);
        // The next crowd comes when this one is gone, and is not told from it in the events.
        assert!(world.end().success());
        world.start(&["--nbd", &address, "--nbd-trusted-network"]);
        world.ok(&["assemble", "m0", "m1", "m2", "m3"]);
    }
}
