//! What can be wrong with a call. All of it is a mistake of the caller; strips themselves are only
//! bytes.
//!
//! What must stay true: errors are small and `Copy`, and are returned before any strip was written.

use thiserror::Error;

/// Why a code, a plan or a call was refused. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CodeError {
    /// A code needs at least one data strip.
    #[error("a stripe needs at least one data strip")]
    NoDataStrips,
    /// More strips than a code can have: 64 in total, 32 of them parity.
    #[error("{data} data and {parity} parity strips are more than 64 in total or 32 of parity")]
    TooManyStrips {
        /// Data strips asked for.
        data: usize,
        /// Parity strips asked for.
        parity: usize,
    },
    /// A list of strips has the wrong number of entries.
    #[error("{given} strips were given where the code has {expected}")]
    WrongCount {
        /// Entries the code or plan has.
        expected: usize,
        /// Entries in the call.
        given: usize,
    },
    /// Two strips of one call differ in length.
    #[error("a strip of {given} bytes among strips of {expected} bytes")]
    WrongLength {
        /// Bytes of the first strip.
        expected: usize,
        /// Bytes of the strip that differs.
        given: usize,
    },
    /// A strip index, column or row that the stripe does not have.
    #[error("index {given} where there are only {limit}")]
    OutOfRange {
        /// First index that does not exist.
        limit: usize,
        /// Index in the call.
        given: usize,
    },
    /// A check of strips longer than its bitmap.
    #[error("strips of {given} bytes are longer than a check can map ({limit} bytes)")]
    TooLong {
        /// Most bytes a strip may have.
        limit: usize,
        /// Bytes of the strips in the call.
        given: usize,
    },
    /// More strips are lost than parity can replace.
    #[error("{given} strips survive where {needed} are needed")]
    TooFewSurvivors {
        /// Strips any reconstruction needs: the number of data strips.
        needed: usize,
        /// Strips that survive.
        given: usize,
    },
    /// One plan produces at most 32 strips, as many as can be lost.
    #[error("{given} strips wanted from one plan that can produce {limit}")]
    TooManyWanted {
        /// Most strips one plan can produce.
        limit: usize,
        /// Strips asked for.
        given: usize,
    },
}

/// Why a kernel could not be chosen by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KernelError {
    /// No kernel has this name, or this CPU lacks what it needs; `Kernel::all` lists those that run
    /// here.
    #[error("no such parity kernel on this machine")]
    NotHere,
}
