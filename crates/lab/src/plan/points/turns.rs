//! Arrays in turns: A, B, B, A or B, A, A, B.
//!
//! What must stay true: every array is made anew for each turn and filled before it is read; each
//! gets the same loads; of two rounds each array begins one, and a coin decides which.

use super::{Group, Maker};
use crate::Refusal;
use crate::record::ArrayCondition;
use std::hash::{BuildHasher, RandomState};

impl Maker<'_> {
    /// Rounds of all arrays that the lab makes: healthy, then with members out.
    pub(super) fn in_turns(&self) -> Result<Vec<Group>, Refusal> {
        let mut arrays: Vec<_> = self.plan.arrays.iter().filter(|it| it.is_made()).collect();
        let (coin, losses) = (RandomState::new(), self.stage.losses);
        let degraded = (losses > 0).then_some(ArrayCondition::Degraded(losses));
        let mut groups = Vec::new();
        for round in 0..self.stage.rounds {
            if is_turned(&coin, round) {
                arrays.reverse();
            }
            for array in &arrays {
                for condition in [ArrayCondition::Healthy].into_iter().chain(degraded) {
                    let mut group = self.group(array, condition)?;
                    group.is_fresh = condition == ArrayCondition::Healthy;
                    group.points.retain(|point| point.round == 0);
                    group.points.iter_mut().for_each(|point| point.round = round);
                    groups.push(group);
                }
            }
        }
        Ok(groups)
    }
}

/// Whether a round begins with another array than the one before it. A steady drift falls on both
/// alike, and noise of any kind favours neither. The first block of two rounds is A B B A: a report
/// holds the array that was measured first against the others.
fn is_turned(coin: &impl BuildHasher, round: u32) -> bool {
    begins_with_second(coin, round) != begins_with_second(coin, round.wrapping_sub(1))
}

/// Whether the second array begins a round.
pub(crate) fn begins_with_second(coin: &impl BuildHasher, round: u32) -> bool {
    let is_second_of_block = round % 2 == 1;
    let is_turned = round > 1 && coin.hash_one(round / 2) % 2 == 1;
    round != u32::MAX && is_turned != is_second_of_block
}

#[cfg(test)]
mod tests {
    use super::{begins_with_second, is_turned};
    use std::hash::RandomState;

    #[test]
    fn of_two_rounds_each_array_begins_one_and_a_coin_decides_which() {
        let coin = RandomState::new();
        let begins = |round| begins_with_second(&coin, round);
        assert_eq!((begins(0), begins(1)), (false, true), "a report begins with A");
        assert!(!is_turned(&coin, 0) && is_turned(&coin, 1));
        assert!((0..400).step_by(2).all(|round| begins(round) != begins(round + 1)));
        let count = (0..400).step_by(2).filter(|round| begins(*round)).count();
        assert!((50..150).contains(&count), "{count} of 200 blocks");
    }
}
