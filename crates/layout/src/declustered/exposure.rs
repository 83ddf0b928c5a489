//! How many losses stripes still survive, counted slice by slice: all stripes of a group of cells
//! lack the same strips.
//!
//! What must stay true: the counts of all slices together are those of the array, so a change of
//! a few slices is one subtraction and one addition.
//!
//! Not here: when to count anew, and how long a rebuild takes.

use ashlar_units::MemberIdx;

use super::slice::{CellAt, Declustered};
use super::spares::{SpareTable, Whereabouts};

/// What became of the content of a data cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CellFate {
    /// It can be read.
    There,
    /// It is lost, and a rebuild has a place for it.
    Restorable,
    /// It is lost, and waits for a place.
    Waiting,
}

/// Stripes of a declustered array, written or not, by how much they lack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exposure {
    /// Stripes that lack so many strips, from none to as many as parity replaces.
    by_lost: Vec<u64>,
    /// Those of them that no rebuild can make safer, because no lost strip has a place.
    waiting: Vec<u64>,
    /// Stripes that lack more than parity replaces.
    beyond: u64,
}

/// The stripes that survive the fewest losses, among those that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Critical {
    /// Losses that they survive.
    pub left: usize,
    /// How many they are.
    pub stripes: u64,
    /// Those of them that no rebuild can make safer now.
    pub waiting: u64,
}

impl Exposure {
    /// Of no stripes, of an array with so many parity strips.
    pub fn none(parity_strips: usize) -> Exposure {
        let zeros = vec![0; parity_strips + 1];
        Exposure { by_lost: zeros.clone(), waiting: zeros, beyond: 0 }
    }

    /// Of so many stripes that lack nothing.
    pub fn whole(parity_strips: usize, stripes: u64) -> Exposure {
        let mut all = Exposure::none(parity_strips);
        all.by_lost[0] = stripes;
        all
    }

    /// Of the stripes of a slice: `lost` are the members that may lack cells, and `fate` says of a
    /// data cell on them what became of it.
    pub fn of_slice(
        map: &Declustered,
        slice: u64,
        lost: &[MemberIdx],
        fate: impl Fn(CellAt) -> CellFate,
    ) -> Exposure {
        let mut groups = vec![(0, 0); map.groups_of(slice)];
        let rows = 0..map.cell_rows_of(slice);
        let cells = lost.iter().flat_map(|member| {
            rows.clone().filter_map(move |cell_row| map.cell(*member, slice, cell_row))
        });
        for cell in cells {
            let Some((group, _)) = map.group_of(cell) else { continue };
            let (lost, restorable) = &mut groups[map.group_number(group)];
            let fate = fate(cell);
            *lost += usize::from(fate != CellFate::There);
            *restorable += usize::from(fate == CellFate::Restorable);
        }
        let mut sum = Exposure::none(map.parts().parity_strips);
        for (lost, restorable) in groups {
            sum.count(map.parts().cell_rows, lost, restorable);
        }
        sum
    }

    fn count(&mut self, stripes: u64, lost: usize, restorable: usize) {
        match self.by_lost.get_mut(lost) {
            Some(count) => *count += stripes,
            None => self.beyond += stripes,
        }
        if lost > 0 && restorable == 0 && lost < self.waiting.len() {
            self.waiting[lost] += stripes;
        }
    }

    /// Count these as well.
    pub fn add(&mut self, other: &Exposure) {
        self.combine(other, |own, other| own + other);
    }

    /// Count these no more.
    ///
    /// # Panics
    /// If they were not counted.
    pub fn subtract(&mut self, other: &Exposure) {
        let less = |own: u64, other| own.checked_sub(other).expect("they were counted");
        self.combine(other, less);
    }

    fn combine(&mut self, other: &Exposure, of: impl Fn(u64, u64) -> u64) {
        for (own, other) in
            [(&mut self.by_lost, &other.by_lost), (&mut self.waiting, &other.waiting)]
        {
            own.iter_mut().zip(other).for_each(|(own, other)| *own = of(*own, *other));
        }
        self.beyond = of(self.beyond, other.beyond);
    }

    /// Stripes by the losses that they survive: none first, all that parity replaces last.
    pub fn by_left(&self) -> Vec<u64> {
        self.by_lost.iter().rev().copied().collect()
    }

    /// Stripes that lack more strips than parity replaces.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Stripes that lack this many strips.
    pub fn lacking(&self, strips: usize) -> u64 {
        self.by_lost.get(strips).copied().unwrap_or(0)
    }

    /// The most endangered stripes; `None` if no stripe that can be read lacks anything.
    pub fn critical(&self) -> Option<Critical> {
        let most = (1..self.by_lost.len()).rev().find(|lost| self.by_lost[*lost] > 0)?;
        Some(Critical {
            left: self.by_lost.len() - 1 - most,
            stripes: self.by_lost[most],
            waiting: self.waiting[most],
        })
    }
}

impl SpareTable {
    /// Of the stripes of a slice, with these members gone besides what the table says.
    pub fn exposure_of(&self, map: &Declustered, slice: u64, gone: &[MemberIdx]) -> Exposure {
        let listed = self.entries().map(|(_, entry)| entry.member);
        let unlisted = gone.iter().copied().filter(|member| self.entry_of(*member).is_none());
        let lost: Vec<MemberIdx> = listed.chain(unlisted).collect();
        Exposure::of_slice(map, slice, &lost, |cell| match self.whereabouts(map, cell) {
            Whereabouts::At(place) if gone.contains(&map.member(place)) => CellFate::Waiting,
            Whereabouts::At(_) => CellFate::There,
            Whereabouts::LostTo(place) if gone.contains(&map.member(place)) => CellFate::Waiting,
            Whereabouts::LostTo(_) => CellFate::Restorable,
            Whereabouts::Lost => CellFate::Waiting,
        })
    }
}
