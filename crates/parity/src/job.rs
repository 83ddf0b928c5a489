//! From slices to passes: the one place where strips become pointers.
//!
//! What must stay true: a pointer enters a [`Job`] only from a slice borrowed for the job's whole
//! life and of exactly the job's length, mutable if it will be written; so a pass made here always
//! satisfies the contract of `Pass`. Backends see multiples of 64 bytes; the rest of a strip is
//! done in a small zero-padded copy on the stack (zeros have no effect on any sum).

use std::marker::PhantomData;

use ashlar_gf::PARITY_MAX;
use ashlar_units::STRIPS_MAX;

use crate::backend::fence_streamed;
use crate::code::Locality;
use crate::error::CodeError;
use crate::groups::Groups;
use crate::kernel::Kernel;
use crate::list::List;
use crate::pass::{GRAIN, Pass, Verb};

/// When the rows need several passes, the bytes of each strip done before the next pass reads them
/// again, so that it finds them in the cache.
const TILE_BYTES: usize = 4096;

const _: () = assert!(TILE_BYTES.is_multiple_of(GRAIN));

/// Sources, outputs and coefficients of one call.
pub(crate) struct Job<'a> {
    kernel: Kernel,
    verb: Verb,
    locality: Locality,
    bytes: Option<usize>,
    sources: List<*const u8, STRIPS_MAX>,
    companions: List<*const u8, STRIPS_MAX>,
    outputs: List<*mut u8, PARITY_MAX>,
    rows: List<&'a [u8], PARITY_MAX>,
    strips: PhantomData<(&'a [u8], &'a mut [u8])>,
}

