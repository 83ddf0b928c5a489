//! What one drive does, and what that says of the whole bay: the theory with its arithmetic, beside
//! what all did at once.
//!
//! What must stay true: each figure names the drives and rounds it came from; an INVALID one is in
//! no card; the product of one drive's figure and their number is called theory, never a baseline.

use super::points;
use super::sections::Section;
use crate::metrics::slow_member::median;
use crate::order::one_of;
use crate::record::{RateUnit, Record, Workload};
use crate::units;
use crate::validity::Mark;
use itertools::Itertools;

#[derive(Clone, Debug, Default)]
pub struct Card {
    pub load: Workload,
    /// Each drive alone: its path and its rate.
    pub alone: Vec<(String, f64)>,
    pub together: Vec<(String, f64)>,
    /// Lines of the forensic log of the drives alone.
    commands: Vec<String>,
}

/// The cards of a run, in the order in which their loads were first measured.
pub fn of(records: &[Record]) -> Vec<Card> {
    let mut cards: Vec<Card> = Vec::new();
    let points = points::of(records);
    for point in points.iter().filter(|point| point.is_raw()) {
        let is_alone = point.stage == "raw.each";
        if !(is_alone || point.stage == "raw.all") || point.mark() == Mark::Invalid {
            continue;
        }
        let none = || Card { load: point.workload.clone(), ..Card::default() };
        let card = one_of(&mut cards, |card| card.load == point.workload, none);
        let side = if is_alone { &mut card.alone } else { &mut card.together };
        side.push((point.target().to_owned(), point.rate()));
        if is_alone {
            let lines = point.rounds.iter().filter_map(|round| round.evidence);
            card.commands.push(lines.map(|line| line.to_string()).join(", "));
        }
    }
    cards.retain(|card| !card.alone.is_empty());
    cards
}

impl Card {
    fn unit(&self) -> RateUnit {
        self.load.unit()
    }

    pub fn one(&self) -> f64 {
        median(self.alone.iter().map(|(_, rate)| *rate))
    }

    /// What as many drives would do as ran at once (or were measured alone), if each did what one
    /// does.
    pub fn theory(&self) -> (usize, f64) {
        let drives = self.together.len().max(self.alone.len());
        (drives, drives as f64 * self.one())
    }

    /// What all did at once, if all were measured so.
    pub fn bay(&self) -> Option<f64> {
        let all = self.together.len() >= self.alone.len() && !self.together.is_empty();
        all.then(|| self.together.iter().map(|(_, rate)| rate).sum())
    }

    pub fn worst_neighbour(&self) -> Option<(&str, f64)> {
        let kept = self.together.iter().filter_map(|(drive, rate)| {
            let (_, alone) = self.alone.iter().find(|(other, _)| other == drive)?;
            (*alone > 0.0).then_some((drive.as_str(), rate / alone))
        });
        kept.min_by(|one, other| one.1.total_cmp(&other.1))
    }
}

pub fn one_drive(records: &[Record]) -> Section {
    let row = |card: &Card| {
        let rate = |value: f64| units::rate(value, card.unit());
        let by_rate = |one: &&(String, f64), other: &&(String, f64)| one.1.total_cmp(&other.1);
        let named = |it: Option<&(String, f64)>| {
            it.map_or_else(String::new, |(drive, value)| format!("{} ({drive})", rate(*value)))
        };
        let all: Vec<String> = card.alone.iter().map(|(_, value)| rate(*value)).collect();
        let derivation = match all.len() {
            1 => "one drive, alone".to_owned(),
            count => format!("median of {count} drives, each alone: {}", listed(&all)),
        };
        vec![
            card.load.describe(),
            rate(card.one()),
            named(card.alone.iter().min_by(by_rate)),
            named(card.alone.iter().max_by(by_rate)),
            derivation,
            listed(&card.commands),
        ]
    };
    let head = "load|one drive|slowest|fastest|derivation|lines of evidence.jsonl";
    Section::new("drive", "What does one drive do?", head).rows(of(records).iter().map(row)).note(
        "Stage raw.each: each drive while the others are idle. INVALID figures are in no card.",
    )
}

