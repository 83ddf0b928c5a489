//! On which cores the workers run: on those that the configuration names, else near the drives.
//!
//! What must stay true: the drives are those of arrays that may start with the daemon. On a machine
//! with one NUMA node, or if no drive tells its node, workers are bound to all cores in turn.
//! Devices are only read, and one that does not answer is left out. Arrays that come later take the
//! workers as they are. Not here: where a worker's memory is (`ashlar_iobuf`), which follows it.

use crate::aside::aside;
use crate::config::{Config, Serve, Workers, expand};
use crate::look::{self, Label};
use crate::{gather, partition};
use ashlar_api::{ApiError, codes};
use ashlar_device::Bay;
use ashlar_engine::EngineConfig;
use ashlar_iobuf::Nodes;
use ashlar_ring::affinity;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinSet;

/// How long a device may take to say what it is. Users of a killed daemon wait meanwhile.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// The NUMA nodes of the drives. None if it does not matter.
pub(crate) async fn nodes_of_drives(config: &Config, state: &Path) -> BTreeSet<u32> {
    let is_told = matches!(config.serve.workers, Some(Workers::Cores(_)));
    if is_told || !is_bound(&config.serve) || !Nodes::here().are_there() {
        return BTreeSet::new();
    }
    let named = config.array.iter().filter_map(|array| expand(&array.devices).ok()).flatten();
    let paths: BTreeSet<String> = named.chain(gather::devices(config, state)).collect();
    let mut looks = JoinSet::new();
    for path in paths {
        let look = aside(move || node_of_member(&path));
        looks.spawn(tokio::time::timeout(LOOK_MAX, look));
    }
    looks.join_all().await.into_iter().filter_map(|told| told.ok().flatten()).collect()
}

fn is_bound(serve: &Serve) -> bool {
    serve.pin.unwrap_or(true)
}

/// The node of a drive with a member on it, or on its partition.
fn node_of_member(path: &str) -> Option<u32> {
    let path = partition::inside(path).unwrap_or_else(|| path.to_owned());
    let node = Bay::at(Path::new(&path)).node?;
    matches!(look::label(&path), Label::Member { .. }).then_some(node)
}

/// Where the workers are.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    /// What to say of it.
    pub told: Option<String>,
    /// Why they are not where they should be.
    pub lacks: Option<String>,
}

/// How many workers there are, and the cores that they are bound to. Cores that this machine has
/// and this process may not use now leave all workers unbound.
///
/// # Errors
/// A core is named that this machine cannot have, or cores are named and no worker is to be bound.
pub(crate) fn place_workers(
    serve: &Serve,
    near: &BTreeSet<u32>,
    engine: &mut EngineConfig,
) -> Result<Placed, ApiError> {
    let allowed = match affinity::cores() {
        Ok(allowed) => allowed,
        Err(error) => {
            let lacks = Some(format!("no cores are known, so no worker is bound: {error}"));
            return Ok(Placed { told: None, lacks });
        }
    };
    if let Some(Workers::Cores(cores)) = &serve.workers {
        engine.worker_count = cores.len();
        let lacks = lacks(cores, &allowed, is_bound(serve))?;
        if lacks.is_none() {
            engine.cores.clone_from(cores);
        }
        return Ok(Placed { told: None, lacks });
    }
    if let Some(workers) = &serve.workers {
        engine.worker_count = workers.count();
    }
    if !is_bound(serve) {
        return Ok(Placed::default());
    }
    let (mut cores, others) = split(allowed, near, Nodes::here());
    let is_near = !cores.is_empty();
    if is_near && serve.workers.is_none() {
        engine.worker_count = cores.len();
    }
    if !is_near || serve.workers.is_some() {
        cores.extend(others);
    }
    let told = is_near.then(|| told(near, cores.iter().take(engine.worker_count)));
    engine.cores = cores;
    Ok(Placed { told, lacks: None })
}

/// The cores that this machine may ever have, by their highest number.
fn possible() -> usize {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = list.trim().rsplit([',', '-']).next().and_then(|last| last.parse().ok());
    last.unwrap_or(0)
}

