//! A fixed number of buffers in a few sizes, cut from one arena.
//!
//! What must stay true: slots never overlap. Every slot starts at a multiple of 512 bytes, and of
//! 4096 with [`Alignment::Page`]. A pool hands out at most what it was made with and makes others
//! wait. Buffers that were written off do not count as handed out. Slots of a reserve stand in for
//! them, as many as there are slots at most. No slot is used again before its last owner has let it
//! go.
//!
//! With [`Alignment::Coloured`] consecutive buffers are displaced against each other, so that the
//! strips of a stripe do not compete for the same L1 sets (parity over 16 aligned strips ran at
//! half speed). Not here: the line of waiters (`line`).

use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

use crate::arena::{Arena, Backing, Pages};
use crate::buf::BufMut;
use crate::line::{COLOURS, Left, Line, Ticket};
use crate::memory::{Memory, Place, Share};

/// Buffers with fixed sizes and a fixed number of each, allocated at start. Clones share it.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

/// One size of buffer in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolClass {
    /// Size of each buffer, in bytes.
    pub buffer_bytes: usize,
    /// How many there are.
    pub count: usize,
}

/// Where a pool's buffers start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// At multiples of 512 bytes, each displaced against the one before modulo 4096.
    Coloured,
    /// At multiples of 4096 bytes, for devices that need that for direct I/O.
    Page,
}

/// What a pool holds and how much of it was ever out at once.
#[derive(Clone, Debug)]
pub struct PoolUsage {
    /// One entry for each size, smallest first.
    pub classes: Vec<ClassUsage>,
    /// Size of the whole arena.
    pub arena_bytes: usize,
    /// Whether the arena is on huge pages, as far as the kernel tells: see `backing`.
    pub on_huge_pages: bool,
    /// What kind of pages the arena is on.
    pub backing: Backing,
    /// The NUMA node that the arena's pages are taken from, if it is settled on one.
    pub node: Option<u32>,
    /// Where buffers start.
    pub alignment: Alignment,
}

/// Usage of one size of buffer.
#[derive(Clone, Copy, Debug)]
pub struct ClassUsage {
    /// Size of each buffer, in bytes.
    pub buffer_bytes: usize,
    /// How many there are.
    pub count: usize,
    /// How many are out now.
    pub in_use: usize,
    /// How many were ever out at once.
    pub in_use_max: usize,
    /// How often somebody had to wait for this size.
    pub waits: u64,
    /// How many are lost for now, with others in their place.
    pub written_off: usize,
}

/// What all clones of a pool and all its buffers share.
pub(crate) struct Shared {
    arena: Arena,
    alignment: Alignment,
    classes: Vec<Class>,
    /// One for each slot, in the order of the classes.
    headers: Vec<Memory>,
    line: Mutex<Line>,
    /// There once a buffer was written off.
    reserve: OnceLock<Option<Reserve>>,
}

/// Slots that stand in for those that were written off: as many of each class as the pool has,
/// numbered on from those.
struct Reserve {
    arena: Arena,
    headers: Vec<Memory>,
    /// By class: those that are not in use as stand-ins.
    idle: Mutex<Vec<Vec<u32>>>,
}

#[derive(Clone, Copy)]
struct Class {
    buffer_bytes: usize,
    count: usize,
    /// Number of the class's first slot.
    first_slot: usize,
    /// Where that slot is in the arena.
    offset: usize,
    /// From slot to slot.
    stride_bytes: usize,
}

/// Smallest alignment of any buffer: a sector, which is also more than any vector register wants.
const SECTOR: usize = 512;
const PAGE: usize = 4096;
/// From here on 1.5 KiB more for each buffer do not matter.
const LARGE: usize = 16 << 10;
/// What a debug build fills returned buffers with.
const POISON: u8 = 0xDB;

impl Pool {
    /// A pool with coloured buffers: see [`Pool::with_alignment`].
    ///
    /// # Errors
    /// As [`Pool::with_alignment`].
    pub fn new(classes: &[PoolClass]) -> io::Result<Pool> {
        Pool::with_alignment(classes, Alignment::Coloured)
    }

