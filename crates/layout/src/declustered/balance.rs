//! How evenly a rebuild uses the members: exact counts of the strips that each reads and writes.
//!
//! The counts are those of the real map, slice by slice, for a rebuild that starts when all the
//! given members are lost and their spares are empty. A rebuild of an array that was written in
//! full does exactly these reads and writes.
//!
//! Not here: time (`times`).

use std::ops::Range;

use ashlar_units::{MemberIdx, StripIdx, StripSet, StripeNo, to_u64};

use super::rebuild::Skipped;
use super::slice::{CellAt, Declustered, DeclusteredSeat, GroupAt};

/// Strips that each member reads and writes in a rebuild.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RebuildLoad {
    /// Strips read, by member.
    pub reads: Vec<u64>,
    /// Strips written, by member.
    pub writes: Vec<u64>,
    /// Reads and writes for stripes that lost all that parity replaces, by member.
    pub critical: Vec<u64>,
    /// Strips that are lost: each is written once, if there is a spare column for it.
    pub lost_strips: u64,
    /// Strips of stripes that lost more than parity replaces. They are not rebuilt.
    pub dead_strips: u64,
    is_lost: Vec<bool>,
}

impl RebuildLoad {
    /// The load after the loss of these members, in this order, over some slices.
    ///
    /// # Panics
    /// If the array has no such member or slice, or a member is named twice.
    pub fn count(map: &Declustered, lost: &[MemberIdx], slices: Range<u64>) -> RebuildLoad {
        assert!(slices.end <= map.slices(), "the array has {} slices", map.slices());
        let mut load = RebuildLoad::none(map, lost);
        let skips = Skips::new(map);
        let mut hit = Vec::new();
        for slice in slices {
            hit.clear();
            for member in lost {
                let cells = (0..map.cell_rows_of(slice))
                    .filter_map(|cell_row| map.cell(*member, slice, cell_row));
                hit.extend(cells.filter_map(|cell| Some((map.group_of(cell)?.0, cell))));
            }
            hit.sort_unstable();
            for run in hit.chunk_by(|a, b| a.0 == b.0) {
                load.add_group(map, lost, run, &skips);
            }
        }
        load
    }

    /// The load after the loss of these members over some stripes, with any choice of strips to
    /// read: `read` names those for a stripe and the strips that it lost. A lost strip is written
    /// to the spare cell that takes its place; if no spare column is left for it, to the device
    /// that replaces its member. Critical strips are counted as in [`RebuildLoad::count`].
    ///
    /// # Panics
    /// If the array has no such member or stripe, or a member is named twice.
    pub fn of_stripes(
        map: &Declustered,
        lost: &[MemberIdx],
        stripes: impl Iterator<Item = StripeNo>,
        read: impl Fn(StripeNo, StripSet) -> StripSet,
    ) -> RebuildLoad {
        let mut load = RebuildLoad::none(map, lost);
        for stripe in stripes {
            let seat = map.seat(stripe);
            let hit = lost.iter().filter_map(|member| map.strip_on(seat, *member));
            let hit: StripSet = hit.collect();
            load.lost_strips += to_u64(hit.count());
            match hit.count() {
                0 => {}
                count if count > map.parts().parity_strips => load.dead_strips += to_u64(count),
                count => {
                    let is_critical = count == map.parts().parity_strips;
                    let strips = read(stripe, hit);
                    let reads = strips.iter().map(|strip| map.place(seat, strip).member);
                    let writes = hit.iter().map(|strip| written_to(map, lost, (seat, strip)));
                    load.add(is_critical, reads, writes);
                }
            }
        }
        load
    }

    fn none(map: &Declustered, lost: &[MemberIdx]) -> RebuildLoad {
        let members = map.parts().members;
        let mut is_lost = vec![false; members];
        for member in lost {
            let is_twice = std::mem::replace(&mut is_lost[member.at()], true);
            assert!(!is_twice, "member {member} is lost twice");
        }
        let nothing = vec![0; members];
        RebuildLoad {
            reads: nothing.clone(),
            writes: nothing.clone(),
            critical: nothing,
            lost_strips: 0,
            dead_strips: 0,
            is_lost,
        }
    }

    fn add(
        &mut self,
        is_critical: bool,
        reads: impl Iterator<Item = MemberIdx>,
        writes: impl Iterator<Item = MemberIdx>,
    ) {
        for member in reads {
            self.reads[member.at()] += 1;
            self.critical[member.at()] += u64::from(is_critical);
        }
        for member in writes {
            self.writes[member.at()] += 1;
            self.critical[member.at()] += u64::from(is_critical);
        }
    }

