//! Lines over the last hour, or what there is of it, as SVG.
//!
//! What must stay true: an axis has one unit and begins at zero, and every point lies within the
//! picture. Lines differ in pattern, not only in colour. Where nothing was measured there is a
//! gap. Colours come from the page's style. All text in here is ours.

use std::fmt::Write;

/// Units that an axis can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// Events of a second.
    Rate,
    /// Bytes of a second.
    ByteRate,
    /// Microseconds.
    Time,
}

/// What is measured, in the largest unit that leaves no less than one.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Unit {
    name: &'static str,
    size: f64,
}

impl Measure {
    fn units(self) -> &'static [Unit] {
        const RATES: [Unit; 3] = [
            Unit { name: "/s", size: 1.0 },
            Unit { name: "k/s", size: 1e3 },
            Unit { name: "M/s", size: 1e6 },
        ];
        const BYTES: [Unit; 3] = [
            Unit { name: "KiB/s", size: 1024.0 },
            Unit { name: "MiB/s", size: 1_048_576.0 },
            Unit { name: "GiB/s", size: 1_073_741_824.0 },
        ];
        const TIMES: [Unit; 3] = [
            Unit { name: "µs", size: 1.0 },
            Unit { name: "ms", size: 1e3 },
            Unit { name: "s", size: 1e6 },
        ];
        match self {
            Measure::Rate => &RATES,
            Measure::ByteRate => &BYTES,
            Measure::Time => &TIMES,
        }
    }

    fn unit(self, value: f64) -> Unit {
        let units = self.units();
        *units.iter().rfind(|unit| value >= unit.size).unwrap_or(&units[0])
    }

    /// A value with its unit, in three digits.
    pub fn told(self, value: f64) -> String {
        // Times are sums of whole microseconds, so a mean below one is no figure.
        if self == Measure::Time && value < 1.0 {
            return "below 1 µs".to_owned();
        }
        let unit = self.unit(value);
        format!("{} {}", digits(value / unit.size), unit.name)
    }
}

fn digits(value: f64) -> String {
    let text = match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    let is_whole = text.contains('.');
    if is_whole { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A value at a moment: milliseconds before now, and what was measured.
pub type Point = (u64, Option<f64>);

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it shows.
    pub name: &'static str,
    /// Oldest first.
    pub points: Vec<Point>,
}

/// A picture of lines with one unit.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows, half a sentence.
    pub title: &'static str,
    /// The unit of its axis.
    pub measure: Measure,
    /// Two at most: there are two patterns.
    pub lines: Vec<Line>,
    /// How much time its width is.
    pub minutes: u64,
}

/// A line in words.
#[derive(Clone, Debug)]
pub struct Told {
    /// What it shows.
    pub name: &'static str,
    /// Its newest value.
    pub now: String,
    /// Its highest value.
    pub highest: String,
}

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 132.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 392.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 108.0;

