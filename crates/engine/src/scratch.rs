//! Stripe buffers: what one write, reconstruction or job step needs besides the request's own
//! payload.
//!
//! What must stay true: a task gets all its buffers at once or waits for all of them, in order of
//! arrival. It takes them only *after* it holds its row lock, and never waits for a lock
//! afterwards. So a task with buffers can always finish, and the pool cannot deadlock. The pool is
//! made when the array starts and never grows.

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
}

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
        })
    }

    /// `count` buffers of `bytes` each (at most a strip), content unspecified.
    pub(crate) async fn take(&self, count: usize, bytes: usize) -> (StripeBuffers, Leave) {
        assert!(bytes <= self.strip_bytes, "{bytes} bytes are more than a strip");
        let credits = if bytes <= BLOCK_BYTES_USIZE { &self.block } else { &self.strip };
        credits.take(count).await;
        let leave = Leave { credits: credits.clone(), count };
        let mut buffers = self.lists.list();
        self.pool.try_get_each(bytes, count, &mut buffers);
        while buffers.len() < count {
            // A device that was given up on may still own a buffer whose leave is back: wait for
            // it.
            buffers.push(self.pool.get(bytes).await);
        }
        (buffers, leave)
    }

    /// A list of no buffers, to be filled with others than the pool's.
    pub(crate) fn no_buffers(&self) -> StripeBuffers {
        self.lists.list()
    }

    /// What is out and what ever was.
    pub(crate) fn usage(&self) -> PoolUsage {
        self.pool.usage()
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

    async fn take(&self, count: usize) {
        let state = &self.state;
        assert!(count <= state.total, "{count} buffers asked of a pool of {}", state.total);
        if state.line.borrow().is_empty() && state.free.get() >= count {
            state.free.set(state.free.get() - count);
            return;
        }
        let id = state.next_id.get();
        state.next_id.set(id + 1);
        state.line.borrow_mut().push_back((id, count, None));
        let place = Place { credits: self, id };
        poll_fn(|context| place.poll(context.waker())).await;
    }

    fn give_back(&self, count: usize) {
        self.state.free.set(self.state.free.get() + count);
        self.wake_first();
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
