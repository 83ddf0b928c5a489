//! `--peers`: our fastest kernel and ISA-L on the same stripes, as tables in Markdown.
//!
//! What must stay true: a row is measured as a whole, all subjects in turn, with the ceiling of the
//! same run in its first column. docs/results/parity.md has the rows of 64 KiB strips.

use ashlar_parity::{Kernel, Locality};

use crate::RING_BYTES;
use crate::isal::Isal;
use crate::ring::{Placement, Ring};
use crate::timing::{each, medians};
use crate::verb::{Subject, Verb};

const ROUNDS: usize = 9;
const SHAPES: [(usize, usize); 8] =
    [(4, 1), (8, 1), (8, 2), (10, 2), (16, 2), (8, 3), (12, 4), (20, 6)];
const STRIPS_KIB: [usize; 3] = [16, 64, 128];

/// Where and how the strips of one table lie.
#[derive(Clone, Copy)]
struct Regime {
    locality: Locality,
    placement: Placement,
}

const REGIMES: [Regime; 4] = [
    Regime { locality: Locality::Cached, placement: Placement::Coloured },
    Regime { locality: Locality::Cached, placement: Placement::Aligned },
    Regime { locality: Locality::Streaming, placement: Placement::Coloured },
    Regime { locality: Locality::Streaming, placement: Placement::Aligned },
];

/// Prints the tables whose names contain `filter`.
pub fn print_tables(filter: Option<&str>) -> Result<(), String> {
    let isal = Isal::load()?;
    let mut memory = Vec::new();
    let wanted = |name: &str| filter.is_none_or(|word| name.contains(&word.to_lowercase()));
    for regime in REGIMES {
        let name = format!("generate {:?} {:?}", regime.locality, regime.placement).to_lowercase();
        if wanted(&name) {
            println!("\n{name}\n\n{}", generate_head());
            for shape in SHAPES {
                for kib in STRIPS_KIB {
                    print_generate(&isal, regime, shape, kib, &mut memory);
                }
            }
        }
    }
    for regime in [REGIMES[0], REGIMES[2]] {
        let name = format!("two threads {:?}", regime.locality).to_lowercase();
        if wanted(&name) {
            println!("\n{name}\n\n{}", generate_head());
            print_two_threads(regime);
        }
    }
    for regime in REGIMES {
        let name = format!("verbs {:?} {:?}", regime.locality, regime.placement).to_lowercase();
        if wanted(&name) {
            println!("\n{name}\n");
            print_verbs(&isal, regime, &mut memory);
        }
    }
    if wanted("tiers") {
        println!("\ntiers\n");
        print_tiers(&isal, &mut memory);
    }
    Ok(())
}

fn generate_head() -> String {
    let best = Kernel::best();
    let names = format!(
        "read only | ceiling | {best} | ISA-L | of ceiling | of ISA-L | read only of ISA-L"
    );
    format!("| shape | strip | {names} |\n|---|---|---|---|---|---|---|---|---|")
}

fn ring<'a>(
    memory: &'a mut Vec<u8>,
    shape: (usize, usize),
    strip_bytes: usize,
    regime: Regime,
) -> Ring<'a> {
    let bytes = if regime.locality == Locality::Streaming { RING_BYTES } else { 0 };
    let mut ring = Ring::new(memory, shape, strip_bytes, regime.placement, bytes);
    // Checks are timed on stripes that are consistent.
    let sound = Subject::kernel(Verb::Generate, Kernel::best(), shape);
    ring.stripes().for_each(|stripe| sound.run(stripe, Locality::Cached));
    ring
}

fn print_generate(
    isal: &Isal,
    regime: Regime,
    shape: (usize, usize),
    kib: usize,
    memory: &mut Vec<u8>,
) {
    let mut ring = ring(memory, shape, kib * 1024, regime);
    let speeds = generate_speeds(isal, regime, shape, &mut ring);
    print_generate_row(shape, kib, speeds);
}

