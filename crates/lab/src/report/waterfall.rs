//! What is lost on the way: what makers state of the drives, raw drives, what the RAID level leaves
//! of them, what the array does, what a file system on it does.
//!
//! What must stay true: the steps of one fall are of the same load, and the raw drives' step is the
//! very run that the BASELINE came from; each load has a scale of its own that begins at zero; an
//! INVALID figure is no step.

use super::chart::WIDTH;
use super::charts::{self, Chart, ChartRow};
use super::findings::{engines, short};
use super::points::Point;
use crate::order::one_of;
use crate::pen::Pen;
use crate::record::{ArrayCondition, RateUnit, RawSum};
use crate::units;

#[derive(Clone, Debug)]
pub struct Step {
    pub rate: f64,
    /// The rate of the step that it comes from; `None` for the first.
    pub from: Option<f64>,
    /// Over how many drives it is spread, and what they are called.
    pub drives: (u32, &'static str),
    colour: &'static str,
    /// What stands in the table, under its name: `raw drives`, `RAID ceiling`, an engine.
    row: ChartRow,
}

#[derive(Clone, Debug)]
pub struct Fall {
    /// The load: `4K random reads, 1 x 32`.
    load: String,
    /// The same, with the array if several fall from different heights.
    pub case: String,
    unit: RateUnit,
    /// Its steps, raw drives first.
    pub steps: Vec<Step>,
}

impl Step {
    /// What `points` did.
    fn of(name: &str, points: &[&Point], rate: f64, drives: (u32, &'static str)) -> Step {
        let row = ChartRow { engine: name.to_owned(), ..charts::row(points, String::new()) };
        Step { rate, from: None, drives, colour: "#999999", row }
    }

    /// The same, as what is left of `from`.
    fn below(self, from: Option<f64>, colour: &'static str) -> Step {
        Step { from, colour, ..self }
    }

    pub fn name(&self) -> &str {
        &self.row.engine
    }

    /// What each drive has of it.
    pub fn per_drive(&self) -> f64 {
        self.rate / f64::from(self.drives.0.max(1))
    }

    pub fn left(&self) -> Option<f64> {
        self.from.filter(|from| *from > 0.0).map(|from| self.rate / from)
    }

    /// Rate, rate of each drive, and what is left of the step before.
    fn told(&self, unit: RateUnit) -> String {
        let each = format!("{} a {}", units::rate(self.per_drive(), unit), self.drives.1);
        let left =
            self.left().map_or_else(String::new, |left| format!(", {}", units::percent(left)));
        format!("{}, {each}{left}", units::rate(self.rate, unit))
    }
}

/// The falls of a run: each load that a healthy array was measured at, if the raw run of its
/// BASELINE is known.
pub fn falls(points: &[Point]) -> Vec<Fall> {
    let mut falls: Vec<Fall> = Vec::new();
    let healthy = |point: &&Point| point.condition == ArrayCondition::Healthy;
    for point in charts::drawn(points).filter(healthy) {
        let Some(baseline) = &point.baseline else { continue };
        let Some(raw) = &baseline.raw else { continue };
        let case = point.workload.describe();
        let whose = short(&point.engine, &engines(points)).to_owned();
        let below = top(points, raw, baseline.value, point);
        // Arrays of another level, or over other drives, fall from another height.
        let is_below = |fall: &Fall| {
            fall.steps.iter().zip(&below).all(|(a, b)| a.rate.total_cmp(&b.rate).is_eq())
        };
        let is_known = falls.iter().any(|fall| fall.load == case && !is_below(fall));
        let fall = one_of(
            &mut falls,
            |fall| fall.load == case && is_below(fall),
            || Fall {
                load: case.clone(),
                case: if is_known { format!("{case}, {whose}") } else { case.clone() },
                unit: point.unit(),
                steps: below.clone(),
            },
        );
        let on_it = |other: &&Point| {
            other.condition == ArrayCondition::FileSystem
                && other.workload == point.workload
                && short(&other.engine, &engines(points)) == whose
        };
        let step = |name: &str, of: &Point| Step::of(name, &[of], of.rate(), spread(of, raw));
        fall.steps.push(step(&whose, point).below(Some(baseline.value), "#0072B2"));
        let files = charts::drawn(points).find(on_it);
        let files = files.map(|it| step(&format!("{whose}, file system"), it));
        fall.steps.extend(files.map(|it| it.below(Some(point.rate()), "#009E73")));
    }
    falls
}

/// What makers state of the drives, if it is known of all; the raw drives; what the RAID level
/// leaves of them.
fn top(points: &[Point], raw: &RawSum, ceiling: f64, of: &Point) -> Vec<Step> {
    let is_run = |it: &&Point| it.is_raw() && it.stage == "raw.all";
    let runs = points.iter().filter(is_run).filter(|it| it.workload.name == raw.workload);
    let runs: Vec<&Point> = runs.collect();
    let step = |name: &str, rate: f64, drives| {
        let mut step = Step::of(name, &runs, rate, drives);
        if runs.is_empty() {
            step.row.commands = format!("raw run {} is not among the records", raw.workload);
        }
        step
    };
    let drives = (raw.drives, "drive");
    let datasheet = raw.stated.map(|stated| step("datasheet", stated, drives));
    let first = step("raw drives", raw.value, drives).below(raw.stated, "#56B4E9");
    let ceiling = step("RAID ceiling", ceiling, spread(of, raw)).below(Some(raw.value), "#E69F00");
    datasheet.into_iter().chain([first, ceiling]).collect()
}

/// Random reads are served by every drive; of everything else the data drives carry the data.
fn spread(point: &Point, raw: &RawSum) -> (u32, &'static str) {
    match point.workload.mix.as_str() {
        "randread" => (raw.drives, "drive"),
        _ => (raw.data_drives, "data drive"),
    }
}

pub fn chart(points: &[Point]) -> Chart {
    let falls = falls(points);
    let mut rows = Vec::new();
    for fall in &falls {
        rows.extend(fall.steps.iter().map(|step| ChartRow {
            case: fall.case.clone(),
            value: format!("{} (of {} {}s)", step.told(fall.unit), step.drives.0, step.drives.1),
            ..step.row.clone()
        }));
    }
    let belongs = |point: &Point| {
        [ArrayCondition::Healthy, ArrayCondition::FileSystem].contains(&point.condition)
            && !falls.is_empty()
    };
    Chart::new("waterfall", |question| svg(&falls, question), rows).without(points, belongs)
}

const LEFT: f64 = 200.0;
const LONGEST: f64 = 360.0;
const ROW: f64 = 26.0;
const HEADING: f64 = 28.0;

fn svg(falls: &[Fall], title: &str) -> String {
    if falls.is_empty() {
        return String::new();
    }
    let height = |fall: &Fall| HEADING + fall.steps.iter().map(|_| ROW).sum::<f64>() + 10.0;
    let size = (WIDTH, falls.iter().map(height).sum::<f64>() + 8.0);
    let mut pen = Pen::new(size, title, "");
    let mut top = 0.0;
    for fall in falls {
        pen.text((12.0, top + 20.0), "start", "value", &fall.case);
        let highest = fall.steps.iter().map(|step| step.rate).fold(f64::MIN_POSITIVE, f64::max);
        let mut y = top + HEADING;
        for step in &fall.steps {
            draw(&mut pen, step, (y, LONGEST / highest), fall.unit);
            y += ROW;
        }
        pen.line("axis", (LEFT, top + HEADING - 3.0), (LEFT, y - 3.0));
        top += height(fall);
    }
    pen.done()
}

fn draw(pen: &mut Pen, step: &Step, (y, scale): (f64, f64), unit: RateUnit) {
    let (width, before) = (step.rate * scale, step.from.unwrap_or(0.0) * scale);
    let told = step.told(unit);
    pen.text((LEFT - 10.0, y + 15.0), "end", "name", step.name());
    pen.bar((LEFT, y), (width, 20.0), step.colour, &told);
    if before > width {
        pen.bar((LEFT + width, y), (before - width, 20.0), "lost", "");
        if before - width > 60.0 {
            let lost = format!("\u{2212}{}", units::percent(1.0 - width / before));
            pen.text((LEFT + (width + before) / 2.0, y + 14.0), "middle", "small", &lost);
        }
    }
    pen.text((LEFT + width.max(before) + 8.0, y + 14.0), "start", "small", &told);
}

#[cfg(test)]
mod tests {
    use super::Step;
    use crate::record::RateUnit;

    /// Seed 004: 80 GB/s over 384 data drives are 208 MB/s each, which the talk prints as 206.
    #[test]
    fn the_talks_efficiency_for_each_drive_is_corrected() {
        let raid = Step::of("", &[], 80e9, (384, "data drive")).below(Some(126e9), "");
        assert_eq!(raid.told(RateUnit::BytesPerS), "80.0 GB/s, 208 MB/s a data drive, 63.5 %");
    }
}