    fn add_group(
        &mut self,
        map: &Declustered,
        lost: &[MemberIdx],
        run: &[(GroupAt, CellAt)],
        skips: &Skips,
    ) {
        let rows = map.parts().cell_rows;
        let (group, count) = (run[0].0, run.len());
        self.lost_strips += to_u64(count) * rows;
        if count > map.parts().parity_strips {
            self.dead_strips += to_u64(count) * rows;
            return;
        }
        let is_critical = count == map.parts().parity_strips;
        let reads = skips.rows_read(count, group.slice);
        let mut survivor = 0;
        for position in 0..u32::try_from(map.parts().width()).expect("at most 64") {
            let member = map.member(map.cell_of(group, position)).at();
            if self.is_lost[member] {
                continue;
            }
            self.reads[member] += reads[survivor];
            self.critical[member] += if is_critical { reads[survivor] } else { 0 };
            survivor += 1;
        }
        for (_, cell) in run {
            if let Some(target) = spare_target(map, lost, *cell) {
                self.writes[target.at()] += rows;
                self.critical[target.at()] += if is_critical { rows } else { 0 };
            }
        }
    }

    /// The largest load of a survivor over the mean, reads and writes together; 1.0 is even. Zero
    /// if there is no load.
    pub fn max_over_mean(&self) -> f64 {
        let sums = self.reads.iter().zip(&self.writes).map(|(reads, writes)| reads + writes);
        self.ratio(sums)
    }

    /// The same for stripes that lost all that parity replaces.
    pub fn critical_max_over_mean(&self) -> f64 {
        self.ratio(self.critical.iter().copied())
    }

    fn ratio(&self, loads: impl Iterator<Item = u64>) -> f64 {
        let survivors = loads.zip(&self.is_lost).filter(|(_, is_lost)| !**is_lost);
        let survivors: Vec<u64> = survivors.map(|(load, _)| load).collect();
        let sum: u64 = survivors.iter().sum();
        let most = survivors.iter().max().copied().unwrap_or(0);
        if sum == 0 { 0.0 } else { (most * to_u64(survivors.len())) as f64 / sum as f64 }
    }
}

/// So many members to lose, no two the same, each `step` further than the one before. Where that
/// comes back to the first, the next round begins beside it.
///
/// # Panics
/// If the array has fewer members.
pub fn losses_apart(members: usize, first: usize, step: usize, count: usize) -> Vec<MemberIdx> {
    assert!(count <= members, "{count} of {members} members cannot be lost");
    let mut lost = Vec::with_capacity(count);
    let mut next = first % members;
    while lost.len() < count {
        while lost.contains(&MemberIdx::from_at(next)) {
            next = (next + 1) % members;
        }
        lost.push(MemberIdx::from_at(next));
        next = (next + step) % members;
    }
    lost
}

/// Where a lost strip goes.
fn written_to(
    map: &Declustered,
    lost: &[MemberIdx],
    (seat, strip): (DeclusteredSeat, StripIdx),
) -> MemberIdx {
    let own = map.place(seat, strip);
    let (cell, _) = map.cell_at(own).expect("a strip is in a slice");
    spare_target(map, lost, cell).unwrap_or(own.member)
}

/// The member that a lost cell is rebuilt to, if a spare column is left for it. Members of one
/// domain share a column.
fn spare_target(map: &Declustered, lost: &[MemberIdx], cell: CellAt) -> Option<MemberIdx> {
    let mut domains: Vec<usize> = Vec::new();
    for domain in lost.iter().map(|it| map.domain_of(*it)) {
        if !domains.contains(&domain) {
            domains.push(domain);
        }
    }
    let mut at = cell;
    loop {
        let member = map.member(at);
        if !lost.contains(&member) {
            return Some(member);
        }
        let spare = domains.iter().position(|it| *it == map.domain_of(member))?;
        at = map.cell_in_spare_column(at, spare)?;
    }
}

/// How many rows of a cell each survivor of a group is read in, worked out once.
struct Skips {
    /// By losses less one, then by the turn that the first row has, then by survivor.
    rows: Vec<Vec<Vec<u64>>>,
}

impl Skips {
    fn new(map: &Declustered) -> Skips {
        let (width, parity) = (map.parts().width(), map.parts().parity_strips);
        let of = |lost: usize| {
            let survivors = width - lost;
            let skipped = Skipped::of(map, survivors);
            // In as many rows as there are survivors, each is read once for each data strip.
            let (survivors_u64, cell_rows) = (to_u64(survivors), map.parts().cell_rows);
            let even = cell_rows / survivors_u64 * to_u64(map.parts().data_strips);
            let rows_read = |first: u64, survivor: usize| {
                let rest = first..first + cell_rows % survivors_u64;
                even + to_u64(rest.filter(|turn| !skipped.is_skipped(*turn, survivor)).count())
            };
            let firsts = 0..survivors_u64;
            firsts.map(|at| (0..survivors).map(|it| rows_read(at, it)).collect()).collect()
        };
        Skips { rows: (1..=parity.min(width - 1)).map(of).collect() }
    }

    fn rows_read(&self, lost: usize, slice: u64) -> &[u64] {
        let by_turn = &self.rows[lost - 1];
        &by_turn[ashlar_units::to_usize(slice % to_u64(by_turn.len()))]
    }
}
