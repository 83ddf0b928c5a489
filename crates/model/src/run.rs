//! Seeded runs: one seed, one universe. The same seed gives the same shape, updates and losses to
//! every strategy.
//!
//! A universe: a few updates; one that a crash cuts off in any of its rounds, each write in flight
//! landing or not (or torn); members lost before or at the crash, never more than there are
//! parities; a restart; the judge. A hard universe crashes twice, sometimes in a restart too, and
//! losses are spread over the crashes.
//!
//! What must stay true: nothing here depends on anything but strategy, conditions and seed. A story
//! is the same run again with its events written down.

use crate::chance::Chance;
use crate::device::{Fate, Item, Shape};
use crate::field::{Block, DATA_MAX, PARITY_MAX};
use crate::judge::Wrong;
use crate::strategy::Strategy;
use crate::update::{Round, Update};
use crate::world::{Verdict, World};
use std::fmt::Write;

const STRIPES: usize = 4;
const TORN_PERCENT: usize = 20;
const SINGLE_BLOCK_PERCENT: usize = 60;
const WHOLE_ROW_PERCENT: usize = 10;

/// When members are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Losses {
    /// Never.
    None,
    /// m members with the crash.
    AtCrash,
    /// 1 to m members, any number of them before the crash and the others with it.
    Split,
    /// 1 to m members before the update that the crash cuts off, none with it.
    Before,
}

impl Losses {
    /// All of them, in the order of the table.
    pub const ALL: [Losses; 4] = [Losses::None, Losses::AtCrash, Losses::Split, Losses::Before];
}

/// What kind of universe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conditions {
    /// When members are lost.
    pub losses: Losses,
    /// Whether blocks can tear.
    pub torn: bool,
    /// Whether there is a second crash, and crashes in restarts.
    pub hard: bool,
}

impl Conditions {
    /// The columns of the table: each kind of loss with blocks that are atomic, then with blocks
    /// that tear.
    pub fn columns(hard: bool) -> impl Iterator<Item = Conditions> {
        let both = move |losses| [false, true].map(|torn| Conditions { losses, torn, hard });
        Losses::ALL.into_iter().flat_map(both)
    }
}

/// The verdict on one seed.
pub fn run(strategy: &dyn Strategy, conditions: Conditions, seed: u64) -> Verdict {
    Universe::new(strategy, conditions, seed).live()
}

/// What happened in one seed, line by line, down to the first wrong block.
pub fn story(strategy: &dyn Strategy, conditions: Conditions, seed: u64) -> String {
    let mut universe = Universe::new(strategy, conditions, seed);
    universe.story = Some(format!("seed {seed}: {}, {conditions:?}\n", strategy.name()));
    let shape = universe.world.array.shape;
    universe.tell(|| format!("array {}+{}, {} stripes", shape.k, shape.m, shape.stripes));
    let verdict = universe.live();
    universe.tell(|| describe(&verdict, shape.k));
    universe.story.unwrap_or_default()
}

/// How many of the seeds 0 to `runs` - 1 went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Seeds with anything wrong.
    pub bad: u64,
    /// Seeds with a wrong block that nobody was writing.
    pub untouched: u64,
    /// Seeds with a wrong block that was being written.
    pub in_flight: u64,
    /// The first bad seed.
    pub first_bad: Option<u64>,
}

/// Run the seeds 0 to `runs` - 1.
pub fn tally(strategy: &dyn Strategy, conditions: Conditions, runs: u64) -> Tally {
    let mut tally = Tally::default();
    for seed in 0..runs {
        let verdict = run(strategy, conditions, seed);
        tally.bad += u64::from(verdict.is_bad());
        tally.untouched += u64::from(!verdict.untouched.is_empty());
        tally.in_flight += u64::from(!verdict.in_flight.is_empty());
        tally.first_bad = tally.first_bad.or(verdict.is_bad().then_some(seed));
    }
    tally
}

/// The first bad seed below `runs`. Faster than a tally where there is one.
pub fn first_bad(strategy: &dyn Strategy, conditions: Conditions, runs: u64) -> Option<u64> {
    (0..runs).find(|&seed| run(strategy, conditions, seed).is_bad())
}

struct Universe<'a> {
    strategy: &'a dyn Strategy,
    conditions: Conditions,
    chance: Chance,
    world: World,
    lost_before: Vec<usize>,
    lost_at_crash: Vec<usize>,
    story: Option<String>,
}

