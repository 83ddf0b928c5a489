//! Stripe buffers: what one write, reconstruction or job step needs besides the request's own
//! payload.
//!
//! What must stay true: a task gets all its buffers at once or waits for all of them, in order of
//! arrival. It takes them only *after* it holds its row lock, and never waits for a lock
//! afterwards. So a task with buffers can always finish, and the pool cannot deadlock. The pool is
//! made when the array starts and never grows.
//!
//! Blocks of updates that ended are kept at hand for the next ones. They are nobody's: who takes
//! blocks takes them first, and while anybody waits for the pool none is kept.

use crate::lists::{List, Lists};
use ashlar_iobuf::{BufMut, Pool, PoolClass, PoolUsage};
use ashlar_units::BLOCK_BYTES_USIZE;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Buffers of one stripe operation.
pub(crate) type StripeBuffers = List<BufMut>;

/// The stripe buffers of one array on one worker.
pub(crate) struct Scratch {
    pool: Pool,
    block: Credits,
    strip: Credits,
    strip_bytes: usize,
    lists: Lists<BufMut>,
    at_hand: RefCell<Vec<BufMut>>,
    /// Who waits for a buffer that comes back to the pool.
    waiting: Cell<usize>,
}

/// Blocks kept at hand: some for each of the updates under way in the usual case.
const AT_HAND_MAX: usize = 128;

/// Leave to hold some buffers; gives the places back on drop. Drop it after the buffers.
pub(crate) struct Leave {
    credits: Credits,
    count: usize,
}

impl Scratch {
    /// Room for at least two operations that each touch all `strips` strips of a stripe whole, more
    /// if `target_bytes` allows, and a thousand single-block buffers.
    pub(crate) fn new(strips: usize, strip_bytes: usize, target_bytes: usize) -> io::Result<Self> {
        let block_count = 1024.max(8 * strips);
        let strip_count = (target_bytes / strip_bytes).max(2 * strips + 2);
        let pool = Pool::new(&[
            PoolClass { buffer_bytes: BLOCK_BYTES_USIZE, count: block_count },
            PoolClass { buffer_bytes: strip_bytes.max(2 * BLOCK_BYTES_USIZE), count: strip_count },
        ])?;
        Ok(Scratch {
            pool,
            block: Credits::new(block_count),
            strip: Credits::new(strip_count),
            strip_bytes,
            lists: Lists::default(),
            at_hand: RefCell::default(),
            waiting: Cell::new(0),
        })
    }

    /// `count` buffers of `bytes` each (at most a strip), content unspecified.
    pub(crate) async fn take(&self, count: usize, bytes: usize) -> (StripeBuffers, Leave) {
        assert!(bytes <= self.strip_bytes, "{bytes} bytes are more than a strip");
        let credits = if bytes <= BLOCK_BYTES_USIZE { &self.block } else { &self.strip };
        if !credits.try_take(count) {
            credits.wait(count).await;
        }
        let leave = Leave { credits: credits.clone(), count };
        let mut buffers = self.lists.list();
        if bytes == BLOCK_BYTES_USIZE {
            let mut at_hand = self.at_hand.borrow_mut();
            let rest = at_hand.len().saturating_sub(count);
            buffers.extend(at_hand.drain(rest..));
        }
        let missing = count - buffers.len();
        self.pool.try_get_each(bytes, missing, &mut buffers);
        while buffers.len() < count {
            // A device that was given up on may still own a buffer whose leave is back: wait for
            // it.
            let _waits = Waits::new(&self.waiting);
            drop(self.at_hand.take());
            buffers.push(self.pool.get(bytes).await);
        }
        (buffers, leave)
    }

    /// A whole block in each of `places`, content unspecified, if they can be had at once.
    #[inline]
    pub(crate) fn try_blocks(&self, places: &mut [Option<BufMut>]) -> Option<Leave> {
        if !self.block.try_take(places.len()) {
            return None;
        }
        let leave = Leave { credits: self.block.clone(), count: places.len() };
        let mut at_hand = self.at_hand.borrow_mut();
        let mut has_all = true;
        for place in places.iter_mut() {
            *place = at_hand.pop().or_else(|| self.pool.try_get(BLOCK_BYTES_USIZE));
            has_all &= place.is_some();
        }
        if !has_all {
            // As above: who waits holds none.
            places.fill_with(|| None);
        }
        has_all.then_some(leave)
    }

    /// Nobody needs these blocks any more. To be given back before the leave.
    #[inline]
    pub(crate) fn keep(&self, blocks: impl Iterator<Item = BufMut>) {
        let mut at_hand = self.at_hand.borrow_mut();
        for block in blocks.filter(|block| block.len() == BLOCK_BYTES_USIZE) {
            if self.waiting.get() == 0 && at_hand.len() < AT_HAND_MAX {
                at_hand.push(block);
            }
        }
    }

