//! The map of a declustered array: layout version 2, from docs/on-disk-format.md.
//!
//! What must stay true: pure arithmetic on numbers that [`Declustered::new`] has checked, so that
//! nothing overflows for stripes of the array. The letters are those of the page. Not here: which
//! cells are on distributed spares (`spares.rs`).

use crate::bytes::index;
use std::fmt;

/// Shuffles of the columns.
const SHUFFLES: u64 = 64;

/// What a superblock says of layout version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// k.
    pub data_strips: u64,
    /// m.
    pub parity_strips: u64,
    /// Strips on each member.
    pub rows: u64,
    /// P.
    pub members: u64,
    /// E.
    pub domain_members: u64,
    /// S.
    pub spare_columns: u64,
    /// H.
    pub cell_rows: u64,
    /// Of the shuffles.
    pub seed: u64,
}

/// The map, with its shuffles.
#[derive(Clone, PartialEq, Eq)]
pub struct Declustered {
    of: Parameters,
    /// W, strips of a stripe.
    width: u64,
    /// D, columns.
    columns: u64,
    /// C, data columns.
    data_columns: u64,
    /// L, rows of cells of a slice.
    cells_high: u64,
    /// G, groups of a sub-slice.
    groups: u64,
    /// q.
    prime: u64,
    /// B.
    shuffles: Vec<Vec<u64>>,
}

impl Declustered {
    /// The map of these numbers.
    ///
    /// # Errors
    /// The first field that is impossible.
    pub fn new(of: Parameters) -> Result<Declustered, &'static str> {
        let width = of.data_strips + of.parity_strips;
        if !(2..=256).contains(&of.members) {
            return Err("members");
        }
        if of.domain_members == 0 || !of.members.is_multiple_of(of.domain_members) {
            return Err("domain_members");
        }
        let columns = of.members / of.domain_members;
        let is_code = (1..=63).contains(&of.data_strips) && (1..=32).contains(&of.parity_strips);
        if !is_code || width > 64 {
            return Err("data_strips");
        }
        if width + of.spare_columns > columns {
            return Err("spare_columns");
        }
        if !(1..=4096).contains(&of.cell_rows) {
            return Err("cell_rows");
        }
        let data_columns = columns - of.spare_columns;
        let cells_high = width / common_divisor(width, data_columns);
        let groups = cells_high * data_columns / width;
        let prime = (columns..).find(|number| is_prime(*number)).ok_or("members")?;
        let shuffles = shuffles(prime, of.seed);
        let map =
            Declustered { of, width, columns, data_columns, cells_high, groups, prime, shuffles };
        if map.slices() == 0 || of.rows.checked_mul(of.members).is_none() {
            return Err("rows");
        }
        Ok(map)
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

    /// Cells of a member, those behind the last whole slice as well.
    pub fn cells(&self) -> u64 {
        self.of.rows / self.of.cell_rows
    }

    /// The member in spare column `column`, counted among the spare ones, of the sub-slice that
    /// this member has its cell of the row in.
    pub fn spare_member(&self, row: u64, member: usize, column: u64) -> Option<usize> {
        if column >= self.of.spare_columns {
            return None;
        }
        let (slice, size) = (row / self.rows_of_slice(), self.of.domain_members);
        let member = u64::try_from(member).ok()?;
        let (domain, unit) = (member / size, member % size);
        let sub_slice = (unit + size - self.turn(slice, domain)) % size;
        let spare = self.domain(slice, self.data_columns + column);
        Some(index(spare * size + (sub_slice + self.turn(slice, spare)) % size))
    }

    /// Stripes of the array.
    pub fn stripes(&self) -> u64 {
        self.slices() * self.stripes_of_slice()
    }

    /// Stripes of the slices that begin within the first `rows` rows of the members.
    pub fn stripes_within(&self, rows: u64) -> u64 {
        rows.div_ceil(self.rows_of_slice()).min(self.slices()) * self.stripes_of_slice()
    }

    fn rows_of_slice(&self) -> u64 {
        self.cells_high * self.of.cell_rows
    }

    fn stripes_of_slice(&self) -> u64 {
        self.groups * self.of.domain_members * self.of.cell_rows
    }

    fn slices(&self) -> u64 {
        self.of.rows / self.rows_of_slice()
    }

    /// The member and the row there of strip `strip` of stripe `stripe`.
    pub fn strip_place(&self, stripe: u64, strip: u64) -> (u64, u64) {
        let (slice, r) = (stripe / self.stripes_of_slice(), stripe % self.stripes_of_slice());
        let all_groups = self.groups * self.of.domain_members;
        let (row, of_slice) = (r / all_groups, r % all_groups);
        let (group, sub_slice) =
            (of_slice / self.of.domain_members, of_slice % self.of.domain_members);
        let cell = group * self.width + self.position(row, strip);
        let (cell_row, column) = (cell / self.data_columns, cell % self.data_columns);
        let domain = self.domain(slice, column);
        let unit = (sub_slice + self.turn(slice, domain)) % self.of.domain_members;
        let member = domain * self.of.domain_members + unit;
        (member, (slice * self.cells_high + cell_row) * self.of.cell_rows + row)
    }

