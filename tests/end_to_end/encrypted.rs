//! NBD through TLS: who is let in, who is not, and that what goes through is what was sent.

use crate::certificates::{Authority, PROGRAM, Role};
use crate::contents::lacks;
use crate::tools::{all_here, own_port, run};
use crate::world::World;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

const STARTTLS: u32 = 5;
const LIST: u32 = 3;
const ABORT: u32 = 2;

/// A daemon that demands TLS at a TCP address which needs no trusted network, with array `tank0`,
/// and a client that it lets in.
pub struct Encrypted {
    pub world: World,
    pub port: u16,
    pub client: PathBuf,
}

impl Encrypted {
    /// `further` is added to the configuration.
    pub fn new(further: &str) -> Encrypted {
        let mut world = World::without_daemon();
        let ours = Authority::new(&world, "ours");
        let server = ours.folder("server");
        ours.certify(&server, Role::Server);
        let client = ours.folder("client");
        ours.certify(&client, Role::Client);
        let port = own_port();
        let server = server.display();
        let config = format!(
            "{further}\n[[nbd]]\nlisten = \"0.0.0.0:{port}\"\n[nbd.tls]\n\
             certificate = \"{server}/server-cert.pem\"\n\
             key = \"{server}/server-key.pem\"\nca = \"{server}/ca-cert.pem\"\n"
        );
        std::fs::write(world.path("a.toml"), config).expect("write");
        world.start(&["--config", "a.toml"]);
        world.create("tank0", 6, &["--level", "6"]);
        Encrypted { world, port, client }
    }

    fn uri_with(&self, folder: &Path) -> String {
        format!("nbds://localhost:{}/tank0?tls-certificates={}", self.port, folder.display())
    }

    fn uri(&self) -> String {
        self.uri_with(&self.client)
    }

    /// The options with which QEMU opens the volume.
    fn qemu(&self, folder: &Path, priority: &str) -> [String; 4] {
        let folder = folder.display();
        let port = self.port;
        [
            "--object".to_owned(),
            format!("tls-creds-x509,id=t,endpoint=client,dir={folder}{priority}"),
            "--image-opts".to_owned(),
            format!("driver=nbd,host=localhost,port={port},export=tank0,tls-creds=t"),
        ]
    }

    /// The way in is open to the client it is meant for.
    pub fn serves_its_client(&self) {
        let said = run("nbdinfo", &["--size", &self.uri()]);
        let bytes: u64 = said.trim().parse().expect("a size");
        assert!(bytes > 1 << 20, "{said}");
    }

    pub fn connect(&self) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connects");
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).expect("greeted");
        stream.write_all(&[0, 0, 0, 3]).expect("sent");
        stream
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(data.len()).expect("short");
    [b"IHAVEOPT", &number.to_be_bytes()[..], &bytes.to_be_bytes(), data].concat()
}

/// The kind of the next reply to an option.
fn reply(stream: &mut TcpStream) -> u32 {
    let mut head = [0; 20];
    stream.read_exact(&mut head).expect("a reply");
    let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four"));
    let mut text = vec![0; usize::try_from(word(16)).expect("short")];
    stream.read_exact(&mut text).expect("its text");
    word(12)
}

/// What is left to read until the server ends the connection; a reset is an end too.
pub fn rest(stream: &mut TcpStream) -> usize {
    let mut bytes = Vec::new();
    let _ended = stream.read_to_end(&mut bytes);
    bytes.len()
}

pub fn attempt(program: &str, arguments: &[&str]) -> Output {
    std::process::Command::new(program).args(arguments).output().expect("it runs")
}

fn is_refused(program: &str, arguments: &[&str]) {
    let output = attempt(program, arguments);
    assert!(!output.status.success(), "{program} {arguments:?} was let in");
}

fn text(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}

