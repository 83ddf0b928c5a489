//! Bodies of requests from a seed: honest ones with some of their bytes, names and values changed.
//!
//! What must stay true: some are understood and most are refused, and both are counted. How many:
//! `MUTATIONS`, or some seconds' worth.

#[path = "../../../fuzz/corpus.rs"]
mod corpus;
#[path = "hostile/parse.rs"]
mod parse;

use fastrand::Rng;

const HONEST: [&str; 9] = [
    r#"{"name": "tank0", "level": "6", "devices": ["a", "b", "c", "d"], "strip_bytes": 65536}"#,
    concat!(
        r#"{"name": "t", "level": "n+m", "parity": 2, "devices": ["a"], "#,
        r#""policy": "log", "dry_run": true}"#
    ),
    r#"{"devices": ["a", "b"], "read_only": true}"#,
    r#"{"array": "tank0", "force": true}"#,
    r#"{"array": "tank0", "member": "3"}"#,
    r#"{"array": "tank0", "member": "3", "device": "/dev/sdk"}"#,
    r#"{"listen": "unix:/run/a.sock", "trusted_network": false}"#,
    r#"{"array": "tank0", "repair": true}"#,
    r#"{"array": "tank0"}"#,
];

const TOKENS: [&str; 16] = [
    "null",
    "-1",
    "1e999",
    "18446744073709551616",
    "[]",
    "{}",
    "\"\"",
    "true",
    "[[[[",
    "}",
    "\\u0000",
    "\\ud800",
    "\u{fffd}",
    "\"force\"",
    "65535",
    "0.5",
];

#[test]
fn hostile_bodies_are_refused_or_understood() {
    let wanted = std::env::var("MUTATIONS").ok().and_then(|text| text.parse().ok());
    let count: u64 = wanted.unwrap_or(20_000);
    let mut understood = 0;
    for number in 0..count {
        let mut chance = Rng::with_seed(number);
        let mut body = HONEST[chance.usize(..HONEST.len())].as_bytes().to_vec();
        for _ in 0..chance.usize(..4) {
            let at = chance.usize(..body.len());
            match chance.usize(..4) {
                0 => body[at] ^= 1 << chance.usize(..8),
                1 => drop(body.remove(at)),
                2 => {
                    let token = TOKENS[chance.usize(..TOKENS.len())];
                    body.splice(at..at, token.bytes());
                }
                _ => {
                    let other = HONEST[chance.usize(..HONEST.len())].as_bytes();
                    body.truncate(at);
                    body.extend(&other[chance.usize(..other.len())..]);
                }
            }
        }
        corpus::keep("control_body", (0, number), &body);
        let parsed = std::panic::catch_unwind(|| parse::body(&body));
        let kinds = parsed.unwrap_or_else(|_| panic!("input {number}"));
        understood += u64::from(kinds > 0);
    }
    assert!(understood > count / 10 && understood < count * 9 / 10, "{understood} of {count}");
    assert!(HONEST.iter().filter(|text| parse::body(text.as_bytes()) > 0).count() > 6);
    // Deep nesting is a classic; the parser's own bound must hold.
    assert_eq!(parse::body("[".repeat(200_000).as_bytes()), 0);
}
