//! The loops, once for every backend.
//!
//! What must stay true: all of it is inlined into [`Lanes::enter`]; a function here that were not
//! would run without the target feature and be slow. Sources are walked from the highest column to
//! column 0, two at a time, several vectors of one source before the next: that keeps the number of
//! streams that are touched at once low, which matters when strips collide in a cache set.
//!
//! In pseudo-code, for each block of `unroll` vectors:
//!
//! ```text
//! p = q = r[..] = 0
//! for columns a, b from the top, in pairs:
//!     p ^= a ^ b;   q = 4 q ^ 2 a ^ b;   r[n] ^= a * factor[n][a] ^ b * factor[n][b]
//! put p, q, r[..] where the verb says
//! ```

use std::marker::PhantomData;

use ashlar_units::STRIPS_MAX;

use super::lanes::Lanes;
use crate::pass::Pass;

/// Most vectors of one source that are handled together.
const UNROLL_MAX: usize = 6;

/// How far ahead of its loads a pass prefetches, if it does, into all cache levels: the
/// non-temporal hint halves the speed on Emerald Rapids as soon as results are streamed too
/// (docs/notes/kernels-tried.md).
const PREFETCH_BYTES: usize = 320;

/// P and Q of so many sources prefetch in the cache too, where the backend says so. P+Q in L2 by
/// AVX2 on Zen 4, against no prefetch: 4 sources 0.93, 8 1.00, 10 1.08, 16 1.2, 20 1.3.
const PREFETCH_SOURCES_MIN: usize = 10;

/// Bytes of a cache line. A streamed line must be written in one go: with 16 of its 64 bytes at a
/// time and other streams in between, it leaves the write-combining buffer in parts, ten times
/// slower.
const LINE_BYTES: usize = 64;

/// The longest block of most loops: what is left over is done row by row (`dispatch`).
pub(super) const BLOCK_BYTES: usize = 4 * LINE_BYTES;

/// How the bytes of a source are had, and what becomes of a sum.
pub(crate) trait Action {
    /// Whether results are stored past the cache.
    const STREAM: bool;

    /// The vector at `at` of `source`, which is source `column`.
    ///
    /// # Safety
    /// The contract of [`Pass`]; `at` and the vector after it are inside it.
    unsafe fn fetch<L: Lanes>(
        lanes: L,
        pass: &Pass<'_>,
        column: usize,
        source: *const u8,
        at: usize,
    ) -> L::Vector;

    /// Puts `sum` where output `place` is, or compares; returns `differs` with any difference
    /// added.
    ///
    /// # Safety
    /// The contract of [`Pass`]; `place` and the vector at it are inside one of its outputs.
    unsafe fn put<L: Lanes>(
        lanes: L,
        place: *mut u8,
        sum: L::Vector,
        differs: L::Vector,
    ) -> L::Vector;
}

/// Outputs become the sums.
pub(super) struct Generate<const STREAM: bool>;

impl<const STREAM: bool> Action for Generate<STREAM> {
    const STREAM: bool = STREAM;

    #[inline(always)]
    unsafe fn fetch<L: Lanes>(
        lanes: L,
        _pass: &Pass<'_>,
        _column: usize,
        source: *const u8,
        at: usize,
    ) -> L::Vector {
        // SAFETY: the vector at `at` is inside the source.
        unsafe { lanes.load(source.wrapping_add(at)) }
    }

    #[inline(always)]
    unsafe fn put<L: Lanes>(
        lanes: L,
        place: *mut u8,
        sum: L::Vector,
        differs: L::Vector,
    ) -> L::Vector {
        if STREAM {
            // SAFETY: a streaming pass has aligned outputs, and every vector offset divides 64.
            unsafe { lanes.stream(place, sum) };
        } else {
            // SAFETY: the output can be written at `place`.
            unsafe { lanes.store(place, sum) };
        }
        differs
    }
}

/// Outputs are read, not written; a streaming check prefetches its sources.
pub(super) struct Check<const STREAM: bool>;

impl<const STREAM: bool> Action for Check<STREAM> {
    const STREAM: bool = STREAM;

    #[inline(always)]
    unsafe fn fetch<L: Lanes>(
        lanes: L,
        pass: &Pass<'_>,
        column: usize,
        source: *const u8,
        at: usize,
    ) -> L::Vector {
        // SAFETY: the same contract.
        unsafe { Generate::<STREAM>::fetch(lanes, pass, column, source, at) }
    }

