//! The oracle: what each block may hold after a crash. It knows nothing of rows, parity or logs, so
//! it can judge the engine as well as the model.
//!
//! What must stay true: a block in flight is old or new, never anything else. Every other block is
//! exactly as it was. Once a block was read after a restart, it never changes back.

use std::collections::BTreeMap;

/// What every block of an array may hold. `B` is whatever a block is to the caller.
#[derive(Clone, Debug)]
pub struct Judge<B> {
    settled: Vec<B>,
    /// Blocks being written, with what they may hold instead of the settled value.
    in_flight: BTreeMap<usize, Vec<B>>,
}

/// A block that holds what it must not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong<B> {
    /// Number of the block.
    pub block: usize,
    /// What was read; `None` if it could not be.
    pub held: Option<B>,
    /// What it held before the writes in flight.
    pub old: B,
    /// What is in flight to it; empty means that nobody touched it.
    pub new: Vec<B>,
    /// Another block whose settled value this is.
    pub whose: Option<usize>,
}

impl<B: Clone + PartialEq> Judge<B> {
    /// A judge of blocks that hold these values now.
    #[must_use]
    pub fn new(settled: Vec<B>) -> Judge<B> {
        Judge { settled, in_flight: BTreeMap::new() }
    }

    /// What a block held when nothing was in flight to it.
    ///
    /// # Panics
    ///
    /// If there is no such block.
    #[must_use]
    pub fn settled(&self, block: usize) -> &B {
        &self.settled[block]
    }

    /// A write starts.
    pub fn begin(&mut self, block: usize, new: B) {
        self.in_flight.entry(block).or_default().push(new);
    }

    /// All writes are durable: the last one of each block counts.
    pub fn finish(&mut self) {
        for (block, new) in std::mem::take(&mut self.in_flight) {
            self.settled[block] = new.last().cloned().unwrap_or(self.settled[block].clone());
        }
    }

    /// Every block that holds what it must not.
    pub fn examine(&self, read: impl Fn(usize) -> Option<B>) -> Vec<Wrong<B>> {
        (0..self.settled.len()).filter_map(|block| self.wrong(block, read(block))).collect()
    }

    fn wrong(&self, block: usize, held: Option<B>) -> Option<Wrong<B>> {
        let old = &self.settled[block];
        let new = self.in_flight.get(&block).map_or(&[][..], Vec::as_slice);
        if held.as_ref().is_some_and(|held| held == old || new.contains(held)) {
            return None;
        }
        let whose = self.settled.iter().position(|other| held.as_ref() == Some(other));
        Some(Wrong { block, held, old: old.clone(), new: new.to_vec(), whose })
    }

    /// After a restart without wrong blocks: what is read now is what every block is from here on.
    pub fn settle(&mut self, read: impl Fn(usize) -> Option<B>) {
        for block in std::mem::take(&mut self.in_flight).into_keys() {
            self.settled[block] = read(block).unwrap_or(self.settled[block].clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Judge;

    fn with_one_in_flight() -> Judge<u8> {
        let mut judge = Judge::new(vec![10, 20, 30]);
        judge.begin(1, 21);
        judge
    }

    #[test]
    fn in_flight_is_old_or_new_and_the_rest_is_exact() {
        let judge = with_one_in_flight();
        for (held, wrong) in [
            ([10, 20, 30], vec![]),
            ([10, 21, 30], vec![]),
            ([10, 22, 30], vec![(1, 1)]),
            ([10, 30, 30], vec![(1, 1)]),
            ([11, 21, 31], vec![(0, 0), (2, 0)]),
        ] {
            let found = judge.examine(|block| Some(held[block]));
            let found: Vec<_> = found.iter().map(|w| (w.block, w.new.len())).collect();
            assert_eq!(found, wrong, "{held:?}");
        }
    }

    #[test]
    fn a_block_that_cannot_be_read_is_wrong_and_foreign_data_is_named() {
        let judge = with_one_in_flight();
        let found = judge.examine(|block| (block > 0).then_some(10));
        assert_eq!(found.iter().map(|w| w.held).collect::<Vec<_>>(), [None, Some(10), Some(10)]);
        assert_eq!(found[1].whose, Some(0));
    }

    #[test]
    fn what_was_read_after_a_restart_does_not_change_back() {
        let mut judge = with_one_in_flight();
        judge.settle(|_| Some(20));
        assert_eq!(judge.examine(|block| Some([10, 21, 30][block])).len(), 1);
        judge.begin(1, 21);
        judge.finish();
        assert_eq!(judge.examine(|block| Some([10, 20, 30][block])).len(), 1);
    }
}
