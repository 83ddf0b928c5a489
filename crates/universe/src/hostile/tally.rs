//! What came of many sets, by class.
//!
//! What must stay true: each set is counted once as refused, assembled or assembled read-only.

use super::subject::Subject;
use super::trial::{Outcome, trial};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Try all sets of these numbers on `jobs` threads: what came of them, and what went wrong.
pub fn trials(seeds: Range<u64>, subjects: &[Subject], jobs: usize) -> (Tally, Vec<String>) {
    let (next, sum) = (AtomicU64::new(seeds.start), Mutex::new((Tally::default(), Vec::new())));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let result = trial(seed, subjects);
                    let (tally, wrong) = &mut *sum.lock().unwrap_or_else(PoisonError::into_inner);
                    match result {
                        Ok(outcome) => tally.add(&outcome),
                        Err(what) => wrong.push(what),
                    }
                }
            });
        }
    });
    sum.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Sums over many sets.
#[derive(Default)]
pub struct Tally {
    sets: u64,
    forged: u64,
    assembled: u64,
    read_only: u64,
    intact: u64,
    with_errors: u64,
    with_excused: u64,
    right_blocks: u64,
    excused_blocks: u64,
    failed_blocks: u64,
    refused: BTreeMap<String, u64>,
}

impl Tally {
    /// Count one set.
    pub fn add(&mut self, outcome: &Outcome) {
        self.sets += 1;
        self.forged += u64::from(outcome.is_forged);
        if let Some(code) = &outcome.refused {
            *self.refused.entry(code.clone()).or_default() += 1;
            return;
        }
        self.assembled += 1;
        self.read_only += u64::from(outcome.is_read_only);
        self.intact += u64::from(outcome.failed + outcome.excused == 0);
        self.with_errors += u64::from(outcome.failed > 0);
        self.with_excused += u64::from(outcome.excused > 0);
        self.right_blocks += outcome.right;
        self.excused_blocks += outcome.excused;
        self.failed_blocks += outcome.failed;
    }

    /// Sets that were refused, and those that started.
    pub fn refused_and_assembled(&self) -> (u64, u64) {
        (self.sets - self.assembled, self.assembled)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refused = self.sets - self.assembled;
        writeln!(
            f,
            "{} member sets, {} of them with records forged under right checksums: \
             {} assembled ({} read-only), {refused} refused with every device as it was",
            self.sets, self.forged, self.assembled, self.read_only
        )?;
        writeln!(
            f,
            "of those assembled {} read right in every block, \
             {} had blocks that were answered with errors, {} had blocks that nothing protects \
             from what was done; blocks right {}, errors {}, unprotected {}",
            self.intact,
            self.with_errors,
            self.with_excused,
            self.right_blocks,
            self.failed_blocks,
            self.excused_blocks
        )?;
        let classes = self.refused.iter().map(|(code, count)| format!("{code} {count}"));
        write!(f, "refused: {}", classes.collect::<Vec<_>>().join(", "))
    }
}