    /// A pool with these classes, in any order. Address space is taken now, memory with first use.
    ///
    /// # Errors
    /// `InvalidInput` without any class, for a class of size zero or for sizes beyond all bounds;
    /// otherwise what the kernel says to the mapping.
    pub fn with_alignment(classes: &[PoolClass], alignment: Alignment) -> io::Result<Pool> {
        Pool::on(Pages::Huge, classes, alignment)
    }

    /// The same at multiples of 4096 bytes and on ordinary pages, so that it takes only the memory
    /// that is used of each buffer: for large buffers that are seldom filled.
    ///
    /// # Errors
    /// As [`Pool::with_alignment`].
    pub fn sparse(classes: &[PoolClass]) -> io::Result<Pool> {
        Pool::on(Pages::Small, classes, Alignment::Page)
    }

    fn on(pages: Pages, classes: &[PoolClass], alignment: Alignment) -> io::Result<Pool> {
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "pool too large");
        if classes.is_empty() || classes.iter().any(|class| class.buffer_bytes == 0) {
            let reason = "a pool needs buffer sizes, none of them zero";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let mut sorted = classes.to_vec();
        sorted.sort_by_key(|class| class.buffer_bytes);
        let placed = place(&sorted, alignment).ok_or_else(too_large)?;
        let last = placed.last().expect("there is a class");
        let arena = Arena::map(last.end(), pages)?.filled();
        let slot_count = last.first_slot + last.count;
        u32::try_from(slot_count).map_err(|_| too_large())?;
        // Exactly as long as they get: a simulator makes dozens of pools on each start.
        let mut headers = Vec::with_capacity(slot_count);
        for class in placed.iter().enumerate() {
            headers.extend(places(&arena, class).map(Memory::of_slot));
        }
        let line = Mutex::new(full_line(&placed, &headers));
        let reserve = OnceLock::new();
        Ok(Pool(Arc::new(Shared { arena, alignment, classes: placed, headers, line, reserve })))
    }

    /// A buffer of exactly `bytes`, from the smallest class that holds it and has one free. Its
    /// content is unspecified memory of this process (poisoned in debug builds). `None` also if no
    /// class is that large.
    pub fn try_get(&self, bytes: usize) -> Option<BufMut> {
        let class = self.0.class_for(bytes)?;
        let slot = self.0.line().take(class)?;
        Some(self.0.hand_out(slot, bytes))
    }

    /// Adds buffers as from [`Pool::try_get`] to `buffers`, at most `count` of them and as many as
    /// there are. For several at once it is cheaper.
    pub fn try_get_each(&self, bytes: usize, count: usize, buffers: &mut Vec<BufMut>) {
        let Some(class) = self.0.class_for(bytes) else { return };
        buffers.reserve(count);
        let mut line = self.0.line();
        for _ in 0..count {
            let Some(slot) = line.take(class) else { break };
            buffers.push(self.0.hand_out(slot, bytes));
        }
    }

    /// The same; waits in line while none is free.
    ///
    /// # Panics
    /// If `bytes` exceeds the largest class.
    ///
    /// # Cancellation
    /// Dropping the future leaves the line; a buffer that was granted already goes to the next.
    pub fn get(&self, bytes: usize) -> impl Future<Output = BufMut> + Send + use<> {
        let class = self.0.class_for(bytes);
        let class = class.unwrap_or_else(|| panic!("no buffer of {bytes} bytes in this pool"));
        Get { pool: Arc::clone(&self.0), class, bytes, ticket: None }
    }

    /// Size of the largest class, in bytes.
    pub fn buffer_bytes_max(&self) -> usize {
        self.0.classes.last().expect("there is a class").buffer_bytes
    }

    /// Addresses of the arena, for registering it with a kernel interface and for checks.
    pub fn arena_addresses(&self) -> Range<usize> {
        let start = self.0.arena.start().addr().get();
        start..start + self.0.arena.bytes()
    }

    /// What is out now, and what was at most.
    pub fn usage(&self) -> PoolUsage {
        let line = self.0.line();
        let usage = |(at, class): (usize, &Class)| {
            let counts = line.counts(at);
            ClassUsage {
                buffer_bytes: class.buffer_bytes,
                count: class.count,
                in_use: counts.in_use,
                in_use_max: counts.in_use_max,
                waits: counts.waits,
                written_off: counts.written_off,
            }
        };
        let backing = self.0.arena.backing();
        PoolUsage {
            classes: self.0.classes.iter().enumerate().map(usage).collect(),
            arena_bytes: self.0.arena.bytes(),
            on_huge_pages: backing != Backing::SmallPages,
            backing,
            node: self.0.arena.node(),
            alignment: self.0.alignment,
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pool").field(&self.usage()).finish()
    }
}

impl Shared {
    /// Takes back a slot whose last owner is gone.
    pub(crate) fn put_back(&self, place: &Place) {
        if cfg!(debug_assertions) {
            self.poison(place);
        }
        self.pass_on(place);
    }

