//! Reconstruction: which strips to read, and with which coefficients the lost ones come back.
//!
//! What must stay true: a plan is computed once for a pattern of losses and then run on any number
//! of stripes, in one pass with no temporary strips; a plan that exists can be run. The generator
//! matrix guarantees that any k strips determine all others, so only the number of survivors
//! matters.

use ashlar_gf::{PARITY_MAX, STRIPS_MAX, Square, mul};

use crate::code::{Code, Locality, expect_count};
use crate::error::CodeError;
use crate::job::Job;
use crate::kernel::Kernel;
use crate::list::List;
use crate::pass::Verb;
use crate::rows::PARITY_ROWS;

/// A set of strips of a stripe: bit n is strip n, data strips first, then parity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StripMask(pub u64);

impl StripMask {
    /// The strips 0..count; all 64 when `count` is larger.
    #[must_use]
    pub const fn first(count: usize) -> StripMask {
        match count {
            0 => StripMask(0),
            1..STRIPS_MAX => StripMask(u64::MAX >> (STRIPS_MAX - count)),
            STRIPS_MAX.. => StripMask(u64::MAX),
        }
    }

    /// True when `strip` is in the set.
    #[must_use]
    pub const fn contains(self, strip: usize) -> bool {
        strip < STRIPS_MAX && self.0 >> strip & 1 == 1
    }

    /// Number of strips in the set.
    #[must_use]
    pub fn count(self) -> usize {
        self.iter().count()
    }

    /// The strips of the set, rising.
    pub fn iter(self) -> impl Iterator<Item = usize> + Clone {
        (0..STRIPS_MAX).filter(move |&strip| self.contains(strip))
    }

    /// This set and `strip`.
    ///
    /// # Panics
    /// When `strip` is not below 64.
    #[must_use]
    pub const fn with(self, strip: usize) -> StripMask {
        assert!(strip < STRIPS_MAX, "a stripe has at most 64 strips");
        StripMask(self.0 | 1 << strip)
    }

    /// This set without `strip`, if it was in it.
    #[must_use]
    pub const fn without(self, strip: usize) -> StripMask {
        if self.contains(strip) { StripMask(self.0 & !(1 << strip)) } else { self }
    }
}

impl From<u64> for StripMask {
    fn from(bits: u64) -> StripMask {
        StripMask(bits)
    }
}

/// How to produce some strips of a stripe from others: about 2 KiB, no allocation.
#[derive(Clone, Debug)]
pub struct DecodePlan {
    kernel: Kernel,
    sources: StripMask,
    wanted: StripMask,
    /// For each wanted strip, rising, the coefficient of each source, rising.
    rows: [[u8; STRIPS_MAX]; PARITY_MAX],
}

impl DecodePlan {
    /// A plan that produces the strips `wanted`, data or parity, from the first k of `survivors`. A
    /// strip may be in both sets and is then copied.
    ///
    /// # Errors
    /// [`CodeError::OutOfRange`] for a strip the code does not have, [`CodeError::TooFewSurvivors`]
    /// when there are fewer than k, [`CodeError::TooManyWanted`] for more than 32 strips.
    pub fn new(
        code: &Code,
        survivors: StripMask,
        wanted: StripMask,
    ) -> Result<DecodePlan, CodeError> {
        let strips = code.strips();
        let highest = STRIPS_MAX - lead(survivors.0 | wanted.0);
        if highest > strips {
            return Err(CodeError::OutOfRange { limit: strips, given: highest - 1 });
        }
        let needed = code.data_strips();
        if survivors.count() < needed {
            return Err(CodeError::TooFewSurvivors { needed, given: survivors.count() });
        }
        if wanted.count() > PARITY_MAX {
            return Err(CodeError::TooManyWanted { limit: PARITY_MAX, given: wanted.count() });
        }
        let basis = survivors.iter().take(needed).fold(StripMask(0), StripMask::with);
        let full = Expressions::in_terms_of(basis, needed);
        let mut rows = [[0; STRIPS_MAX]; PARITY_MAX];
        for (row, strip) in rows.iter_mut().zip(wanted.iter()) {
            *row = full.of_strip(strip);
        }
        let sources = keep_used(&mut rows[..wanted.count()], basis);
        Ok(DecodePlan { kernel: code.kernel(), sources, wanted, rows })
    }

    /// The strips this plan reads: those to hand to [`DecodePlan::run`].
    #[must_use]
    pub const fn sources(&self) -> StripMask {
        self.sources
    }

    /// The strips this plan produces.
    #[must_use]
    pub const fn wanted(&self) -> StripMask {
        self.wanted
    }

    /// Produces the wanted strips (or the same part of each) from the sources, both in rising order
    /// of strip.
    ///
    /// # Errors
    /// [`CodeError::WrongCount`] unless there is a slice for each strip of [`DecodePlan::sources`]
    /// and of [`DecodePlan::wanted`], [`CodeError::WrongLength`] unless all have one length.
    /// Nothing was written then.
    pub fn run(
        &self,
        sources: &[&[u8]],
        outputs: &mut [&mut [u8]],
        locality: Locality,
    ) -> Result<(), CodeError> {
        expect_count(self.sources.count(), sources.len())?;
        expect_count(self.wanted.count(), outputs.len())?;
        let mut job = Job::new(self.kernel, Verb::Generate, locality);
        for strip in sources {
            job.source(strip)?;
        }
        for (strip, row) in outputs.iter_mut().zip(&self.rows) {
            job.output(strip, row)?;
        }
        job.run();
        Ok(())
    }