    #[inline(always)]
    unsafe fn put<L: Lanes>(
        lanes: L,
        place: *mut u8,
        sum: L::Vector,
        differs: L::Vector,
    ) -> L::Vector {
        // SAFETY: outputs of a check can be read.
        let stored = unsafe { lanes.load(place) };
        lanes.or(differs, lanes.xor(stored, sum))
    }
}

/// Sources are old XOR new, sums are added to the outputs.
pub(super) struct Update<const STREAM: bool>;

impl<const STREAM: bool> Action for Update<STREAM> {
    const STREAM: bool = STREAM;

    #[inline(always)]
    unsafe fn fetch<L: Lanes>(
        lanes: L,
        pass: &Pass<'_>,
        column: usize,
        source: *const u8,
        at: usize,
    ) -> L::Vector {
        // SAFETY: the same contract.
        let old = unsafe { Generate::<STREAM>::fetch(lanes, pass, column, source, at) };
        // SAFETY: there is a companion for each source.
        let new = *unsafe { pass.companions.get_unchecked(column) };
        // SAFETY: companions of an update can be read, and `at` is inside this one.
        lanes.xor(old, unsafe { lanes.load(new.wrapping_add(at)) })
    }

    #[inline(always)]
    unsafe fn put<L: Lanes>(
        lanes: L,
        place: *mut u8,
        sum: L::Vector,
        differs: L::Vector,
    ) -> L::Vector {
        // SAFETY: outputs can be read for every verb.
        let stored = unsafe { lanes.load(place) };
        // SAFETY: the same contract.
        unsafe { Generate::<STREAM>::put(lanes, place, lanes.xor(stored, sum), differs) }
    }
}

/// The body once for each number, written out: the compiler would make a loop of it again.
macro_rules! for_each_pair {
    ([$($number:literal),+], |$above:ident| $body:block) => {
        $({
            let $above = $number;
            $body
        })+
    };
}

/// The sums of one block, as many vectors each as the block is wide.
struct Sums<L: Lanes, const REST: usize> {
    p: [L::Vector; UNROLL_MAX],
    q: [L::Vector; UNROLL_MAX],
    rest: [[L::Vector; UNROLL_MAX]; REST],
}

/// One backend, one verb, one shape: what the loops below are compiled for.
struct Loop<'a, L: Lanes, A, const XOR: bool, const HORNER: bool, const REST: usize> {
    lanes: L,
    pass: &'a Pass<'a>,
    /// Borrowed: moved in, a thousand bytes of them would be copied.
    factors: &'a [[L::Prepared; STRIPS_MAX]; REST],
    /// Every row has coefficient 1 for column 0, as all parity rows do: nothing to multiply there.
    first_is_plain: bool,
    /// Those of the top source, in registers where there are enough.
    top: [L::Factor; REST],
    /// Prefetch in the cache.
    ahead: bool,
    action: PhantomData<A>,
}

/// The pointers of a pass with one source, where no store can change them for all the compiler
/// knows.
struct OwnPointers<const ROWS: usize> {
    source: [*const u8; 1],
    companion: [*const u8; 1],
    outputs: [*mut u8; ROWS],
}

impl<const ROWS: usize> OwnPointers<ROWS> {
    #[inline(always)]
    fn of(pass: &Pass<'_>) -> Self {
        let source = pass.sources[0];
        let mut outputs = [std::ptr::null_mut(); ROWS];
        outputs.copy_from_slice(&pass.outputs[..ROWS]);
        let companion = [pass.companions.first().copied().unwrap_or(source)];
        OwnPointers { source: [source], companion, outputs }
    }
}