#[test]
fn what_goes_through_tls_is_read_back_by_libnbd_and_qemu_while_members_go() {
    let test = "what_goes_through_tls_is_read_back_by_libnbd_and_qemu_while_members_go";
    if !all_here(test, &[PROGRAM, "nbdinfo", "nbdcopy", "qemu-img", "qemu-io"]) {
        return;
    }
    let it = Encrypted::new("");
    let noise = it.world.noise("noise", 16 << 20);
    let noise = noise.to_str().expect("text");
    run("nbdcopy", &["--connections=4", "--requests=16", noise, &it.uri()]);
    let opened = it.qemu(&it.client, "");
    let [object, credentials, flag, image] = &opened;
    let source = format!("driver=raw,file.driver=file,file.filename={noise}");
    let qemu = ["compare", object, credentials, flag, &source, image];
    run("qemu-img", &qemu);
    it.world.ok(&["fail", "tank0", "0"]);
    let commands =
        ["write -P 0x5a 20M 9M", "write -P 0xa5 31000000 70000", "write -z 24M 1M", "flush"];
    let checks = [
        "read -P 0x5a 20M 4M",
        "read -P 0 24M 1M",
        "read -P 0x5a 25M 4M",
        "read -P 0xa5 31000000 70000",
    ];
    for (commands, lost) in [(&commands[..], "3"), (&checks[..], "")] {
        let commands: Vec<&str> = commands.iter().flat_map(|it| ["-c", it]).collect();
        let said = run("qemu-io", &[&text(&opened)[..], &commands].concat());
        assert!(!said.contains("verification failed"), "{said}");
        if !lost.is_empty() {
            it.world.ok(&["fail", "tank0", lost]);
        }
    }
    let copy = it.world.path("copy");
    run("nbdcopy", &[&it.uri(), copy.to_str().expect("text")]);
    let (copy, noise) = (std::fs::read(&copy).expect("read"), std::fs::read(noise).expect("read"));
    assert!(copy[..16 << 20] == noise[..], "what was written is what is read");
    assert!(copy[20 << 20..24 << 20].iter().all(|&byte| byte == 0x5a));
    assert!(it.world.ok(&["status", "--json"]).contains("\"nbds\""));
    let listed = it.world.ok(&["volumes"]);
    assert!(listed.contains(&format!("nbds://0.0.0.0:{}/tank0", it.port)), "{listed}");
}

#[test]
fn clients_without_a_certificate_that_counts_are_refused_and_the_others_served_on() {
    let test = "clients_without_a_certificate_that_counts_are_refused_and_the_others_served_on";
    if !all_here(test, &[PROGRAM, "nbdinfo", "qemu-img"]) {
        return;
    }
    let it = Encrypted::new("");
    let ours = Authority::new(&it.world, "second");
    // They all know the right server; what they show is nothing, of another authority, or too old.
    let trusting = |name: &str| {
        let folder = it.world.path(name);
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::copy(it.client.join("ca-cert.pem"), folder.join("ca-cert.pem")).expect("copy");
        folder
    };
    let [none, foreign, late] = ["none", "foreign", "late"].map(trusting);
    ours.certify(&foreign, Role::Client);
    Authority::again(&it.world, "ours").certify(&late, Role::LateClient);
    for folder in [&none, &foreign, &late] {
        is_refused("nbdinfo", &["--size", &it.uri_with(folder)]);
        let opened = it.qemu(folder, "");
        is_refused("qemu-img", &[&["info"], &text(&opened)[..]].concat());
        it.serves_its_client();
    }
    // The same QEMU that is let in with TLS 1.3 is not with 1.2.
    run("qemu-img", &[&["info"], &text(&it.qemu(&it.client, ""))[..]].concat());
    let old = it.qemu(&it.client, ",priority=NORMAL:-VERS-ALL:+VERS-TLS1.2");
    is_refused("qemu-img", &[&["info"], &text(&old)[..]].concat());
    let clear = format!("nbd://localhost:{}/tank0", it.port);
    is_refused("nbdinfo", &["--size", &clear]);
    is_refused("nbdinfo", &["--list", &clear]);
    it.serves_its_client();
    let events = it.world.ok(&["events", "--json"]);
    assert!(events.contains("no TLS session"), "{events}");
}

