//! Slices of CPU time, several subjects in turn on the same stripes, and the medians.
//!
//! What must stay true: only the thread's own CPU clock is looked at, so that other load on the
//! machine shifts a figure little, and all subjects of a row are shifted alike.

use ashlar_parity::Locality;
use rustix::time::{ClockId, clock_gettime};

use crate::ring::Ring;
use crate::verb::Subject;

/// CPU time of a slice.
const SLICE_NS: i64 = 3_000_000;
/// Bytes between two looks at the clock, which costs about as much as 32 KiB of parity.
const BATCH_BYTES: usize = 4 << 20;

/// GB/s of each subject: the median of `rounds` slices.
pub fn medians(
    subjects: &[&Subject<'_>],
    ring: &mut Ring<'_>,
    locality: Locality,
    rounds: usize,
) -> Vec<f64> {
    let mut samples = vec![Vec::new(); subjects.len()];
    for _ in 0..rounds {
        for (subject, samples) in subjects.iter().zip(&mut samples) {
            samples.push(slice(subject, ring, locality));
        }
    }
    samples.into_iter().map(median).collect()
}

/// Runs `subject` for one slice; returns GB/s.
fn slice(subject: &Subject<'_>, ring: &mut Ring<'_>, locality: Locality) -> f64 {
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
