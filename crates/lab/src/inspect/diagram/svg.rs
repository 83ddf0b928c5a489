//! The diagram as SVG: drives left, memory right, every link as wide as what it carries, the flow inside it.
//!
//! What must stay true: text from devices is escaped; colours are never the only sign; it stands alone, without script, font or
//! network, and follows the reader's dark or light setting.

use super::Measured;
use crate::inspect::topology::flow::{Flow, usable};
use crate::inspect::topology::{Link, Node, Place, Topology};
use crate::inspect::{Inspection, Verdict, page};
use crate::metrics::bandwidth::Rate;
use crate::source::natural;
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

const STYLE: &str = "<style>\
    svg{--paper:#ffffff;--ink:#1c2430;--soft:#5b6675;--box:#f4f6f9;--edge:#c3cad4;--link:#d5dae2;--flow:#0072b2;--hot:#d55e00;--good:#007a5a}\
    @media (prefers-color-scheme:dark){svg{--paper:#14181f;--ink:#e9edf3;--soft:#9aa6b5;--box:#1e242d;--edge:#3d4756;--link:#333c49;--flow:#56b4e9;--hot:#f0863a;--good:#3cc79a}}\
    text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:var(--ink)}\
    .head{font-size:21px;font-weight:700}.sub{font-size:14px;fill:var(--soft)}\
    .title{font-size:13px;font-weight:600}.small{font-size:11.5px;fill:var(--soft)}\
    .rate{font-size:13px;font-weight:600;paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}\
    .what{font-size:11px;fill:var(--soft);paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}\
    .hot{fill:var(--hot)}.box{fill:var(--box);stroke:var(--edge)}.boxhot{fill:var(--box);stroke:var(--hot);stroke-width:2.5}\
    .link{fill:none;stroke:var(--link)}.flow{fill:none;stroke:var(--flow)}.narrow{fill:none;stroke:var(--hot)}\
    .open{fill:none;stroke:var(--edge);stroke-width:2;stroke-dasharray:5 5}.seen{fill:none;stroke:var(--ink);stroke-width:2;stroke-dasharray:2 4}\
    .drive{fill:var(--flow)}.gauge{fill:var(--link)}.fill{fill:var(--flow)}.fillhot{fill:var(--hot)}\
    .good{fill:var(--good)}</style>";

/// Draw it.
pub fn draw(inspection: &Inspection, measured: &Measured) -> String {
    let topology = &inspection.topology;
    let plan = Plan::of(topology);
    let notes = topology.assumptions.len().min(5);
    let height = plan.bottom + 58.0 + 17.0 * (notes as f64);
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" height=\"{height:.0}\" role=\"img\" aria-labelledby=\"t\">\
         <title id=\"t\">Bottleneck diagram: {}</title>{STYLE}<rect width=\"100%\" height=\"100%\" style=\"fill:var(--paper)\"/>",
        escape(&page::sentences(inspection).join(" "))
    );
    head(&mut out, inspection);
    let flow = inspection.telling_flow();
    let widest = topology
        .links
        .iter()
        .filter(|it| !it.is_memory() && !it.is_media())
        .filter_map(|it| it.capacity)
        .max()
        .unwrap_or_default();
    let pen = Pen { topology, flow, plan: &plan, measured, widest };
    // Links first, so that boxes and labels lie above them.
    (0..topology.links.len()).for_each(|at| pen.link(&mut out, at));
    (0..topology.nodes.len()).for_each(|at| pen.node(&mut out, at));
    (0..topology.links.len()).for_each(|at| pen.label(&mut out, at));
    foot(&mut out, inspection, plan.bottom);
    out.push_str("</svg>\n");
    out
}

fn head(out: &mut String, inspection: &Inspection) {
    let flow = inspection.telling_flow();
    let class = if flow.is_limited_by_drives() { "head" } else { "head hot" };
    let answer = answer(inspection, flow);
    let verdict = match inspection.verdict {
        Verdict::Qualified => "qualified",
        Verdict::NotQualified => "not qualified",
        Verdict::Undecided => "cannot say yet whether it qualifies",
    };
    let _ =
        write!(out, "<text class=\"{class}\" x=\"{MARGIN}\" y=\"42\">{}</text>", escape(&answer));
    for (at, sentence) in page::sentences(inspection).iter().enumerate() {
        let y = 66.0 + 19.0 * (at as f64);
        let _ = write!(
            out,
            "<text class=\"sub\" x=\"{MARGIN}\" y=\"{y}\">{}</text>",
            escape(&short(sentence, 170))
        );
    }
    let x = WIDTH - MARGIN;
    let _ = write!(
        out,
        "<text class=\"sub\" text-anchor=\"end\" x=\"{x}\" y=\"42\">server {verdict}</text>"
    );
}

