//! Whatever ends a life, its engine goes with it. Alone in its process: it looks at all of the
//! process's memory.

use ashlar_universe::{Limits, run};

/// Universes before anything is compared: the first make what stays for all.
const FIRST: u64 = 10;

/// A pool is a mapping of its own, and an engine has a dozen of them.
#[test]
fn no_universe_leaves_an_engine_behind() {
    let mappings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux tells");
        maps.lines().count()
    };
    let mut before = 0;
    let mut grown = Vec::new();
    for seed in 0..80 {
        let story = run(seed, Limits::default()).map(|report| report.story).unwrap_or_default();
        let after = mappings();
        if seed >= FIRST && after > before + 3 {
            grown.push(format!("seed {seed}: {} more mappings\n{story}", after - before));
        }
        before = after;
    }
    assert!(grown.is_empty(), "{} universes left something:\n{}", grown.len(), grown.join("\n"));
}
