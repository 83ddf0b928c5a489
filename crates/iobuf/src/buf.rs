//! The two kinds of owners of buffer bytes: [`BufMut`], the only one, and [`Buf`], one of many.
//!
//! What must stay true: all `BufMut` and `Buf` over one memory cover disjoint ranges, except that
//! `Buf`s may overlap each other. Every constructor below either takes over a range from a value it
//! consumes or cuts the range it had in two. Not here: counting and giving back memory (`memory`).

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

use crate::memory::Share;

/// The only owner of its bytes. Splits into disjoint owners; freezes into shared ones.
pub struct BufMut {
    share: Share,
    start: NonNull<u8>,
    bytes: usize,
}

/// Shared, immutable bytes; cloning and slicing are cheap: a count, no copy.
#[derive(Clone)]
pub struct Buf {
    share: Share,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a `BufMut` is the only way to its bytes and the count behind `share` is atomic.
unsafe impl Send for BufMut {}
// SAFETY: through `&BufMut` the bytes can only be read.
unsafe impl Sync for BufMut {}
// SAFETY: nobody can write to bytes that a `Buf` covers, and the count behind `share` is atomic.
unsafe impl Send for Buf {}
// SAFETY: as for `Send`.
unsafe impl Sync for Buf {}

impl BufMut {
    /// Own memory, not from a pool: 4096-aligned and zero-filled. For control paths and tests.
    ///
    /// # Panics
    /// If `bytes` exceeds half the address space. Aborts when the system is out of memory, as any
    /// allocation does.
    pub fn zeroed(bytes: usize) -> BufMut {
        let (share, start) = Share::on_heap(bytes);
        BufMut { share, start, bytes }
    }

    /// Own memory on a mapping of its own, on huge pages if there are any: zero-filled, takes
    /// memory with first use. For large areas that are cut by [`BufMut::split_to`].
    ///
    /// # Errors
    /// What the kernel says to the mapping.
    pub fn mapped(bytes: usize) -> io::Result<BufMut> {
        let (share, start) = Share::on_mapping(bytes)?;
        Ok(BufMut { share, start, bytes })
    }

    /// Own memory with a copy of `content`; 4096-aligned.
    pub fn copied(content: &[u8]) -> BufMut {
        let mut buf = BufMut::zeroed(content.len());
        buf.copy_from_slice(content);
        buf
    }

    /// The first `bytes` bytes of memory that nobody else refers to.
    ///
    /// # Safety
    /// `start..start + bytes` is initialised memory that lives as long as `share` does, and `share`
    /// is the only reference to it.
    #[inline]
    pub(crate) unsafe fn sole(share: Share, start: NonNull<u8>, bytes: usize) -> BufMut {
        BufMut { share, start, bytes }
    }

    /// Takes the first `at` bytes off the front; `self` keeps the rest.
    ///
    /// # Panics
    /// If `at` is beyond the end.
    #[must_use]
    pub fn split_to(&mut self, at: usize) -> BufMut {
        assert!(at <= self.bytes, "split at {at} of {} bytes", self.bytes);
        let front = BufMut { share: self.share.clone(), start: self.start, bytes: at };
        self.start = advanced(self.start, at, self.bytes);
        self.bytes -= at;
        front
    }

    /// Puts two neighbours that were split back together.
    ///
    /// # Errors
    /// Gives both back if `next` does not begin where `self` ends in the same memory.
    pub fn try_join(self, next: BufMut) -> Result<BufMut, (BufMut, BufMut)> {
        let is_next = self.address() + self.bytes == next.address();
        if !is_next || !self.share.is_same(&next.share) {
            return Err((self, next));
        }
        let bytes = self.bytes + next.bytes;
        Ok(BufMut { share: self.share, start: self.start, bytes })
    }

    /// Makes it shared and immutable.
    #[inline]
    pub fn freeze(self) -> Buf {
        Buf { share: self.share, start: self.start, bytes: self.bytes }
    }

    /// Shortens to `bytes`, which may be more than there are (then nothing happens). The rest stays
    /// reserved until the memory goes back as a whole.
    #[inline]
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }

    /// Its holder will not give it back soon, for example a device that does not answer. Until then
    /// its pool lends other memory in its place. Nothing happens if it is not from a pool, or was
    /// written off before.
    pub fn write_off(&self) {
        self.share.write_off();
    }

    /// Address of the first byte, for alignment checks only.
    pub fn address(&self) -> usize {
        self.start.addr().get()
    }
}

impl Deref for BufMut {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `share` keeps the initialised range alive and only `self` may write to it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for BufMut {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `share` keeps the initialised range alive and no other owner covers any of it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl fmt::Debug for BufMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufMut({} bytes)", self.bytes)
    }
}

impl Buf {
    /// Own memory with a copy of `content`; 4096-aligned. For control paths and tests.
    pub fn copied(content: &[u8]) -> Buf {
        BufMut::copied(content).freeze()
    }

    /// A part of it, sharing the memory.
    ///
    /// # Panics
    /// If `range` is reversed or beyond the end.
    #[must_use]
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> Buf {
        assert!(range.start <= range.end, "range {range:?} is reversed");
        assert!(range.end <= self.bytes, "range {range:?} of {} bytes", self.bytes);
        Buf {
            share: self.share.clone(),
            start: advanced(self.start, range.start, self.bytes),
            bytes: range.end - range.start,
        }
    }

    /// Its holder will not give it back soon, for example a device that does not answer. Until then
    /// its pool lends other memory in its place. Nothing happens if it is not from a pool, or was
    /// written off before.
    pub fn write_off(&self) {
        self.share.write_off();
    }

    /// Address of the first byte, for alignment checks only.
    pub fn address(&self) -> usize {
        self.start.addr().get()
    }

    /// Back to unique ownership, of the bytes this value covers.
    ///
    /// # Errors
    /// Gives itself back if there is any other reference to the memory, also to other bytes of it.
    pub fn try_into_mut(self) -> Result<BufMut, Buf> {
        if !self.share.is_only() {
            return Err(self);
        }
        Ok(BufMut { share: self.share, start: self.start, bytes: self.bytes })
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `share` keeps the initialised range alive; nobody writes to what a `Buf` covers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.bytes)
    }
}

impl From<BufMut> for Buf {
    fn from(buf: BufMut) -> Buf {
        buf.freeze()
    }
}

fn advanced(start: NonNull<u8>, by: usize, bytes: usize) -> NonNull<u8> {
    assert!(by <= bytes, "advance by {by} of {bytes} bytes");
    // SAFETY: callers own `start..start + bytes` inside one allocation, and `by` is at most
    // `bytes`.
    unsafe { start.add(by) }
}
