//! What clients wrote, and what each block may therefore hold.
//!
//! What must stay true: a write stays possible until another write of the block is *kept* that
//! began after the first was answered. So overlapping writes may be found in either order, and a
//! write that was never answered may be found or not. Nothing else may be found. Contents that were
//! found after a kill are final.
//!
//! The array's promise decides when a write is kept. The first `promised` blocks keep it when it is
//! answered, the others when a flush that began after its answer was answered. Everything is in a
//! journal with its times, so that the books can be had as of any moment. Not here: the writing
//! (`load`).

use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;

/// A write of one block.
#[derive(Clone)]
struct Written {
    /// What it put there: the number of the write, or 0 for zeros.
    stamp: u64,
    /// Which write it was: when it began.
    number: u64,
    answered: Option<u64>,
    is_kept: bool,
}

impl Written {
    fn precedes(&self, later: &Written) -> bool {
        self.answered.is_some_and(|answered| answered < later.number)
    }
}

#[derive(Default)]
struct Books {
    /// Counts beginnings and answers.
    clock: u64,
    answered: u64,
    blocks: Vec<Vec<Written>>,
    /// Blocks, from the first, that keep what is answered.
    promised: usize,
    journal: Vec<(u64, Event)>,
}

/// What the books are made from.
#[derive(Clone, Copy)]
enum Event {
    Began { first: usize, count: usize, is_zeros: bool },
    Answered(Ticket),
    FlushBegan,
    FlushAnswered(u64),
}

/// The books of all clients together.
pub struct Ledger(Mutex<Books>);

/// A write under way.
#[derive(Clone, Copy)]
pub struct Ticket {
    /// The number of the write.
    pub number: u64,
    first: usize,
    count: usize,
}

impl Ledger {
    /// So many blocks of zeros, of which the first `promised` keep what is answered.
    pub fn blank(blocks: usize, promised: usize) -> Ledger {
        let zeros = Written { stamp: 0, number: 0, answered: Some(0), is_kept: true };
        let blocks = vec![vec![zeros]; blocks];
        Ledger(Mutex::new(Books { blocks, promised, ..Books::default() }))
    }

    /// The books as they were at that time, in nanoseconds of [`now_ns`].
    pub fn as_of(&self, at_ns: u64) -> Ledger {
        let books = self.books();
        let then = Ledger::blank(books.blocks.len(), books.promised);
        for (_, event) in books.journal.iter().take_while(|(when, _)| *when < at_ns) {
            match *event {
                Event::Began { first, count, is_zeros } => {
                    then.begin(first, count, is_zeros);
                }
                Event::Answered(ticket) => then.answer(ticket),
                Event::FlushBegan => {
                    then.begin_flush();
                }
                Event::FlushAnswered(began) => then.answer_flush(began),
            }
        }
        then
    }

    /// Writes that were answered.
    pub fn answered(&self) -> u64 {
        self.books().answered
    }

    /// A write of `count` blocks from `first` is about to begin; of zeros or of what [`fill`] makes
    /// of its number.
    pub fn begin(&self, first: usize, count: usize, is_zeros: bool) -> Ticket {
        let mut books = self.books();
        books.note(Event::Began { first, count, is_zeros });
        let number = books.clock;
        let stamp = if is_zeros { 0 } else { number };
        for block in &mut books.blocks[first..first + count] {
            block.push(Written { stamp, number, answered: None, is_kept: false });
        }
        Ticket { number, first, count }
    }

    /// The write was answered.
    pub fn answer(&self, ticket: Ticket) {
        let mut books = self.books();
        books.note(Event::Answered(ticket));
        books.answered += 1;
        let (now, promised) = (books.clock, books.promised);
        for at in ticket.first..ticket.first + ticket.count {
            let block = &mut books.blocks[at];
            for written in block.iter_mut().filter(|it| it.number == ticket.number) {
                written.answered = Some(now);
                written.is_kept = at < promised;
            }
            forget(block);
        }
    }

    /// A flush is about to begin: when.
    pub fn begin_flush(&self) -> u64 {
        let mut books = self.books();
        books.note(Event::FlushBegan);
        books.clock
    }

    /// The flush that began then was answered: what had been answered before it is kept.
    pub fn answer_flush(&self, began: u64) {
        let mut books = self.books();
        books.note(Event::FlushAnswered(began));
        for block in &mut books.blocks {
            for written in block.iter_mut() {
                written.is_kept |= written.answered.is_some_and(|answered| answered < began);
            }
            forget(block);
        }
    }

