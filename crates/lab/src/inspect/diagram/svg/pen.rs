//! Drawing links, boxes and labels.
//!
//! What must stay true: text from devices is escaped; the narrowest link is told by more than its
//! colour: it says "full".

use super::layout::Plan;
use super::{BOX_HEIGHT, BOX_WIDTH, LINK_WIDTH_MAX, STRAIGHT, short};
use crate::inspect::diagram::Measured;
use crate::inspect::topology::flow::{Flow, usable};
use crate::inspect::topology::{Link, Node, Place, Topology};
use crate::metrics::bandwidth::Rate;
use crate::report::chart::escape;
use std::cmp::Ordering;
use std::fmt::Write;

/// What is drawn with: the server, what flows in it, and where everything stands.
pub(super) struct Pen<'a> {
    pub(super) topology: &'a Topology,
    pub(super) flow: &'a Flow,
    pub(super) plan: &'a Plan,
    pub(super) measured: &'a Measured,
    pub(super) widest: Rate,
}

impl Pen<'_> {
    pub(super) fn link(&self, out: &mut String, at: usize) {
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

    pub(super) fn label(&self, out: &mut String, at: usize) {
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
                let _ = write!(
                    out,
                    "<text class=\"rate\" text-anchor=\"middle\" x=\"{x:.1}\" \
                     y=\"{:.1}\">{}</text>",
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
            "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
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
                "<text class=\"what\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
                escape(&short(text, 22))
            );
        }
    }

    pub(super) fn node(&self, out: &mut String, at: usize) {
        let (node, (x, middle)) = (&self.topology.nodes[at], self.plan.at[at]);
        let y = middle - BOX_HEIGHT / 2.0;
        let own = self.topology.links.iter().position(|it| it.from == Some(at) && it.to.is_none());
        let is_hot = own.is_some_and(|own| self.flow.narrowest.contains(&own));
        let class = if is_hot { "boxhot" } else { "box" };
        let _ = write!(
            out,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{BOX_WIDTH}\" \
             height=\"{BOX_HEIGHT}\" rx=\"7\"/>"
        );
        let title = match (node.place, node.count) {
            (Place::Drives, count) if count > 1 => format!("{count} x {}", model(&node.title, 13)),
            (Place::Drives | Place::Expander, _) => model(&node.title, 16),
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
            "<text class=\"{class}\" x=\"{0:.1}\" y=\"{1:.1}\">{2}</text>\
             <rect class=\"gauge\" x=\"{0:.1}\" y=\"{3:.1}\" width=\"{room:.1}\" height=\"7\" \
             rx=\"3\"/>\
             <rect class=\"{fill}\" x=\"{0:.1}\" y=\"{3:.1}\" width=\"{4:.1}\" height=\"7\" \
             rx=\"3\"/>",
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
