//! Every write to small stripes with every set of lost strips, executed on the model.
//!
//! Two halves. The first executes: whatever is planned leaves a stripe that decodes to the right
//! data. The second judges the refusals: a plan exists exactly when the information to make parity
//! right exists, by linear algebra that knows nothing about kinds of writes.

use ashlar_units::{BLOCK_BYTES, Extent, StripIdx, StripSet, to_u64};

use super::code::{Code, ROWS, STRIPS};
use super::geometries::{coded, codes};
use super::model::ModelStripe;
use crate::{
    BlockUpdate, Geometry, StripeView, Unreachable, WriteKind, plan_block, plan_decode,
    plan_first_write, plan_write, rows_touched,
};

fn small(data_strips: usize, parity_strips: usize) -> Geometry {
    coded(data_strips, parity_strips, to_u64(ROWS) * BLOCK_BYTES, 100)
}

/// Every block range of the stripe's data for up to four data strips. For more: from every strip to
/// every strip, in all orders of the row it starts at and the row it ends before.
fn extents(geometry: &Geometry) -> impl Iterator<Item = Extent> + Clone + use<> {
    let rows = to_u64(ROWS);
    let blocks = to_u64(geometry.data_strips()) * rows;
    let is_wide = geometry.data_strips() > 4;
    let starts = move |start: &u64| !is_wide || *start % rows != 2;
    let ends = move |end: &u64| !is_wide || (*end % rows).is_multiple_of(2);
    (0..blocks).filter(starts).flat_map(move |start| {
        (start + 1..=blocks)
            .filter(ends)
            .map(move |end| Extent::new(start * BLOCK_BYTES, (end - start) * BLOCK_BYTES))
    })
}

/// All sets of at most `most` strips of the stripe.
fn sets(strips: usize, most: usize) -> impl Iterator<Item = StripSet> {
    (0..1u64 << strips).map(StripSet).filter(move |set| set.count() <= most)
}

/// All subsets of a set.
fn subsets(set: StripSet) -> impl Iterator<Item = StripSet> {
    (0..=set.0).map(StripSet).filter(move |subset| subset.is_subset_of(set))
}

/// All views with at most `most` strips that cannot be read, each of them out or being rebuilt.
fn views(geometry: &Geometry, most: usize) -> impl Iterator<Item = StripeView> + use<> {
    let healthy = StripeView::healthy(geometry);
    sets(geometry.stripe_width(), most)
        .flat_map(move |lost| subsets(lost).map(move |out| healthy.rebuilding(lost).without(out)))
}

/// Executes every write in every view with up to `lost_max` lost strips; returns planned and
/// refused.
fn execute_all(geometry: &Geometry, lost_max: usize) -> (usize, usize) {
    let code = Code::of(geometry);
    let (mut planned, mut refused) = (0, 0);
    for valid in views(geometry, lost_max) {
        for view in [valid, StripeView { is_parity_valid: false, ..valid }] {
            for extent in extents(geometry) {
                match plan_write(geometry, extent, &view) {
                    Ok(plan) => {
                        let touched = rows_touched(geometry, extent);
                        assert_eq!(touched, plan.rows(), "the lock covers the plan");
                        ModelStripe::written(geometry, &code, view).execute(&plan, extent);
                        planned += 1;
                    }
                    Err(unreachable) => {
                        check_refusal(geometry, &view, unreachable);
                        refused += 1;
                    }
                }
            }
        }
    }
    (planned, refused)
}

/// What the general plan is, if it is a read-modify-write of one block and all parity.
fn as_block_update(geometry: &Geometry, extent: Extent, view: &StripeView) -> Option<BlockUpdate> {
    let plan = plan_write(geometry, extent, view).ok()?;
    let [band] = plan.bands() else { return None };
    let strip = band.written.iter().next()?;
    let is_it = band.kind == WriteKind::ReadModifyWrite
        && (band.rows.blocks(), band.written.count()) == (1, 1)
        && band.parity == geometry.parity()
        && band.gather == band.written.or(band.parity)
        && (band.zeroed, band.decoded) == (StripSet::EMPTY, StripSet::EMPTY)
        && (view.readable, view.writable) == (geometry.all_strips(), geometry.all_strips());
    is_it.then_some(BlockUpdate { strip, parity: band.parity, rows: band.rows })
}

#[test]
fn the_plan_of_one_block_is_the_general_plan_wherever_there_is_one() {
    let (mut found, mut none) = (0, 0);
    for (k, m) in codes() {
        let geometry = small(k, m);
        for valid in views(&geometry, 1) {
            for view in [valid, StripeView { is_parity_valid: false, ..valid }] {
                for extent in extents(&geometry) {
                    let general = as_block_update(&geometry, extent, &view);
                    assert_eq!(plan_block(&geometry, extent, &view), general, "{k}+{m} {extent}");
                    *(if general.is_some() { &mut found } else { &mut none }) += 1;
                }
            }
        }
    }
    assert!(found > 100 && none > 100, "{found} plans of one block, {none} others");
}

