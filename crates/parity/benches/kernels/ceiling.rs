//! The ceiling: the loads and stores of a verb with one OR for each load, as many loops do them.
//!
//! What must stay true: the loops differ in all that a kernel may choose (width, vectors a turn,
//! prefetch, stores past the cache), and the best of them is the ceiling of a row. Loads are kept
//! alive by the OR, the cheapest thing that the compiler cannot drop.

use std::marker::PhantomData;

/// Most strips that a loop reads, and that it writes.
const STRIPS_MAX: usize = 32;
/// All strips are a multiple of this long: the longest turn of any loop.
const TURN_BYTES: usize = 256;
const LINE_BYTES: usize = 64;
/// How far ahead a loop prefetches, if it does: as far as the kernels.
#[cfg(target_arch = "x86_64")]
const PREFETCH_BYTES: usize = 320;

/// The strips to read and to write. Only [`Strips::of`] makes one, so the pointers are sound.
struct Strips<'a> {
    read: [*const u8; STRIPS_MAX],
    write: [*mut u8; STRIPS_MAX],
    reads: usize,
    writes: usize,
    bytes: usize,
    /// Outputs are read before they are written.
    read_back: bool,
    borrowed: PhantomData<(&'a [u8], &'a mut [u8])>,
}

impl<'a> Strips<'a> {
    fn of(read: &'a [&[u8]], write: &'a mut [&mut [u8]], read_back: bool) -> Strips<'a> {
        let bytes = read[0].len();
        assert!(bytes.is_multiple_of(TURN_BYTES));
        let (reads, writes) = (read.len(), write.len());
        let mut strips = Strips {
            read: [std::ptr::null(); STRIPS_MAX],
            write: [std::ptr::null_mut(); STRIPS_MAX],
            reads,
            writes,
            bytes,
            read_back,
            borrowed: PhantomData,
        };
        for (pointer, strip) in strips.read[..reads].iter_mut().zip(read) {
            assert_eq!(strip.len(), bytes);
            *pointer = strip.as_ptr();
        }
        for (pointer, strip) in strips.write[..writes].iter_mut().zip(write) {
            assert_eq!(strip.len(), bytes);
            assert!(strip.as_ptr().addr().is_multiple_of(LINE_BYTES));
            *pointer = strip.as_mut_ptr();
        }
        strips
    }
}

