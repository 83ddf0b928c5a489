//! Every crash state of a small row: each update of it, each loss within the budget before or with
//! the crash, each round, each subset of the writes in flight landed, missed or torn. Counted, none
//! left out.
//!
//! One stripe, one full update before the one that is cut off, so that old records lie on the
//! members. Fates of writes to members that are lost with the crash are not told apart: they cannot
//! matter. Deep mode adds a second crash in each round of each restart, with each further loss.

use crate::chance::Chance;
use crate::device::{Fate, Item, Shape};
use crate::field::Block;
use crate::run::{describe, not_empty};
use crate::strategy::Strategy;
use crate::update::Round;
use crate::world::World;

/// What to enumerate.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Data blocks of the row.
    pub k: usize,
    /// Parity blocks of the row.
    pub m: usize,
    /// Whether blocks can tear.
    pub torn: bool,
    /// Whether restarts crash too.
    pub deep: bool,
}

/// How many states there were, and how many were bad.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Crash states, each restarted and judged.
    pub states: u64,
    /// Those with anything wrong.
    pub bad: u64,
    /// Those with a wrong block that nobody was writing.
    pub untouched: u64,
    /// What was wrong in the first bad one.
    pub first_bad: Option<String>,
}

/// Judge every crash state of one update of one row.
#[must_use]
pub fn exhaustive(strategy: &dyn Strategy, space: Space) -> Count {
    let mut count = Count::default();
    let shape = Shape { k: space.k, m: space.m, stripes: 1 };
    // Any values do, as long as they differ.
    let mut chance = Chance(0);
    let mut fresh = || chance.bits();
    let mut first = World::new(shape, &mut fresh);
    let whole: Vec<_> = (0..shape.k).map(|c| (c, Block::from_bits(fresh()))).collect();
    let update = first.begin(0, &whole);
    first.write(&strategy.rounds(&update));
    first.finish();
    for lost in losses(&first) {
        let degraded = without(&first, &lost);
        for columns in 1_usize..1 << shape.k {
            let mut world = degraded.clone();
            let changed = (0..shape.k).filter(|c| columns >> c & 1 == 1);
            let changes: Vec<_> = changed.map(|c| (c, Block::from_bits(fresh()))).collect();
            let rounds = not_empty(strategy.rounds(&world.begin(0, &changes)));
            crash_states(&world, &rounds, space.torn, &mut |crashed| {
                let rounds = not_empty(strategy.restart(&crashed.array));
                if space.deep {
                    crash_states(&crashed, &rounds, space.torn, &mut |again| {
                        let rounds = strategy.restart(&again.array);
                        judge(again, &rounds, &mut count);
                    });
                }
                judge(crashed, &rounds, &mut count);
            });
        }
    }
    count
}

fn judge(mut world: World, rounds: &[Round], count: &mut Count) {
    world.write(rounds);
    let verdict = world.examine();
    count.states += 1;
    count.untouched += u64::from(!verdict.untouched.is_empty());
    if verdict.is_bad() {
        count.bad += 1;
        let k = world.array.shape.k;
        count.first_bad.get_or_insert_with(|| describe(&verdict, k));
    }
}

/// Every set of live members that may still be lost, the empty one first.
fn losses(world: &World) -> Vec<Vec<usize>> {
    let live = world.array.live();
    let set = |bits: usize| (0..live.len()).filter(move |member| bits >> member & 1 == 1);
    (0_usize..1 << live.len())
        .map(|bits| set(bits).collect::<Vec<_>>())
        .filter(|lost| lost.len() <= world.budget() && lost.iter().all(|&member| live[member]))
        .collect()
}

fn without(world: &World, lost: &[usize]) -> World {
    let mut world = world.clone();
    lost.iter().for_each(|&member| world.lose(member));
    world
}

/// Every state that a crash in one of these rounds can leave.
fn crash_states(world: &World, rounds: &[Round], torn: bool, visit: &mut dyn FnMut(World)) {
    for lost in losses(world) {
        let mut before = without(world, &lost);
        for round in rounds {
            let survives = |member: &usize| !lost.contains(member);
            let cut: Round = round.iter().filter(|(m, _)| survives(m)).cloned().collect();
            let mut fates = vec![0; cut.len()];
            loop {
                let mut crashed = before.clone();
                let fate = |at: usize, item: &Item| item.fates(torn)[fates[at]];
                crashed.crash_in(std::slice::from_ref(&cut), 0, fate);
                visit(crashed);
                if !next(&mut fates, |at| cut[at].1.fates(torn)) {
                    break;
                }
            }
            before.write(std::slice::from_ref(&cut));
        }
        if rounds.is_empty() {
            visit(before);
        }
    }
}

/// Count one up; false when all were counted.
fn next<'a>(fates: &mut [usize], choices: impl Fn(usize) -> &'a [Fate]) -> bool {
    for (at, fate) in fates.iter_mut().enumerate() {
        *fate += 1;
        if *fate < choices(at).len() {
            return true;
        }
        *fate = 0;
    }
    false
}
