//! NBD through TLS with bytes changed on their way to the server, in and after the handshake.
//!
//! What must stay true: nothing is answered in clear text, a session ends with one event at most,
//! and the others go on.

use crate::certificates::PROGRAM;
use crate::encrypted::{Encrypted, attempt};
use crate::tools::all_here;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Bytes that a client says in clear text before it begins TLS: its flags, and STARTTLS.
const CLEAR_UP: usize = 4 + 16;

/// What the server says meanwhile: its greeting, and that TLS may begin.
const CLEAR_DOWN: usize = 18 + 20;

/// Sessions whose bytes are changed: the first half somewhere in the handshake, the others
/// anywhere.
const CHANGED_SESSIONS: u64 = 60;

/// What is done to the bytes on their way to the server, from one of them on.
#[derive(Clone, Copy, Debug)]
enum Change {
    Flipped(u8),
    Overwritten([u8; 5]),
    Inserted([u8; 5]),
    Doubled,
    CutOff,
}

/// SplitMix64.
fn drawn(seed: u64, purpose: u64) -> u64 {
    let mixed = (seed * 8 + purpose).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// What seed `seed` does, and at which byte of what follows STARTTLS.
fn change(seed: u64) -> (usize, Change) {
    let span = if seed < CHANGED_SESSIONS / 2 { 400 } else { 2500 };
    let five = [0, 1, 2, 3, 4].map(|at: usize| drawn(seed, 2).to_le_bytes()[at]);
    let change = match drawn(seed, 1) % 8 {
        0..=2 => Change::Flipped(1 << (five[0] % 8)),
        3 => Change::Overwritten(five),
        4 => Change::Inserted(five),
        5 => Change::Doubled,
        6 => Change::Overwritten([0x17, 3, 3, 0x40, 0]),
        _ => Change::CutOff,
    };
    (usize::try_from(drawn(seed, 0) % span).expect("small"), change)
}

/// Carry one connection to the server, changed on its way; what the server said, and whether
/// anything was changed.
fn carry(client: TcpStream, server: TcpStream, (at, change): (usize, Change)) -> (Vec<u8>, bool) {
    let (mut from, mut to) =
        (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
    let up = std::thread::spawn(move || {
        let (mut seen, mut is_changed, at) = (0, false, CLEAR_UP + at);
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let mut bytes = buffer[..count].to_vec();
            if (seen..seen + count).contains(&at) {
                is_changed = true;
                let here = at - seen;
                match change {
                    Change::Flipped(bit) => bytes[here] ^= bit,
                    Change::Overwritten(five) => {
                        let end = bytes.len().min(here + 5);
                        bytes[here..end].copy_from_slice(&five[..end - here]);
                    }
                    Change::Inserted(five) => drop(bytes.splice(here..here, five)),
                    Change::Doubled => bytes.extend_from_within(here..),
                    Change::CutOff => bytes.truncate(here),
                }
            }
            seen += count;
            let is_sent = to.write_all(&bytes).is_ok();
            if !is_sent || is_changed && matches!(change, Change::CutOff) {
                break;
            }
        }
        let _gone = to.shutdown(std::net::Shutdown::Write);
        is_changed
    });
    let (mut said, mut server, mut client) = (Vec::new(), server, client);
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = server.read(&mut buffer) {
        said.extend(&buffer[..count]);
        // It may have heard enough.
        let _gone = client.write_all(&buffer[..count]);
    }
    let _gone = client.shutdown(std::net::Shutdown::Both);
    (said, up.join().expect("no panic"))
}

/// Everything after the last clear word is records of TLS, as they look from outside.
fn is_sealed(said: &[u8]) -> bool {
    let mut rest = said.get(CLEAR_DOWN..).unwrap_or_default();
    while let [kind, 3, 3, high, low, after @ ..] = rest {
        let bytes = usize::from(u16::from_be_bytes([*high, *low]));
        if !(0x14..=0x17).contains(kind) || bytes > (16 << 10) + 256 || bytes > after.len() {
            return false;
        }
        rest = &after[bytes..];
    }
    rest.is_empty()
}

#[test]
fn bytes_changed_on_the_way_end_the_session_with_one_event_and_no_answer_in_clear_text() {
    let test =
        "bytes_changed_on_the_way_end_the_session_with_one_event_and_no_answer_in_clear_text";
    if !all_here(test, &[PROGRAM, "nbdinfo"]) {
        return;
    }
    let it = Encrypted::new("[nbd_limits]\nhandshake_s = 10");
    it.serves_its_client();
    let events = || it.world.ok(&["events", "--json"]);
    // Equal ones are counted: the first is told at once, the others together.
    let dropped = || {
        let events = events();
        let lines = events.lines().filter(|line| line.contains("client.dropped"));
        let count = |line: &str| {
            let counted =
                line.split_once("\"count\":\"").and_then(|(_, rest)| rest.split_once('"'));
            counted.map_or(Ok(1), |(count, _)| count.parse::<u64>())
        };
        lines.map(|line| count(line).expect("a number")).sum::<u64>()
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let way = listener.local_addr().expect("it has one").port();
    let uri = format!("nbds://localhost:{way}/tank0?tls-certificates={}", it.client.display());
    let (mut changed, mut ended, mut cut_off) = (0, 0, 0);
    for seed in 0..CHANGED_SESSIONS {
        let (what, uri) = (change(seed), uri.clone());
        let client = std::thread::spawn(move || attempt("nbdinfo", &["--size", &uri]));
        let (stream, _) = listener.accept().expect("a client");
        let server = TcpStream::connect(("127.0.0.1", it.port)).expect("it listens");
        let (said, is_changed) = carry(stream, server, what);
        let output = client.join().expect("no panic");
        assert!(is_sealed(&said), "seed {seed}, {what:?}: {} bytes of the server", said.len());
        // Behind its last word a client no longer cares.
        changed += u64::from(is_changed);
        cut_off += u64::from(matches!(what.1, Change::CutOff));
        ended += u64::from(!output.status.success());
    }
    println!("{changed} of {CHANGED_SESSIONS} sessions were changed, {ended} of them ended");
    assert!(changed > CHANGED_SESSIONS / 2 && ended > CHANGED_SESSIONS / 4, "{changed}, {ended}");
    // Who is cut off between two messages has left, and is no event.
    // The last one may be told of a moment after its socket is closed.
    let told = (0..6000).map(|_| dropped()).find(|told| told + cut_off >= ended);
    let told = told.unwrap_or_else(dropped);
    assert!(told + cut_off >= ended && told <= changed, "{told} told: {changed}, {ended}");
    it.serves_its_client();
    let why = events();
    assert!(why.contains("no TLS session"), "{why}");
}