/// A refusal names real losses, more than it says can be tolerated; never within the fault budget.
fn check_refusal(geometry: &Geometry, view: &StripeView, refusal: Unreachable) {
    let sound = view.readable.and(view.writable);
    assert!(refusal.lost.is_subset_of(geometry.all_strips().minus(sound)), "{refusal:?} {view:?}");
    assert!(refusal.lost.count() > refusal.tolerated, "{refusal:?} {view:?}");
    if view.is_parity_valid {
        assert_eq!(refusal.tolerated, geometry.parity_strips(), "{view:?}");
    }
}

fn execute_codes(parity_strips: usize) {
    for (k, m) in codes().filter(|code| code.1 == parity_strips) {
        let (planned, refused) = execute_all(&small(k, m), m);
        assert!(planned > 0, "{k}+{m}");
        // Within the budget only distrusted parity is a reason to refuse.
        let can_refuse = m > 0 && k > 1;
        assert_eq!(refused > 0, can_refuse, "{k}+{m} refused {refused}");
    }
}

#[test]
fn writes_without_parity_leave_the_right_data() {
    execute_codes(0);
}

#[test]
fn writes_with_p_leave_a_stripe_that_decodes() {
    execute_codes(1);
}

#[test]
fn writes_with_p_and_q_leave_a_stripe_that_decodes() {
    execute_codes(2);
}

#[test]
fn writes_with_p_q_and_r_leave_a_stripe_that_decodes() {
    execute_codes(3);
}

#[test]
fn writes_beyond_the_fault_budget_leave_the_right_data_or_are_refused() {
    for (k, m) in [(1, 1), (1, 3), (2, 0), (3, 0), (2, 1), (3, 1), (2, 2), (3, 2), (2, 3)] {
        let (planned, refused) = execute_all(&small(k, m), k + m);
        assert!(planned > 0 && refused > 0, "{k}+{m}: {planned} planned, {refused} refused");
    }
}

#[test]
fn first_writes_make_the_whole_stripe_right_without_reading() {
    for (k, m) in codes() {
        let geometry = small(k, m);
        let code = Code::of(&geometry);
        for lost in sets(k + m, m + 1) {
            // What can be read plays no part: nothing is.
            let view = StripeView::healthy(&geometry).without(lost);
            for extent in extents(&geometry) {
                let plan = match plan_first_write(&geometry, extent, &view) {
                    Ok(plan) => plan,
                    Err(refusal) => {
                        assert_eq!(refusal, Unreachable { lost, tolerated: m });
                        assert!(lost.count() > m);
                        continue;
                    }
                };
                assert!(lost.count() <= m, "{lost:?} of {k}+{m} lost");
                assert_eq!(plan.read_count(), 0);
                assert_eq!(
                    plan.write_count(),
                    k + m - lost.count(),
                    "whole strips, one write each"
                );
                let bytes = to_u64(plan.write_count()) * geometry.strip_bytes();
                assert_eq!(plan.write_bytes(), bytes);
                ModelStripe::unwritten(&geometry, &code, view).execute(&plan, extent);
            }
        }
    }
}

/// Whether a band that overwrites `written` can leave a sound stripe: the contribution of the data
/// that stays to each parity strip is determined by what can be read, and every overwritten strip
/// is stored or has a parity strip to carry it.
fn is_possible(geometry: &Geometry, code: &Code, written: StripSet, view: &StripeView) -> bool {
    let trusted = if view.is_parity_valid { geometry.all_strips() } else { geometry.data() };
    let known = view.readable.and(view.writable).and(trusted);
    let parity = view.writable.and(geometry.parity());
    let kept = geometry.data().minus(written);
    written.minus(view.writable).count() <= parity.count()
        && parity.iter().all(|strip| code.determines(known, code.contribution(strip, kept)))
}

#[test]
fn a_write_is_planned_exactly_when_the_information_for_it_exists() {
    let mut judged = [0, 0];
    for (k, m) in codes().filter(|code| code.0 <= 6) {
        let geometry = small(k, m);
        let code = Code::of(&geometry);
        for from in 0..k {
            for to in from + 1..=k {
                let strip = |at: usize| to_u64(at) * geometry.strip_bytes();
                let extent = Extent::new(strip(from), strip(to) - strip(from));
                let written = StripSet::range(from, to);
                for view in views(&geometry, k + m) {
                    for is_parity_valid in [true, false] {
                        let view = StripeView { is_parity_valid, ..view };
                        let possible = is_possible(&geometry, &code, written, &view);
                        let planned = plan_write(&geometry, extent, &view).is_ok();
                        assert_eq!(planned, possible, "{written:?} of {k}+{m} in {view:?}");
                        judged[usize::from(possible)] += 1;
                    }
                }
            }
        }
    }
    assert!(
        judged[0] > 100_000 && judged[1] > 100_000,
        "both answers are well covered: {judged:?}"
    );
}

