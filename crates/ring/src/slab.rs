//! Numbered places that are used again: the storage behind timers, one-shots and waiting lines.
//!
//! A place belongs to whoever inserted it until that party removes it, so numbers carry no
//! generation. Grows to the high-water mark of use and then allocates no more. Not here: growth
//! limits; users hold credits.

/// A table of `T` with places that are used again, last freed first (its memory is still in the
/// cache).
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Slab { places: Vec::new(), free: Vec::new() }
    }

    /// Puts `value` into a free place and returns its number.
    pub(crate) fn insert(&mut self, value: T) -> usize {
        if let Some(at) = self.free.pop() {
            self.places[at] = Some(value);
            return at;
        }
        self.places.push(Some(value));
        self.places.len() - 1
    }

    /// Takes the value out and frees its place.
    pub(crate) fn remove(&mut self, at: usize) -> T {
        let value = self.places[at].take().expect("a place is removed once, by its owner");
        self.free.push(at);
        value
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> &mut T {
        self.places[at].as_mut().expect("a place is used by its owner only")
    }

    /// Places in use.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}
