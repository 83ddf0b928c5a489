//! How many strips the stripe lacks that lacks most: whether an array with cells on spares can do
//! without one more member.
//!
//! Goes through the cells of the lost members, so it takes a while on large arrays: 1.2 million
//! cells for each member of 20 TB, if cells have 16 MiB.

use ashlar_units::MemberIdx;

use super::slice::Declustered;
use super::spares::{SpareTable, Whereabouts};

impl SpareTable {
    /// Strips that some stripe lacks at most, if these members are missing besides the lost ones.
    /// Stops looking at the first stripe that lacks more than `enough`.
    pub fn most_lost(
        &self,
        map: &Declustered,
        is_missing: impl Fn(MemberIdx) -> bool,
        enough: usize,
    ) -> usize {
        let all = (0..map.members()).map(MemberIdx::from_at);
        let lost: Vec<MemberIdx> =
            all.filter(|member| is_missing(*member) || self.entry_of(*member).is_some()).collect();
        if lost.is_empty() {
            return 0;
        }
        let (mut most, mut counts) = (0, Vec::new());
        for slice in 0..map.slices() {
            counts.clear();
            counts.resize(map.groups_of(slice), 0);
            for member in &lost {
                self.count_in(map, (slice, *member), &is_missing, &mut counts);
            }
            most = counts.iter().copied().fold(most, usize::max);
            if most > enough {
                break;
            }
        }
        most
    }

    /// Adds the lost cells of a member in a slice to those of their groups.
    fn count_in(
        &self,
        map: &Declustered,
        (slice, member): (u64, MemberIdx),
        is_missing: &impl Fn(MemberIdx) -> bool,
        counts: &mut [usize],
    ) {
        for cell_row in 0..map.cell_rows_of(slice) {
            let Some(cell) = map.cell(member, slice, cell_row) else { continue };
            let Some((group, _)) = map.group_of(cell) else { continue };
            let is_there = match self.whereabouts(map, cell) {
                Whereabouts::At(place) => !is_missing(map.member(place)),
                Whereabouts::LostTo(_) | Whereabouts::Lost => false,
            };
            counts[map.group_number(group)] += usize::from(!is_there);
        }
    }
}
