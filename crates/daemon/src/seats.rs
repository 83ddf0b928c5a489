//! Seats for connections: how many there are, who takes them, and who makes room when none is left.
//!
//! What must stay true: there are never more connections than seats. A connection whose request is
//! being carried out keeps its seat. A connection that waits for its own peer (for a request, for
//! the rest of one, or until the peer reads an answer) ends when a newer one needs its seat. So
//! idle connections keep nobody out. Not here: how long a connection may take (`guarded`), and who
//! has which seats (`peer`, `scrape`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Where the only request of a connection is.
#[derive(Debug, Default)]
pub struct Course {
    /// Requests whose head has come and whose answer has not gone; 0 or 1.
    heads: AtomicUsize,
    /// Of these, requests that are being carried out.
    carried_out: AtomicUsize,
    /// The peer takes nothing of what is to be sent.
    is_stuck: AtomicBool,
}

impl Course {
    /// Whether a request has begun that is not answered yet.
    pub fn is_serving(&self) -> bool {
        self.heads.load(Ordering::Relaxed) > 0
    }

    /// Whether the peer takes nothing of what is sent.
    pub fn set_stuck(&self, is_stuck: bool) {
        self.is_stuck.store(is_stuck, Ordering::Relaxed);
    }

    /// Whether the next step is the peer's.
    fn waits_for_peer(&self) -> bool {
        self.carried_out.load(Ordering::Relaxed) == 0 || self.is_stuck.load(Ordering::Relaxed)
    }
}

/// A request on its course; it ends when dropped.
#[derive(Debug)]
pub struct Serving {
    course: Arc<Course>,
    is_carried_out: bool,
}

impl Serving {
    /// The head of a request has come.
    pub fn begun(course: &Arc<Course>) -> Serving {
        course.heads.fetch_add(1, Ordering::Relaxed);
        Serving { course: Arc::clone(course), is_carried_out: false }
    }

    /// All of it has come, and it is being carried out.
    pub fn carry_out(&mut self) {
        self.course.carried_out.fetch_add(1, Ordering::Relaxed);
        self.is_carried_out = true;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.course.heads.fetch_sub(1, Ordering::Relaxed);
        if self.is_carried_out {
            self.course.carried_out.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A number of seats for some of the owners.
pub struct Room<'a, K> {
    /// Whose connections count.
    pub counts: &'a dyn Fn(&K) -> bool,
    /// How many of them there may be.
    pub seats: usize,
    /// Whose connections make room when all are taken.
    pub yields: &'a dyn Fn(&K) -> bool,
}

/// How many seats are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    /// Now.
    pub now: usize,
    /// The most at once.
    pub high_water: usize,
    /// Connections that were ended for a newer one, or not let in.
    pub turned_away: u64,
}

/// The connections of a listener, by owner. The oldest has the lowest number.
#[derive(Debug)]
pub struct Seats<K>(Mutex<Table<K>>);

#[derive(Debug)]
struct Table<K> {
    next: u64,
    taken: BTreeMap<u64, Sitting<K>>,
    high_water: usize,
    turned_away: u64,
}

#[derive(Debug)]
struct Sitting<K> {
    owner: K,
    course: Arc<Course>,
    /// Dropped to end the connection.
    _end: oneshot::Sender<()>,
}

/// A seat; given back when dropped.
#[derive(Debug)]
pub struct Seat<K> {
    seats: Arc<Seats<K>>,
    number: u64,
    /// Ready once the connection must end.
    pub ended: oneshot::Receiver<()>,
    /// Where its request is.
    pub course: Arc<Course>,
}

impl<K> Default for Seats<K> {
    fn default() -> Seats<K> {
        let table = Table { next: 0, taken: BTreeMap::new(), high_water: 0, turned_away: 0 };
        Seats(Mutex::new(table))
    }
}

impl<K> Seats<K> {
    fn locked(&self) -> MutexGuard<'_, Table<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat for a connection of `owner` with room in all of `rooms`; `None` if nobody there makes
    /// room.
    pub fn take(seats: &Arc<Seats<K>>, owner: K, rooms: &[Room<'_, K>]) -> Option<Seat<K>> {
        let mut table = seats.locked();
        if !rooms.iter().all(|room| table.make(room)) {
            table.turned_away += 1;
            return None;
        }
        let (number, course) = (table.next, Arc::<Course>::default());
        let (end, ended) = oneshot::channel();
        table.next += 1;
        table.taken.insert(number, Sitting { owner, course: Arc::clone(&course), _end: end });
        table.high_water = table.high_water.max(table.taken.len());
        Some(Seat { seats: Arc::clone(seats), number, ended, course })
    }

    /// How many are taken.
    pub fn usage(&self) -> Taken {
        let table = self.locked();
        let (now, high_water) = (table.taken.len(), table.high_water);
        Taken { now, high_water, turned_away: table.turned_away }
    }
}

impl<K> Table<K> {
    /// Whether one more has room, once the connections that must end have ended.
    fn make(&mut self, room: &Room<'_, K>) -> bool {
        while self.taken.values().filter(|it| (room.counts)(&it.owner)).count() >= room.seats {
            let Some(number) = self.yielding(room) else { return false };
            self.taken.remove(&number);
            self.turned_away += 1;
        }
        true
    }

