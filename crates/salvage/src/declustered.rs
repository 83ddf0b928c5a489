//! The map of a declustered array: layout version 2, from docs/on-disk-format.md.
//!
//! What must stay true: pure arithmetic on numbers that [`Declustered::new`] has checked, so that
//! nothing overflows for stripes of the array. The letters are those of the page. Not here: which
//! cells are on distributed spares (`spares.rs`).

use crate::growth::Growth;
use crate::slices::{SliceCell, Slices};
use std::fmt;

/// What a superblock says of layout version 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// k.
    pub data_strips: u64,
    /// m.
    pub parity_strips: u64,
    /// Strips on each member.
    pub rows: u64,
    /// P, after all growths.
    pub members: u64,
    /// E.
    pub domain_members: u64,
    /// S.
    pub spare_columns: u64,
    /// H.
    pub cell_rows: u64,
    /// Of the shuffles.
    pub seed: u64,
    /// Growths in order: members before each, and cells that it has moved.
    pub growths: Vec<(u64, u64)>,
}

/// The map: slices as created, and those that each growth opened.
#[derive(Clone, PartialEq, Eq)]
pub struct Declustered {
    of: Parameters,
    slices: Vec<Slices>,
    growths: Vec<Growth>,
}

/// A cell of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellPlace {
    /// Whose slices: 0 those of the creation.
    region: usize,
    cell: SliceCell,
}

impl Parameters {
    /// Members at creation.
    fn first_members(&self) -> u64 {
        self.growths.first().map_or(self.members, |growth| growth.0)
    }

    /// Members before and after a growth.
    fn members_around(&self, nth: usize) -> (u64, u64) {
        let after = self.growths.get(nth + 1).map_or(self.members, |growth| growth.0);
        (self.growths[nth].0, after)
    }

    fn check(&self) -> Result<(), &'static str> {
        let width = self.data_strips + self.parity_strips;
        if !(2..=256).contains(&self.members) {
            return Err("members");
        }
        if self.domain_members == 0 || !self.members.is_multiple_of(self.domain_members) {
            return Err("domain_members");
        }
        for nth in 0..self.growths.len() {
            let (before, after) = self.members_around(nth);
            if before >= after || !before.is_multiple_of(self.domain_members) {
                return Err("growths");
            }
        }
        let columns = self.first_members() / self.domain_members;
        let is_code =
            (1..=63).contains(&self.data_strips) && (1..=32).contains(&self.parity_strips);
        if !is_code || width > 64 {
            return Err("data_strips");
        }
        if width + self.spare_columns > columns {
            return Err("spare_columns");
        }
        if !(1..=4096).contains(&self.cell_rows) {
            return Err("cell_rows");
        }
        Ok(())
    }
}

