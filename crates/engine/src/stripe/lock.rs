//! Row locks: which request may touch which rows of a stripe right now.
//!
//! What must stay true: two holders whose rows overlap are both readers of parity (`Shared`).
//! Requests that overlap are granted in order of arrival, so none starves. A waiter that is dropped
//! leaves the line. There is one table for each array and worker. Only the stripe's owner asks, so
//! there are no threads here. Rows are 4 KiB blocks within a strip: two small writes to different
//! rows of one stripe do not wait for each other.

use ashlar_layout::{RowRange, StripeId};
use ashlar_units::to_usize;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// How a row range is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// Others may read these rows too; nobody may change them.
    Shared,
    /// Nobody else may touch these rows.
    Exclusive,
}

/// The locks of one array on one worker. Cloning shares the table.
#[derive(Clone)]
pub(crate) struct RowLocks {
    table: Rc<RefCell<Table>>,
}

/// Lines of the table, as a power of two: more than a worker has stripes in flight, so that most
/// have one request.
const LINES_LOG2: u32 = 9;

/// Requests for rows by a hash of their stripe. A line may have requests for several stripes. It
/// keeps its memory, so that the data path does not allocate.
struct Table {
    lines: Box<[Vec<Entry>; 1 << LINES_LOG2]>,
    next_id: u64,
}

impl Default for RowLocks {
    fn default() -> Self {
        let lines = Box::new([const { Vec::new() }; 1 << LINES_LOG2]);
        RowLocks { table: Rc::new(RefCell::new(Table { lines, next_id: 0 })) }
    }
}

/// One request for rows, held or waiting, in order of arrival.
struct Entry {
    stripe: StripeId,
    id: u64,
    rows: RowRange,
    hold: Hold,
    is_granted: bool,
    waker: Option<Waker>,
}

impl Entry {
    #[inline]
    fn conflicts(&self, other: &Entry) -> bool {
        let one_changes = self.hold == Hold::Exclusive || other.hold == Hold::Exclusive;
        self.stripe == other.stripe && one_changes && self.rows.overlaps(other.rows)
    }
}

impl Table {
    /// The line of a stripe. Stripe numbers are well spread by one multiplication; a keyed hash
    /// would cost more than the lock.
    #[inline]
    fn line(&mut self, stripe: StripeId) -> &mut Vec<Entry> {
        let spread = stripe.word().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &mut self.lines[to_usize(spread >> (u64::BITS - LINES_LOG2))]
    }

    fn entry(&mut self, stripe: StripeId, id: u64) -> &mut Entry {
        let mut line = self.line(stripe).iter_mut();
        line.find(|entry| entry.id == id).expect("a guard's request is in its line")
    }
}

impl RowLocks {
    /// Wait until `rows` of `stripe` may be held that way, behind everybody who asked before.
    pub(crate) async fn lock(&self, stripe: StripeId, rows: RowRange, hold: Hold) -> RowGuard {
        let (guard, is_granted) = self.enter(stripe, rows, hold);
        if !is_granted {
            guard.granted().await;
        }
        guard
    }

    /// Hold `rows` of a stripe without other holders or waiters; `None` if there are any.
    pub(crate) fn lock_if_idle(&self, stripe: StripeId, rows: RowRange) -> Option<RowGuard> {
        let is_of = |entry: &Entry| entry.stripe == stripe;
        let is_idle = !self.table.borrow_mut().line(stripe).iter().any(is_of);
        is_idle.then(|| self.enter(stripe, rows, Hold::Exclusive).0)
    }

    /// Wait until each request that is here now, held or waiting, has left.
    pub(crate) async fn pass_by(&self) {
        let mut here: Vec<(StripeId, RowRange)> = Vec::new();
        for line in self.table.borrow().lines.iter() {
            here.extend(line.iter().map(|entry| (entry.stripe, entry.rows)));
        }
        for (stripe, rows) in here {
            drop(self.lock(stripe, rows, Hold::Exclusive).await);
        }
    }

    /// Requests for rows, held or waiting.
    #[cfg(test)]
    fn requests(&self) -> usize {
        self.table.borrow().lines.iter().map(Vec::len).sum()
    }

    /// A place in the line for these rows, and whether they are held already.
    #[inline]
    pub(crate) fn enter(&self, stripe: StripeId, rows: RowRange, hold: Hold) -> (RowGuard, bool) {
        let mut table = self.table.borrow_mut();
        let id = table.next_id;
        table.next_id += 1;
        let line = table.line(stripe);
        let mut entry = Entry { stripe, id, rows, hold, is_granted: false, waker: None };
        let is_granted = !line.iter().any(|earlier| earlier.conflicts(&entry));
        entry.is_granted = is_granted;
        line.push(entry);
        (RowGuard { locks: self.clone(), stripe, id }, is_granted)
    }

    #[inline]
    fn leave(&self, stripe: StripeId, id: u64) {
        let mut table = self.table.borrow_mut();
        let line = table.line(stripe);
        let at = line.iter().position(|entry| entry.id == id);
        let left = line.remove(at.expect("a guard's request is in its line"));
        if !line.is_empty() {
            grant(line, stripe);
        }
        drop(table);
        drop(left);
    }
}

/// Grant what waits for rows of the stripe that nobody before it is in the way of.
fn grant(line: &mut [Entry], stripe: StripeId) {
    for at in 0..line.len() {
        let (earlier, rest) = line.split_at_mut(at);
        let entry = &mut rest[0];
        let is_waiting = entry.stripe == stripe && !entry.is_granted;
        if is_waiting && !earlier.iter().any(|before| before.conflicts(entry)) {
            entry.is_granted = true;
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        }
    }
}

