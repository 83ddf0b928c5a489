//! CRC-32C of every row of every strip, computed with its parity.
//!
//! What must stay true: the sums are those of the bytes that were written (or, in a check, read), 4
//! KiB at a time, in strip order and then row order. Strips that come from memory are done row by
//! row: parity of one row, then the sums of its blocks, which the cache still holds; that spares a
//! second trip to memory. Strips that are in the cache gain nothing from it and are done whole
//! (docs/notes/kernels-tried.md has both figures).

use std::ops::Range;

use crc_fast::crc32_iscsi;

use crate::check::{ROW_BYTES, Verdict};
use crate::code::{Code, Locality, expect_count};
use crate::error::CodeError;
use crate::job::Job;
use crate::pass::Verb;
use crate::rows::PARITY_ROWS;

/// What [`Code::generate_copy_summed`] writes.
#[derive(Debug)]
pub struct Summed<'a, 'b> {
    /// A copy for each data strip.
    pub copies: &'a mut [&'b mut [u8]],
    /// The parity strips; a `None` is not computed and its sums stay as they were.
    pub parity: &'a mut [Option<&'b mut [u8]>],
    /// CRC-32C of row r of strip s at `s * rows + r`, with `rows` the strips' length in rows of 4
    /// KiB, rounded up. The last row may be short.
    pub sums: &'a mut [u32],
}

impl Code {
    /// As [`Code::generate_copy`], and the CRC-32C (Castagnoli) of each row of 4 KiB of each strip.
    /// Parity strips stay in the cache even when `Streaming`.
    ///
    /// # Errors
    /// As for [`Code::generate_copy`]; `sums` has k + m entries for each row. Nothing was written
    /// then.
    pub fn generate_copy_summed(
        &self,
        data: &[&[u8]],
        out: Summed<'_, '_>,
        locality: Locality,
    ) -> Result<(), CodeError> {
        let Summed { copies, parity, sums } = out;
        expect_count(self.data_strips(), copies.len())?;
        let bytes = self.expect_stripe(data, &parity.iter().map(Option::as_deref))?;
        if let Some(copy) = copies.iter().find(|copy| copy.len() != bytes) {
            return Err(CodeError::WrongLength { expected: bytes, given: copy.len() });
        }
        let rows = self.expect_sums(bytes, sums)?;
        for turn in turns(rows, locality) {
            let part = bytes_of(&turn, bytes);
            let mut job = Job::new(self.kernel(), Verb::GenerateCopy, locality);
            job.keep_outputs();
            for (strip, copy) in data.iter().zip(copies.iter_mut()) {
                job.copied_source(&strip[part.clone()], Some(&mut copy[part.clone()]))?;
            }
            for (strip, row) in parity.iter_mut().zip(&PARITY_ROWS) {
                if let Some(strip) = strip {
                    job.output(&mut strip[part.clone()], row)?;
                }
            }
            job.run();
            let strips = data.iter().map(|strip| Some(*strip));
            let all = strips.chain(parity.iter().map(Option::as_deref));
            sum_rows(all, &turn, sums, rows);
        }
        Ok(())
    }

    /// As [`Code::check`], and the CRC-32C of each row of 4 KiB of each strip given, wherever
    /// parity agrees or not; `sums` is laid out as in [`Summed::sums`].
    ///
    /// # Errors
    /// As for [`Code::check`], and [`CodeError::WrongCount`] unless `sums` has k + m entries for
    /// each row.
    pub fn check_summed(
        &self,
        data: &[&[u8]],
        parity: &[Option<&[u8]>],
        sums: &mut [u32],
        locality: Locality,
    ) -> Result<Verdict, CodeError> {
        let bytes = self.expect_checkable(data, parity)?;
        let rows = self.expect_sums(bytes, sums)?;
        let mut verdict = Verdict::consistent();
        for turn in turns(rows, locality) {
            if self.part_differs(data, parity, bytes_of(&turn, bytes), locality)? {
                for row in turn.clone() {
                    self.find_row(data, parity, row, &mut verdict)?;
                }
            }
            let strips = data.iter().map(|strip| Some(*strip)).chain(parity.iter().copied());
            sum_rows(strips, &turn, sums, rows);
        }
        Ok(verdict)
    }

    /// There are as many sums as blocks; returns the rows.
    fn expect_sums(&self, bytes: usize, sums: &[u32]) -> Result<usize, CodeError> {
        let rows = bytes.div_ceil(ROW_BYTES);
        expect_count(self.strips() * rows, sums.len())?;
        Ok(rows)
    }
}

/// The rows to do together: each alone, or all at once.
fn turns(rows: usize, locality: Locality) -> impl Iterator<Item = Range<usize>> {
    let step = if locality == Locality::Streaming { 1 } else { rows.max(1) };
    (0..rows).step_by(step).map(move |row| row..rows.min(row + step))
}

fn bytes_of(turn: &Range<usize>, bytes: usize) -> Range<usize> {
    turn.start * ROW_BYTES..bytes.min(turn.end * ROW_BYTES)
}

/// The sums of the rows of `turn`, of each strip that is there; a strip has `rows` of them.
fn sum_rows<'a>(
    strips: impl Iterator<Item = Option<&'a [u8]>>,
    turn: &Range<usize>,
    sums: &mut [u32],
    rows: usize,
) {
    for (strip, sums) in strips.zip(sums.chunks_exact_mut(rows)) {
        let Some(strip) = strip else { continue };
        let part = &strip[bytes_of(turn, strip.len())];
        for (row, sum) in part.chunks(ROW_BYTES).zip(&mut sums[turn.clone()]) {
            *sum = crc32_iscsi(row);
        }
    }
}