#[test]
fn before_tls_a_client_learns_nothing_and_what_it_sends_does_not_count_after() {
    let test = "before_tls_a_client_learns_nothing_and_what_it_sends_does_not_count_after";
    if !all_here(test, &[PROGRAM, "nbdinfo"]) {
        return;
    }
    let it = Encrypted::new("[nbd_limits]\nhandshake_s = 10\nconnections_per_peer = 32");
    // Something that was slipped in behind STARTTLS must not be taken for the TLS client's.
    let mut injected = it.connect();
    let both = [option(STARTTLS, b""), option(8, b"")].concat();
    injected.write_all(&both).expect("sent");
    assert_eq!((reply(&mut injected), rest(&mut injected)), (1, 0));
    // The event comes a moment after the end of the connection.
    while !it.world.ok(&["events", "--json"]).contains("bytes in clear text after STARTTLS") {
        std::thread::yield_now();
    }
    let mut polite = it.connect();
    for number in [LIST, 6, 7, 8, 9, 10, 11, 4242] {
        polite.write_all(&option(number, b"\0\0\0\x05tank0\0\0")).expect("sent");
        assert_eq!(reply(&mut polite), 1 << 31 | 5, "option {number} wants TLS first");
    }
    polite.write_all(&option(STARTTLS, b"x")).expect("sent");
    assert_eq!(reply(&mut polite), 1 << 31 | 3, "STARTTLS takes no data");
    polite.write_all(&option(ABORT, b"")).expect("sent");
    assert_eq!((reply(&mut polite), rest(&mut polite)), (1, 0));
    // The oldest way to open a volume has no reply that could refuse it.
    let mut old = it.connect();
    old.write_all(&option(1, b"tank0")).expect("sent");
    assert_eq!(rest(&mut old), 0);
    // Noise instead of TLS, and nothing at all: both end, the second with the handshake's time.
    let mut noisy = it.connect();
    noisy.write_all(&option(STARTTLS, b"")).expect("sent");
    assert_eq!(reply(&mut noisy), 1);
    noisy.write_all(&[0x55; 4096]).expect("sent");
    assert!(rest(&mut noisy) < 64, "an alert at most");
    let mut silent: Vec<TcpStream> = (0..7).map(|_| it.connect()).collect();
    for stream in &mut silent {
        stream.write_all(&option(STARTTLS, b"")).expect("sent");
        assert_eq!(reply(stream), 1);
        // A record that never comes to its end.
        stream.write_all(&[0x16, 3, 1, 0x3f, 0xff, 1]).expect("sent");
    }
    it.serves_its_client();
    assert!(silent.iter_mut().all(|stream| rest(stream) == 0));
    it.serves_its_client();
}

#[test]
fn a_flag_demands_tls_at_every_address_and_nothing_is_served_there_with_bad_files() {
    let test = "a_flag_demands_tls_at_every_address_and_nothing_is_served_there_with_bad_files";
    if !all_here(test, &[PROGRAM, "nbdinfo"]) {
        return;
    }
    let mut world = World::without_daemon();
    let ours = Authority::new(&world, "ours");
    let server = ours.folder("server");
    let address = format!("0.0.0.0:{}", own_port());
    let tls = server.display().to_string();
    let refused = |file: &str, why: &str| {
        let line = lacks(&["--nbd", &address, "--nbd-tls", &tls]);
        assert!(line.contains(&format!("NBD at {address}: ")), "{line}");
        assert!(line.contains(&format!("server/{file}: ")), "{line}");
        assert!(line.contains(why), "{line}");
    };
    refused("server-cert.pem", "No such file");
    ours.certify(&server, Role::Server);
    let spoil = |file: &str, content: &[u8], why: &str| {
        let path = server.join(file);
        let good = std::fs::read(&path).expect("read");
        std::fs::write(&path, content).expect("write");
        refused(file, why);
        std::fs::write(&path, good).expect("write");
    };
    for file in ["server-cert.pem", "ca-cert.pem"] {
        spoil(file, b"", "no certificate in PEM form");
        spoil(file, b"-----BEGIN CERTIFICATE-----\nAAAA\n", "not a file in PEM form");
        let junk = b"-----BEGIN CERTIFICATE-----\nAAAAAAAA\n-----END CERTIFICATE-----\n";
        spoil(file, junk, "cannot be used");
    }
    let locked =
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    spoil("server-key.pem", locked, "without a passphrase");
    let other = ours.folder("other");
    ours.certify(&other, Role::Server);
    let other = std::fs::read(other.join("server-key.pem")).expect("read");
    spoil("server-key.pem", &other, "not the key of the certificate in");
    let key = server.join("server-key.pem");
    let allow = |mode| {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).expect("its own");
    };
    for mode in [0o640, 0o604, 0o620, 0o666] {
        allow(mode);
        refused("server-key.pem", "others may read or change this key");
    }
    allow(0o400);
    world.start(&["--nbd", &address, "--nbd-tls", "server"]);
    world.create("tank0", 4, &["--level", "5"]);
    is_refused("nbdinfo", &["--size", &world.uri("tank0")]);
    let client = world.path("server");
    ours_client(&world, &client);
    let (_, port) = address.rsplit_once(':').expect("a port");
    let uri = format!("nbds://localhost:{port}/tank0?tls-certificates={}", client.display());
    run("nbdinfo", &["--size", &uri]);
}

fn ours_client(world: &World, folder: &Path) {
    Authority::again(world, "ours").certify(folder, Role::Client);
}
