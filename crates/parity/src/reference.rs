//! The reference backend: one byte at a time, straight from the definition. Slow, obvious, never
//! removed.
//!
//! What must stay true: it ignores `Shape` and multiplies every source by its coefficient, so that
//! it shares no shortcut with the backends that are compared with it.

use ashlar_gf::mul;

use crate::pass::{Pass, Verb};

/// Proof of nothing: every machine can do this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference;

impl Reference {
    /// Runs `pass`; true when a check found a difference.
    ///
    /// # Safety
    /// The contract of [`Pass`].
    pub(crate) unsafe fn run(self, pass: &Pass<'_>) -> bool {
        let mut differs = false;
        for at in pass.start..pass.start + pass.bytes {
            for (output, row) in pass.outputs.iter().zip(pass.rows) {
                let mut sum = 0;
                for (column, &coefficient) in row.iter().enumerate().take(pass.sources.len()) {
                    // SAFETY: `at` is inside the pass and `column` has a source, by the contract of
                    // `Pass`.
                    sum ^= mul(coefficient, unsafe { source_byte(pass, column, at) });
                }
                // SAFETY: outputs cover `at`, by the contract of `Pass`.
                let place = unsafe { output.add(at) };
                // SAFETY: outputs can be read for every verb, by the contract of `Pass`.
                let stored = unsafe { place.read() };
                let value = if pass.verb == Verb::Update { sum ^ stored } else { sum };
                if pass.verb == Verb::Check {
                    differs |= value != stored;
                } else {
                    // SAFETY: outputs can be written unless the verb is `Check`.
                    unsafe { place.write(value) };
                }
            }
        }
        differs
    }
}

/// # Safety
/// The contract of [`Pass`], and `at` is inside it and `column` is one of its sources.
unsafe fn source_byte(pass: &Pass<'_>, column: usize, at: usize) -> u8 {
    // SAFETY: sources cover `at`.
    let place = unsafe { pass.sources[column].add(at) };
    // SAFETY: sources can be read.
    let byte = unsafe { place.read() };
    if pass.verb != Verb::Update {
        return byte;
    }
    // SAFETY: companions of an update cover `at`.
    let place = unsafe { pass.companions[column].add(at) };
    // SAFETY: companions of an update can be read.
    byte ^ unsafe { place.read() }
}
