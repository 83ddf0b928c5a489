//! Every read of small stripes with every set of lost strips, executed on the model, and what reads
//! cost.

use ashlar_units::{BLOCK_BYTES, Extent, StripIdx, StripSet, to_u64, to_usize};

use super::code::{Code, ROWS};
use super::geometries::{coded, codes};
use super::model::ModelStripe;
use crate::{Geometry, StripeView, Unreachable, plan_read};

fn small(data_strips: usize, parity_strips: usize) -> Geometry {
    coded(data_strips, parity_strips, to_u64(ROWS) * BLOCK_BYTES, 100)
}

/// Every range of half blocks of the stripe's data for up to two data strips; of blocks for up to
/// four; for more, from every strip to every strip.
fn extents(geometry: &Geometry) -> Vec<Extent> {
    let unit = match geometry.data_strips() {
        0..=2 => BLOCK_BYTES / 2,
        3..=4 => BLOCK_BYTES,
        _ => geometry.strip_bytes(),
    };
    let units = geometry.stripe_bytes() / unit;
    let from = |start| (start + 1..=units).map(move |end| (start, end));
    let ranges = (0..units).flat_map(from);
    ranges.map(|(start, end)| Extent::new(start * unit, (end - start) * unit)).collect()
}

/// All sets of at most `most` strips.
fn sets(strips: usize, most: usize) -> impl Iterator<Item = StripSet> {
    (0..1_u64 << strips).map(StripSet).filter(move |set| set.count() <= most)
}

fn rows_asked_of(geometry: &Geometry, strip: StripIdx, extent: Extent) -> std::ops::Range<usize> {
    let wide = extent.widened_to(BLOCK_BYTES);
    let first = to_u64(strip.at()) * geometry.strip_bytes();
    let cut = |at: u64| at.clamp(first, first + geometry.strip_bytes()) - first;
    to_usize(cut(wide.offset) / BLOCK_BYTES)..to_usize(cut(wide.end()) / BLOCK_BYTES)
}

/// Plans and executes one read; whether there was a plan.
fn check(
    geometry: &Geometry,
    code: &Code,
    view: StripeView,
    (extent, doubted): (Extent, StripSet),
) -> bool {
    let usable = view.rebuilding(doubted);
    let asked = |strip: StripIdx| rows_asked_of(geometry, strip, extent);
    let needs_others = geometry
        .data()
        .iter()
        .any(|strip| !asked(strip).is_empty() && !usable.readable.contains(strip));
    let plan = match plan_read(geometry, extent, &view, doubted) {
        Ok(plan) => plan,
        Err(Unreachable { lost, .. }) => {
            assert!(needs_others, "{extent} could be read straight: {view:?} but {doubted:?}");
            assert!(lost.is_subset_of(geometry.all_strips().minus(usable.readable)), "{lost:?}");
            let is_enough = usable.readable.count() >= geometry.data_strips();
            assert!(!(is_enough && view.is_parity_valid), "{extent} {view:?} but {doubted:?}");
            return false;
        }
    };
    let brought = ModelStripe::written(geometry, code, usable).execute_read(&plan);
    let truth = ModelStripe::written(geometry, code, view);
    for strip in geometry.data().iter() {
        for (row, is) in brought[strip.at()].iter().enumerate() {
            let wanted = asked(strip).contains(&row).then(|| truth.truth(strip, row));
            assert_eq!(*is, wanted, "{strip:?} row {row} of {extent}: {plan:?}");
        }
    }
    true
}

#[test]
fn reads_bring_exactly_the_blocks_asked_for_whatever_is_lost_or_doubted() {
    for (k, m) in codes().filter(|code| code.0 > 1) {
        let geometry = small(k, m);
        let code = Code::of(&geometry);
        let healthy = StripeView::healthy(&geometry);
        let (mut planned, mut refused) = (0, 0);
        for lost in sets(k + m, m + 1) {
            let doubts = if k <= 4 { lost.iter().next() } else { None };
            for doubted in [StripSet::EMPTY, doubts.map_or(StripSet::EMPTY, StripSet::only)] {
                let valid = healthy.without(lost.minus(doubted));
                for view in [valid, StripeView { is_parity_valid: false, ..valid }] {
                    for extent in extents(&geometry) {
                        let is_planned = check(&geometry, &code, view, (extent, doubted));
                        *(if is_planned { &mut planned } else { &mut refused }) += 1;
                    }
                }
            }
        }
        assert!(planned > 0 && refused > 0, "{k}+{m}: {planned} planned, {refused} refused");
    }
}

#[test]
fn a_whole_stripe_costs_k_reads_whatever_is_lost() {
    for (k, m) in codes() {
        let geometry = small(k, m);
        let extent = Extent::new(0, geometry.stripe_bytes());
        for lost in sets(k + m, m) {
            let view = StripeView::healthy(&geometry).without(lost);
            let plan = plan_read(&geometry, extent, &view, StripSet::EMPTY).expect("within budget");
            assert_eq!(plan.reads().count(), k, "{lost:?} of {k}+{m}");
            assert!(plan.reads().all(|io| io.rows.blocks() == geometry.strip_blocks()));
            assert_eq!(plan.bands().len(), 1, "one pass over the stripe");
        }
    }
}

#[test]
fn no_block_is_read_that_neither_the_client_nor_a_lost_strip_needs() {
    let geometry = small(4, 2);
    let lost = StripSet::only(StripIdx(1));
    let view = StripeView::healthy(&geometry).without(lost);
    let block = |first: u64, count: u64| Extent::new(first * BLOCK_BYTES, count * BLOCK_BYTES);
    let reads = |extent| {
        let plan = plan_read(&geometry, extent, &view, StripSet::EMPTY).expect("one is lost");
        plan.reads().map(|io| (io.strip.0, io.rows.start, io.rows.end)).collect::<Vec<_>>()
    };
    // The last row of the strip before, and the first row of the lost one.
    assert_eq!(reads(block(3, 2)), [(0, 0, 1), (0, 3, 4), (2, 0, 1), (3, 0, 1), (4, 0, 1)]);
    // A part of the lost strip, and all of the next one.
    assert_eq!(reads(block(6, 6)), [(0, 2, 4), (2, 0, 4), (3, 2, 4), (4, 2, 4)]);
    // None of the lost strip.
    assert_eq!(reads(block(8, 3)), [(2, 0, 3)]);
}

#[test]
fn of_a_mirror_the_doubted_copy_is_asked_for_and_comes_from_the_lowest_other_one() {
    let geometry = small(1, 2);
    let extent = Extent::new(0, BLOCK_BYTES);
    let view = StripeView { is_parity_valid: false, ..StripeView::healthy(&geometry) };
    for (doubted, wanted, source) in [(None, 0, 0), (Some(0), 0, 1), (Some(2), 2, 0)] {
        let doubted = doubted.map_or(StripSet::EMPTY, |at| StripSet::only(StripIdx(at)));
        let plan = plan_read(&geometry, extent, &view, doubted).expect("copies are left");
        let [band] = plan.bands() else { panic!("{plan:?}") };
        assert_eq!(band.wanted, StripSet::only(StripIdx(wanted)));
        assert_eq!(band.decoded, doubted);
        assert_eq!(band.sources, StripSet::only(StripIdx(source)));
    }
}
