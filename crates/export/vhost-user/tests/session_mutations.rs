//! What frontends say and their guests put into memory, from a seed: honest sessions with steps
//! left out, doubled and swapped, and some of their bytes changed. One of them comes back with
//! requests that a backend which is gone had left.
//!
//! What must stay true: many come as far as requests, some are dropped, and requests that were left
//! are carried out; all are counted. How many: `MUTATIONS`, or some seconds' worth. `fuzz/` hands
//! the same function to libFuzzer.

use ashlar_vhost_user::hostile::{ENTRIES, Heard, MEMORY_AT, MEMORY_BYTES, descriptor, hear, step};
use fastrand::Rng;

#[path = "../../../../fuzz/corpus.rs"]
mod corpus;

/// Where the frontend has the memory, and where in it the parts of a ring and its requests are.
const USER_AT: u64 = 0x7f00_0000_0000;
const AVAILABLE: u16 = 0x200;
const USED: u16 = 0x400;
const HEADS: u16 = 0x600;
const DATA: u16 = 0x1000;

const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// Version 1, protocol, indirect tables, flush, cache mode.
const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 28 | 1 << 9 | 1 << 11;
/// Several rings, replies, notices, configuration, requests under way.
const PROTOCOL: u64 = 1 | 1 << 3 | 1 << 5 | 1 << 9 | 1 << 12;

fn mutations() -> u64 {
    let wanted = std::env::var("MUTATIONS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(30_000)
}

fn say(kind: u8, request: u32, content: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(content.len()).expect("short");
    let header = [request, 1, bytes].map(u32::to_ne_bytes).concat();
    [&[kind][..], &header, content].concat()
}

fn put(kind: u8, at: u16, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).expect("short");
    [&[kind][..], &at.to_ne_bytes(), &[length], bytes].concat()
}

fn ring(request: u32, number: u32) -> Vec<u8> {
    say(step::SAY, request, &[0, number].map(u32::to_ne_bytes).concat())
}

fn user(at: u16) -> u64 {
    USER_AT + u64::from(at)
}

/// Features, memory, and memory for requests under way.
fn introduction() -> Vec<Vec<u8>> {
    let region = [MEMORY_AT, MEMORY_BYTES.into(), USER_AT, 0].map(u64::to_ne_bytes).concat();
    let table = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &region].concat();
    let place = |bytes: u64| {
        let numbers = [bytes, 0].map(u64::to_ne_bytes).concat();
        [&numbers[..], &1_u16.to_ne_bytes(), &ENTRIES.to_ne_bytes()].concat()
    };
    vec![
        say(step::SAY, 1, &[]),
        say(step::SAY, 15, &[]),
        say(step::SAY, 16, &PROTOCOL.to_ne_bytes()),
        say(step::SAY, 17, &[]),
        say(step::SAY, 3, &[]),
        say(step::SAY, 2, &FEATURES.to_ne_bytes()),
        say(step::SAY, 24, &[&[0, 60, 0].map(u32::to_ne_bytes).concat()[..], &[0; 60]].concat()),
        say(step::SAY_WITH_MEMORY, 5, &table),
        say(step::SAY, 31, &place(0)),
        say(step::SAY_WITH_IN_FLIGHT, 32, &place(320)),
    ]
}

/// A ring with a read, a write and a flush, of which so many are offered.
fn requests(offered: u16) -> Vec<Vec<u8>> {
    let at = |place: u16| MEMORY_AT + u64::from(place);
    let head = |kind: u32, sector: u64| {
        let kind = [kind, 0].map(u32::to_le_bytes).concat();
        [&kind[..], &sector.to_le_bytes()].concat()
    };
    let heads = [head(0, 8), head(1, 16), head(4, 0)].concat();
    let table = [
        descriptor(at(HEADS), 16, (NEXT, 1)),
        descriptor(at(DATA), 512, (NEXT | WRITE, 2)),
        descriptor(at(HEADS + 64), 1, (WRITE, 0)),
        descriptor(at(HEADS + 16), 16, (NEXT, 4)),
        descriptor(at(DATA + 512), 512, (NEXT, 5)),
        descriptor(at(HEADS + 65), 1, (WRITE, 0)),
        descriptor(at(HEADS + 32), 16, (NEXT, 7)),
        descriptor(at(HEADS + 66), 1, (WRITE, 0)),
    ];
    let available = [0, offered, 0, 3, 6].map(u16::to_le_bytes).concat();
    let mut steps = vec![put(step::PUT, HEADS, &heads), put(step::PUT, AVAILABLE, &available)];
    steps.push(put(step::PUT, 0, &table.concat()));
    steps
}

