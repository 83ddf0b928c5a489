//! The diagram as SVG: drives left, memory right, every link as wide as what it carries, the flow
//! inside it.
//!
//! - layout: where everything stands
//! - pen: links, boxes, labels
//!
//! What must stay true: text from devices is escaped; colours are never the only sign; it stands
//! alone, without script, font or network, and follows the reader's dark or light setting.

mod layout;
mod pen;

use self::layout::Plan;
use self::pen::Pen;
use super::Measured;
use crate::inspect::topology::flow::Flow;
use crate::inspect::topology::{Place, Topology};
use crate::inspect::{Inspection, Verdict, page};
use crate::report::chart::escape;
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
    svg{--paper:#ffffff;--ink:#1c2430;--soft:#5b6675;--box:#f4f6f9;--edge:#c3cad4;--link:#d5dae2;\
    --flow:#0072b2;--hot:#d55e00;--good:#007a5a}\
    @media (prefers-color-scheme:dark){svg{--paper:#14181f;--ink:#e9edf3;--soft:#9aa6b5;\
    --box:#1e242d;--edge:#3d4756;--link:#333c49;--flow:#56b4e9;--hot:#f0863a;--good:#3cc79a}}\
    text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:var(--ink)}\
    .head{font-size:21px;font-weight:700}.sub{font-size:14px;fill:var(--soft)}\
    .title{font-size:13px;font-weight:600}.small{font-size:11.5px;fill:var(--soft)}\
    .rate{font-size:13px;font-weight:600;paint-order:stroke;stroke:var(--paper);stroke-width:4px;\
    stroke-linejoin:round}\
    .what{font-size:11px;fill:var(--soft);paint-order:stroke;stroke:var(--paper);stroke-width:4px;\
    stroke-linejoin:round}\
    .hot{fill:var(--hot)}.box{fill:var(--box);stroke:var(--edge)}\
    .boxhot{fill:var(--box);stroke:var(--hot);stroke-width:2.5}\
    .link{fill:none;stroke:var(--link)}.flow{fill:none;stroke:var(--flow)}\
    .narrow{fill:none;stroke:var(--hot)}\
    .open{fill:none;stroke:var(--edge);stroke-width:2;stroke-dasharray:5 5}\
    .seen{fill:none;stroke:var(--ink);stroke-width:2;stroke-dasharray:2 4}\
    .drive{fill:var(--flow)}.gauge{fill:var(--link)}.fill{fill:var(--flow)}\
    .fillhot{fill:var(--hot)}.good{fill:var(--good)}</style>";

/// Draw it.
pub fn draw(inspection: &Inspection, measured: &Measured) -> String {
    let topology = &inspection.topology;
    let plan = Plan::of(topology);
    let notes = notes(topology).len();
    let height = plan.bottom + 58.0 + 17.0 * (notes as f64);
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         width=\"{WIDTH}\" height=\"{height:.0}\" role=\"img\" aria-labelledby=\"t\">\
         <title id=\"t\">Bottleneck diagram: {}</title>{STYLE}<rect width=\"100%\" height=\"100%\" \
         style=\"fill:var(--paper)\"/>",
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
        "<rect class=\"gauge\" x=\"{MARGIN}\" y=\"{0}\" width=\"26\" height=\"9\"/>\
         <text class=\"small\" x=\"62\" y=\"{1}\">what a link carries</text>\
         <rect class=\"fill\" x=\"190\" y=\"{0}\" width=\"26\" height=\"9\"/>\
         <text class=\"small\" x=\"224\" y=\"{1}\">what flows when {work}</text>\
         <rect class=\"fillhot\" x=\"700\" y=\"{0}\" width=\"26\" height=\"9\"/>\
         <text class=\"small\" x=\"734\" y=\"{1}\">narrowest: widening anything else helps \
         nothing</text>",
        y - 9.0,
        y
    );
    for (at, line) in notes(&inspection.topology).iter().enumerate() {
        let y = y + 20.0 + 17.0 * (at as f64);
        let _ = write!(
            out,
            "<text class=\"small\" x=\"{MARGIN}\" y=\"{y}\" xml:space=\"preserve\">{}</text>",
            escape(line)
        );
    }
}

/// Letters of a note that stand in one line.
const NOTE: usize = 185;

/// The first assumptions, in lines.
fn notes(topology: &Topology) -> Vec<String> {
    let mut lines = Vec::new();
    for assumption in topology.assumptions.iter().take(5) {
        let mut line = "*".to_owned();
        for word in assumption.split_whitespace() {
            if line.chars().count() + word.chars().count() >= NOTE && line.len() > 2 {
                lines.push(std::mem::replace(&mut line, " ".to_owned()));
            }
            line.push(' ');
            line.push_str(word);
        }
        lines.push(short(&line, NOTE + 15));
    }
    lines
}

fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let head: String = text.chars().take(most.saturating_sub(3)).collect();
    format!("{head}...")
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn long_words_are_cut() {
        assert_eq!(short("abcdefgh", 6), "abc...");
    }
}