    /// Where a group of W members has a strip in a row: left-symmetric, as in layout version 1.
    fn position(&self, row: u64, strip: u64) -> u64 {
        let (k, m) = (self.of.data_strips, self.of.parity_strips);
        if k == 1 {
            return strip;
        }
        let p = self.width - 1 - row % self.width;
        let after_p = if strip < k { m + strip } else { strip - k };
        (p + after_p) % self.width
    }

    /// The domain in a column of a slice.
    fn domain(&self, slice: u64, column: u64) -> u64 {
        let (u, v) = (slice % (self.prime - 1), slice / (self.prime - 1));
        let (a, b) = (u + 1, (u + v) % self.prime);
        let shuffle = &self.shuffles[index((v / self.prime) % SHUFFLES)];
        let mut x = column;
        loop {
            x = (a * shuffle[index(x)] + b) % self.prime;
            if x < self.columns {
                return x;
            }
        }
    }

    /// turn(s, d).
    fn turn(&self, slice: u64, domain: u64) -> u64 {
        let before = SHUFFLES * (self.prime - 1);
        let nth = before.wrapping_add(slice.wrapping_mul(self.columns)).wrapping_add(domain);
        below(self.of.seed, nth, self.of.domain_members)
    }
}

/// Tables are long.
impl fmt::Debug for Declustered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Declustered({:?})", self.of)
    }
}

/// Output `nth` of SplitMix64 that `seed` starts.
fn output(seed: u64, nth: u64) -> u64 {
    let mut z = seed.wrapping_add(nth.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The number below `end` that output `nth` gives.
fn below(seed: u64, nth: u64, end: u64) -> u64 {
    let product = u128::from(output(seed, nth)) * u128::from(end);
    u64::try_from(product >> 64).unwrap_or(0)
}

fn shuffles(prime: u64, seed: u64) -> Vec<Vec<u64>> {
    let mut nth = 0;
    let mut all = Vec::new();
    for _ in 0..SHUFFLES {
        let mut shuffle: Vec<u64> = (0..prime).collect();
        for j in (1..prime).rev() {
            shuffle.swap(index(j), index(below(seed, nth, j + 1)));
            nth += 1;
        }
        all.push(shuffle);
    }
    all
}

fn is_prime(number: u64) -> bool {
    number > 1 && (2..number).all(|divisor| !number.is_multiple_of(divisor))
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::{Declustered, Parameters};

    fn numbers(line: &str) -> Vec<u64> {
        line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    fn map(line: &str) -> Declustered {
        let of = numbers(line);
        let parameters = Parameters {
            data_strips: of[0],
            parity_strips: of[1],
            members: of[2],
            domain_members: of[3],
            spare_columns: of[4],
            cell_rows: of[5],
            rows: of[7],
            seed: of[8],
        };
        Declustered::new(parameters).expect("a layout")
    }

    /// Each strip of each stripe that the vectors of the format list.
    #[test]
    fn the_vectors_of_the_format_are_met() {
        let vectors = include_str!("../../layout/tests/golden/declustered.txt");
        let (mut current, mut strips) = (None, 0);
        for line in vectors.lines() {
            if let Some(parameters) = line.strip_prefix("layout ") {
                current = Some(map(parameters));
                continue;
            }
            let Some((head, rest)) = line.split_once(": ") else { continue };
            let Some(stripe) = head.strip_prefix("stripe ") else { continue };
            let Ok(stripe) = stripe.parse() else { continue };
            let map = current.as_ref().expect("a layout first");
            for (strip, place) in (0..).zip(rest.split(' ')) {
                let (member, row) = place.split_once('/').expect("member/row");
                let wanted = (member.parse().unwrap(), row.parse().unwrap());
                assert_eq!(map.strip_place(stripe, strip), wanted, "strip {strip} of {stripe}");
                strips += 1;
            }
        }
        assert!(strips > 400, "{strips} strips");
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
        };
        assert_eq!(Declustered::new(good).expect("a layout").stripes(), 8 * 20);
        for (wrong, field) in [
            (Parameters { members: 1, ..good }, "members"),
            (Parameters { members: 257, ..good }, "members"),
            (Parameters { domain_members: 0, ..good }, "domain_members"),
            (Parameters { domain_members: 2, ..good }, "domain_members"),
            (Parameters { data_strips: 64, ..good }, "data_strips"),
            (Parameters { parity_strips: 0, ..good }, "data_strips"),
            (Parameters { spare_columns: 3, ..good }, "spare_columns"),
            (Parameters { cell_rows: 0, ..good }, "cell_rows"),
            (Parameters { cell_rows: 4097, ..good }, "cell_rows"),
            (Parameters { rows: 11, ..good }, "rows"),
        ] {
            assert_eq!(Declustered::new(wrong).err(), Some(field), "{wrong:?}");
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