    fn pass_on(&self, place: &Place) {
        let mut line = self.line();
        if line.is_back(place.class, place.slot) {
            drop(line);
            return self.retire(place);
        }
        let next = line.put_back(place.class, place.colour, place.slot);
        drop(line);
        if let Some(waker) = next {
            waker.wake();
        }
    }

    /// A slot is lost for now: another one takes its place, if the reserve has one left.
    pub(crate) fn write_off(&self, place: Place) {
        let Some(reserve) = self.reserve.get_or_init(|| self.make_reserve()) else { return };
        let mut idle = reserve.idle();
        let Some(slot) = idle[place.class].last().copied() else { return };
        let mut line = self.line();
        if !line.write_off(place.class, place.slot) {
            return;
        }
        idle[place.class].pop();
        drop(idle);
        let stand_in = self.header(slot).place();
        let next = line.put_back(stand_in.class, stand_in.colour, slot);
        drop(line);
        if let Some(waker) = next {
            waker.wake();
        }
    }

    /// A slot that was written off has come back: it stands in for the next that is.
    #[cold]
    fn retire(&self, place: &Place) {
        if let Some(Some(reserve)) = self.reserve.get() {
            reserve.idle()[place.class].push(place.slot);
        }
    }

    /// `None` if the kernel has no memory for it: then buffers that were written off are missed.
    fn make_reserve(&self) -> Option<Reserve> {
        let last = self.classes.last().expect("there is a class");
        let first_slot = last.first_slot + last.count;
        u32::try_from(2 * first_slot).ok()?;
        let arena = Arena::map(last.end(), self.arena.pages()).ok()?.filled();
        let mut headers = Vec::with_capacity(first_slot);
        let mut idle = Vec::new();
        for (at, class) in self.classes.iter().enumerate() {
            let offset_by = u32::try_from(first_slot).ok()?;
            let places = places(&arena, (at, class));
            let places = places.map(|place| Place { slot: place.slot + offset_by, ..place });
            let start = headers.len();
            headers.extend(places.map(Memory::of_slot));
            idle.push(headers[start..].iter().map(|header| header.place().slot).collect());
        }
        Some(Reserve { arena, headers, idle: Mutex::new(idle) })
    }

    /// The header of a slot, and the arena it lies in.
    fn slot(&self, slot: u32) -> (&Memory, &Arena) {
        let at = index(slot);
        match self.headers.get(at) {
            Some(header) => (header, &self.arena),
            None => {
                let reserve = self.reserve.get().and_then(Option::as_ref);
                let reserve = reserve.expect("slots beyond the pool's own are the reserve's");
                (&reserve.headers[at - self.headers.len()], &reserve.arena)
            }
        }
    }

    fn header(&self, slot: u32) -> &Memory {
        self.slot(slot).0
    }

    /// Makes a buffer of a slot that `line` took off its free list.
    fn hand_out(self: &Arc<Shared>, slot: u32, bytes: usize) -> BufMut {
        let (header, arena) = self.slot(slot);
        let start = arena.at(header.place().offset);
        // SAFETY: `line` gave the slot to us, so no other share of it exists.
        let share = unsafe { Share::of_slot(header, self) };
        // SAFETY: the slot holds `bytes` (`class_for` chose it), is initialised because fresh
        // mappings are zeros, lives as long as the pool that `share` keeps, and overlaps no other
        // slot (`place`).
        unsafe { BufMut::sole(share, start, bytes) }
    }

    fn poison(&self, place: &Place) {
        let start = self.slot(place.slot).1.at(place.offset);
        // SAFETY: the slot's last owner is gone and it is not on the free list yet: it is ours.
        unsafe { start.write_bytes(POISON, self.classes[place.class].buffer_bytes) };
    }