/// Rows held (or, until granted, waited for); given up on drop.
pub(crate) struct RowGuard {
    locks: RowLocks,
    stripe: StripeId,
    id: u64,
}

impl RowGuard {
    /// Wait until the rows are held.
    pub(crate) fn granted(&self) -> impl Future<Output = ()> {
        Granted { guard: self }
    }
}

impl Drop for RowGuard {
    #[inline]
    fn drop(&mut self) {
        self.locks.leave(self.stripe, self.id);
    }
}

struct Granted<'g> {
    guard: &'g RowGuard,
}

impl Future for Granted<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut table = self.guard.locks.table.borrow_mut();
        let entry = table.entry(self.guard.stripe, self.guard.id);
        if entry.is_granted {
            return Poll::Ready(());
        }
        entry.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::{Hold, RowLocks};
    use ashlar_layout::{LayoutEpoch, RowRange, StripeId};
    use ashlar_units::StripeNo;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn stripe() -> StripeId {
        StripeId::new(LayoutEpoch::FIRST, StripeNo(7))
    }

    fn rows(start: u32, end: u32) -> RowRange {
        RowRange { start, end }
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn different_rows_of_one_stripe_do_not_wait_for_each_other() {
        let locks = RowLocks::default();
        let mut first = pin!(locks.lock(stripe(), rows(0, 1), Hold::Exclusive));
        let mut second = pin!(locks.lock(stripe(), rows(1, 2), Hold::Exclusive));
        let _held = poll(first.as_mut()).expect("free rows");
        assert!(poll(second.as_mut()).is_some());
    }

    #[test]
    fn readers_share_and_a_writer_waits_for_all_of_them() {
        let locks = RowLocks::default();
        let mut one = pin!(locks.lock(stripe(), rows(0, 4), Hold::Shared));
        let mut two = pin!(locks.lock(stripe(), rows(2, 6), Hold::Shared));
        let mut writer = pin!(locks.lock(stripe(), rows(3, 5), Hold::Exclusive));
        let one = poll(one.as_mut()).expect("shared");
        let two = poll(two.as_mut()).expect("shared");
        assert!(poll(writer.as_mut()).is_none());
        drop(one);
        assert!(poll(writer.as_mut()).is_none());
        drop(two);
        assert!(poll(writer.as_mut()).is_some());
    }

    #[test]
    fn a_later_reader_does_not_overtake_a_waiting_writer() {
        let locks = RowLocks::default();
        let mut reader = pin!(locks.lock(stripe(), rows(0, 4), Hold::Shared));
        let held = poll(reader.as_mut()).expect("free");
        let mut writer = pin!(locks.lock(stripe(), rows(0, 4), Hold::Exclusive));
        assert!(poll(writer.as_mut()).is_none());
        let mut late = pin!(locks.lock(stripe(), rows(0, 1), Hold::Shared));
        assert!(poll(late.as_mut()).is_none());
        drop(held);
        let written = poll(writer.as_mut()).expect("next in line");
        assert!(poll(late.as_mut()).is_none());
        drop(written);
        assert!(poll(late.as_mut()).is_some());
    }

    #[test]
    fn a_dropped_waiter_leaves_the_line_and_nothing_of_an_idle_stripe_is_left() {
        let locks = RowLocks::default();
        let held = poll(pin!(locks.lock(stripe(), rows(0, 4), Hold::Exclusive))).expect("free");
        {
            let mut gone = Box::pin(locks.lock(stripe(), rows(0, 4), Hold::Exclusive));
            assert!(poll(gone.as_mut()).is_none());
        }
        let mut next = pin!(locks.lock(stripe(), rows(0, 4), Hold::Exclusive));
        assert!(poll(next.as_mut()).is_none());
        drop(held);
        drop(poll(next.as_mut()).expect("the dropped waiter passed its turn on"));
        assert_eq!(locks.requests(), 0);
    }

    #[test]
    fn those_who_are_here_are_waited_for_and_later_ones_are_not() {
        let locks = RowLocks::default();
        let reader = poll(pin!(locks.lock(stripe(), rows(0, 4), Hold::Shared))).expect("free");
        let mut writer = Box::pin(locks.lock(stripe(), rows(2, 3), Hold::Exclusive));
        assert!(poll(writer.as_mut()).is_none());
        let mut passing = pin!(locks.pass_by());
        assert!(poll(passing.as_mut()).is_none());
        let _later = poll(pin!(locks.lock(stripe(), rows(4, 8), Hold::Exclusive))).expect("free");
        drop(reader);
        assert!(poll(passing.as_mut()).is_none(), "the writer was here, too");
        drop(poll(writer.as_mut()).expect("its turn"));
        assert!(poll(passing.as_mut()).is_some());
    }

    #[test]
    fn stripes_that_share_a_line_do_not_wait_for_each_other() {
        let locks = RowLocks::default();
        let of = |number| StripeId::new(LayoutEpoch::FIRST, StripeNo(number));
        let held: Vec<_> = (0..2000)
            .map(|number| poll(pin!(locks.lock(of(number), rows(0, 4), Hold::Exclusive))))
            .collect();
        assert!(held.iter().all(Option::is_some));
        let mut waiters: Vec<_> = (0..2000)
            .map(|number| Box::pin(locks.lock(of(number), rows(3, 5), Hold::Shared)))
            .collect();
        assert!(waiters.iter_mut().all(|waiter| poll(waiter.as_mut()).is_none()));
        assert!(locks.lock_if_idle(of(7), rows(8, 9)).is_none());
        drop(held);
        assert!(waiters.iter_mut().all(|waiter| poll(waiter.as_mut()).is_some()));
        drop(waiters);
        assert_eq!(locks.requests(), 0);
        assert!(locks.lock_if_idle(of(7), rows(8, 9)).is_some());
    }
}
