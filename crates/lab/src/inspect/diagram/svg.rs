//! The diagram as SVG: drives left, memory right, every link as wide as what it carries, the flow
//! inside it.
//!
//! What must stay true: text from devices is escaped; colours are never the only sign; it stands
//! alone, without script, font or network, and follows the reader's dark or light setting.

use super::Measured;
use crate::inspect::topology::flow::{Flow, usable};
use crate::inspect::topology::{Link, Node, Place, Topology};
use crate::inspect::{Inspection, Verdict, page};
use crate::metrics::bandwidth::Rate;
use crate::pen::{Pen, count, folded, short};
use crate::source::natural;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write;

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

struct Parts<'a> {
    topology: &'a Topology,
    flow: &'a Flow,
    plan: &'a Plan,
    measured: &'a Measured,
    widest: Rate,
}

impl Parts<'_> {
    fn link(&self, pen: &mut Pen, at: usize) {
        let link = &self.topology.links[at];
        let Some((from, to)) = self.ends(link) else { return };
        // Straight below its label, then to where it goes.
        let bend = from.0 + (to.0 - from.0) * STRAIGHT;
        let middle = f64::midpoint(bend, to.0);
        let way = format!(
            "M{:.1} {:.1}H{bend:.1}C{middle:.1} {:.1} {middle:.1} {:.1} {:.1} {:.1}",
            from.0, from.1, from.1, to.1, to.0, to.1
        );
        let Some(capacity) = link.capacity.filter(|_| !link.standard.is_empty()) else {
            let (class, width) =
                if link.standard.is_empty() { ("link", 5.0) } else { ("open", 2.0) };
            return pen.path(class, width, &way);
        };
        let width = self.width(capacity);
        let share = self.flow.by_link[at].share_of(capacity).min(1.0);
        let class = if self.flow.narrowest.contains(&at) { "narrow" } else { "flow" };
        pen.path("link", width, &way);
        if share > 0.0 {
            pen.path(class, (width * share).max(1.5), &way);
        }
        if self.measured.contains_key(&link.id) {
            pen.path("seen", 2.0, &way);
        }
    }

    fn label(&self, pen: &mut Pen, at: usize) {
        let link = &self.topology.links[at];
        let Some((from, to)) = self.ends(link) else { return };
        // On a link that bends a label begins where the link does, and ends before it leaves its
        // row.
        let (x, y, anchor) = match from.1.total_cmp(&to.1) {
            Ordering::Equal => (from.0 + (to.0 - from.0) * STRAIGHT * 0.72, from.1, "middle"),
            _ => (from.0 + 4.0, from.1, "start"),
        };
        if link.standard.is_empty() {
            let carried = self.flow.by_link[at];
            if carried.0 > 0 {
                let x = f64::midpoint(from.0, to.0);
                let text = match self.flow.passes {
                    1 => carried.to_string(),
                    passes => format!("{carried} x {passes}"),
                };
                pen.text((x, y - 9.0), "middle", "rate", &text);
            }
            return;
        }
        let is_hot = self.flow.narrowest.contains(&at);
        let class = if is_hot { "rate hot" } else { "rate" };
        let rate = link.capacity.map_or("?".to_owned(), |it| it.to_string());
        let lift = link.capacity.map_or(4.0, |it| self.width(it) / 2.0);
        pen.text((x, y - lift - 5.0), anchor, class, &rate);
        let full = if is_hot { ", full" } else { "" };
        let mut below = vec![format!("{}{full}", link.standard)];
        below.extend(self.measured.get(&link.id).map(|rate| format!("measured {rate}")));
        for (row, text) in below.iter().enumerate() {
            let y = y + lift + 13.0 + 13.0 * (row as f64);
            pen.text((x, y), anchor, "what", &short(text, 22));
        }
    }

    fn node(&self, pen: &mut Pen, at: usize) {
        let (node, (x, middle)) = (&self.topology.nodes[at], self.plan.at[at]);
        let y = middle - BOX_HEIGHT / 2.0;
        let own = self.topology.links.iter().position(|it| it.from == Some(at) && it.to.is_none());
        let is_hot = own.is_some_and(|own| self.flow.narrowest.contains(&own));
        let class = if is_hot { "boxhot" } else { "box" };
        pen.bar((x, y), (BOX_WIDTH, BOX_HEIGHT), class, "");
        let title = match (node.place, node.count) {
            (Place::Drives, count) if count > 1 => format!("{count} x {}", model(&node.title, 13)),
            (Place::Drives | Place::Expander, _) => model(&node.title, 16),
            _ => node.title.clone(),
        };
        pen.text((x + 10.0, y + 18.0), "start", "title", &short(&title, 18));
        let told = match (node.place, own) {
            (Place::Drives, _) => (33.0, self.media(at)),
            (_, Some(own)) => return self.gauge(pen, own, node, (x, y)),
            _ => (35.0, node.detail.clone()),
        };
        pen.text((x + 10.0, y + told.0), "start", "small", &short(&told.1, 25));
        if node.place == Place::Drives {
            squares(pen, node, x + 10.0, y + 40.0);
        }
    }

    fn media(&self, at: usize) -> String {
        let media = self.topology.links.iter().find(|it| it.is_media() && it.to == Some(at));
        match media.and_then(|it| it.capacity) {
            Some(rate) => format!("{rate} in all"),
            None => "rate not known".to_owned(),
        }
    }

    /// Memory shows its own bandwidth inside its box.
    fn gauge(&self, pen: &mut Pen, own: usize, node: &Node, (x, y): (f64, f64)) {
        let link = &self.topology.links[own];
        let Some((all, capacity)) = link.capacity.zip(usable(link, self.flow.passes)) else {
            return pen.text((x + 10.0, y + 35.0), "start", "small", &node.detail);
        };
        let share = self.flow.by_link[own].share_of(capacity).min(1.0);
        let is_hot = self.flow.narrowest.contains(&own);
        let (fill, class) = if is_hot { ("fillhot", "small hot") } else { ("fill", "small") };
        let room = BOX_WIDTH - 20.0;
        let channels = node.detail.replace(" channels", " ch.");
        let text = format!("{all}, {channels}");
        pen.text((x + 10.0, y + 34.0), "start", class, &short(&text, 27));
        pen.bar((x + 10.0, y + 43.0), (room, 7.0), "gauge", "");
        pen.bar((x + 10.0, y + 43.0), (room * share, 7.0), fill, "");
    }

    fn ends(&self, link: &Link) -> Option<((f64, f64), (f64, f64))> {
        let (from, to) = (self.plan.at[link.from?], self.plan.at[link.to?]);
        // Sockets stand below each other; their link is a note, not a line.
        (from.0 < to.0).then_some(((from.0 + BOX_WIDTH, from.1), (to.0, to.1)))
    }

    fn width(&self, rate: Rate) -> f64 {
        (rate.share_of(self.widest).sqrt() * LINK_WIDTH_MAX).clamp(3.0, LINK_WIDTH_MAX)
    }
}

/// One little square a drive, as many as there is room for.
fn squares(pen: &mut Pen, node: &Node, x: f64, y: f64) {
    let mut way = String::new();
    for at in 0..node.count.min(30) {
        let (row, column) = ((at / 15) as f64, (at % 15) as f64);
        let _ = write!(way, "M{:.1} {:.1}h6v5h-6z", x + column * 9.0, y + row * 7.5);
    }
    pen.path("drive", 0.0, &way);
}

/// A model without its vendor, if it is too long with it.
fn model(name: &str, most: usize) -> String {
    let is_long = name.chars().count() > most;
    let tail = name.split_once(' ').map(|(_, tail)| tail).filter(|_| is_long);
    short(tail.unwrap_or(name), most)
}
