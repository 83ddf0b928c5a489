//! Aligned buffers for devices and parity, in fixed pools.  (INTERFACE STUB: bodies to be filled.)
#![allow(missing_docs, clippy::unimplemented, unused)]
use std::future::Future;
use std::ops::{Deref, DerefMut, Range};

/// The only owner of its bytes. Send. Splits into disjoint owners; freezes into shared ones.
pub struct BufMut(());
/// Shared, immutable bytes; cloning and slicing are cheap (a count, no copy). Send + Sync.
#[derive(Clone)]
pub struct Buf(());

impl BufMut {
    /// Not from a pool: own memory, 4096-aligned, zero-filled. For control paths and tests.
    pub fn zeroed(bytes: usize) -> BufMut {
        unimplemented!()
    }
    /// Take the first `at` bytes off the front; `self` keeps the rest. Panics if at > len.
    #[must_use]
    pub fn split_to(&mut self, at: usize) -> BufMut {
        unimplemented!()
    }
    /// Put back together two neighbours that were split; gives both back if they are not neighbours.
    pub fn try_join(self, next: BufMut) -> Result<BufMut, (BufMut, BufMut)> {
        unimplemented!()
    }
    /// Make it shared and immutable.
    pub fn freeze(self) -> Buf {
        unimplemented!()
    }
    /// Shorten to `bytes` (the rest stays reserved until the buffer is dropped).
    pub fn truncate(&mut self, bytes: usize) {
        unimplemented!()
    }
    /// Address, for alignment checks only.
    pub fn address(&self) -> usize {
        unimplemented!()
    }
}
impl Deref for BufMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        unimplemented!()
    }
}
impl DerefMut for BufMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        unimplemented!()
    }
}
impl std::fmt::Debug for BufMut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        unimplemented!()
    }
}
impl Buf {
    /// A part of it, sharing the memory. Panics if out of range.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Buf {
        unimplemented!()
    }
    pub fn address(&self) -> usize {
        unimplemented!()
    }
    /// Back to unique ownership if this is the only reference to the whole memory; else itself.
    pub fn try_into_mut(self) -> Result<BufMut, Buf> {
        unimplemented!()
    }
}
impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        unimplemented!()
    }
}
impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        unimplemented!()
    }
}
impl From<BufMut> for Buf {
    fn from(b: BufMut) -> Buf {
        b.freeze()
    }
}

/// A fixed number of buffers in a few sizes, allocated at start from one arena. Clone shares it. Send + Sync.
#[derive(Clone)]
pub struct Pool(());
/// One size of buffer in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolClass {
    pub buffer_bytes: usize,
    pub count: usize,
}
/// What a pool holds and how much of it was ever out at once.
#[derive(Clone, Debug)]
pub struct PoolUsage {
    pub classes: Vec<ClassUsage>,
    pub arena_bytes: usize,
    pub on_huge_pages: bool,
}
#[derive(Clone, Copy, Debug)]
pub struct ClassUsage {
    pub buffer_bytes: usize,
    pub count: usize,
    pub in_use: usize,
    pub in_use_max: usize,
    pub waits: u64,
}

impl Pool {
    pub fn new(classes: &[PoolClass]) -> std::io::Result<Pool> {
        unimplemented!()
    }
    /// A buffer of exactly `bytes`, from the smallest class that holds it and has one free. Content is unspecified
    /// memory of this process (poisoned in debug builds).
    pub fn try_get(&self, bytes: usize) -> Option<BufMut> {
        unimplemented!()
    }
    /// The same; waits in line while none is free. Panics if larger than the largest class.
    pub fn get(&self, bytes: usize) -> impl Future<Output = BufMut> + use<> {
        async { unimplemented!() }
    }
    pub fn buffer_bytes_max(&self) -> usize {
        unimplemented!()
    }
    pub fn usage(&self) -> PoolUsage {
        unimplemented!()
    }
}
