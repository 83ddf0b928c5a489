//! An array and its judge, told the same story.
//!
//! What must stay true: nothing but the judge decides what a block should be, and blocks are read
//! from what is in place on the members that are left, never from a log. Not here: chance; callers
//! decide what lands and what is lost.

use crate::device::{Array, Fate, Item, Shape};
use crate::field::{self, Block};
use crate::judge::{Judge, Wrong};
use crate::update::{Round, Update};

/// One array with everything that is known about it.
#[derive(Clone, Debug)]
pub struct World {
    /// What is on the members.
    pub array: Array,
    /// What should be.
    judge: Judge<Block>,
    sequence: u64,
}

/// What was wrong after a restart.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Blocks that nobody was writing.
    pub untouched: Vec<Wrong<Block>>,
    /// Blocks that were being written.
    pub in_flight: Vec<Wrong<Block>>,
    /// Stripes whose parity does not match: the next loss would take blocks along.
    pub parity: Vec<usize>,
}

impl Verdict {
    /// Whether anything is wrong.
    #[must_use]
    pub fn is_bad(&self) -> bool {
        !(self.untouched.is_empty() && self.in_flight.is_empty() && self.parity.is_empty())
    }
}

impl World {
    /// A healthy array full of blocks made from `bits`.
    pub fn new(shape: Shape, mut bits: impl FnMut() -> u64) -> World {
        let count = shape.k * shape.stripes;
        let data: Vec<Block> = (0..count).map(|_| Block::from_bits(bits())).collect();
        let rows: Vec<_> = (0..shape.stripes)
            .map(|s| field::whole_row(&data[s * shape.k..(s + 1) * shape.k], shape.m))
            .collect();
        World { array: Array::new(shape, &rows), judge: Judge::new(data), sequence: 0 }
    }

    /// Start an update: from here on its blocks are in flight.
    pub fn begin(&mut self, stripe: usize, changes: &[(usize, Block)]) -> Update {
        let shape = self.array.shape;
        let old: Vec<Block> =
            (0..shape.k).map(|c| *self.judge.settled(stripe * shape.k + c)).collect();
        let mut new = old.clone();
        for &(column, block) in changes {
            new[column] = block;
            self.judge.begin(stripe * shape.k + column, block);
        }
        self.sequence += 1;
        Update {
            shape,
            stripe,
            sequence: self.sequence,
            live: self.array.live(),
            changed: changes.iter().map(|&(column, _)| column).collect(),
            old: field::whole_row(&old, shape.m),
            new: field::whole_row(&new, shape.m),
        }
    }

    /// Let all writes of these rounds land.
    pub fn write(&mut self, rounds: &[Round]) {
        self.crash_in(rounds, rounds.len(), |_, _| Fate::Landed);
    }

    /// Let all rounds before `at` land, and of round `at` what `fate` says of each write (by its
    /// place in the round).
    pub fn crash_in(
        &mut self,
        rounds: &[Round],
        at: usize,
        mut fate: impl FnMut(usize, &Item) -> Fate,
    ) {
        for (n, round) in rounds.iter().enumerate().take(at + 1) {
            for (place, (member, item)) in round.iter().enumerate() {
                let fate = if n < at { Fate::Landed } else { fate(place, item) };
                self.array.apply(*member, item, fate);
            }
        }
    }

    /// The update that was begun is acknowledged.
    pub fn finish(&mut self) {
        self.judge.finish();
    }

    /// Lose a member for good.
    pub fn lose(&mut self, member: usize) {
        self.array.devices[member] = None;
    }

    /// Members that may still be lost.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.array.shape.m - self.array.devices.iter().filter(|d| d.is_none()).count()
    }

    /// The data of every stripe as clients read it; `None` where too much is lost.
    fn read(&self) -> Vec<Option<Vec<Block>>> {
        let data = |stripe| field::solve(&self.array.row(stripe), self.array.shape.k);
        (0..self.array.shape.stripes).map(data).collect()
    }

    /// After a restart: judge every block, and that every parity agrees with them.
    #[must_use]
    pub fn examine(&self) -> Verdict {
        let (rows, k) = (self.read(), self.array.shape.k);
        let wrong = self.judge.examine(|block| Some(rows[block / k].as_ref()?[block % k]));
        let (in_flight, untouched) = wrong.into_iter().partition(|w| !w.new.is_empty());
        let disagrees = |(stripe, row): (usize, &Option<Vec<Block>>)| {
            let row = row.as_ref()?;
            (!self.array.make(stripe, row).is_empty()).then_some(stripe)
        };
        let parity = rows.iter().enumerate().filter_map(disagrees).collect();
        Verdict { untouched, in_flight, parity }
    }

    /// After a restart that was right: what clients read now stays.
    pub fn settle(&mut self) {
        let (rows, k) = (self.read(), self.array.shape.k);
        self.judge.settle(|block| Some(rows[block / k].as_ref()?[block % k]));
    }
}
