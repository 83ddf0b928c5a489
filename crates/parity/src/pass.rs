//! One pass: what a backend is asked to do, as pointers.
//!
//! What must stay true: a pass that reaches a backend satisfies [`Pass`]'s contract, all of which
//! is established in `job`, the only place that makes one. Backends trust it and check nothing.

/// What is done with the sums of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Outputs are replaced by the sums.
    Generate,
    /// Outputs are compared with the sums and not written.
    Check,
    /// A source is old XOR new (the companion), and the sums are added to the outputs.
    Update,
}

/// Which coefficients the rows of a pass have, in the order of its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One output: the XOR of all sources.
    Xor,
    /// P (all ones), Q (2^column), then this many rows of any coefficients, at most [`REST_MAX`].
    PqAnd(usize),
    /// This many rows of any coefficients, 1 to [`REST_MAX`].
    Any(usize),
}

/// Most rows with arbitrary coefficients in one pass: with P and Q, six sums of two vectors and
/// their operands still fit 32 registers.
pub(crate) const REST_MAX: usize = 4;

/// All lengths a backend sees are multiples of this; it is also the alignment of streamed outputs.
pub(crate) const GRAIN: usize = 64;

/// A pass over the bytes `start..start + bytes` of some strips.
///
/// # Safety
/// Whoever runs a pass guarantees: `bytes` is a multiple of [`GRAIN`]; every source can be read,
/// and every output read and (unless the verb is `Check`) written, over the range; there are 1 to
/// 64 sources, each row has a coefficient for each source, and there are as many rows as outputs
/// and as many as `shape` says; for `Update` every companion can be read, and there is one for each
/// source; nothing that is written overlaps anything else of the pass; and when `streaming`,
/// everything that is written is aligned to [`GRAIN`] and so is `start`.
pub(crate) struct Pass<'a> {
    pub(crate) verb: Verb,
    pub(crate) shape: Shape,
    pub(crate) streaming: bool,
    pub(crate) sources: &'a [*const u8],
    /// New content, one for each source (`Update`).
    pub(crate) companions: &'a [*const u8],
    /// Never written when the verb is `Check`.
    pub(crate) outputs: &'a [*mut u8],
    pub(crate) rows: &'a [&'a [u8]],
    pub(crate) start: usize,
    pub(crate) bytes: usize,
}
