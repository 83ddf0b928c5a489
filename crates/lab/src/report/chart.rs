//! Bars and lines.
//!
//! What must stay true: axes start at zero; every sample is a dot; colours of text and lines come
//! from the page's style.

use crate::order::one_of;
use crate::pen::{At, COLOURS, Pen, count, folded, legend_height};

#[derive(Clone, Debug)]
pub struct Bar {
    /// Which series it belongs to: index into [`Bars::series`].
    pub series: usize,
    pub value: f64,
    pub label: String,
    pub samples: Vec<f64>,
}

/// Groups of bars, lying: names of cases are long.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// Names of the series, in the order of their colours.
    pub series: Vec<String>,
    /// Name of each group, and its bars.
    pub groups: Vec<(String, Vec<Bar>)>,
    /// A line across all groups: its place and its name.
    pub mark: Option<(f64, String)>,
}

pub(super) const WIDTH: f64 = 880.0;
const LEFT: f64 = 300.0;
const RIGHT: f64 = 120.0;
const BAR: f64 = 20.0;
const GAP: f64 = 16.0;

impl Bars {
    /// A bar more in the group called `name`.
    pub(super) fn add(&mut self, name: &str, bar: Bar) {
        let none = || (name.to_owned(), Vec::new());
        one_of(&mut self.groups, |(group, _)| group == name, none).1.push(bar);
    }

    pub fn svg(&self, title: &str) -> String {
        let rows: usize = self.groups.iter().map(|(_, bars)| bars.len()).sum();
        if rows == 0 {
            return String::new();
        }
        let body = count(rows) * (BAR + 4.0) + count(self.groups.len()) * GAP;
        let top = legend_height(&self.series, WIDTH) + 19.0;
        let mut pen = Pen::new((WIDTH, top + body + 18.0), title, "");
        pen.legend(&self.series, WIDTH);
        let scale = (WIDTH - LEFT - RIGHT) / self.highest();
        let mut y = top;
        for (name, bars) in &self.groups {
            let middle = y + count(bars.len()) * (BAR + 4.0) / 2.0 + 4.0;
            let rows = folded(name, NAME);
            for (row, words) in rows.iter().enumerate() {
                let down = 16.0 * count(row) - 8.0 * count(rows.len() - 1);
                pen.text((LEFT - 10.0, middle + down), "end", "name", words);
            }
            for bar in bars {
                draw_bar(&mut pen, bar, y, scale);
                y += BAR + 4.0;
            }
            y += GAP;
        }
        if let Some((place, name)) = &self.mark {
            let x = LEFT + place * scale;
            pen.line("mark", (x, top - 6.0), (x, y - 8.0));
            pen.text((x, y + 6.0), "middle", "small", name);
        }
        pen.line("axis", (LEFT, top - 6.0), (LEFT, y - 8.0));
        pen.done()
    }

    fn highest(&self) -> f64 {
        let bars = self.groups.iter().flat_map(|(_, bars)| bars);
        let values = bars.flat_map(|bar| bar.samples.iter().copied().chain([bar.value]));
        let mark = self.mark.as_ref().map_or(0.0, |(place, _)| *place);
        values.fold(mark, f64::max).max(f64::MIN_POSITIVE) * 1.02
    }
}

/// Letters of a name that there is room for beside the bars.
const NAME: usize = 39;