pub fn bay(records: &[Record]) -> Section {
    let row = |card: &Card| {
        let rate = |value: f64| units::rate(value, card.unit());
        let (drives, theory) = card.theory();
        let bay = card.bay();
        let share = bay.filter(|_| theory > 0.0).map(|bay| units::percent(bay / theory));
        vec![
            card.load.describe(),
            rate(theory),
            format!("{drives} x {}", rate(card.one())),
            bay.map_or_else(|| "not measured".to_owned(), rate),
            share.unwrap_or_default(),
            card.worst_neighbour().map_or_else(String::new, |(drive, kept)| {
                format!("{drive} keeps {}", units::percent(kept))
            }),
        ]
    };
    let head = "load|in theory|derivation|all at once|of theory|suffers most from its neighbours";
    Section::new("bay", "What does the whole bay do?", head).rows(of(records).iter().map(row)).note(
        "In theory every drive does at the same time what one does alone, and nothing is shared. \
         It is no baseline: arrays are held against what all did at once (raw.all). Where the \
         share is far below 100 %, something that the drives share is full: a link, cores, or the \
         chassis shakes.",
    )
}

/// At most six of them, and how many more.
fn listed(all: &[String]) -> String {
    const SHOWN: usize = 6;
    match all.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        Some(more) => format!("{} and {more} more", all[..SHOWN].join(", ")),
        None => all.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::{bay, of, one_drive};
    use crate::record::{ArrayCondition, Record};
    use crate::rules;

    /// Drives of 0.3 M random writes each alone, and so many of them at once, each at `together`.
    fn records(alone: &[f64], together: &[f64]) -> Vec<Record> {
        let sample = crate::record::sample();
        let one = |stage: &str, at: usize, iops: f64| {
            let mut it = sample.clone();
            it.stage = stage.into();
            it.target = format!("/dev/d{at}");
            it.condition = ArrayCondition::Raw;
            it.workload.name = "rw-4k-j1-q32".into();
            it.workload.mix = "randwrite".into();
            (it.workload.block_bytes, it.workload.jobs, it.workload.depth) = (4096, 1, 32);
            (it.read.iops, it.write.iops) = (0.0, iops);
            it.id = format!("{stage}/d{at}#0");
            it.findings.clear();
            Record::Measurement(Box::new(it))
        };
        let each = alone.iter().enumerate().map(|(at, iops)| one("raw.each", at, *iops));
        let all = together.iter().enumerate().map(|(at, iops)| one("raw.all", at, *iops));
        each.chain(all).collect()
    }

    /// Seed 002: twelve drives of 0.3 M are 3.6 M in theory, not the 3.9 M of the talk.
    #[test]
    fn cards_show_their_arithmetic_what_all_did_and_both_ends() {
        let mut rates = [250e3; 12];
        rates[7] = 150e3;
        let row = &bay(&records(&[0.3e6; 12], &rates)).rows[0];
        assert_eq!(row[..3], ["4K random writes, 1 x 32", "3.60 M IOPS", "12 x 300 k IOPS"]);
        assert_eq!(row[3..], ["2.90 M IOPS", "80.6 %", "/dev/d7 keeps 50.0 %"]);
        let all = records(&[100e3, 300e3, 200e3], &[]);
        let row = &one_drive(&all).rows[0];
        assert_eq!(row[1..4], ["200 k IOPS", "100 k IOPS (/dev/d0)", "300 k IOPS (/dev/d1)"]);
        assert!(row[4].starts_with("median of 3 drives, each alone: 100 k IOPS"), "{row:?}");
        assert_eq!(bay(&all).rows[0][3], "not measured");
    }

    #[test]
    fn an_invalid_figure_is_in_no_card_and_a_bay_without_it_is_not_the_bay() {
        let mut all = records(&[100e3, 300e3], &[90e3, 280e3]);
        let Some(Record::Measurement(last)) = all.last_mut() else { panic!("a measurement") };
        last.findings.push(rules::of("L08").finding("the area was never written"));
        let cards = of(&all);
        assert_eq!((cards[0].alone.len(), cards[0].bay()), (2, None));
        assert!(of(&records(&[], &[1e3])).is_empty(), "a bay without a drive alone is no card");
    }
}
