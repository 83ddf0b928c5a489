//! Memory while an array is rebuilt: what `free` and `slabtop` would have shown before it
//! and under load.
//!
//! What must stay true: what could not be read is not judged.

use crate::inspect::server::software::Memory;
use crate::metrics::latency::to_f64;
use crate::record::Check;
use crate::rules;
use crate::source::Source;
use crate::units;
use std::time::Duration;

/// Memory now; None if the kernel does not say.
pub fn now() -> Option<Memory> {
    Memory::read(&Source::live(Duration::from_secs(1)))
}

/// What became of it between the beginning of a rebuild and the end of the load beside it.
pub fn of_rebuild(array: &str, before: &Memory, during: &Memory) -> Check {
    let bytes = |count: u64| units::bytes(to_f64(count));
    let change = |what: &str, was: u64, is: u64| match is.checked_sub(was) {
        Some(more) => format!("{what} grew by {}", bytes(more)),
        None => format!("{what} fell by {}", bytes(was - is)),
    };
    let share = to_f64(during.available) / to_f64(during.total.max(1));
    let mut told = vec![
        format!(
            "{} available beside the rebuild, {}",
            bytes(during.available),
            units::percent(share)
        ),
        change("what is available", before.available, during.available),
        change("slabs that cannot be given back", before.kernel, during.kernel),
    ];
    let grown = during.slabs.iter().filter_map(|(name, is)| {
        let more = is.checked_sub(*before.slabs.get(name)?)?;
        (more > 0).then_some((more, name))
    });
    told.extend(grown.max().map(|(more, name)| format!("most of all {name} by {}", bytes(more))));
    let rule = rules::of("rebuild.memory");
    rule.judge(share >= rule.limit(), array, told.join("; "))
}

#[cfg(test)]
mod tests {
    use super::of_rebuild;
    use crate::inspect::server::software::Memory;
    use crate::validity::Outcome;
    use std::collections::BTreeMap;

    fn memory(available: u64, kernel: u64, raid: u64) -> Memory {
        let slabs =
            BTreeMap::from([("dentry".to_owned(), raid / 1000), ("raid6-md0".to_owned(), raid)]);
        Memory { available, total: 100_000_000_000, kernel, slabs }
    }

    #[test]
    fn the_slab_that_grew_most_is_named_and_too_little_memory_fails() {
        let before = memory(90_000_000_000, 1_000_000_000, 10_000_000);
        let check =
            of_rebuild("md0", &before, &memory(80_000_000_000, 3_000_000_000, 2_010_000_000));
        assert_eq!(check.outcome, Outcome::Pass);
        for word in ["fell by 10", "grew by 2", "raid6-md0 by 2", "80.0 %"] {
            assert!(check.found.contains(word), "{word}: {}", check.found);
        }
        let short = of_rebuild("md0", &before, &memory(4_000_000_000, 0, 0));
        assert_eq!(short.outcome, Outcome::Fail);
        assert!(!short.found.contains("most of all"), "no slab grew: {}", short.found);
    }
}
