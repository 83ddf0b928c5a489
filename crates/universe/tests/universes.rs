//! A few universes on every test run; `./check --full` and `just sim-many` run thousands.

use ashlar_universe::{Limits, run};

#[test]
fn nothing_goes_wrong_in_a_hundred_universes() {
    for seed in 0..100 {
        if let Err(failure) = run(seed, Limits::default()) {
            panic!("{failure}");
        }
    }
}

/// The end of a scrub once took its time from the real clock and wrote it to the members: one seed
/// gave two universes.
#[test]
fn the_same_seed_is_the_same_universe() {
    for seed in [3, 14, 15, 92, 65] {
        let hash = |seed| run(seed, Limits::default()).map(|report| report.hash).ok();
        assert!(hash(seed).is_some());
        assert_eq!(hash(seed), hash(seed), "seed {seed}");
    }
}

/// Policy `bitmap`: a device with a failing flush takes the slot of a lost one, the power is cut,
/// and the start's first flush puts that device out before the resync was there. What is dirty has
/// no parity to decode from.
#[test]
fn a_device_that_fails_between_a_crash_and_the_resync_may_cost_reads_without_a_log() {
    if let Err(failure) = run(10_373, Limits::default()) {
        panic!("{failure}");
    }
}
