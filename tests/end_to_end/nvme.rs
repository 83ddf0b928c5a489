//! NVMe/TCP from outside: what a host finds, keeps and is refused, through losses and restarts.

use crate::contents::lacks;
use crate::nvme_queue::{BLOCK, Queue, Wishes, blocks, host, of, pattern};
use crate::tools::own_port;
use crate::world::World;
use ashlar_nvme_protocol::Status;
use ashlar_nvme_protocol::command::{admin_opcode, io_opcode};
use ashlar_nvme_protocol::identify::structure;
use ashlar_nvme_protocol::log::{page, parse_discovery_page};
use ashlar_nvme_protocol::nqn::Nqn;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// A daemon that serves NVMe/TCP.
struct Served {
    world: World,
    port: u16,
}

impl Served {
    fn new() -> Served {
        let mut served = Served { world: World::without_daemon(), port: own_port() };
        served.start(&[]);
        served
    }

    /// Start the daemon, with these devices.
    fn start(&mut self, devices: &[&str]) {
        let address = format!("127.0.0.1:{}", self.port);
        let state = self.world.path("nvme");
        let state = state.to_str().expect("text");
        let flags =
            ["--nvme-tcp", &address, "--nvme-tcp-trusted-network", "--nvme-tcp-state", state];
        self.world.start(&[&flags[..], devices].concat());
    }

    fn connect(&self) -> UnixStream {
        let socket = TcpStream::connect(("127.0.0.1", self.port)).expect("connects");
        // A socket is a socket: the queue of the tests only reads, writes and waits.
        UnixStream::from(OwnedFd::from(socket))
    }

    /// The name that discovery tells.
    fn subsystem(&self) -> Nqn {
        let wishes = Wishes { subsystem: Nqn::discovery(), ..Wishes::default() };
        let (mut queue, _) = Queue::admin(self.connect(), &wishes);
        let entries = parse_discovery_page(&queue.log(page::DISCOVERY, 2048));
        assert_eq!(entries.len(), 1, "one address");
        assert_eq!(entries[0].portal.address.port(), self.port);
        entries[0].subsystem.clone()
    }

    /// A host with an admin queue and an I/O queue.
    fn host(&self, number: u8) -> (Queue, Queue) {
        let wishes =
            Wishes { host: host(number), subsystem: self.subsystem(), ..Wishes::default() };
        let (admin, id) = Queue::admin(self.connect(), &wishes);
        (admin, Queue::io(self.connect(), &wishes, (1, id)))
    }
}

fn text(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}

/// The namespaces that a host sees, once there are `count` of them: the daemon looks twice a
/// second.
fn namespaces(admin: &mut Queue, count: usize) -> Vec<u32> {
    for _ in 0..1200 {
        let list = admin.identify(structure::ACTIVE_LIST, 0);
        let ids = list.chunks(4).map(|id| u32::from_le_bytes(id.try_into().expect("four")));
        let ids: Vec<u32> = ids.take_while(|id| *id > 0).collect();
        if ids.len() == count {
            return ids;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("never {count} namespaces");
}

#[test]
fn a_volume_is_a_namespace_with_two_members_gone() {
    let served = Served::new();
    served.world.create("tank0", 6, &["--level", "6", "--block-size", "512"]);
    let (mut admin, mut queue) = served.host(1);
    assert_eq!(namespaces(&mut admin, 1), [1]);
    let status = served.world.array();
    let uuid = status["uuid"].as_str().expect("a UUID").replace('-', "");
    let descriptors = admin.identify(structure::DESCRIPTORS, 1);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&descriptors[4..20]), uuid, "NGUID");
    let data = pattern(1, 1 << 20);
    queue.write(64, &data);
    queue.good(of(io_opcode::FLUSH, 1), &[], 0);
    for slot in ["0", "3"] {
        served.world.ok(&["fail", "tank0", slot]);
    }
    let count = u32::try_from(data.len() / BLOCK).expect("short");
    assert!(queue.read(64, count) == data, "what was written is read back");
    queue.write(5000, &data[..65_536]);
    assert!(queue.read(5000, 128) == data[..65_536], "written with two members gone");
    let said = served.world.ok(&["volumes"]);
    assert!(said.contains(&format!("nvme-tcp:127.0.0.1:{}", served.port)), "{said}");
}

