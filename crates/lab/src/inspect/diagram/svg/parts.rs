//! Drawing links, boxes and labels.
//!
//! What must stay true: text from devices is escaped; the narrowest link is told by more than its
//! colour: it says "full".

use super::{BOX_HEIGHT, BOX_WIDTH, LINK_WIDTH_MAX, Plan, STRAIGHT};
use crate::inspect::diagram::Measured;
use crate::inspect::topology::flow::{Flow, usable};
use crate::inspect::topology::{Link, Node, Place, Topology};
use crate::metrics::bandwidth::Rate;
use crate::pen::{Pen, short};
use std::cmp::Ordering;
use std::fmt::Write;

pub(super) struct Parts<'a> {
    pub(super) topology: &'a Topology,
    pub(super) flow: &'a Flow,
    pub(super) plan: &'a Plan,
    pub(super) measured: &'a Measured,
    pub(super) widest: Rate,
}

impl Parts<'_> {
    pub(super) fn link(&self, pen: &mut Pen, at: usize) {
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

    pub(super) fn label(&self, pen: &mut Pen, at: usize) {
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

    pub(super) fn node(&self, pen: &mut Pen, at: usize) {
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
