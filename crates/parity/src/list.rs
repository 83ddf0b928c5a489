//! A list in an array: what calls use in place of the heap.
//!
//! What must stay true: only the first `len` items can be seen.

use crate::error::CodeError;

/// A list that lives inline and never grows beyond `MAX`.
#[derive(Clone, Copy)]
pub(crate) struct List<T, const MAX: usize> {
    items: [T; MAX],
    len: usize,
}

impl<T: Copy, const MAX: usize> List<T, MAX> {
    pub(crate) fn new(filler: T) -> Self {
        List { items: [filler; MAX], len: 0 }
    }

    pub(crate) fn push(&mut self, item: T) -> Result<(), CodeError> {
        let full = CodeError::WrongCount { expected: MAX, given: MAX + 1 };
        *self.items.get_mut(self.len).ok_or(full)? = item;
        self.len += 1;
        Ok(())
    }

    /// Pushes where the bound is known to hold.
    pub(crate) fn push_known(&mut self, item: T) {
        self.items[self.len] = item;
        self.len += 1;
    }
}

impl<T, const MAX: usize> std::ops::Deref for List<T, MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items[..self.len]
    }
}

impl<T, const MAX: usize> std::ops::DerefMut for List<T, MAX> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items[..self.len]
    }
}
