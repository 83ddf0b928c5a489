//! A client of our own that breaks the rules: what the server must survive, and what it must give
//! back.

use crate::server::TestServer;
use ashlar_nbd::Limits;
use ashlar_nbd::wire::{Dialect, RequestFlags, RequestHead, encode_request};
use ashlar_session::SessionLimits;
use ashlar_volume::MemVolume;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const READ: u16 = 0;
const WRITE: u16 = 1;

struct Client(UnixStream);

impl Client {
    /// Connect and take the greeting.
    fn connect(server: &TestServer) -> Client {
        let stream = UnixStream::connect(server.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let mut client = Client(stream);
        assert_eq!(client.receive(18), b"NBDMAGICIHAVEOPT\0\x03");
        client
    }

    /// Enter the transmission phase in this dialect.
    fn transmit(server: &TestServer, dialect: Dialect) -> Client {
        let mut client = Client::connect(server);
        client.send(&[0, 0, 0, 3]);
        let first = match dialect {
            Dialect::Simple => None,
            Dialect::Structured => Some(8),
            Dialect::Extended => Some(11),
        };
        if let Some(option) = first {
            client.option(option, &[]);
            client.receive(20);
        }
        client.option(7, &[0; 6]);
        // One INFO reply with 12 bytes, and the ACK.
        client.receive(20 + 12 + 20);
        client
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    fn option(&mut self, number: u32, data: &[u8]) {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(number.to_be_bytes());
        bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        bytes.extend(data);
        self.send(&bytes);
    }

    fn request(&mut self, dialect: Dialect, type_code: u16, extent: (u64, u64), flags: u16) {
        let head = RequestHead {
            flags: RequestFlags(flags),
            type_code,
            cookie: 0xabcd,
            offset: extent.0,
            bytes: extent.1,
            payload_bytes: 0,
        };
        self.send(&encode_request(dialect, &head));
    }

    fn receive(&mut self, bytes: usize) -> Vec<u8> {
        let mut received = vec![0; bytes];
        self.0.read_exact(&mut received).unwrap();
        received
    }

    /// The server must close. A reset counts: it closed with our bytes unread.
    fn expect_end(mut self) {
        let mut rest = Vec::new();
        let end = self.0.read_to_end(&mut rest);
        let is_reset = end.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset);
        assert!(end.is_ok() || is_reset, "{end:?}");
    }
}

fn ends_with(server: TestServer, expected: &str) {
    server.until(|server| !server.ends.lock().unwrap().is_empty());
    let ends = server.ends.lock().unwrap().clone();
    assert!(ends.iter().all(|end| end.contains(expected)), "{ends:?} should be {expected}");
    server.stop();
}

#[test]
fn a_silent_client_is_dropped_in_the_handshake() {
    let limits = Limits::from(SessionLimits {
        handshake_time: Duration::from_millis(50),
        ..SessionLimits::default()
    });
    let server = TestServer::with_limits(limits, || vec![MemVolume::new("disk", MIB)]);
    Client::connect(&server).expect_end();
    ends_with(server, "in time");
}

#[test]
fn a_client_that_does_not_read_its_replies_is_dropped_and_holds_nothing() {
    let limits = Limits::from(SessionLimits {
        send_time: Duration::from_millis(50),
        ..SessionLimits::default()
    });
    let server = TestServer::with_limits(limits, || vec![MemVolume::new("disk", 8 * MIB)]);
    for dialect in [Dialect::Simple, Dialect::Structured] {
        let mut client = Client::transmit(&server, dialect);
        // More than the socket takes, so that a send is still under way when its time is over.
        for _ in 0..8 {
            client.request(dialect, READ, (0, MIB), 0);
        }
        server.until(|server| server.counters.sessions.open.load(Ordering::Relaxed) == 0);
        drop(client);
    }
    ends_with(server, "replies were not read in time");
}

#[test]
fn a_client_that_reads_slowly_but_reads_is_kept() {
    let limits = Limits::from(SessionLimits {
        send_time: Duration::from_secs(30),
        ..SessionLimits::default()
    });
    let server = TestServer::with_limits(limits, || vec![MemVolume::new("disk", 8 * MIB)]);
    let mut client = Client::transmit(&server, Dialect::Simple);
    for _ in 0..8 {
        client.request(Dialect::Simple, READ, (0, MIB), 0);
    }
    for _ in 0..8 {
        assert_eq!(client.receive(16)[4..8], [0; 4]);
        client.receive(1 << 20);
    }
    drop(client);
    ends_with(server, "HungUp");
}

#[test]
fn wrong_flags_and_wrong_option_magic_end_the_handshake() {
    let server = TestServer::with_disk(MIB);
    let mut client = Client::connect(&server);
    client.send(&[0, 0, 0, 7]);
    client.expect_end();
    let mut client = Client::connect(&server);
    client.send(b"\0\0\0\x03IHAVEOPU\0\0\0\x07\0\0\0\0");
    client.expect_end();
    ends_with(server, "the handshake was broken off");
}

#[test]
fn long_options_and_option_floods_end_the_handshake() {
    let server = TestServer::with_disk(MIB);
    let mut client = Client::connect(&server);
    client.send(b"\0\0\0\x03IHAVEOPT\0\0\0\x63\xff\xff\xff\xff");
    client.expect_end();
    let mut client = Client::connect(&server);
    client.send(&[0, 0, 0, 3]);
    for _ in 0..Limits::default().option_count_max {
        client.option(99, &[0; 3]);
        let reply = client.receive(20);
        let text_bytes = u32::from_be_bytes(reply[16..20].try_into().unwrap());
        client.receive(usize::try_from(text_bytes).unwrap());
    }
    client.expect_end();
    ends_with(server, "option");
}

#[test]
fn bytes_that_are_no_request_end_the_session() {
    let server = TestServer::with_disk(MIB);
    let mut client = Client::transmit(&server, Dialect::Simple);
    client.send(&[0x25; 28]);
    client.expect_end();
    ends_with(server, "not a request");
}

#[test]
fn a_payload_beyond_the_maximum_ends_the_session() {
    let server = TestServer::with_disk(MIB);
    let mut client = Client::transmit(&server, Dialect::Simple);
    client.request(Dialect::Simple, WRITE, (0, (32 << 20) + 4096), 0);
    client.expect_end();
    ends_with(server, "a payload of");
}

#[test]
fn a_client_that_leaves_within_a_payload_leaves_nothing_behind() {
    for sent in [0, 1, 4096, 1 << 20, (1 << 20) + 1, (3 << 20) - 1] {
        let server = TestServer::with_disk(4 * MIB);
        let mut client = Client::transmit(&server, Dialect::Structured);
        client.request(Dialect::Structured, WRITE, (0, 3 * MIB), 0);
        client.send(&vec![0x77; sent]);
        client.0.shutdown(Shutdown::Write).unwrap();
        client.expect_end();
        ends_with(server, "the connection failed");
    }
}

#[test]
fn a_payload_that_stalls_is_given_up() {
    let limits = Limits::from(SessionLimits {
        payload_time: Duration::from_millis(50),
        ..SessionLimits::default()
    });
    let server = TestServer::with_limits(limits, || vec![MemVolume::new("disk", MIB)]);
    let mut client = Client::transmit(&server, Dialect::Simple);
    client.request(Dialect::Simple, WRITE, (0, 4096), 0);
    client.send(&[1; 100]);
    client.expect_end();
    ends_with(server, "did not arrive in time");
}

#[test]
fn requests_before_a_half_close_are_still_answered() {
    let server = TestServer::with_disk(4 * MIB);
    let mut client = Client::transmit(&server, Dialect::Structured);
    for at in 0..4 {
        client.request(Dialect::Structured, READ, (at * MIB, MIB), 0);
    }
    client.0.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    client.0.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), 4 * (28 + (1 << 20)));
    ends_with(server, "HungUp");
}

