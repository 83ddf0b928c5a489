//! `--gate`: fails when a kernel takes more instructions than it did.
//!
//! What must stay true: the counts (`steps`) are exact and repeat on a busy machine, so their
//! limits are close: a tenth above what was counted. Each limit shows that it can trip: a kernel
//! whose calls are made twice must miss it. What stores and prefetches cost is not seen here, and
//! has made kernels slow (docs/notes/kernels-tried.md): the table of this bench shows it.

use std::process::ExitCode;

use ashlar_parity::{Kernel, Locality};

use crate::ring::{Placement, Ring};
use crate::steps;
use crate::verb::{Subject, Verb};

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
    (Verb::Generate, (8, 1), [4.3, 8.0, 4.3, 8.0, 16.6, 32.0]),
    (Verb::Generate, (8, 2), [7.2, 14.6, 9.0, 19.4, 43.0, 95.3]),
    (Verb::Generate, (16, 2), [5.7, 12.6, 7.4, 19.0, 39.6, 84.8]),
    (Verb::Generate, (8, 3), [10.8, 32.1, 20.8, 52.1, 110.6, 668.0]),
    (Verb::Generate, (8, 4), [16.4, 40.6, 27.0, 69.7, 145.3, 1329.0]),
    (Verb::Generate, (8, 6), [22.2, 58.0, 38.7, 105.3, 215.5, 2547.0]),
    (Verb::Check, (8, 2), [8.0, 15.9, 9.7, 20.6, 46.1, 103.2]),
    (Verb::Update, (8, 2), [21.9, 30.4, 26.5, 41.6, 99.3, 696.1]),
    (Verb::Decode, (8, 2), [11.2, 23.7, 20.1, 49.4, 111.0, 1252.7]),
];

/// Holds every kernel of this CPU to its limits.
pub fn hold() -> ExitCode {
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