/// The whole pass. Called by [`Lanes::enter`] only.
///
/// # Safety
/// The contract of [`Pass`]; its shape is the one the constants name, and its length is a multiple
/// of [`BLOCK_BYTES`] unless that is one row of any coefficients.
#[inline(always)]
pub(crate) unsafe fn pass_loop<L, A, const XOR: bool, const HORNER: bool, const REST: usize>(
    lanes: L,
    pass: &Pass<'_>,
) -> bool
where
    L: Lanes,
    A: Action,
{
    let first_row = pass.outputs.len() - REST;
    let wide = const { unroll::<L, A>(XOR as usize + HORNER as usize + REST, REST) };
    // What whole turns leave over: a line after six vectors; for one row of any coefficients, which
    // is also what is left over by other loops (see `dispatch`), a vector.
    let narrow = const { if !XOR && REST == 1 { 1 } else { LINE_BYTES / L::BYTES } };
    let action = PhantomData;
    let end = pass.start + pass.bytes;
    let mut differs = lanes.zero();
    let mut at = pass.start;
    // P and others of a stripe of which one strip changes: P is not multiplied, the factors of the
    // others and all pointers stay in registers.
    let is_lone = const { !XOR && REST > 1 } && pass.sources.len() == 1;
    if is_lone && pass.rows[first_row][0] == 1 {
        let own = OwnPointers::<REST>::of(pass);
        let pass = &Pass {
            sources: &own.source,
            companions: &own.companion,
            outputs: &own.outputs,
            ..*pass
        };
        let factors = &[[lanes.prepare(0); STRIPS_MAX]; REST];
        let mut top = [lanes.factor(lanes.prepare(0)); REST];
        for (factor, row) in top.iter_mut().zip(pass.rows) {
            *factor = lanes.factor(lanes.prepare(row[0]));
        }
        let (first_is_plain, ahead) = (true, false);
        let this = Loop::<L, A, XOR, HORNER, REST> {
            lanes,
            pass,
            factors,
            first_is_plain,
            top,
            ahead,
            action,
        };
        // One row of two is copied, so four vectors of each fit into 16 registers.
        let wide = if REST == 2 { 4 } else { wide };
        while at < end {
            // SAFETY: `wide` vectors from `at` are inside the pass: its length is whole blocks.
            differs = unsafe { this.block::<true>(at, wide, differs) };
            at += wide * L::BYTES;
        }
        return !lanes.is_zero(differs);
    }
    let factors = &prepare_factors::<L, REST>(lanes, pass, first_row);
    let first_is_plain = REST > 0 && pass.rows[first_row..].iter().all(|row| row[0] == 1);
    let last = pass.sources.len() - 1;
    let top = factors.each_ref().map(|factors| lanes.factor(factors[last]));
    let ahead = const { REST == 0 && L::PREFETCHES_IN_CACHE } && last + 1 >= PREFETCH_SOURCES_MIN;
    let this = Loop::<L, A, XOR, HORNER, REST> {
        lanes,
        pass,
        factors,
        first_is_plain,
        top,
        ahead,
        action,
    };
    while at + wide * L::BYTES <= end {
        // SAFETY: `wide` vectors from `at` are inside the pass.
        differs = unsafe { this.block::<false>(at, wide, differs) };
        at += wide * L::BYTES;
    }
    while const { (!XOR && REST == 1) || (HORNER && REST == 0 && L::PARITY_VECTORS == 6) }
        && at < end
    {
        // SAFETY: the length is a multiple of 64, so of a vector and of a line.
        differs = unsafe { this.block::<false>(at, narrow, differs) };
        at += narrow * L::BYTES;
    }
    debug_assert!(at == end, "bytes that no block covers");
    !lanes.is_zero(differs)
}

/// Vectors of one source to handle together: the sums of all rows, two sources and some factors
/// must stay in registers. With 16 of them P and Q alone gain from four vectors (check on AVX2 37
/// to 43 % of the ceiling), and rows that multiply lose as much. From memory they gain from one
/// line (docs/notes/kernels-tried.md).
const fn unroll<L: Lanes, A: Action>(rows: usize, multiplied_rows: usize) -> usize {
    let wide = match (L::REGISTERS, rows, multiplied_rows) {
        (16.., _, 0) if A::STREAM => 1,
        (16.., 2, 0) => L::PARITY_VECTORS,
        (32.., 1..=3, _) | (16..32, _, 0) => 4,
        (32.., _, _) | (16..32, 1..=2, _) => 2,
        _ => 1,
    };
    if A::STREAM && wide * L::BYTES < LINE_BYTES { LINE_BYTES / L::BYTES } else { wide }
}

/// The coefficients of the rows after `first_row`, in the form the instructions want.
#[inline(always)]
fn prepare_factors<L: Lanes, const REST: usize>(
    lanes: L,
    pass: &Pass<'_>,
    first_row: usize,
) -> [[L::Prepared; STRIPS_MAX]; REST] {
    let mut factors = [[lanes.prepare(0); STRIPS_MAX]; REST];
    for (factors, row) in factors.iter_mut().zip(&pass.rows[first_row..]) {
        for (factor, &coefficient) in factors.iter_mut().zip(&row[..pass.sources.len()]) {
            *factor = lanes.prepare(coefficient);
        }
    }
    factors
}

