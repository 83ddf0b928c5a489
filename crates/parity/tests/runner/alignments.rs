//! Every alignment at every length: not sampled, walked.
//!
//! What must stay true: the walk is complete in what a kernel can depend on. A kernel sees an
//! address modulo 64 (its widest vector, and what a streamed line needs) and a length in multiples
//! of 64: up to [`BYTES_MAX`] every number of its blocks and of the vectors left over occurs,
//! twice. Longer strips and odd lengths are elsewhere sampled (`claims`).

use ashlar_parity::{Change, Code, DecodePlan, Locality};
use ashlar_units::StripSet;

use super::strips::{Strip, defined_parity, present, present_mut, slices, slices_mut, strips};
use super::{Claim, Seeded, Subject};
use crate::claim;

const ALIGNMENTS: usize = 64;
/// Twice the widest block of any backend, which is four vectors of 64 bytes, and two vectors more.
const BYTES_MAX: usize = 640;

/// Whose addresses move: all together, only what is read, only what is written, or each strip by
/// its own.
const ARRANGEMENTS: [Arrangement; 4] =
    [|s, _| [s, s], |s, _| [s, 0], |s, _| [0, s], |s, n| [(s + 11 * n) % 64, (s + 23 * n) % 64]];

/// How far the n-th source and the n-th written strip stand from a multiple of 64, for an
/// alignment.
type Arrangement = fn(usize, usize) -> [usize; 2];

/// One stripe, where it lies and how it is called.
struct Case<'a> {
    /// Data, then parity, as the definition has it.
    all: &'a [Vec<u8>],
    /// What data strip 0 and the last are to become, and the parity of that.
    changed: &'a [Vec<u8>],
    code: Code,
    /// Of the n-th strip that is read or written.
    skew: &'a dyn Fn(usize) -> [usize; 2],
    locality: Locality,
}