fn start() -> Vec<Vec<u8>> {
    let places = [user(0), user(USED), user(AVAILABLE), 0].map(u64::to_ne_bytes).concat();
    let addresses = [[0; 8].to_vec(), places].concat();
    vec![
        ring(8, ENTRIES.into()),
        ring(10, 0),
        say(step::SAY, 9, &addresses),
        say(step::SAY_WITH_EVENTS, 13, &[0; 8]),
        say(step::SAY_WITH_EVENTS, 12, &[0; 8]),
        ring(18, 1),
    ]
}

fn more(offered: u16) -> Vec<Vec<u8>> {
    vec![put(step::PUT, AVAILABLE + 2, &offered.to_le_bytes()), vec![step::KICK]]
}

/// A frontend of a new guest.
fn fresh() -> Vec<Vec<u8>> {
    [introduction(), requests(1), start(), more(3), vec![ring(11, 0)]].concat()
}

/// A frontend whose backend went with the write under way, after it had answered the read.
fn returned() -> Vec<Vec<u8>> {
    let mut introduction = introduction();
    let brings = introduction.pop().expect("it brings the memory back");
    let numbers = [1, ENTRIES, 0, 1].map(u16::to_ne_bytes).concat();
    let left = [
        put(step::PUT_IN_FLIGHT, 8, &numbers),
        put(step::PUT_IN_FLIGHT, 16 + 3 * 16, &[&[1, 0, 0, 0, 0, 0, 0, 0][..], &[9; 8]].concat()),
        put(step::PUT, USED + 2, &1_u16.to_le_bytes()),
    ];
    let parts = [introduction, left.to_vec(), vec![brings], requests(2), start(), more(3)];
    [parts.concat(), vec![ring(11, 0)]].concat()
}

fn changed(mut steps: Vec<Vec<u8>>, rng: &mut Rng) -> Vec<u8> {
    match rng.usize(..8) {
        0 => drop(steps.remove(rng.usize(..steps.len()))),
        1 => {
            let (one, other) = (rng.usize(..steps.len()), rng.usize(..steps.len()));
            steps.swap(one, other);
        }
        2 => steps.insert(rng.usize(..steps.len()), steps[rng.usize(..steps.len())].clone()),
        _ => {}
    }
    for _ in 0..rng.usize(..4) {
        let step = rng.usize(..steps.len());
        let bytes = &mut steps[step];
        // Headers that claim another length end most sessions: aim behind them.
        let from = if rng.u8(..4) > 0 { bytes.len().min(13) } else { 0 };
        if from == bytes.len() {
            continue;
        }
        let at = rng.usize(from..bytes.len());
        match rng.usize(..3) {
            0 => bytes[at] ^= 1 << rng.usize(..8),
            1 => bytes[at] = rng.u8(..),
            _ => {
                let to = bytes.len().min(at + (1 << rng.usize(..4)));
                bytes[at..to].fill(if rng.bool() { 0 } else { 0xFF });
            }
        }
    }
    steps.concat()
}

#[test]
fn hostile_frontends_are_heard_without_harm() {
    let sessions = [fresh(), returned()];
    let whole = sessions.each_ref().map(|steps| hear(&steps.concat()));
    for (heard, repeated) in whole.iter().zip([0, 1]) {
        assert!(!heard.is_dropped && heard.obeyed >= 17 && heard.queues > 0, "{heard:?}");
        assert_eq!((heard.requests, heard.repeated), (3 - repeated, repeated), "{heard:?}");
    }
    let (mut dropped, mut sum) = (0, Heard::default());
    let mut rng = Rng::with_seed(0);
    for number in 0..mutations() {
        let session = rng.choice(&sessions).expect("some").clone();
        let input = changed(session, &mut rng);
        corpus::keep("vhost_session", (0, number), &input);
        let heard = std::panic::catch_unwind(|| hear(&input));
        let heard = heard.unwrap_or_else(|_| panic!("input {number}: {input:02x?}"));
        dropped += u64::from(heard.is_dropped);
        sum.queues += heard.queues;
        sum.requests += heard.requests;
        sum.repeated += heard.repeated;
    }
    let inputs = mutations();
    assert!(dropped > inputs / 10 && dropped < inputs * 9 / 10, "{dropped} of {inputs}");
    let counts = [sum.queues, sum.requests, sum.repeated].map(|count| count > inputs / 5);
    assert_eq!(counts, [true; 3], "{sum:?} of {inputs}");
}
