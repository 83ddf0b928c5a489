//! `--peers`: a kernel and ISA-L on the same stripes, as tables in Markdown.
//!
//! The kernel is the fastest, next to the fastest code of ISA-L. The name of another one, such as
//! `avx2`, takes this one and ISA-L's code with the same instructions: the tables of a CPU that has
//! no others.
//!
//! What must stay true: a row is measured as a whole, all subjects in turn, with the ceiling of the
//! same run in its first column. docs/results/parity.md has the rows of 64 KiB strips.

use std::process::ExitCode;

use ashlar_parity::{Kernel, Locality};

use crate::RING_BYTES;
use crate::isal::Isal;
use crate::ring::{Placement, Ring};
use crate::row::{Judge, Speeds, cpu};
use crate::verb::{Subject, Verb};

const ROUNDS: usize = 21;
const SHAPES: [(usize, usize); 8] =
    [(4, 1), (8, 1), (8, 2), (10, 2), (16, 2), (8, 3), (12, 4), (20, 6)];
const STRIPS_KIB: [usize; 3] = [16, 64, 128];

/// Where and how the strips of one table lie.
#[derive(Clone, Copy)]
struct Regime {
    locality: Locality,
    placement: Placement,
}

impl Regime {
    fn name(self) -> String {
        format!("{:?} {:?}", self.locality, self.placement).to_lowercase()
    }
}

const REGIMES: [Regime; 4] = [
    Regime { locality: Locality::Cached, placement: Placement::Coloured },
    Regime { locality: Locality::Cached, placement: Placement::Aligned },
    Regime { locality: Locality::Streaming, placement: Placement::Coloured },
    Regime { locality: Locality::Streaming, placement: Placement::Aligned },
];

/// One kernel and its peer.
struct Tier {
    kernel: Kernel,
    isal: Isal,
}

impl Tier {
    fn of(kernel: Kernel) -> Result<Tier, String> {
        let is_best = kernel == Kernel::best();
        let isal = if is_best { Isal::load() } else { Isal::load_like(kernel) };
        Ok(Tier { kernel, isal: isal? })
    }

    fn subjects(&self, verb: Verb, shape: (usize, usize)) -> [Subject<'_>; 2] {
        [Subject::kernel(verb, self.kernel, shape), Subject::isal(verb, &self.isal, shape)]
    }
}

/// Prints the tables whose names contain one of `words`, or all. A word that names a kernel chooses
/// it.
pub fn print_tables(words: &[&str]) -> Result<ExitCode, String> {
    let (names, words): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| Kernel::by_name(word).is_ok());
    let kernel = names.first().and_then(|name| Kernel::by_name(name).ok());
    let tier = Tier::of(kernel.unwrap_or(Kernel::best()))?;
    let mut judge = Judge::new(tier.kernel, ROUNDS);
    let mut memory = Vec::new();
    let wanted = |name: &str| {
        words.is_empty() || words.iter().any(|word| name.contains(&word.to_lowercase()))
    };
    println!("{} and ISA-L, GB/s of data; CPU: {}", tier.kernel, cpu());
    for regime in REGIMES {
        let name = format!("generate {}", regime.name());
        if wanted(&name) {
            println!("\n{name}\n\n{}", generate_head(tier.kernel));
            for shape in SHAPES {
                for kib in STRIPS_KIB {
                    print_generate(&tier, &mut judge, regime, (shape, kib), &mut memory);
                }
            }
        }
    }
    for regime in [REGIMES[0], REGIMES[2]] {
        let name = format!("two threads {:?}", regime.locality).to_lowercase();
        if wanted(&name) {
            println!("\n{name}\n\n{}", generate_head(tier.kernel));
            print_two_threads(tier.kernel, &mut judge, regime);
        }
    }
    for regime in REGIMES {
        let name = format!("verbs {}", regime.name());
        if wanted(&name) {
            println!("\n{name}\n");
            print_verbs(&tier, &mut judge, regime, &mut memory);
        }
    }
    if wanted("tiers") {
        println!("\ntiers\n");
        let mut of_all = Judge::new(Kernel::best(), ROUNDS);
        print_tiers(&tier, &mut of_all, &mut memory);
        judge.add(of_all);
    }
    Ok(judge.verdict())
}