/// Every alignment of 0..64, every multiple of 64 up to [`BYTES_MAX`], every verb, plain and past
/// the cache.
pub fn every_alignment_of_every_length_is_right(subject: &impl Subject) -> Claim {
    let mut random = Seeded(0xA5_0009);
    for (k, m) in [(4, 2), (3, 5)] {
        for bytes in (64..=BYTES_MAX).step_by(64) {
            let [all, changed] = before_and_after((k, m), bytes, &mut random);
            for alignment in 0..ALIGNMENTS {
                for (way, arrangement) in ARRANGEMENTS.iter().enumerate() {
                    let skew = move |n| arrangement(alignment, n);
                    // Both for what streams; each second case of the others.
                    let localities = [Locality::Streaming, Locality::Cached];
                    let streams = skew(0)[1] == 0 && skew(1)[1] == 0;
                    let from = if streams { 0 } else { (alignment + way + bytes / 64) % 2 };
                    let until = if streams { 2 } else { from + 1 };
                    for locality in &localities[from..until] {
                        let code = subject.code(k, m);
                        let (skew, locality) = (&skew, *locality);
                        let case = Case { all: &all, changed: &changed, code, skew, locality };
                        case.hold().map_err(|what| {
                            format!(
                                "{k}+{m}, {bytes} bytes at {alignment}, arrangement {way}, \
                                 {locality:?}: {what}"
                            )
                        })?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// A stripe, and the same with its first and its last data strip changed.
fn before_and_after(
    (k, m): (usize, usize),
    bytes: usize,
    random: &mut Seeded,
) -> [Vec<Vec<u8>>; 2] {
    let before: Vec<Vec<u8>> =
        strips(k, bytes, true, random).iter().map(|strip| strip.get().to_vec()).collect();
    let mut after = before.clone();
    for column in [0, k - 1] {
        after[column] = strips(1, bytes, true, random)[0].get().to_vec();
    }
    [before, after].map(|mut all| {
        for row in 0..m {
            let data: Vec<&[u8]> = all[..k].iter().map(|strip| &strip[..]).collect();
            let parity = defined_parity(&data, row);
            all.push(parity);
        }
        all
    })
}

impl Case<'_> {
    fn hold(&self) -> Claim {
        self.generate()?;
        self.check()?;
        self.update()?;
        self.reconstruct()
    }

    fn read(&self, of: &[Vec<u8>]) -> Vec<Strip> {
        of.iter().enumerate().map(|(n, bytes)| Strip::holding(bytes, (self.skew)(n)[0])).collect()
    }

    /// Strips to be written, which hold `of` so far, or nothing that is right.
    fn write(&self, of: &[Vec<u8>], is_kept: bool) -> Vec<Strip> {
        let strip = |(n, bytes): (usize, &Vec<u8>)| {
            let mut strip = Strip::holding(bytes, (self.skew)(n)[1]);
            if !is_kept {
                strip.get_mut().fill(0xEE);
            }
            strip
        };
        of.iter().enumerate().map(strip).collect()
    }

    fn generate(&self) -> Claim {
        let (data, parity) = self.all.split_at(self.code.data_strips());
        let here = vec![true; parity.len()];
        let sources = self.read(data);
        let mut outputs = self.write(parity, false);
        let mut out = present_mut(&mut outputs, &here);
        self.code.generate(&slices(&sources), &mut out, self.locality).unwrap();
        expect("generate", parity, &outputs)
    }

    /// A stripe that is right, and one with a wrong bit in the first or the last byte of each
    /// strip.
    fn check(&self) -> Claim {
        let k = self.code.data_strips();
        let mut all = self.read(self.all);
        let here = vec![true; self.code.parity_strips()];
        let is_right = |all: &[Strip]| {
            let (data, parity) = all.split_at(k);
            let parity = present(parity, &here);
            let verdict = self.code.check_from(&slices(data), &parity, self.locality);
            verdict.unwrap().is_consistent()
        };
        claim!(is_right(&all), "check says that a stripe is wrong");
        for strip in 0..all.len() {
            let bytes = all[strip].get().len();
            let at = if strip % 2 == 0 { bytes - 1 } else { 0 };
            all[strip].get_mut()[at] ^= 4;
            claim!(!is_right(&all), "check does not see byte {at} of strip {strip}");
            all[strip].get_mut()[at] ^= 4;
        }
        Ok(())
    }

    fn update(&self) -> Claim {
        let k = self.code.data_strips();
        let (old, new) = (self.read(self.all), self.read(self.changed));
        let mut parity = self.write(&self.all[k..], true);
        let change =
            |column: usize| Change { column, old: old[column].get(), new: new[column].get() };
        let here = vec![true; parity.len()];
        let mut out = present_mut(&mut parity, &here);
        self.code.update(&[change(0), change(k - 1)], &mut out, self.locality).unwrap();
        expect("update", &self.changed[k..], &parity)
    }

    /// The first strip and, where there is more parity, the last data strip and one of parity are
    /// lost.
    fn reconstruct(&self) -> Claim {
        let (k, m) = (self.code.data_strips(), self.code.parity_strips());
        let lost = if m > 2 { StripSet(1 | 1 << (k - 1) | 1 << k) } else { StripSet(1) };
        let survivors = StripSet::first(k + m).minus(lost);
        let plan = DecodePlan::new(&self.code, survivors, lost).unwrap();
        let of = |set: StripSet| -> Vec<Vec<u8>> {
            set.iter().map(|strip| self.all[strip.at()].clone()).collect()
        };
        let (wanted, sources) = (of(lost), of(plan.sources()));
        let read = self.read(&sources);
        let mut outputs = self.write(&wanted, false);
        plan.run(&slices(&read), &mut slices_mut(&mut outputs), self.locality).unwrap();
        expect("a plan", &wanted, &outputs)
    }
}

fn expect(what: &str, right: &[Vec<u8>], strips: &[Strip]) -> Claim {
    for (n, (right, strip)) in right.iter().zip(strips).enumerate() {
        claim!(strip.get() == &right[..], "{what}: strip {n} is wrong");
        claim!(strip.canaries_are_alive(), "{what}: strip {n} was overrun");
    }
    Ok(())
}
