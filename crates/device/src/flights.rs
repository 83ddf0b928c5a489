//! Commands under way on a device of one worker: which task awaits each, and for how long it has
//! been under way.
//!
//! What must stay true: every command that began is answered exactly once, by its end or because it
//! was given up, whichever comes first. A place is used again only when the device itself is done
//! with its command. Time is counted in looks, not in seconds: a host that was suspended for a
//! minute has not looked more often. Not here: how often to look, and what follows.

use std::cell::{Cell, RefCell};

use ashlar_ring::Completion;

use crate::device::Outcome;
use crate::fault::Fault;

/// What a device owes at a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Owed {
    /// Commands under way that somebody waits for.
    pub under_way: usize,
    /// Looks that the oldest of them has seen before this one.
    pub oldest_looks: u32,
    /// Whether a command that was under way at the last look has been answered since.
    pub has_answered: bool,
}

impl Owed {
    /// What two devices owe together.
    #[must_use]
    pub fn and(self, other: Owed) -> Owed {
        Owed {
            under_way: self.under_way + other.under_way,
            oldest_looks: self.oldest_looks.max(other.oldest_looks),
            has_answered: self.has_answered || other.has_answered,
        }
    }
}

/// Commands under way, each with what its device needs to know of it.
pub struct Flights<J> {
    places: RefCell<Vec<Option<Flight<J>>>>,
    free: RefCell<Vec<usize>>,
    is_given_up: Cell<bool>,
    /// Commands that were under way at the last look.
    seen: Cell<usize>,
}

/// A command under way.
pub struct Flight<J> {
    /// What the device keeps of it.
    pub job: J,
    /// `None`: it was given up, and nobody waits.
    done: Option<Completion<Outcome>>,
    looks: u32,
}

impl<J> Default for Flights<J> {
    fn default() -> Self {
        Flights {
            places: RefCell::default(),
            free: RefCell::default(),
            is_given_up: Cell::new(false),
            seen: Cell::new(0),
        }
    }
}

impl<J> Flights<J> {
    /// Whether nothing is begun on the device any more.
    pub fn is_given_up(&self) -> bool {
        self.is_given_up.get()
    }

    /// A command is about to begin; its ticket.
    pub fn begin(&self, job: J, done: Completion<Outcome>) -> usize {
        let flight = Some(Flight { job, done: Some(done), looks: 0 });
        let mut places = self.places.borrow_mut();
        match self.free.borrow_mut().pop() {
            Some(ticket) => {
                places[ticket] = flight;
                ticket
            }
            None => {
                places.push(flight);
                places.len() - 1
            }
        }
    }

    /// The command, for what comes next of it: it is put back or ended in the same turn.
    ///
    /// # Panics
    /// If it was taken already.
    pub fn take(&self, ticket: usize) -> Flight<J> {
        self.places.borrow_mut()[ticket].take().expect("a ticket is for one operation at a time")
    }

    /// The command goes on.
    pub fn put_back(&self, ticket: usize, flight: Flight<J>) {
        self.places.borrow_mut()[ticket] = Some(flight);
    }

    /// The command that was taken has ended: its ticket is free.
    pub fn free(&self, ticket: usize) {
        self.free.borrow_mut().push(ticket);
    }

    /// Looks at all that is under way and waited for.
    pub fn look(&self) -> Owed {
        let mut owed = Owed::default();
        let mut seen_before = 0;
        for flight in self.places.borrow_mut().iter_mut().flatten() {
            if flight.done.is_none() {
                continue;
            }
            owed.under_way += 1;
            owed.oldest_looks = owed.oldest_looks.max(flight.looks);
            seen_before += usize::from(flight.looks > 0);
            flight.looks = flight.looks.saturating_add(1);
        }
        owed.has_answered = seen_before < self.seen.replace(owed.under_way);
        owed
    }

    /// What the device keeps of each command under way.
    pub fn for_each(&self, mut act: impl FnMut(&J)) {
        self.places.borrow().iter().flatten().for_each(|flight| act(&flight.job));
    }

    /// Answers everything that is under way, as timed out; from now on nothing begins. How many
    /// commands that were: the device still has them, and their buffers.
    pub fn give_up(&self) -> usize {
        self.is_given_up.set(true);
        let take = |flight: &mut Flight<J>| flight.done.take();
        let given_up: Vec<Completion<Outcome>> =
            self.places.borrow_mut().iter_mut().flatten().filter_map(take).collect();
        let count = given_up.len();
        for done in given_up {
            done.complete(Outcome { result: Err(Fault::TIMED_OUT), buffer: None });
        }
        count
    }
}

impl<J> Flight<J> {
    /// Answers the task that waits for it. True if the command had been given up: then there is no
    /// such task.
    pub fn answer(self, outcome: Outcome) -> bool {
        match self.done {
            Some(done) => {
                done.complete(outcome);
                false
            }
            None => true,
        }
    }

    /// Whether nobody waits for it any more.
    pub fn is_given_up(&self) -> bool {
        self.done.is_none()
    }

    /// Whom to tell, if anybody is to be told, for a device that leaves that to another.
    pub fn into_done(self) -> Option<Completion<Outcome>> {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::{Flights, Owed};
    use crate::device::Outcome;
    use ashlar_ring::{Completions, Pending};
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    fn polled(pending: &mut Pending<Outcome>) -> Poll<Option<bool>> {
        let polled = Pin::new(pending).poll(&mut Context::from_waker(Waker::noop()));
        polled.map(|outcome| outcome.map(|outcome| outcome.result.is_ok()))
    }

    #[test]
    fn looks_count_what_stays_and_notice_what_was_answered() {
        let (flights, supply) = (Flights::default(), Completions::new());
        assert_eq!(flights.look(), Owed::default());
        let (done, _first) = supply.pair();
        let first = flights.begin((), done);
        let owed =
            |under_way, oldest_looks, has_answered| Owed { under_way, oldest_looks, has_answered };
        assert_eq!(flights.look(), owed(1, 0, false));
        assert_eq!(flights.look(), owed(1, 1, false));
        let (done, _second) = supply.pair();
        let second = flights.begin((), done);
        assert_eq!(flights.look(), owed(2, 2, false));
        assert!(!flights.take(first).answer(Outcome::done(None)));
        flights.free(first);
        // A place that is used again is another command.
        let (done, _third) = supply.pair();
        assert_eq!(flights.begin((), done), first);
        assert_eq!(flights.look(), owed(2, 1, true));
        assert_eq!(flights.look(), owed(2, 2, false));
        assert!(!flights.take(second).answer(Outcome::done(None)));
    }

    #[test]
    fn what_is_given_up_is_answered_once_and_its_place_stays_taken_until_the_device_is_done() {
        let (flights, supply) = (Flights::default(), Completions::new());
        let (done, mut pending) = supply.pair();
        let ticket = flights.begin((), done);
        assert_eq!(polled(&mut pending), Poll::Pending);
        assert_eq!((flights.give_up(), flights.give_up()), (1, 0), "each is given up once");
        assert_eq!(polled(&mut pending), Poll::Ready(Some(false)));
        assert!(flights.is_given_up());
        assert_eq!(flights.look(), Owed::default(), "nobody waits for it");
        let (done, _other) = supply.pair();
        assert_ne!(flights.begin((), done), ticket);
        let late = flights.take(ticket);
        assert!(late.is_given_up());
        assert!(late.answer(Outcome::done(None)), "nobody is told");
    }
}
