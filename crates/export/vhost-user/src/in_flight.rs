//! What is under way, in memory that the frontend keeps while no backend is there.
//!
//! What must stay true: a request is noted before anything is done about it, and struck off after
//! its answer was shown; the writes happen in this order, so whoever finds the memory after any of
//! them knows which requests were not answered. What is found there is judged: the other side can
//! write it. The layout is that of the protocol's documents for split rings; answers are shown one
//! at a time, so at most one is between shown and struck off.

use crate::chain::{Fault, RING_ENTRIES_MAX};
use crate::config::QUEUES_MAX;
use crate::memory::{MemoryError, check_stays};
use crate::wire::InFlightPlace;
use ashlar_iobuf::{Access, SharedMapping};
use ashlar_units::to_u64;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::io;
use std::os::fd::OwnedFd;

/// Begins the area of each queue; see the constants below. Its first byte is the backend's own, in
/// the first area: whether the driver wants answered writes to be durable.
const HEAD_BYTES: usize = 16;
const VERSION_AT: usize = 8;
const ENTRIES_AT: usize = 10;
const LAST_HEAD_AT: usize = 12;
const USED_AT: usize = 14;

/// Stands for each descriptor: under way, next of a batch, and when it came.
const ENTRY_BYTES: usize = 16;
const NEXT_AT: usize = 6;
const COUNTER_AT: usize = 8;

/// Areas begin at multiples of this.
const ALIGNMENT: usize = 64;

/// The layout that is written here; zero says that nothing was written yet.
const VERSION: u16 = 1;

const GONE: Fault = Fault("an area of requests under way that is too short");

/// The areas of all queues.
#[derive(Clone)]
pub struct InFlight {
    mapping: SharedMapping,
    queues: u16,
    entries: u16,
}

/// The area of one queue.
pub struct QueueArea {
    mapping: SharedMapping,
    start: usize,
    entries: u16,
}

/// What was under way when the last backend went.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeftBehind {
    /// The heads of requests without an answer, in the order in which they came.
    pub heads: Vec<u16>,
    /// The first request that nobody took.
    pub next: u16,
    /// Counts the requests that come from here on.
    pub counter: u64,
}

fn area_bytes(entries: u16) -> usize {
    (HEAD_BYTES + usize::from(entries) * ENTRY_BYTES).next_multiple_of(ALIGNMENT)
}

fn check_counts(queues: u16, entries: u16) -> Result<(), MemoryError> {
    let are_possible =
        (1..=QUEUES_MAX).contains(&queues) && (1..=RING_ENTRIES_MAX).contains(&entries);
    are_possible.then_some(()).ok_or(MemoryError::Nonsense("requests under way of no such queues"))
}

/// Memory for so many queues, for the frontend to keep.
///
/// # Errors
/// There can be no such queues, or the system says no.
pub fn make(queues: u16, entries: u16) -> Result<(OwnedFd, InFlightPlace), MemoryError> {
    check_counts(queues, entries)?;
    let bytes = to_u64(usize::from(queues) * area_bytes(entries));
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("ashlar-in-flight", flags).map_err(io::Error::from)?;
    ftruncate(&file, bytes).map_err(io::Error::from)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).map_err(io::Error::from)?;
    Ok((file, InFlightPlace { bytes, offset: 0, queues, entries, padding: [0; 4] }))
}

impl InFlight {
    /// Memory that the frontend kept.
    ///
    /// # Errors
    /// It may go away, or is not as long as it must be.
    pub fn map(place: &InFlightPlace, file: &OwnedFd) -> Result<InFlight, MemoryError> {
        let InFlightPlace { queues, entries, .. } = *place;
        check_counts(queues, entries)?;
        let needed = usize::from(queues) * area_bytes(entries);
        let end = place.offset.checked_add(place.bytes);
        let end = end.filter(|_| place.bytes >= to_u64(needed));
        let end = end.ok_or(MemoryError::Nonsense("requests under way in too little memory"))?;
        check_stays(file, end)?;
        let mapping = SharedMapping::map(file, place.offset, needed, Access::ReadWrite)?;
        Ok(InFlight { mapping, queues, entries })
    }

