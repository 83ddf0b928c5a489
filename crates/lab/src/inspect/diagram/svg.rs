//! The diagram as SVG: drives left, memory right, every link as wide as what it carries, the flow
//! inside it.
//!
//! - parts: links, boxes, labels
//!
//! What must stay true: text from devices is escaped; colours are never the only sign; it stands
//! alone, without script, font or network, and follows the reader's dark or light setting.

mod parts;

use self::parts::Parts;
use super::Measured;
use crate::inspect::topology::flow::Flow;
use crate::inspect::topology::{Place, Topology};
use crate::inspect::{Inspection, Verdict, page};
use crate::pen::{Pen, count, folded, short};
use crate::source::natural;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

const WIDTH: f64 = 1_280.0;
const MARGIN: f64 = 28.0;
const BOX_WIDTH: f64 = 158.0;
const BOX_HEIGHT: f64 = 58.0;
const ROW: f64 = 84.0;
const TOP: f64 = 132.0;
const LINK_WIDTH_MAX: f64 = 20.0;
/// How much of a link is drawn straight, so that its label has room.
const STRAIGHT: f64 = 0.62;

const STYLE: &str = concat!("<style>", include_str!("../../../assets/diagram.css"), "</style>");

pub fn draw(inspection: &Inspection, measured: &Measured) -> String {
    let topology = &inspection.topology;
    let plan = Plan::of(topology);
    let notes = notes(topology).len();
    let height = plan.bottom + 58.0 + 17.0 * (notes as f64);
    let title = format!("Bottleneck diagram: {}", page::sentences(inspection).join(" "));
    let mut pen = Pen::new((WIDTH, height), &title, STYLE);
    pen.bar((0.0, 0.0), (WIDTH, height), "paper", "");
    head(&mut pen, inspection);
    let flow = inspection.telling_flow();
    let widest = topology
        .links
        .iter()
        .filter(|it| !it.is_memory() && !it.is_media())
        .filter_map(|it| it.capacity)
        .max()
        .unwrap_or_default();
    let parts = Parts { topology, flow, plan: &plan, measured, widest };
    // Links first, so that boxes and labels lie above them.
    (0..topology.links.len()).for_each(|at| parts.link(&mut pen, at));
    (0..topology.nodes.len()).for_each(|at| parts.node(&mut pen, at));
    (0..topology.links.len()).for_each(|at| parts.label(&mut pen, at));
    foot(&mut pen, inspection, plan.bottom);
    pen.done() + "\n"
}

fn head(pen: &mut Pen, inspection: &Inspection) {
    let flow = inspection.telling_flow();
    let class = if flow.is_limited_by_drives() { "head" } else { "head hot" };
    let verdict = match inspection.verdict {
        Verdict::Qualified => "qualified",
        Verdict::NotQualified => "not qualified",
        Verdict::Undecided => "cannot say yet whether it qualifies",
    };
    pen.text((MARGIN, 42.0), "start", class, &answer(inspection, flow));
    for (at, sentence) in page::sentences(inspection).iter().enumerate() {
        pen.text((MARGIN, 66.0 + 19.0 * count(at)), "start", "sub", &short(sentence, 170));
    }
    pen.text((WIDTH - MARGIN, 42.0), "end", "sub", &format!("server {verdict}"));
}

fn answer(inspection: &Inspection, flow: &Flow) -> String {
    let topology = &inspection.topology;
    if topology.drive_count == 0 || flow.demand.0 == 0 {
        return "What the drives can give is not known".to_owned();
    }
    let work = if flow.passes > 1 { "a rebuild" } else { "reading" };
    if flow.is_limited_by_drives() {
        return format!("No link is too narrow: the drives set the pace at {}", flow.carried);
    }
    let kind = |at: &usize| -> String {
        let link = &topology.links[*at];
        match link.from.map(|from| topology.nodes[from].place) {
            Some(Place::Memory) => "memory".to_owned(),
            Some(Place::Drives) => "the drives' links".to_owned(),
            Some(Place::Expander) => "an expander's uplink".to_owned(),
            Some(Place::Controller) => "a controller's link".to_owned(),
            Some(Place::Switch) => "a switch's link".to_owned(),
            Some(Place::Socket) | None => "the link between sockets".to_owned(),
        }
    };
    let mut kinds: Vec<String> = flow.narrowest.iter().map(kind).collect();
    kinds.dedup();
    kinds.truncate(2);
    format!("Narrowest for {work}: {}. {} of {}", kinds.join(" and "), flow.carried, flow.demand)
}

fn foot(pen: &mut Pen, inspection: &Inspection, bottom: f64) {
    let y = bottom + 30.0;
    let work = match inspection.telling_flow().passes {
        1 => "what flows when all drives are read".to_owned(),
        passes => {
            format!("what flows when all drives rebuild, each byte passing memory {passes} times")
        }
    };
    for (x, paint, words) in [
        (MARGIN, "gauge", "what a link carries"),
        (190.0, "fill", work.as_str()),
        (700.0, "fillhot", "narrowest: widening anything else helps nothing"),
    ] {
        pen.bar((x, y - 9.0), (26.0, 9.0), paint, "");
        pen.text((x + 34.0, y), "start", "small", words);
    }
    for (at, line) in notes(&inspection.topology).iter().enumerate() {
        pen.text((MARGIN, y + 20.0 + 17.0 * count(at)), "start", "small", line);
    }
}

/// Letters of a note that stand in one line.
const NOTE: usize = 185;

/// The first assumptions, in lines.
fn notes(topology: &Topology) -> Vec<String> {
    let first = topology.assumptions.iter().take(5);
    first.flat_map(|assumption| folded(&format!("* {assumption}"), NOTE)).collect()
}

/// Where everything stands: left edge and middle of each node.
struct Plan {
    at: Vec<(f64, f64)>,
    bottom: f64,
}

impl Plan {
    fn of(topology: &Topology) -> Plan {
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