impl<'a> Job<'a> {
    pub(crate) fn new(kernel: Kernel, verb: Verb, locality: Locality) -> Job<'a> {
        Job {
            kernel,
            verb,
            locality,
            bytes: None,
            sources: List::new(),
            companions: List::new(),
            outputs: List::new(),
            rows: List::new(),
            strips: PhantomData,
        }
    }

    /// Adds a source of a `Generate` or `Check` job.
    pub(crate) fn source(&mut self, strip: &'a [u8]) -> Result<(), CodeError> {
        assert!(matches!(self.verb, Verb::Generate | Verb::Check), "source without a companion");
        self.length(strip.len())?;
        self.sources.push(strip.as_ptr())
    }

    /// Adds a source of an `Update` job: what the strip held and what it will hold.
    pub(crate) fn change(&mut self, old: &'a [u8], new: &'a [u8]) -> Result<(), CodeError> {
        assert!(self.verb == Verb::Update, "a change outside an update");
        self.length(old.len())?;
        self.length(new.len())?;
        self.companions.push(new.as_ptr())?;
        self.sources.push(old.as_ptr())
    }

    /// Adds an output, and the coefficient of each source in it.
    pub(crate) fn output(&mut self, strip: &'a mut [u8], row: &'a [u8]) -> Result<(), CodeError> {
        assert!(self.verb != Verb::Check, "a check writes nothing");
        self.length(strip.len())?;
        self.rows.push(row)?;
        self.outputs.push(strip.as_mut_ptr())
    }

    /// Adds a strip to be compared by a `Check` job, and the coefficient of each source in it.
    pub(crate) fn expected(&mut self, strip: &'a [u8], row: &'a [u8]) -> Result<(), CodeError> {
        assert!(self.verb == Verb::Check, "only a check compares");
        self.length(strip.len())?;
        self.rows.push(row)?;
        self.outputs.push(strip.as_ptr().cast_mut())
    }

    /// Does it; true when a check found a difference.
    pub(crate) fn run(&mut self) -> bool {
        let bytes = self.bytes.unwrap_or(0);
        if bytes == 0 || self.outputs.is_empty() || self.sources.is_empty() {
            return false;
        }
        let columns = self.sources.len();
        assert!(self.rows.iter().all(|row| row.len() >= columns), "a source without coefficient");
        let tail = bytes % GRAIN;
        let whole = bytes - tail;
        let mut groups = Groups::none();
        groups.add_rows(&mut self.outputs, &mut self.rows, columns);
        let mut differs = self.run_whole(&groups, whole);
        if tail != 0 {
            differs |= self.run_tail(&groups, whole, tail);
        }
        differs
    }

    /// All strips of one job have the length of the first.
    fn length(&mut self, given: usize) -> Result<(), CodeError> {
        let expected = *self.bytes.get_or_insert(given);
        if given == expected { Ok(()) } else { Err(CodeError::WrongLength { expected, given }) }
    }

    fn run_whole(&self, groups: &Groups, whole: usize) -> bool {
        let streaming = self.locality == Locality::Streaming && self.written_is_aligned();
        let tile = if groups.shapes().len() > 1 { TILE_BYTES } else { whole };
        let mut differs = false;
        let mut start = 0;
        while start < whole {
            let bytes = tile.min(whole - start);
            // SAFETY: the range is a multiple of 64 bytes inside every strip, alignment was looked
            // at.
            differs |= unsafe { self.run_groups(groups, start, bytes, streaming) };
            start += bytes;
        }
        if streaming && self.verb != Verb::Check {
            fence_streamed();
        }
        differs
    }

    /// One pass for each group over the same range.
    ///
    /// # Safety
    /// `start..start + bytes` lies within every strip, both are multiples of [`GRAIN`], and
    /// `streaming` only if everything written is aligned to it.
    unsafe fn run_groups(
        &self,
        groups: &Groups,
        start: usize,
        bytes: usize,
        streaming: bool,
    ) -> bool {
        let mut differs = false;
        let mut first_row = 0;
        for shape in groups.shapes() {
            let rows = first_row..first_row + shape.row_count();
            first_row = rows.end;
            let pass = Pass {
                verb: self.verb,
                shape: *shape,
                streaming,
                sources: &self.sources,
                companions: &self.companions,
                outputs: &self.outputs[rows.clone()],
                rows: &self.rows[rows],
                start,
                bytes,
            };
            // SAFETY: pointers are from slices of the job's length, borrowed for its life, mutable
            // where written (`source`, `output` and the others); the caller guarantees range and
            // alignment.
            differs |= unsafe { self.kernel.run(&pass) };
        }
        differs
    }

    /// Streaming stores need aligned addresses; other outputs are stored normally.
    fn written_is_aligned(&self) -> bool {
        if self.verb == Verb::Check {
            return true;
        }
        self.outputs.iter().all(|strip| strip.addr().is_multiple_of(GRAIN))
    }

    /// The last `tail` bytes of every strip, through zero-padded copies.
    fn run_tail(&self, groups: &Groups, start: usize, tail: usize) -> bool {
        let mut sources = [[0; GRAIN]; STRIPS_MAX];
        let mut companions = [[0; GRAIN]; STRIPS_MAX];
        let mut outputs = [[0; GRAIN]; PARITY_MAX];
        let mut padded = Job::new(self.kernel, self.verb, Locality::Cached);
        for row in self.rows.iter() {
            padded.rows.push_known(row);
        }
        for (strip, copy) in self.sources.iter().zip(&mut sources) {
            // SAFETY: the strip has `start + tail` readable bytes and `tail` is less than the
            // copy's 64.
            unsafe { fill(*strip, start, &mut copy[..tail]) };
            padded.sources.push_known(copy.as_ptr());
        }
        for (strip, copy) in self.companions.iter().zip(&mut companions) {
            // SAFETY: as above.
            unsafe { fill(*strip, start, &mut copy[..tail]) };
            padded.companions.push_known(copy.as_ptr());
        }
        for (strip, copy) in self.outputs.iter().zip(&mut outputs) {
            // SAFETY: as above.
            unsafe { fill(*strip, start, &mut copy[..tail]) };
            padded.outputs.push_known(copy.as_mut_ptr());
        }
        // SAFETY: all pointers are to different live arrays of 64 bytes; nothing is streamed.
        let differs = unsafe { padded.run_groups(groups, 0, GRAIN, false) };
        if self.verb != Verb::Check {
            for (strip, copy) in self.outputs.iter().zip(&outputs) {
                // SAFETY: outputs of a job that is no check came from mutable slices this long.
                unsafe { drain(&copy[..tail], *strip, start) };
            }
        }
        differs
    }
}

/// # Safety
/// `strip + start` can be read for the length of `target`.
unsafe fn fill(strip: *const u8, start: usize, target: &mut [u8]) {
    // SAFETY: the caller guarantees that `start` is inside the strip.
    let from = unsafe { strip.add(start) };
    // SAFETY: the caller guarantees the source; `target` is a slice of its own.
    unsafe { std::ptr::copy_nonoverlapping(from, target.as_mut_ptr(), target.len()) };
}

/// # Safety
/// `strip + start` can be written for the length of `source`.
unsafe fn drain(source: &[u8], strip: *mut u8, start: usize) {
    // SAFETY: the caller guarantees that `start` is inside the strip.
    let to = unsafe { strip.add(start) };
    // SAFETY: the caller guarantees the target; `source` is a slice of its own.
    unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), to, source.len()) };
}
