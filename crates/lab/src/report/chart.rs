//! Bars and lines as SVG: drawn here, so that they print, need no script and ask the network for
//! nothing.
//!
//! What must stay true: axes start at zero; every sample is a dot; colours are the Okabe-Ito ones,
//! which colour-blind people can tell apart, and each series has a pattern of its own besides;
//! colours of text and lines come from the page's style.

use std::fmt::Write;

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Which series it belongs to: index into [`Bars::series`].
    pub series: usize,
    /// Its height.
    pub value: f64,
    /// What is written at its end, with the unit.
    pub label: String,
    /// Every round, in the unit of the height.
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

/// Okabe and Ito's colours, which people with any colour vision can tell apart.
pub const COLOURS: [&str; 6] = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"];

impl Bars {
    /// The picture; empty without groups.
    pub fn svg(&self, title: &str) -> String {
        let rows: usize = self.groups.iter().map(|(_, bars)| bars.len()).sum();
        if rows == 0 {
            return String::new();
        }
        let highest = self.highest();
        let body = Self::to_f64(rows) * (BAR + 4.0) + Self::to_f64(self.groups.len()) * GAP;
        let mut names = String::new();
        let top = legend(&mut names, &self.series) + 19.0;
        let mut out = head(WIDTH, top + body + 18.0, title);
        out.push_str(&names);
        let scale = (WIDTH - LEFT - RIGHT) / highest;
        let mut y = top;
        for (name, bars) in &self.groups {
            let middle = y + Self::to_f64(bars.len()) * (BAR + 4.0) / 2.0 + 4.0;
            let rows = folded(name);
            for (row, words) in rows.iter().enumerate() {
                let down = 16.0 * Self::to_f64(row) - 8.0 * Self::to_f64(rows.len() - 1);
                text(&mut out, (LEFT - 10.0, middle + down), "end", "name", words);
            }
            for bar in bars {
                draw_bar(&mut out, bar, y, scale);
                y += BAR + 4.0;
            }
            y += GAP;
        }
        if let Some((place, name)) = &self.mark {
            let x = LEFT + place * scale;
            let _ = write!(
                out,
                r#"<line class="mark" x1="{x:.1}" y1="{:.1}" x2="{x:.1}" y2="{:.1}"/>"#,
                top - 6.0,
                y - 8.0
            );
            text(&mut out, (x, y + 6.0), "middle", "small", name);
        }
        let _ = write!(
            out,
            r#"<line class="axis" x1="{LEFT}" y1="{:.1}" x2="{LEFT}" y2="{:.1}"/></svg>"#,
            top - 6.0,
            y - 8.0
        );
        out
    }

    fn highest(&self) -> f64 {
        let bars = self.groups.iter().flat_map(|(_, bars)| bars);
        let values = bars.flat_map(|bar| bar.samples.iter().copied().chain([bar.value]));
        let mark = self.mark.as_ref().map_or(0.0, |(place, _)| *place);
        values.fold(mark, f64::max).max(f64::MIN_POSITIVE) * 1.02
    }

    fn to_f64(count: usize) -> f64 {
        f64::from(u32::try_from(count).unwrap_or(u32::MAX))
    }
}

/// Letters of a name that there is room for beside the bars.
const NAME: usize = 39;

/// A name in as many rows as it needs, broken between words.
fn folded(name: &str) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for word in name.split(' ') {
        match rows.last_mut() {
            Some(row) if row.chars().count() + word.chars().count() < NAME => {
                row.push(' ');
                row.push_str(word);
            }
            _ => rows.push(word.to_owned()),
        }
    }
    rows
}

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

