//! Short lists that are used again: what a request holds several of (buffers, reads, writes)
//! without an allocation once warm, and without making its future large. Futures are moved when
//! they are awaited, so a list stored inside one costs a copy of its whole capacity; a list on the
//! heap costs 32 bytes.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// A supply of lists of one kind. Cloning shares it.
pub(crate) struct Lists<T> {
    idle: Rc<RefCell<Vec<Vec<T>>>>,
}

/// Idle lists kept: as many as requests are under way in the usual case.
const IDLE_MAX: usize = 1024;

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Lists { idle: Rc::default() }
    }
}

impl<T> Lists<T> {
    /// An empty list.
    pub(crate) fn list(&self) -> List<T> {
        let items = self.idle.borrow_mut().pop().unwrap_or_default();
        List { items, idle: Some(Rc::clone(&self.idle)) }
    }
}

/// A list that goes back to its supply when it is dropped, if it came from one.
pub(crate) struct List<T> {
    items: Vec<T>,
    idle: Option<Rc<RefCell<Vec<Vec<T>>>>>,
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        List { items: items.into_iter().collect(), idle: None }
    }
}

impl<T> Drop for List<T> {
    fn drop(&mut self) {
        let Some(idle) = &self.idle else { return };
        self.items.clear();
        let mut lists = idle.borrow_mut();
        if lists.len() < IDLE_MAX {
            lists.push(std::mem::take(&mut self.items));
        }
    }
}

impl<T> Deref for List<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.items
    }
}

impl<T> DerefMut for List<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.items
    }
}

#[cfg(test)]
mod tests {
    use super::Lists;

    #[test]
    fn a_dropped_list_is_handed_out_again_empty() {
        let lists = Lists::default();
        let mut first = lists.list();
        first.extend([1, 2, 3]);
        let place = first.as_ptr();
        drop(first);
        let second = lists.list();
        assert!(second.is_empty());
        assert_eq!(second.as_ptr(), place);
    }
}
