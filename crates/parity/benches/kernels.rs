//! How fast each kernel is, next to what the memory allows: `cargo bench -p ashlar-parity`.
//!
//! All kernels of a row run in turn on the same buffers, in slices of a few milliseconds, timed by the
//! thread's own CPU clock; a figure is the median of the slices, so other load on the machine shifts it
//! little. The ceiling is the same loads and stores without the arithmetic. Figures are GB/s (10^9) of
//! data strips (for update: of new bytes). Strips are displaced by 1792 bytes from one another.
//!
//! `-- --test` runs every cell once on small strips and checks the answers; `-- update` (any word)
//! runs the rows whose name contains it.

#[path = "kernels/ceiling.rs"]
mod ceiling;
#[path = "kernels/ring.rs"]
mod ring;
#[path = "kernels/verb.rs"]
mod verb;

use std::process::ExitCode;

use ashlar_parity::{Kernel, Locality};
use ring::Ring;
use rustix::time::{ClockId, clock_gettime};
use verb::{Subject, Verb};

/// Slices for each subject of a row; their median is reported.
const ROUNDS: usize = 15;
/// CPU time of a slice.
const SLICE_NS: i64 = 4_000_000;
/// Bytes between two looks at the clock, which costs about as much as 32 KiB of parity.
const BATCH_BYTES: usize = 4 << 20;
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
    if arguments.iter().any(|argument| argument == "--test") {
        return check_answers();
    }
    let filter = arguments.iter().find(|argument| !argument.starts_with("--"));
    let kernels: Vec<Kernel> = Kernel::all().filter(|k| k.name() != "reference").collect();
    println!(
        "GB/s of data, and share of the ceiling; median of {ROUNDS} slices of thread CPU time"
    );
    print!("{:38}{:>9}", "", "ceiling");
    kernels.iter().for_each(|kernel| print!("{:>18}", kernel.name()));
    println!();
    for row in rows() {
        if filter.is_none_or(|word| row.name().to_lowercase().contains(&word.to_lowercase())) {
            print_row(&row, &kernels);
        }
    }
    ExitCode::SUCCESS
}

fn print_row(row: &Row, kernels: &[Kernel]) {
    let bytes = if row.locality == Locality::Streaming { RING_BYTES } else { 0 };
    let mut memory = Vec::new();
    let mut ring = Ring::new(&mut memory, row.data, row.parity, row.strip_bytes, bytes);
    // A check is timed on stripes that are consistent: the rest is the rare case.
    let sound = Subject::kernel(Verb::Generate, Kernel::best(), row.data, row.parity);
    ring.stripes().for_each(|stripe| sound.run(stripe, Locality::Cached));
    let mut subjects = vec![Subject::ceiling(row.verb)];
    for &kernel in kernels {
        subjects.push(Subject::kernel(row.verb, kernel, row.data, row.parity));
    }
    let mut samples = vec![Vec::new(); subjects.len()];
    for _ in 0..ROUNDS {
        for (subject, samples) in subjects.iter().zip(&mut samples) {
            samples.push(slice(subject, &mut ring, row.locality));
        }
    }
    let medians: Vec<f64> = samples.into_iter().map(median).collect();
    print!("{:38}{:>9.1}", row.name(), medians[0]);
    for speed in &medians[1..] {
        print!("{:>11.1}{:>6.0}%", speed, 100.0 * speed / medians[0]);
    }
    println!();
}

/// Runs `subject` for one slice; returns GB/s.
fn slice(subject: &Subject, ring: &mut Ring<'_>, locality: Locality) -> f64 {
    let counted = subject.counted_bytes(ring.next_stripe());
    let batch = BATCH_BYTES / counted;
    let batch_bytes = u32::try_from(batch * counted).expect("batches are small");
    let mut batches = 0u32;
    let start = thread_ns();
    loop {
        for _ in 0..batch {
            subject.run(ring.next_stripe(), locality);
        }
        batches += 1;
        let ns = thread_ns() - start;
        if ns >= SLICE_NS {
            let ns = i32::try_from(ns).expect("slices are short");
            return f64::from(batch_bytes) * f64::from(batches) / f64::from(ns);
        }
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// CPU time of this thread.
fn thread_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Every verb by every kernel gives the bytes that the reference gives.
fn check_answers() -> ExitCode {
    let mut wrong = 0;
    for row in rows() {
        let answer = |kernel: Kernel| {
            let mut memory = Vec::new();
            let mut ring = Ring::new(&mut memory, row.data, row.parity, 4096 + 64, 0);
            let stripe = ring.next_stripe();
            Subject::kernel(row.verb, kernel, row.data, row.parity).run(stripe, row.locality);
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
