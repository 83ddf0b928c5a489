//! The counted header behind every buffer, and the way of its memory back to its owner.
//!
//! What must stay true: the header outlives every [`Share`] of it. The last share to be dropped
//! sends the memory back: to the heap, to its pool or to its lender. A pool's headers are made with
//! the pool, so taking a buffer allocates nothing. Not here: which bytes an owner may touch
//! (`buf`).

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::UnsafeCell;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::arena::{Arena, Pages};
use crate::mapping::Lender;
use crate::pool::Shared;

/// Alignment of memory that is not from a pool: the largest that direct I/O asks for.
const HEAP_ALIGNMENT: usize = 4096;

/// Header of one piece of memory.
pub(crate) struct Memory {
    /// Number of `Share`s; zero while the slot is free.
    owners: AtomicUsize,
    home: Home,
}

enum Home {
    Heap {
        start: NonNull<u8>,
        layout: Layout,
    },
    /// A mapping of its own, which unmaps itself.
    Mapped {
        _arena: Arena,
    },
    /// A part of somebody else's memory.
    Lent {
        lender: Arc<Lender>,
        range: Range<usize>,
    },
    Slot {
        place: Place,
        /// Keeps the pool alive while the slot is out. Touched only by who takes the slot and by
        /// who drops its last share.
        pool: UnsafeCell<Option<Arc<Shared>>>,
    },
}

/// Which slot of a pool, and what the pool asks about it each time it is taken and put back.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) slot: u32,
    /// Index of its class.
    pub(crate) class: usize,
    /// Its offset modulo 4 KiB, as a colour.
    pub(crate) colour: usize,
    /// Where it starts in the arena, in bytes.
    pub(crate) offset: usize,
}

// SAFETY: `owners` is atomic; `home` is immutable but for `pool`, which only the single taker or
// the single last dropper of a slot touches, ordered by the pool's lock and by the count.
unsafe impl Sync for Memory {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Memory {}

impl Memory {
    /// The header of a pool's slot, not taken yet.
    pub(crate) fn of_slot(place: Place) -> Memory {
        Memory {
            owners: AtomicUsize::new(0),
            home: Home::Slot { place, pool: UnsafeCell::new(None) },
        }
    }

    /// The slot that it is the header of.
    pub(crate) fn place(&self) -> Place {
        let Home::Slot { place, .. } = &self.home else { panic!("a pool's headers are slots") };
        *place
    }
}

/// One counted reference to a piece of memory.
pub(crate) struct Share(NonNull<Memory>);

impl Share {
    /// New zero-filled memory from the heap and its first byte.
    pub(crate) fn on_heap(bytes: usize) -> (Share, NonNull<u8>) {
        let layout = Layout::from_size_align(bytes.max(1), HEAP_ALIGNMENT)
            .expect("a buffer is smaller than half the address space");
        // SAFETY: the layout's size is at least 1.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(memory) else { handle_alloc_error(layout) };
        let header =
            Box::new(Memory { owners: AtomicUsize::new(1), home: Home::Heap { start, layout } });
        (Share(NonNull::from(Box::leak(header))), start)
    }

    /// New zero-filled memory on a mapping of its own and its first byte.
    pub(crate) fn on_mapping(bytes: usize) -> io::Result<(Share, NonNull<u8>)> {
        let arena = Arena::map(bytes, Pages::Huge)?;
        let start = arena.start();
        let header =
            Box::new(Memory { owners: AtomicUsize::new(1), home: Home::Mapped { _arena: arena } });
        Ok((Share(NonNull::from(Box::leak(header))), start))
    }

    /// The first reference to a part of a mapping that its lender has noted as lent.
    pub(crate) fn of_loan(lender: Arc<Lender>, range: Range<usize>) -> Share {
        let home = Home::Lent { lender, range };
        let header = Box::new(Memory { owners: AtomicUsize::new(1), home });
        Share(NonNull::from(Box::leak(header)))
    }

    /// The first reference to a free slot of `pool`.
    ///
    /// # Safety
    /// `header` is one of `pool`'s headers, its slot is not on the free list and has no `Share`.
    pub(crate) unsafe fn of_slot(header: &Memory, pool: &Arc<Shared>) -> Share {
        let Home::Slot { pool: home, .. } = &header.home else {
            panic!("a pool's headers are slots");
        };
        // SAFETY: the caller is the only one who may touch the header of a slot that is being
        // taken.
        unsafe { *home.get() = Some(Arc::clone(pool)) };
        header.owners.store(1, Ordering::Relaxed);
        Share(NonNull::from(header))
    }

    /// Whether both refer to the same memory.
    pub(crate) fn is_same(&self, other: &Share) -> bool {
        self.0 == other.0
    }

    /// Whether there is no other reference to the memory. If so, all that others did with it has
    /// happened before.
    #[inline]
    pub(crate) fn is_only(&self) -> bool {
        self.memory().owners.load(Ordering::Acquire) == 1
    }

    /// Tells the pool behind it, if there is one, that the memory will not come back soon.
    pub(crate) fn write_off(&self) {
        let Home::Slot { place, pool } = &self.memory().home else { return };
        // SAFETY: whoever took the slot wrote this before there was a share of it, and the last
        // dropper comes after this share: until then it is only read.
        let pool = unsafe { (*pool.get()).as_ref() };
        pool.expect("a slot that is out knows its pool").write_off(*place);
    }

    #[inline]
    fn memory(&self) -> &Memory {
        // SAFETY: the header lives while there is a share of it.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for Share {
    #[inline]
    fn clone(&self) -> Share {
        let before = self.memory().owners.fetch_add(1, Ordering::Relaxed);
        // A wrapped count would free memory in use; so many references mean that they are leaked.
        assert!(before < usize::MAX / 2, "too many references to one buffer");
        Share(self.0)
    }
}

impl Drop for Share {
    #[inline]
    fn drop(&mut self) {
        // New shares come from shares only, so the only one needs no locked instruction, which
        // would wait for all copies under way.
        if !self.is_only() {
            if self.memory().owners.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            // What other owners did with the bytes comes before their next use.
            fence(Ordering::Acquire);
        }
        send_home(self.0);
    }
}

/// Gives back memory whose last share is gone.
fn send_home(header: NonNull<Memory>) {
    // SAFETY: nobody else refers to the header any more and it has not been freed yet.
    match unsafe { &header.as_ref().home } {
        Home::Slot { place, pool } => {
            // SAFETY: the last dropper is the only one who may touch the header now.
            let pool = unsafe { (*pool.get()).take() };
            return pool.expect("a slot that is out knows its pool").put_back(place);
        }
        &Home::Heap { start, layout } => {
            // SAFETY: `start` was allocated with this layout in `on_heap` and no owner is left.
            unsafe { dealloc(start.as_ptr(), layout) };
        }
        Home::Lent { lender, range } => lender.take_back(range),
        Home::Mapped { .. } => {}
    }
    // SAFETY: the header was leaked from a box (all but slots are) and no share of it is left.
    drop(unsafe { Box::from_raw(header.as_ptr()) });
}