fn generate_head(kernel: Kernel) -> String {
    let names = format!(
        "read only | ceiling | {kernel} | ISA-L | of ceiling | of ISA-L | read only of ISA-L"
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
    tier: &Tier,
    judge: &mut Judge,
    regime: Regime,
    (shape, kib): ((usize, usize), usize),
    memory: &mut Vec<u8>,
) {
    let mut ring = ring(memory, shape, kib * 1024, regime);
    let speeds = generate_speeds(tier, judge, regime, (shape, kib), &mut ring);
    print_generate_row(shape, kib, speeds);
}

/// Read ceiling, ceiling, ours, ISA-L.
fn generate_speeds(
    tier: &Tier,
    judge: &mut Judge,
    regime: Regime,
    (shape, kib): ((usize, usize), usize),
    ring: &mut Ring<'_>,
) -> [f64; 4] {
    let verb = Verb::Generate;
    let name = format!("{}+{} {kib} KiB {}", shape.0, shape.1, regime.name());
    let place = (ring, regime.locality);
    let speeds = judge.measure(&name, verb, &tier.subjects(verb, shape), place);
    [speeds.read, speeds.ceiling, speeds.subjects[0], speeds.subjects[1]]
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
fn print_two_threads(kernel: Kernel, judge: &mut Judge, regime: Regime) {
    let one = || -> (Judge, Vec<[f64; 4]>) {
        let tier = Tier::of(kernel).expect("it was loaded before");
        let mut judge = Judge::new(kernel, ROUNDS);
        let mut memory = Vec::new();
        let mut rows = Vec::new();
        for shape in SHAPES {
            let mut ring = ring(&mut memory, shape, 64 << 10, regime);
            rows.push(generate_speeds(&tier, &mut judge, regime, (shape, 64), &mut ring));
        }
        (judge, rows)
    };
    let ((one_judge, first), (other_judge, second)) = std::thread::scope(|scope| {
        let other = scope.spawn(one);
        (one(), other.join().expect("a thread that only measures"))
    });
    judge.add(one_judge);
    judge.add(other_judge);
    for (shape, (first, second)) in SHAPES.into_iter().zip(first.into_iter().zip(second)) {
        print_generate_row(shape, 64, std::array::from_fn(|n| first[n] + second[n]));
    }
}

fn print_verbs(tier: &Tier, judge: &mut Judge, regime: Regime, memory: &mut Vec<u8>) {
    println!("| 8+2, 64 KiB | ceiling | {} | ISA-L | of ceiling | of ISA-L |", tier.kernel);
    println!("|---|---|---|---|---|---|");
    let shape = (8, 2);
    for verb in Verb::ALL {
        let mut ring = ring(memory, shape, 64 << 10, regime);
        let name = format!("{} 8+2 64 KiB {}", verb.name(), regime.name());
        let place = (&mut ring, regime.locality);
        let Speeds { ceiling, subjects, .. } =
            judge.measure(&name, verb, &tier.subjects(verb, shape), place);
        let (ours, theirs) = (subjects[0], subjects[1]);
        let (of_ceiling, of_isal) = (ours / ceiling, ours / theirs);
        println!(
            "| {} | {ceiling:.1} | {ours:.1} | {theirs:.1} | {of_ceiling:.2} | {of_isal:.2} |",
            verb.name()
        );
    }
}

/// Every kernel next to ISA-L, and strips that fit the first cache.
fn print_tiers(tier: &Tier, judge: &mut Judge, memory: &mut Vec<u8>) {
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
        let mut subjects = vec![Subject::isal(Verb::Generate, &tier.isal, shape)];
        subjects.extend(kernels.iter().map(|&k| Subject::kernel(Verb::Generate, k, shape)));
        let name = format!("{}+{} {kib} KiB", shape.0, shape.1);
        let place = (&mut ring, Locality::Cached);
        let speeds = judge.measure(&name, Verb::Generate, &subjects, place);
        print!("| {name} | {:.1} |", speeds.ceiling);
        speeds.subjects.iter().for_each(|speed| print!(" {speed:.1} |"));
        println!();
    }
}
