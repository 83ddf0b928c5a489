//! Member sets changed by accident or by somebody who knows the format, and the engine that has to
//! start from them: 1,000 of them, or as many as `ASHLAR_MEMBER_SETS` says, from number
//! `ASHLAR_MEMBER_SETS_FROM` on.
//!
//! What must stay true: the demands are in `src/hostile/trial.rs`. Here are the counts, so that no
//! set passes by refusing everything, and the memory limit of the process.

use ashlar_universe::{subjects, trials};

/// More address space than this above what the arrays take, and a forged number has become the size
/// of something: two engines have some 200 MiB of pools.
const MEMORY_KIB_MAX: u64 = 1 << 20;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// The most address space the process ever had, KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn hostile_members_start_right_or_not_at_all() {
    let count = number("ASHLAR_MEMBER_SETS").unwrap_or(1000);
    let from = number("ASHLAR_MEMBER_SETS_FROM").unwrap_or(0);
    let subjects = subjects();
    let at_first = peak_kib();
    let (tally, wrong) = trials(from..from + count, &subjects, 2);
    println!("{} arrays; {tally}", subjects.len());
    let more = peak_kib() - at_first;
    println!("at most {} MiB of address space, {} MiB of it since", peak_kib() >> 10, more >> 10);
    wrong.iter().take(20).for_each(|what| println!("{what}"));
    assert!(
        wrong.is_empty(),
        "{} of {count} sets went wrong, the first: {}",
        wrong.len(),
        wrong[0]
    );
    let (refused, assembled) = tally.refused_and_assembled();
    assert!(
        assembled > count / 4 && refused > count / 20,
        "{assembled} started, {refused} did not"
    );
    assert!(more < MEMORY_KIB_MAX, "{more} KiB of address space");
}