/// The answer in a few words.
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

fn foot(out: &mut String, inspection: &Inspection, bottom: f64) {
    let flow = inspection.telling_flow();
    let y = bottom + 30.0;
    let work = match flow.passes {
        1 => "all drives are read".to_owned(),
        passes => format!("all drives rebuild, each byte passing memory {passes} times"),
    };
    let _ = write!(
        out,
        "<rect class=\"gauge\" x=\"{MARGIN}\" y=\"{0}\" width=\"26\" height=\"9\"/><text class=\"small\" x=\"62\" y=\"{1}\">what a link carries</text>\
         <rect class=\"fill\" x=\"190\" y=\"{0}\" width=\"26\" height=\"9\"/><text class=\"small\" x=\"224\" y=\"{1}\">what flows when {work}</text>\
         <rect class=\"fillhot\" x=\"700\" y=\"{0}\" width=\"26\" height=\"9\"/><text class=\"small\" x=\"734\" y=\"{1}\">narrowest: widening anything else helps nothing</text>",
        y - 9.0,
        y
    );
    for (at, assumption) in inspection.topology.assumptions.iter().take(5).enumerate() {
        let y = y + 20.0 + 17.0 * (at as f64);
        let _ = write!(
            out,
            "<text class=\"small\" x=\"{MARGIN}\" y=\"{y}\">* {}</text>",
            escape(&short(assumption, 170))
        );
    }
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
        // Each node beside the middle of what flows into it; columns from left to right, so sources have their rows.
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

struct Pen<'a> {
    topology: &'a Topology,
    flow: &'a Flow,
    plan: &'a Plan,
    measured: &'a Measured,
    widest: Rate,
}

