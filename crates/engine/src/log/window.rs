//! Numbers of updates in one log ring, and which of them are under way.
//!
//! What must stay true: numbers rise by one, and no number is used twice while the array runs.
//! Pure.

use std::collections::VecDeque;

/// The updates from the oldest one under way to the newest.
pub(super) struct Window {
    oldest: u64,
    has_ended: VecDeque<bool>,
}

impl Window {
    /// No update yet; the first is number 1.
    pub(super) fn new() -> Window {
        Window { oldest: 1, has_ended: VecDeque::new() }
    }

    /// The number of a new update.
    pub(super) fn begin(&mut self) -> u64 {
        self.has_ended.push_back(false);
        self.oldest + u64::try_from(self.has_ended.len()).expect("few") - 1
    }

    /// The update has ended, well or badly.
    pub(super) fn end(&mut self, sequence: u64) {
        let at = usize::try_from(sequence - self.oldest).expect("few");
        self.has_ended[at] = true;
        while self.has_ended.front() == Some(&true) {
            self.has_ended.pop_front();
            self.oldest += 1;
        }
    }

    /// The number that the next update gets.
    pub(super) fn next(&self) -> u64 {
        self.oldest + u64::try_from(self.has_ended.len()).expect("few")
    }

    /// Every update with a lower number has ended.
    pub(super) fn oldest(&self) -> u64 {
        self.oldest
    }
}

#[cfg(test)]
mod tests {
    use super::Window;

    #[test]
    fn the_oldest_is_the_first_that_has_not_ended() {
        let mut window = Window::new();
        let updates: Vec<u64> = (0..4).map(|_| window.begin()).collect();
        assert_eq!(updates, [1, 2, 3, 4]);
        window.end(2);
        window.end(3);
        assert_eq!(window.oldest(), 1);
        window.end(1);
        assert_eq!(window.oldest(), 4);
        window.end(4);
        assert_eq!((window.oldest(), window.begin()), (5, 5));
    }
}
