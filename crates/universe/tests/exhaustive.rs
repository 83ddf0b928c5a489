//! Every crash state of a few workloads on every test run; `./check --full` looks at more of them.

use ashlar_universe::{Case, Step, exhaust};

fn case(steps: &[Step]) -> Case {
    Case {
        data: 2,
        parity: 1,
        beyond: 0,
        steps: steps.to_vec(),
        is_together: false,
        has_caches: false,
        is_written: true,
        is_degraded: false,
        tears: true,
        is_parity_only: false,
    }
}

fn is_right(case: &Case) {
    let covered = exhaust(case, u64::MAX).unwrap_or_else(|what| panic!("{what}"));
    assert!(covered.with_loss > 0 && covered.torn > 0 && covered.left_out == 0, "{covered}");
}

#[test]
fn one_block_in_any_crash_state_is_old_or_new_and_its_neighbours_are_untouched() {
    is_right(&case(&[Step::First]));
}

/// Sectors that nobody wrote came in pieces, or not at all, out of a crash: the write around them
/// was widened to whole blocks, and with that to a whole stripe, which is written without a log of
/// its data.
#[test]
fn a_write_that_is_widened_to_a_whole_stripe_is_logged_in_full() {
    is_right(&case(&[Step::Ragged]));
}

/// Members that hold nothing of the stripe are lost as well, with it and instead of it.
#[test]
fn an_update_of_a_declustered_array_is_old_or_new_whichever_members_are_lost() {
    let spread = Case { beyond: 2, ..case(&[Step::First]) };
    is_right(&spread);
    is_right(&Case { is_written: false, ..spread.clone() });
    let degraded = exhaust(&Case { is_degraded: true, ..spread }, u64::MAX);
    let degraded = degraded.unwrap_or_else(|what| panic!("{what}"));
    assert!(degraded.started > 0 && degraded.torn > 0 && degraded.left_out == 0, "{degraded}");
}

/// A whole stripe is logged with its data as soon as any member of a declustered array is out, one
/// that holds nothing of the stripe included: it came out torn, though nothing of it was missing.
#[test]
fn a_whole_stripe_of_a_degraded_declustered_array_is_old_or_new() {
    for beyond in 1..=3 {
        let degraded = Case { beyond, is_degraded: true, ..case(&[Step::Whole]) };
        let covered = exhaust(&degraded, u64::MAX).unwrap_or_else(|what| panic!("{what}"));
        assert!(covered.torn > 0 && covered.left_out == 0, "{covered}");
    }
}

/// Whatever of it came out on which copy: what is read first stays, and that is the old or the new
/// in every sector.
#[test]
fn copies_of_a_mirror_are_equal_before_they_are_read() {
    for (parity, has_caches) in [(1, false), (1, true), (2, false)] {
        let mirror = Case { data: 1, parity, has_caches, ..case(&[Step::First]) };
        is_right(&mirror);
        if parity == 1 {
            is_right(&Case { steps: vec![Step::First, Step::Flush, Step::First], ..mirror });
        }
    }
}

/// Of such updates the log has parity alone; what is found in the place of the block decides, on
/// degraded arrays too.
#[test]
fn updates_whose_block_is_not_in_the_log_are_old_or_new_and_their_neighbours_are_untouched() {
    let healthy = Case { data: 3, is_parity_only: true, ..case(&[Step::First]) };
    is_right(&healthy);
    let degraded = Case { data: 2, is_degraded: true, ..healthy };
    is_right(&Case { parity: 2, ..degraded.clone() });
    // Nothing more may be lost here.
    let covered = exhaust(&Case { steps: vec![Step::Last], ..degraded }, u64::MAX);
    let covered = covered.unwrap_or_else(|what| panic!("{what}"));
    assert!(covered.started > 0 && covered.torn > 0 && covered.left_out == 0, "{covered}");
}
