//! `universe SEED`: run one; `universe --many COUNT`: run many and say how fast; `universe
//! --all-aims COUNT`: so many of everything that can be wished.
//!
//! What must stay true: exit status 0 means that nothing went wrong. What it prints for a failure
//! is enough to repeat it. It ends quietly if nobody reads what it prints.

#![forbid(unsafe_code)]

mod print;

use ashlar_universe::{Covered, Failure, Limits, Marks, Report, Wish, cases, exhaust, run, shrink};
use print::{complain, line};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Each start of an engine allocates and frees large and small: the system's allocator took a sixth
/// of a run.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "\
universe SEED [--story] [--shrink] [--requests N] [--acts N] [--lives N] [--clients N]
         [--policy NAME] [--class NAME] [--aim NAME] [--checksums] [--declustered]
         [--operators] [--keeps-map | --keeps-no-map]
universe --many COUNT [--from SEED] [--policy NAME] [--class NAME] [--aim NAME] [--checksums]
         [--declustered] [--operators] [--keeps-map | --keeps-no-map] [--jobs THREADS]
         [--marks] [--expect-marks] [--expect-goals]
universe --all-aims COUNT [--from SEED] [--jobs THREADS]
universe --exhaustive [--long] [--part K/N] [--states N] [--jobs THREADS]";

/// What a run must show with `--expect-goals`: faults of the universe in the middle, universes of a
/// hundred with a crash (and the start after it), and with a crash during a start.
const GOALS: (u64, u64, u64) = (10, 100, 10);

struct Options {
    seed: Option<u64>,
    many: Option<u64>,
    /// So many universes of each wish.
    all_aims: Option<u64>,
    from: u64,
    jobs: usize,
    shows_marks: bool,
    shrinks: bool,
    expects_marks: bool,
    expects_goals: bool,
    /// Every crash state of small workloads, instead of universes; all workloads.
    is_exhaustive: bool,
    is_long: bool,
    /// Of so many parts of them this one, from 0 on: the workloads go to the parts in turns.
    part: (usize, usize),
    /// A crash point with more states is left out.
    states_max: u64,
    limits: Limits,
    /// The engine is wrong in this place, in a build that can be.
    #[cfg(feature = "canaries")]
    canary: Option<ashlar_universe::Planted>,
}