impl Pen<'_> {
    fn link(&self, out: &mut String, at: usize) {
        let link = &self.topology.links[at];
        let Some((from, to)) = self.ends(link) else { return };
        // Straight below its label, then to where it goes.
        let bend = from.0 + (to.0 - from.0) * STRAIGHT;
        let middle = f64::midpoint(bend, to.0);
        let way = format!(
            "M{:.1} {:.1}H{bend:.1}C{middle:.1} {:.1} {middle:.1} {:.1} {:.1} {:.1}",
            from.0, from.1, from.1, to.1, to.0, to.1
        );
        if link.standard.is_empty() {
            let _ = write!(out, "<path class=\"link\" stroke-width=\"5\" d=\"{way}\"/>");
            return;
        }
        let Some(capacity) = link.capacity else {
            let _ = write!(out, "<path class=\"open\" d=\"{way}\"/>");
            return;
        };
        let width = self.width(capacity);
        let share = self.flow.by_link[at].share_of(capacity).min(1.0);
        let class = if self.flow.narrowest.contains(&at) { "narrow" } else { "flow" };
        let _ = write!(out, "<path class=\"link\" stroke-width=\"{width:.1}\" d=\"{way}\"/>");
        if share > 0.0 {
            let inside = (width * share).max(1.5);
            let _ =
                write!(out, "<path class=\"{class}\" stroke-width=\"{inside:.1}\" d=\"{way}\"/>");
        }
        if self.measured.contains_key(&link.id) {
            let _ = write!(out, "<path class=\"seen\" d=\"{way}\"/>");
        }
    }

    fn label(&self, out: &mut String, at: usize) {
        let link = &self.topology.links[at];
        let Some((from, to)) = self.ends(link) else { return };
        let (x, y) = (from.0 + (to.0 - from.0) * STRAIGHT * 0.72, from.1);
        if link.standard.is_empty() {
            let carried = self.flow.by_link[at];
            if carried.0 > 0 {
                let x = f64::midpoint(from.0, to.0);
                let text = match self.flow.passes {
                    1 => carried.to_string(),
                    passes => format!("{carried} x {passes}"),
                };
                let _ = write!(
                    out,
                    "<text class=\"rate\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                    y - 9.0,
                    escape(&text)
                );
            }
            return;
        }
        let is_hot = self.flow.narrowest.contains(&at);
        let class = if is_hot { "rate hot" } else { "rate" };
        let rate = link.capacity.map_or("?".to_owned(), |it| it.to_string());
        let lift = link.capacity.map_or(4.0, |it| self.width(it) / 2.0);
        let _ = write!(
            out,
            "<text class=\"{class}\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            y - lift - 5.0,
            escape(&rate)
        );
        let full = if is_hot { ", full" } else { "" };
        let mut below = vec![format!("{}{full}", link.standard)];
        below.extend(self.measured.get(&link.id).map(|rate| format!("measured {rate}")));
        for (row, text) in below.iter().enumerate() {
            let y = y + lift + 13.0 + 13.0 * (row as f64);
            let _ = write!(
                out,
                "<text class=\"what\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
                escape(&short(text, 22))
            );
        }
    }

    fn node(&self, out: &mut String, at: usize) {
        let (node, (x, middle)) = (&self.topology.nodes[at], self.plan.at[at]);
        let y = middle - BOX_HEIGHT / 2.0;
        let own = self.topology.links.iter().position(|it| it.from == Some(at) && it.to.is_none());
        let is_hot = own.is_some_and(|own| self.flow.narrowest.contains(&own));
        let class = if is_hot { "boxhot" } else { "box" };
        let _ = write!(
            out,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"7\"/>"
        );
        let title = match (node.place, node.count) {
            (Place::Drives, count) if count > 1 => format!("{count} x {}", model(&node.title, 13)),
            (Place::Drives | Place::Expander, _) => model(&node.title, 18),
            _ => node.title.clone(),
        };
        let line = |out: &mut String, class: &str, down: f64, text: &str| {
            let _ = write!(
                out,
                "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + 10.0,
                y + down,
                escape(&short(text, if class == "title" { 18 } else { 25 }))
            );
        };
        line(out, "title", 18.0, &title);
        match (node.place, own) {
            (Place::Drives, _) => {
                line(out, "small", 33.0, &self.media(at));
                squares(out, node, x + 10.0, y + 40.0);
            }
            (_, Some(own)) => self.gauge(out, own, node, (x, y)),
            _ => line(out, "small", 35.0, &node.detail),
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
    fn gauge(&self, out: &mut String, own: usize, node: &Node, (x, y): (f64, f64)) {
        let link = &self.topology.links[own];
        let Some((all, capacity)) = link.capacity.zip(usable(link, self.flow.passes)) else {
            let _ = write!(
                out,
                "<text class=\"small\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + 10.0,
                y + 35.0,
                escape(&node.detail)
            );
            return;
        };
        let share = self.flow.by_link[own].share_of(capacity).min(1.0);
        let is_hot = self.flow.narrowest.contains(&own);
        let (fill, class) = if is_hot { ("fillhot", "small hot") } else { ("fill", "small") };
        let room = BOX_WIDTH - 20.0;
        let channels = node.detail.replace(" channels", " ch.");
        let text = match link.measured {
            Some(_) => format!("{all} measured"),
            None => format!("{all}, {channels}"),
        };
        let _ = write!(
            out,
            "<text class=\"{class}\" x=\"{0:.1}\" y=\"{1:.1}\">{2}</text><rect class=\"gauge\" x=\"{0:.1}\" y=\"{3:.1}\" width=\"{room:.1}\" height=\"7\" rx=\"3\"/>\
             <rect class=\"{fill}\" x=\"{0:.1}\" y=\"{3:.1}\" width=\"{4:.1}\" height=\"7\" rx=\"3\"/>",
            x + 10.0,
            y + 34.0,
            escape(&short(&text, 27)),
            y + 43.0,
            room * share
        );
        if let (Some(_), Some(computed)) = (link.measured, link.computed) {
            let _ = write!(
                out,
                "<text class=\"what\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + BOX_WIDTH,
                y + BOX_HEIGHT + 14.0,
                escape(&short(&format!("of {computed} computed, {channels}"), 40))
            );
        }
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
fn squares(out: &mut String, node: &Node, x: f64, y: f64) {
    let mut way = String::new();
    for at in 0..node.count.min(30) {
        let (row, column) = ((at / 15) as f64, (at % 15) as f64);
        let _ = write!(way, "M{:.1} {:.1}h6v5h-6z", x + column * 9.0, y + row * 7.5);
    }
    let _ = write!(out, "<path class=\"drive\" d=\"{way}\"/>");
}

/// A model without its vendor, if it is too long with it.
fn model(name: &str, most: usize) -> String {
    let is_long = name.chars().count() > most;
    let tail = name.split_once(' ').map(|(_, tail)| tail).filter(|_| is_long);
    short(tail.unwrap_or(name), most)
}

fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let head: String = text.chars().take(most.saturating_sub(3)).collect();
    format!("{head}...")
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{escape, short};

    #[test]
    fn what_devices_say_cannot_become_markup() {
        assert_eq!(escape("<script>\"&\u{7}"), "&lt;script&gt;&quot;&amp; ");
        assert_eq!(short("abcdefgh", 6), "abc...");
    }
}
