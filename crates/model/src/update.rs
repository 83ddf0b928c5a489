//! One update of one row, and the writes that strategies make rounds of.
//!
//! A round is a set of writes in flight together, in any order; the next round starts when all of
//! them are durable. What must stay true: nothing here writes to a member that is lost.

use crate::device::{Body, Item, Record, Shape};
use crate::field::Block;

/// Writes in flight together: member, and what is written where on it.
pub type Round = Vec<(usize, Item)>;

/// A row that changes.
#[derive(Clone, Debug)]
pub struct Update {
    /// Size and layout of the array.
    pub shape: Shape,
    /// The stripe.
    pub stripe: usize,
    /// Rises with every update.
    pub sequence: u64,
    /// Which members are there.
    pub live: Vec<bool>,
    /// Data columns that change, rising.
    pub changed: Vec<usize>,
    /// The row before, data and parity, lost blocks too (a degraded row is solved before it is
    /// written).
    pub old: Vec<Block>,
    /// The row after.
    pub new: Vec<Block>,
}

impl Update {
    fn is_live(&self, column: usize) -> bool {
        self.live[self.shape.member(self.stripe, column)]
    }

    /// Whether every member is there.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.live.iter().all(|live| *live)
    }

    /// Changed columns whose member is there.
    pub fn live_changed(&self) -> impl Iterator<Item = usize> {
        self.changed.iter().copied().filter(|&c| self.is_live(c))
    }

    /// Parity columns whose member is there.
    pub fn parities(&self) -> impl Iterator<Item = usize> {
        (self.shape.k..self.shape.members()).filter(|&c| self.is_live(c))
    }

    fn place(&self, column: usize) -> (usize, Item) {
        (self.shape.member(self.stripe, column), Item::Place(self.stripe, self.new[column]))
    }

    /// New data, in place.
    #[must_use]
    pub fn data(&self) -> Round {
        self.live_changed().map(|c| self.place(c)).collect()
    }

    /// New parity, in place.
    #[must_use]
    pub fn parity(&self) -> Round {
        self.parities().map(|c| self.place(c)).collect()
    }

    /// A log record on the member of each of `columns`.
    pub fn records(
        &self,
        columns: impl Iterator<Item = usize>,
        body: impl Fn(usize) -> Body,
    ) -> Round {
        let record =
            |body| Record { sequence: self.sequence, stripe: self.stripe, body, whole: true };
        columns
            .map(|c| (self.shape.member(self.stripe, c), Item::Append(record(body(c)))))
            .collect()
    }

    /// The same write to every member that is there.
    #[must_use]
    pub fn everywhere(&self, item: &Item) -> Round {
        let live = (0..self.live.len()).filter(|&member| self.live[member]);
        live.map(|member| (member, item.clone())).collect()
    }
}
