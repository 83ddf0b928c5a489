//! How fast each kernel is, next to what the memory allows: `cargo bench -p ashlar-parity`.
//!
//! All kernels of a row run in turn on the same buffers, in slices of a few milliseconds, timed by
//! the thread's own CPU clock; a figure is the median of the slices, so other load on the machine
//! shifts it little. The ceiling is the same loads and stores without the arithmetic, by the best
//! of many loops; a subject that exceeds it by 5 % fails the bench. Figures are GB/s (10^9) of data
//! strips (for update: of new bytes). Strips are displaced by 1792 bytes from one another.
//!
//! `-- --peers` prints tables of our fastest kernel next to ISA-L (Debian's libisal2), and words
//! after it pick some of them, or another kernel; `-- --gate` fails when a kernel takes more
//! instructions; `-- update` (any word) runs the rows whose name contains it. `-- --test`, and
//! `cargo test`, which does not say `--bench`, time nothing: every cell runs once on small strips
//! and its answer is checked.

#[path = "kernels/ceiling.rs"]
mod ceiling;
#[path = "kernels/gate.rs"]
mod gate;
#[path = "../tests/isal/library.rs"]
mod isal;
#[path = "kernels/peers.rs"]
mod peers;
#[path = "kernels/ring.rs"]
mod ring;
#[path = "kernels/row.rs"]
mod row;
#[path = "kernels/steps.rs"]
mod steps;
#[path = "kernels/timing.rs"]
mod timing;
#[path = "kernels/verb.rs"]
mod verb;

use std::process::ExitCode;

use ashlar_parity::{Kernel, Locality};
use ring::{Placement, Ring};
use row::{Judge, cpu};
use verb::{Subject, Verb};

/// Slices for each subject of a row; their median is reported.
const ROUNDS: usize = 15;
/// More than the last-level cache of any machine that this is likely to run on.
const RING_BYTES: usize = 640 << 20;

/// One row of the table.
#[derive(Clone, Copy)]
struct Row {
    verb: Verb,
    data: usize,
    parity: usize,
    strip_bytes: usize,
    locality: Locality,
}

impl Row {
    fn name(&self) -> String {
        let Row { verb, data, parity, strip_bytes, locality } = self;
        format!("{} {data}+{parity} {} KiB {locality:?}", verb.name(), strip_bytes / 1024)
    }
}

fn rows() -> Vec<Row> {
    let row = |verb, (data, parity), kib: usize, locality| Row {
        verb,
        data,
        parity,
        strip_bytes: kib * 1024,
        locality,
    };
    let mut rows = Vec::new();
    for locality in [Locality::Cached, Locality::Streaming] {
        rows.extend(Verb::ALL.map(|verb| row(verb, (8, 2), 64, locality)));
    }
    let generate = |shape, kib| row(Verb::Generate, shape, kib, Locality::Cached);
    rows.extend([(8, 1), (16, 2), (8, 3), (8, 4), (8, 6)].map(|shape| generate(shape, 64)));
    rows.push(generate((8, 2), 4));
    rows
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let says = |word: &str| arguments.iter().any(|argument| argument == word);
    if says("--test") || !says("--bench") {
        return check_answers();
    }
    if says("--gate") {
        return gate::hold();
    }
    let words: Vec<&str> =
        arguments.iter().filter(|word| !word.starts_with("--")).map(String::as_str).collect();
    if says("--peers") {
        return peers::print_tables(&words).unwrap_or_else(|what| {
            eprintln!("{what}");
            ExitCode::FAILURE
        });
    }
    print_all_kernels(words.first().copied())
}

/// The rows whose names contain `filter`, by all kernels.
fn print_all_kernels(filter: Option<&str>) -> ExitCode {
    let kernels: Vec<Kernel> = Kernel::all().filter(|k| k.name() != "reference").collect();
    let mut judge = Judge::new(Kernel::best(), ROUNDS);
    println!("CPU: {}", cpu());
    println!(
        "GB/s of data, and share of the ceiling; median of {ROUNDS} slices of thread CPU time"
    );
    print!("{:38}{:>9}", "", "ceiling");
    kernels.iter().for_each(|kernel| print!("{:>18}", kernel.name()));
    println!();
    for row in rows() {
        if filter.is_none_or(|word| row.name().to_lowercase().contains(&word.to_lowercase())) {
            print_row(&row, &kernels, &mut judge);
        }
    }
    judge.verdict()
}

fn print_row(row: &Row, kernels: &[Kernel], judge: &mut Judge) {
    let bytes = if row.locality == Locality::Streaming { RING_BYTES } else { 0 };
    let mut memory = Vec::new();
    let shape = (row.data, row.parity);
    let mut ring = Ring::new(&mut memory, shape, row.strip_bytes, Placement::Coloured, bytes);
    // A check is timed on stripes that are consistent: the rest is the rare case.
    let sound = Subject::kernel(Verb::Generate, Kernel::best(), shape);
    ring.stripes().for_each(|stripe| sound.run(stripe, Locality::Cached));
    let subject = |&kernel: &Kernel| Subject::kernel(row.verb, kernel, shape);
    let subjects: Vec<Subject<'_>> = kernels.iter().map(subject).collect();
    let speeds = judge.measure(&row.name(), row.verb, &subjects, (&mut ring, row.locality));
    print!("{:38}{:>9.1}", row.name(), speeds.ceiling);
    for speed in speeds.subjects {
        print!("{:>11.1}{:>6.0}%", speed, 100.0 * speed / speeds.ceiling);
    }
    println!();
}

/// Every verb by every kernel gives the bytes that the reference gives.
fn check_answers() -> ExitCode {
    let mut wrong = 0;
    for row in rows() {
        let answer = |kernel: Kernel| {
            let mut memory = Vec::new();
            let shape = (row.data, row.parity);
            let mut ring = Ring::new(&mut memory, shape, 4096 + 64, Placement::Coloured, 0);
            let stripe = ring.next_stripe();
            Subject::kernel(row.verb, kernel, shape).run(stripe, row.locality);
            stripe.digest()
        };
        let reference = Kernel::by_name("reference").expect("the reference is always there");
        let expected = answer(reference);
        for kernel in Kernel::all().filter(|&kernel| answer(kernel) != expected) {
            println!("WRONG: {} by {kernel}", row.name());
            wrong += 1;
        }
    }
    println!("{} rows checked on {} kernels, {wrong} wrong", rows().len(), Kernel::all().count());
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
