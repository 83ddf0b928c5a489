//! What memory and processors did when they were tried, against what their data say, each other,
//! and an earlier look.

use super::{Facts, Found, silent};
use crate::inspect::server::{Memory, Server};
use crate::metrics::bandwidth::Rate;
use crate::metrics::latency::to_f64;
use crate::source::speeds::{NodeSpeeds, Speeds, steps};
use crate::units;

/// Reading with all cores gets 75 to 90 % of what the modules transfer at most; below this
/// something is wrong.
const SHARE_MIN: f64 = 0.6;
/// A figure above this share of its ceiling is no figure of memory.
const SHARE_MAX: f64 = 1.02;
/// With fewer threads memory may be waiting for them.
const THREADS_MIN: usize = 4;
/// Nodes, and two looks at one, are alike within this.
const ALIKE: f64 = 0.9;
/// All cores at once keep at least this of their frequency and their time.
const SCALES: f64 = 0.5;

const HOW: &str =
    "on the machine itself: lab inspect --measure, or lab capture --measure to keep it";

/// What was tried; or why a check that needs it cannot tell.
fn tried<'a>(facts: &Facts<'a>) -> Result<&'a Speeds, Found> {
    let Some(speeds) = &facts.server.speeds else {
        return Err(Found::cannot_tell("not measured", HOW));
    };
    match (speeds.not_tried.first(), speeds.nodes.is_empty()) {
        (Some(why), _) => Err(Found::cannot_tell(format!("not measured: {why}"), HOW)),
        (None, true) => Err(Found::cannot_tell("not measured: no node was tried", HOW)),
        (None, false) => Ok(speeds),
    }
}

/// Memory carries about what its modules can.
pub fn bandwidth_measured(facts: &Facts<'_>) -> Found {
    let speeds = match tried(facts) {
        Ok(speeds) => speeds,
        Err(found) => return found,
    };
    let sockets = facts.server.cpu.sockets();
    let carried: Option<Vec<(u64, Rate)>> =
        sockets.iter().map(|socket| Some((*socket, speeds.socket_carried(*socket)?))).collect();
    let Some(carried) = carried.filter(|it| !it.is_empty()) else {
        return Found::cannot_tell("not measured: a socket gave no figure", HOW);
    };
    let list = |it: &(u64, Rate)| format!("socket {}: {}", it.0, it.1);
    let Some(computed) = computed(facts.server) else {
        return Found::cannot_tell(
            format!(
                "{} with its own cores, and nothing to set it against: {}",
                carried.iter().map(list).collect::<Vec<_>>().join(", "),
                silent(facts, "dmidecode")
            ),
            "run as root where the SMBIOS tables can be read; \
             keep this figure and compare with --before",
        );
    };
    let mut found = Vec::new();
    let (mut least, mut slow) = (f64::INFINITY, None);
    for ((socket, rate), ceiling) in carried.iter().zip(&computed) {
        let share = rate.share_of(*ceiling);
        found.push(format!("socket {socket}: {rate} of {ceiling}, {}", units::percent(share)));
        if share > SHARE_MAX {
            return Found::cannot_tell(
                format!(
                    "{}: more than its modules can; caches held it, \
                     or the firmware's tables are wrong",
                    list(&(*socket, *rate))
                ),
                "compare the tables with the modules themselves",
            );
        }
        if share < least {
            (least, slow) = (share, Some((*socket, *ceiling)));
        }
    }
    let found = found.join("; ");
    match slow.filter(|_| least < SHARE_MIN) {
        None => Found::pass("memory", found),
        Some((socket, ceiling)) => below(speeds, socket, ceiling, found),
    }
}

/// What the modules of each socket transfer at most, in the order of the sockets; None if one is
/// not known.
fn computed(server: &Server) -> Option<Vec<Rate>> {
    let banks = server.memory.as_ref().and_then(Memory::banks)?;
    let sockets = u64::try_from(server.cpu.sockets().len()).ok()?;
    (0..sockets).map(|order| banks.get(&order)?.rate()).collect()
}

/// Whether a socket's memory was measured and gave far less than its modules can.
pub fn is_far_below(facts: &Facts<'_>) -> bool {
    let mut memory = facts.topology.links.iter().filter(|link| link.is_memory());
    memory.any(|link| {
        let both = link.measured.zip(link.computed);
        both.is_some_and(|(measured, computed)| measured.share_of(computed) < SHARE_MIN)
    })
}

/// A socket's memory gave far less than it could: is that the memory?
fn below(speeds: &Speeds, socket: u64, ceiling: Rate, found: String) -> Found {
    let own = || speeds.nodes.iter().filter(|it| it.socket == Some(socket));
    let threads: usize = own().map(|node| node.cpus.len()).sum();
    if threads < THREADS_MIN {
        return Found::cannot_tell(
            format!("{found}, with {threads} threads, which may not ask for more"),
            "measure with more CPUs; in a guest, on the host",
        );
    }
    let best = own().filter_map(|node| node.carried_at_best());
    let best = Rate(best.fold(0, |sum: u64, rate| sum.saturating_add(rate.0)));
    if best.share_of(ceiling) >= SHARE_MIN {
        return Found::cannot_tell(
            format!("{found}; the best round had {best}, so something else used memory meanwhile"),
            "stop what else runs here and measure again",
        );
    }
    Found::fail(
        "memory",
        found,
        "stop what else runs and measure again; then look in the firmware's setup for mirroring, \
         sparing, interleaving and power limits, and whether the modules are in the slots that the \
         board's manual names",
    )
}

