//! The zeros and non-zeros of the table, for every strategy and kind of universe, and the same in
//! the document.

use ashlar_model::run::{Conditions, first_bad, run, story, tally};
use ashlar_model::strategy::ALL;
use ashlar_model::strategy::Strategy;

/// 1: some seed goes wrong; 0: none may. Columns as in `Conditions::columns`, rows as in `ALL`.
const BAD: [[u8; 8]; 9] = [
    [0, 1, 1, 1, 1, 1, 1, 1], // none
    [0, 1, 1, 1, 1, 1, 1, 1], // bitmap
    [0, 1, 1, 1, 1, 1, 1, 1], // PPL
    [0, 1, 1, 1, 1, 1, 1, 1], // parity-only for every w
    [0, 0, 0, 1, 0, 1, 0, 1], // F
    [0, 0, 0, 1, 0, 1, 0, 1], // full, no copy in place
    [0, 0, 0, 0, 0, 0, 0, 0], // E
    [0, 1, 1, 1, 1, 1, 0, 0], // E, full stripes relaxed
    [0, 1, 1, 1, 1, 1, 0, 0], // bitmap, E when degraded
];

/// Enough that each non-zero shows within a hundredth of them.
const SEEDS: u64 = 20_000;
const SEEDS_HARD: u64 = 5_000;

fn as_in_the_table(rows: std::ops::Range<usize>, hard: bool, seeds: u64) {
    for row in rows {
        let strategy = ALL[row];
        for (conditions, bad) in Conditions::columns(hard).zip(BAD[row]) {
            match (first_bad(strategy, conditions, seeds), bad) {
                (Some(seed), 0) => panic!("{}", story(strategy, conditions, seed)),
                (None, 1) => panic!("{}: {seeds} seeds, none bad: {conditions:?}", strategy.name()),
                _ => {}
            }
        }
    }
}

#[test]
fn strategies_without_a_log_fail_where_the_table_says() {
    as_in_the_table(0..3, false, SEEDS);
}

#[test]
fn parity_only_forms_fail_where_the_table_says() {
    as_in_the_table(3..5, false, SEEDS);
}

#[test]
fn full_forms_fail_where_the_table_says_and_e_nowhere() {
    as_in_the_table(5..7, false, SEEDS);
}

#[test]
fn mixed_policies_fail_where_the_table_says() {
    as_in_the_table(7..9, false, SEEDS);
}

#[test]
fn a_second_crash_and_crashes_in_restarts_change_no_zero() {
    as_in_the_table(0..9, true, SEEDS_HARD);
}

/// Bad seeds and, of these, those with an untouched block wrong, over all columns.
fn totals(strategy: &dyn Strategy) -> (u64, u64) {
    let all = [false, true].into_iter().flat_map(Conditions::columns);
    all.map(|conditions| tally(strategy, conditions, 600))
        .fold((0, 0), |(bad, untouched), t| (bad + t.bad, untouched + t.untouched))
}

#[test]
fn untouched_blocks_are_told_apart_from_blocks_in_flight() {
    for (row, untouched_suffer) in
        [(0, true), (1, true), (2, false), (3, true), (5, false), (7, false), (8, true)]
    {
        let (bad, untouched) = totals(ALL[row]);
        assert!(bad > 0, "{}", ALL[row].name());
        assert_eq!(untouched > 0, untouched_suffer, "{}: {untouched} of {bad}", ALL[row].name());
    }
}

#[test]
fn the_same_seed_is_the_same_universe() {
    for strategy in ALL {
        for conditions in [false, true].into_iter().flat_map(Conditions::columns) {
            for seed in 0..40 {
                let verdict = run(strategy, conditions, seed);
                assert_eq!(verdict, run(strategy, conditions, seed));
                let told = story(strategy, conditions, seed);
                assert_eq!(told, story(strategy, conditions, seed));
                assert_eq!(told.contains("WRONG"), verdict.is_bad(), "{told}");
            }
        }
    }
}

#[test]
fn the_document_has_the_zeros_of_this_table() {
    let document = include_str!("../../../docs/results/write-hole.md");
    for (strategy, bad) in ALL.iter().zip(BAD) {
        let start = format!("| {} |", strategy.name());
        let row = document.lines().find(|line| line.starts_with(&start));
        let cells = row.unwrap_or_else(|| panic!("no row {start}")).split('|').skip(2);
        let zero = |cell: &str| cell.trim().split(' ').next() == Some("0");
        let told: Vec<u8> = cells.take(8).map(|cell| u8::from(!zero(cell))).collect();
        assert_eq!(told, bad, "{start}");
    }
}
