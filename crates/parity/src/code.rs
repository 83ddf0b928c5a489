//! A code and its verbs that write: generate, update.
//!
//! What must stay true: a code is only two counts and a kernel, so it can be copied about freely;
//! the coefficients are the rows of `ashlar_gf::PARITY_ROWS`, the same for every code.

use ashlar_gf::PARITY_MAX;
use ashlar_units::STRIPS_MAX;

use crate::error::CodeError;
use crate::job::Job;
use crate::kernel::Kernel;
use crate::list::List;
use crate::pass::Verb;
use crate::rows::PARITY_ROWS;

/// Where strips are and where results go next: the one thing about speed that only the caller
/// knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locality {
    /// Strips fit the cache, or the results are read again soon: plain stores.
    #[default]
    Cached,
    /// Strips come from memory and results go to devices: stores past the cache, and prefetch.
    /// Stores past the cache need outputs aligned to 64 bytes; others are stored plainly.
    Streaming,
}

/// A code: k data strips, m parity strips, and the kernel that computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    data_strips: usize,
    parity_strips: usize,
    kernel: Kernel,
}

/// New content for (part of) one data strip.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Index of the data strip, 0..k.
    pub column: usize,
    /// What the strip holds, and parity was computed from.
    pub old: &'a [u8],
    /// What the strip will hold.
    pub new: &'a [u8],
}

impl Code {
    /// A code of `data_strips` >= 1 and `parity_strips` >= 0; with no parity all verbs do nothing.
    ///
    /// # Errors
    /// [`CodeError::NoDataStrips`], or [`CodeError::TooManyStrips`] beyond 64 strips or 32 of
    /// parity.
    pub const fn new(
        data_strips: usize,
        parity_strips: usize,
        kernel: Kernel,
    ) -> Result<Code, CodeError> {
        if data_strips == 0 {
            return Err(CodeError::NoDataStrips);
        }
        if data_strips > STRIPS_MAX
            || parity_strips > PARITY_MAX
            || data_strips + parity_strips > STRIPS_MAX
        {
            return Err(CodeError::TooManyStrips { data: data_strips, parity: parity_strips });
        }
        Ok(Code { data_strips, parity_strips, kernel })
    }

    /// Number of data strips (k).
    #[must_use]
    pub const fn data_strips(&self) -> usize {
        self.data_strips
    }

    /// Number of parity strips (m), which is the number of losses the code survives.
    #[must_use]
    pub const fn parity_strips(&self) -> usize {
        self.parity_strips
    }

    /// Number of strips of a stripe (k + m).
    #[must_use]
    pub const fn strips(&self) -> usize {
        self.data_strips + self.parity_strips
    }

    /// The kernel that computes this code.
    #[must_use]
    pub const fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Computes the parity strips from all data strips. A `None` is not computed: its member is
    /// out.
    ///
    /// # Errors
    /// [`CodeError::WrongCount`] unless there are k and m entries, [`CodeError::WrongLength`]
    /// unless all strips have one length. Nothing was written then.
    pub fn generate(
        &self,
        data: &[&[u8]],
        parity: &mut [Option<&mut [u8]>],
        locality: Locality,
    ) -> Result<(), CodeError> {
        expect_count(self.data_strips, data.len())?;
        let mut job = Job::new(self.kernel, Verb::Generate, locality);
        for strip in data {
            job.source(strip)?;
        }
        self.add_parity(&mut job, parity)?;
        job.run();
        Ok(())
    }

    /// Brings parity up to date with `changes`, in one pass over the parity strips. All slices may
    /// be the same part of their strips: a row, or several. A column that occurs twice changes
    /// twice.
    ///
    /// # Errors
    /// [`CodeError::WrongCount`] unless parity has m entries and there are at most 64 changes,
    /// [`CodeError::OutOfRange`] for a column that is no data strip, [`CodeError::WrongLength`]
    /// unless all slices have one length. Nothing was written then.
    pub fn update(
        &self,
        changes: &[Change<'_>],
        parity: &mut [Option<&mut [u8]>],
        locality: Locality,
    ) -> Result<(), CodeError> {
        let mut rows: List<[u8; STRIPS_MAX], PARITY_MAX> = List::new();
        let mut job = Job::new(self.kernel, Verb::Update, locality);
        for change in changes {
            if change.column >= self.data_strips {
                let limit = self.data_strips;
                return Err(CodeError::OutOfRange { limit, given: change.column });
            }
            job.change(change.old, change.new)?;
        }
        expect_count(self.parity_strips, parity.len())?;
        let all = PARITY_ROWS.iter().zip(parity);
        if let [only] = changes {
            for (row, strip) in all {
                if let Some(strip) = strip {
                    job.output(strip, &row[only.column..=only.column])?;
                }
            }
            job.run();
            return Ok(());
        }
        for row in &PARITY_ROWS[..self.parity_strips] {
            let mut own = [0; STRIPS_MAX];
            for (coefficient, change) in own.iter_mut().zip(changes) {
                *coefficient = row[change.column];
            }
            rows.push_known(own);
        }
        for (row, (_, strip)) in rows.iter().zip(all) {
            if let Some(strip) = strip {
                job.output(strip, row)?;
            }
        }
        job.run();
        Ok(())
    }

    fn add_parity<'a>(
        &self,
        job: &mut Job<'a>,
        parity: &'a mut [Option<&mut [u8]>],
    ) -> Result<(), CodeError> {
        expect_count(self.parity_strips, parity.len())?;
        for (strip, row) in parity.iter_mut().zip(&PARITY_ROWS) {
            if let Some(strip) = strip {
                job.output(strip, row)?;
            }
        }
        Ok(())
    }
}

/// A list of strips has exactly as many entries as the stripe has strips of that kind.
pub(crate) const fn expect_count(expected: usize, given: usize) -> Result<(), CodeError> {
    if given == expected { Ok(()) } else { Err(CodeError::WrongCount { expected, given }) }
}