    /// Who goes first: the oldest without a request, then the oldest that waits for its peer.
    fn yielding(&self, room: &Room<'_, K>) -> Option<u64> {
        let counted = |it: &Sitting<K>| (room.counts)(&it.owner) && (room.yields)(&it.owner);
        let waiting = self.taken.iter().filter(|(_, it)| counted(it) && it.course.waits_for_peer());
        let first = waiting.min_by_key(|(number, it)| (it.course.is_serving(), **number));
        first.map(|(number, _)| *number)
    }
}

impl<K> Drop for Seat<K> {
    fn drop(&mut self) {
        self.seats.locked().taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::{Room, Seat, Seats, Serving, Taken};
    use std::sync::Arc;

    type Table = Arc<Seats<&'static str>>;

    fn sit(seats: &Table, owner: &'static str, count: usize) -> Option<Seat<&'static str>> {
        Seats::take(seats, owner, &[Room { counts: &|_| true, seats: count, yields: &|_| true }])
    }

    fn has_ended(seat: &mut Seat<&'static str>) -> bool {
        seat.ended.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn the_oldest_idle_one_makes_room_and_one_whose_request_is_carried_out_never_does() {
        let seats = Table::default();
        let mut held: Vec<_> = (0..3).map(|_| sit(&seats, "a", 3).expect("room")).collect();
        let mut busy = Serving::begun(&held[0].course);
        busy.carry_out();
        // Its body has not come, so it waits for its peer; but one without any request goes before
        // it.
        let half = Serving::begun(&held[1].course);
        held.push(sit(&seats, "a", 3).expect("the third makes room"));
        assert_eq!(held.iter_mut().map(has_ended).collect::<Vec<_>>(), [false, false, true, false]);
        drop(held.pop());
        held.push(sit(&seats, "a", 3).expect("the newest has gone"));
        let mut newest = Serving::begun(&held[3].course);
        newest.carry_out();
        held.push(sit(&seats, "a", 3).expect("a body that does not come makes room"));
        assert!(has_ended(&mut held[1]) && !has_ended(&mut held[0]) && !has_ended(&mut held[3]));
        let mut last = Serving::begun(&held[4].course);
        last.carry_out();
        assert!(sit(&seats, "a", 3).is_none(), "all are being carried out");
        held[0].course.set_stuck(true);
        assert!(
            sit(&seats, "a", 3).is_some() && has_ended(&mut held[0]),
            "nobody takes the answer"
        );
        drop((busy, half, newest, last, held));
        assert_eq!(seats.usage(), Taken { now: 0, high_water: 3, turned_away: 4 });
    }
}
