//! Where a block lies, from docs/on-disk-format.md: layout version 1, and which layout it is.
//!
//! What must stay true: pure arithmetic on a geometry that decoded, so nothing overflows for blocks
//! of the volume.

use crate::bytes::index;
use crate::superblock::Geometry;

/// The unit of reading and of reconstructing, in bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// Where one block of the volume belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its stripe.
    pub stripe: u64,
    /// Its data strip in the stripe.
    pub strip: usize,
    /// Its block in the strip.
    pub block: u64,
}

/// Where a strip of a stripe lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripPlace {
    /// The slot of the member that holds it.
    pub slot: usize,
    /// The number of its first block in the member's data area.
    pub first_block: u64,
}

impl Geometry {
    /// Slots of the array.
    pub fn slots(&self) -> u16 {
        let members = self.declustered.as_ref().map(|map| map.members());
        if let Some(members) = members {
            return u16::try_from(members).unwrap_or(u16::MAX);
        }
        (self.data_strips + self.parity_strips) * self.groups
    }

    /// Strips of a stripe.
    pub fn stripe_width(&self) -> usize {
        self.k() + self.m()
    }

    /// Data strips of a stripe.
    pub fn k(&self) -> usize {
        usize::from(self.data_strips)
    }

    /// Parity strips, or further copies, of a stripe.
    pub fn m(&self) -> usize {
        usize::from(self.parity_strips)
    }

    /// Stripes of the array.
    pub fn stripes(&self) -> u64 {
        match &self.declustered {
            Some(map) => map.stripes(),
            None => self.rows * u64::from(self.groups),
        }
    }

    /// Stripes that the array was created with.
    pub fn stripes_at_creation(&self) -> u64 {
        match &self.declustered {
            Some(map) => map.stripes_at_creation(),
            None => self.stripes(),
        }
    }

    /// Blocks of the volume.
    pub fn volume_blocks(&self) -> u64 {
        self.stripes() * self.stripe_blocks()
    }

    /// Blocks of the volume in one stripe.
    pub fn stripe_blocks(&self) -> u64 {
        u64::from(self.data_strips) * self.strip_blocks()
    }

    /// Blocks of a strip.
    pub fn strip_blocks(&self) -> u64 {
        u64::from(self.strip_bytes) / BLOCK_BYTES
    }

    /// Where block `number` of the volume belongs.
    pub fn place(&self, number: u64) -> Place {
        let within = number % self.stripe_blocks();
        Place {
            stripe: number / self.stripe_blocks(),
            strip: index(within / self.strip_blocks()),
            block: within % self.strip_blocks(),
        }
    }

    /// First block of the volume in data strip `strip` of a stripe.
    pub fn first_block(&self, stripe: u64, strip: usize) -> u64 {
        let strips = stripe * u64::from(self.data_strips) + u64::try_from(strip).unwrap_or(0);
        strips * self.strip_blocks()
    }

    /// Stripes that have a strip within the first `bytes` of the members' data areas.
    pub fn stripes_within(&self, bytes: u64) -> u64 {
        let rows = bytes.div_ceil(u64::from(self.strip_bytes)).min(self.rows);
        match &self.declustered {
            Some(map) => map.stripes_within(rows),
            None => rows * u64::from(self.groups),
        }
    }

    /// Where a strip lies, by the layout: nobody else here asks it. Data strips are 0 to k - 1,
    /// parity strips k to k + m - 1.
    pub fn strip_place(&self, stripe: u64, strip: usize) -> StripPlace {
        if let Some(map) = &self.declustered {
            let (member, row) = map.strip_place(stripe, u64::try_from(strip).unwrap_or(0));
            return StripPlace { slot: index(member), first_block: row * self.strip_blocks() };
        }
        let (k, m) = (self.k(), self.m());
        let n = self.stripe_width();
        let groups = u64::from(self.groups);
        let (row, group) = (stripe / groups, index(stripe % groups));
        let rotates = !matches!(self.level, 0 | 1 | 10);
        let position = if rotates {
            let turn = index(row % u64::from(self.data_strips + self.parity_strips));
            let p = n - 1 - turn;
            if strip < k { (p + m + strip) % n } else { (p + strip - k) % n }
        } else {
            strip
        };
        StripPlace { slot: group * n + position, first_block: row * self.strip_blocks() }
    }
}

#[cfg(test)]
mod tests {
    use super::Place;
    use crate::superblock::Geometry;

    fn geometry(level: u16, data_strips: u16, parity_strips: u16, groups: u16) -> Geometry {
        Geometry {
            level,
            data_strips,
            parity_strips,
            groups,
            strip_bytes: 8192,
            rows: 100,
            declustered: None,
        }
    }

    /// The drawing of one row: what lies on each slot of the first group.
    fn row(geometry: &Geometry, stripe: u64) -> String {
        let names = ["P", "Q", "R"];
        let mut slots = vec![String::new(); geometry.k() + geometry.m()];
        for strip in 0..slots.len() {
            let is_data = strip < geometry.k();
            let name =
                if is_data { format!("D{strip}") } else { names[strip - geometry.k()].into() };
            slots[geometry.strip_place(stripe, strip).slot] = name;
        }
        slots.join(" ")
    }

    #[test]
    fn rotation_is_the_one_that_the_format_draws() {
        let page = include_str!("../../../docs/on-disk-format.md");
        let drawn: Vec<Vec<&str>> = page
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|words| words.get(1).is_some_and(|word| ["D", "P", "Q"].contains(&&word[..1])))
            .filter(|words| words[0].parse::<u64>().is_ok())
            .collect();
        let sized = |slots: usize| drawn.iter().filter(move |words| words.len() == slots + 1);
        for (geometry, slots) in [(geometry(5, 3, 1, 1), 4), (geometry(6, 4, 2, 1), 6)] {
            assert_eq!(sized(slots).count(), slots, "rows drawn for {slots} slots");
            for words in sized(slots) {
                let stripe = words[0].parse().expect("a number");
                assert_eq!(row(&geometry, stripe), words[1..].join(" "));
            }
        }
    }

    #[test]
    fn groups_take_stripes_in_turn() {
        let geometry = geometry(60, 2, 2, 3);
        // Stripe 7 of three groups: group 1, row 2; P at 4 - 1 - 2 = 1 of slots 4 to 7.
        let slots: Vec<usize> = (0..4).map(|strip| geometry.strip_place(7, strip).slot).collect();
        assert_eq!(slots, [4 + 3, 4, 4 + 1, 4 + 2]);
        assert_eq!(geometry.strip_place(7, 0).first_block, 2 * 2);
    }

    #[test]
    fn mirrors_and_plain_strips_do_not_rotate() {
        for geometry in [geometry(0, 4, 0, 1), geometry(1, 1, 3, 1)] {
            for stripe in 0..9 {
                for strip in 0..4 {
                    assert_eq!(geometry.strip_place(stripe, strip).slot, strip);
                }
            }
        }
        assert_eq!(geometry(10, 1, 1, 2).strip_place(3, 1).slot, 3);
    }

    #[test]
    fn blocks_fill_strips_then_stripes() {
        let geometry = geometry(5, 3, 1, 1);
        // Strips of two blocks, three to a stripe: block 17 is the last of stripe 2.
        assert_eq!(geometry.place(17), Place { stripe: 2, strip: 2, block: 1 });
        assert_eq!(geometry.first_block(2, 2), 16);
        assert_eq!(geometry.volume_blocks(), 600);
    }
}
