//! `universe SEED`: run one; `universe --many COUNT`: run many and say how fast.
//!
//! What must stay true: exit status 0 means that nothing went wrong. What it prints for a failure is enough to repeat it.

#![forbid(unsafe_code)]

use ashlar_universe::{Limits, Marks, run};
use std::process::ExitCode;

const USAGE: &str = "\
universe SEED [--story] [--requests N] [--acts N] [--lives N] [--policy NAME] [--class NAME]
universe --many COUNT [--from SEED] [--policy NAME] [--class NAME] [--marks]";

struct Options {
    seed: Option<u64>,
    many: Option<u64>,
    from: u64,
    shows_marks: bool,
    limits: Limits,
}

fn main() -> ExitCode {
    let Some(options) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match (options.seed, options.many) {
        (Some(seed), None) => one(seed, options.limits),
        (None, Some(count)) => many(count, &options),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Options> {
    let limits = Limits::default();
    let mut options = Options { seed: None, many: None, from: 0, shows_marks: false, limits };
    while let Some(word) = words.next() {
        let mut number = || words.next()?.parse::<u64>().ok();
        let limits = &mut options.limits;
        match word.as_str() {
            "--story" => limits.is_told = true,
            "--marks" => options.shows_marks = true,
            "--many" => options.many = Some(number()?),
            "--from" => options.from = number()?,
            "--requests" => limits.requests = usize::try_from(number()?).ok()?,
            "--acts" => limits.acts = usize::try_from(number()?).ok()?,
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

fn one(seed: u64, limits: Limits) -> ExitCode {
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
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn many(count: u64, options: &Options) -> ExitCode {
    let began = std::time::SystemTime::now();
    let (mut marks, mut failed, mut operations) = (Marks::default(), Vec::new(), 0);
    for seed in options.from..options.from + count {
        match run(seed, options.limits) {
            Ok(report) => {
                marks.merge(&report.marks);
                operations += report.operations;
            }
            Err(failure) => {
                if failed.is_empty() {
                    println!("{failure}");
                } else {
                    let what = failure.what.lines().next().unwrap_or_default();
                    println!("universe {seed} went wrong, too: {what}");
                }
                failed.push(seed);
            }
        }
    }
    let seconds = began.elapsed().map_or(1.0, |real| real.as_secs_f64());
    if options.shows_marks {
        println!("reached:\n{marks}");
    }
    let per_minute = f64::from(u32::try_from(count).unwrap_or(u32::MAX)) * 60.0 / seconds;
    println!(
        "{count} universes from seed {}: {} went wrong; {operations} device operations, \
         {per_minute:.0} universes a minute, {} marks",
        options.from,
        failed.len(),
        marks.reached()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