/// Why these cores cannot be had now.
fn lacks(cores: &[usize], allowed: &[usize], is_bound: bool) -> Result<Option<String>, ApiError> {
    let refused = |what: String, next: &str| {
        let message = format!("{what}; nothing was started");
        Err(ApiError::new(codes::REQUEST_MALFORMED, message, next))
    };
    if !is_bound {
        let next = "say how many workers, or let them be bound";
        return refused("cores are named, and workers are not to be bound".to_owned(), next);
    }
    match cores.iter().find(|core| !allowed.contains(core)) {
        Some(core) if *core > possible() => {
            let next = "see the cores of this process with 'taskset -pc $$'";
            refused(format!("this process may not use core {core}"), next)
        }
        Some(core) => Ok(Some(format!(
            "this process may not use core {core} now, so no worker is bound; see 'taskset -pc \
             $$' and restart the daemon when the core can be used"
        ))),
        None => Ok(None),
    }
}

/// The cores on these nodes, one of each node in turn, and the other cores.
fn split(allowed: Vec<usize>, near: &BTreeSet<u32>, nodes: &Nodes) -> (Vec<usize>, Vec<usize>) {
    let is_near = |core: &usize| nodes.of_core(*core).is_some_and(|node| near.contains(&node));
    let (mut own, others): (Vec<_>, Vec<_>) = allowed.into_iter().partition(is_near);
    let rank = |core: usize| {
        let node = nodes.of_core(core);
        let before = own.iter().filter(|it| **it < core && nodes.of_core(**it) == node).count();
        (before, node, core)
    };
    let mut ranks: Vec<_> = own.iter().map(|core| rank(*core)).collect();
    ranks.sort_unstable();
    own = ranks.into_iter().map(|(_, _, core)| core).collect();
    (own, others)
}

fn told<'c>(near: &BTreeSet<u32>, cores: impl Iterator<Item = &'c usize>) -> String {
    let list = |numbers: Vec<String>| numbers.join(", ");
    let cores = list(cores.map(ToString::to_string).collect());
    let nodes = list(near.iter().map(ToString::to_string).collect());
    format!("workers on cores {cores}: the drives are on NUMA node {nodes}")
}

#[cfg(test)]
mod tests {
    use super::{lacks, split};
    use ashlar_api::ApiError;
    use ashlar_iobuf::Nodes;
    use std::collections::BTreeSet;
    use std::fs;

    /// Cores 0 to 3 on node 0, 4 to 7 on node 1.
    fn nodes() -> Nodes {
        let folder = tempfile::tempdir().expect("a folder");
        for (node, list) in [("node0", "0-3\n"), ("node1", "4-7\n")] {
            fs::create_dir(folder.path().join(node)).expect("made");
            fs::write(folder.path().join(node).join("cpulist"), list).expect("written");
        }
        Nodes::read(folder.path())
    }

    #[test]
    fn cores_near_the_drives_come_first_and_one_of_each_node_in_turn() {
        let split = |allowed: &[usize], near: &[u32]| {
            split(allowed.to_vec(), &BTreeSet::from_iter(near.iter().copied()), &nodes())
        };
        let all = [0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(split(&all, &[1]), (vec![4, 5, 6, 7], vec![0, 1, 2, 3]));
        assert_eq!(split(&all, &[0, 1]), (vec![0, 4, 1, 5, 2, 6, 3, 7], vec![]));
        assert_eq!(split(&[1, 2, 6], &[0, 1]), (vec![1, 6, 2], vec![]));
        assert_eq!(split(&[1, 2, 6], &[0]), (vec![1, 2], vec![6]));
        // No drive tells its node, or this process may use no core near it.
        assert_eq!(split(&all, &[]), (vec![], all.to_vec()));
        assert_eq!(split(&[1, 2], &[1]), (vec![], vec![1, 2]));
    }

    #[test]
    fn named_cores_must_be_possible_and_bound() {
        assert_eq!(lacks(&[1, 2], &[0, 1, 2], true), Ok(None));
        let told = |it: Result<Option<String>, ApiError>| it.expect_err("refused").to_string();
        let beyond = 9999;
        assert!(told(lacks(&[1, beyond], &[0, 1], true)).contains("may not use core 9999"));
        assert!(told(lacks(&[1], &[0, 1], false)).contains("not to be bound"));
        // Core 0 is on every machine, and may be away for a while.
        let now = lacks(&[0], &[1], true).expect("not refused").expect("said");
        assert!(now.contains("may not use core 0 now, so no worker is bound"), "{now}");
    }
}