#[test]
fn an_array_in_use_stops_by_force_only_and_its_namespace_goes() {
    let served = Served::new();
    served.world.create("tank0", 4, &["--level", "5", "--block-size", "512"]);
    let (mut admin, mut queue) = served.host(1);
    namespaces(&mut admin, 1);
    queue.read(0, 1);
    let refused = served.world.run(&["stop", "tank0"]);
    let line = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && line.contains("NVMe/TCP queues"), "{line}");
    queue.read(0, 1);
    served.world.ok(&["stop", "tank0", "--force"]);
    let read = blocks(io_opcode::READ, 0, 1);
    assert_eq!(queue.status(read, &[], 512), Status::INVALID_NAMESPACE);
    namespaces(&mut admin, 0);
}

#[test]
fn what_was_answered_and_who_reserved_survives_a_killed_daemon() {
    let mut served = Served::new();
    let devices = served.world.create("tank0", 4, &["--level", "6", "--block-size", "512"]);
    let (mut admin, mut queue) = served.host(1);
    namespaces(&mut admin, 1);
    let name = served.subsystem();
    let key = |current: u64, other: u64| [current.to_le_bytes(), other.to_le_bytes()].concat();
    queue.good(of(io_opcode::RESERVATION_REGISTER, 1), &key(0, 0xa), 0);
    let acquire = of(io_opcode::RESERVATION_ACQUIRE, 1).with_dword(10, 1 << 8);
    queue.good(acquire, &key(0xa, 0), 0);
    let data = pattern(3, 65_536);
    queue.write(0, &data);
    served.world.kill();
    assert_eq!(queue.expect_end(), None);
    assert_eq!(admin.expect_end(), None);
    served.start(&text(&devices));
    assert_eq!(served.subsystem(), name, "hosts find it under the same name");
    let (mut other_admin, mut other) = served.host(2);
    namespaces(&mut other_admin, 1);
    let write = blocks(io_opcode::WRITE, 0, 1);
    assert_eq!(other.status(write, &data[..512], 0), Status::RESERVATION_CONFLICT);
    assert!(other.read(0, 128) == data, "what was answered is there");
    let (_admin, mut queue) = served.host(1);
    queue.write(0, &pattern(4, 512));
}

#[test]
fn a_namespace_keeps_its_number_whatever_starts_first() {
    let mut served = Served::new();
    let one = served.world.create("one", 3, &["--level", "5", "--block-size", "512"]);
    let (mut admin, _queue) = served.host(1);
    namespaces(&mut admin, 1);
    let uuid = |admin: &mut Queue, id| admin.identify(structure::NAMESPACE, id)[104..120].to_vec();
    let first = uuid(&mut admin, 1);
    served.world.ok(&["stop", "one", "--force"]);
    namespaces(&mut admin, 0);
    let folder = served.world.path("other");
    std::fs::create_dir(&folder).expect("a folder");
    let other: Vec<String> = (0..3)
        .map(|at| {
            let path = folder.join(format!("m{at}"));
            served.world.sparse(path.to_str().expect("text"), 64 << 20);
            path.to_str().expect("text").to_owned()
        })
        .collect();
    served.world.ok(&[
        &["create", "two", "--level", "5", "--block-size", "512"],
        &text(&other)[..],
    ]
    .concat());
    assert_eq!(namespaces(&mut admin, 1), [2], "1 is the other's, though it does not run");
    served.world.end();
    served.start(&text(&one));
    let (mut admin, _queue) = served.host(1);
    assert_eq!(namespaces(&mut admin, 1), [1]);
    assert_eq!(uuid(&mut admin, 1), first);
    let smart = of(admin_opcode::GET_LOG_PAGE, u32::MAX).with_dword(10, 2 | 127 << 16);
    assert_eq!(admin.good(smart, &[], 512)[0], 0, "no warning");
}

#[test]
fn clear_text_needs_a_word_and_a_state_folder_has_one_daemon() {
    let served = Served::new();
    let refused = |arguments: &[&str]| {
        let output = served.world.run(arguments);
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{line}");
        line
    };
    let line = refused(&["serve", "--socket", "other.sock", "--nvme-tcp", "127.0.0.1:1"]);
    assert!(line.contains("every user of this machine"), "{line}");
    let state = served.world.path("nvme");
    let state = state.to_str().expect("text");
    let port = format!("127.0.0.1:{}", own_port());
    // Arrays of the other one run; it says what is missing.
    let ways = ["--nvme-tcp", &port, "--nvme-tcp-trusted-network", "--nvme-tcp-state", state];
    let line = lacks(&ways);
    assert!(line.contains("NVMe/TCP: ") && line.contains("another daemon uses it"), "{line}");
}