impl<L, A, const XOR: bool, const HORNER: bool, const REST: usize> Loop<'_, L, A, XOR, HORNER, REST>
where
    L: Lanes,
    A: Action,
{
    /// One block: `wide` vectors from `at`, of every source. `LONE`: there is one source, and the
    /// first row has coefficient 1 for it.
    ///
    /// # Safety
    /// `wide` is at most [`UNROLL_MAX`], and that many vectors from `at` are inside the pass.
    #[inline(always)]
    unsafe fn block<const LONE: bool>(
        &self,
        at: usize,
        wide: usize,
        differs: L::Vector,
    ) -> L::Vector {
        let zeros = [self.lanes.zero(); UNROLL_MAX];
        let mut sums = Sums::<L, REST> { p: zeros, q: zeros, rest: [zeros; REST] };
        let mut column = if LONE { 1 } else { self.pass.sources.len() };
        if column % 2 == 1 {
            column -= 1;
            // SAFETY: `column` is the last source.
            let a = unsafe { self.fetch(column, at, wide) };
            self.add_one::<LONE>(&mut sums, &a, wide);
        } else if HORNER {
            sums.q[..wide].fill(self.lanes.horner_start(self.lanes.zero()));
        }
        // A cheap loop waits for its loads: written out, each load instruction serves few strips,
        // and the CPU sees where each of them goes. Worth up to a tenth with 10 and 16 strips in
        // L2; from memory, with one line a turn, a fifth.
        let is_written_out = const { REST == 0 && L::REGISTERS >= if A::STREAM { 16 } else { 32 } };
        while is_written_out && wide * L::BYTES >= LINE_BYTES && column >= 8 {
            column -= 8;
            for_each_pair!([6, 4, 2, 0], |above| {
                // SAFETY: 8 columns from `column` are sources.
                unsafe { self.fetch_and_add_two(&mut sums, column + above, at, wide) };
            });
        }
        if is_written_out && wide * L::BYTES >= LINE_BYTES && column >= 4 {
            column -= 4;
            for_each_pair!([2, 0], |above| {
                // SAFETY: 4 columns from `column` are sources.
                unsafe { self.fetch_and_add_two(&mut sums, column + above, at, wide) };
            });
        }
        while column > 0 {
            column -= 2;
            // SAFETY: `column` was at least 2, so both are sources.
            unsafe { self.fetch_and_add_two(&mut sums, column, at, wide) };
        }
        // SAFETY: the block is inside the pass.
        unsafe { self.put(&sums, at, wide, differs) }
    }

    /// # Safety
    /// As for `block`, and `column` and `column + 1` are sources.
    #[inline(always)]
    unsafe fn fetch_and_add_two(
        &self,
        sums: &mut Sums<L, REST>,
        column: usize,
        at: usize,
        wide: usize,
    ) {
        // SAFETY: both columns are sources.
        let a = unsafe { self.fetch(column + 1, at, wide) };
        // SAFETY: as above.
        let b = unsafe { self.fetch(column, at, wide) };
        if REST > 0 && wide > 1 && column == 0 && self.first_is_plain {
            self.add_first_two(sums, [&a, &b], wide);
        } else {
            self.add_two(sums, column, [&a, &b], wide);
        }
    }

    /// # Safety
    /// As for `block`, and `column` is a source.
    #[inline(always)]
    unsafe fn fetch(&self, column: usize, at: usize, wide: usize) -> [L::Vector; UNROLL_MAX] {
        let mut values = [self.lanes.zero(); UNROLL_MAX];
        let Loop { lanes, pass, .. } = *self;
        // SAFETY: `column` is a source.
        let source = *unsafe { pass.sources.get_unchecked(column) };
        for (n, value) in values[..wide].iter_mut().enumerate() {
            let at = at + n * L::BYTES;
            if (A::STREAM || self.ahead) && (n * L::BYTES).is_multiple_of(LINE_BYTES) {
                lanes.prefetch(source.wrapping_add(at + PREFETCH_BYTES));
            }
            // SAFETY: vector `n` of the block is inside the pass.
            *value = unsafe { A::fetch(lanes, pass, column, source, at) };
        }
        values
    }

    /// Adds the top source where their number is odd.
    #[inline(always)]
    fn add_one<const LONE: bool>(
        &self,
        sums: &mut Sums<L, REST>,
        a: &[L::Vector; UNROLL_MAX],
        wide: usize,
    ) {
        for (n, &a) in a[..wide].iter().enumerate() {
            if XOR {
                sums.p[n] = a;
            }
            if HORNER {
                sums.q[n] = self.lanes.horner_start(a);
            }
        }
        for (row, (rest, factor)) in sums.rest.iter_mut().zip(self.top).enumerate() {
            for n in 0..wide {
                let is_plain = LONE && row == 0;
                rest[n] = if is_plain { a[n] } else { self.lanes.mul(a[n], factor) };
            }
        }
    }

    /// Adds sources `column` (b) and `column + 1` (a).
    #[inline(always)]
    fn add_two(
        &self,
        sums: &mut Sums<L, REST>,
        column: usize,
        [a, b]: [&[L::Vector; UNROLL_MAX]; 2],
        wide: usize,
    ) {
        self.add_two_to_p_and_q(sums, [a, b], wide);
        for (rest, factors) in sums.rest.iter_mut().zip(self.factors) {
            let factor_a = self.lanes.factor(factors[column + 1]);
            let factor_b = self.lanes.factor(factors[column]);
            for n in 0..wide {
                let product_a = self.lanes.mul(a[n], factor_a);
                let product_b = self.lanes.mul(b[n], factor_b);
                rest[n] = self.lanes.xor3(rest[n], product_a, product_b);
            }
        }
    }

    /// As `add_two` for columns 1 and 0, where column 0 has coefficient 1 in every row. With four
    /// rows beside P and Q the multiplier is what a pass waits for: this spares 4 of its 40 turns
    /// in a stripe of 8 data strips.
    #[inline(always)]
    fn add_first_two(
        &self,
        sums: &mut Sums<L, REST>,
        [a, b]: [&[L::Vector; UNROLL_MAX]; 2],
        wide: usize,
    ) {
        self.add_two_to_p_and_q(sums, [a, b], wide);
        for (rest, factors) in sums.rest.iter_mut().zip(self.factors) {
            let factor_a = self.lanes.factor(factors[1]);
            for n in 0..wide {
                let product_a = self.lanes.mul(a[n], factor_a);
                rest[n] = self.lanes.xor3(rest[n], product_a, b[n]);
            }
        }
    }

    #[inline(always)]
    fn add_two_to_p_and_q(
        &self,
        sums: &mut Sums<L, REST>,
        [a, b]: [&[L::Vector; UNROLL_MAX]; 2],
        wide: usize,
    ) {
        for n in 0..wide {
            if XOR {
                sums.p[n] = self.lanes.xor3(sums.p[n], a[n], b[n]);
            }
            if HORNER {
                sums.q[n] = self.lanes.horner(sums.q[n], a[n], b[n]);
            }
        }
    }

    /// # Safety
    /// As for `block`.
    #[inline(always)]
    unsafe fn put(
        &self,
        sums: &Sums<L, REST>,
        at: usize,
        wide: usize,
        mut differs: L::Vector,
    ) -> L::Vector {
        let mut outputs = self.pass.outputs.iter();
        if XOR {
            // SAFETY: the first output is P.
            differs = unsafe { self.put_row(outputs.next(), at, &sums.p[..wide], differs) };
        }
        if HORNER {
            let mut finished = sums.q;
            for sum in &mut finished[..wide] {
                *sum = self.lanes.horner_finish(*sum);
            }
            // SAFETY: the next output is Q.
            differs = unsafe { self.put_row(outputs.next(), at, &finished[..wide], differs) };
        }
        for sums in &sums.rest {
            // SAFETY: there is an output for each row.
            differs = unsafe { self.put_row(outputs.next(), at, &sums[..wide], differs) };
        }
        differs
    }

    /// # Safety
    /// `output`, if there is one, is an output of the pass; the vectors from `at` are inside it.
    #[inline(always)]
    unsafe fn put_row(
        &self,
        output: Option<&*mut u8>,
        at: usize,
        sums: &[L::Vector],
        mut differs: L::Vector,
    ) -> L::Vector {
        let Some(output) = output else { return differs };
        for (n, &sum) in sums.iter().enumerate() {
            // SAFETY: the vector is inside the output.
            let place = unsafe { output.add(at + n * L::BYTES) };
            // SAFETY: as above.
            differs = unsafe { A::put(self.lanes, place, sum, differs) };
        }
        differs
    }
}
