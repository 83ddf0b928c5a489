//! How many reads and writes a plan takes, kind by kind, and which kind is chosen.

use ashlar_units::{BLOCK_BYTES, Extent, StripIdx, StripSet, to_u64};

use super::geometries::coded;
use crate::WriteKind::{DecodeThenWrite, FullStripe, ReadModifyWrite, ReconstructWrite};
use crate::{
    Geometry, RowRange, StripIo, StripeView, WriteKind, WritePlan, plan_first_write, plan_write,
};

/// Blocks per strip of the arrays here: strips of 64 KiB.
const BLOCKS: u64 = 16;

fn raid6() -> Geometry {
    coded(8, 2, BLOCKS * BLOCK_BYTES, 100)
}

fn blocks(first: u64, count: u64) -> Extent {
    Extent::new(first * BLOCK_BYTES, count * BLOCK_BYTES)
}

fn set(strips: &[usize]) -> StripSet {
    strips.iter().map(|at| StripIdx::from_at(*at)).collect()
}

fn kinds(plan: &WritePlan) -> Vec<WriteKind> {
    plan.bands().iter().map(|band| band.kind).collect()
}

/// Plans a write to the view and compares kinds, reads and writes.
fn expect(
    geometry: &Geometry,
    view: StripeView,
    extent: Extent,
    wanted: (&[WriteKind], usize, usize),
) -> WritePlan {
    let plan = plan_write(geometry, extent, &view).expect("the write is possible");
    assert_eq!((&*kinds(&plan), plan.read_count(), plan.write_count()), wanted, "{plan:#?}");
    plan
}

#[test]
fn one_block_of_a_healthy_stripe_costs_m_plus_1_reads_and_writes() {
    for m in 1..=7 {
        let geometry = coded(8, m, BLOCKS * BLOCK_BYTES, 100);
        let plan = plan_write(&geometry, blocks(21, 1), &StripeView::healthy(&geometry)).unwrap();
        if m < 7 {
            // With six parities it is 7 strips either way: the tie goes to read-modify-write.
            assert_eq!(kinds(&plan), [ReadModifyWrite]);
            assert_eq!((plan.read_count(), plan.write_count()), (m + 1, m + 1));
        } else {
            assert_eq!(kinds(&plan), [ReconstructWrite]);
            assert_eq!((plan.read_count(), plan.write_count()), (7, 8));
        }
        assert_eq!(plan.read_bytes(), to_u64(plan.read_count()) * BLOCK_BYTES);
        assert_eq!(plan.rows(), RowRange::new(5, 6));
    }
}

#[test]
fn whole_strips_of_a_healthy_raid6_choose_the_way_that_reads_less() {
    let geometry = raid6();
    let healthy = StripeView::healthy(&geometry);
    for (strips, kind, reads) in [
        (1, ReadModifyWrite, 3),
        (2, ReadModifyWrite, 4),
        (3, ReadModifyWrite, 5), // 5 strips either way
        (4, ReconstructWrite, 4),
        (7, ReconstructWrite, 1),
        (8, FullStripe, 0),
    ] {
        let extent = blocks(0, to_u64(strips) * BLOCKS);
        expect(&geometry, healthy, extent, (&[kind], reads, strips + 2));
    }
}

#[test]
fn small_codes_reconstruct_until_reading_old_parity_is_cheaper() {
    for (k, m, kind, reads) in [
        (2, 1, ReconstructWrite, 1),
        (3, 1, ReadModifyWrite, 2),
        (4, 1, ReadModifyWrite, 2),
        (4, 2, ReadModifyWrite, 3),
        (5, 2, ReadModifyWrite, 3),
        (2, 3, ReconstructWrite, 1),
    ] {
        let geometry = coded(k, m, BLOCKS * BLOCK_BYTES, 100);
        expect(&geometry, StripeView::healthy(&geometry), blocks(0, 1), (&[kind], reads, m + 1));
    }
}

#[test]
fn raid0_and_mirrors_never_read() {
    let stripe = coded(4, 0, BLOCKS * BLOCK_BYTES, 100);
    let healthy = StripeView::healthy(&stripe);
    expect(&stripe, healthy, blocks(3, 1), (&[FullStripe], 0, 1));
    // From row 8 of strip 0 to row 4 of strip 2: the middle rows have strip 1 only.
    let plan = expect(&stripe, healthy, blocks(8, 28), (&[FullStripe; 3], 0, 3));
    assert_eq!(plan.write_bytes(), 28 * BLOCK_BYTES);
    let mirror = coded(1, 2, BLOCKS * BLOCK_BYTES, 100);
    let healthy = StripeView::healthy(&mirror);
    expect(&mirror, healthy, blocks(3, 2), (&[FullStripe], 0, 3));
    expect(&mirror, healthy.without(set(&[0, 2])), blocks(3, 2), (&[FullStripe], 0, 1));
    assert!(plan_write(&mirror, blocks(3, 2), &healthy.without(set(&[0, 1, 2]))).is_err());
}

