//! Stripes to run on: one that stays in the cache, or a ring of many that does not.
//!
//! What must stay true: every strip starts at a multiple of 64 bytes. Coloured, each is displaced
//! by 28 cache lines from the one before, so that the strips of a stripe do not share cache sets;
//! aligned, all start at a multiple of 64 KiB, the worst case.

use std::mem::MaybeUninit;

use rustix::mm::{Advice, madvise};

const DISPLACEMENT: usize = 1792;
const ALIGNMENT: usize = 64 << 10;

/// Where strips of a stripe start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    Coloured,
    Aligned,
}

/// Strips of one stripe, and room for results.
pub struct Stripe<'a> {
    pub data: Vec<&'a [u8]>,
    pub copies: Vec<&'a mut [u8]>,
    pub parity: Vec<Option<&'a mut [u8]>>,
    pub rebuilt: Vec<&'a mut [u8]>,
}

impl Stripe<'_> {
    /// All bytes a verb may have written.
    pub fn digest(&self) -> Vec<u8> {
        let written = self.copies.iter().chain(&self.rebuilt).chain(self.parity.iter().flatten());
        written.flat_map(|strip| strip.iter().copied()).collect()
    }
}

pub struct Ring<'a> {
    stripes: Vec<Stripe<'a>>,
    next: usize,
}

impl<'a> Ring<'a> {
    /// Stripes that fill about `bytes`, at least one, in `memory`, which later rings can use again.
    pub fn new(
        memory: &'a mut Vec<u8>,
        (data, parity): (usize, usize),
        strip_bytes: usize,
        placement: Placement,
        bytes: usize,
    ) -> Ring<'a> {
        let pitch = match placement {
            Placement::Coloured => strip_bytes + DISPLACEMENT,
            Placement::Aligned => strip_bytes.next_multiple_of(ALIGNMENT),
        };
        let strips = 2 * data + 2 * parity;
        let count = (bytes / (strips * pitch)).max(1);
        let needed = count * strips * pitch + ALIGNMENT;
        if memory.len() < needed {
            *memory = Vec::with_capacity(needed);
            ask_for_huge_pages(memory.spare_capacity_mut());
            memory.resize(needed, 0);
            let skew = memory.as_ptr().align_offset(ALIGNMENT);
            fill(&mut memory[skew..]);
        }
        let skew = memory.as_ptr().align_offset(ALIGNMENT);
        let mut cut = memory[skew..].chunks_exact_mut(pitch).map(|strip| &mut strip[..strip_bytes]);
        let mut take = |count: usize| -> Vec<&'a mut [u8]> { cut.by_ref().take(count).collect() };
        let stripes = (0..count)
            .map(|_| Stripe {
                data: take(data).into_iter().map(|strip| &*strip).collect(),
                parity: take(parity).into_iter().map(Some).collect(),
                copies: take(data),
                rebuilt: take(parity),
            })
            .collect();
        Ring { stripes, next: 0 }
    }

    pub fn stripes(&mut self) -> impl Iterator<Item = &mut Stripe<'a>> {
        self.stripes.iter_mut()
    }

    pub fn next_stripe(&mut self) -> &mut Stripe<'a> {
        self.next = (self.next + 1) % self.stripes.len();
        &mut self.stripes[self.next]
    }
}

/// Touches every page with bytes that repeat only after 251, so equal strips are rare.
fn fill(memory: &mut [u8]) {
    let pattern: Vec<u8> = (0..=250).collect();
    for part in memory.chunks_mut(pattern.len()) {
        part.copy_from_slice(&pattern[..part.len()]);
    }
}

/// With 4 KiB pages the TLB would be measured, not the kernels. Only a hint: without huge pages the
/// streaming rows are lower.
fn ask_for_huge_pages(memory: &mut [MaybeUninit<u8>]) {
    const PAGE_BYTES: usize = 4096;
    let skip = memory.as_ptr().align_offset(PAGE_BYTES).min(memory.len());
    let pages = &mut memory[skip..];
    let bytes = pages.len() / PAGE_BYTES * PAGE_BYTES;
    // SAFETY: the range is borrowed here, and the advice changes neither its content nor its
    // access.
    let advised = unsafe { madvise(pages.as_mut_ptr().cast(), bytes, Advice::LinuxHugepage) };
    if let Err(error) = advised {
        eprintln!("no huge pages: {error}");
    }
}
