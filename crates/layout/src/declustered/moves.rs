//! The cells that a growth has yet to move, in the order in which it does.
//!
//! A growth goes through the cells of the members from the first one on. What it moved lies below
//! the frontier. Not here: copying, and the record of the frontier.

use std::ops::Range;

use ashlar_units::MemberIdx;

use super::growth_parts::GrowthParts;
use super::parts::DeclusteredError;
use super::regions::Grown;
use super::slice::Declustered;

/// A cell that goes to a new member and keeps its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CellMove {
    /// Its number on both members.
    pub number: u64,
    /// Where it lies before.
    pub from: MemberIdx,
    /// Where it lies afterwards.
    pub to: MemberIdx,
}

/// How far a growth is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrowthAt {
    /// Members before it.
    pub members_before: usize,
    /// The frontier: cells of each member below it have moved.
    pub moved_cells: u64,
    /// The frontier at its end.
    pub end_cells: u64,
    /// Every frontier is a multiple of this number of cells.
    pub step_cells: u64,
}

impl Declustered {
    /// The growth that has not ended, if there is one.
    pub fn growth(&self) -> Option<GrowthAt> {
        let (nth, grown) = self.growing()?;
        let counts = grown.growth.counts;
        Some(GrowthAt {
            members_before: self.parts().growths[nth]?.members_before,
            moved_cells: counts.moved_cells,
            end_cells: counts.end_cells(),
            step_cells: counts.step_cells,
        })
    }

    /// The same array when its growth has this frontier.
    ///
    /// # Errors
    /// If it does not grow, or the frontier is none of its own.
    pub fn moved_to(&self, moved_cells: u64) -> Result<Declustered, DeclusteredError> {
        let what = "there is none that has not ended";
        let (nth, _) = self.growing().ok_or(DeclusteredError::Growth { nth: 0, what })?;
        let mut parts = self.parts();
        let before = parts.growths[nth].map(|growth| growth.members_before);
        parts.growths[nth] =
            before.map(|members_before| GrowthParts { members_before, moved_cells });
        Declustered::new(parts)
    }

    /// The cells of these numbers that the growth moves; within a number by new member.
    pub fn moves(&self, numbers: Range<u64>) -> Vec<CellMove> {
        let Some((_, grown)) = self.growing() else { return Vec::new() };
        let mut moves = Vec::new();
        for number in numbers {
            for (from, to) in grown.growth.moves_of(number) {
                for unit in 0..self.home.counts.sub_slices {
                    let [from, to] = [from, to].map(|domain| self.member_of(domain, unit));
                    moves.push(CellMove { number, from, to });
                }
            }
        }
        moves
    }

    /// The new member that a cell is to move to; `None` if it has moved, or stays.
    pub fn target_of(&self, member: MemberIdx, number: u64) -> Option<MemberIdx> {
        let (_, grown) = self.growing()?;
        let (domain, unit) = self.domain_and_unit(member);
        let counts = grown.growth.counts;
        // A member that comes is in no column of the slices that cells come from.
        let is_due = domain < counts.before && number >= counts.moved_cells;
        let to = is_due.then(|| grown.growth.goes_to(domain, number)).flatten()?;
        Some(self.member_of(to, unit))
    }

    fn growing(&self) -> Option<(usize, &Grown)> {
        let all = self.growths.iter().enumerate();
        let mut all = all.filter_map(|(nth, grown)| Some((nth, grown.as_ref()?)));
        all.find(|(_, grown)| !grown.growth.counts.is_complete())
    }
}
