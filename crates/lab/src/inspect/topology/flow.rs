//! How much gets from the drives to memory, and where it stops: a maximum flow and its cut.
//!
//! What must stay true: the narrowest links are those of a minimum cut, so widening anything else
//! helps nothing; a link of unknown capacity is never named.

use super::{Link, Place, Topology};
use crate::metrics::bandwidth::Rate;
use serde::Serialize;
use std::collections::VecDeque;

/// How often a byte passes memory while drives are read: the controller writes it there.
pub const READ_PASSES: u64 = 1;

/// How often a byte passes memory in a rebuild: the controller writes it, the processor reads it to
/// check and to reconstruct, writes what it made, and a controller reads that. A little less for
/// wide stripes, more where a file system copies; the figure is for comparing memory with drives,
/// not for predicting seconds.
pub const REBUILD_PASSES: u64 = 4;

/// What flows when all drives give what they can.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Flow {
    /// How often a byte passes memory.
    pub passes: u64,
    /// What the drives' media give together.
    pub demand: Rate,
    pub carried: Rate,
    /// On each link, in the order of the topology's links.
    pub by_link: Vec<Rate>,
    /// Links of the cut that are no media: the narrowest. Empty when the drives themselves set the
    /// pace.
    pub narrowest: Vec<usize>,
    /// The link that is used most by share, when the drives set the pace.
    pub fullest: Option<usize>,
}

impl Flow {
    /// Whether the drives are what limits.
    pub fn is_limited_by_drives(&self) -> bool {
        self.narrowest.is_empty()
    }
}

/// What a link may carry when each byte passes memory `passes` times. None has no limit.
pub fn usable(link: &Link, passes: u64) -> Option<Rate> {
    let capacity = link.capacity?;
    Some(if link.is_memory() { Rate(capacity.0 / passes.max(1)) } else { capacity })
}

pub fn flow(topology: &Topology, passes: u64) -> Flow {
    let (source, sink) = (topology.nodes.len(), topology.nodes.len() + 1);
    let ends = |link: &Link| (link.from.unwrap_or(source), link.to.unwrap_or(sink));
    let limit = |link: &Link| match usable(link, passes) {
        Some(rate) => rate.0.min(UNLIMITED),
        // Media of which nothing is known give nothing, rather than all there is.
        None if link.is_media() => 0,
        None => UNLIMITED,
    };
    let mut free: Vec<[u64; 2]> = topology.links.iter().map(|link| [limit(link), 0]).collect();
    let edges: Vec<(usize, usize)> = topology.links.iter().map(ends).collect();
    // The drives turn up together, step by step, so that those behind one narrow link share it as
    // they would.
    for (link, free) in topology.links.iter().zip(&mut free) {
        if link.is_media() {
            free[0] = 0;
        }
    }
    for step in 1..=STEPS {
        for (at, link) in topology.links.iter().enumerate().filter(|it| it.1.is_media()) {
            let (all, before) = (u128::from(limit(link)), u128::from(step - 1));
            let part =
                all * u128::from(step) / u128::from(STEPS) - all * before / u128::from(STEPS);
            free[at][0] += u64::try_from(part).unwrap_or(0);
        }
        while let Some(path) = path(&edges, &free, source) {
            let amount = path.iter().map(|(at, way)| free[*at][*way]).min().unwrap_or(0);
            for (at, way) in path {
                free[at][way] -= amount;
                free[at][1 - way] += amount;
            }
        }
    }
    let came = search(&edges, &free, source);
    let is_reached = |place: usize| place == source || came[place].is_some();
    let mut flow = Flow { passes, ..Flow::default() };
    flow.by_link = free.iter().map(|it| Rate(it[1])).collect();
    for (at, link) in topology.links.iter().enumerate() {
        let (from, to) = edges[at];
        if link.is_media() {
            flow.demand.0 += usable(link, passes).map_or(0, |rate| rate.0.min(UNLIMITED));
            flow.carried.0 += flow.by_link[at].0;
        } else if is_reached(from) && !is_reached(to) && link.capacity.is_some() {
            flow.narrowest.push(at);
        }
    }
    flow.fullest = fullest(topology, &flow);
    flow
}

/// In how many steps the drives turn up.
const STEPS: u64 = 128;

/// More than any sum of real links, and small enough that sums do not overflow.
const UNLIMITED: u64 = u64::MAX / 65_536;

fn fullest(topology: &Topology, flow: &Flow) -> Option<usize> {
    let share = |(at, link): (usize, &Link)| {
        // A drive's own link says nothing new: where nothing else is known, it is what the drive is
        // taken for.
        let is_own = link.from.is_none_or(|from| topology.nodes[from].place == Place::Drives);
        let capacity = usable(link, flow.passes).filter(|_| !is_own)?;
        Some((at, flow.by_link[at].share_of(capacity))).filter(|(_, share)| *share > 0.0)
    };
    let shares = topology.links.iter().enumerate().filter_map(share);
    // Of equals the first.
    shares.reduce(|most, it| if it.1 > most.1 { it } else { most }).map(|(at, _)| at)
}

/// Where each place is reached from over links with something free on them, the shortest way: a
/// link with its direction, 0 forward, 1 back.
fn search(
    edges: &[(usize, usize)],
    free: &[[u64; 2]],
    source: usize,
) -> Vec<Option<(usize, usize)>> {
    // Behind all nodes stand source and sink.
    let mut came: Vec<Option<(usize, usize)>> = vec![None; source + 2];
    let mut waiting = VecDeque::from([source]);
    while let Some(place) = waiting.pop_front() {
        for (at, way, next) in steps(edges, free, place) {
            if next != source && came[next].is_none() {
                came[next] = Some((at, way));
                waiting.push_back(next);
            }
        }
    }
    came
}

