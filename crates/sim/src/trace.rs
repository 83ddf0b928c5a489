//! What happened, as a hash that two runs can be compared by and as the last operations for a
//! person to read.
//!
//! What must stay true: everything that could make two runs differ goes into the hash: time, order,
//! addresses, content, faults. The hash is the same on every machine.

use std::collections::VecDeque;
use std::fmt;

use ashlar_device::CommandKind;
use ashlar_units::Nanos;

/// Odd, with bits everywhere.
const FACTOR: u64 = 0x9FB2_1C65_1E98_DF25;
/// How many operations are kept for a person to read.
const KEPT: usize = 256;

/// One device operation, as it was submitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Counted over all disks of the world, from 1.
    pub number: u64,
    /// When.
    pub at: Nanos,
    /// On which disk.
    pub disk: String,
    /// What.
    pub kind: CommandKind,
    /// Where, in bytes.
    pub offset: u64,
    /// How much, in bytes.
    pub bytes: u64,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation { number, at, disk, kind, offset, bytes } = self;
        write!(f, "#{number} at {} ns: {kind:?} {bytes} bytes at {offset} on {disk}", at.0)
    }
}

/// The same with the number of its disk: a name for each operation took one part in thirty of a
/// run.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) number: u64,
    pub(crate) at: Nanos,
    pub(crate) disk: usize,
    pub(crate) kind: CommandKind,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

#[derive(Default)]
pub(crate) struct Trace {
    hash: u64,
    last: VecDeque<Kept>,
}

impl Trace {
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn last(&self) -> impl Iterator<Item = &Kept> {
        self.last.iter()
    }

    pub(crate) fn keep(&mut self, operation: Kept) {
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(operation);
    }

    pub(crate) fn add(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(FACTOR).rotate_left(29);
    }

    /// Content that follows from bytes which were added whole: what a disk holds from what was
    /// written. A word of each sector will do, and it took one part in fifteen of a universe to add
    /// all of it.
    pub(crate) fn add_sample(&mut self, bytes: &[u8]) {
        for sector in bytes.chunks(512) {
            let mut word = [0; 8];
            let length = sector.len().min(8);
            word[..length].copy_from_slice(&sector[sector.len() - length..]);
            self.add(u64::from_le_bytes(word));
        }
        self.add(u64::try_from(bytes.len()).expect("a length"));
    }

    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) {
        // Four sums side by side: one after the other they took a fifth of the time of a universe.
        let mut sums = [1, 2, 3, 4].map(|sum: u64| sum.wrapping_mul(FACTOR));
        let mut groups = bytes.chunks_exact(32);
        for group in groups.by_ref() {
            for (sum, word) in sums.iter_mut().zip(group.chunks_exact(8)) {
                let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
                *sum = (*sum ^ word).wrapping_mul(FACTOR).rotate_left(29);
            }
        }
        sums.into_iter().for_each(|sum| self.add(sum));
        for byte in groups.remainder() {
            self.add(u64::from(*byte));
        }
        self.add(u64::try_from(bytes.len()).expect("a length"));
    }
}
