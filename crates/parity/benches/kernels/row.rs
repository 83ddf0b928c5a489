//! One row of a table: its ceiling and its subjects, measured in turn.
//!
//! What must stay true: a ceiling that a subject exceeds by more than [`SLACK`] is none, and the
//! bench fails. The host is noisy, so such a row is measured again before that is said.

use std::process::ExitCode;

use ashlar_parity::{Kernel, Locality};

use crate::ceiling::Loop;
use crate::ring::Ring;
use crate::timing::medians;
use crate::verb::{Subject, Verb};

/// What a subject may exceed its ceiling by: two medians of one loop differ by as much.
const SLACK: f64 = 1.05;
/// How often a row is measured before its ceiling is said to be none.
const ATTEMPTS: usize = 4;
/// Rounds of all loops, and how many of them go on.
const TRIALS: usize = 3;
const FINALISTS: usize = 4;

/// GB/s of a row.
pub struct Speeds {
    /// The data strips are read, nothing else.
    pub read: f64,
    /// The best loop that loads and stores what the verb does.
    pub ceiling: f64,
    pub subjects: Vec<f64>,
}

/// Measures rows and remembers those whose ceiling is none.
pub struct Judge {
    rounds: usize,
    loops: Vec<Loop>,
    rows: usize,
    exceeded: Vec<String>,
}

impl Judge {
    /// For rows of `kernel`, whose instructions the loops may use. Medians of `rounds` slices.
    pub fn new(kernel: Kernel, rounds: usize) -> Judge {
        let narrow = !kernel.name().starts_with("avx512");
        Judge { rounds, loops: Loop::all(narrow), rows: 0, exceeded: Vec::new() }
    }

    /// The row called `name`.
    pub fn measure(
        &mut self,
        name: &str,
        verb: Verb,
        subjects: &[Subject<'_>],
        (ring, locality): (&mut Ring<'_>, Locality),
    ) -> Speeds {
        self.rows += 1;
        for attempt in 1.. {
            let speeds = self.measure_once(verb, subjects, ring, locality);
            let best = fastest(&speeds.subjects);
            let ceiling = speeds.ceiling.min(speeds.read);
            if best > ceiling * SLACK && attempt < ATTEMPTS {
                continue;
            }
            if best > ceiling * SLACK {
                self.exceeded.push(format!("{name}: {best:.1} of {ceiling:.1} GB/s"));
            }
            return speeds;
        }
        unreachable!("the last attempt returns")
    }

    /// All loops run for a few rounds; the best of them for all, in turn with the subjects.
    fn measure_once(
        &self,
        verb: Verb,
        subjects: &[Subject<'_>],
        ring: &mut Ring<'_>,
        locality: Locality,
    ) -> Speeds {
        let ceilings = self.loops.iter().map(|&how| Subject::ceiling(verb, how)).collect();
        let reads = self.loops.iter().filter(|how| !how.stores_past_caches());
        let reads = reads.map(|&how| Subject::read(verb, how)).collect();
        let ceilings = best_of(ceilings, ring, locality);
        let reads = best_of(reads, ring, locality);
        let all: Vec<_> = ceilings.iter().chain(&reads).chain(subjects).collect();
        let medians = medians(&all, ring, locality, self.rounds);
        let (ceilings, rest) = medians.split_at(ceilings.len());
        let (reads, subjects) = rest.split_at(reads.len());
        Speeds { read: fastest(reads), ceiling: fastest(ceilings), subjects: subjects.to_vec() }
    }

    /// Adds what another one measured.
    pub fn add(&mut self, other: Judge) {
        self.rows += other.rows;
        self.exceeded.extend(other.exceeded);
    }

    /// Fails if a ceiling was none.
    pub fn verdict(self) -> ExitCode {
        if self.exceeded.is_empty() {
            println!("\nno ceiling of {} rows is exceeded by more than 5 %", self.rows);
            return ExitCode::SUCCESS;
        }
        println!(
            "\nFAILED, subjects exceed their ceilings by more than 5 %: {}",
            self.exceeded.join("; ")
        );
        ExitCode::FAILURE
    }
}

/// The [`FINALISTS`] that were fastest in [`TRIALS`] rounds.
fn best_of<'a>(
    loops: Vec<Subject<'a>>,
    ring: &mut Ring<'_>,
    locality: Locality,
) -> Vec<Subject<'a>> {
    let medians = medians(&loops.iter().collect::<Vec<_>>(), ring, locality, TRIALS);
    let mut ranked: Vec<_> = medians.into_iter().zip(loops).collect();
    ranked.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    ranked.into_iter().take(FINALISTS).map(|(_, how)| how).collect()
}

fn fastest(speeds: &[f64]) -> f64 {
    speeds.iter().copied().fold(0.0, f64::max)
}

/// The CPU, as Linux names it.
pub fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let parts = ["model name", "cpu family", "model\t"].map(field);
    let [name, family, model] = parts.map(|part| part.unwrap_or_else(|| "unknown".to_owned()));
    format!("{name}, family {family}, model {model}")
}