    /// As [`DecodePlan::run`], and in the same pass copies each source to its entry in `copies`,
    /// `None` for those that are not copied: a degraded read hands out what survives together with
    /// what was lost.
    ///
    /// # Errors
    /// As for [`DecodePlan::run`]; `copies` has an entry for each source, and the copies have the
    /// length of all others.
    pub fn run_copying(
        &self,
        sources: &[&[u8]],
        copies: &mut [Option<&mut [u8]>],
        outputs: &mut [&mut [u8]],
        locality: Locality,
    ) -> Result<(), CodeError> {
        expect_count(self.sources.count(), sources.len())?;
        expect_count(self.sources.count(), copies.len())?;
        expect_count(self.wanted.count(), outputs.len())?;
        let mut job = Job::new(self.kernel, Verb::GenerateCopy, locality);
        for (strip, copy) in sources.iter().zip(copies) {
            job.copied_source(strip, copy.as_deref_mut())?;
        }
        for (strip, row) in outputs.iter_mut().zip(&self.rows) {
            job.output(strip, row)?;
        }
        job.run();
        Ok(())
    }
}

/// Leading zero bits, as an index.
fn lead(bits: u64) -> usize {
    (0..STRIPS_MAX).rev().take_while(|bit| bits >> bit & 1 == 0).count()
}

/// Drops the columns that are zero in every row; returns the strips of those that stay.
fn keep_used(rows: &mut [[u8; STRIPS_MAX]], basis: StripMask) -> StripMask {
    let mut kept = StripMask(0);
    let mut place = 0;
    for (column, strip) in basis.iter().enumerate() {
        if rows.iter().all(|row| row[column] == 0) {
            continue;
        }
        for row in rows.iter_mut() {
            row[place] = row[column];
        }
        place += 1;
        kept = kept.with(strip);
    }
    kept
}

/// Every data strip as a sum over a basis: k strips that determine the stripe.
struct Expressions {
    data_strips: usize,
    /// `rows[i][n]` is the coefficient of the n-th basis strip in data strip i.
    rows: [[u8; STRIPS_MAX]; STRIPS_MAX],
}

impl Expressions {
    /// With data strips L lost and parity strips B in the basis, for each b in B the sum over l in
    /// L of `PARITY_ROWS[b][l] * D_l` is known: `P_b` minus what the surviving data contribute.
    /// Inverting that small system gives each `D_l`.
    fn in_terms_of(basis: StripMask, data_strips: usize) -> Expressions {
        let mut rows = [[0; STRIPS_MAX]; STRIPS_MAX];
        let lost = Strips::of(StripMask(StripMask::first(data_strips).0 & !basis.0));
        let basis = Strips::of(basis);
        // Data strips have lower numbers, so they come first in the basis.
        let (data, parities) = basis.split_at(data_strips - lost.len());
        let inverse = invert_system(parities, &lost, data_strips);
        for (column, &strip) in data.iter().enumerate() {
            rows[strip][column] = 1;
        }
        for (n, &strip) in lost.iter().enumerate() {
            let row = &mut rows[strip];
            for (r, parity) in parities.iter().enumerate() {
                let factor = inverse.get(n, r);
                row[data.len() + r] = factor;
                for (column, &strip) in data.iter().enumerate() {
                    row[column] ^= mul(factor, PARITY_ROWS[parity - data_strips][strip]);
                }
            }
        }
        Expressions { data_strips, rows }
    }

    /// Strip `strip`, data or parity, as a sum over the basis.
    fn of_strip(&self, strip: usize) -> [u8; STRIPS_MAX] {
        let Some(parity) = strip.checked_sub(self.data_strips) else { return self.rows[strip] };
        let mut sum = [0; STRIPS_MAX];
        let rows = &self.rows[..self.data_strips];
        for (row, &coefficient) in rows.iter().zip(&PARITY_ROWS[parity]) {
            for (sum, &term) in sum.iter_mut().zip(&row[..self.data_strips]) {
                *sum ^= mul(coefficient, term);
            }
        }
        sum
    }
}

/// The inverse of the system that gives the `lost` data strips from as many `parities`.
fn invert_system(parities: &[usize], lost: &[usize], data_strips: usize) -> Square {
    let mut system = Square::identity(lost.len());
    for (r, parity) in parities.iter().enumerate() {
        for (c, &strip) in lost.iter().enumerate() {
            system.set(r, c, PARITY_ROWS[parity - data_strips][strip]);
        }
    }
    system.invert().expect("square submatrices of the generator are invertible")
}

/// The strips of a mask as a list.
struct Strips(List<usize, STRIPS_MAX>);

impl Strips {
    fn of(mask: StripMask) -> Strips {
        let mut list = List::new();
        for strip in mask.iter() {
            list.push_known(strip);
        }
        Strips(list)
    }
}

impl std::ops::Deref for Strips {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.0
    }
}