    /// What a read that begins now may find in each of these blocks.
    pub fn readable(&self, first: usize, count: usize) -> Vec<BTreeSet<u64>> {
        let books = self.books();
        let stamps = |block: &Vec<Written>| {
            let answered: Vec<&Written> = block.iter().filter(|it| it.answered.is_some()).collect();
            let is_over = |it: &&Written| answered.iter().any(|later| it.precedes(later));
            block.iter().filter(|it| !is_over(it)).map(|it| it.stamp).collect()
        };
        books.blocks[first..first + count].iter().map(stamps).collect()
    }

    /// A read that began when the blocks might hold `before` brought `bytes`: each block must hold
    /// something it might have held then, or that was begun since.
    ///
    /// # Panics
    /// If it does not.
    pub fn check(&self, first: usize, before: &[BTreeSet<u64>], bytes: &[u8]) {
        let begun = |block: &Vec<Written>| block.iter().map(|it| it.stamp).collect();
        let now = &self.books().blocks[first..first + before.len()];
        let now: Vec<BTreeSet<u64>> = now.iter().map(begun).collect();
        for (at, bytes) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
            let newest_before = before[at].iter().max().copied().unwrap_or(0);
            let since = now[at].iter().filter(|stamp| **stamp > newest_before);
            let possible: BTreeSet<u64> = before[at].iter().chain(since).copied().collect();
            // Zeros that were begun since cannot be told from others.
            let is_zeros_since = now[at].contains(&0);
            let found = stamp_of(first + at, bytes);
            assert!(
                found.is_some_and(|it| possible.contains(&it) || it == 0 && is_zeros_since),
                "a read of block {} brings {}, and may bring {possible:?}",
                first + at,
                tell(bytes),
            );
        }
    }

    /// Whether the block can hold one thing only.
    pub fn is_settled(&self, block: usize) -> bool {
        self.books().blocks[block].len() == 1
    }

    /// Whether `bytes` may be what the block holds after a crash.
    ///
    /// # Errors
    /// If not: what it holds and what it might hold.
    pub fn may_hold(&self, block: usize, bytes: &[u8]) -> Result<u64, String> {
        let books = self.books();
        let possible: BTreeSet<u64> = books.blocks[block].iter().map(|it| it.stamp).collect();
        let found = stamp_of(block, bytes).filter(|stamp| possible.contains(stamp));
        found.ok_or_else(|| format!("block {block} holds {}, not {possible:?}", tell(bytes)))
    }

    /// Nobody writes; the block was found to hold `bytes`, and does so from now on.
    ///
    /// # Errors
    /// If that cannot be.
    pub fn settle(&self, block: usize, bytes: &[u8]) -> Result<(), String> {
        let stamp = self.may_hold(block, bytes)?;
        let mut books = self.books();
        let answered = Some(books.clock);
        books.blocks[block] = vec![Written { stamp, number: 0, answered, is_kept: true }];
        Ok(())
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // A client that failed says so itself.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn note(&mut self, event: Event) {
        self.clock += 1;
        self.journal.push((now_ns(), event));
    }
}

/// The clock of the record of writes: the same for all processes of a host.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).expect("since the start of the host");
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

/// Forget what cannot be there any more after a kill.
fn forget(block: &mut Vec<Written>) {
    let kept: Vec<Written> = block.iter().filter(|it| it.is_kept).cloned().collect();
    block.retain(|it| !kept.iter().any(|later| it.precedes(later)));
}

/// What write `number` puts into `block`: names both, in every sixteen bytes.
pub fn fill(block: usize, number: u64, bytes: &mut [u8]) {
    let block = u64::try_from(block).expect("small");
    for part in bytes.chunks_exact_mut(16) {
        part[..8].copy_from_slice(&block.to_le_bytes());
        part[8..].copy_from_slice(&number.to_le_bytes());
    }
}

/// Which write filled a block; 0 for zeros, `None` for what no write put there.
fn stamp_of(block: usize, bytes: &[u8]) -> Option<u64> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let number = u64::from_le_bytes(bytes[8..16].try_into().expect("eight"));
    let mut wanted = [0; BLOCK_BYTES];
    fill(block, number, &mut wanted);
    (bytes == wanted).then_some(number)
}