fn draw_bar(out: &mut String, bar: &Bar, y: f64, scale: f64) {
    let (width, colour) = (bar.value * scale, COLOURS[bar.series % COLOURS.len()]);
    let _ = write!(
        out,
        "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{colour}\">\
         <title>{}</title></rect>",
        escape(&bar.label)
    );
    if bar.samples.len() > 1 {
        for sample in &bar.samples {
            let x = LEFT + sample * scale;
            let _ =
                write!(out, r#"<circle class="dot" cx="{x:.1}" cy="{:.1}" r="3"/>"#, y + BAR / 2.0);
        }
    }
    let end = bar.samples.iter().copied().fold(bar.value, f64::max) * scale;
    // It stands beside a dashed line, not under it.
    text(out, (LEFT + end + 8.0, y + BAR / 2.0 + 4.0), "start", "value halo", &bar.label);
}

/// One line of a line chart.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its points, x rising.
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
    /// The picture; empty without a line of two points.
    pub fn svg(&self, title: &str) -> String {
        let place = |x: f64| if self.is_log2 { x.max(1.0).log2() } else { x };
        let all = || self.lines.iter().flat_map(|line| &line.points);
        if self.lines.iter().all(|line| line.points.len() < 2) {
            return String::new();
        }
        let mut legend_svg = String::new();
        let names: Vec<String> = self.lines.iter().map(|line| line.name.clone()).collect();
        let above = Bars::to_f64(self.marks.len()) * 15.0;
        let top = legend(&mut legend_svg, &names) + 32.0 + above;
        let (left, width, height) = (80.0, 700.0, 240.0);
        let lowest_x = all().map(|point| place(point.0)).fold(f64::INFINITY, f64::min);
        let highest_x = all().map(|point| place(point.0)).fold(f64::NEG_INFINITY, f64::max);
        let highest_y = round_above(all().map(|point| point.1).fold(1e-9, f64::max));
        let span = (highest_x - lowest_x).max(f64::MIN_POSITIVE);
        let at = |point: &(f64, f64)| {
            (
                left + (place(point.0) - lowest_x) / span * width,
                top + height - point.1 / highest_y * height,
            )
        };
        let mut out = head(WIDTH, top + height + 50.0, title);
        out.push_str(&legend_svg);
        for part in 0..=4 {
            let value = highest_y * f64::from(part) / 4.0;
            let y = top + height - height * f64::from(part) / 4.0;
            let _ = write!(
                out,
                r#"<line class="grid" x1="{left}" y1="{y:.1}" x2="{:.1}" y2="{y:.1}"/>"#,
                left + width
            );
            text(&mut out, (left - 8.0, y + 4.0), "end", "small", &tick(value));
        }
        for (series, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[series % COLOURS.len()];
            let path: Vec<String> =
                line.points.iter().map(at).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let dashes = ["none", "7 4", "2 3", "9 3 2 3"][series % 4];
            let _ = write!(
                out,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
                 stroke-dasharray=\"{dashes}\" points=\"{}\"/>",
                path.join(" ")
            );
            if line.points.len() <= 40 {
                for (x, y) in line.points.iter().map(at) {
                    let _ =
                        write!(out, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{colour}"/>"#);
                }
            }
        }
        self.x_axis(
            &mut out,
            (left, top + height),
            &|x| at(&(x, 0.0)).0,
            all().map(|point| point.0).collect(),
        );
        self.draw_marks(&mut out, (top, top + height), &|x| at(&(x, 0.0)).0);
        text(&mut out, (left, top - above - 6.0), "start", "small", &self.y);
        out.push_str("</svg>");
        out
    }

    /// Each mark has a line of text of its own above the picture, so that neighbours do not lie on
    /// each other.
    fn draw_marks(&self, out: &mut String, (top, bottom): (f64, f64), at: &dyn Fn(f64) -> f64) {
        for (row, (place, name)) in self.marks.iter().enumerate() {
            let (x, y) = (at(*place), top - 4.0 - Bars::to_f64(row) * 15.0);
            let _ = write!(
                out,
                r#"<line class="mark" x1="{x:.1}" y1="{:.1}" x2="{x:.1}" y2="{bottom:.1}"/>"#,
                y + 2.0
            );
            let anchor = if x > WIDTH / 2.0 { "end" } else { "start" };
            text(out, (x, y), anchor, "small", name);
        }
    }

    fn x_axis(
        &self,
        out: &mut String,
        (left, y): (f64, f64),
        at: &dyn Fn(f64) -> f64,
        mut xs: Vec<f64>,
    ) {
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let mut free = f64::NEG_INFINITY;
        for x in xs {
            let (place, words) = (at(x), tick(x));
            let half = 4.0 * Bars::to_f64(words.chars().count()) + 12.0;
            if place - half >= free {
                text(out, (place, y + 16.0), "middle", "small", &words);
                free = place + half;
            }
        }
        let _ = write!(
            out,
            r#"<line class="axis" x1="{left}" y1="{y}" x2="{:.1}" y2="{y}"/>"#,
            left + 700.0
        );
        text(out, (left + 350.0, y + 36.0), "middle", "small", &self.x);
    }
}

pub(super) fn head(width: f64, height: f64, title: &str) -> String {
    format!(
        "<svg class=\"chart\" role=\"img\" aria-label=\"{0}\" viewBox=\"0 0 {width:.0} \
         {height:.0}\" xmlns=\"http://www.w3.org/2000/svg\"><title>{0}</title>",
        escape(title)
    )
}

/// Names of the series, in as many rows as they need; returns the height they take.
fn legend(out: &mut String, series: &[String]) -> f64 {
    let (mut x, mut y) = (20.0, 8.0);
    for (at, name) in series.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let width = 19.0 + 7.0 * Bars::to_f64(name.chars().count()) + 24.0;
        if x > 20.0 && x + width > WIDTH {
            (x, y) = (20.0, y + 20.0);
        }
        let _ =
            write!(out, r#"<rect x="{x:.1}" y="{y:.1}" width="13" height="13" fill="{colour}"/>"#);
        text(out, (x + 19.0, y + 11.0), "start", "small", name);
        x += width;
    }
    y + 13.0
}

pub(super) fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, class: &str, words: &str) {
    let _ = write!(
        out,
        r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
        escape(words)
    );
}

