//! Checking stored parity against data, and finding the strip that is wrong.
//!
//! What must stay true: a check writes nothing; the common case, all consistent, costs one pass
//! over the strips, and only when that finds a difference are rows (4 KiB each) looked at one by
//! one. What a check finds is only that strips disagree; which one is wrong follows only from two
//! or more syndromes (stored XOR computed parity), and only if exactly one strip is.

use ashlar_gf::{PARITY_MAX, div, mul};
use ashlar_units::STRIPS_MAX;

use crate::code::{Code, Locality, expect_count};
use crate::error::CodeError;
use crate::job::Job;
use crate::pass::Verb;
use crate::rows::PARITY_ROWS;

/// Bytes of a strip in one row: the unit in which a check reports.
pub const ROW_BYTES: usize = 4096;

/// Rows a check can report on: those of a strip of 1 MiB.
pub const ROWS_MAX: usize = 256;

/// A set of rows of a stripe, 0..256; row n is the bytes from n * 4096 of every strip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowMap([u64; ROWS_MAX / 64]);

impl RowMap {
    /// True when no row is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == RowMap::default()
    }

    /// True when `row` is in the set.
    #[must_use]
    pub fn contains(&self, row: usize) -> bool {
        self.0.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// The rows of the set, rising.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..ROWS_MAX).filter(|&row| self.contains(row))
    }

    fn insert(&mut self, row: usize) {
        self.0[row / 64] |= 1 << (row % 64);
    }
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    any: RowMap,
    by_parity: [RowMap; PARITY_MAX],
}

impl Verdict {
    fn consistent() -> Verdict {
        Verdict { any: RowMap::default(), by_parity: [RowMap::default(); PARITY_MAX] }
    }

    /// True when every parity strip given agrees with the data strips.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.any.is_empty()
    }

    /// The rows in which some parity strip disagrees.
    #[must_use]
    pub fn rows(&self) -> RowMap {
        self.any
    }

    /// The rows in which parity strip `parity` (0 is P) disagrees; empty for one that was not
    /// given.
    #[must_use]
    pub fn rows_of(&self, parity: usize) -> RowMap {
        self.by_parity.get(parity).copied().unwrap_or_default()
    }
}

impl Code {
    /// Compares stored parity with what the data strips say. A `None` is not compared.
    ///
    /// # Errors
    /// [`CodeError::WrongCount`], [`CodeError::WrongLength`], or [`CodeError::TooLong`] for strips
    /// of more than 256 rows.
    pub fn check(&self, data: &[&[u8]], parity: &[Option<&[u8]>]) -> Result<Verdict, CodeError> {
        self.check_from(data, parity, Locality::Cached)
    }

    /// As [`Code::check`], told where the strips are: `Streaming` prefetches what comes from
    /// memory.
    ///
    /// # Errors
    /// As for [`Code::check`].
    pub fn check_from(
        &self,
        data: &[&[u8]],
        parity: &[Option<&[u8]>],
        locality: Locality,
    ) -> Result<Verdict, CodeError> {
        let bytes = self.expect_checkable(data, parity)?;
        let mut verdict = Verdict::consistent();
        if self.part_differs(data, parity, 0..bytes, locality)? {
            for row in 0..bytes.div_ceil(ROW_BYTES) {
                self.find_row(data, parity, row, &mut verdict)?;
            }
        }
        Ok(verdict)
    }

    /// Which strip (0..k+m) is wrong in row `row`, if exactly one being wrong explains all
    /// syndromes of that row. `None` when the row is consistent, when no single strip explains it,
    /// or when fewer than two parity strips were given and so nothing can be told.
    ///
    /// # Errors
    /// As for [`Code::check`], and [`CodeError::OutOfRange`] for a row beyond the strips' end.
    pub fn locate(
        &self,
        data: &[&[u8]],
        parity: &[Option<&[u8]>],
        row: usize,
    ) -> Result<Option<usize>, CodeError> {
        let bytes = self.expect_stripe(data, &parity.iter().copied())?;
        if row >= bytes.div_ceil(ROW_BYTES) {
            return Err(CodeError::OutOfRange { limit: bytes.div_ceil(ROW_BYTES), given: row });
        }
        let mut suspects = Suspects::all(self.data_strips(), parity);
        if suspects.parity_count() < 2 {
            return Ok(None);
        }
        for at in row_range(row, bytes) {
            suspects.hear(at, data, parity);
        }
        Ok(suspects.verdict())
    }

    /// Notes which parity strips disagree in row `row`.
    fn find_row(
        &self,
        data: &[&[u8]],
        parity: &[Option<&[u8]>],
        row: usize,
        verdict: &mut Verdict,
    ) -> Result<(), CodeError> {
        let part = row_range(row, data.first().map_or(0, |strip| strip.len()));
        for (index, strip) in parity.iter().enumerate() {
            let mut only = [None; PARITY_MAX];
            only[index] = *strip;
            let only = &only[..parity.len()];
            if self.part_differs(data, only, part.clone(), Locality::Cached)? {
                verdict.by_parity[index].insert(row);
                verdict.any.insert(row);
            }
        }
        Ok(())
    }

