//! Clients that mean harm: others at the control socket, connections that never get on, and what a reply carries besides
//! its data.
//!
//! What must stay true: the daemon under test is the real one, with its own limits; nothing here waits for a time to pass.

use crate::tools::{all_here, skipped};
use crate::world::World;
use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};

/// A user and a group of nobody who matters.
const STRANGER: &str = "65534";
const GROUP: u32 = 43_210;

/// The program as a stranger with these further groups.
fn as_stranger(world: &World, groups: &[&str], arguments: &[&str]) -> Output {
    let program = world.path("ashlar");
    if !program.exists() {
        std::fs::copy(env!("CARGO_BIN_EXE_ashlar"), &program).expect("room for a copy");
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
    assert!(line.contains("Permission denied"), "{line}");

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
    // Each holds all that somebody may hold who has not chosen a volume: an option that never comes to its end.
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
    let still_there = held.iter().filter(|stream| is_open(stream)).count();
    assert!((1..=257).contains(&still_there), "{still_there} are half open");
    let each = most.saturating_sub(memory) / 256;
    println!(
        "{} KiB more for 256 half-open connections, {each} bytes each",
        (most - memory.min(most)) >> 10
    );
    // Each may hold 16 KiB of an option and 2 KiB that were received; the rest is the session itself, and what the
    // allocator keeps of connections that were ended.
    assert!(each <= 64 << 10, "{each} bytes for each half-open connection");
}

/// Whether the server has not closed the connection.
fn is_open(stream: &UnixStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    let mut stream = stream;
    matches!(stream.read(&mut [0; 64]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

/// What a debug build fills every buffer with that comes back to a pool.
const POISON: u8 = 0xDB;

/// A client in the transmission phase that keeps an eye on every byte it gets.
struct Tap {
    stream: UnixStream,
    is_structured: bool,
}

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

impl Tap {
    /// Open the only volume, with structured replies and a map of what is allocated or with simple replies.
    fn open(world: &World, is_structured: bool) -> Tap {
        let stream = UnixStream::connect(world.path("nbd.sock")).expect("connect");
        let mut tap = Tap { stream, is_structured };
        tap.take(18);
        tap.stream.write_all(&[0, 0, 0, 3]).expect("send");
        if is_structured {
            tap.option(8, b"");
            tap.option(10, b"\0\0\0\x05tank0\0\0\0\x01\0\0\0\x0fbase:allocation");
        }
        tap.option(7, b"\0\0\0\x05tank0\0\0");
        tap
    }

    /// Bytes of the server, none of them out of an old buffer.
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut taken = vec![0; bytes];
        self.stream.read_exact(&mut taken).expect("the server goes on");
        let is_old = taken.windows(4).any(|window| window == [POISON; 4]);
        assert!(!is_old, "a reply carries what a buffer held before");
        taken
    }

    /// Send an option and take all replies to it.
    fn option(&mut self, number: u32, data: &[u8]) {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(number.to_be_bytes());
        bytes.extend(u32::try_from(data.len()).expect("short").to_be_bytes());
        bytes.extend(data);
        self.stream.write_all(&bytes).expect("send");
        loop {
            let head = self.take(20);
            self.take(usize::try_from(word(&head[16..])).expect("small"));
            match word(&head[12..16]) {
                1 => return,
                kind => assert!(kind < 1 << 31, "option {number} was refused: {kind:x}"),
            }
        }
    }

    /// Send a request and take its whole reply: its data, or an error number.
    fn ask(
        &mut self,
        kind: u16,
        (offset, bytes): (u64, u32),
        payload: &[u8],
    ) -> Result<Vec<u8>, u32> {
        let mut head = 0x2560_9513_u32.to_be_bytes().to_vec();
        head.extend(0_u16.to_be_bytes());
        head.extend(kind.to_be_bytes());
        head.extend(7_u64.to_be_bytes());
        head.extend(offset.to_be_bytes());
        head.extend(bytes.to_be_bytes());
        head.extend(payload);
        self.stream.write_all(&head).expect("send");
        if !self.is_structured {
            let reply = self.take(16);
            return match word(&reply[4..8]) {
                0 if kind == READ => Ok(self.take(usize::try_from(bytes).expect("small"))),
                0 => Ok(Vec::new()),
                error => Err(error),
            };
        }
        let (mut data, mut error) = (Vec::new(), None);
        loop {
            let head = self.take(4);
            if word(&head) == 0x6744_6698 {
                let rest = self.take(12);
                return if word(&rest) == 0 { Ok(data) } else { Err(word(&rest)) };
            }
            assert_eq!(word(&head), 0x668e_33ef);
            let head = self.take(16);
            let content = self.take(usize::try_from(word(&head[12..])).expect("small"));
            match u16::from_be_bytes([head[2], head[3]]) {
                1 => data.extend(&content[8..]),
                2 => data
                    .resize(data.len() + usize::try_from(word(&content[8..])).expect("small"), 0),
                kind if kind >= 1 << 15 => error = error.or(Some(word(&content))),
                _ => {}
            }
            if head[1] & 1 != 0 {
                return error.map_or(Ok(data), Err);
            }
        }
    }

    fn read(&mut self, offset: u64, bytes: u32) -> Result<Vec<u8>, u32> {
        self.ask(READ, (offset, bytes), &[])
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let bytes = u32::try_from(data.len()).expect("small");
        self.ask(WRITE, (offset, bytes), data).expect("written");
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"))
}

/// Where the test writes, and how much: whole stripes and parts of them.
const WRITTEN: [(u64, usize, u8); 6] = [
    (0, 4096, 1),
    (20 << 10, 4096, 2),
    (1 << 20, 1 << 20, 3),
    (5 << 20, 96 << 10, 4),
    (9 << 20, 3 << 20, 5),
    (16 << 20, 64 << 10, 6),
];

/// Read and ask for everything there is in all ways; what is written must be there, what is not must be zeros. How many
/// requests were answered with errors.
fn everything(tap: &mut Tap, volume_bytes: u64, may_fail: bool) -> u32 {
    let mut errors = 0;
    for (offset, bytes, value) in WRITTEN {
        match tap.read(offset, u32::try_from(bytes).expect("small")) {
            Ok(data) => assert!(data.iter().all(|byte| *byte == value), "{value} is there"),
            Err(_) => errors += 1,
        }
    }
    for (offset, bytes) in
        [(0, 1 << 20), (4096, 4096), (40 << 20, 4096), (33 << 20, 3 << 20), (9 << 20, 2 << 20)]
    {
        errors += u32::from(tap.read(offset, bytes).is_err());
    }
    assert!(may_fail || errors == 0, "{errors} reads failed");
    // Beyond the end, no request at all, a write and a read longer than there is.
    let beyond =
        [(READ, (volume_bytes, 4096)), (99, (0, 4096)), (TRIM, (volume_bytes - 512, 8192))];
    for (kind, extent) in beyond {
        tap.ask(kind, extent, &[]).expect_err("impossible");
    }
    tap.ask(WRITE, (volume_bytes - 512, 1024), &[9; 1024]).expect_err("beyond the end");
    if tap.is_structured {
        let bytes = u32::try_from(volume_bytes.min(1 << 30)).expect("small");
        tap.ask(BLOCK_STATUS, (0, bytes), &[]).expect("a map");
    }
    errors
}

#[test]
fn no_reply_carries_what_a_buffer_held_before() {
    let test = "no_reply_carries_what_a_buffer_held_before";
    if !cfg!(debug_assertions) {
        return skipped(test, "only debug builds fill buffers that come back with poison");
    }
    let world = World::new();
    world.create("tank0", 5, &["--level", "6"]);
    let volume_bytes = world.array()["volume_bytes"].as_u64().expect("a size");
    let mut taps = [Tap::open(&world, false), Tap::open(&world, true)];
    // Buffers of all sizes are used, and have the poison in them when they are used again.
    for (offset, bytes, value) in WRITTEN {
        taps[0].write(offset, &vec![value; bytes]);
    }
    for tap in &mut taps {
        everything(tap, volume_bytes, false);
        tap.ask(WRITE_ZEROES, (9 << 20, 1 << 20), &[]).expect("zeroed");
        tap.ask(TRIM, (10 << 20, 1 << 20), &[]).expect("trimmed");
        let data = tap.read(9 << 20, 1 << 20).expect("zeros");
        assert!(data.iter().all(|byte| *byte == 0));
        let data = tap.read(10 << 20, 1 << 20).expect("trimmed");
        assert!(data.iter().all(|byte| *byte == 0 || *byte == 5), "as before or zeros");
        tap.write(9 << 20, &vec![5; 3 << 20]);
        tap.ask(FLUSH, (0, 0), &[]).expect("flushed");
    }
    for slot in ["1", "3"] {
        world.ok(&["fail", "tank0", slot]);
        for tap in &mut taps {
            everything(tap, volume_bytes, false);
            tap.write(20 << 10, &[2; 4096]);
        }
    }
    // A third device is shorter than it was: reads of it come back short, and what is lost is an error.
    let data_offset = world.array()["data_offset"].as_u64();
    let short = data_offset.unwrap_or(2 << 20) + (256 << 10);
    File::options()
        .write(true)
        .open(world.path("m0"))
        .and_then(|it| it.set_len(short))
        .expect("shorter");
    let errors: u32 = taps.iter_mut().map(|tap| everything(tap, volume_bytes, true)).sum();
    assert!(errors > 0, "something is lost with three of five");
}

/// Read everything of a file in pieces of many sizes, past the end, too; no piece may hold poison, and what was written must
/// be there. How many pieces were answered with errors.
fn everything_of(file: &File, volume_bytes: u64) -> u32 {
    let mut errors = 0;
    let mut look = |offset: u64, bytes: usize, value: Option<u8>| {
        // Where the kernel has nothing of its own to give, the daemon's answer is all that can be seen.
        let mut page = Aligned::new(bytes);
        match file.read_at(page.bytes(), offset) {
            Err(_) => errors += 1,
            Ok(count) => {
                let got = &page.bytes()[..count];
                let is_old = got.windows(4).any(|window| window == [POISON; 4]);
                assert!(!is_old, "a read of {bytes} at {offset} carries what a buffer held before");
                let is_right = |byte: &u8| value.is_none_or(|value| *byte == value);
                assert!(got.iter().all(is_right), "{value:?} at {offset}");
            }
        }
    };
    for (offset, bytes, value) in WRITTEN {
        look(offset, bytes, Some(value));
    }
    for (offset, bytes, value) in [
        (0, 1 << 20, None),
        (4096, 4096, Some(0)),
        (40 << 20, 4096, Some(0)),
        (33 << 20, 3 << 20, Some(0)),
        (volume_bytes - 4096, 4096, Some(0)),
        (volume_bytes - 4096, 1 << 20, Some(0)),
        (volume_bytes, 4096, Some(0)),
    ] {
        look(offset, bytes, value);
    }
    errors
}

/// Memory that the kernel may fill without its cache.
struct Aligned {
    bytes: Vec<u8>,
    from: usize,
    count: usize,
}

impl Aligned {
    fn new(count: usize) -> Aligned {
        let bytes = vec![0x77; count + 4096];
        let from = bytes.as_ptr().align_offset(4096);
        Aligned { bytes, from, count }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.count]
    }
}

fn open_direct(path: &str) -> File {
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).expect("a small flag");
    File::options().read(true).write(true).custom_flags(direct).open(path).expect("attached")
}

#[test]
fn no_read_through_fuse_carries_what_a_buffer_held_before() {
    let test = "no_read_through_fuse_carries_what_a_buffer_held_before";
    if !cfg!(debug_assertions) {
        return skipped(test, "only debug builds fill buffers that come back with poison");
    }
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "needs root for a loop device");
    }
    if !all_here(test, &["losetup"]) {
        return;
    }
    for is_device in [false, true] {
        let world = World::new();
        world.create("tank0", 5, &["--level", "6"]);
        let volume_bytes = world.array()["volume_bytes"].as_u64().expect("a size");
        let attach: &[&str] =
            if is_device { &["attach", "tank0"] } else { &["attach", "--file", "tank0"] };
        let path = world.ok(attach).trim().to_owned();
        let file = open_direct(&path);
        let write = |offset: u64, bytes: usize, value: u8| {
            let mut page = Aligned::new(bytes);
            page.bytes().fill(value);
            file.write_all_at(page.bytes(), offset).expect("written");
        };
        // Buffers of all sizes are used, and have the poison in them when they are used again.
        WRITTEN.iter().for_each(|(offset, bytes, value)| write(*offset, *bytes, *value));
        assert_eq!(everything_of(&file, volume_bytes), 0);
        for slot in ["1", "3"] {
            world.ok(&["fail", "tank0", slot]);
            write(20 << 10, 4096, 2);
            assert_eq!(everything_of(&file, volume_bytes), 0);
        }
        // A third device is shorter than it was: what is lost is an error.
        let short = world.array()["data_offset"].as_u64().unwrap_or(2 << 20) + (256 << 10);
        let member = File::options().write(true).open(world.path("m0")).expect("a member");
        member.set_len(short).expect("shorter");
        assert!(everything_of(&file, volume_bytes) > 0, "something is lost with three of five");
        drop(file);
        world.ok(&["detach", "tank0"]);
    }
}
