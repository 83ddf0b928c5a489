//! A drive's write cache off and on: both states of each load side by side.
//!
//! What must stay true: a state that is INVALID or was not measured has no ratio.

use super::points::{self, Point};
use super::sections::Section;
use super::text::percentile;
use crate::record::Record;
use crate::switch::WRITE_CACHE;
use crate::units;
use crate::validity::Mark;

/// One load on one drive, with something of the drive on and off.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The drive.
    pub drive: String,
    /// The load, with what is asked of a write: `flush: 4K random writes, 1 x 1`.
    pub load: String,
    off: Option<Point>,
    on: Option<Point>,
}

impl Pair {
    /// The rate with it on over the rate with it off, if both may be used.
    pub fn ratio(&self) -> Option<f64> {
        let usable = |point: &Option<Point>| {
            point
                .as_ref()
                .filter(|it| it.mark() != Mark::Invalid && it.rate() > 0.0)
                .map(Point::rate)
        };
        Some(usable(&self.on)? / usable(&self.off)?)
    }
}

/// All pairs of a run, in the order in which they were first measured.
pub fn pairs(records: &[Record]) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = Vec::new();
    for point in points::of(records) {
        let Some((pair, is_on)) = half(&point) else { continue };
        let is_same = |known: &&mut Pair| (&known.drive, &known.load) == (&pair.drive, &pair.load);
        let place = match pairs.iter_mut().find(is_same) {
            Some(known) => known,
            None => {
                pairs.push(pair);
                let last = pairs.len() - 1;
                &mut pairs[last]
            }
        };
        let side = if is_on { &mut place.on } else { &mut place.off };
        *side = Some(point);
    }
    pairs
}

/// A point as one side of a pair, if it is one: `cache-off-flush-randwrite-4k-j1-q1`.
fn half(point: &Point) -> Option<(Pair, bool)> {
    let round = point.rounds.first()?;
    let state = round.engine.tunables.get(WRITE_CACHE)?;
    let is_on = match state.as_str() {
        "on" => true,
        "off" => false,
        _ => return None,
    };
    let (_, rest) = point.workload.name.split_once(&format!("-{state}-"))?;
    let guarantee = ["plain", "fua", "flush"].into_iter().find(|word| rest.starts_with(word));
    let load = point.workload.describe();
    let load = guarantee.map_or_else(|| load.clone(), |word| format!("{word}: {load}"));
    Some((Pair { drive: round.target.clone(), load, off: None, on: None }, is_on))
}

/// The table.
pub fn section(records: &[Record]) -> Section {
    let row = |pair: &Pair| {
        let rate = |point: &Option<Point>| {
            let shown = |point: &Point| match point.mark() {
                Mark::Invalid => "INVALID".to_owned(),
                _ => units::rate(point.rate(), point.unit()),
            };
            point.as_ref().map_or_else(|| "not measured".to_owned(), shown)
        };
        let p99 = |point: &Option<Point>| {
            point.as_ref().map_or_else(String::new, |point| percentile(point, 0.99))
        };
        vec![
            pair.drive.clone(),
            pair.load.clone(),
            rate(&pair.off),
            rate(&pair.on),
            pair.ratio().map_or_else(String::new, |ratio| format!("\u{d7}{ratio:.2}")),
            p99(&pair.off),
            p99(&pair.on),
        ]
    };
    Section {
        word: "switches",
        title: "What does the write cache change?",
        head: vec!["drive", "load", "off", "on", "on over off", "p99 off", "p99 on"],
        rows: pairs(records).iter().map(row).collect(),
        notes: vec![
            "plain: no guarantee; fua: each write is on the medium when it returns; \
             flush: a flush after each write. Jobs x depth stand last in each load."
                .to_owned(),
        ],
    }
}

/// The largest thing that switching did, as a sentence.
pub fn sentence(records: &[Record]) -> Option<String> {
    let far = |pair: &Pair| pair.ratio().map_or(0.0, |ratio| ratio.ln().abs());
    let pairs = pairs(records);
    let most = pairs.iter().max_by(|one, other| far(one).total_cmp(&far(other)))?;
    let ratio = most.ratio()?;
    Some(format!(
        "Switching the write cache of {} on makes most difference at '{}': \
         {ratio:.2} times the rate",
        most.drive, most.load
    ))
}

#[cfg(test)]
mod tests {
    use super::{pairs, section, sentence};
    use crate::record::{Measurement, Record};
    use crate::validity::{Finding, Severity};

    /// A made-up drive whose cache makes writes with a flush 36 times as fast (the story of a drive
    /// with and without its cache, turned round).
    fn records() -> Vec<Record> {
        let text = include_str!("../../tests/data/two-engines/records.jsonl");
        let measured = |record| if let Record::Measurement(it) = record { Some(*it) } else { None };
        let mut all = text.lines().map(|line| serde_json::from_str::<Record>(line).unwrap());
        let sample: Measurement = all.find_map(measured).unwrap();
        [("off", 612.0), ("on", 22_200.0)]
            .map(|(state, iops)| {
                let mut one = sample.clone();
                one.target = "/dev/sda".into();
                one.engine.tunables = [("write cache".to_owned(), state.to_owned())].into();
                one.workload.name = format!("cache-{state}-flush-randwrite-4k-j1-q1");
                one.workload.mix = "randwrite".into();
                (one.workload.block_bytes, one.workload.jobs, one.workload.depth) = (4096, 1, 1);
                (one.read.iops, one.write.iops) = (0.0, iops);
                one.id = format!("write-cache/{state}#0");
                one.findings.clear();
                Record::Measurement(Box::new(one))
            })
            .into()
    }

    #[test]
    fn both_states_of_a_load_stand_side_by_side() {
        let rows = section(&records()).rows;
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0][..2], ["/dev/sda", "flush: 4K random writes, 1 x 1"]);
        assert_eq!(rows[0][2..5], ["612 IOPS", "22.2 k IOPS", "\u{d7}36.27"]);
        assert!(sentence(&records()).unwrap().contains("36.27 times the rate"));
    }

    #[test]
    fn an_invalid_state_and_one_that_was_not_measured_have_no_ratio() {
        let mut all = records();
        if let Record::Measurement(one) = &mut all[1] {
            let (rule, reason) = ("L28".to_owned(), String::new());
            one.findings.push(Finding {
                rule,
                severity: Severity::Error,
                reason,
                correction: None,
            });
        }
        assert_eq!(section(&all).rows[0][3..5], ["INVALID", ""]);
        all.pop();
        assert_eq!(section(&all).rows[0][3..5], ["not measured", ""]);
        assert_eq!((pairs(&all)[0].ratio(), sentence(&all)), (None, None));
    }
}
