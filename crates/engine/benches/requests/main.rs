//! What requests cost in instructions: carries out so many of one kind on an engine of one worker,
//! in virtual time, on members that cost next to nothing.
//!
//! What must stay true: the same arguments take the same instructions. So there is one thread, no
//! clock and no seed from outside. The count of one request is the difference of two runs with
//! different numbers of requests; start and end cancel out.
//!
//! ```text
//! cargo bench -p ashlar-engine --bench requests -- --gate    held to instructions.txt
//! cargo bench -p ashlar-engine --bench requests -- --count   in the form of that file
//! cargo bench -p ashlar-engine --bench requests -- --workers on two workers against one
//! valgrind --tool=callgrind target/release/deps/requests-HASH write 4000
//! ```
//!
//! Without arguments every kind is carried out a few times, to show that it runs.
//!
//! - `kinds`    which requests, on which array
//! - `members`  what the arrays lie on
//! - `gate`     counts instructions and compares them

mod gate;
mod kinds;
mod members;

use kinds::{Kind, Setting, carry_out};

/// Requests of each kind in a run that only shows that it runs.
const TINY: u64 = 64;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--gate"] => gate::gate(),
        ["--count"] => gate::print_counts(),
        ["--workers"] => gate::print_on_two_workers(),
        [kind, count] => {
            let count = count.parse().expect("a number of requests");
            carry_out(Kind::named(kind), Setting::of(count));
        }
        [kind, count, "--two-workers"] => {
            let count = count.parse().expect("a number of requests");
            carry_out(Kind::named(kind), Setting { workers: 2, ..Setting::of(count) });
        }
        [kind, count, "--planted"] => {
            let count = count.parse().expect("a number of requests");
            let planted = Some(members::PLANTED_STEPS);
            carry_out(Kind::named(kind), Setting { planted, ..Setting::of(count) });
        }
        // `cargo test --all-targets` calls it with options of its own.
        _ => Kind::ALL.iter().for_each(|kind| carry_out(*kind, Setting::of(TINY))),
    }
}