#[test]
fn raid0_with_a_member_out_takes_writes_to_the_others_only() {
    let geometry = coded(4, 0, BLOCKS * BLOCK_BYTES, 100);
    let view = StripeView::healthy(&geometry).without(set(&[1]));
    assert!(plan_write(&geometry, blocks(0, 16), &view).is_ok());
    let refusal = plan_write(&geometry, blocks(15, 2), &view).unwrap_err();
    assert_eq!((refusal.lost, refusal.tolerated), (set(&[1]), 0));
    assert!(plan_first_write(&geometry, blocks(0, 16), &view).is_err(), "its zeros would be lost");
}

#[test]
fn a_write_over_two_strips_has_three_bands_and_merged_io() {
    let geometry = raid6();
    // From row 4 of strip 2 to row 12 of strip 3.
    let plan = expect(
        &geometry,
        StripeView::healthy(&geometry),
        blocks(2 * 16 + 4, 24),
        (&[ReadModifyWrite; 3], 4, 4),
    );
    let written: Vec<(RowRange, StripSet)> =
        plan.bands().iter().map(|band| (band.rows, band.written)).collect();
    assert_eq!(
        written,
        [
            (RowRange::new(0, 4), set(&[3])),
            (RowRange::new(4, 12), set(&[2, 3])),
            (RowRange::new(12, 16), set(&[2])),
        ]
    );
    let io =
        |strip, start, end| StripIo { strip: StripIdx(strip), rows: RowRange::new(start, end) };
    let ios = [io(2, 4, 16), io(3, 0, 12), io(8, 0, 16), io(9, 0, 16)];
    assert_eq!(plan.reads().collect::<Vec<_>>(), ios);
    assert_eq!(plan.writes().collect::<Vec<_>>(), ios);
}

#[test]
fn two_strips_without_a_common_row_leave_the_rows_between_alone() {
    let geometry = raid6();
    let plan = expect(
        &geometry,
        StripeView::healthy(&geometry),
        blocks(15, 2),
        (&[ReadModifyWrite; 2], 6, 6),
    );
    assert_eq!((plan.read_bytes(), plan.write_bytes()), (6 * BLOCK_BYTES, 6 * BLOCK_BYTES));
}

#[test]
fn bands_of_one_write_may_be_of_different_kinds() {
    let geometry = raid6();
    // From row 8 of strip 0 to the end of strip 7: all new below row 8.
    let healthy = StripeView::healthy(&geometry);
    let plan = expect(&geometry, healthy, blocks(8, 120), (&[ReconstructWrite, FullStripe], 1, 10));
    assert_eq!(plan.read_bytes(), 8 * BLOCK_BYTES);
    // One block per strip would read 3; the same rows in most strips are cheaper to reconstruct.
    expect(&geometry, healthy, blocks(12, 8 * 16 - 24), (&[ReconstructWrite; 3], 2, 10));
}

#[test]
fn lost_parity_is_neither_read_nor_written() {
    let geometry = raid6();
    let healthy = StripeView::healthy(&geometry);
    expect(&geometry, healthy.without(set(&[9])), blocks(0, 1), (&[ReadModifyWrite], 2, 2));
    let plan =
        expect(&geometry, healthy.without(set(&[8, 9])), blocks(0, 1), (&[FullStripe], 0, 1));
    assert!(plan.bands()[0].parity.is_empty());
}

#[test]
fn parity_being_rebuilt_is_generated_from_all_data() {
    let geometry = raid6();
    let view = StripeView::healthy(&geometry).rebuilding(set(&[9]));
    expect(&geometry, view, blocks(0, 1), (&[ReconstructWrite], 7, 3));
}

#[test]
fn a_lost_strip_that_stays_is_carried_along_by_read_modify_write() {
    let geometry = raid6();
    let healthy = StripeView::healthy(&geometry);
    expect(&geometry, healthy.without(set(&[5])), blocks(0, 1), (&[ReadModifyWrite], 3, 3));
    expect(&geometry, healthy.without(set(&[5, 6])), blocks(0, 1), (&[ReadModifyWrite], 3, 3));
    // 6 of 8 written: reconstruct-write cannot have strip 7, read-modify-write reads 8.
    let extent = blocks(0, 6 * BLOCKS);
    expect(&geometry, healthy.without(set(&[7])), extent, (&[ReadModifyWrite], 8, 8));
}

