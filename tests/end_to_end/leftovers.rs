//! What a reply carries besides its data: no byte that a buffer held before, over NBD and through
//! FUSE.
//!
//! What must stay true: a debug build fills every buffer that comes back to a pool, so that what is
//! left of it is seen.

use crate::tools::{all_here, skipped};
use crate::world::World;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;

/// What a debug build fills every buffer with that comes back to a pool.
const POISON: u8 = 0xDB;

/// A client in the transmission phase that keeps an eye on every byte it gets.
pub struct Tap {
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
    /// Open the only volume, with structured replies and a map of what is allocated or with simple
    /// replies.
    pub fn open(world: &World, is_structured: bool) -> Tap {
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

    pub fn read(&mut self, offset: u64, bytes: u32) -> Result<Vec<u8>, u32> {
        self.ask(READ, (offset, bytes), &[])
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
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

/// Read and ask for everything there is in all ways; what is written must be there, what is not
/// must be zeros. How many requests were answered with errors.
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
    // A third device is shorter than it was: reads of it come back short, and what is lost is an
    // error.
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

/// Read everything of a file in pieces of many sizes, past the end, too; no piece may hold poison,
/// and what was written must be there. How many pieces were answered with errors.
fn everything_of(file: &File, volume_bytes: u64) -> u32 {
    let mut errors = 0;
    let mut look = |offset: u64, bytes: usize, value: Option<u8>| {
        // Where the kernel has nothing of its own to give, the daemon's answer is all that can be
        // seen.
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
        let attach: &[&str] = if is_device {
            &["attach", "--via", "loop", "tank0"]
        } else {
            &["attach", "--file", "tank0"]
        };
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
