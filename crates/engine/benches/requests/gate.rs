//! `--gate`: fails when a request takes more instructions than its limit, and shows that a slow
//! step would be seen. `--count` prints what the file of limits is to hold.
//!
//! What must stay true: a count that falls below its limit is no failure, but is named, so that the
//! limit follows. A limit that a slow step of 400 additions for each member command does not
//! trip is no limit.

use crate::kinds::Kind;
use std::process::{Command, exit};
use std::thread;

/// The limits: `TIER KIND INSTRUCTIONS` in each line.
const LIMITS: &str = include_str!("../../instructions.txt");
/// What a count may be above its limit, in percent.
const MARGIN_PERCENT: u64 = 3;
/// Requests of the two runs whose difference counts. The first is warm by its end.
const FEW: u64 = 512;
const MANY: u64 = 1536;

/// The kind of processor whose instructions are counted. Valgrind shows programs one without
/// AVX-512, whatever there is.
const TIER: &str = if cfg!(target_arch = "x86_64") { "x86_64-avx2" } else { "aarch64" };

/// Hold every kind to its limit; the process ends with 1 if one does not hold.
pub fn gate() {
    let Some(counts) = counts(&[&[], &["--planted"]]) else { return };
    let mut wrong = 0;
    println!("{:<14} {:>8} {:>8} {:>8}", "request", "limit", "counted", "planted");
    for (kind, counted) in Kind::ALL.iter().zip(counts) {
        let limit = limit_of(kind.name);
        let [counted, planted] = counted[..] else { unreachable!("two were asked for") };
        let most = limit + limit * MARGIN_PERCENT / 100;
        let verdict = match (counted > most, planted > most) {
            (true, _) => "TOO MANY",
            (false, false) => "THE PLANTED STEP IS NOT SEEN",
            (false, true) if counted * 100 < limit * (100 - MARGIN_PERCENT) => {
                "ok, lower the limit"
            }
            (false, true) => "ok",
        };
        wrong += usize::from(!verdict.starts_with("ok"));
        println!("{:<14} {limit:>8} {counted:>8} {planted:>8}  {verdict}", kind.name);
    }
    println!("gate: {} kinds of requests, {wrong} wrong", Kind::ALL.len());
    if wrong != 0 {
        exit(1);
    }
}

/// Print the counts as the file of limits has them.
pub fn print_counts() {
    for (kind, counted) in Kind::ALL.iter().zip(counts(&[&[]]).unwrap_or_default()) {
        println!("{TIER} {} {}", kind.name, counted[0]);
    }
}

/// Print what a request takes on one worker and on two, and how many times one worker's rate two
/// have by that. The messages between workers are counted, and their caches are not.
pub fn print_on_two_workers() {
    println!("{:<14} {:>8} {:>8} {:>8}", "request", "one", "two", "rate");
    let counts = counts(&[&[], &["--two-workers"]]).unwrap_or_default();
    for (kind, counted) in Kind::ALL.iter().zip(counts) {
        let [one, two] = counted[..] else { unreachable!("two were asked for") };
        let hundredths = 200 * one / two.max(1);
        let rate = format!("{}.{:02}", hundredths / 100, hundredths % 100);
        println!("{:<14} {one:>8} {two:>8} {rate:>8}", kind.name);
    }
}

/// # Panics
/// If the file has no limit for the kind: every kind has one.
fn limit_of(kind: &str) -> u64 {
    let mut lines = LIMITS.lines().filter_map(|line| line.strip_prefix(TIER));
    let found = lines.find_map(|line| line.trim().strip_prefix(kind)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("instructions.txt has no limit for {TIER} {kind}"))
}

/// What is added to the arguments of a run.
type More = &'static [&'static str];

/// Instructions of one request of each kind, in each of these ways. `None` if they cannot be
/// counted here.
fn counts(ways: &[More]) -> Option<Vec<Vec<u64>>> {
    if let Err(error) = Command::new("valgrind").arg("--version").output() {
        println!("skipped: instructions are counted by valgrind, which cannot be run: {error}");
        return None;
    }
    if cfg!(target_arch = "x86_64") && ashlar_parity::Kernel::by_name("avx2").is_err() {
        println!("skipped: the counts are for CPUs with AVX2, which this one lacks");
        return None;
    }
    let counts = Kind::ALL.map(|kind| ways.iter().map(|more| one_request(kind, more)).collect());
    Some(counts.into())
}

fn one_request(kind: Kind, more: More) -> u64 {
    let few = thread::spawn(move || run(kind, FEW, more));
    let many = run(kind, MANY, more);
    let few = few.join().expect("the shorter run ended well");
    (many - few) / (MANY - FEW)
}

/// Instructions of a whole run.
fn run(kind: Kind, count: u64, more: More) -> u64 {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new("valgrind");
    // Without a file for the profile: the sum is all that is wanted.
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(program).args([kind.name, &count.to_string()]).args(more);
    let output = command.output().expect("valgrind runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} under valgrind: {said}", kind.name);
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let (_, collected) = collected.expect("callgrind says how many instructions there were");
    collected.trim().parse().expect("a number")
}