    /// Whether any of `parity` disagrees within `part` of the strips.
    fn part_differs(
        &self,
        data: &[&[u8]],
        parity: &[Option<&[u8]>],
        part: std::ops::Range<usize>,
        locality: Locality,
    ) -> Result<bool, CodeError> {
        let mut job = Job::new(self.kernel(), Verb::Check, locality);
        for strip in data {
            job.source(&strip[part.clone()])?;
        }
        for (strip, row) in parity.iter().zip(&PARITY_ROWS) {
            if let Some(strip) = strip {
                job.expected(&strip[part.clone()], row)?;
            }
        }
        Ok(job.run())
    }

    /// As `expect_stripe`, and no longer than a verdict can map.
    fn expect_checkable(
        &self,
        data: &[&[u8]],
        parity: &[Option<&[u8]>],
    ) -> Result<usize, CodeError> {
        let bytes = self.expect_stripe(data, &parity.iter().copied())?;
        if bytes > ROWS_MAX * ROW_BYTES {
            return Err(CodeError::TooLong { limit: ROWS_MAX * ROW_BYTES, given: bytes });
        }
        Ok(bytes)
    }

    /// Counts and lengths are right; returns the length.
    pub(crate) fn expect_stripe<'a>(
        &self,
        data: &[&'a [u8]],
        parity: &(impl ExactSizeIterator<Item = Option<&'a [u8]>> + Clone),
    ) -> Result<usize, CodeError> {
        expect_count(self.data_strips(), data.len())?;
        expect_count(self.parity_strips(), parity.len())?;
        let expected = data[0].len();
        let mut all = data.iter().copied().chain(parity.clone().flatten());
        match all.find(|strip| strip.len() != expected) {
            Some(strip) => Err(CodeError::WrongLength { expected, given: strip.len() }),
            None => Ok(expected),
        }
    }
}

/// The bytes of `row` in strips of `bytes` bytes; the last row may be short.
fn row_range(row: usize, bytes: usize) -> std::ops::Range<usize> {
    row * ROW_BYTES..bytes.min((row + 1) * ROW_BYTES)
}

/// The strips that could still be the only wrong one. Byte by byte, from the definition: this runs
/// after damage was found, on one row.
struct Suspects {
    data_strips: usize,
    /// Bit n: strip n, if it alone were wrong, would explain everything heard so far.
    mask: u64,
    heard_difference: bool,
}

impl Suspects {
    fn all(data_strips: usize, parity: &[Option<&[u8]>]) -> Suspects {
        let mut mask = u64::MAX >> (STRIPS_MAX - data_strips);
        for (index, _) in parity.iter().enumerate().filter(|(_, strip)| strip.is_some()) {
            mask |= 1 << (data_strips + index);
        }
        Suspects { data_strips, mask, heard_difference: false }
    }

    fn parity_count(&self) -> u32 {
        self.mask.count_ones() - (u64::MAX >> (STRIPS_MAX - self.data_strips)).count_ones()
    }

    /// Strikes out those who cannot explain the syndromes of byte `at`.
    fn hear(&mut self, at: usize, data: &[&[u8]], parity: &[Option<&[u8]>]) {
        let mut syndromes = [None; PARITY_MAX];
        for ((syndrome, strip), row) in syndromes.iter_mut().zip(parity).zip(&PARITY_ROWS) {
            let computed = data.iter().zip(row).fold(0, |sum, (data, &c)| sum ^ mul(c, data[at]));
            *syndrome = strip.map(|strip| strip[at] ^ computed);
        }
        if syndromes.iter().flatten().all(|&syndrome| syndrome == 0) {
            return;
        }
        self.heard_difference = true;
        for strip in 0..STRIPS_MAX {
            if self.mask >> strip & 1 == 1 && !self.explains(strip, &syndromes) {
                self.mask &= !(1 << strip);
            }
        }
    }

    /// A wrong parity strip gives one syndrome and no other; a wrong data strip gives each parity
    /// its coefficient times the same error.
    fn explains(&self, strip: usize, syndromes: &[Option<u8>; PARITY_MAX]) -> bool {
        let mut given = syndromes.iter().enumerate().filter_map(|(j, s)| s.map(|s| (j, s)));
        if strip >= self.data_strips {
            return given.all(|(j, syndrome)| syndrome == 0 || j == strip - self.data_strips);
        }
        let mut errors = given.map(|(j, syndrome)| div(syndrome, PARITY_ROWS[j][strip]));
        let first = errors.next();
        errors.all(|error| Some(error) == first)
    }

    fn verdict(&self) -> Option<usize> {
        let one = self.heard_difference && self.mask.count_ones() == 1;
        one.then(|| (0..STRIPS_MAX).find(|strip| self.mask >> strip & 1 == 1)).flatten()
    }
}