impl<'a> Universe<'a> {
    fn new(strategy: &'a dyn Strategy, conditions: Conditions, seed: u64) -> Universe<'a> {
        let mut chance = Chance(seed);
        let m = 1 + chance.below(PARITY_MAX);
        let m = m.min(strategy.parity_max());
        let shape = Shape { k: 2 + chance.below(DATA_MAX - 1), m, stripes: STRIPES };
        let some = 1 + chance.below(m);
        let (before, total) = match conditions.losses {
            Losses::None => (0, 0),
            Losses::AtCrash => (0, m),
            Losses::Split => (chance.below(some + 1), some),
            Losses::Before => (some, some),
        };
        let lost = chance.pick(total, shape.members());
        // Which of them go first: a rotation, since the list is sorted.
        let first = chance.below(total.max(1));
        let turned: Vec<usize> = lost.iter().cycle().skip(first).take(total).copied().collect();
        let (lost_before, lost_at_crash) = turned.split_at(before);
        Universe {
            strategy,
            conditions,
            world: World::new(shape, || chance.bits()),
            lost_before: lost_before.to_vec(),
            lost_at_crash: lost_at_crash.to_vec(),
            chance,
            story: None,
        }
    }

    fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push_str(&line());
            story.push('\n');
        }
    }

    fn live(&mut self) -> Verdict {
        for _ in 0..1 + usize::from(self.conditions.hard) {
            self.updates_until_a_crash();
            let mut rounds = self.restart();
            if self.conditions.hard && self.chance.percent(50) {
                self.crash(&rounds);
                rounds = self.restart();
            }
            self.world.write(&rounds);
            let verdict = self.world.examine();
            if verdict.is_bad() {
                return verdict;
            }
            self.world.settle();
        }
        Verdict::default()
    }

    fn updates_until_a_crash(&mut self) {
        let history = self.chance.below(4);
        let loss_at = self.chance.below(history + 1);
        for n in 0..=history {
            if n == loss_at {
                let lost = std::mem::take(&mut self.lost_before);
                self.lose(&lost);
            }
            let update = self.update();
            let rounds = not_empty(self.strategy.rounds(&update));
            if n == history {
                self.crash(&rounds);
            } else {
                self.world.write(&rounds);
                self.world.finish();
            }
        }
    }

    fn update(&mut self) -> Update {
        let k = self.world.array.shape.k;
        let width = if self.chance.percent(SINGLE_BLOCK_PERCENT) {
            1
        } else if self.chance.percent(WHOLE_ROW_PERCENT) {
            k
        } else {
            2 + self.chance.below(k - 1)
        };
        let stripe = self.chance.below(STRIPES);
        let columns = self.chance.pick(width, k);
        let changes: Vec<_> =
            columns.into_iter().map(|c| (c, Block::from_bits(self.chance.bits()))).collect();
        let update = self.world.begin(stripe, &changes);
        self.tell(|| format!("update {}: stripe {stripe}, {changes:?}", update.sequence));
        update
    }

    /// Cut off one of the rounds, then lose members: all that are planned, or each with an even
    /// chance if more crashes follow.
    fn crash(&mut self, rounds: &[Round]) {
        let at = self.chance.below(rounds.len().max(1));
        let (chance, torn) = (&mut self.chance, self.conditions.torn);
        let mut fates = Vec::new();
        self.world.crash_in(rounds, at, |place, item| {
            let fate = draw(chance, item, torn);
            fates.push((place, fate));
            fate
        });
        for (place, fate) in fates {
            let (member, item) = &rounds[at][place];
            self.tell(|| format!("  crash in round {at}: member {member} {fate:?}: {item:?}"));
        }
        let keep = |chance: &mut Chance| self.conditions.hard && chance.percent(50);
        let (later, now) = std::mem::take(&mut self.lost_at_crash)
            .into_iter()
            .partition::<Vec<_>, _>(|_| keep(&mut self.chance));
        self.lost_at_crash = later;
        self.lose(&now);
    }

    fn lose(&mut self, members: &[usize]) {
        for &member in members {
            self.world.lose(member);
            self.tell(|| format!("  member {member} is lost"));
        }
    }

    fn restart(&mut self) -> Vec<Round> {
        let rounds = not_empty(self.strategy.restart(&self.world.array));
        self.tell(|| format!("  restart: {rounds:?}"));
        rounds
    }
}

/// The rounds that write anything.
pub(crate) fn not_empty(mut rounds: Vec<Round>) -> Vec<Round> {
    rounds.retain(|round| !round.is_empty());
    rounds
}

fn draw(chance: &mut Chance, item: &Item, torn: bool) -> Fate {
    let fates = item.fates(torn);
    if fates.len() > 2 && chance.percent(TORN_PERCENT) {
        fates[2 + chance.below(fates.len() - 2)]
    } else {
        fates[chance.below(2)]
    }
}

/// One line on the first wrong block, in the words of the contract.
pub(crate) fn describe(verdict: &Verdict, k: usize) -> String {
    let mut line = String::new();
    match (verdict.untouched.first().or(verdict.in_flight.first()), verdict.parity.first()) {
        (Some(wrong), _) => {
            let (stripe, column) = (wrong.block / k, wrong.block % k);
            let touched = if wrong.new.is_empty() { "untouched" } else { "in flight" };
            let _ =
                write!(line, "WRONG: stripe {stripe} column {column}, {touched}: {}", holds(wrong));
        }
        (None, Some(stripe)) => {
            let _ = write!(line, "WRONG: parity of stripe {stripe} does not match its data");
        }
        (None, None) => line.push_str("every block is right"),
    }
    line
}

fn holds(wrong: &Wrong<Block>) -> String {
    let Wrong { held, old, new, whose, .. } = wrong;
    let half = |at: usize| {
        let is = |block: &Block| held.is_some_and(|held| held.0[at] == block.0[at]);
        if is(old) {
            "old"
        } else if new.iter().any(is) {
            "new"
        } else {
            "garbage"
        }
    };
    let whose = whose.map_or(String::new(), |block| format!(", which is block {block}"));
    format!("holds {held:?}{whose}; head {}, tail {}; old {old:?}, new {new:?}", half(0), half(1))
}
