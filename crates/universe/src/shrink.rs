//! A universe that goes wrong, made smaller: with fewer lives, acts, requests and clients, as long
//! as the same still goes wrong.
//!
//! What must stay true: what comes back has really been run and really failed; it is never larger
//! than what was given.

use crate::universe::{Failure, Limits, run};

/// What can be limited.
type Limit = (&'static str, fn(&mut Limits) -> &mut usize);

const LIMITS: [Limit; 4] = [
    ("lives", |limits| &mut limits.lives),
    ("acts", |limits| &mut limits.acts),
    ("clients", |limits| &mut limits.clients),
    ("requests", |limits| &mut limits.requests),
];

/// A bound on acts: a director takes no more in all lives.
const ACTS_MAX: usize = 160;

/// The smallest failure of the same kind that halving one limit after the other comes to. `say`
/// hears of each step.
pub fn shrink(first: Box<Failure>, mut say: impl FnMut(&str)) -> Box<Failure> {
    let mut best = bounded(first);
    loop {
        let before = best.limits;
        for (name, limit) in LIMITS {
            best = least(best, limit);
            let mut limits = best.limits;
            say(&format!("{name} {}", limit(&mut limits)));
        }
        if best.limits == before {
            return best;
        }
    }
}

/// The same with numbers instead of "no limit".
fn bounded(mut failure: Box<Failure>) -> Box<Failure> {
    let (config, limits) = (&failure.config, &mut failure.limits);
    limits.lives = limits.lives.min(config.lives);
    limits.requests = limits.requests.min(config.requests);
    limits.clients = limits.clients.min(config.clients.len());
    limits.acts = limits.acts.min(ACTS_MAX);
    failure
}

/// The least value of one limit with which it still fails, as far as halving finds it.
fn least(mut best: Box<Failure>, limit: fn(&mut Limits) -> &mut usize) -> Box<Failure> {
    let mut passed = 0;
    loop {
        let mut limits = best.limits;
        let value = limit(&mut limits);
        let fails = *value;
        if passed >= fails {
            return best;
        }
        let middle = passed + (fails - passed) / 2;
        *value = middle;
        match run(best.config.seed, limits) {
            Err(failure) if kind(&failure) == kind(&best) => best = failure,
            _ => passed = middle + 1,
        }
    }
}

/// What went wrong, without the numbers.
fn kind(failure: &Failure) -> String {
    let letters = failure.what.chars().filter(|letter| !letter.is_ascii_digit());
    letters.take(24).collect()
}
