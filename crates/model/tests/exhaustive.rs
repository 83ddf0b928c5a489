//! Every crash state of small rows: none is bad for form E, none for form F where blocks are
//! atomic; and what may be left out of E, and what may not.

use ashlar_model::device::Array;
use ashlar_model::exhaustive::{Count, Space, exhaustive};
use ashlar_model::run::{Conditions, first_bad};
use ashlar_model::strategy::Strategy;
use ashlar_model::strategy::full::Full;
use ashlar_model::strategy::parity_only::ParityOnly;
use ashlar_model::strategy::ppl::Ppl;
use ashlar_model::strategy::relaxed::Relaxed;
use ashlar_model::update::{Round, Update};

const E: Full = Full { copy_in_place: true };
const F: ParityOnly = ParityOnly { every_width: false };

/// All rows with at most `k_max` data and `m_max` parity blocks, added up.
fn every_state(
    strategy: &dyn Strategy,
    (k_max, m_max): (usize, usize),
    torn: bool,
    deep: bool,
) -> Count {
    let mut sum = Count::default();
    for (k, m) in (1..=k_max).flat_map(|k| (1..=m_max).map(move |m| (k, m))) {
        let count = exhaustive(strategy, Space { k, m, torn, deep });
        sum.states += count.states;
        sum.bad += count.bad;
        sum.untouched += count.untouched;
        sum.first_bad = sum.first_bad.or(count.first_bad);
    }
    println!("{}, torn {torn}, deep {deep}: {} states", strategy.name(), sum.states);
    sum
}

#[test]
fn no_crash_state_of_up_to_three_and_three_is_bad_with_full_and_copy_in_place() {
    for torn in [false, true] {
        let count = every_state(&E, (3, 3), torn, false);
        assert_eq!(count.first_bad, None);
        assert!(count.states > 70_000, "{count:?}");
    }
}

#[test]
fn no_crash_state_of_a_restart_is_bad_with_full_and_copy_in_place() {
    for torn in [false, true] {
        let count = every_state(&E, (2, 2), torn, true);
        assert_eq!(count.first_bad, None);
        assert!(count.states > 30_000, "{count:?}");
    }
}

#[test]
fn parity_only_for_one_block_needs_atomic_blocks_and_nothing_else() {
    assert_eq!(every_state(&F, (3, 3), false, false).first_bad, None);
    assert_eq!(every_state(&F, (2, 2), false, true).first_bad, None);
    assert!(every_state(&F, (2, 2), true, false).bad > 0);
}

#[test]
fn parity_only_for_more_blocks_corrupts_untouched_ones() {
    assert!(every_state(&ParityOnly { every_width: true }, (3, 2), false, false).untouched > 0);
}

#[test]
fn ppl_and_relaxed_rows_only_ever_harm_blocks_in_flight() {
    for torn in [false, true] {
        for (strategy, m) in [(&Ppl as &dyn Strategy, 1), (&Relaxed, 2)] {
            let count = every_state(strategy, (3, m), torn, false);
            assert!(count.bad > 0 && count.untouched == 0, "{}: {count:?}", strategy.name());
        }
    }
}

/// Form E with data and parity in place in one round.
struct TwoRounds;

impl Strategy for TwoRounds {
    fn name(&self) -> &'static str {
        "E in two rounds"
    }

    fn rounds(&self, update: &Update) -> Vec<Round> {
        let mut rounds = E.rounds(update);
        let in_place = rounds.split_off(1).concat();
        [rounds, vec![in_place]].concat()
    }

    fn restart(&self, array: &Array) -> Vec<Round> {
        E.restart(array)
    }
}

#[test]
fn full_form_needs_no_order_between_data_and_parity_in_place() {
    for torn in [false, true] {
        assert_eq!(every_state(&TwoRounds, (3, 2), torn, false).first_bad, None);
        assert_eq!(every_state(&TwoRounds, (2, 2), torn, true).first_bad, None);
    }
    for conditions in [false, true].into_iter().flat_map(Conditions::columns) {
        assert_eq!(first_bad(&TwoRounds, conditions, 2_000), None, "{conditions:?}");
    }
}