#[test]
fn a_lost_strip_that_is_written_goes_to_parity() {
    let geometry = raid6();
    let healthy = StripeView::healthy(&geometry);
    let out =
        expect(&geometry, healthy.without(set(&[0])), blocks(0, 1), (&[ReconstructWrite], 7, 2));
    assert_eq!(out.bands()[0].written, set(&[0]), "it takes part in parity");
    let rebuilding = healthy.rebuilding(set(&[0]));
    expect(&geometry, rebuilding, blocks(0, 1), (&[ReconstructWrite], 7, 3));
    // All data new, two of it lost: nothing to read, both parities carry it.
    expect(&geometry, healthy.without(set(&[0, 4])), blocks(0, 128), (&[FullStripe], 0, 8));
}

#[test]
fn two_losses_of_which_one_is_written_need_decoding() {
    let geometry = raid6();
    let view = StripeView::healthy(&geometry).without(set(&[0, 5]));
    let plan = expect(&geometry, view, blocks(0, 1), (&[DecodeThenWrite], 8, 2));
    let band = plan.bands()[0];
    assert_eq!(band.gather, set(&[1, 2, 3, 4, 6, 7, 8, 9]));
    assert_eq!((band.decoded, band.parity), (set(&[5]), set(&[8, 9])));
    // A lost data strip and parity being rebuilt: the rest decodes, both parities are written.
    let view = StripeView::healthy(&geometry).without(set(&[5])).rebuilding(set(&[8]));
    let plan = expect(&geometry, view, blocks(0, 1), (&[DecodeThenWrite], 8, 3));
    assert_eq!(plan.bands()[0].gather, set(&[0, 1, 2, 3, 4, 6, 7, 9]));
}

#[test]
fn after_an_unclean_stop_parity_is_generated_and_never_trusted() {
    let geometry = raid6();
    let dirty = StripeView { is_parity_valid: false, ..StripeView::healthy(&geometry) };
    expect(&geometry, dirty, blocks(0, 1), (&[ReconstructWrite], 7, 3));
    expect(&geometry, dirty.without(set(&[0])), blocks(0, 1), (&[ReconstructWrite], 7, 2));
    expect(&geometry, dirty.without(set(&[0])), blocks(0, 128), (&[FullStripe], 0, 9));
    let refusal = plan_write(&geometry, blocks(0, 1), &dirty.without(set(&[5]))).unwrap_err();
    assert_eq!((refusal.lost, refusal.tolerated), (set(&[5]), 0));
    assert!(refusal.to_string().contains("{5}"), "{refusal}");
}

#[test]
fn a_refused_band_refuses_the_whole_write() {
    let geometry = raid6();
    let view = StripeView::healthy(&geometry).without(set(&[0, 1, 2]));
    // Rows 0..8 read and modify strip 4 alone; rows 8..16 would have to carry strip 2.
    assert!(plan_write(&geometry, blocks(4 * 16, 8), &view).is_ok());
    let refusal = plan_write(&geometry, blocks(2 * 16 + 8, 32), &view).unwrap_err();
    assert_eq!((refusal.lost, refusal.tolerated), (set(&[0, 1, 2]), 2));
}

#[test]
fn a_first_write_of_one_block_writes_every_strip_once() {
    let geometry = raid6();
    let healthy = StripeView::healthy(&geometry);
    let plan = plan_first_write(&geometry, blocks(21, 1), &healthy).unwrap();
    assert_eq!((plan.read_count(), plan.write_count()), (0, 10));
    let shapes: Vec<_> = plan.bands().iter().map(|b| (b.rows, b.written, b.zeroed)).collect();
    assert_eq!(
        shapes,
        [
            (RowRange::new(0, 5), set(&[]), geometry.data()),
            (RowRange::new(5, 6), set(&[1]), geometry.data().minus(set(&[1]))),
            (RowRange::new(6, 16), set(&[]), geometry.data()),
        ]
    );
}

#[test]
fn the_largest_stripe_is_planned_like_a_small_one() {
    let geometry = coded(32, 32, 1 << 20, 10);
    let healthy = StripeView::healthy(&geometry);
    let plan = plan_write(&geometry, blocks(0, 32 * 256), &healthy).unwrap();
    assert_eq!((kinds(&plan), plan.write_count()), (vec![FullStripe], 64));
    let view = healthy.without(StripSet::range(0, 32));
    assert_eq!(plan_write(&geometry, blocks(0, 32 * 256), &view).unwrap().write_count(), 32);
    let plan = plan_write(&geometry, blocks(300, 1), &view).unwrap();
    assert_eq!((kinds(&plan), plan.read_count()), (vec![DecodeThenWrite], 32));
}

#[test]
#[should_panic(expected = "is not whole blocks")]
fn half_a_block_is_a_bug_of_the_caller() {
    let geometry = raid6();
    let _ = plan_write(&geometry, Extent::new(512, 4096), &StripeView::healthy(&geometry));
}

#[test]
#[should_panic(expected = "a request has bytes")]
fn an_empty_write_is_a_bug_of_the_caller() {
    let geometry = raid6();
    let _ = plan_write(&geometry, Extent::new(4096, 0), &StripeView::healthy(&geometry));
}
