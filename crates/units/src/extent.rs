//! A run of bytes in some address space: a volume, a stripe's data, or a member.

use std::fmt;

/// `bytes` bytes from `offset` on. Which address space is meant, the name of the field or parameter
/// says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Extent {
    /// `bytes` bytes from `offset` on.
    #[inline]
    pub fn new(offset: u64, bytes: u64) -> Self {
        Extent { offset, bytes }
    }

    /// First byte after the extent; `None` if that exceeds 64 bits (a hostile client can ask for
    /// it).
    #[inline]
    pub fn checked_end(self) -> Option<u64> {
        self.offset.checked_add(self.bytes)
    }

    /// First byte after the extent.
    ///
    /// # Panics
    /// If it exceeds 64 bits; extents that come from outside go through [`Extent::checked_end`]
    /// first.
    #[inline]
    pub fn end(self) -> u64 {
        self.checked_end().expect("extent was checked at the edge")
    }

    /// Whether both ends are multiples of `unit`.
    #[inline]
    pub fn is_aligned_to(self, unit: u64) -> bool {
        self.offset.is_multiple_of(unit) && self.bytes.is_multiple_of(unit)
    }

    /// The smallest extent with both ends on multiples of `unit` that covers this one.
    #[must_use]
    #[inline]
    pub fn widened_to(self, unit: u64) -> Self {
        let offset = self.offset - self.offset % unit;
        Extent { offset, bytes: self.end().next_multiple_of(unit) - offset }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {}", self.bytes, self.offset)
    }
}