/// What is in a block, for people: runs of what one write left.
fn tell(bytes: &[u8]) -> String {
    let mut runs: Vec<(usize, u64, u64)> = Vec::new();
    for part in bytes.chunks_exact(16) {
        let block = u64::from_le_bytes(part[..8].try_into().expect("eight"));
        let number = u64::from_le_bytes(part[8..].try_into().expect("eight"));
        match runs.last_mut() {
            Some(run) if (run.1, run.2) == (block, number) => run.0 += 16,
            _ => runs.push((16, block, number)),
        }
    }
    let tell = |(bytes, block, number): &(usize, u64, u64)| {
        format!("{bytes} bytes of write {number} to block {block}")
    };
    runs.iter().take(4).map(tell).collect::<Vec<String>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_BYTES, Ledger, fill};

    /// In a ledger of two blocks the first is kept when it is answered, the second when it is
    /// flushed.
    fn holds(ledger: &Ledger, block: usize, number: u64) -> bool {
        let mut bytes = [0; BLOCK_BYTES];
        if number > 0 {
            fill(block, number, &mut bytes);
        }
        ledger.settle(block, &bytes).is_ok()
    }

    #[test]
    fn an_answered_write_of_a_stripe_in_use_is_what_its_block_holds() {
        let ledger = Ledger::blank(2, 1);
        let ticket = ledger.begin(0, 1, false);
        ledger.answer(ticket);
        assert!(!holds(&ledger, 0, 0), "the write is lost");
        assert!(holds(&ledger, 0, ticket.number));
    }

    #[test]
    fn elsewhere_a_write_is_kept_by_a_flush_that_begins_after_its_answer() {
        let ledger = Ledger::blank(2, 1);
        let ticket = ledger.begin(1, 1, false);
        let early = ledger.begin_flush();
        ledger.answer(ticket);
        ledger.answer_flush(early);
        assert_eq!(ledger.readable(1, 1)[0].iter().copied().collect::<Vec<u64>>(), [ticket.number]);
        ledger.answer_flush(ledger.begin_flush());
        assert!(!holds(&ledger, 1, 0), "it was flushed");
        let lost = ledger.begin(1, 1, false);
        ledger.answer(lost);
        assert!(holds(&ledger, 1, ticket.number), "a write that was not flushed may be lost");
    }

    #[test]
    fn a_write_without_an_answer_may_be_there_or_not_and_what_was_found_stays() {
        for found in [false, true] {
            let ledger = Ledger::blank(2, 1);
            let ticket = ledger.begin(0, 1, false);
            let (there, gone) = if found { (ticket.number, 0) } else { (0, ticket.number) };
            assert!(holds(&ledger, 0, there));
            assert!(!holds(&ledger, 0, gone), "it goes back");
        }
    }

    #[test]
    fn writes_that_overlap_in_time_may_be_found_in_either_order() {
        for found in [0, 1] {
            let ledger = Ledger::blank(2, 1);
            let tickets = [ledger.begin(0, 1, false), ledger.begin(0, 1, false)];
            tickets.iter().for_each(|ticket| ledger.answer(*ticket));
            assert!(!holds(&ledger, 0, 0));
            assert!(holds(&ledger, 0, tickets[found].number));
        }
        let ledger = Ledger::blank(2, 1);
        let first = ledger.begin(0, 1, false);
        ledger.answer(first);
        let second = ledger.begin(0, 1, false);
        ledger.answer(second);
        assert!(!holds(&ledger, 0, first.number), "the second began after the first was answered");
    }

    #[test]
    fn the_books_can_be_had_as_they_were_before_each_event() {
        let ledger = Ledger::blank(2, 0);
        let ticket = ledger.begin(0, 2, false);
        ledger.answer(ticket);
        let answered = super::now_ns();
        ledger.answer_flush(ledger.begin_flush());
        assert!(holds(&ledger.as_of(answered), 0, 0), "not flushed then");
        assert!(holds(&ledger.as_of(answered), 0, ticket.number));
        assert!(!holds(&ledger.as_of(super::now_ns()), 0, 0), "flushed");
        assert!(!holds(&ledger.as_of(0), 0, ticket.number), "not begun then");
    }

    #[test]
    fn halves_of_two_writes_are_nothing_that_may_be_found() {
        let ledger = Ledger::blank(2, 1);
        let ticket = ledger.begin(0, 1, false);
        let mut bytes = [0; BLOCK_BYTES];
        fill(0, ticket.number, &mut bytes[..BLOCK_BYTES / 2]);
        assert!(ledger.settle(0, &bytes).is_err());
    }
}