#[test]
fn a_client_that_does_not_read_holds_no_more_than_its_limit() {
    let limits =
        Limits::from(SessionLimits { bytes_in_flight_max: 4 << 20, ..SessionLimits::default() });
    let server = TestServer::with_limits(limits, || vec![MemVolume::new("disk", 4 * MIB)]);
    let mut client = Client::transmit(&server, Dialect::Structured);
    for _ in 0..200 {
        client.request(Dialect::Structured, READ, (0, MIB), 0);
    }
    // The first piece blocks in the socket, three more are ready behind it, the fifth waits.
    server.until(|server| server.counters.reads.load(Ordering::Relaxed) >= 5);
    client.0.shutdown(Shutdown::Both).unwrap();
    drop(client);
    server.until(|server| !server.ends.lock().unwrap().is_empty());
    let submitted = server.submitted.load(Ordering::Relaxed);
    assert!(submitted <= 6, "{submitted} reads of 1 MiB were started");
    ends_with(server, "the connection failed");
}

#[test]
fn a_client_that_neither_reads_nor_closes_is_drained_in_bounded_time() {
    let limits = Limits::from(SessionLimits {
        drain_time: Duration::from_millis(50),
        ..SessionLimits::default()
    });
    let server = TestServer::with_limits(limits, || vec![MemVolume::new("disk", 4 * MIB)]);
    let mut client = Client::transmit(&server, Dialect::Structured);
    for _ in 0..8 {
        client.request(Dialect::Structured, READ, (0, MIB), 0);
    }
    client.request(Dialect::Structured, 2, (0, 0), 0);
    server.until(|server| !server.ends.lock().unwrap().is_empty());
    drop(client);
    ends_with(server, "Disconnected");
}

