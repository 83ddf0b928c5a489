//! The load from the CPUs of each NUMA node in turn (item 94): what lies between the sockets.
//!
//! What must stay true: nodes without CPUs are none; a machine with one node has nothing between
//! its sockets, and says so.

use crate::metrics::slow_member::median;
use crate::record::{Check, Measurement};
use crate::units;
use crate::validity::{Mark, Outcome};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// From another node at least this part of the best.
const NEAR: f64 = 0.95;

/// A node, and its CPUs as the kernel lists them: `0-15,32-47`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Node {
    /// Its number, as a word.
    pub number: String,
    /// Its CPUs.
    pub cpus: String,
}

/// The nodes that have CPUs; `sysfs` is `/sys`.
pub fn nodes(sysfs: &Path) -> Vec<Node> {
    let folder = sysfs.join("devices/system/node");
    let items = fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok);
    let mut nodes: Vec<(u32, Node)> = items
        .filter_map(|item| {
            let name = item.file_name().to_string_lossy().into_owned();
            let number: u32 = name.strip_prefix("node")?.parse().ok()?;
            let cpus = fs::read_to_string(item.path().join("cpulist")).ok()?.trim().to_owned();
            (!cpus.is_empty()).then(|| (number, Node { number: number.to_string(), cpus }))
        })
        .collect();
    nodes.sort();
    nodes.into_iter().map(|(_, node)| node).collect()
}

/// A check for each load on each target that was made from several nodes.
pub fn checks<'a>(known: impl Iterator<Item = &'a Measurement>) -> Vec<Check> {
    let mut loads: BTreeMap<(&str, &str), BTreeMap<&str, Vec<&Measurement>>> = BTreeMap::new();
    let usable = |it: &&Measurement| it.stage == "numa" && Mark::of(&it.findings) != Mark::Invalid;
    for one in known.filter(usable) {
        let Some((load, node)) = one.workload.name.rsplit_once("-node") else { continue };
        let nodes = loads.entry((one.target.as_str(), load)).or_default();
        nodes.entry(node).or_default().push(one);
    }
    loads.into_iter().filter_map(|((target, load), nodes)| check(target, load, &nodes)).collect()
}

fn check(target: &str, load: &str, nodes: &BTreeMap<&str, Vec<&Measurement>>) -> Option<Check> {
    let unit = nodes.values().next()?.first()?.workload.unit();
    let mut rates: Vec<(&str, f64)> = nodes
        .iter()
        .map(|(node, rounds)| (*node, median(rounds.iter().map(|it| it.rate()))))
        .collect();
    rates.sort_by(|one, other| other.1.total_cmp(&one.1));
    let (best, worst) = (rates.first()?, rates.last()?);
    let told: Vec<String> = rates
        .iter()
        .map(|(node, rate)| format!("node {node} {}", units::rate(*rate, unit)))
        .collect();
    let share = worst.1 / best.1;
    let (outcome, next) = match rates.len() {
        0 | 1 => (Outcome::CannotTell, None),
        _ if share >= NEAR => (Outcome::Pass, None),
        _ => (
            Outcome::Fail,
            Some(format!(
                "pin engine and load to node {} and say so, or spread drives over the sockets; \
                 it is the way between the sockets that costs",
                best.0
            )),
        ),
    };
    Some(Check {
        name: "numa.far".to_owned(),
        target: format!("{target}, {load}"),
        outcome,
        found: format!("from {}: {} of the best", told.join(", "), units::percent(share)),
        next,
    })
}

#[cfg(test)]
mod tests {
    use super::{Node, checks, nodes};
    use crate::record::{Measurement, Record};
    use crate::validity::Outcome;

    #[test]
    fn nodes_without_cpus_are_none() {
        let place = tempfile::tempdir().expect("a directory");
        let folder = place.path().join("devices/system/node");
        for (name, cpus) in
            [("node10", "8-15\n"), ("node2", "0-7\n"), ("node3", "\n"), ("power", "1")]
        {
            std::fs::create_dir_all(folder.join(name)).expect("made");
            std::fs::write(folder.join(name).join("cpulist"), cpus).expect("written");
        }
        let node = |number: &str, cpus: &str| Node { number: number.into(), cpus: cpus.into() };
        assert_eq!(nodes(place.path()), [node("2", "0-7"), node("10", "8-15")]);
        assert!(nodes(std::path::Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn the_far_node_is_named_when_it_does_less() {
        let text = include_str!("../../tests/data/two-engines/records.jsonl");
        let only = |record| if let Record::Measurement(it) = record { Some(*it) } else { None };
        let mut all = text.lines().map(|line| serde_json::from_str::<Record>(line).unwrap());
        let sample: Measurement = all.find_map(only).unwrap();
        let from = |node: u32, rate: f64| {
            let mut one = sample.clone();
            (one.stage, one.workload.name) = ("numa".into(), format!("rr-4k-j1-q32-node{node}"));
            (one.workload.mix, one.workload.block_bytes) = ("randread".into(), 4096);
            (one.read.iops, one.write.iops) = (rate, 0.0);
            one.findings.clear();
            one
        };
        let outcome = |rates: &[f64]| {
            let all: Vec<Measurement> =
                (0..).zip(rates).map(|(at, rate)| from(at, *rate)).collect();
            let checks = checks(all.iter());
            (checks[0].outcome, checks[0].found.clone(), checks[0].next.clone().unwrap_or_default())
        };
        let (far, found, next) = outcome(&[76e3, 100e3]);
        assert!(far == Outcome::Fail && found.contains("76.0 % of the best"), "{found}");
        assert!(next.contains("node 1"), "{next}");
        assert_eq!(outcome(&[99e3, 100e3]).0, Outcome::Pass);
        assert_eq!(outcome(&[99e3]).0, Outcome::CannotTell);
    }
}