/// The way from source to sink; None if there is none.
fn path(edges: &[(usize, usize)], free: &[[u64; 2]], source: usize) -> Option<Vec<(usize, usize)>> {
    let came = search(edges, free, source);
    let (mut path, mut place) = (Vec::new(), source + 1);
    while place != source {
        let (at, way) = came[place]?;
        path.push((at, way));
        place = if way == 0 { edges[at].0 } else { edges[at].1 };
    }
    Some(path)
}

fn steps(edges: &[(usize, usize)], free: &[[u64; 2]], place: usize) -> Vec<(usize, usize, usize)> {
    let mut steps = Vec::new();
    for (at, (from, to)) in edges.iter().enumerate() {
        if *from == place && free[at][0] > 0 {
            steps.push((at, 0, *to));
        }
        if *to == place && free[at][1] > 0 {
            steps.push((at, 1, *from));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::flow;
    use crate::inspect::topology::{Link, Node, Place, Topology};
    use crate::metrics::bandwidth::Rate;
    use proptest::prelude::proptest;

    fn topology(nodes: usize, links: &[(Option<usize>, Option<usize>, Option<u64>)]) -> Topology {
        let none = String::new;
        let (title, detail) = (none(), none());
        let node = Node { id: none(), place: Place::Controller, title, detail, count: 1 };
        let link = |(from, to, rate): &(Option<usize>, Option<usize>, Option<u64>)| {
            let (id, capacity) = (format!("{from:?}{to:?}"), rate.map(Rate));
            Link { id, from: *from, to: *to, standard: none(), capacity, basis: none() }
        };
        let links = links.iter().map(link).collect();
        Topology { nodes: vec![node; nodes], links, ..Topology::default() }
    }

    #[test]
    fn the_narrowest_links_are_named_and_wide_ones_leave_it_to_the_drives() {
        let (one, two, three) = (Some(0), Some(1), Some(2));
        let line = [(None, one, 10), (one, two, 8), (two, three, 6), (three, None, 9)];
        let line = line.map(|(from, to, rate)| (from, to, Some(rate)));
        let wide = [(None, one, Some(4)), (one, two, None), (two, None, Some(8))];
        // Drive 0 reaches memory 3 over controllers 1 and 2.
        let ports = [
            (None, one, Some(7)),
            (one, two, Some(3)),
            (one, three, Some(3)),
            (two, Some(3), None),
            (three, Some(3), None),
            (Some(3), None, Some(100)),
        ];
        for (links, passes, demand, carried, narrowest) in [
            (&line[..], 1, 10, 6, &[2][..]),
            // Memory that every byte passes three times is narrower.
            (&line, 3, 10, 3, &[3]),
            (&wide, 2, 4, 4, &[]),
            (&ports, 1, 7, 6, &[1, 2]),
            // Media of which nothing is known give nothing.
            (&[(None, one, None), (one, None, None)], 1, 0, 0, &[]),
        ] {
            let flow = flow(&topology(4, links), passes);
            let found = (flow.demand.0, flow.carried.0, &flow.narrowest[..]);
            assert_eq!(found, (demand, carried, narrowest), "{links:?}");
        }
        assert_eq!(flow(&topology(4, &wide), 2).fullest, Some(2));
    }

    proptest! {
        #[test]
        fn what_flows_is_what_the_cut_carries(
            ends in proptest::collection::vec((0_usize..6, 0_usize..6, 1_u64..50), 0..14),
            media in proptest::collection::vec(1_u64..40, 2..3),
            sinks in proptest::collection::vec(1_u64..40, 2..3),
        ) {
            let mut links: Vec<_> = ends.into_iter().filter(|it| it.0 != it.1)
                .map(|(from, to, rate)| (Some(from), Some(to), Some(rate))).collect();
            // Every drive reaches memory somehow.
            links.extend([(Some(0), Some(4), Some(5)), (Some(1), Some(5), Some(5))]);
            links.extend(media.iter().enumerate().map(|(at, rate)| (None, Some(at), Some(*rate))));
            let memory = |(at, rate): (usize, &u64)| (Some(at + 4), None, Some(*rate));
            links.extend(sinks.iter().enumerate().map(memory));
            let graph = topology(6, &links);
            let flow = flow(&graph, 1);
            for (at, rate) in flow.by_link.iter().enumerate() {
                assert!(rate.0 <= links[at].2.unwrap_or(0));
            }
            for node in 0..6 {
                let sum = |pick: &dyn Fn(&Link) -> bool| graph.links.iter().zip(&flow.by_link)
                    .filter(|(link, _)| pick(link)).map(|(_, rate)| rate.0).sum::<u64>();
                let (comes, goes) =
                    (sum(&|link| link.to == Some(node)), sum(&|link| link.from == Some(node)));
                assert_eq!(comes, goes);
            }
            // Cut = narrowest links + saturated media on the far side: never less than what flows.
            let cut: u64 = flow.narrowest.iter().map(|at| links[*at].2.unwrap_or(0)).sum();
            assert!(flow.carried.0 <= flow.demand.0);
            assert!(flow.narrowest.is_empty() || cut <= flow.carried.0);
            assert!(!flow.narrowest.is_empty() || flow.carried == flow.demand);
        }
    }
}