/// Read ceiling, ceiling, ours, ISA-L.
fn generate_speeds(
    isal: &Isal,
    regime: Regime,
    shape: (usize, usize),
    ring: &mut Ring<'_>,
) -> [f64; 4] {
    let subjects = [
        Subject::read(),
        Subject::ceiling(Verb::Generate),
        Subject::kernel(Verb::Generate, Kernel::best(), shape),
        Subject::isal(Verb::Generate, isal, shape),
    ];
    let speeds = medians(&each(&subjects), ring, regime.locality, ROUNDS);
    speeds.try_into().expect("four subjects")
}

fn print_generate_row(shape: (usize, usize), kib: usize, speeds: [f64; 4]) {
    let [read, ceiling, ours, theirs] = speeds;
    let (data, parity) = shape;
    let (of_ceiling, of_isal, most) = (ours / ceiling, ours / theirs, read / theirs);
    println!(
        "| {data}+{parity} | {kib} KiB | {read:.1} | {ceiling:.1} | {ours:.1} | {theirs:.1} | \
         {of_ceiling:.2} | {of_isal:.2} | {most:.2} |"
    );
}

/// Two threads at once, each with stripes of its own; figures are the sums. Only a machine with two
/// idle CPUs gives figures that mean something.
fn print_two_threads(regime: Regime) {
    let one = || -> Vec<[f64; 4]> {
        let isal = Isal::load().expect("it was loaded before");
        let mut memory = Vec::new();
        let row = |shape| {
            let mut ring = ring(&mut memory, shape, 64 << 10, regime);
            generate_speeds(&isal, regime, shape, &mut ring)
        };
        SHAPES.map(row).to_vec()
    };
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(one);
        (one(), other.join().expect("a thread that only measures"))
    });
    for (shape, (first, second)) in SHAPES.into_iter().zip(first.into_iter().zip(second)) {
        print_generate_row(shape, 64, std::array::from_fn(|n| first[n] + second[n]));
    }
}

fn print_verbs(isal: &Isal, regime: Regime, memory: &mut Vec<u8>) {
    println!("| 8+2, 64 KiB | ceiling | {} | ISA-L | of ceiling | of ISA-L |", Kernel::best());
    println!("|---|---|---|---|---|---|");
    let shape = (8, 2);
    for verb in Verb::ALL {
        let mut ring = ring(memory, shape, 64 << 10, regime);
        let subjects = [
            Subject::ceiling(verb),
            Subject::kernel(verb, Kernel::best(), shape),
            Subject::isal(verb, isal, shape),
        ];
        let speeds = medians(&each(&subjects), &mut ring, regime.locality, ROUNDS);
        let (ceiling, ours, theirs) = (speeds[0], speeds[1], speeds[2]);
        let (of_ceiling, of_isal) = (ours / ceiling, ours / theirs);
        println!(
            "| {} | {ceiling:.1} | {ours:.1} | {theirs:.1} | {of_ceiling:.2} | {of_isal:.2} |",
            verb.name()
        );
    }
}

/// Every kernel next to ISA-L, which takes the fastest it knows, and strips that fit the first
/// cache.
fn print_tiers(isal: &Isal, memory: &mut Vec<u8>) {
    let kernels: Vec<Kernel> = Kernel::all().filter(|k| k.name() != "reference").collect();
    print!("| generate, cached | ceiling | ISA-L |");
    kernels.iter().for_each(|kernel| print!(" {kernel} |"));
    println!("\n|---|---|---|{}", "---|".repeat(kernels.len()));
    for (shape, kib) in [
        ((8, 2), 2),
        ((8, 2), 4),
        ((8, 2), 64),
        ((8, 3), 64),
        ((8, 4), 64),
        ((8, 5), 64),
        ((8, 6), 64),
    ] {
        let mut ring = ring(memory, shape, kib * 1024, REGIMES[0]);
        let mut subjects =
            vec![Subject::ceiling(Verb::Generate), Subject::isal(Verb::Generate, isal, shape)];
        subjects.extend(kernels.iter().map(|&k| Subject::kernel(Verb::Generate, k, shape)));
        print!("| {}+{} {kib} KiB |", shape.0, shape.1);
        for speed in medians(&each(&subjects), &mut ring, Locality::Cached, ROUNDS) {
            print!(" {speed:.1} |");
        }
        println!();
    }
}