/// Text as it may stand in SVG and HTML, in one line.
pub fn escape(words: &str) -> String {
    let line = words.replace(char::is_control, " ");
    let Ok(escaped) = askama::filters::escape(line, askama::filters::Html);
    escaped.to_string()
}

#[cfg(test)]
mod tests {
    use super::{Bar, Bars, Line, Lines, escape, folded, round_above, tick};

    #[test]
    fn what_devices_say_cannot_become_markup() {
        assert_eq!(escape("<script>\"&\u{7}"), "&#60;script&#62;&#34;&#38; ");
    }

    #[test]
    fn axes_end_at_round_numbers_and_long_names_are_folded() {
        for (value, end) in
            [(1003.0, 1200.0), (970.0, 1000.0), (8.0, 8.0), (0.3, 0.32), (11_700.0, 12_000.0)]
        {
            assert!(
                (round_above(value) - end).abs() < end * 1e-9,
                "{value}: {}",
                round_above(value)
            );
        }
        assert_eq!(
            (tick(20.0), tick(0.3), tick(1200.0), tick(0.0)),
            ("20".into(), "0.3".into(), "1200".into(), "0".into())
        );
        let rows = folded("192K sequential writes, 1 x 8, through a file system");
        assert_eq!(rows, ["192K sequential writes, 1 x 8, through", "a file system"]);
        assert_eq!(folded("short").len(), 1);
    }

    #[test]
    fn bars_show_every_sample_and_escape_names() {
        let bar =
            Bar { series: 0, value: 2.0, label: "2 GB/s".into(), samples: vec![1.9, 2.0, 2.2] };
        let bars = Bars {
            series: vec!["a<b".into()],
            groups: vec![("reads & more".into(), vec![bar])],
            mark: Some((1.0, "BASELINE".into())),
        };
        let svg = bars.svg("rates");
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(
            svg.contains("a&#60;b") && svg.contains("reads &#38; more") && svg.contains("BASELINE")
        );
        assert_eq!(Bars::default().svg("nothing"), "");
    }

    #[test]
    fn a_line_needs_two_points() {
        let mut lines = Lines {
            lines: vec![Line { name: "a".into(), points: vec![(1.0, 1.0)] }],
            ..Lines::default()
        };
        assert_eq!(lines.svg("one point"), "");
        lines.lines[0].points.push((2.0, 4.0));
        assert!(lines.svg("two").contains("<polyline"));
    }
}
