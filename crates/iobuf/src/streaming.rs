//! Copies that leave the processor's caches to others.
//!
//! What must stay true: afterwards the target holds the source, and every thread that learns of it
//! by the usual means (a lock, an atomic, a message) sees that. Not here: when it pays. It does
//! where the target is in no cache and nobody reads it soon: a plain copy first fetches every line
//! that it is going to overwrite.

/// Copies `source` to `target` with stores that go past the caches, where the processor has such
/// and `target` lies on a multiple of 16 bytes; elsewhere as any copy.
///
/// # Panics
/// If their lengths differ.
pub fn copy_past_caches(target: &mut [u8], source: &[u8]) {
    assert_eq!(target.len(), source.len(), "a copy has the length of its source");
    let whole = stores::copy(target, source);
    target[whole..].copy_from_slice(&source[whole..]);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod stores {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    const STORE_BYTES: usize = size_of::<__m128i>();
    /// A line of the caches: its stores follow each other without a look at what is left.
    const LINE_BYTES: usize = 64;

    /// Copies what whole stores can; returns how many bytes that were.
    pub(super) fn copy(target: &mut [u8], source: &[u8]) -> usize {
        if !target.as_ptr().cast::<__m128i>().is_aligned() {
            return 0;
        }
        let (lines, rest) = target.as_chunks_mut::<LINE_BYTES>();
        let (from_lines, from_rest) = source.as_chunks::<LINE_BYTES>();
        for (to, from) in lines.iter_mut().zip(from_lines) {
            store(to, from);
        }
        store(rest, from_rest);
        // Such stores keep no order with later ones, an unlock among them, until a fence.
        // SAFETY: every x86-64 processor has SSE.
        unsafe { _mm_sfence() };
        target.len() / STORE_BYTES * STORE_BYTES
    }

    /// The whole stores of an aligned target.
    #[inline]
    fn store(target: &mut [u8], source: &[u8]) {
        for (to, from) in target.chunks_exact_mut(STORE_BYTES).zip(source.chunks_exact(STORE_BYTES))
        {
            // SAFETY: `from` has the 16 bytes, of any alignment.
            let value = unsafe { _mm_loadu_si128(from.as_ptr().cast()) };
            // SAFETY: `to` has the 16 bytes and nobody else has it; the first piece is aligned, so
            // all are.
            unsafe { _mm_stream_si128(to.as_mut_ptr().cast(), value) };
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod stores {
    /// No such stores: nothing is copied.
    pub(super) fn copy(_: &mut [u8], _: &[u8]) -> usize {
        0
    }
}