impl Declustered {
    /// The map of these numbers.
    ///
    /// # Errors
    /// The first field that is impossible.
    pub fn new(of: Parameters) -> Result<Declustered, &'static str> {
        of.check()?;
        let first = Slices::new(&of, of.first_members(), of.rows).ok_or("members")?;
        if first.count == 0 || of.rows.checked_mul(of.members).is_none() {
            return Err("rows");
        }
        let mut map = Declustered { of, slices: vec![first], growths: Vec::new() };
        for nth in 0..map.of.growths.len() {
            map.grow(nth).ok_or("growths")?;
        }
        Ok(map)
    }

    /// Adds a growth to those before it.
    fn grow(&mut self, nth: usize) -> Option<()> {
        let first = &self.slices[0];
        let aligned = self.growths.last().map_or(first.cells_high, Growth::block);
        let cells = first.count * first.cells_high;
        let (members, moved) = (self.of.members_around(nth), self.of.growths[nth].1);
        let growth = Growth::new(&self.of, members, (aligned, cells), moved)?;
        let least = self.growths.first().unwrap_or(&growth).unit();
        let is_next = self.growths.last().is_none_or(Growth::is_complete);
        if !is_next || !moved.is_multiple_of(least) {
            return None;
        }
        let free = if growth.is_complete() { growth.free_cells() } else { 0 };
        self.slices.push(Slices::new(&self.of, members.1, free * self.of.cell_rows)?);
        self.growths.push(growth);
        Some(())
    }

    /// P.
    pub fn members(&self) -> u64 {
        self.of.members
    }

    /// E.
    pub fn domain_members(&self) -> u64 {
        self.of.domain_members
    }

    /// H.
    pub fn cell_rows(&self) -> u64 {
        self.of.cell_rows
    }

    /// Members before each growth, in order.
    pub fn members_before_growths(&self) -> impl Iterator<Item = u64> + '_ {
        self.of.growths.iter().map(|growth| growth.0)
    }

    /// Whether no cell has moved in the last growth, and it added this slot.
    pub fn is_new_member(&self, slot: u16) -> bool {
        let last = self.of.growths.last();
        last.is_some_and(|(members, moved)| *moved == 0 && u64::from(slot) >= *members)
    }

    /// Cells of a member, those behind the last whole slice as well.
    pub fn cells(&self) -> u64 {
        self.of.rows / self.of.cell_rows
    }

    /// Stripes of the array.
    pub fn stripes(&self) -> u64 {
        self.slices.iter().map(Slices::stripes).sum()
    }

    /// Stripes of the array as it was created.
    pub fn stripes_at_creation(&self) -> u64 {
        self.slices[0].stripes()
    }

    /// Stripes, from the first on, that can have a strip within the first `rows` rows of the
    /// members. Those that growths opened lie all over them.
    pub fn stripes_within(&self, rows: u64) -> u64 {
        let first = &self.slices[0];
        let slices = rows.div_ceil(first.cells_high * self.of.cell_rows);
        if slices < first.count {
            return slices * first.stripes_of_slice();
        }
        self.stripes()
    }

    /// The cell of strip `strip` of stripe `stripe`, and the row there.
    pub fn strip_cell(&self, stripe: u64, strip: u64) -> (CellPlace, u64) {
        let (mut region, mut stripe) = (0, stripe);
        while region + 1 < self.slices.len() && stripe >= self.slices[region].stripes() {
            stripe -= self.slices[region].stripes();
            region += 1;
        }
        let (cell, row) = self.slices[region].strip_cell(stripe, strip);
        (CellPlace { region, cell }, row)
    }

    /// The member that has a cell, and its number among the member's cells.
    pub fn place(&self, at: CellPlace) -> (u64, u64) {
        let (mut domain, unit, mut number) = self.slices[at.region].place(at.cell);
        if let Some(opener) = at.region.checked_sub(1) {
            number = self.growths[opener].free_cell(domain, number);
        }
        for growth in &self.growths[at.region..] {
            domain = growth.holder(domain, number);
        }
        (domain * self.of.domain_members + unit, number)
    }

    /// The cell in spare column `column`, counted among the spare ones, of the same slice.
    pub fn spare_cell(&self, at: CellPlace, column: u64) -> Option<CellPlace> {
        let cell = self.slices[at.region].spare_cell(at.cell, column)?;
        Some(CellPlace { cell, ..at })
    }

    /// The member and the row there of strip `strip` of stripe `stripe`.
    pub fn strip_place(&self, stripe: u64, strip: u64) -> (u64, u64) {
        let (cell, row) = self.strip_cell(stripe, strip);
        let (member, number) = self.place(cell);
        (member, number * self.of.cell_rows + row)
    }
}

