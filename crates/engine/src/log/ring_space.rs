//! The space of one log ring on one device: a ring of batches.
//!
//! What must stay true: space is used again only if all records of its batches are below a
//! `settled_below` in a whole batch on the same device, and never the space of that batch itself.
//! Batches never overlap. Space that was promised to waiting records always suffices.
//!
//! A promise is as long as the record's batch would be if it went alone. Batches of several records
//! are shorter, and the rest goes back. Besides promises the ring keeps slack. One part is the end
//! of the ring that is wasted when a batch does not fit there (less than the longest record). The
//! other is room for batches without records, which are written only to say what is settled.
//!
//! Pure.

use ashlar_units::BLOCK_BYTES;
use std::collections::VecDeque;

/// Room for batches without records: at most three are on a ring at once, see
/// [`RingSpace::wants_notice`].
const NOTICE_BYTES: u64 = 4 * BLOCK_BYTES;

/// The space of one log ring on one device.
pub(super) struct RingSpace {
    capacity: u64,
    slack: u64,
    /// Where the next batch goes, bytes from the log ring's start.
    head: u64,
    used: u64,
    promised: u64,
    batches: VecDeque<Placed>,
    /// Number of the oldest batch in `batches`; they are consecutive.
    first: u64,
    /// The highest `settled_below` that a whole batch says, and the number of that batch.
    says: (u64, u64),
    /// The highest `settled_below` of any batch, whole or under way.
    announced: u64,
    /// A batch is to say at least this, however much space there is.
    wanted: u64,
}

/// A batch in the ring.
#[derive(Clone, Copy)]
struct Placed {
    /// With what was wasted before it.
    bytes: u64,
    newest_update: u64,
    settled_below: u64,
    is_whole: bool,
}

/// Where a batch goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Its number on this device, from 1.
    pub(super) number: u64,
    /// Bytes from the log ring's start.
    pub(super) offset: u64,
    /// It takes less than was promised: the rest can be promised to others now.
    pub(super) gives_back: bool,
}

impl RingSpace {
    /// An empty ring of `capacity` bytes for records of up to `record_bytes_max`.
    pub(super) fn new(capacity: u64, record_bytes_max: u64) -> RingSpace {
        RingSpace {
            capacity,
            slack: record_bytes_max + NOTICE_BYTES,
            head: 0,
            used: 0,
            promised: 0,
            batches: VecDeque::new(),
            first: 1,
            says: (0, 0),
            announced: 0,
            wanted: 0,
        }
    }

    /// A batch is to say at least this as soon as it is so.
    pub(super) fn want(&mut self, settled_below: u64) {
        self.wanted = self.wanted.max(settled_below);
    }

    /// Whether space can be promised to a record.
    pub(super) fn can_promise(&self, bytes: u64) -> bool {
        self.used + self.promised + bytes + self.slack <= self.capacity
    }

    /// Promise it.
    pub(super) fn promise(&mut self, bytes: u64) {
        assert!(self.can_promise(bytes), "space is promised only where there is some");
        self.promised += bytes;
    }

    /// Whether it is time to settle: half of what can be promised is in use.
    pub(super) fn is_short(&self) -> bool {
        2 * (self.used + self.promised) > self.capacity - self.slack
    }

    /// Sequence of the newest update in the oldest batch that this device does not call settled;
    /// `None` if there is none, or it is not whole yet.
    pub(super) fn oldest(&self) -> Option<u64> {
        let whole = self.batches.iter().take_while(|batch| batch.is_whole);
        let mut unsettled = whole.filter(|batch| batch.newest_update >= self.says.0);
        unsettled.next().map(|batch| batch.newest_update)
    }

    /// Every update below this is settled, as a whole batch on this device says.
    pub(super) fn says(&self) -> u64 {
        self.says.0
    }

    /// Whether a batch without records is to be written: it would free space that is needed, since
    /// the oldest batch is settled and no batch on this device says so yet or is about to. Or
    /// somebody wants to have it said.
    pub(super) fn wants_notice(&self, settled_below: u64) -> bool {
        if self.announced < self.wanted && self.wanted <= settled_below {
            return true;
        }
        let oldest = self.oldest();
        self.is_short()
            && oldest.is_some_and(|oldest| oldest < settled_below && self.announced <= oldest)
    }

    /// Bytes up to the end of the log ring from where the next batch would go if its first record
    /// takes `first`.
    pub(super) fn room_for(&self, first: u64) -> u64 {
        let to_end = self.capacity - self.head;
        if first <= to_end { to_end } else { self.capacity }
    }

    /// Whether the last batch but one is whole; then all before it are, if this was asked for each
    /// of them.
    pub(super) fn is_next_due(&self) -> bool {
        self.batches.iter().nth_back(1).is_none_or(|batch| batch.is_whole)
    }

    /// The number that the next batch gets.
    pub(super) fn next_number(&self) -> u64 {
        self.first + u64::try_from(self.batches.len()).expect("few")
    }

