//! What devices and caches are promised: buffers that direct I/O takes, and strips that share no
//! more L1 sets than they must.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use ashlar_iobuf::{Alignment, BufMut, Pool, PoolClass};
use rustix::fs::OFlags;

const PAGE: usize = 4096;
const SECTOR: usize = 512;
/// Of every x86-64 CPU there is, and of most others: 64 sets of lines of 64 bytes.
const L1_SETS: usize = 64;
const LINE_BYTES: usize = 64;

/// The sizes that strips have, and others.
const SIZES: [usize; 7] = [PAGE, 8 << 10, 12 << 10, 16 << 10, 64 << 10, 65 << 10, 128 << 10];

fn pool(buffer_bytes: usize, count: usize, alignment: Alignment) -> Pool {
    Pool::with_alignment(&[PoolClass { buffer_bytes, count }], alignment).expect("a small pool")
}

fn stripe(pool: &Pool, strips: usize, bytes: usize) -> Vec<BufMut> {
    (0..strips).map(|_| pool.try_get(bytes).expect("as many as there are")).collect()
}

/// How many strips' lines at most fall into one set when a kernel is at the same offset of all of
/// them.
fn most_in_one_set(strips: &[BufMut]) -> usize {
    let mut sets = [0; L1_SETS];
    for strip in strips {
        sets[strip.address() / LINE_BYTES % L1_SETS] += 1;
    }
    sets.into_iter().max().unwrap_or(0)
}

#[test]
fn strips_of_a_stripe_share_an_l1_set_only_when_there_are_more_than_eight() {
    for bytes in SIZES {
        for strips in 1..=26 {
            let pool = pool(bytes, 64, Alignment::Coloured);
            // A pool that has been used: its free slots lie in another order than at first.
            let mut all = stripe(&pool, 64, bytes);
            (0..40).for_each(|n| all.swap(n, (n * 29 + 11) % 64));
            drop(all);
            // The second stripe begins wherever the first has stopped.
            let first = stripe(&pool, strips, bytes);
            let second = stripe(&pool, strips, bytes);
            for stripe in [first, second] {
                let most = most_in_one_set(&stripe);
                assert_eq!(most, strips.div_ceil(8), "{strips} strips of {bytes} bytes");
            }
        }
    }
}

#[test]
fn neighbours_in_a_stripe_are_further_apart_than_a_kernel_reads_at_once() {
    for bytes in SIZES {
        let pool = pool(bytes, 16, Alignment::Coloured);
        let stripe = stripe(&pool, 16, bytes);
        for pair in stripe.windows(2) {
            let apart = pair[0].address().abs_diff(pair[1].address()) % PAGE;
            assert!(apart.min(PAGE - apart) >= SECTOR, "{apart} with {bytes} bytes");
        }
    }
}

#[test]
fn strips_that_are_aligned_to_pages_all_share_one_set() {
    // What the two claims above would be without displacement; it is asked for by devices that need
    // it.
    let pool = pool(64 << 10, 16, Alignment::Page);
    assert_eq!(most_in_one_set(&stripe(&pool, 16, 64 << 10)), 16);
}

#[test]
fn every_buffer_is_as_aligned_as_its_pool_says() {
    for (alignment, unit) in [(Alignment::Coloured, SECTOR), (Alignment::Page, PAGE)] {
        for bytes in [1, 511, 512, 513, 4095, 4097, 20_000, 65_536, 100_001] {
            let pool = pool(bytes, 24, alignment);
            for buffer in stripe(&pool, 24, bytes) {
                assert_eq!(buffer.address() % unit, 0, "{alignment:?}, {bytes} bytes");
            }
        }
    }
}

#[test]
fn direct_io_takes_every_buffer_and_refuses_one_beside_it() {
    let path =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("direct-{}", std::process::id()));
    let flags = i32::try_from(OFlags::DIRECT.bits()).expect("a small flag");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).custom_flags(flags);
    let file = options.open(&path);
    // Open files stay; the name must go whatever happens next.
    let _gone = std::fs::remove_file(&path);
    let Ok(file) = file else {
        eprintln!("skipped: direct_io_takes_every_buffer: no direct I/O where tests may write");
        return;
    };
    for alignment in [Alignment::Coloured, Alignment::Page] {
        let bytes = 16 << 10;
        let pool = pool(bytes, 16, alignment);
        for (n, mut buffer) in stripe(&pool, 16, bytes).into_iter().enumerate() {
            buffer.fill(u8::try_from(n + 1).expect("16 of them"));
            file.write_all_at(&buffer, 0).expect("a buffer of the pool");
            buffer.fill(0);
            file.read_exact_at(&mut buffer, 0).expect("a buffer of the pool");
            assert!(buffer.iter().all(|byte| usize::from(*byte) == n + 1));
        }
    }
    let beside = pool(bytes_and_a_sector(), 1, Alignment::Page).try_get(bytes_and_a_sector());
    let beside = beside.expect("the only one");
    let refused = file.write_at(&beside[1..=PAGE], 0);
    assert!(refused.is_err(), "this file takes any address, so the claim above says nothing");
}

const fn bytes_and_a_sector() -> usize {
    PAGE + SECTOR
}
