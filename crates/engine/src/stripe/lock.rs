//! Row locks: which request may touch which rows of a stripe right now.
//!
//! What must stay true: two holders whose rows overlap are both readers of parity (`Shared`).
//! Requests that overlap are granted in order of arrival, so none starves. A waiter that is dropped
//! leaves the line. There is one table for each array and worker. Only the stripe's owner asks, so
//! there are no threads here. Rows are 4 KiB blocks within a strip: two small writes to different
//! rows of one stripe do not wait for each other.

use ashlar_layout::{RowRange, StripeId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry::Occupied;
use std::future::Future;
use std::hash::{BuildHasherDefault, Hasher};
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
#[derive(Clone, Default)]
pub(crate) struct RowLocks {
    table: Rc<RefCell<Table>>,
}

#[derive(Default)]
struct Table {
    stripes: HashMap<StripeId, Vec<Entry>, BuildHasherDefault<StripeHasher>>,
    /// Entry lists of stripes that became idle, kept so that the data path does not allocate.
    spare_lists: Vec<Vec<Entry>>,
    next_id: u64,
}

/// One request for rows, held or waiting, in order of arrival.
struct Entry {
    id: u64,
    rows: RowRange,
    hold: Hold,
    is_granted: bool,
    waker: Option<Waker>,
}

impl Entry {
    fn conflicts(&self, other: &Entry) -> bool {
        let one_changes = self.hold == Hold::Exclusive || other.hold == Hold::Exclusive;
        one_changes && self.rows.overlaps(other.rows)
    }
}

impl RowLocks {
    /// Wait until `rows` of `stripe` may be held that way, behind everybody who asked before.
    pub(crate) async fn lock(&self, stripe: StripeId, rows: RowRange, hold: Hold) -> RowGuard {
        let (guard, is_granted) = self.enter(stripe, rows, hold);
        if !is_granted {
            Granted { guard: &guard }.await;
        }
        guard
    }

    /// Hold `rows` of a stripe without other holders or waiters; `None` if there are any.
    pub(crate) fn lock_if_idle(&self, stripe: StripeId, rows: RowRange) -> Option<RowGuard> {
        let is_idle = !self.table.borrow().stripes.contains_key(&stripe);
        is_idle.then(|| self.enter(stripe, rows, Hold::Exclusive).0)
    }

    /// Stripes with a holder or waiter.
    #[cfg(test)]
    fn busy_stripes(&self) -> usize {
        self.table.borrow().stripes.len()
    }

    /// A place in the line for these rows, and whether they are held already.
    fn enter(&self, stripe: StripeId, rows: RowRange, hold: Hold) -> (RowGuard, bool) {
        let mut table = self.table.borrow_mut();
        let id = table.next_id;
        table.next_id += 1;
        let table = &mut *table;
        let spare_lists = &mut table.spare_lists;
        let list =
            table.stripes.entry(stripe).or_insert_with(|| spare_lists.pop().unwrap_or_default());
        let mut entry = Entry { id, rows, hold, is_granted: false, waker: None };
        let is_granted = !list.iter().any(|earlier| earlier.conflicts(&entry));
        entry.is_granted = is_granted;
        list.push(entry);
        (RowGuard { locks: self.clone(), stripe, id }, is_granted)
    }

    fn leave(&self, stripe: StripeId, id: u64) {
        let mut table = self.table.borrow_mut();
        let Table { stripes, spare_lists, .. } = &mut *table;
        let Occupied(mut listed) = stripes.entry(stripe) else {
            unreachable!("a guard's stripe is in the table")
        };
        let list = listed.get_mut();
        list.retain(|entry| entry.id != id);
        if list.is_empty() {
            spare_lists.push(listed.remove());
            return;
        }
        for at in 0..list.len() {
            let (earlier, rest) = list.split_at_mut(at);
            let entry = &mut rest[0];
            if !entry.is_granted && !earlier.iter().any(|before| before.conflicts(entry)) {
                entry.is_granted = true;
                if let Some(waker) = entry.waker.take() {
                    waker.wake();
                }
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

impl Drop for RowGuard {
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
        let list = table.stripes.get_mut(&self.guard.stripe).expect("guard is in the table");
        let entry =
            list.iter_mut().find(|entry| entry.id == self.guard.id).expect("guard is in the list");
        if entry.is_granted {
            return Poll::Ready(());
        }
        entry.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Stripe numbers are well spread by one multiplication; a keyed hash would cost more than the
/// lock.
#[derive(Default)]
struct StripeHasher(u64);

impl Hasher for StripeHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("stripes hash as one word");
    }

    fn write_u64(&mut self, stripe: u64) {
        self.0 = stripe.wrapping_mul(0x9E37_79B9_7F4A_7C15);
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
    fn a_dropped_waiter_leaves_the_line_and_an_idle_stripe_leaves_the_table() {
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
        assert_eq!(locks.busy_stripes(), 0);
    }
}