fn main() -> ExitCode {
    let Some(options) = parse(std::env::args().skip(1)) else {
        complain(USAGE);
        return ExitCode::from(2);
    };
    match (options.seed, options.many, options.all_aims) {
        (Some(seed), None, None) => one(seed, &options),
        (None, Some(count), None) => many(count, &options),
        (None, None, Some(count)) => all_aims(count, &options),
        (None, None, None) if options.is_exhaustive => every_crash_state(&options),
        _ => {
            complain(USAGE);
            ExitCode::from(2)
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed: None,
            many: None,
            all_aims: None,
            from: 0,
            jobs: 1,
            shows_marks: false,
            shrinks: false,
            expects_marks: false,
            expects_goals: false,
            is_exhaustive: false,
            is_long: false,
            part: (0, 1),
            states_max: 20_000,
            limits: Limits::default(),
            #[cfg(feature = "canaries")]
            canary: None,
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options::default();
    while let Some(word) = words.next() {
        let mut number = || words.next()?.parse::<u64>().ok();
        let limits = &mut options.limits;
        match word.as_str() {
            "--story" => limits.is_told = true,
            "--shrink" => options.shrinks = true,
            "--marks" => options.shows_marks = true,
            "--expect-marks" => options.expects_marks = true,
            "--expect-goals" => options.expects_goals = true,
            "--exhaustive" => options.is_exhaustive = true,
            "--long" => options.is_long = true,
            "--part" => {
                let (part, parts) = words.next()?.split_once('/').map(both_numbers)??;
                options.part = Some((part, parts)).filter(|_| part < parts)?;
            }
            "--states" => options.states_max = number()?,
            "--jobs" => options.jobs = usize::try_from(number()?).ok()?,
            "--many" => options.many = Some(number()?),
            "--all-aims" => options.all_aims = Some(number()?),
            "--from" => options.from = number()?,
            "--requests" => limits.requests = usize::try_from(number()?).ok()?,
            "--acts" => limits.acts = usize::try_from(number()?).ok()?,
            "--clients" => limits.clients = usize::try_from(number()?).ok()?,
            "--lives" => limits.lives = usize::try_from(number()?).ok()?,
            "--checksums" => limits.wish.has_checksums = true,
            "--declustered" => limits.wish.declustered = true,
            "--keeps-map" | "--keeps-no-map" => limits.wish.keeps_map = Some(word == "--keeps-map"),
            "--operators" => limits.wish = Wish::operators(),
            "--aim" => {
                let name = words.next()?;
                let mut all = ashlar_universe::Aim::ALL.into_iter();
                limits.wish.aim = Some(all.find(|aim| aim.name() == name)?);
            }
            #[cfg(feature = "canaries")]
            "--canary" => {
                let name = words.next()?;
                let mut all = ashlar_universe::Planted::all();
                options.canary = Some(all.find(|canary| canary.name() == name)?);
            }
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

fn both_numbers((one, other): (&str, &str)) -> Option<(usize, usize)> {
    Some((one.parse().ok()?, other.parse().ok()?))
}

fn one(seed: u64, options: &Options) -> ExitCode {
    let limits = options.limits;
    match run(seed, limits) {
        Ok(report) => {
            line(format!("universe {seed} went well: {} device operations", report.operations));
            if limits.is_told {
                line(format!("{}{}", report.story, report.marks));
            }
            line(format!("trace hash {:016x}", report.hash));
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let least = |failure| shrink(failure, |step| complain(format!("shrinking: {step}")));
            let failure = if options.shrinks { least(failure) } else { failure };
            line(failure);
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
    let mut sum = run_many(count, options, options.limits);
    let seconds = began.elapsed().map_or(1.0, |real| real.as_secs_f64());
    if options.shows_marks {
        line(format!("reached:\n{}", sum.marks));
    }
    sum.print_failed();
    let missing = if options.expects_marks { sum.marks.missing() } else { Vec::new() };
    if !missing.is_empty() {
        line(format!("never reached: {}", missing.join(", ")));
    }
    let are_goals_met = sum.print_goals() || !options.expects_goals;
    let per_minute = f64::from(u32::try_from(count).unwrap_or(u32::MAX)) * 60.0 / seconds;
    line(format!(
        "{count} universes from seed {}: {} went wrong; {} device operations, {per_minute:.0} \
         universes a minute on {} threads, {} marks reached, {} of {} expected ones missing",
        options.from,
        sum.failed.len(),
        sum.operations,
        options.jobs.max(1),
        sum.marks.reached(),
        missing.len(),
        Marks::expected()
    ));
    let is_well = sum.failed.is_empty() && missing.is_empty() && are_goals_met;
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// So many universes of each wish, all from the same seed on: a line for each of them.
fn all_aims(count: u64, options: &Options) -> ExitCode {
    let (mut universes, mut wrong, from) = (0, 0, options.from);
    for wish in Wish::all() {
        let sum = run_many(count, options, Limits { wish, ..options.limits });
        line(format!(
            "{:>4} wrong, {:>3} marks, {:>9} device operations: \
             universe --many {count} --from {from}{wish}",
            sum.failed.len(),
            sum.marks.reached(),
            sum.operations,
        ));
        sum.print_failed();
        for (_, failure) in &sum.failed {
            line(format!("again: {}", failure.command()));
        }
        universes += count;
        wrong += sum.failed.len();
    }
    line(format!(
        "{universes} universes of all aims: {wrong} went wrong; \
         again: universe --all-aims {count} --from {from}"
    ));
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// So many universes from the first seed on.
fn run_many(count: u64, options: &Options, limits: Limits) -> Sum {
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
                    #[cfg(feature = "canaries")]
                    ashlar_universe::plant(options.canary);
                    let result = run(seed, limits);
                    sum.lock().unwrap_or_else(PoisonError::into_inner).add(seed, result);
                }
            });
        }
    });
    let mut sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    sum.failed.sort_by_key(|(seed, _)| *seed);
    sum
}

/// Every crash state of small workloads: status 0 if all of them are right.
fn every_crash_state(options: &Options) -> ExitCode {
    let began = std::time::SystemTime::now();
    let all = cases(options.is_long);
    let (part, parts) = options.part;
    let cases: Vec<_> = all.iter().skip(part).step_by(parts).collect();
    let (next, sum) = (AtomicUsize::new(0), Mutex::new((Covered::default(), Vec::new())));
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = exhaust(case, options.states_max);
                    let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                    match result {
                        Ok(covered) => {
                            if options.shows_marks {
                                line(format!("{case}: {covered}"));
                            }
                            sum.0.add(covered);
                        }
                        Err(what) => {
                            line(format!("crash state went wrong: {what}"));
                            sum.1.push(what);
                        }
                    }
                }
            });
        }
    });
    let (covered, failed) = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = began.elapsed().map_or(0, |real| real.as_secs());
    if parts > 1 {
        line(format!("part {part} of {parts}: {} workloads of {}", cases.len(), all.len()));
    }
    line(format!("{covered}; {} workloads went wrong; {seconds} s", failed.len()));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
            Err(failure) => {
                // At once: a long run may be ended before it comes to its sum.
                complain(format!("universe {seed} went wrong: {}", failure.first_line()));
                self.failed.push((seed, failure));
            }
        }
    }

    /// The first that went wrong in full, of the others what was wrong.
    fn print_failed(&self) {
        if let Some((_, first)) = self.failed.first() {
            line(first);
        }
        for (seed, failure) in self.failed.iter().skip(1) {
            line(format!("universe {seed} went wrong, too: {}", failure.first_line()));
        }
    }

    /// How much went on in those that went well. True if it is as much as it should be.
    fn print_goals(&mut self) -> bool {
        self.faults.sort_unstable();
        let count = u64::try_from(self.faults.len()).unwrap_or(u64::MAX).max(1);
        let median = self.faults.get(self.faults.len() / 2).copied().unwrap_or(0);
        let of_hundred = |universes: u64| universes * 100 / count;
        let (crashed, in_start) = (of_hundred(self.crashed), of_hundred(self.crashed_in_start));
        line(format!(
            "faults a universe: {median} in the median (goal {}); \
             with a crash and the start after it: {} of {count} (goal {} %); \
             with a crash during such a start: {} ({in_start} %, goal {} %)",
            GOALS.0, self.crashed, GOALS.1, self.crashed_in_start, GOALS.2
        ));
        median >= GOALS.0 && crashed >= GOALS.1 && in_start >= GOALS.2
    }
}
