//! Which domain is in which column of a slice: an affine map over a prime field, on shuffled
//! columns. ON-DISK FORMAT.
//!
//! With q the smallest prime that is not below the number of columns, a slice takes x to a B(x) + b
//! mod q, where B is one of 64 shuffles of 0..q. Values that are no columns are stepped over: the
//! map is applied again until it reaches a column. For a prime number of columns and a fixed
//! shuffle the maps are sharply 2-transitive: in q(q-1) slices every ordered pair of columns meets
//! every ordered pair of domains exactly once.
//!
//! What must stay true: [`Permutations::domain`] and [`Permutations::column`] are each other's
//! inverse. Neither allocates. The tables have 11 to 82 KB; they follow from the prime alone, so a
//! process makes them once and all its arrays share them.
//!
//! Source: the affine maps are those of the layout schemes PRIME and RELPR (Alvarez, Burkhard,
//! Stockmeyer and Cristian, 1998); slices of permuted columns with spare columns at their end are
//! those of permutation development (O'Reilly's dRAID). The shuffles are this layout's own.

use std::sync::OnceLock;

use super::parts::DECLUSTERED_SEED;

/// Shuffles of the columns. With 4 of them stripes that lost two strips are spread unevenly.
const SHUFFLES: u64 = 64;
/// The increment of SplitMix64.
const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// Largest of the primes: the smallest one that is not below 256 columns.
const PRIME_MAX: usize = 257;

/// All permutations of a number of columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutations {
    columns: u32,
    prime: u32,
    tables: &'static Tables,
}

/// What is computed of a prime.
#[derive(Debug)]
struct Tables {
    /// The shuffles, as many entries each as the prime says.
    shuffled: Box<[u16]>,
    /// Their inverses.
    unshuffled: Box<[u16]>,
    /// The inverse of each number but 0 in the field.
    reciprocals: Box<[u16]>,
}

/// The permutation of one slice, in five bytes: stripes carry it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlicePermutation {
    /// a: 1 to q-1.
    factor: [u8; 2],
    /// b: 0 to q-1.
    shift: [u8; 2],
    /// Which shuffle.
    table: u8,
}

/// Permutations follow from the number of columns.
impl PartialEq for Permutations {
    fn eq(&self, other: &Permutations) -> bool {
        self.columns == other.columns
    }
}

impl Eq for Permutations {}

impl Tables {
    fn new(prime: u32) -> Tables {
        let shuffled = shuffles(prime, DECLUSTERED_SEED);
        let size = usize::try_from(prime).expect("at most 257");
        let mut unshuffled = vec![0; shuffled.len()];
        for (at, value) in shuffled.iter().enumerate() {
            unshuffled[at - at % size + usize::from(*value)] = small(at % size);
        }
        Tables {
            shuffled: shuffled.into(),
            unshuffled: unshuffled.into(),
            reciprocals: reciprocals(prime).into(),
        }
    }

    /// Those of a prime that [`Permutations::new`] found.
    fn of(prime: u32) -> &'static Tables {
        static MADE: [OnceLock<Tables>; PRIME_MAX + 1] = [const { OnceLock::new() }; PRIME_MAX + 1];
        let place = usize::try_from(prime).expect("at most 257");
        MADE[place].get_or_init(|| Tables::new(prime))
    }
}

impl Permutations {
    /// Those of 2 to 256 columns.
    pub(crate) fn new(columns: u32) -> Permutations {
        let prime = (columns..).find(|number| is_prime(*number)).expect("primes are many");
        Permutations { columns, prime, tables: Tables::of(prime) }
    }

    /// The permutation of a slice. Slices are far below 2^62, so no sum overflows.
    #[inline]
    pub(crate) fn of_slice(&self, slice: u64) -> SlicePermutation {
        let prime = u64::from(self.prime);
        let v = slice / (prime - 1);
        let u = slice - v * (prime - 1);
        let w = v / prime;
        // Both are below q.
        let shift = u + (v - w * prime);
        let shift = if shift < prime { shift } else { shift - prime };
        let fits = |value: u64| u16::try_from(value).expect("below 257").to_le_bytes();
        SlicePermutation {
            factor: fits(u + 1),
            shift: fits(shift),
            table: u8::try_from(w % SHUFFLES).expect("64 tables"),
        }
    }