/// A way to move bytes.
#[derive(Clone, Copy, Debug)]
pub struct Loop {
    width: Width,
    /// Vectors of one strip before those of the next.
    vectors: usize,
    /// Stores past the caches.
    stream: bool,
    prefetch: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Width {
    /// As wide as the compiler makes it for any CPU of this kind.
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Loop {
    /// All loops that this CPU can run, without AVX-512 if `narrow`.
    pub fn all(narrow: bool) -> Vec<Loop> {
        let mut widths = vec![(Width::Plain, &[1][..])];
        let _ = narrow;
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            widths.push((Width::Avx2, &[1, 2, 4]));
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") && !narrow {
            widths.push((Width::Avx512, &[1, 2, 4]));
        }
        let mut loops = Vec::new();
        for (width, vectors) in widths {
            let choices: &[bool] = if width == Width::Plain { &[false] } else { &[false, true] };
            for &vectors in vectors {
                for &stream in choices {
                    let each = |&prefetch| Loop { width, vectors, stream, prefetch };
                    loops.extend(choices.iter().map(each));
                }
            }
        }
        loops
    }

    /// Whether it differs from another loop only where something is written.
    pub fn stores_past_caches(self) -> bool {
        self.stream
    }

    /// Moves the bytes of `read` past the CPU and something into `write`. All strips have one
    /// length, a multiple of 256.
    pub fn run(self, read: &[&[u8]], write: &mut [&mut [u8]], read_back: bool) {
        #[cfg(target_arch = "x86_64")]
        {
            let body = match self.width {
                Width::Plain => return plain(read, write, read_back),
                Width::Avx2 => avx2::body(self, read.len(), write.len()),
                Width::Avx512 => avx512::body(self, read.len(), write.len()),
            };
            // SAFETY: `all` found the feature that this width needs.
            unsafe { body(&Strips::of(read, write, read_back)) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        plain(read, write, read_back);
    }
}

fn plain(read: &[&[u8]], write: &mut [&mut [u8]], read_back: bool) {
    for at in (0..read[0].len()).step_by(LINE_BYTES) {
        let mut kept = [0u8; LINE_BYTES];
        let mut add = |strip: &[u8]| {
            kept.iter_mut().zip(&strip[at..]).for_each(|(kept, byte)| *kept |= byte);
        };
        read.iter().for_each(|strip| add(strip));
        write.iter().filter(|_| read_back).for_each(|strip| add(strip));
        write.iter_mut().for_each(|strip| strip[at..at + LINE_BYTES].copy_from_slice(&kept));
        std::hint::black_box(kept);
    }
}

/// A loop compiled for one number of strips, for vectors a turn and for how it loads and stores.
#[cfg(target_arch = "x86_64")]
type Body = unsafe fn(&Strips<'_>);

/// The function for `$counts`, or the one for any.
#[cfg(target_arch = "x86_64")]
macro_rules! for_counts {
    ($how:expr, $counts:expr, $of:ident, [$(($reads:literal, $writes:literal)),+ $(,)?]) => {
        match $counts {
            $(($reads, $writes) => $of::<$reads, $writes>($how),)+
            _ => $of::<0, 0>($how),
        }
    };
}

/// The loops of one width, in a module.
#[cfg(target_arch = "x86_64")]
macro_rules! loops {
    (
        $module:ident, $feature:literal, $vector:ident,
        [$zero:ident, $or:ident, $load:ident, $store:ident, $stream:ident]
    ) => {
        mod $module {
            use std::arch::x86_64::{
                _MM_HINT_T0, _mm_prefetch, $load, $or, $store, $stream, $vector, $zero,
            };

            use super::{Body, LINE_BYTES, Loop, PREFETCH_BYTES, Strips};

            const BYTES: usize = size_of::<$vector>();

            /// `READS` and `WRITES` are counts of strips, or 0 and 0: known at run time only.
            #[target_feature(enable = $feature)]
            fn turns<
                const READS: usize,
                const WRITES: usize,
                const VECTORS: usize,
                const STREAM: bool,
                const PREFETCH: bool,
            >(
                strips: &Strips<'_>,
            ) {
                let known = const { READS > 0 };
                let reads = if known { READS } else { strips.reads };
                let writes = if known { WRITES } else { strips.writes };
                let (read, write) = (strips.read, strips.write);
                // SAFETY: strips can be read for their whole length, which is whole turns.
                let load = |from: *const u8| unsafe { $load(from.cast()) };
                let mut kept = [$zero(); VECTORS];
                for at in (0..strips.bytes).step_by(VECTORS * BYTES) {
                    for strip in read[..reads].iter().rev() {
                        let from = strip.wrapping_add(at);
                        for (n, kept) in kept.iter_mut().enumerate() {
                            if PREFETCH && (n * BYTES).is_multiple_of(LINE_BYTES) {
                                let ahead = from.wrapping_add(n * BYTES + PREFETCH_BYTES);
                                _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
                            }
                            *kept = $or(*kept, load(from.wrapping_add(n * BYTES)));
                        }
                    }
                    for strip in &write[..writes] {
                        for (n, kept) in kept.iter_mut().enumerate() {
                            let place = strip.wrapping_add(at + n * BYTES);
                            if strips.read_back {
                                *kept = $or(*kept, load(place));
                            }
                            if STREAM {
                                // SAFETY: as for a load, borrowed to be written, and aligned.
                                unsafe { $stream(place.cast(), *kept) };
                            } else {
                                // SAFETY: as for a load, and borrowed to be written.
                                unsafe { $store(place.cast(), *kept) };
                            }
                        }
                    }
                }
                std::hint::black_box(kept);
            }

            fn of_vectors<const READS: usize, const WRITES: usize, const VECTORS: usize>(
                how: Loop,
            ) -> Body {
                match (how.stream, how.prefetch) {
                    (false, false) => turns::<READS, WRITES, VECTORS, false, false>,
                    (false, true) => turns::<READS, WRITES, VECTORS, false, true>,
                    (true, false) => turns::<READS, WRITES, VECTORS, true, false>,
                    (true, true) => turns::<READS, WRITES, VECTORS, true, true>,
                }
            }

            fn of_strips<const READS: usize, const WRITES: usize>(how: Loop) -> Body {
                match how.vectors {
                    1 => of_vectors::<READS, WRITES, 1>(how),
                    2 => of_vectors::<READS, WRITES, 2>(how),
                    _ => of_vectors::<READS, WRITES, 4>(how),
                }
            }

            /// The body that does `how` with so many strips: its own for the counts in the tables.
            pub fn body(how: Loop, reads: usize, writes: usize) -> Body {
                for_counts!(
                    how,
                    (reads, writes),
                    of_strips,
                    [
                        (4, 0),
                        (8, 0),
                        (10, 0),
                        (12, 0),
                        (16, 0),
                        (20, 0),
                        (4, 1),
                        (8, 1),
                        (8, 2),
                        (10, 2),
                        (16, 2),
                        (8, 3),
                        (8, 4),
                        (8, 5),
                        (8, 6),
                        (12, 4),
                        (20, 6),
                        (2, 0),
                        (2, 2),
                        (6, 0),
                        (6, 2),
                    ]
                )
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
loops!(
    avx2,
    "avx2",
    __m256i,
    [
        _mm256_setzero_si256,
        _mm256_or_si256,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_stream_si256
    ]
);
#[cfg(target_arch = "x86_64")]
loops!(
    avx512,
    "avx512f",
    __m512i,
    [
        _mm512_setzero_si512,
        _mm512_or_si512,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_stream_si512
    ]
);