    /// The area of a queue of so many entries.
    ///
    /// # Errors
    /// There is none.
    pub fn queue(&self, number: u16, entries: u16) -> Result<QueueArea, Fault> {
        if number >= self.queues || entries > self.entries {
            return Err(GONE);
        }
        let start = usize::from(number) * area_bytes(self.entries);
        Ok(QueueArea { mapping: self.mapping.clone(), start, entries })
    }
}

/// Whether the driver wants answered writes to be durable: no frontend says so again after it has
/// lost its backend.
impl InFlight {
    /// Note what the driver wants.
    pub fn set_durable(&self, is_wanted: bool) {
        let stored = self.mapping.store(0, &[u8::from(is_wanted)]);
        stored.expect("the first area begins the mapping");
    }

    /// What the driver wanted.
    pub fn is_durable(&self) -> bool {
        let mut byte = [0];
        self.mapping.load(0, &mut byte).expect("the first area begins the mapping");
        byte != [0]
    }
}

impl QueueArea {
    /// Begin to use it: what the last backend left, if there was one. `used` is how many answers
    /// the ring shows.
    ///
    /// # Errors
    /// What is there makes no sense.
    pub fn begin(&self, used: u16) -> Result<LeftBehind, Fault> {
        if self.number(VERSION_AT)? == 0 {
            self.set_number(ENTRIES_AT, self.entries)?;
            self.set_number(USED_AT, used)?;
            self.set_number(VERSION_AT, VERSION)?;
            return Ok(LeftBehind { next: used, ..LeftBehind::default() });
        }
        if self.number(VERSION_AT)? != VERSION || self.number(ENTRIES_AT)? != self.entries {
            return Err(Fault("requests under way of another kind of ring"));
        }
        self.strike_off_shown(used)?;
        self.left_behind(used)
    }

    /// The last answer may have been shown and not struck off.
    fn strike_off_shown(&self, used: u16) -> Result<(), Fault> {
        if self.number(USED_AT)? == used {
            return Ok(());
        }
        let head = self.number(LAST_HEAD_AT)?;
        if head >= self.entries {
            return Err(Fault("an answered request beyond the end of the ring"));
        }
        self.strike_off(head, used)
    }

    fn left_behind(&self, used: u16) -> Result<LeftBehind, Fault> {
        let mut found: Vec<(u64, u16)> = Vec::new();
        for head in 0..self.entries {
            let mut entry = [0; ENTRY_BYTES];
            self.mapping.load(self.entry(head), &mut entry).ok_or(GONE)?;
            let (halves, _) = entry.as_chunks::<8>();
            if halves[0][0] != 0 {
                found.push((u64::from_ne_bytes(halves[1]), head));
            }
        }
        found.sort_unstable();
        let count = u16::try_from(found.len()).expect("no more than entries");
        let counter = found.last().map_or(0, |(last, _)| last.wrapping_add(1));
        let heads = found.into_iter().map(|(_, head)| head).collect();
        Ok(LeftBehind { heads, next: used.wrapping_add(count), counter })
    }

    /// A request was taken.
    ///
    /// # Errors
    /// The area is too short.
    pub fn note(&self, head: u16, counter: u64) -> Result<(), Fault> {
        let entry = self.entry(head);
        self.mapping.store(entry + COUNTER_AT, &counter.to_ne_bytes()).ok_or(GONE)?;
        self.mapping.store(entry, &[1]).ok_or(GONE)
    }

    /// Its answer is about to be shown.
    ///
    /// # Errors
    /// The area is too short.
    pub fn begin_answer(&self, head: u16) -> Result<(), Fault> {
        let last = self.number(LAST_HEAD_AT)?;
        let next = self.entry(head) + NEXT_AT;
        self.mapping.store_index(next, last).ok_or(GONE)?;
        self.set_number(LAST_HEAD_AT, head)
    }

    /// Its answer was shown; there are `used` of them now.
    ///
    /// # Errors
    /// The area is too short.
    pub fn strike_off(&self, head: u16, used: u16) -> Result<(), Fault> {
        self.mapping.store(self.entry(head), &[0]).ok_or(GONE)?;
        self.set_number(USED_AT, used)
    }

