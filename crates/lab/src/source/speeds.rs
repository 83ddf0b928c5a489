//! What memory and processors did when they were tried: facts that no file of the kernel holds, so
//! a capture holds them.
//!
//! What must stay true: every round is kept, so that a median can be judged; what was not tried is
//! absent, with the reason. Not here: the trying (`inspect::measure`), and whether any of it is
//! good.

use crate::metrics::bandwidth::Rate;
use crate::metrics::latency::to_f64;
use crate::metrics::slow_member::median;
use serde::{Deserialize, Serialize};

/// One thing tried several times, in the order of the rounds.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rounds(pub Vec<Rate>);

impl Rounds {
    /// The middle round; None if there was none.
    pub fn median(&self) -> Option<Rate> {
        let middle = median(self.0.iter().map(|rate| to_f64(rate.0)));
        (!self.0.is_empty()).then(|| Rate::nearest(middle))
    }

    /// The slowest and the fastest.
    pub fn range(&self) -> Option<(Rate, Rate)> {
        Some((*self.0.iter().min()?, *self.0.iter().max()?))
    }
}

/// What one NUMA node did.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodeSpeeds {
    /// Its number.
    pub node: u64,
    /// Its socket.
    pub socket: Option<u64>,
    /// CPUs that worked, one thread each.
    pub cpus: Vec<u64>,
    /// Memory they went through in each round, bytes.
    pub buffer_bytes: u64,
    /// Last-level cache of these CPUs, bytes; None if the kernel does not say.
    pub cache_bytes: Option<u64>,
    /// Bytes read in a second.
    pub read: Rounds,
    /// Bytes read and written in a second while copying: each byte counts twice, as in STREAM.
    pub copy: Rounds,
    /// Steps a second of one thread alone.
    pub score_one: Option<u64>,
    /// Steps a second of all threads together.
    pub score_all: Option<u64>,
}

impl NodeSpeeds {
    /// What its memory carried, reading or copying, whichever was more.
    pub fn carried(&self) -> Option<Rate> {
        self.read.median().max(self.copy.median())
    }

    /// The same of its best rounds.
    pub fn carried_at_best(&self) -> Option<Rate> {
        let best = |rounds: &Rounds| rounds.range().map(|range| range.1);
        best(&self.read).max(best(&self.copy))
    }
}

/// Threads of one socket reading the memory of another.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Across {
    /// Whose memory.
    pub memory_of: u64,
    /// Whose threads.
    pub read_by: u64,
    /// Bytes read in a second.
    pub read: Rounds,
}

/// Everything that was tried.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Speeds {
    /// Version of the lab and how it was built: scores of another build are not comparable.
    pub build: String,
    /// One for each node.
    pub nodes: Vec<NodeSpeeds>,
    /// All nodes at once, each its own memory; empty with one node.
    #[serde(default)]
    pub together: Rounds,
    /// From socket to socket.
    #[serde(default)]
    pub across: Vec<Across>,
    /// What could not be tried, one sentence each.
    #[serde(default)]
    pub not_tried: Vec<String>,
}

impl Speeds {
    /// What a socket's memory carried for its own threads, reading or copying, whichever was more:
    /// both are less than it can. The sum over its nodes, which were tried one after the other;
    /// None if one of them was not tried.
    pub fn socket_carried(&self, socket: u64) -> Option<Rate> {
        let own = self.nodes.iter().filter(|node| node.socket == Some(socket));
        let rates: Option<Vec<Rate>> = own.map(NodeSpeeds::carried).collect();
        let sum = rates?.into_iter().fold(0, |sum: u64, rate| sum.saturating_add(rate.0));
        (sum > 0).then_some(Rate(sum))
    }

    /// What went from the memory of one socket to the threads of another.
    pub fn between(&self, memory_of: u64, read_by: u64) -> Option<Rate> {
        let way = |it: &&Across| it.memory_of == memory_of && it.read_by == read_by;
        self.across.iter().find(way)?.read.median()
    }
}

/// `410 M`, `3.1 G`: steps of arithmetic for people.
pub fn steps(count: u64) -> String {
    match count {
        0..1_000_000_000 => format!("{} M", count / 1_000_000),
        _ => format!("{:.1} G", to_f64(count) / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::{NodeSpeeds, Rounds, Speeds};
    use crate::metrics::bandwidth::Rate;

    fn rounds(mega: &[u64]) -> Rounds {
        Rounds(mega.iter().map(|mega| Rate::mega(*mega)).collect())
    }

    #[test]
    fn one_disturbed_round_does_not_move_the_median() {
        let tried = rounds(&[9_000, 8_900, 400, 9_100, 9_050]);
        assert_eq!(tried.median(), Some(Rate::mega(9_000)));
        assert_eq!(tried.range(), Some((Rate::mega(400), Rate::mega(9_100))));
        assert_eq!(rounds(&[]).median(), None);
    }

    #[test]
    fn a_socket_has_a_figure_only_if_all_its_nodes_have_one() {
        let node = |node, read: &[u64]| NodeSpeeds {
            node,
            socket: Some(node / 2),
            read: rounds(read),
            ..NodeSpeeds::default()
        };
        let nodes = vec![node(0, &[10]), node(1, &[30]), node(2, &[10]), node(3, &[])];
        let speeds = Speeds { nodes, ..Speeds::default() };
        assert_eq!(speeds.socket_carried(0), Some(Rate::mega(40)));
        assert_eq!(speeds.socket_carried(1), None);
        assert_eq!(speeds.socket_carried(7), None);
        let copied = NodeSpeeds { copy: rounds(&[12]), ..node(0, &[10]) };
        assert_eq!(copied.carried(), Some(Rate::mega(12)));
    }
}