fn word(out: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    let _ = write!(out, r#"<text x="{x}" y="{y}" text-anchor="{anchor}">{words}</text>"#);
}

impl Line {
    fn highest(&self) -> Option<f64> {
        self.points.iter().filter_map(|(_, value)| *value).reduce(f64::max)
    }
}

impl Chart {
    /// Its lines in words.
    pub fn told(&self) -> Vec<Told> {
        let told = |value: Option<f64>| value.map_or("none".to_owned(), |it| self.measure.told(it));
        let tell = |line: &Line| Told {
            name: line.name,
            now: told(line.points.last().and_then(|(_, value)| *value)),
            highest: told(line.highest()),
        };
        self.lines.iter().map(tell).collect()
    }

    /// Whether all that was measured is zero.
    pub fn is_flat(&self) -> bool {
        self.lines.iter().filter_map(Line::highest).all(|highest| highest == 0.0)
    }

    /// The end of its axis and the axis' unit: 1, 2 or 5 times a power of ten.
    fn scale(&self) -> (f64, Unit) {
        let highest = self.lines.iter().filter_map(Line::highest).fold(0.0, f64::max);
        let unit = self.measure.unit(highest);
        let wanted = (highest / unit.size).max(1.0);
        let power = 10f64.powf(wanted.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let top = steps.into_iter().find(|top| *top >= wanted).unwrap_or(wanted);
        (top, unit)
    }

    /// The picture. Its words are for the page: it has none for those who do not see it.
    pub fn svg(&self) -> String {
        let (top, unit) = self.scale();
        let mut out =
            format!(r#"<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">"#);
        for part in [0.0, 0.5, 1.0] {
            let y = BOTTOM - (BOTTOM - TOP) * part;
            let class = if part == 0.0 { "base" } else { "grid" };
            let name = if part == 1.0 { format!(" {}", unit.name) } else { String::new() };
            let _ = write!(out, r#"<path class="{class}" d="M{LEFT} {y}H{RIGHT}"/>"#);
            word(&mut out, (LEFT - 6.0, y + 4.0), "end", &(digits(top * part) + &name));
        }
        let oldest = format!("{} min ago", self.minutes);
        for (x, anchor, words) in [(LEFT, "start", &*oldest), (RIGHT, "end", "now")] {
            let _ = write!(out, r#"<path class="base" d="M{x} {BOTTOM}v4"/>"#);
            word(&mut out, (x, BOTTOM + 17.0), anchor, words);
        }
        for (number, line) in self.lines.iter().enumerate() {
            let path = self.path(line, top * unit.size);
            if !path.is_empty() {
                let _ = write!(out, r#"<path class="line line{number}" d="{path}"/>"#);
            }
        }
        out.push_str("</svg>");
        out
    }

    /// The line as a path. A point between two gaps is a dot, by the round ends of the stroke.
    fn path(&self, line: &Line, top: f64) -> String {
        let mut path = String::new();
        let mut is_begun = false;
        for (ago_ms, value) in &line.points {
            let Some(value) = value else {
                is_begun = false;
                continue;
            };
            let ago = super::history::figure(*ago_ms)
                / super::history::figure(self.minutes.max(1) * 60_000);
            let x = RIGHT - (RIGHT - LEFT) * ago.clamp(0.0, 1.0);
            let y = BOTTOM - (BOTTOM - TOP) * (value / top).clamp(0.0, 1.0);
            let _ = match is_begun {
                true => write!(path, "L{x:.1} {y:.1}"),
                false => write!(path, "M{x:.1} {y:.1}h0"),
            };
            is_begun = true;
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::{BOTTOM, Chart, LEFT, Line, Measure, RIGHT, TOP};

    fn chart(measure: Measure, points: Vec<(u64, Option<f64>)>) -> Chart {
        let lines = vec![Line { name: "reads", points }];
        Chart { title: "Requests", measure, lines, minutes: 60 }
    }

    #[test]
    fn every_point_lies_within_the_axes_whatever_was_measured() {
        let extremes = [0.0, 1e-9, 0.3, 1.0, 999.9, 1000.0, 5e6, 1e15, u64::MAX as f64];
        for measure in [Measure::Rate, Measure::ByteRate, Measure::Time] {
            for highest in extremes {
                let ages = [u64::MAX, 4_000_000, 3_600_000, 10_000, 0];
                let points = ages.map(|ago| (ago, Some(highest))).to_vec();
                let chart = chart(measure, points);
                let path = chart.path(&chart.lines[0], chart.scale().0 * chart.scale().1.size);
                let numbers: Vec<f64> =
                    path.split(['M', 'L', 'h', ' ']).filter_map(|text| text.parse().ok()).collect();
                // The first point is followed by a line of no length.
                let pairs = [&numbers[..2], &numbers[3..]].concat();
                assert_eq!(pairs.len(), 10, "{path}");
                for pair in pairs.chunks(2) {
                    assert!((LEFT..=RIGHT).contains(&pair[0]), "{measure:?} {highest} {path}");
                    assert!((TOP..=BOTTOM).contains(&pair[1]), "{measure:?} {highest} {path}");
                }
                let (top, unit) = chart.scale();
                assert!(top * unit.size >= highest, "{measure:?} {highest}: {top} {unit:?}");
                let svg = chart.svg();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }

    #[test]
    fn the_axis_has_one_unit_and_ends_at_a_round_number() {
        for (measure, highest, wanted) in [
            (Measure::Rate, 0.0, "1 /s"),
            (Measure::Rate, 3.0, "5 /s"),
            (Measure::Rate, 1400.0, "2 k/s"),
            (Measure::ByteRate, 300.0 * 1_048_576.0, "500 MiB/s"),
            (Measure::Time, 870.0, "1000 µs"),
            (Measure::Time, 1001.0, "2 ms"),
        ] {
            let svg = chart(measure, vec![(0, Some(highest))]).svg();
            assert!(svg.contains(&format!(">{wanted}</text>")), "{wanted}: {svg}");
            let unit = wanted.split(' ').next_back().expect("a unit");
            let units = svg.matches(&format!("{unit}</text>")).count();
            assert_eq!(units, 1, "{wanted}: {svg}");
        }
    }

    #[test]
    fn a_gap_breaks_the_line_and_nothing_draws_none() {
        let gap = chart(Measure::Rate, vec![(30, Some(1.0)), (20, None), (10, Some(1.0))]);
        assert_eq!(gap.path(&gap.lines[0], 1.0).matches('M').count(), 2);
        let none = chart(Measure::Rate, vec![(30, None)]);
        assert!(!none.svg().contains("line0"));
        assert!(none.is_flat() && !gap.is_flat());
        assert!(chart(Measure::Rate, vec![(30, Some(0.0))]).is_flat());
        assert_eq!(
            (none.told()[0].now.as_str(), none.told()[0].highest.as_str()),
            ("none", "none")
        );
    }

    #[test]
    fn values_are_told_in_three_digits() {
        let told: Vec<String> =
            [0.0, 0.25, 12.34, 1234.0, 99_960.0].map(|it| Measure::Rate.told(it)).to_vec();
        assert_eq!(told, ["0 /s", "0.25 /s", "12.3 /s", "1.23 k/s", "100 k/s"]);
        assert_eq!([0.4, 1.0].map(|it| Measure::Time.told(it)), ["below 1 µs", "1 µs"]);
    }
}