    /// The domain in a column of the slice.
    #[inline]
    pub(crate) fn domain(&self, slice: SlicePermutation, column: u32) -> u32 {
        let shuffle = self.shuffle(&self.tables.shuffled, slice);
        let mut value = column;
        loop {
            let shuffled = u32::from(shuffle[entry(value)]);
            // Below 257 times 257.
            value = (slice.factor() * shuffled + slice.shift()) % self.prime;
            if value < self.columns {
                return value;
            }
        }
    }

    /// The column of the slice that a domain is in.
    #[inline]
    pub(crate) fn column(&self, slice: SlicePermutation, domain: u32) -> u32 {
        let reciprocal = u32::from(self.tables.reciprocals[entry(slice.factor())]);
        let shuffle = self.shuffle(&self.tables.unshuffled, slice);
        let back = self.prime - slice.shift();
        let mut value = domain;
        loop {
            let shuffled = (value + back) * reciprocal % self.prime;
            value = u32::from(shuffle[entry(shuffled)]);
            if value < self.columns {
                return value;
            }
        }
    }

    /// The slice's own part of a table.
    #[inline]
    fn shuffle(&self, table: &'static [u16], slice: SlicePermutation) -> &'static [u16] {
        let size = entry(self.prime);
        &table[usize::from(slice.table) * size..][..size]
    }

    /// A number below `below` for a domain of a slice: further output of the generator that made
    /// the shuffles.
    #[inline]
    pub(crate) fn draw(&self, slice: u64, domain: u32, below: u32) -> u32 {
        let used = SHUFFLES * u64::from(self.prime - 1);
        let nth = used + slice * u64::from(self.columns) + u64::from(domain);
        u32::try_from(scaled(output(DECLUSTERED_SEED, nth), u64::from(below)))
            .expect("below 32 bits")
    }
}

impl SlicePermutation {
    #[inline]
    fn factor(self) -> u32 {
        u32::from(u16::from_le_bytes(self.factor))
    }

    #[inline]
    fn shift(self) -> u32 {
        u32::from(u16::from_le_bytes(self.shift))
    }
}

#[inline]
fn entry(value: u32) -> usize {
    usize::try_from(value).expect("at most 257")
}

/// The `nth` output, from 0, of SplitMix64 with this seed. Its sums and products are modulo 2^64.
#[inline]
fn output(seed: u64, nth: u64) -> u64 {
    let mut z = seed.wrapping_add(nth.wrapping_add(1).wrapping_mul(GOLDEN_GAMMA));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number below `below`, from 64 random bits.
#[inline]
fn scaled(bits: u64, below: u64) -> u64 {
    let high = (u128::from(bits) * u128::from(below)) >> 64;
    u64::try_from(high).expect("below 2^64")
}

/// Fisher and Yates, 64 times, all from one generator.
fn shuffles(prime: u32, seed: u64) -> Vec<u16> {
    let size = usize::try_from(prime).expect("at most 257");
    let mut all = Vec::new();
    let mut nth = 0;
    for _ in 0..SHUFFLES {
        let mut shuffle: Vec<u16> = (0..size).map(small).collect();
        for last in (1..u64::from(prime)).rev() {
            let other = scaled(output(seed, nth), last + 1);
            nth += 1;
            let at = |place: u64| usize::try_from(place).expect("below 257");
            shuffle.swap(at(last), at(other));
        }
        all.extend(shuffle);
    }
    all
}

fn reciprocals(prime: u32) -> Vec<u16> {
    let inverse = |of: u32| (1..prime).find(|by| of * by % prime == 1).unwrap_or(0);
    (0..prime).map(|of| u16::try_from(inverse(of)).expect("below 257")).collect()
}

fn is_prime(number: u32) -> bool {
    number >= 2 && (2..number).all(|divisor| !number.is_multiple_of(divisor))
}

fn small(value: usize) -> u16 {
    u16::try_from(value).expect("below 257")
}
