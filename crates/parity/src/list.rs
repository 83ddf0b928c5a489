//! A list in an array: what calls use in place of the heap.
//!
//! What must stay true: the first `len` items are initialised, and only those can be seen. The rest
//! is never written: zeroing what a call does not use took a third of the time of a 4 KiB call.

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

use crate::error::CodeError;

/// At most `MAX` items, inline.
pub(crate) struct List<T, const MAX: usize> {
    items: [MaybeUninit<T>; MAX],
    len: usize,
}

impl<T: Copy, const MAX: usize> List<T, MAX> {
    pub(crate) const fn new() -> Self {
        List { items: [const { MaybeUninit::uninit() }; MAX], len: 0 }
    }

    pub(crate) fn push(&mut self, item: T) -> Result<(), CodeError> {
        let full = CodeError::WrongCount { expected: MAX, given: MAX + 1 };
        self.items.get_mut(self.len).ok_or(full)?.write(item);
        self.len += 1;
        Ok(())
    }

    /// Pushes where the bound is known to hold.
    pub(crate) fn push_known(&mut self, item: T) {
        self.items[self.len].write(item);
        self.len += 1;
    }
}

impl<T, const MAX: usize> Deref for List<T, MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `push` and `push_known` initialised the first `len` items.
        unsafe { self.items[..self.len].assume_init_ref() }
    }
}

impl<T, const MAX: usize> DerefMut for List<T, MAX> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: `push` and `push_known` initialised the first `len` items.
        unsafe { self.items[..self.len].assume_init_mut() }
    }
}