    fn entry(&self, head: u16) -> usize {
        self.start + HEAD_BYTES + usize::from(head) * ENTRY_BYTES
    }

    fn number(&self, at: usize) -> Result<u16, Fault> {
        self.mapping.load_index(self.start + at).ok_or(GONE)
    }

    fn set_number(&self, at: usize, number: u16) -> Result<(), Fault> {
        self.mapping.store_index(self.start + at, number).ok_or(GONE)
    }
}

#[cfg(test)]
mod tests {
    use super::{InFlight, LeftBehind, make};
    use crate::wire::InFlightPlace;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    fn area() -> InFlight {
        let (file, place) = make(2, 8).expect("memory");
        InFlight::map(&place, &file).expect("mapped")
    }

    #[test]
    fn a_successor_gets_unanswered_requests_in_their_order() {
        let area = area();
        let queue = area.queue(1, 8).expect("an area");
        assert_eq!(queue.begin(5), Ok(LeftBehind { next: 5, ..LeftBehind::default() }));
        for (counter, head) in [(0, 3), (1, 0), (2, 7), (3, 1)] {
            queue.note(head, counter).expect("noted");
        }
        queue.begin_answer(0).expect("noted");
        queue.strike_off(0, 6).expect("struck off");
        let left = area.queue(1, 8).expect("an area").begin(6);
        assert_eq!(left, Ok(LeftBehind { heads: vec![3, 7, 1], next: 9, counter: 4 }));
        let other = area.queue(0, 8).expect("an area").begin(0);
        assert_eq!(other, Ok(LeftBehind::default()), "of another queue");
    }

    #[test]
    fn an_answer_that_was_shown_is_not_given_again_wherever_its_backend_ended() {
        for is_shown in [false, true] {
            let area = area();
            let queue = area.queue(0, 8).expect("an area");
            queue.begin(u16::MAX).expect("begun");
            queue.note(4, 0).expect("noted");
            queue.note(2, 1).expect("noted");
            queue.begin_answer(4).expect("noted");
            let used = if is_shown { 0 } else { u16::MAX };
            let left = area.queue(0, 8).expect("an area").begin(used).expect("begun");
            let heads = if is_shown { vec![2] } else { vec![4, 2] };
            assert_eq!(left, LeftBehind { heads, next: 1, counter: 2 });
        }
    }

    #[test]
    fn a_successor_knows_that_answered_writes_are_durable() {
        let area = area();
        area.queue(0, 8).expect("an area").begin(0).expect("begun");
        assert!(!area.is_durable());
        area.set_durable(true);
        area.queue(0, 8).expect("an area").begin(0).expect("begun");
        assert!(area.is_durable());
        area.set_durable(false);
        assert!(!area.is_durable());
    }

    #[test]
    fn what_a_frontend_brings_back_is_not_trusted() {
        let (file, place) = make(2, 8).expect("memory");
        let refused = |change: fn(&mut InFlightPlace)| {
            let mut place = place;
            change(&mut place);
            assert!(InFlight::map(&place, &file).is_err());
        };
        refused(|it| it.queues = 0);
        refused(|it| it.queues = 17);
        refused(|it| it.entries = 0);
        refused(|it| it.entries = 2000);
        refused(|it| it.entries = 64);
        refused(|it| it.bytes = 10);
        refused(|it| it.offset = 4096);
        refused(|it| it.offset = u64::MAX);
        let open = memfd_create("open", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&open, 1 << 20).expect("room");
        assert!(InFlight::map(&place, &open).is_err(), "it could be made shorter");
        let map = || InFlight::map(&place, &file).expect("mapped");
        assert!(map().queue(2, 8).is_err() && map().queue(0, 16).is_err());
        let area = map().queue(0, 8).expect("an area");
        area.begin(0).expect("begun");
        area.set_number(super::LAST_HEAD_AT, 8).expect("written");
        assert!(map().queue(0, 8).expect("an area").begin(1).is_err());
        area.set_number(super::VERSION_AT, 9).expect("written");
        assert!(map().queue(0, 8).expect("an area").begin(0).is_err());
        assert_eq!(place.bytes, 2 * 192);
    }
}
