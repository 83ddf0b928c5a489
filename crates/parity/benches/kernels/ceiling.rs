//! The ceiling: the loads and stores of a verb, in the same order, with next to no arithmetic.
//!
//! What must stay true: loads are kept alive by one OR each, the cheapest thing the compiler cannot
//! drop. Without AVX-512 it is a plain loop that the compiler vectorises as it can.

/// Which traffic to make besides reading every source and writing every output.
#[derive(Clone, Copy)]
pub struct Traffic {
    /// Store past the caches.
    pub streaming: bool,
    /// Outputs are read before they are written.
    pub read_back: bool,
}

/// Moves the bytes of `read` past the CPU and something into `write`. All strips have one length, a
/// multiple of 64.
pub fn move_bytes(read: &[&[u8]], write: &mut [&mut [u8]], traffic: Traffic) {
    let bytes = read[0].len();
    assert!(read.iter().all(|strip| strip.len() == bytes) && bytes.is_multiple_of(64));
    assert!(write.iter().all(|strip| strip.len() == bytes));
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        let aligned = write.iter().all(|strip| strip.as_ptr().addr().is_multiple_of(64));
        let traffic = Traffic { streaming: traffic.streaming && aligned, ..traffic };
        // SAFETY: the feature is there, and lengths and alignment were just looked at.
        let kept = unsafe { wide(read, write, traffic) };
        std::hint::black_box(kept);
        return;
    }
    plain(read, write, traffic);
}

fn plain(read: &[&[u8]], write: &mut [&mut [u8]], traffic: Traffic) {
    // Nothing here can store past the caches.
    let _ = traffic.streaming;
    for at in (0..read[0].len()).step_by(64) {
        let mut kept = [0u8; 64];
        for strip in read {
            kept.iter_mut().zip(&strip[at..at + 64]).for_each(|(kept, byte)| *kept |= byte);
        }
        for strip in write.iter_mut() {
            if traffic.read_back {
                kept.iter_mut().zip(&strip[at..at + 64]).for_each(|(kept, byte)| *kept |= byte);
            }
            strip[at..at + 64].copy_from_slice(&kept);
        }
        std::hint::black_box(kept);
    }
}

/// # Safety
/// The CPU has AVX-512 F; all strips have the length of the first, a multiple of 64, and start at a
/// multiple of 64 if `traffic.streaming`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn wide(read: &[&[u8]], write: &mut [&mut [u8]], traffic: Traffic) -> bool {
    use std::arch::x86_64::{
        __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_loadu_si512, _mm512_or_si512,
        _mm512_setzero_si512, _mm512_storeu_si512, _mm512_stream_si512, _mm512_test_epi64_mask,
    };
    const VECTORS: usize = 4;
    let store = |to: *mut u8, value: __m512i| {
        if traffic.streaming {
            // SAFETY: the caller guarantees 64 writable aligned bytes.
            unsafe { _mm512_stream_si512(to.cast(), value) }
        } else {
            // SAFETY: the caller guarantees 64 writable bytes.
            unsafe { _mm512_storeu_si512(to.cast(), value) }
        }
    };
    let mut any = _mm512_setzero_si512();
    let bytes = read[0].len();
    let mut at = 0;
    while at < bytes {
        let vectors = VECTORS.min((bytes - at) / 64);
        let mut kept = [_mm512_setzero_si512(); VECTORS];
        for strip in read {
            for (v, kept) in kept.iter_mut().enumerate().take(vectors) {
                let from = strip.as_ptr().wrapping_add(at + v * 64);
                if traffic.streaming {
                    _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(320).cast());
                }
                // SAFETY: `at + v * 64` and 64 bytes more are inside the strip.
                let value = unsafe { _mm512_loadu_si512(from.cast()) };
                *kept = _mm512_or_si512(*kept, value);
            }
        }
        for strip in write.iter_mut() {
            for (v, kept) in kept.iter_mut().enumerate().take(vectors) {
                let place = strip.as_mut_ptr().wrapping_add(at + v * 64);
                if traffic.read_back {
                    // SAFETY: inside the strip, as above.
                    *kept = _mm512_or_si512(*kept, unsafe { _mm512_loadu_si512(place.cast()) });
                }
                store(place, *kept);
            }
        }
        any = kept.into_iter().fold(any, |any, kept| _mm512_or_si512(any, kept));
        at += vectors * 64;
    }
    _mm512_test_epi64_mask(any, any) == 0
}
