//! A few universes on every test run; `./check` and `just sim-many` run thousands.

use ashlar_universe::{Limits, run};

#[test]
fn nothing_goes_wrong_in_a_hundred_universes() {
    for seed in 0..100 {
        if let Err(failure) = run(seed, Limits::default()) {
            panic!("{failure}");
        }
    }
}

#[test]
fn the_same_seed_is_the_same_universe() {
    for seed in [3, 14, 15, 92, 65] {
        let hash = |seed| run(seed, Limits::default()).map(|report| report.hash).ok();
        assert!(hash(seed).is_some());
        assert_eq!(hash(seed), hash(seed), "seed {seed}");
    }
}