/// One of a node's figures.
type FigureOf = fn(&NodeSpeeds) -> Option<f64>;

/// Nodes do the same.
pub fn nodes_alike(facts: &Facts<'_>) -> Found {
    let speeds = match tried(facts) {
        Ok(speeds) if speeds.nodes.len() == 1 => return Found::not_applicable("one NUMA node"),
        Ok(speeds) => speeds,
        Err(found) => return found,
    };
    let kinds: [(&str, FigureOf); 3] = [
        ("reading memory", |it| Some(to_f64(it.read.median()?.0))),
        ("copying memory", |it| Some(to_f64(it.copy.median()?.0))),
        ("arithmetic", |it| Some(to_f64(it.score_all?))),
    ];
    let mut least: Option<(f64, u64, &str)> = None;
    for (what, of) in kinds {
        let figures: Option<Vec<(u64, f64)>> =
            speeds.nodes.iter().map(|it| Some((it.node, of(it)?))).collect();
        let Some(figures) = figures else {
            return Found::cannot_tell(
                format!("not measured: a node gave no figure for {what}"),
                HOW,
            );
        };
        let best = figures.iter().map(|it| it.1).fold(0.0, f64::max);
        for (node, figure) in figures {
            let share = if best > 0.0 { figure / best } else { 0.0 };
            if least.is_none_or(|it| share < it.0) {
                least = Some((share, node, what));
            }
        }
    }
    let (share, node, what) = least.unwrap_or((0.0, 0, "anything"));
    let found = format!("node {node} does {} of the best node at {what}", units::percent(share));
    match share >= ALIKE {
        true => Found::pass(
            "cpu",
            format!("{} nodes are alike: at the least, {found}", speeds.nodes.len()),
        ),
        false => Found::fail(
            "cpu",
            found,
            "compare modules and slots of the sockets, then cooling and power limits; \
             an array over both runs at the pace of the slower one",
        ),
    }
}

/// All cores at once do as much as their number lets expect.
pub fn score_scales(facts: &Facts<'_>) -> Found {
    let speeds = match tried(facts) {
        Ok(speeds) => speeds,
        Err(found) => return found,
    };
    let mut least: Option<(f64, String)> = None;
    for node in &speeds.nodes {
        let cores = cores(facts.server, &node.cpus);
        let Some((one, all)) = node.score_one.zip(node.score_all).filter(|it| it.0 > 0) else {
            let found = format!("not measured: node {} gave no score", node.node);
            return Found::cannot_tell(found, HOW);
        };
        if cores < 2 {
            continue;
        }
        let times = to_f64(all) / to_f64(one);
        let share = times / to_f64(u64::try_from(cores).unwrap_or(1));
        let found = format!(
            "node {}: {cores} cores at once do {times:.1} times what one does ({} steps/s)",
            node.node,
            steps(one)
        );
        if least.as_ref().is_none_or(|it| share < it.0) {
            least = Some((share, found));
        }
    }
    match least {
        None => Found::not_applicable("one core a node"),
        Some((share, found)) if share >= SCALES => Found::pass("cpu", found),
        Some((_, found)) => Found::fail(
            "cpu",
            found,
            "look for other load, a CPU quota (cgroup, hypervisor), power limits and heat; \
             CPU figures of such a machine mean little",
        ),
    }
}

/// How many cores these CPUs are.
fn cores(server: &Server, cpus: &[u64]) -> usize {
    let own = server.cpu.threads.iter().filter(|it| cpus.contains(&it.cpu));
    own.map(|it| (it.socket, it.core)).collect::<std::collections::BTreeSet<_>>().len()
}

/// Memory and processors do what they did in the capture that this is compared with: the server
/// earlier, or its reference.
pub fn as_before(facts: &Facts<'_>) -> Found {
    let speeds = match tried(facts) {
        Ok(speeds) => speeds,
        Err(found) => return found,
    };
    let before =
        facts.before.map(|server| server.speeds.as_ref().filter(|it| !it.nodes.is_empty()));
    let before = match before {
        Some(Some(before)) => before,
        Some(None) => {
            return Found::cannot_tell("the capture before was made without measuring", HOW);
        }
        None => {
            return Found::cannot_tell(
                "nothing to compare with",
                "lab capture --measure of this server in good order, or of one of its class, then: \
                 lab inspect --measure --before DIR",
            );
        }
    };
    let mut all: Vec<(f64, String)> = Vec::new();
    for node in &speeds.nodes {
        let Some(was) = before.nodes.iter().find(|it| it.node == node.node) else { continue };
        if let (Some(now), Some(was)) = (node.read.median(), was.read.median()) {
            let found = format!("node {}: memory read at {now}, before {was}", node.node);
            all.push((now.share_of(was), found));
        }
        if let (Some(now), Some(was)) = (node.score_one, was.score_one)
            && speeds.build == before.build
        {
            let found =
                format!("node {}: {} steps/s, before {}", node.node, steps(now), steps(was));
            all.push((to_f64(now) / to_f64(was.max(1)), found));
        }
    }
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    match all.into_iter().next() {
        None => Found::cannot_tell("the two looks have no node in common", HOW),
        Some((share, found)) if share >= ALIKE => Found::pass("cpu", found),
        Some((_, found)) => Found::fail(
            "cpu",
            found,
            "what changed between the two: firmware, modules, cooling, \
             other load? measure again before believing either",
        ),
    }
}