    /// A list of no buffers, to be filled with others than the pool's.
    pub(crate) fn no_buffers(&self) -> StripeBuffers {
        self.lists.list()
    }

    /// What is out and what ever was.
    pub(crate) fn usage(&self) -> PoolUsage {
        let mut usage = self.pool.usage();
        if let Some(blocks) = usage.classes.first_mut() {
            blocks.in_use = blocks.in_use.saturating_sub(self.at_hand.borrow().len());
        }
        usage
    }
}

/// Somebody waits for the pool until this drops.
struct Waits<'s>(&'s Cell<usize>);

impl Waits<'_> {
    fn new(waiting: &Cell<usize>) -> Waits<'_> {
        waiting.set(waiting.get() + 1);
        Waits(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        self.credits.give_back(self.count);
    }
}

/// Counted places, taken many at a time, first come first served.
#[derive(Clone)]
struct Credits {
    state: Rc<CreditState>,
}

struct CreditState {
    free: Cell<usize>,
    total: usize,
    line: RefCell<VecDeque<(u64, usize, Option<Waker>)>>,
    next_id: Cell<u64>,
}

impl Credits {
    fn new(total: usize) -> Self {
        let state = CreditState {
            free: Cell::new(total),
            total,
            line: RefCell::default(),
            next_id: Cell::new(0),
        };
        Credits { state: Rc::new(state) }
    }

    /// Take so many, if they are there and nobody is in line.
    #[inline]
    fn try_take(&self, count: usize) -> bool {
        let state = &self.state;
        assert!(count <= state.total, "{count} buffers asked of a pool of {}", state.total);
        let free = state.free.get();
        let may_take = free >= count && state.line.borrow().is_empty();
        if may_take {
            state.free.set(free - count);
        }
        may_take
    }

    /// Take them in line.
    async fn wait(&self, count: usize) {
        let state = &self.state;
        let id = state.next_id.get();
        state.next_id.set(id + 1);
        state.line.borrow_mut().push_back((id, count, None));
        let place = Place { credits: self, id };
        poll_fn(|context| place.poll(context.waker())).await;
    }

    #[inline]
    fn give_back(&self, count: usize) {
        self.state.free.set(self.state.free.get() + count);
        if !self.state.line.borrow().is_empty() {
            self.wake_first();
        }
    }

    fn wake_first(&self) {
        if let Some((_, count, waker)) = self.state.line.borrow_mut().front_mut()
            && *count <= self.state.free.get()
            && let Some(waker) = waker.take()
        {
            waker.wake();
        }
    }
}

/// A place in the line; leaves it on drop, whether served or given up.
struct Place<'c> {
    credits: &'c Credits,
    id: u64,
}

impl Place<'_> {
    fn poll(&self, waker: &Waker) -> Poll<()> {
        let state = &self.credits.state;
        let mut line = state.line.borrow_mut();
        let at = line.iter().position(|(id, ..)| *id == self.id).expect("still in line");
        let count = line[at].1;
        if at == 0 && state.free.get() >= count {
            state.free.set(state.free.get() - count);
            return Poll::Ready(());
        }
        line[at].2 = Some(waker.clone());
        Poll::Pending
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.credits.state.line.borrow_mut().retain(|(id, ..)| *id != self.id);
        self.credits.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use super::Scratch;
    use ashlar_units::BLOCK_BYTES_USIZE;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn at_once<F: Future>(future: F) -> Option<F::Output> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn blocks_at_hand_count_as_free_and_are_taken_first() {
        let scratch = Scratch::new(6, 65_536, 1 << 20).expect("memory");
        let in_use = || scratch.usage().classes[0].in_use;
        let mut blocks = [const { None }; 3];
        let leave = scratch.try_blocks(&mut blocks).expect("there are some");
        let places = blocks.each_ref().map(|block| block.as_ref().expect("taken").address());
        assert_eq!(in_use(), 3);
        scratch.keep(blocks.into_iter().flatten());
        drop(leave);
        assert_eq!(in_use(), 0);
        let (first, leave) = at_once(scratch.take(1, BLOCK_BYTES_USIZE)).expect("free");
        assert!(places.contains(&first[0].address()));
        drop((first, leave));
        let all = scratch.usage().classes[0].count;
        let (every, _leave) = at_once(scratch.take(all, BLOCK_BYTES_USIZE)).expect("all are free");
        assert_eq!((every.len(), in_use()), (all, all));
        assert!(scratch.try_blocks(&mut [None]).is_none(), "no leave is left");
    }
}
