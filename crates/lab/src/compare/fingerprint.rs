//! Whether two runs are of the same machine: then a difference is the engine's, otherwise it may be
//! anybody's.
//!
//! What must stay true: a fact that one of them did not record is a difference, never a match.

use serde::Serialize;
use std::collections::BTreeMap;

/// Facts that make a machine another one.
const MACHINE: [&str; 4] = ["cpu", "cores", "memory", "devices"];
/// Facts that may be what is being tested; they are said.
const SOFTWARE: [&str; 8] =
    ["kernel", "distribution", "fio", "governor", "turbo", "C-states", "SMT", "mitigations"];
/// Memory that the kernel keeps for itself differs from version to version.
const MEMORY_TOLERANCE: f64 = 0.03;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Differences {
    /// Facts of the machine: `cores: 0-1 -> 0-3`.
    pub machine: Vec<String>,
    /// Facts of its software and its settings.
    pub software: Vec<String>,
}

/// Compare the environment of an older run with that of a newer one.
pub fn differences(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Differences {
    let differing = |names: &[&str]| {
        names.iter().filter_map(|name| difference(name, old.get(*name), new.get(*name))).collect()
    };
    Differences { machine: differing(&MACHINE), software: differing(&SOFTWARE) }
}

fn difference(name: &str, old: Option<&String>, new: Option<&String>) -> Option<String> {
    match (old, new) {
        (Some(old), Some(new)) if is_same(name, old, new) => None,
        _ => {
            let shown =
                |fact: Option<&String>| fact.map_or("not recorded", String::as_str).to_owned();
            Some(format!("{name}: {} -> {}", shown(old), shown(new)))
        }
    }
}

fn is_same(name: &str, old: &str, new: &str) -> bool {
    let size = |text: &str| text.split_whitespace().next()?.parse::<f64>().ok();
    match (name, size(old), size(new)) {
        ("memory", Some(old), Some(new)) => (old - new).abs() <= old * MEMORY_TOLERANCE,
        _ => old == new,
    }
}

#[cfg(test)]
mod tests {
    use super::differences;
    use std::collections::BTreeMap;

    fn facts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, fact)| ((*name).to_owned(), (*fact).to_owned())).collect()
    }

    const SAME: [(&str, &str); 5] = [
        ("cpu", "A"),
        ("cores", "0-1"),
        ("memory", "24000000 kB"),
        ("devices", "4 x file, 1.07 GB"),
        ("kernel", "6.1"),
    ];

    #[test]
    fn another_kernel_is_software_and_another_processor_is_another_machine() {
        let old = facts(&SAME);
        let mut new = old.clone();
        new.insert("memory".into(), "23900000 kB".into());
        new.insert("kernel".into(), "6.18".into());
        let told = differences(&old, &new);
        assert!(told.machine.is_empty(), "{told:?}");
        assert!(told.software.contains(&"kernel: 6.1 -> 6.18".to_owned()), "{told:?}");
        new.insert("cpu".into(), "B".into());
        new.insert("memory".into(), "12000000 kB".into());
        let told = differences(&old, &new);
        assert_eq!(told.machine, ["cpu: A -> B", "memory: 24000000 kB -> 12000000 kB"]);
        // What was not recorded is no match.
        let old = facts(&SAME[1..]);
        assert_eq!(differences(&old, &facts(&SAME)).machine, ["cpu: not recorded -> A"]);
        assert_eq!(differences(&old, &old).machine, ["cpu: not recorded -> not recorded"]);
    }
}
