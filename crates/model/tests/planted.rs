//! Testing the test: strategies with one fault each, all of which the judge must find, while the
//! same strategy without the fault passes every one of these universes (the table's test says so).

use ashlar_model::device::{Array, Body, Item, Record};
use ashlar_model::exhaustive::{Space, exhaustive};
use ashlar_model::run::{Conditions, first_bad, story};
use ashlar_model::strategy::Strategy;
use ashlar_model::strategy::full::Full;
use ashlar_model::strategy::parity_only::ParityOnly;
use ashlar_model::strategy::relaxed::Relaxed;
use ashlar_model::update::{Round, Update};

const E: Full = Full { copy_in_place: true };

/// Rounds of an update, and of a restart.
struct Planted(fn(&Update) -> Vec<Round>, fn(&Array) -> Vec<Round>);

impl Strategy for Planted {
    fn name(&self) -> &'static str {
        "planted"
    }

    fn rounds(&self, update: &Update) -> Vec<Round> {
        self.0(update)
    }

    fn restart(&self, array: &Array) -> Vec<Round> {
        self.1(array)
    }
}

fn right_rounds(update: &Update) -> Vec<Round> {
    E.rounds(update)
}

fn right_restart(array: &Array) -> Vec<Round> {
    E.restart(array)
}

/// Some seed shows the fault: with one crash, or (`hard`) with more; where blocks are atomic, or
/// where they tear.
fn is_found(planted: &Planted, hard: bool, torn: bool) {
    let mut columns = Conditions::columns(hard).filter(|c| c.torn == torn);
    let found = columns.find_map(|c| Some((c, first_bad(planted, c, 20_000)?)));
    let (conditions, seed) = found.expect("the judge did not find the fault");
    assert!(story(planted, conditions, seed).contains("WRONG"));
}

#[test]
fn a_skipped_log_is_found() {
    is_found(&Planted(|update| E.rounds(update).split_off(1), right_restart), false, false);
}

#[test]
fn data_before_its_records_is_found() {
    let swapped = |update: &Update| {
        let mut rounds = E.rounds(update);
        rounds.swap(0, 1);
        rounds
    };
    is_found(&Planted(swapped, right_restart), false, false);
}

#[test]
fn records_in_the_same_round_as_data_are_found() {
    let merged = |update: &Update| vec![E.rounds(update).concat()];
    is_found(&Planted(merged, right_restart), false, false);
}

#[test]
fn a_record_on_one_parity_member_only_is_found() {
    let one = |update: &Update| {
        let mut rounds = E.rounds(update);
        let spared = update.parities().skip(1).map(|c| update.shape.member(update.stripe, c));
        let spared: Vec<usize> = spared.collect();
        rounds[0].retain(|(member, _)| !spared.contains(member));
        rounds
    };
    is_found(&Planted(one, right_restart), false, false);
}

#[test]
fn old_parity_in_the_records_is_found() {
    let old = |update: &Update| {
        let stale = Update { new: update.old.clone(), ..update.clone() };
        let mut rounds = E.rounds(update);
        for ((_, item), (_, stale)) in rounds[0].iter_mut().zip(&E.rounds(&stale)[0]) {
            if let (Item::Append(record), Item::Append(stale)) = (item, stale)
                && let (Body::Full(_, parity), Body::Full(_, old)) = (&mut record.body, &stale.body)
            {
                *parity = *old;
            }
        }
        rounds
    };
    is_found(&Planted(old, right_restart), false, false);
}

fn with_records(array: &Array, change: impl Fn(&mut Vec<Record>)) -> Array {
    let mut array = array.clone();
    array.devices.iter_mut().flatten().for_each(|device| change(&mut device.ring));
    array
}

#[test]
fn discarding_complete_records_is_found() {
    let blind = |array: &Array| E.restart(&with_records(array, Vec::clear));
    is_found(&Planted(right_rounds, blind), false, false);
}

#[test]
fn replaying_records_that_were_cut_short_is_found() {
    let trusting = |array: &Array| {
        let all_whole = |ring: &mut Vec<Record>| ring.iter_mut().for_each(|r| r.whole = true);
        E.restart(&with_records(array, all_whole))
    };
    is_found(&Planted(right_rounds, trusting), false, false);
}

#[test]
fn discarded_records_that_are_not_settled_turn_a_block_that_was_read() {
    let forgets = |array: &Array| vec![E.restart(array).swap_remove(0)];
    is_found(&Planted(right_rounds, forgets), true, false);
}

#[test]
fn settling_on_one_member_only_is_found() {
    let one = |array: &Array| {
        let mut rounds = E.restart(array);
        rounds[1].truncate(1);
        rounds
    };
    is_found(&Planted(right_rounds, one), true, false);
}

#[test]
fn rolling_forward_without_asking_the_changed_members_is_found_when_the_restart_crashes() {
    let hasty = |array: &Array| Full { copy_in_place: false }.restart(array);
    is_found(&Planted(right_rounds, hasty), true, true);
}

#[test]
fn old_home_copies_beside_the_parity_only_form_are_found() {
    let mixed = |update: &Update| match update.changed.len() {
        1 => ParityOnly { every_width: false }.rounds(update),
        _ => E.rounds(update),
    };
    let restart = |array: &Array| ParityOnly { every_width: false }.restart(array);
    is_found(&Planted(mixed, restart), false, false);
}

#[test]
fn relaxed_full_stripes_that_leave_old_records_valid_are_found() {
    let silent = |update: &Update| {
        let mut rounds = Relaxed.rounds(update);
        if rounds.len() == 2 {
            rounds.remove(0);
        }
        rounds
    };
    is_found(&Planted(silent, |array| Relaxed.restart(array)), false, false);
}

#[test]
fn small_exhaustive_spaces_find_planted_faults_too() {
    let space = Space { k: 2, m: 1, torn: true, deep: false };
    let skipped = Planted(|update| E.rounds(update).split_off(1), right_restart);
    let blind = Planted(right_rounds, |array| E.restart(&with_records(array, Vec::clear)));
    for planted in [skipped, blind] {
        let count = exhaustive(&planted, space);
        assert!(count.untouched > 0 && count.first_bad.is_some(), "{count:?}");
    }
}
