//! What the lab says of recorded and made-up input: nothing here measures this machine.
//!
//! - adapters: engines against recorded transcripts
//! - audited: the source documents' own numbers
//! - inspect: captured servers
//! - mutations: parsers under seeded mutations
//! - report: a made-up run as a report

mod adapters;
mod audited;
mod inspect;
mod mutations;
mod report;

/// Numbers by chance that a seed alone decides.
pub struct Chance(u64);

impl Chance {
    pub fn of(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let end = u64::try_from(end.max(1)).expect("small");
        usize::try_from((self.0 >> 16) % end).expect("small")
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}
