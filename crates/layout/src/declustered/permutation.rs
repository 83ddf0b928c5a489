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
//! inverse. Neither allocates. The tables have 11 to 82 KB and are made once.
//!
//! Source: the affine maps are those of the layout schemes PRIME and RELPR (Alvarez, Burkhard,
//! Stockmeyer and Cristian, 1998); slices of permuted columns with spare columns at their end are
//! those of permutation development (O'Reilly's dRAID). The shuffles are this layout's own.

/// Shuffles of the columns. With 4 of them stripes that lost two strips are spread unevenly.
const SHUFFLES: u64 = 64;
/// The increment of SplitMix64.
const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// All permutations of a number of columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Permutations {
    columns: u32,
    prime: u32,
    seed: u64,
    /// The shuffles, `prime` entries each.
    shuffled: Box<[u16]>,
    /// Their inverses.
    unshuffled: Box<[u16]>,
    /// The inverse of each number but 0 in the field.
    reciprocals: Box<[u16]>,
}

/// The permutation of one slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlicePermutation {
    /// a: 1 to q-1.
    factor: u16,
    /// b: 0 to q-1.
    shift: u16,
    /// Where the shuffle begins in the tables.
    table: u16,
}

impl Permutations {
    /// Those of 2 to 256 columns.
    pub(crate) fn new(columns: u32, seed: u64) -> Permutations {
        let prime = (columns..).find(|number| is_prime(*number)).expect("primes are many");
        let shuffled = shuffles(prime, seed);
        let size = usize::try_from(prime).expect("at most 257");
        let mut unshuffled = vec![0; shuffled.len()];
        for (at, value) in shuffled.iter().enumerate() {
            unshuffled[at - at % size + usize::from(*value)] = small(at % size);
        }
        Permutations {
            columns,
            prime,
            seed,
            shuffled: shuffled.into(),
            unshuffled: unshuffled.into(),
            reciprocals: reciprocals(prime).into(),
        }
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
        let fits = |value: u64| u16::try_from(value).expect("64 tables of 257");
        SlicePermutation {
            factor: fits(u + 1),
            shift: fits(shift),
            table: fits(w % SHUFFLES * prime),
        }
    }

    /// The domain in a column of the slice.
    #[inline]
    pub(crate) fn domain(&self, slice: SlicePermutation, column: u32) -> u32 {
        let mut value = column;
        loop {
            let shuffled = u32::from(self.shuffled[entry(slice, value)]);
            // Below 257 times 257.
            value = (u32::from(slice.factor) * shuffled + u32::from(slice.shift)) % self.prime;
            if value < self.columns {
                return value;
            }
        }
    }

    /// The column of the slice that a domain is in.
    #[inline]
    pub(crate) fn column(&self, slice: SlicePermutation, domain: u32) -> u32 {
        let reciprocal = u32::from(self.reciprocals[usize::from(slice.factor)]);
        let back = self.prime - u32::from(slice.shift);
        let mut value = domain;
        loop {
            let shuffled = (value + back) * reciprocal % self.prime;
            value = u32::from(self.unshuffled[entry(slice, shuffled)]);
            if value < self.columns {
                return value;
            }
        }
    }

    /// A number below `below` for a domain of a slice: further output of the generator that made
    /// the shuffles.
    #[inline]
    pub(crate) fn draw(&self, slice: u64, domain: u32, below: u32) -> u32 {
        let used = SHUFFLES * u64::from(self.prime - 1);
        let nth = used + slice * u64::from(self.columns) + u64::from(domain);
        u32::try_from(scaled(output(self.seed, nth), u64::from(below))).expect("below 32 bits")
    }
}

#[inline]
fn entry(slice: SlicePermutation, value: u32) -> usize {
    usize::from(slice.table) + usize::try_from(value).expect("below 257")
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
