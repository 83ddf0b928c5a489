//! Free slots of a pool, and the line of waiters.
//!
//! What must stay true: a slot is free, granted to one waiter, or out. A free slot of a class
//! exists only if no waiter in line could use it. So waiters are served in order of arrival. Plain
//! values, no locks and no memory: the pool holds this under its one mutex.

use std::collections::VecDeque;
use std::task::Waker;

/// Buffers at equal offsets modulo 4 KiB share L1 sets; in steps of 512 bytes there are eight
/// colours.
pub(crate) const COLOURS: usize = 8;

/// Index of somebody waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket(usize);

pub(crate) struct Line {
    classes: Vec<Slots>,
    waiters: Vec<Waiter>,
    vacant: Vec<Ticket>,
    /// Counts arrivals, so that the fronts of two classes' queues can be compared.
    arrivals: u64,
}

/// The slots of one class that are free, and counts of the others.
struct Slots {
    /// By colour: slots given out one after another should differ in colour, because that is how a
    /// stripe gets its strips.
    free: [Vec<u32>; COLOURS],
    next_colour: usize,
    in_use: usize,
    in_use_max: usize,
    waits: u64,
    queue: VecDeque<(u64, Ticket)>,
    /// Slots that are out and count as lost: others stand in for them until they come back.
    written_off: Vec<u32>,
}

enum Waiter {
    Vacant,
    Waiting { class: usize, waker: Waker },
    Granted { slot: u32 },
}

/// What somebody in line had. A waker must be dropped after unlocking: it may hold the last
/// reference to a task, and that task may hold buffers of this pool.
pub(crate) enum Left {
    Slot(u32),
    Waker(Waker),
}

/// Figures of one class.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) in_use: usize,
    pub(crate) in_use_max: usize,
    pub(crate) waits: u64,
    pub(crate) written_off: usize,
}

impl Line {
    /// Classes without slots yet, with room for this many of each.
    pub(crate) fn new(slot_counts: impl Iterator<Item = usize>) -> Line {
        let classes = slot_counts.map(Slots::with_room_for).collect();
        Line { classes, waiters: Vec::new(), vacant: Vec::new(), arrivals: 0 }
    }

    /// Adds a free slot while the pool is being made.
    pub(crate) fn add(&mut self, class: usize, colour: usize, slot: u32) {
        self.classes[class].free[colour].push(slot);
    }

    /// A free slot of class `class` or, if there is none, of a larger one.
    #[inline]
    pub(crate) fn take(&mut self, class: usize) -> Option<u32> {
        let slot = self.classes[class].take();
        slot.or_else(|| self.classes[class + 1..].iter_mut().find_map(Slots::take))
    }

    /// Puts the caller in line for `class`.
    pub(crate) fn wait(&mut self, class: usize, waker: Waker) -> Ticket {
        let waiter = Waiter::Waiting { class, waker };
        let ticket = match self.vacant.pop() {
            Some(ticket) => {
                self.waiters[ticket.0] = waiter;
                ticket
            }
            None => {
                self.waiters.push(waiter);
                Ticket(self.waiters.len() - 1)
            }
        };
        self.arrivals += 1;
        self.classes[class].waits += 1;
        self.classes[class].queue.push_back((self.arrivals, ticket));
        ticket
    }

    /// Picks up what was granted and leaves the line. If nothing was, `waker` is the one to wake,
    /// and the one that was until now comes back.
    pub(crate) fn collect(&mut self, ticket: Ticket, waker: Waker) -> Left {
        match &mut self.waiters[ticket.0] {
            Waiter::Waiting { waker: old, .. } => Left::Waker(std::mem::replace(old, waker)),
            Waiter::Granted { .. } | Waiter::Vacant => self.leave(ticket),
        }
    }

    /// Leaves the line; a slot that was granted already has to be put back.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Left {
        let waiter = std::mem::replace(&mut self.waiters[ticket.0], Waiter::Vacant);
        self.vacant.push(ticket);
        match waiter {
            Waiter::Granted { slot } => Left::Slot(slot),
            Waiter::Waiting { class, waker } => {
                self.classes[class].queue.retain(|(_, waiting)| *waiting != ticket);
                Left::Waker(waker)
            }
            Waiter::Vacant => panic!("a ticket is used until it is collected or given up"),
        }
    }

    /// A slot of `class` came back. It goes to the first waiter that can use it. Wake the returned
    /// waiter after unlocking.
    #[must_use]
    #[inline]
    pub(crate) fn put_back(&mut self, class: usize, colour: usize, slot: u32) -> Option<Waker> {
        let Some(waiting_class) = self.first_waiting(class) else {
            let slots = &mut self.classes[class];
            slots.in_use -= 1;
            slots.free[colour].push(slot);
            return None;
        };
        let (_, ticket) = self.classes[waiting_class].queue.pop_front()?;
        match std::mem::replace(&mut self.waiters[ticket.0], Waiter::Granted { slot }) {
            Waiter::Waiting { waker, .. } => Some(waker),
            Waiter::Granted { .. } | Waiter::Vacant => panic!("only who waits is in a queue"),
        }
    }

    /// The class of the first waiter that a slot of `class` is large enough for.
    fn first_waiting(&self, class: usize) -> Option<usize> {
        if self.vacant.len() == self.waiters.len() {
            return None;
        }
        let fronts = self.classes[..=class].iter().enumerate();
        fronts.filter_map(|(at, slots)| Some((slots.queue.front()?.0, at))).min().map(|it| it.1)
    }

    /// A slot that is out counts as lost from now on. False if it did before.
    pub(crate) fn write_off(&mut self, class: usize, slot: u32) -> bool {
        let written_off = &mut self.classes[class].written_off;
        let is_new = !written_off.contains(&slot);
        if is_new {
            written_off.push(slot);
        }
        is_new
    }

    /// Whether a slot that comes back counted as lost; it does not any more.
    #[inline]
    pub(crate) fn is_back(&mut self, class: usize, slot: u32) -> bool {
        let written_off = &mut self.classes[class].written_off;
        if written_off.is_empty() {
            return false;
        }
        let place = written_off.iter().position(|lost| *lost == slot);
        place.map(|place| written_off.swap_remove(place)).is_some()
    }

    pub(crate) fn counts(&self, class: usize) -> Counts {
        let Slots { in_use, in_use_max, waits, written_off, .. } = &self.classes[class];
        let written_off = written_off.len();
        Counts { in_use: *in_use, in_use_max: *in_use_max, waits: *waits, written_off }
    }
}

impl Slots {
    /// None yet; room for so many, if they have all colours alike.
    fn with_room_for(count: usize) -> Slots {
        let free = || Vec::with_capacity(count.div_ceil(COLOURS));
        Slots {
            free: std::array::from_fn(|_| free()),
            next_colour: 0,
            in_use: 0,
            in_use_max: 0,
            waits: 0,
            queue: VecDeque::new(),
            written_off: Vec::new(),
        }
    }

    fn take(&mut self) -> Option<u32> {
        for turn in 0..COLOURS {
            let colour = (self.next_colour + turn) % COLOURS;
            if let Some(slot) = self.free[colour].pop() {
                self.next_colour = (colour + 1) % COLOURS;
                self.in_use += 1;
                self.in_use_max = self.in_use_max.max(self.in_use);
                return Some(slot);
            }
        }
        None
    }
}