#[test]
fn writes_within_the_fault_budget_are_never_refused_while_parity_is_valid() {
    for (k, m) in codes() {
        let geometry = small(k, m);
        for view in views(&geometry, m) {
            for extent in extents(&geometry) {
                let plan = plan_write(&geometry, extent, &view);
                assert!(plan.is_ok(), "{extent} of {k}+{m} in {view:?}: {plan:?}");
            }
        }
    }
}

#[test]
fn a_strip_that_can_be_read_but_not_written_counts_as_out_for_writes() {
    for (k, m) in codes().filter(|code| code.0 <= 4 && code.1 > 0) {
        let geometry = small(k, m);
        let healthy = StripeView::healthy(&geometry);
        for lost in sets(k + m, m) {
            let read_only = StripeView { writable: healthy.writable.minus(lost), ..healthy };
            for extent in extents(&geometry) {
                let plan = plan_write(&geometry, extent, &read_only);
                assert_eq!(plan, plan_write(&geometry, extent, &healthy.without(lost)));
            }
        }
    }
}

#[test]
fn decode_plans_name_k_survivors_that_determine_what_is_wanted() {
    for (k, m) in codes() {
        let geometry = small(k, m);
        let code = Code::of(&geometry);
        for lost in sets(k + m, m + 1) {
            let view = StripeView::healthy(&geometry).without(lost);
            let Ok(survivors) = plan_decode(&geometry, lost, &view) else {
                let refusal = plan_decode(&geometry, lost, &view).unwrap_err();
                assert_eq!(refusal, Unreachable { lost, tolerated: m });
                assert!(lost.count() > m, "{lost:?} of {k}+{m}");
                continue;
            };
            assert!(lost.count() <= m && survivors.count() == k);
            assert!(survivors.is_subset_of(view.readable));
            let mut cells = [[0; ROWS]; STRIPS];
            cells[..k].iter_mut().enumerate().for_each(|(at, row)| row[0] = 17 + to_u64(at));
            let data = cells;
            code.generate(&mut cells);
            lost.iter().for_each(|strip| cells[strip.at()] = [u64::from(u32::MAX); ROWS]);
            assert_eq!(code.decode(survivors, &cells), data);
        }
    }
}

#[test]
fn decode_prefers_data_then_p_then_q() {
    let geometry = small(4, 3);
    let healthy = StripeView::healthy(&geometry);
    let set = |strips: &[usize]| strips.iter().map(|at| StripIdx::from_at(*at)).collect();
    for (lost, survivors) in [
        (set(&[1]), set(&[0, 2, 3, 4])),
        (set(&[1, 4]), set(&[0, 2, 3, 5])),
        (set(&[0, 1, 2]), set(&[3, 4, 5, 6])),
        (set(&[5]), set(&[0, 1, 2, 3])),
    ] {
        assert_eq!(plan_decode(&geometry, lost, &healthy.without(lost)), Ok(survivors), "{lost:?}");
        // A strip that is doubted, though it can be read, is not used to judge itself.
        assert_eq!(plan_decode(&geometry, lost, &healthy), Ok(survivors), "{lost:?} doubted");
    }
}

#[test]
fn without_valid_parity_data_is_not_decoded_but_parity_is_generated() {
    let geometry = small(4, 2);
    let dirty = StripeView { is_parity_valid: false, ..StripeView::healthy(&geometry) };
    let lost = StripSet::only(StripIdx(2));
    assert_eq!(
        plan_decode(&geometry, lost, &dirty.without(lost)),
        Err(Unreachable { lost, tolerated: 0 })
    );
    assert_eq!(plan_decode(&geometry, geometry.parity(), &dirty), Ok(geometry.data()));
}

#[test]
fn a_mirror_reads_its_lowest_readable_copy_even_after_an_unclean_stop() {
    let geometry = small(1, 3);
    let dirty = StripeView { is_parity_valid: false, ..StripeView::healthy(&geometry) };
    for lost in sets(4, 3) {
        let survivors = plan_decode(&geometry, lost, &dirty.without(lost)).unwrap();
        assert_eq!(survivors, geometry.all_strips().minus(lost).lowest(1));
    }
    let all = geometry.all_strips();
    let refusal = plan_decode(&geometry, all, &dirty.without(all)).unwrap_err();
    assert_eq!(refusal, Unreachable { lost: all, tolerated: 3 });
}
