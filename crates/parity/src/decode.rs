//! Reconstruction: which strips to read, and with which coefficients the lost ones come back.
//!
//! What must stay true: a plan is computed once for a pattern of losses and then run on any number
//! of stripes, in one pass with no temporary strips; a plan that exists can be run. The generator
//! matrix guarantees that any k strips determine all others, so only the number of survivors
//! matters.

use ashlar_gf::{PARITY_MAX, Square, mul};
use ashlar_units::{STRIPS_MAX, StripSet};

use crate::code::{Code, Locality, expect_count};
use crate::error::CodeError;
use crate::job::Job;
use crate::kernel::Kernel;
use crate::list::List;
use crate::pass::Verb;
use crate::rows::PARITY_ROWS;

/// How to produce some strips of a stripe from others: about 2 KiB, no allocation.
#[derive(Clone, Debug)]
pub struct DecodePlan {
    kernel: Kernel,
    sources: StripSet,
    wanted: StripSet,
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
        survivors: StripSet,
        wanted: StripSet,
    ) -> Result<DecodePlan, CodeError> {
        let strips = code.strips();
        let highest = survivors.or(wanted).iter().last().map_or(0, |strip| strip.at() + 1);
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
        let basis = survivors.lowest(needed);
        let full = Expressions::in_terms_of(basis, needed);
        let mut rows = [[0; STRIPS_MAX]; PARITY_MAX];
        for (row, strip) in rows.iter_mut().zip(wanted.iter()) {
            *row = full.of_strip(strip.at());
        }
        let sources = keep_used(&mut rows[..wanted.count()], basis);
        Ok(DecodePlan { kernel: code.kernel(), sources, wanted, rows })
    }

    /// The strips this plan reads: those to hand to [`DecodePlan::run`].
    #[must_use]
    pub const fn sources(&self) -> StripSet {
        self.sources
    }

    /// The strips this plan produces.
    #[must_use]
    pub const fn wanted(&self) -> StripSet {
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
}

/// Drops the columns that are zero in every row; returns the strips of those that stay.
fn keep_used(rows: &mut [[u8; STRIPS_MAX]], basis: StripSet) -> StripSet {
    let mut kept = StripSet::EMPTY;
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
    fn in_terms_of(basis: StripSet, data_strips: usize) -> Expressions {
        let mut rows = [[0; STRIPS_MAX]; STRIPS_MAX];
        let lost = Strips::of(StripSet::first(data_strips).minus(basis));
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

/// The strips of a set as a list.
struct Strips(List<usize, STRIPS_MAX>);

impl Strips {
    fn of(set: StripSet) -> Strips {
        let mut list = List::new();
        for strip in set.iter() {
            list.push_known(strip.at());
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