    fn class_for(&self, bytes: usize) -> Option<usize> {
        self.classes.iter().position(|class| class.buffer_bytes >= bytes)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // Nothing inside panics half-way through a change but broken invariants of its own.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reserve {
    fn idle(&self) -> MutexGuard<'_, Vec<Vec<u32>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Class {
    fn offset_of(&self, slot: usize) -> usize {
        self.offset + (slot - self.first_slot) * self.stride_bytes
    }

    /// First byte after the class's slots.
    fn end(&self) -> usize {
        self.offset + self.count * self.stride_bytes
    }
}

/// Places the classes one after another; `None` if that exceeds the address space.
fn place(sorted: &[PoolClass], alignment: Alignment) -> Option<Vec<Class>> {
    let mut placed = Vec::with_capacity(sorted.len());
    let (mut offset, mut first_slot) = (0usize, 0usize);
    for &PoolClass { buffer_bytes, count } in sorted {
        let stride_bytes = stride(buffer_bytes, alignment)?;
        offset = offset.checked_next_multiple_of(PAGE)?;
        placed.push(Class { buffer_bytes, count, first_slot, offset, stride_bytes });
        offset = offset.checked_add(count.checked_mul(stride_bytes)?)?;
        first_slot = first_slot.checked_add(count)?;
    }
    Some(placed)
}

/// From one buffer to the next: an odd number of sectors modulo 4 KiB visits all eight colours.
/// Three of them keep neighbours further apart than a kernel reads ahead; small buffers make do
/// with one.
fn stride(buffer_bytes: usize, alignment: Alignment) -> Option<usize> {
    match alignment {
        Alignment::Page => buffer_bytes.checked_next_multiple_of(PAGE),
        Alignment::Coloured if buffer_bytes < PAGE => buffer_bytes.checked_next_multiple_of(SECTOR),
        Alignment::Coloured => {
            let displaced_by = if buffer_bytes < LARGE { SECTOR } else { 3 * SECTOR };
            let sectors = buffer_bytes.checked_next_multiple_of(SECTOR)?;
            let over = sectors % PAGE;
            let more = (displaced_by + PAGE - over) % PAGE;
            sectors.checked_add(more)
        }
    }
}

/// Where the slots of a class are, by rising numbers.
fn places(arena: &Arena, (at, class): (usize, &Class)) -> impl Iterator<Item = Place> + use<> {
    let (start, class) = (arena.start().addr().get(), *class);
    (class.first_slot..class.first_slot + class.count).map(move |slot| {
        let offset = class.offset_of(slot);
        let colour = (start + offset) % PAGE / SECTOR % COLOURS;
        let slot = u32::try_from(slot).expect("counted by the caller");
        Place { slot, class: at, colour, offset }
    })
}

fn full_line(classes: &[Class], headers: &[Memory]) -> Line {
    let mut line = Line::new(classes.iter().map(|class| class.count));
    // The last one first: slots are taken off the end, so the arena is used from its start.
    for place in headers.iter().rev().map(Memory::place) {
        line.add(place.class, place.colour, place.slot);
    }
    line
}

fn index(slot: u32) -> usize {
    usize::try_from(slot).expect("usize is at least 32 bits")
}

/// A task that wants a buffer, perhaps in line already.
struct Get {
    pool: Arc<Shared>,
    class: usize,
    bytes: usize,
    ticket: Option<Ticket>,
}

impl Future for Get {
    type Output = BufMut;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BufMut> {
        let waker = cx.waker().clone();
        let this = &mut *self;
        let mut line = this.pool.line();
        let left = match this.ticket {
            Some(ticket) => line.collect(ticket, waker),
            None => match line.take(this.class) {
                Some(slot) => Left::Slot(slot),
                None => {
                    this.ticket = Some(line.wait(this.class, waker));
                    return Poll::Pending;
                }
            },
        };
        drop(line);
        match left {
            Left::Slot(slot) => {
                this.ticket = None;
                Poll::Ready(this.pool.hand_out(slot, this.bytes))
            }
            Left::Waker(stale) => {
                drop(stale);
                Poll::Pending
            }
        }
    }
}

impl Drop for Get {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let left = self.pool.line().leave(ticket);
        if let Left::Slot(slot) = left {
            self.pool.pass_on(&self.pool.header(slot).place());
        }
    }
}
