//! Reported faults of another declustered RAID, replayed on the states of this one. The numbers are
//! those of issues of OpenZFS.

use ashlar_layout::declustered::{
    CellState, Declustered, DeclusteredParts, Settled, SpareError, SpareTable, Whereabouts,
    rebuild_order,
};
use ashlar_units::{MemberIdx, StripIdx, StripeNo};

use crate::parts;
use crate::pools::{Pool, Without};
use crate::reference::Generator;

fn map(code: (usize, usize), spares: usize) -> Declustered {
    let parts = DeclusteredParts { rows: 60, ..parts(9, code, spares) };
    Declustered::new(parts).expect("a layout")
}

fn rebuild_all(pool: &mut Pool) -> usize {
    (0..pool.stripes()).map(|at| pool.rebuild_group(at)).sum()
}

/// 18286: a drive that holds spare space of another one is cleared and detached. What was rebuilt
/// to it meanwhile is not in the bitmap, and the returned drive was trusted.
#[test]
fn openzfs_18286_a_returned_drive_is_not_trusted_with_spare_cells() {
    let (map, mut chance) = (map((3, 2), 2), Generator(1));
    let (first, host) = (MemberIdx(2), MemberIdx(6));
    let mut pool = Pool::new(&map, Without::Nothing);
    pool.lose(host, &mut chance);
    pool.lose(first, &mut chance);
    assert!(rebuild_all(&mut pool) > 0);
    // Clean everywhere: nobody wrote since the loss.
    pool.return_stale(host);
    assert_eq!(pool.wrong(), None);
    assert!(matches!(pool.complete(host), Err(SpareError::NotInPlace(_))), "detached too early");
    for number in 0..usize::try_from(map.cells()).unwrap() {
        pool.copy_back(host, number);
    }
    assert_eq!(pool.complete(host), Ok(()));
    assert_eq!(pool.wrong(), None);
    assert_eq!(pool.heal(), Ok(()));
    assert_eq!(pool.wrong(), None);
}

/// 18420: more drives fail while a rebuild to spare space is under way.
#[test]
fn openzfs_18420_losses_in_the_middle_of_a_rebuild_leave_no_wrong_strip() {
    let (map, mut chance) = (map((3, 2), 1), Generator(2));
    let mut pool = Pool::new(&map, Without::Nothing);
    pool.lose(MemberIdx(0), &mut chance);
    for at in 0..pool.stripes() / 2 {
        pool.rebuild_group(at);
    }
    pool.lose(MemberIdx(4), &mut chance);
    (0..pool.stripes()).for_each(|at| pool.write(at));
    assert_eq!(pool.wrong(), None);
    rebuild_all(&mut pool);
    // One spare column: of the second loss nothing can move, and no stripe is beyond parity.
    assert!(rebuild_order(&map, &pool.table).all(|group| group.lost <= 2));
    pool.crash(&mut chance);
    assert_eq!(pool.wrong(), None);
    assert_eq!(pool.heal(), Ok(()));
    assert_eq!(pool.wrong(), None);
}

/// 14041: the second spare was never filled.
#[test]
fn openzfs_14041_the_second_spare_is_filled() {
    let (map, mut chance) = (map((3, 2), 2), Generator(3));
    let mut pool = Pool::new(&map, Without::Nothing);
    for member in [MemberIdx(1), MemberIdx(7)] {
        pool.lose(member, &mut chance);
        rebuild_all(&mut pool);
    }
    assert_eq!(rebuild_order(&map, &pool.table).count(), 0);
    for (_, entry) in pool.table.entries() {
        let cells = (0..usize::try_from(map.cells()).unwrap())
            .filter_map(|number| map.numbered_cell(entry.member, number))
            .filter(|cell| map.spare_index(*cell).is_none());
        for cell in cells {
            assert_eq!(entry.state(&map, cell), CellState::OnSpare);
        }
    }
    assert_eq!(pool.wrong(), None);
}

/// 16547: two spares were on one drive.
#[test]
fn openzfs_16547_two_spare_cells_of_a_stripe_are_on_two_drives() {
    let map = map((3, 2), 2);
    for first in 0..9 {
        for second in (0..9).filter(|second| *second != first) {
            let mut pool = Pool::new(&map, Without::Nothing);
            let mut chance = Generator(4);
            for member in [first, second] {
                pool.lose(MemberIdx(member), &mut chance);
            }
            for group in (0..map.slices()).flat_map(|slice| map.groups(slice)) {
                let held = (0..5).map(|position| map.cell_of(group, position));
                let held = held.map(|cell| match pool.table.whereabouts(&map, cell) {
                    Whereabouts::At(at) | Whereabouts::LostTo(at) => map.member(at).0,
                    Whereabouts::Lost => panic!("there are two spare columns"),
                });
                let mut members: Vec<u16> = held.collect();
                members.sort_unstable();
                members.dedup();
                assert_eq!(members.len(), 5);
                assert!(!members.contains(&first) && !members.contains(&second));
            }
        }
    }
}

/// What a stripe lacks at most is counted over the cells of lost members; strip by strip it comes
/// to the same, whatever is lost, rebuilt or gone besides.
#[test]
fn the_most_that_a_stripe_lacks_is_what_its_strips_say() {
    let map = map((3, 2), 2);
    let mut chance = Generator(9_300);
    for _ in 0..40 {
        let mut table = SpareTable::new(&map);
        for _ in 0..chance.below(4) {
            table.lose(&map, MemberIdx::from_at(chance.below(9)));
            let due: Vec<_> = rebuild_order(&map, &table).take(chance.below(200)).collect();
            for it in due {
                for position in 0..5 {
                    let _ = table.rebuilt(&map, map.cell_of(it.group, position), Settled);
                }
            }
        }
        let gone = MemberIdx::from_at(chance.below(12));
        let is_lost = |stripe: u64, strip: u8| {
            let place = map.place(map.seat(StripeNo(stripe)), StripIdx(strip));
            let (cell, _) = map.cell_at(place).expect("a cell");
            match table.whereabouts(&map, cell) {
                Whereabouts::At(at) => map.member(at) == gone,
                Whereabouts::LostTo(_) | Whereabouts::Lost => true,
            }
        };
        let lacks = |stripe| (0..5).filter(|strip| is_lost(stripe, *strip)).count();
        let most = (0..map.stripe_count()).map(lacks).max().unwrap_or(0);
        assert_eq!(table.most_lost(&map, |member| member == gone, 5), most);
    }
}
