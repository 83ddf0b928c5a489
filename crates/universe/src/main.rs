//! `universe SEED`: run one; `universe --many COUNT`: run many and say how fast.
//!
//! What must stay true: exit status 0 means that nothing went wrong. What it prints for a failure is enough to repeat it.

#![forbid(unsafe_code)]

use ashlar_universe::{Failure, Limits, Marks, Report, run, shrink};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

const USAGE: &str = "\
universe SEED [--story] [--shrink] [--requests N] [--acts N] [--lives N] [--clients N]
         [--policy NAME] [--class NAME]
universe --many COUNT [--from SEED] [--policy NAME] [--class NAME]
         [--jobs THREADS] [--marks] [--expect-marks]";

struct Options {
    seed: Option<u64>,
    many: Option<u64>,
    from: u64,
    jobs: usize,
    shows_marks: bool,
    shrinks: bool,
    expects_marks: bool,
    limits: Limits,
}

fn main() -> ExitCode {
    let Some(options) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match (options.seed, options.many) {
        (Some(seed), None) => one(seed, &options),
        (None, Some(count)) => many(count, &options),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Options> {
    let limits = Limits::default();
    let mut options = Options {
        seed: None,
        many: None,
        from: 0,
        jobs: 1,
        shows_marks: false,
        shrinks: false,
        expects_marks: false,
        limits,
    };
    while let Some(word) = words.next() {
        let mut number = || words.next()?.parse::<u64>().ok();
        let limits = &mut options.limits;
        match word.as_str() {
            "--story" => limits.is_told = true,
            "--shrink" => options.shrinks = true,
            "--marks" => options.shows_marks = true,
            "--expect-marks" => options.expects_marks = true,
            "--jobs" => options.jobs = usize::try_from(number()?).ok()?,
            "--many" => options.many = Some(number()?),
            "--from" => options.from = number()?,
            "--requests" => limits.requests = usize::try_from(number()?).ok()?,
            "--acts" => limits.acts = usize::try_from(number()?).ok()?,
            "--clients" => limits.clients = usize::try_from(number()?).ok()?,
            "--lives" => limits.lives = usize::try_from(number()?).ok()?,
            "--policy" => {
                let name = words.next()?;
                let mut all = ashlar_ondisk::ConsistencyPolicy::ALL.into_iter();
                limits.wish.policy = Some(all.find(|policy| policy.name() == name)?);
            }
            "--class" => {
                let name = words.next()?;
                let mut all = ashlar_universe::Class::ALL.into_iter();
                limits.wish.class = Some(all.find(|class| class.name() == name)?);
            }
            seed => options.seed = Some(seed.parse().ok()?),
        }
    }
    Some(options)
}

fn one(seed: u64, options: &Options) -> ExitCode {
    let limits = options.limits;
    match run(seed, limits) {
        Ok(report) => {
            println!("universe {seed} went well: {} device operations", report.operations);
            if limits.is_told {
                println!("{}{}", report.story, report.marks);
            }
            println!("trace hash {:016x}", report.hash);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let least = |failure| shrink(failure, |step| eprintln!("shrinking: {step}"));
            let failure = if options.shrinks { least(failure) } else { failure };
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// What came of many universes.
#[derive(Default)]
struct Sum {
    marks: Marks,
    failed: Vec<(u64, Box<Failure>)>,
    operations: u64,
    /// Of each universe.
    faults: Vec<u64>,
    /// Universes with a crash, and with one during a start.
    crashed: u64,
    crashed_in_start: u64,
}

fn many(count: u64, options: &Options) -> ExitCode {
    let began = std::time::SystemTime::now();
    let (next, sum) = (AtomicU64::new(options.from), Mutex::new(Sum::default()));
    let end = options.from + count;
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let result = run(seed, options.limits);
                    sum.lock().unwrap_or_else(PoisonError::into_inner).add(seed, result);
                }
            });
        }
    });
    let mut sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = began.elapsed().map_or(1.0, |real| real.as_secs_f64());
    sum.failed.sort_by_key(|(seed, _)| *seed);
    if options.shows_marks {
        println!("reached:\n{}", sum.marks);
    }
    if let Some((_, first)) = sum.failed.first() {
        println!("{first}");
    }
    for (seed, failure) in sum.failed.iter().skip(1) {
        println!(
            "universe {seed} went wrong, too: {}",
            failure.what.lines().next().unwrap_or_default()
        );
    }
    let missing = if options.expects_marks { sum.marks.missing() } else { Vec::new() };
    if !missing.is_empty() {
        println!("never reached: {}", missing.join(", "));
    }
    sum.faults.sort_unstable();
    println!(
        "faults a universe: {} in the median; {} universes with a crash, {} with one during a start",
        sum.faults.get(sum.faults.len() / 2).unwrap_or(&0),
        sum.crashed,
        sum.crashed_in_start
    );
    let per_minute = f64::from(u32::try_from(count).unwrap_or(u32::MAX)) * 60.0 / seconds;
    println!(
        "{count} universes from seed {}: {} went wrong; {} device operations, {per_minute:.0} universes a \
         minute on {} threads, {} marks reached, {} expected ones missing",
        options.from,
        sum.failed.len(),
        sum.operations,
        options.jobs.max(1),
        sum.marks.reached(),
        missing.len()
    );
    let is_well = sum.failed.is_empty() && missing.is_empty();
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Sum {
    fn add(&mut self, seed: u64, result: Result<Report, Box<Failure>>) {
        match result {
            Ok(report) => {
                self.marks.merge(&report.marks);
                self.operations += report.operations;
                self.faults.push(report.faults);
                let of = |name| report.marks.of(name);
                self.crashed += u64::from(of("crash.power") + of("crash.kill") > 0);
                self.crashed_in_start += u64::from(of("crash.in_start") > 0);
            }
            Err(failure) => self.failed.push((seed, failure)),
        }
    }
}