#[test]
fn a_server_that_stops_ends_its_sessions_whatever_they_do() {
    let server = TestServer::with_disk(4 * MIB);
    let mut in_handshake = Client::connect(&server);
    in_handshake.send(&[0, 0]);
    let idle = Client::transmit(&server, Dialect::Simple);
    let mut in_payload = Client::transmit(&server, Dialect::Structured);
    in_payload.request(Dialect::Structured, WRITE, (0, 3 * MIB), 0);
    in_payload.send(&[1; 5000]);
    let mut unread = Client::transmit(&server, Dialect::Structured);
    for _ in 0..40 {
        unread.request(Dialect::Structured, READ, (0, MIB), 0);
    }
    server.until(|server| server.counters.reads.load(Ordering::Relaxed) >= 17);
    let counters = server.counters.clone();
    server.stop_now();
    assert_eq!(counters.sessions.open.load(Ordering::Relaxed), 0);
    for client in [in_handshake, idle, in_payload, unread] {
        client.expect_end();
    }
}

#[test]
fn extended_headers_carry_reads_writes_and_maps() {
    let dialect = Dialect::Extended;
    let server = TestServer::with_disk(4 * MIB);
    let mut client = Client::connect(&server);
    client.send(&[0, 0, 0, 3]);
    client.option(11, &[]);
    client.receive(20);
    client.option(10, b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation");
    client.receive(20 + 4 + 15 + 20);
    client.option(7, &[0; 6]);
    client.receive(20 + 12 + 20);
    client.request(dialect, WRITE, (4096, 4096), 32);
    client.send(&[0x5a; 4096]);
    let reply = client.receive(32);
    assert_eq!(reply[..8], [0x6e, 0x8a, 0x27, 0x8c, 0, 1, 0, 0]);
    client.request(dialect, READ, (4096, 4096), 0);
    let reply = client.receive(32 + 8 + 4096);
    assert_eq!(reply[4..8], [0, 1, 0, 1]);
    assert_eq!(reply[32..40], 4096u64.to_be_bytes());
    assert!(reply[40..].iter().all(|byte| *byte == 0x5a));
    client.request(dialect, 7, (0, 4 * MIB), 0);
    let reply = client.receive(32 + 8 + 3 * 16);
    let words: Vec<u64> = reply[40..]
        .chunks_exact(8)
        .map(|word| u64::from_be_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(words, [4096, 3, 4096, 0, 4 * MIB - 8192, 3]);
    // A payload where none belongs is consumed, refused, and the session goes on.
    client.request(dialect, 4, (0, 4096), 32);
    client.send(&[0; 4096]);
    let reply = client.receive(32);
    assert_eq!(reply[6..8], [0x80, 1]);
    let text_bytes = usize::from(reply[31]);
    assert_eq!(client.receive(text_bytes)[..4], [0, 0, 0, 22]);
    client.request(dialect, 3, (0, 0), 0);
    assert_eq!(client.receive(32)[6..8], [0, 0]);
    drop(client);
    ends_with(server, "HungUp");
}

#[test]
fn headers_may_arrive_byte_by_byte() {
    let server = TestServer::with_disk(MIB);
    let mut client = Client::transmit(&server, Dialect::Simple);
    let head = RequestHead {
        flags: RequestFlags(0),
        type_code: WRITE,
        cookie: 5,
        offset: 0,
        bytes: 512,
        payload_bytes: 512,
    };
    let bytes = [encode_request(Dialect::Simple, &head), vec![9; 512]].concat();
    for byte in bytes.repeat(3) {
        client.send(&[byte]);
    }
    assert_eq!(client.receive(48)[8..16], 5u64.to_be_bytes());
    drop(client);
    ends_with(server, "HungUp");
}

#[test]
fn requests_may_be_split_at_every_byte() {
    let server = TestServer::with_disk(MIB);
    let mut client = Client::transmit(&server, Dialect::Simple);
    let head = |type_code, (cookie, offset), payload_bytes| {
        let (flags, bytes) = (RequestFlags(0), 512);
        let head = RequestHead { flags, type_code, cookie, offset, bytes, payload_bytes };
        encode_request(Dialect::Simple, &head)
    };
    let write = [head(WRITE, (1, 0), 512), vec![7; 512]].concat();
    let all = [write, head(READ, (2, 512), 0), head(READ, (3, 1024), 0)].concat();
    for split in 1..all.len() {
        let (front, back) = all.split_at(split);
        client.send(front);
        // Lets the server see the front alone, mostly.
        std::thread::yield_now();
        client.send(back);
        let mut cookies = Vec::new();
        for _ in 0..3 {
            let reply = client.receive(16);
            assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], "split at {split}");
            if reply[15] != 1 {
                assert_eq!(client.receive(512), [0; 512], "split at {split}");
            }
            cookies.push(reply[15]);
        }
        cookies.sort_unstable();
        assert_eq!(cookies, [1, 2, 3], "split at {split}");
    }
    drop(client);
    ends_with(server, "HungUp");
}
