//! `--gate`: fails when a kernel has become much slower, as a share of the ceiling of the same run.
//!
//! What must stay true: only ratios within one process decide, and a row must miss its floor in every one
//! of several tries, so a busy neighbour does not fail it; the floors are about two thirds of what was
//! measured. Before it judges, the gate shows that it can: a kernel whose calls are made twice must miss.
//!
//! Not instruction counts: no emulator that counts them runs AVX-512, and a kernel becomes slow by its
//! loads and stores as often as by its arithmetic (docs/notes/kernels-tried.md).

use std::process::ExitCode;

use ashlar_parity::{Kernel, Locality};

use crate::ring::{Placement, Ring};
use crate::timing::medians;
use crate::verb::{Subject, Verb};

const ROUNDS: usize = 9;
const TRIES: usize = 4;
const STRIP_BYTES: usize = 64 << 10;

/// Least shares of the ceiling, for strips in the cache.
struct Floor {
    kernel: &'static str,
    shape: (usize, usize),
    verb: Verb,
    share: f64,
}

const fn floor(kernel: &'static str, shape: (usize, usize), verb: Verb, share: f64) -> Floor {
    Floor { kernel, shape, verb, share }
}

const FLOORS: [Floor; 15] = [
    floor("avx512+gfni", (8, 1), Verb::Generate, 0.80),
    floor("avx512+gfni", (8, 2), Verb::Generate, 0.70),
    floor("avx512+gfni", (8, 2), Verb::Check, 0.70),
    floor("avx512+gfni", (8, 2), Verb::Update, 0.65),
    floor("avx512+gfni", (8, 2), Verb::Decode, 0.65),
    floor("avx512+gfni", (8, 2), Verb::GenerateCopy, 0.65),
    floor("avx512+gfni", (8, 4), Verb::Generate, 0.65),
    floor("avx512bw", (8, 2), Verb::Generate, 0.65),
    floor("avx512bw", (8, 2), Verb::Check, 0.58),
    floor("avx2+gfni", (8, 2), Verb::Generate, 0.42),
    floor("avx2+gfni", (8, 2), Verb::Decode, 0.35),
    floor("avx2", (8, 2), Verb::Generate, 0.32),
    floor("avx2", (8, 2), Verb::Decode, 0.15),
    floor("ssse3", (8, 2), Verb::Generate, 0.18),
    floor("portable", (8, 2), Verb::Generate, 0.06),
];

/// Holds every kernel of this CPU to its floors.
pub fn hold() -> ExitCode {
    let mut missed = 0;
    let mut planted = 0;
    for floor in &FLOORS {
        let Ok(kernel) = Kernel::by_name(floor.kernel) else {
            println!("not held here: {} is not on this CPU", floor.kernel);
            continue;
        };
        let slow = Subject::twice(floor.verb, kernel, floor.shape);
        let (share, met) = best_share(floor, &slow);
        planted += usize::from(!met);
        let name = format!("{} {} {:?}", floor.kernel, floor.verb.name(), floor.shape);
        println!("{name}: planted slow kernel at {share:.2} of the ceiling, floor {}", floor.share);
        if met {
            println!("  NOT SEEN: the floor is too low for this CPU");
        }
        let (share, met) = best_share(floor, &Subject::kernel(floor.verb, kernel, floor.shape));
        println!("{name}: {share:.2} of the ceiling, floor {}", floor.share);
        if !met {
            println!("  TOO SLOW");
            missed += 1;
        }
    }
    println!("gate: {planted} planted slow kernels seen, {missed} of our kernels too slow");
    // A floor may be generous on another CPU; a gate that sees nothing at all is broken.
    if missed == 0 && planted > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The subject's share of the ceiling, and whether it met the floor in one of the tries.
fn best_share(floor: &Floor, subject: &Subject<'_>) -> (f64, bool) {
    let mut memory = Vec::new();
    let mut ring = Ring::new(&mut memory, floor.shape, STRIP_BYTES, Placement::Coloured, 0);
    let sound = Subject::kernel(Verb::Generate, Kernel::best(), floor.shape);
    ring.stripes().for_each(|stripe| sound.run(stripe, Locality::Cached));
    let ceiling = Subject::ceiling(floor.verb);
    let mut best = 0.0;
    for _ in 0..TRIES {
        let speeds = medians(&[&ceiling, subject], &mut ring, Locality::Cached, ROUNDS);
        best = f64::max(best, speeds[1] / speeds[0]);
        if best >= floor.share {
            return (best, true);
        }
    }
    (best, false)
}