    /// A place for a batch of `bytes` with updates up to `newest_update`; `promised` bytes of it
    /// were promised.
    pub(super) fn place(
        &mut self,
        bytes: u64,
        promised: u64,
        newest_update: u64,
        settled_below: u64,
    ) -> Place {
        let to_end = self.capacity - self.head;
        let (offset, wasted) = if bytes <= to_end { (self.head, 0) } else { (0, to_end) };
        self.promised -= promised;
        self.used += wasted + bytes;
        assert!(self.used <= self.capacity, "a batch never runs into the oldest one");
        self.head = offset + bytes;
        if self.head == self.capacity {
            self.head = 0;
        }
        let number = self.next_number();
        self.announced = self.announced.max(settled_below);
        let bytes = wasted + bytes;
        self.batches.push_back(Placed { bytes, newest_update, settled_below, is_whole: false });
        Place { number, offset, gives_back: bytes < promised }
    }

    /// The batch is whole on the device. True if that freed space.
    pub(super) fn set_whole(&mut self, number: u64) -> bool {
        let at = usize::try_from(number - self.first).expect("few");
        let batch = &mut self.batches[at];
        batch.is_whole = true;
        // Of several that say the same the newest stays longest.
        self.says = self.says.max((batch.settled_below, number));
        self.free()
    }

    fn free(&mut self) -> bool {
        let before = self.used;
        let (settled_below, by) = self.says;
        while let Some(batch) = self.batches.front() {
            if !batch.is_whole || batch.newest_update >= settled_below || self.first >= by {
                break;
            }
            self.used -= batch.bytes;
            self.first += 1;
            self.batches.pop_front();
        }
        self.used < before
    }
}

#[cfg(test)]
mod tests {
    use super::RingSpace;

    const BLOCK: u64 = 4096;

    fn put(ring: &mut RingSpace, bytes: u64, update: u64, settled: u64) -> super::Place {
        ring.promise(bytes);
        ring.place(bytes, bytes, update, settled)
    }

    #[test]
    fn space_comes_back_only_when_this_device_says_that_it_is_settled() {
        let mut ring = RingSpace::new(32 * BLOCK, 4 * BLOCK);
        let mut update = 0;
        while ring.can_promise(4 * BLOCK) {
            update += 1;
            let place = put(&mut ring, 4 * BLOCK, update, 1);
            assert!(!ring.set_whole(place.number), "nothing is settled");
        }
        assert_eq!(update, 6);
        assert!(ring.is_short() && !ring.wants_notice(1));
        assert!(ring.wants_notice(4), "three are settled, and nothing on the device says so");
        let notice = ring.place(BLOCK, 0, 0, 4);
        assert_eq!(notice.offset, 24 * BLOCK);
        assert!(!ring.wants_notice(4), "one is under way");
        assert!(!ring.can_promise(4 * BLOCK), "and not whole yet");
        assert!(ring.set_whole(notice.number));
        assert!(ring.can_promise(8 * BLOCK));
        assert!(!ring.wants_notice(4) && ring.oldest() == Some(4));
    }

    #[test]
    fn what_a_batch_of_several_records_does_not_need_comes_back_at_once() {
        let mut ring = RingSpace::new(32 * BLOCK, 4 * BLOCK);
        (0..6).for_each(|_| ring.promise(4 * BLOCK));
        assert!(!ring.can_promise(4 * BLOCK));
        assert!(ring.place(19 * BLOCK, 24 * BLOCK, 6, 1).gives_back);
        assert!(ring.can_promise(4 * BLOCK), "although nothing is settled, or whole");
        assert!(!put(&mut ring, 4 * BLOCK, 7, 1).gives_back);
    }

    #[test]
    fn the_batch_that_says_what_is_settled_stays_until_another_says_it() {
        let mut ring = RingSpace::new(32 * BLOCK, 4 * BLOCK);
        let first = put(&mut ring, 2 * BLOCK, 1, 1);
        ring.set_whole(first.number);
        let second = put(&mut ring, 2 * BLOCK, 2, 2);
        assert!(ring.set_whole(second.number), "the first goes");
        assert_eq!(ring.oldest(), Some(2));
        let third = put(&mut ring, 2 * BLOCK, 3, 3);
        assert_eq!(ring.oldest(), Some(2), "the third is not whole");
        assert!(ring.set_whole(third.number));
        assert_eq!(ring.oldest(), Some(3), "the third says it now");
    }

    #[test]
    fn a_batch_that_does_not_fit_before_the_end_goes_to_the_start() {
        let mut ring = RingSpace::new(32 * BLOCK, 4 * BLOCK);
        let (mut update, mut wraps, mut last) = (0, 0, 0);
        for round in 0..200 {
            let bytes = (1 + round % 4) * BLOCK;
            update += 1;
            let place = put(&mut ring, bytes, update, update.saturating_sub(2).max(1));
            assert!(place.offset + bytes <= 32 * BLOCK);
            wraps += u64::from(place.offset < last);
            last = place.offset;
            ring.set_whole(place.number);
        }
        assert!(wraps > 10, "{wraps}");
    }
}