/// Tables are long.
impl fmt::Debug for Declustered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Declustered({:?})", self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::{Declustered, Parameters};

    fn numbers(line: &str) -> Vec<u64> {
        line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    fn parameters(line: &str) -> Parameters {
        let of = numbers(line);
        Parameters {
            data_strips: of[0],
            parity_strips: of[1],
            members: of[2],
            domain_members: of[3],
            spare_columns: of[4],
            cell_rows: of[5],
            rows: of[7],
            seed: of[8],
            growths: Vec::new(),
        }
    }

    fn map(line: &str) -> Declustered {
        Declustered::new(parameters(line)).expect("a layout")
    }

    /// Each section of vectors, with the map of its layout.
    fn sections(vectors: &'static str) -> Vec<(Declustered, Vec<&'static str>)> {
        let sections = vectors.split("\nlayout ").skip(1);
        let section = |text: &'static str| {
            let lines: Vec<&str> = text.lines().collect();
            let mut of = parameters(lines[0]);
            for line in lines.iter().filter_map(|line| line.strip_prefix("growth ")) {
                of.growths.push((numbers(line)[0], numbers(line)[1]));
            }
            (Declustered::new(of).expect("a layout"), lines)
        };
        sections.map(section).collect()
    }

    /// Each strip of each stripe that the vectors list, and how many stripes there are. Says how
    /// many strips.
    fn met(vectors: &'static str) -> usize {
        let mut strips = 0;
        for (map, lines) in sections(vectors) {
            for line in &lines[1..] {
                if let Some(count) = line.strip_prefix("stripes ") {
                    assert_eq!(map.stripes(), count.parse().unwrap());
                }
                let Some((head, rest)) = line.split_once(": ") else { continue };
                let Some(stripe) = head.strip_prefix("stripe ") else { continue };
                let stripe = stripe.parse().unwrap();
                for (strip, place) in (0..).zip(rest.split(' ')) {
                    let (member, row) = place.split_once('/').expect("member/row");
                    let wanted = (member.parse().unwrap(), row.parse().unwrap());
                    assert_eq!(map.strip_place(stripe, strip), wanted, "strip {strip} of {stripe}");
                    strips += 1;
                }
            }
        }
        strips
    }

    /// Each strip of each stripe that the vectors of the format list.
    #[test]
    fn the_vectors_of_the_format_are_met() {
        let strips = met(include_str!("../../layout/tests/golden/declustered.txt"));
        assert!(strips > 400, "{strips} strips");
    }

    #[test]
    fn the_vectors_of_grown_and_half_grown_pools_are_met() {
        let strips = met(include_str!("../../layout/tests/golden/growth.txt"));
        assert!(strips > 500, "{strips} strips");
    }

    #[test]
    fn growths_that_cannot_be_are_named() {
        let of = |growths: &[(u64, u64)]| Parameters {
            growths: growths.to_vec(),
            ..parameters("2 1 7 1 1 4 4096 4000 20261123")
        };
        // 5 and then 6 members have units of 3 cells and blocks of 18, then 7 units of 90.
        let sound = of(&[(5, 990), (6, 0)]);
        assert!(Declustered::new(sound).is_ok());
        for wrong in [
            of(&[(7, 0)]),
            of(&[(5, 1)]),
            of(&[(5, 993)]),
            of(&[(5, 0), (6, 0)]),
            of(&[(6, 0), (5, 0)]),
            Parameters { rows: 60, ..of(&[(5, 0)]) },
        ] {
            assert_eq!(Declustered::new(wrong.clone()).err(), Some("growths"), "{wrong:?}");
        }
    }

    #[test]
    fn numbers_that_cannot_be_are_named() {
        let good = Parameters {
            data_strips: 2,
            parity_strips: 1,
            rows: 100,
            members: 5,
            domain_members: 1,
            spare_columns: 0,
            cell_rows: 4,
            seed: 20_261_123,
            growths: Vec::new(),
        };
        assert_eq!(Declustered::new(good.clone()).expect("a layout").stripes(), 8 * 20);
        for (wrong, field) in [
            (Parameters { members: 1, ..good.clone() }, "members"),
            (Parameters { members: 257, ..good.clone() }, "members"),
            (Parameters { domain_members: 0, ..good.clone() }, "domain_members"),
            (Parameters { domain_members: 2, ..good.clone() }, "domain_members"),
            (Parameters { data_strips: 64, ..good.clone() }, "data_strips"),
            (Parameters { parity_strips: 0, ..good.clone() }, "data_strips"),
            (Parameters { spare_columns: 3, ..good.clone() }, "spare_columns"),
            (Parameters { cell_rows: 0, ..good.clone() }, "cell_rows"),
            (Parameters { cell_rows: 4097, ..good.clone() }, "cell_rows"),
            (Parameters { rows: 11, ..good.clone() }, "rows"),
        ] {
            assert_eq!(Declustered::new(wrong.clone()).err(), Some(field), "{wrong:?}");
        }
    }

    #[test]
    fn images_cut_short_hold_the_slices_that_begin_in_them() {
        // Slices of 12 rows and 20 stripes.
        let map = map("2 1 5 1 0 4 4096 100 20261123");
        let within: Vec<u64> = [0, 1, 12, 13, 1000].map(|rows| map.stripes_within(rows)).into();
        assert_eq!(within, [0, 20, 20, 40, 160]);
    }
}
