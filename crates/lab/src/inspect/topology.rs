//! The way of every byte from the drives to memory, as a graph with a bandwidth on every link.
//!
//! - build: made of what a server says about itself
//! - flow: how much gets through, and which links are the narrowest
//!
//! ```text
//! drives -> expander -> controller -> (PCIe switch) -> socket -> memory
//! ```
//!
//! What must stay true: a bandwidth comes from what the link says about itself, or from a source
//! that is named; what is not known is None and limits nothing, and the reader is told so.

mod build;
pub mod flow;

use super::models::Library;
use crate::metrics::bandwidth::Rate;
use serde::Serialize;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Drives of one model on one parent.
    Drives,
    Expander,
    Controller,
    Switch,
    /// A socket with its root ports.
    Socket,
    Memory,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Node {
    /// Unique: `socket 0`, `0000:05:00.0`, `expander-1:0`.
    pub id: String,
    pub place: Place,
    /// For people, short: `SAS3008`.
    pub title: String,
    /// For people, the rest: `05:00.0`.
    pub detail: String,
    /// Drives that are one node; 1 otherwise.
    pub count: u64,
}

/// One link, in the direction of a read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Link {
    /// Unique: `0000:05:00.0>socket 0`. The key under which a measured flow is given.
    pub id: String,
    pub from: Option<usize>,
    /// Where to; None for what memory takes.
    pub to: Option<usize>,
    /// What it is: `PCIe 3.0 x8`, `SAS 12G x4`.
    pub standard: String,
    /// What it carries; None if nobody says.
    pub capacity: Option<Rate>,
    /// Where the figure comes from.
    pub basis: String,
}

impl Link {
    /// Whether this stands for the drives' media and is no wire.
    pub fn is_media(&self) -> bool {
        self.from.is_none()
    }

    /// Whether this is a socket's memory: the only link that a byte may pass several times.
    pub fn is_memory(&self) -> bool {
        self.to.is_none()
    }
}

/// What the operator knows and the server does not say.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub models: Library,
    /// What one drive's medium does.
    pub drive_rate: Option<Rate>,
    /// What sockets carry between each other, one way.
    pub inter_socket: Option<Rate>,
    /// How many drives are used at once; all if None.
    pub drive_count: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Topology {
    pub nodes: Vec<Node>,
    pub links: Vec<Link>,
    pub drive_count: u64,
    /// Names of the drives of each node of drives.
    pub drive_names: Vec<(usize, Vec<String>)>,
    /// What was taken for granted, one sentence each.
    pub assumptions: Vec<String>,
}

impl Topology {
    pub fn is_socket(&self, at: usize) -> bool {
        self.nodes.get(at).is_some_and(|node| node.place == Place::Socket)
    }

    /// A link's name for people: from where to where, and what it is.
    pub fn name(&self, link: &Link) -> String {
        format!("{} ({})", self.ends(link), link.standard)
    }

    pub fn ends(&self, link: &Link) -> String {
        let title = |at: Option<usize>| at.and_then(|at| self.nodes.get(at));
        match (title(link.from), title(link.to)) {
            (None, Some(drives)) => format!("the media of {} {}", drives.count, drives.title),
            (Some(memory), None) => memory.id.clone(),
            (Some(from), Some(to)) => {
                format!("{} to {}", full(from), to.id.trim_start_matches("0000:"))
            }
            (None, None) => link.id.clone(),
        }
    }
}

fn full(node: &Node) -> String {
    match node.place {
        Place::Drives if node.count > 1 => format!("{} drives {}", node.count, node.detail),
        Place::Drives => node.detail.clone(),
        Place::Controller => format!("{} {}", node.title, node.detail),
        Place::Expander | Place::Switch | Place::Socket | Place::Memory => node.id.clone(),
    }
}
