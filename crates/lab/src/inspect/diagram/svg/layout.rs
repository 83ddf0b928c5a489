//! Where everything of the diagram stands: a column for each place on the way to memory, rows so
//! that sources lie beside what they flow into.
//!
//! What must stay true: leaves with the same way to memory stand together, in the order in which
//! people count.

use super::{BOX_HEIGHT, BOX_WIDTH, MARGIN, ROW, TOP, WIDTH};
use crate::inspect::topology::{Place, Topology};
use crate::source::natural;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Where everything stands: left edge and middle of each node.
pub(super) struct Plan {
    pub(super) at: Vec<(f64, f64)>,
    pub(super) bottom: f64,
}

impl Plan {
    pub(super) fn of(topology: &Topology) -> Plan {
        let places = [
            Place::Drives,
            Place::Expander,
            Place::Controller,
            Place::Switch,
            Place::Socket,
            Place::Memory,
        ];
        let used: Vec<Place> = places
            .into_iter()
            .filter(|it| topology.nodes.iter().any(|node| node.place == *it))
            .collect();
        let step = match used.len() {
            0 | 1 => 0.0,
            count => (WIDTH - 2.0 * MARGIN - BOX_WIDTH) / ((count - 1) as f64),
        };
        let column = |place: Place| used.iter().position(|it| *it == place).unwrap_or(0) as f64;
        let mut rows: BTreeMap<usize, f64> = BTreeMap::new();
        let mut next = 0.0;
        let mut leaves: Vec<usize> = (0..topology.nodes.len())
            .filter(|at| topology.links.iter().all(|it| it.to != Some(*at) || it.from.is_none()))
            .collect();
        leaves.sort_by_key(|at| key(topology, *at));
        for leaf in leaves {
            rows.insert(leaf, next);
            next += 1.0;
        }
        // Each node beside the middle of what flows into it; columns from left to right, so sources
        // have their rows.
        for place in used.iter().skip(1) {
            for at in (0..topology.nodes.len()).filter(|at| topology.nodes[*at].place == *place) {
                let sources =
                    topology.links.iter().filter(|it| it.to == Some(at)).filter_map(|it| it.from);
                let known: Vec<f64> = sources
                    .filter(|from| topology.nodes[*from].place != *place)
                    .filter_map(|from| rows.get(&from).copied())
                    .collect();
                if !known.is_empty() {
                    rows.insert(at, known.iter().sum::<f64>() / (known.len() as f64));
                } else if let Entry::Vacant(row) = rows.entry(at) {
                    row.insert(next);
                    next += 1.0;
                }
            }
        }
        let spot = |at: usize| {
            let row = rows.get(&at).copied().unwrap_or(0.0);
            (MARGIN + step * column(topology.nodes[at].place), TOP + ROW * row + BOX_HEIGHT / 2.0)
        };
        Plan {
            at: (0..topology.nodes.len()).map(spot).collect(),
            bottom: TOP + ROW * f64::max(next, 1.0),
        }
    }
}

/// One step of a way to memory, comparable as people count.
type Step = (usize, Vec<(String, u64)>);

/// The way from a leaf to memory, memory first: leaves with the same way stand together.
fn key(topology: &Topology, leaf: usize) -> Vec<Step> {
    let mut way = vec![natural(&topology.nodes[leaf].id)];
    let mut at = leaf;
    while let Some(to) = topology
        .links
        .iter()
        .find(|it| {
            it.from == Some(at)
                && it.to.is_some_and(|to| topology.nodes[to].place > topology.nodes[at].place)
        })
        .and_then(|it| it.to)
    {
        way.push(natural(&topology.nodes[to].id));
        at = to;
    }
    way.reverse();
    way
}
