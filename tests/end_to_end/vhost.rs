//! Sockets for virtual machines: when they are there, who may connect, and what is said of them. A
//! machine with a driver in it is in `tests/emulated`.

use crate::world::World;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often to look for what takes a moment, each a twentieth of a second apart.
const LOOKS: u32 = 2400;

const GET_FEATURES: u32 = 1;
const READ_ONLY: u64 = 1 << 5;

fn connect(world: &World) -> UnixStream {
    let client = UnixStream::connect(world.path("disks/tank0.sock")).expect("somebody listens");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client
}

fn say(mut client: &UnixStream, request: u32, content: &[u8]) {
    let length = u32::try_from(content.len()).expect("short");
    let header = [request, 1, length].map(u32::to_ne_bytes).concat();
    client.write_all(&[header, content.to_vec()].concat()).expect("sent");
}

/// What the device offers.
fn features(mut client: &UnixStream) -> u64 {
    say(client, GET_FEATURES, &[]);
    let mut answer = [0; 20];
    client.read_exact(&mut answer).expect("an answer");
    u64::from_ne_bytes(answer[12..].try_into().expect("eight bytes"))
}

fn is_closed(mut client: &UnixStream) -> bool {
    client.read(&mut [0]).expect("no timeout") == 0
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("waited in vain until {what}");
}

/// Its line in the metrics ends with so many.
fn clients(world: &World, count: u32) -> bool {
    let address = world.path("disks/tank0.sock").display().to_string();
    let labels = format!("protocol=\"vhost-user\",address=\"unix:{address}\",array=\"tank0\"");
    let line = format!("ashlar_export_clients{{{labels}}} {count}\n");
    world.ok(&["metrics"]).contains(&line)
}

#[test]
fn a_volume_has_a_socket_as_long_as_it_runs_for_one_client_at_a_time() {
    let mut world = World::without_daemon();
    world.start(&["--vhost-user", "disks"]);
    let members = world.create("tank0", 4, &["--level", "6"]);
    let socket = world.path("disks/tank0.sock");
    let mode = std::fs::metadata(&socket).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let volumes = world.ok(&["volumes"]);
    assert!(volumes.contains(&format!("vhost-user:{}", socket.display())), "{volumes}");
    assert!(clients(&world, 0));
    let first = connect(&world);
    assert_eq!(features(&first) & READ_ONLY, 0);
    assert!(clients(&world, 1));
    assert!(is_closed(&connect(&world)), "the volume is taken");
    let line = world.refused(&["stop", "tank0"]);
    assert!(line.contains("is the disk of a virtual machine; nothing was changed"), "{line}");
    say(&first, 99, &[]);
    assert!(is_closed(&first));
    wait_until("the client is gone", || clients(&world, 0));
    let dropped = "message 99 is not spoken here";
    wait_until("it is told of", || world.ok(&["events", "--json"]).contains(dropped));
    let next = connect(&world);
    features(&next);
    // Its socket stays behind, and is no obstacle.
    world.kill();
    assert!(is_closed(&next) && socket.exists());
    let mut arguments = vec!["--vhost-user", "disks"];
    arguments.extend(members.iter().map(String::as_str));
    world.start(&arguments);
    let next = connect(&world);
    features(&next);
    let said = world.ok(&["stop", "--force", "tank0"]);
    assert!(said.contains("stopped and clean"), "{said}");
    assert!(is_closed(&next) && !socket.exists());
    let mut arguments = vec!["assemble", "--read-only"];
    arguments.extend(members.iter().map(String::as_str));
    world.ok(&arguments);
    assert_eq!(features(&connect(&world)) & READ_ONLY, READ_ONLY);
    assert!(world.end().success());
    assert!(!socket.exists());
}

#[test]
fn where_no_socket_can_be_the_array_runs_and_that_is_said() {
    let mut world = World::without_daemon();
    std::fs::create_dir(world.path("disks")).expect("a folder");
    std::fs::write(world.path("disks/tank0.sock"), "something of somebody's").expect("a file");
    world.start(&["--vhost-user", "disks"]);
    world.create("tank0", 4, &["--level", "6"]);
    let events = world.ok(&["events", "--json"]);
    let told = events.lines().find(|line| line.contains("export.not_served"));
    assert!(told.is_some_and(|line| line.contains("vhost-user")), "{events}");
    let missing = world.missing();
    assert!(missing[0].starts_with("the vhost-user socket of 'tank0': "), "{missing:?}");
    assert!(!world.ok(&["volumes"]).contains("vhost-user"));
    let content = std::fs::read_to_string(world.path("disks/tank0.sock"));
    assert_eq!(content.expect("it is there"), "something of somebody's");
}