/// A round number at or above `value`, whose quarters are round as well: an axis ends there.
fn round_above(value: f64) -> f64 {
    let quarter = value / 4.0;
    let power = 10_f64.powf(quarter.log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let step = steps.into_iter().find(|step| step * power >= quarter * 0.999_999);
    step.unwrap_or(10.0) * power * 4.0
}

/// A number at an axis, without zeros that say nothing.
fn tick(value: f64) -> String {
    let text = crate::units::three_digits(value);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn draw_bar(pen: &mut Pen, bar: &Bar, y: f64, scale: f64) {
    let colour = COLOURS[bar.series % COLOURS.len()];
    pen.bar((LEFT, y), (bar.value * scale, BAR), colour, &bar.label);
    for sample in bar.samples.iter().filter(|_| bar.samples.len() > 1) {
        pen.dot((LEFT + sample * scale, y + BAR / 2.0), "dot");
    }
    let end = bar.samples.iter().copied().fold(bar.value, f64::max) * scale;
    // It stands beside a dashed line, not under it.
    pen.text((LEFT + end + 8.0, y + BAR / 2.0 + 4.0), "start", "value halo", &bar.label);
}

#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// Lines over a common axis.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// Lines, in the order of their colours.
    pub lines: Vec<Line>,
    /// What x is, with its unit.
    pub x: String,
    /// What y is, with its unit.
    pub y: String,
    /// x counts doublings.
    pub is_log2: bool,
    /// Dashed lines across: their place on x, and what they mark.
    pub marks: Vec<(f64, String)>,
}

impl Lines {
    pub fn svg(&self, title: &str) -> String {
        let place = |x: f64| if self.is_log2 { x.max(1.0).log2() } else { x };
        let all = || self.lines.iter().flat_map(|line| &line.points);
        if self.lines.iter().all(|line| line.points.len() < 2) {
            return String::new();
        }
        let names: Vec<String> = self.lines.iter().map(|line| line.name.clone()).collect();
        let above = count(self.marks.len()) * 15.0;
        let top = legend_height(&names, WIDTH) + 32.0 + above;
        let (left, width, height) = (80.0, 700.0, 240.0);
        let lowest_x = all().map(|point| place(point.0)).fold(f64::INFINITY, f64::min);
        let highest_x = all().map(|point| place(point.0)).fold(f64::NEG_INFINITY, f64::max);
        let highest_y = round_above(all().map(|point| point.1).fold(1e-9, f64::max));
        let span = (highest_x - lowest_x).max(f64::MIN_POSITIVE);
        let bottom = top + height;
        let at = |(x, y): &At| {
            (left + (place(*x) - lowest_x) / span * width, bottom - y / highest_y * height)
        };
        let mut pen = Pen::new((WIDTH, bottom + 50.0), title, "");
        pen.legend(&names, WIDTH);
        for part in 0..=4 {
            let share = f64::from(part) / 4.0;
            let y = bottom - height * share;
            pen.line("grid", (left, y), (left + width, y));
            pen.text((left - 8.0, y + 4.0), "end", "small", &tick(highest_y * share));
        }
        for (series, line) in self.lines.iter().enumerate() {
            pen.curve(line.points.iter().map(at), series);
            if line.points.len() <= 40 {
                let colour = COLOURS[series % COLOURS.len()];
                line.points.iter().for_each(|point| pen.dot(at(point), colour));
            }
        }
        let across = |x: f64| at(&(x, 0.0)).0;
        let xs = all().map(|point| point.0).collect();
        self.x_axis(&mut pen, (left, bottom), &across, xs);
        for (row, (x, name)) in self.marks.iter().enumerate() {
            // Each mark has a line of text of its own, so that neighbours do not lie on each other.
            let (x, y) = (across(*x), top - 4.0 - count(row) * 15.0);
            pen.line("mark", (x, y + 2.0), (x, bottom));
            let anchor = if x > WIDTH / 2.0 { "end" } else { "start" };
            pen.text((x, y), anchor, "small", name);
        }
        pen.text((left, top - above - 6.0), "start", "small", &self.y);
        pen.done()
    }

    fn x_axis(&self, pen: &mut Pen, (left, y): At, across: &dyn Fn(f64) -> f64, mut xs: Vec<f64>) {
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let mut free = f64::NEG_INFINITY;
        for x in xs {
            let (place, words) = (across(x), tick(x));
            let half = 4.0 * count(words.chars().count()) + 12.0;
            if place - half >= free {
                pen.text((place, y + 16.0), "middle", "small", &words);
                free = place + half;
            }
        }
        pen.line("axis", (left, y), (left + 700.0, y));
        pen.text((left + 350.0, y + 36.0), "middle", "small", &self.x);
    }
}

#[cfg(test)]
mod tests {
    use super::{At, Bar, Bars, Line, Lines, round_above, tick};

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, end) in
            [(1003.0, 1200.0), (970.0, 1000.0), (8.0, 8.0), (0.3, 0.32), (11_700.0, 12_000.0)]
        {
            let found = round_above(value);
            assert!((found - end).abs() < end * 1e-9, "{value}: {found}");
        }
        assert_eq!([20.0, 0.3, 1200.0, 0.0].map(tick), ["20", "0.3", "1200", "0"]);
    }

    #[test]
    fn bars_show_every_sample_and_a_line_needs_two_points() {
        let samples = vec![1.9, 2.0, 2.2];
        let mut bars = Bars { mark: Some((1.0, "BASELINE".into())), ..Bars::default() };
        assert_eq!(bars.svg("nothing"), "");
        bars.add("reads", Bar { series: 0, value: 2.0, label: "2 GB/s".into(), samples });
        let svg = bars.svg("rates");
        assert!(svg.matches("<circle").count() == 3 && svg.contains("BASELINE"), "{svg}");
        let svg = |points: &[At]| {
            let line = Line { name: "a".into(), points: points.to_vec() };
            Lines { lines: vec![line], ..Lines::default() }.svg("lines")
        };
        assert_eq!(svg(&[(1.0, 1.0)]), "");
        assert!(svg(&[(1.0, 1.0), (2.0, 4.0)]).contains("<polyline"));
    }
}
