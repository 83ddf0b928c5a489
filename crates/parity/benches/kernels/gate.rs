//! `--gate`: fails when a kernel takes more instructions than it did, or has become much slower, as
//! a share of the ceiling of the same run.
//!
//! What must stay true: instruction counts (`steps`) are exact and repeat, so their limits are
//! close: a tenth above what was counted. They do not see what stores and prefetches cost, which
//! has made kernels slow more than once (docs/notes/kernels-tried.md); shares of the ceiling do.
//! There only ratios within one process decide, and a row must miss its floor in every one of many
//! tries, so a busy neighbour does not fail it; the floors are about two thirds of what was
//! measured. Each row shows that it can trip: a kernel whose calls are made twice must miss.

use std::process::ExitCode;

use ashlar_parity::{Kernel, Locality};

use crate::ring::{Placement, Ring};
use crate::steps;
use crate::timing::medians;
use crate::verb::{Subject, Verb};

const ROUNDS: usize = 9;
/// Tries for a kernel to meet its floor; a planted slow one has fewer.
const TRIES: usize = 12;
const PLANTED_TRIES: usize = 3;
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

const FLOORS: [Floor; 14] = [
    floor("avx512+gfni", (8, 1), Verb::Generate, 0.80),
    floor("avx512+gfni", (8, 2), Verb::Generate, 0.70),
    floor("avx512+gfni", (8, 2), Verb::Check, 0.70),
    floor("avx512+gfni", (8, 2), Verb::Update, 0.65),
    floor("avx512+gfni", (8, 2), Verb::Decode, 0.65),
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

/// Strips of a counted call: a few blocks of every kernel.
const COUNTED_BYTES: usize = 4096;
/// The same for the portable kernel, whose blocks are small and whose instructions are many: each
/// is a stop of a process.
const COUNTED_BYTES_PORTABLE: usize = 512;
const COUNTED_KERNELS: [&str; 6] =
    ["avx512+gfni", "avx2+gfni", "avx512bw", "avx2", "ssse3", "portable"];

/// Most instructions for 64 bytes of data (update: of new bytes), for each of [`COUNTED_KERNELS`].
type Limits = (Verb, (usize, usize), [f64; 6]);

const LIMITS: [Limits; 9] = [
    (Verb::Generate, (8, 1), [4.3, 8.1, 4.3, 8.1, 16.6, 33.8]),
    (Verb::Generate, (8, 2), [7.3, 14.8, 9.0, 19.4, 43.3, 97.2]),
    (Verb::Generate, (16, 2), [5.7, 12.7, 7.4, 17.2, 39.7, 85.8]),
    (Verb::Generate, (8, 3), [10.8, 32.3, 20.8, 52.3, 111.0, 668.0]),
    (Verb::Generate, (8, 4), [16.4, 41.2, 27.0, 70.2, 147.0, 1329.0]),
    (Verb::Generate, (8, 6), [22.2, 59.0, 38.7, 106.0, 217.0, 2547.0]),
    (Verb::Check, (8, 2), [8.0, 16.0, 9.7, 20.7, 46.2, 104.8]),
    (Verb::Update, (8, 2), [39.1, 70.6, 48.7, 92.7, 191.0, 1454.0]),
    (Verb::Decode, (8, 2), [12.1, 24.8, 21.0, 49.4, 111.0, 1255.0]),
];

/// Holds every kernel of this CPU to its limits and floors.
pub fn hold() -> ExitCode {
    let counts = hold_counts();
    if counts == ExitCode::SUCCESS { hold_shares() } else { counts }
}

/// Instructions of every verb by every kernel.
fn hold_counts() -> ExitCode {
    let (mut held, mut wrong) = (0, 0);
    for (verb, shape, limits) in &LIMITS {
        print!("instructions for 64 bytes, {} {shape:?}:", verb.name());
        for (name, &limit) in COUNTED_KERNELS.iter().zip(limits) {
            let Ok(kernel) = Kernel::by_name(name) else { continue };
            let bytes = if *name == "portable" { COUNTED_BYTES_PORTABLE } else { COUNTED_BYTES };
            let of = (*verb, *shape, bytes);
            let counted = instructions(of, &Subject::kernel(*verb, kernel, *shape));
            let planted = instructions(of, &Subject::twice(*verb, kernel, *shape));
            let (Ok(counted), Ok(planted)) = (counted, planted) else {
                println!(
                    "\nskipped: counting instructions needs ptrace, which is not allowed here"
                );
                return ExitCode::SUCCESS;
            };
            print!(" {name} {counted:.2} of {limit}");
            held += 1;
            if counted > limit {
                print!(" TOO MANY");
                wrong += 1;
            } else if planted <= limit {
                print!(" TOO LOOSE: twice the work is {planted:.2}");
                wrong += 1;
            }
        }
        println!();
    }
    println!(
        "gate: {held} instruction counts held, each limit tripped by twice the work, {wrong} wrong"
    );
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Instructions of one call for 64 bytes of what the verb counts.
fn instructions(
    (verb, shape, strip_bytes): (Verb, (usize, usize), usize),
    subject: &Subject<'_>,
) -> Result<f64, String> {
    let mut memory = Vec::new();
    let mut ring = Ring::new(&mut memory, shape, strip_bytes, Placement::Coloured, 0);
    let stripe = ring.next_stripe();
    if verb == Verb::Check {
        Subject::kernel(Verb::Generate, Kernel::best(), shape).run(stripe, Locality::Cached);
    }
    let lines = u32::try_from(subject.counted_bytes(stripe) / 64).expect("small strips");
    let steps = steps::count(&mut || subject.run(stripe, Locality::Cached))?;
    Ok(f64::from(u32::try_from(steps).map_err(|error| error.to_string())?) / f64::from(lines))
}

fn hold_shares() -> ExitCode {
    let mut missed = 0;
    let mut planted = 0;
    for floor in &FLOORS {
        let Ok(kernel) = Kernel::by_name(floor.kernel) else {
            println!("not held here: {} is not on this CPU", floor.kernel);
            continue;
        };
        let slow = Subject::twice(floor.verb, kernel, floor.shape);
        let (share, met) = best_share(floor, &slow, PLANTED_TRIES);
        planted += usize::from(!met);
        let name = format!("{} {} {:?}", floor.kernel, floor.verb.name(), floor.shape);
        println!("{name}: planted slow kernel at {share:.2} of the ceiling, floor {}", floor.share);
        if met {
            println!("  NOT SEEN: the floor is too low for this CPU");
        }
        let (share, met) =
            best_share(floor, &Subject::kernel(floor.verb, kernel, floor.shape), TRIES);
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
fn best_share(floor: &Floor, subject: &Subject<'_>, tries: usize) -> (f64, bool) {
    let mut memory = Vec::new();
    let mut ring = Ring::new(&mut memory, floor.shape, STRIP_BYTES, Placement::Coloured, 0);
    let sound = Subject::kernel(Verb::Generate, Kernel::best(), floor.shape);
    ring.stripes().for_each(|stripe| sound.run(stripe, Locality::Cached));
    let ceiling = Subject::ceiling(floor.verb);
    let mut best = 0.0;
    for _ in 0..tries {
        let speeds = medians(&[&ceiling, subject], &mut ring, Locality::Cached, ROUNDS);
        best = f64::max(best, speeds[1] / speeds[0]);
        if best >= floor.share {
            return (best, true);
        }
    }
    (best, false)
}
