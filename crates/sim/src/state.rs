//! What one disk holds: durably, in its volatile cache and in commands still under way.
//!
//! What must stay true: a read sees every write that completed. A flush makes durable every write
//! that had completed when it was submitted, and a durable write itself (unless the disk lies). A
//! power cut keeps a random subset of all other writes, each whole or torn at sectors, in a random
//! order. Not here: time and completions (`device`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use ashlar_device::{CommandKind, Fault};
use ashlar_iobuf::BufMut;
use ashlar_units::{SECTOR_BYTES, to_u64, to_usize};

use crate::disk::DiskOptions;
use crate::gate::Gate;
use crate::lies::Lies;
use crate::pages::Pages;
use crate::random::Random;

/// What a sector holds that was put in the place of another.
const JUNK: u8 = 0xA9;
/// Writes a cache holds before it writes back the oldest by itself.
const CACHED_WRITES_MAX: usize = 4096;

/// New content of an extent.
#[derive(Clone)]
pub(crate) struct Change {
    /// Of the operation that asked for it; 0 if none did.
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// `None` is zeros.
    pub(crate) data: Option<Arc<[u8]>>,
    /// On stable media when it completes.
    pub(crate) is_durable: bool,
}

/// Content, durable and as seen through the cache.
#[derive(Clone, Default)]
pub(crate) struct Content {
    durable: Pages,
    /// Pages that differ from the durable ones, or may.
    cached: Pages,
    /// Completed and not yet durable, in order of completion, with their numbers in that order.
    unflushed: VecDeque<(u64, Change)>,
    completed: u64,
}

/// What becomes of a write that was not durable when the host was frozen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fate {
    /// Nothing of it is on the medium.
    Lost,
    /// All of it.
    Whole,
    /// Its first half, in units that are never torn.
    Beginning,
}

/// A command that completes.
pub(crate) struct Performed {
    pub(crate) number: u64,
    pub(crate) kind: CommandKind,
    pub(crate) offset: u64,
    /// What a flush covers.
    pub(crate) flush_mark: u64,
}

pub(crate) struct DiskState {
    pub(crate) name: String,
    pub(crate) options: DiskOptions,
    pub(crate) content: Content,
    pub(crate) faults: Faults,
    pub(crate) random: Random,
    /// Writes submitted and not completed, by operation number.
    pub(crate) in_flight: BTreeMap<u64, Change>,
    /// Other names of it, as of several paths to one drive.
    pub(crate) other_paths: Vec<String>,
    /// The exclusive openings: the number of the opening, by the name that it was opened by. Names
    /// do not exclude each other.
    pub(crate) holders: BTreeMap<String, u64>,
    /// Commands that change it, submitted so far.
    pub(crate) changes: u64,
    /// Commands that nobody waits for any more and that it still has.
    pub(crate) owed: usize,
    /// Commands that wait until it is not silent any more.
    pub(crate) waiting: Vec<Waker>,
    /// What passed it, and when it is free.
    pub(crate) gate: Gate,
}

/// What is wrong with the disk at the moment.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    pub(crate) is_absent: bool,
    /// How often it lost its own power.
    pub(crate) appearance: u64,
    /// There is no space for what is written.
    pub(crate) is_full: bool,
    /// Nothing completes, well or badly.
    pub(crate) is_silent: bool,
    /// What lies beneath it ends there.
    pub(crate) ends_at: Option<u64>,
    pub(crate) lies_on_flush: bool,
    /// For each kind of command: the fault, and how many more times (`None` is for ever).
    pub(crate) by_kind: [Option<(Fault, Option<u32>)>; CommandKind::ALL.len()],
    /// Sectors that cannot be read until they are written.
    pub(crate) unreadable: BTreeSet<u64>,
    /// Sectors that could not be read and were written, in the cache so far. Kept where a power cut
    /// makes junk of them.
    rewritten: BTreeSet<u64>,
    /// So many of the next writes are acknowledged and forgotten.
    pub(crate) writes_to_lose: u32,
    /// The next write goes there instead.
    pub(crate) misdirect_to: Option<u64>,
    /// What else it acknowledges and does not do.
    pub(crate) lies: Lies,
}

impl Content {
    pub(crate) fn read(&self, offset: u64, target: &mut [u8]) {
        self.cached.copy_over(&self.durable, offset, target);
    }

    pub(crate) fn read_durable(&self, offset: u64, target: &mut [u8]) {
        self.durable.copy_over(&Pages::default(), offset, target);
    }

    /// A write completed and is in the cache.
    fn cache(&mut self, change: Change) {
        match &change.data {
            Some(data) => self.cached.write_over(&self.durable, change.offset, data),
            None => self.cached.zero_over(&self.durable, change.offset, change.bytes),
        }
        self.completed += 1;
        self.unflushed.push_back((self.completed, change));
        if self.unflushed.len() > CACHED_WRITES_MAX {
            let oldest = self.unflushed.pop_front();
            self.store(&oldest.expect("there are many").1);
        }
    }

    /// Makes all up to the `mark`-th completion durable.
    fn flush(&mut self, mark: u64) {
        let count = self.unflushed.partition_point(|(number, _)| *number <= mark);
        let done: Vec<_> = self.unflushed.drain(..count).collect();
        for (_, change) in &done {
            self.store(change);
        }
        if self.unflushed.is_empty() {
            self.cached.clear();
        }
    }

    fn store(&mut self, change: &Change) {
        let nothing = Pages::default();
        match &change.data {
            Some(data) => self.durable.write_over(&nothing, change.offset, data),
            None => self.durable.zero_over(&nothing, change.offset, change.bytes),
        }
    }

    /// A durable write completed: it is on the media, whatever older writes are still in the cache.
    fn store_through(&mut self, change: &Change) {
        self.completed += 1;
        self.store(change);
        // Most durable writes lie beside all that is cached. Then nothing is cut and copied.
        if self.unflushed.iter().any(|(_, old)| overlap(old, change)) {
            let older = std::mem::take(&mut self.unflushed);
            for (number, old) in older {
                self.unflushed.extend(outside(old, change).map(|rest| (number, rest)));
            }
        }
        if self.unflushed.is_empty() {
            self.cached.clear();
        } else if let Some(data) = &change.data {
            self.cached.write_over(&self.durable, change.offset, data);
        }
    }

    /// Stores durably what no command asked for. The cache holds it too: an older write must not
    /// come out on top when that is flushed.
    pub(crate) fn put(&mut self, offset: u64, data: &[u8]) {
        let data: Arc<[u8]> = Arc::from(data);
        let change = Change {
            number: 0,
            offset,
            bytes: to_u64(data.len()),
            data: Some(data),
            is_durable: true,
        };
        self.store(&change);
        if !self.unflushed.is_empty() {
            self.cache(change);
        }
    }
}

impl DiskState {
    pub(crate) fn new(name: String, options: DiskOptions, random: Random) -> DiskState {
        DiskState {
            name,
            options,
            content: Content::default(),
            faults: Faults::default(),
            random,
            in_flight: BTreeMap::new(),
            other_paths: Vec::new(),
            holders: BTreeMap::new(),
            changes: 0,
            owed: 0,
            waiting: Vec::new(),
            gate: Gate::default(),
        }
    }

    /// Mark for a flush submitted now.
    pub(crate) fn flush_mark(&self) -> u64 {
        self.content.completed
    }

    /// Why a command of `kind` fails now, if it does. Counts down faults that happen a number of
    /// times.
    pub(crate) fn fault_of(&mut self, kind: CommandKind) -> Option<Fault> {
        if self.faults.is_absent {
            return Some(Fault::GONE);
        }
        if self.faults.is_full && matches!(kind, CommandKind::Write | CommandKind::WriteDurable) {
            return Some(Fault::NO_SPACE);
        }
        let slot = &mut self.faults.by_kind[kind.at()];
        let (fault, times) = slot.as_mut()?;
        let fault = *fault;
        if let Some(times) = times {
            *times -= 1;
            if *times == 0 {
                *slot = None;
            }
        }
        Some(fault)
    }

    pub(crate) fn is_readable(&self, offset: u64, bytes: u64) -> bool {
        if self.faults.ends_at.is_some_and(|end| offset + bytes > end) {
            return false;
        }
        self.faults.unreadable.range(sectors(offset, bytes)).next().is_none()
    }

    /// Does what the command asks for, as it completes.
    pub(crate) fn perform(
        &mut self,
        flight: &Performed,
        buffer: Option<&mut BufMut>,
    ) -> Result<(), Fault> {
        match (flight.kind, buffer) {
            (CommandKind::Read, Some(buffer)) => {
                if !self.is_readable(flight.offset, to_u64(buffer.len())) {
                    return Err(Fault::MEDIA);
                }
                self.content.read(flight.offset, buffer);
            }
            (CommandKind::Flush, _) => self.finish_flush(flight.flush_mark),
            _ => self.finish_write(flight.number),
        }
        Ok(())
    }

    /// The write with this operation number fails: it may have changed any part of what it covers.
    pub(crate) fn fail_write(&mut self, number: u64) {
        let Some(change) = self.in_flight.remove(&number) else { return };
        if self.faults.is_absent {
            return;
        }
        for part in survivors(&change, self.options.atomic_write_bytes, &mut self.random) {
            self.content.cache(part);
        }
    }

    /// The write with this operation number completes.
    pub(crate) fn finish_write(&mut self, number: u64) {
        let Some(mut change) = self.in_flight.remove(&number) else { return };
        if let Some(end) = &mut self.faults.ends_at {
            *end = (*end).max(change.offset + change.bytes);
        }
        if self.faults.writes_to_lose > 0 {
            self.faults.writes_to_lose -= 1;
            return;
        }
        if let Some(elsewhere) = self.faults.misdirect_to.take() {
            let last_start = self.options.size_bytes.saturating_sub(change.bytes);
            change.offset = elsewhere.min(last_start);
        }
        self.store_lying(change);
    }

    /// A write is stored where it says.
    pub(crate) fn apply(&mut self, change: Change) {
        for sector in sectors(change.offset, change.bytes) {
            if self.faults.unreadable.is_empty() {
                break;
            }
            let was_bad = self.faults.unreadable.remove(&sector);
            if was_bad && self.options.torn_repairs_leave_junk {
                self.faults.rewritten.insert(sector);
            }
        }
        if change.is_durable && !self.faults.lies_on_flush {
            self.content.store_through(&change);
        } else {
            self.content.cache(change);
        }
        if !self.options.has_volatile_cache {
            self.content.flush(u64::MAX);
        }
        self.forget_rewritten();
    }

    /// Of sectors that are on the medium by now nothing is in doubt any more.
    fn forget_rewritten(&mut self) {
        let unflushed = &self.content.unflushed;
        let is_held = |sector: &u64| {
            let mut all = unflushed.iter().map(|(_, change)| sectors(change.offset, change.bytes));
            all.any(|held| held.contains(sector))
        };
        self.faults.rewritten.retain(is_held);
    }

    /// What is left of this write by a power cut is being stored: sectors that could not be read
    /// before hold junk, where they do not hold what was written.
    fn leave_junk(&mut self, change: &Change) {
        for sector in sectors(change.offset, change.bytes) {
            let was_bad = self.faults.unreadable.remove(&sector);
            if self.faults.rewritten.remove(&sector) || was_bad {
                self.content.put(sector * SECTOR_BYTES, &vec![JUNK; to_usize(SECTOR_BYTES)]);
            }
        }
    }

    pub(crate) fn finish_flush(&mut self, mark: u64) {
        if !self.faults.lies_on_flush {
            self.content.flush(mark);
            self.forget_rewritten();
        }
    }

    /// The host stops but the disk has power: commands under way end or never began, each by
    /// chance.
    pub(crate) fn lose_host(&mut self) {
        for number in self.in_flight.keys().copied().collect::<Vec<_>>() {
            if self.random.percent(50) {
                self.finish_write(number);
            }
        }
        self.in_flight.clear();
        self.let_go();
    }

    /// Power is gone everywhere, and with it the users of the disk.
    pub(crate) fn lose_power(&mut self) {
        self.lose_cache();
        self.let_go();
    }

    /// Its holder is gone, and none of its commands is under way any more.
    pub(crate) fn let_go(&mut self) {
        self.holders.clear();
        self.owed = 0;
        self.waiting.clear();
    }

    /// What is not durable: oldest first, what the cache holds before what is under way.
    pub(crate) fn volatile(&self) -> impl Iterator<Item = &Change> {
        let cached = self.content.unflushed.iter().map(|(_, change)| change);
        cached.chain(self.in_flight.values())
    }

    /// The host is frozen: what becomes of each write that is not durable is decided one by one.
    pub(crate) fn settle(&mut self, mut fate_of: impl FnMut(u64) -> Fate) {
        let volatile: Vec<Change> = self.volatile().cloned().collect();
        self.content.unflushed.clear();
        self.content.cached.clear();
        self.in_flight.clear();
        for change in &volatile {
            match fate_of(change.number) {
                Fate::Lost => {}
                Fate::Whole => self.content.store(change),
                Fate::Beginning => {
                    self.content.store(&beginning(change, self.options.atomic_write_bytes))
                }
            }
        }
    }

    /// Power is gone: of what is not durable a subset of chance survives, torn and in any order.
    pub(crate) fn lose_cache(&mut self) {
        let mut volatile: Vec<Change> =
            std::mem::take(&mut self.content.unflushed).into_iter().map(|(_, c)| c).collect();
        volatile.extend(std::mem::take(&mut self.in_flight).into_values());
        self.content.cached.clear();
        self.random.shuffle(&mut volatile);
        for change in &volatile {
            let survivors = survivors(change, self.options.atomic_write_bytes, &mut self.random);
            let is_begun = survivors.iter().any(|survivor| survivor.bytes > 0);
            if is_begun && self.options.torn_repairs_leave_junk {
                self.leave_junk(change);
            }
            for survivor in survivors {
                self.content.store(&survivor);
            }
        }
        self.faults.rewritten.clear();
    }
}

fn sectors(offset: u64, bytes: u64) -> Range<u64> {
    offset / SECTOR_BYTES..(offset + bytes).div_ceil(SECTOR_BYTES)
}

/// What is left of an interrupted write: all, nothing, its beginning, or pieces of it. Pieces never
/// end inside a unit of `atomic_bytes`.
fn survivors(change: &Change, atomic_bytes: u64, random: &mut Random) -> Vec<Change> {
    let first = change.offset / atomic_bytes;
    let units = (change.offset + change.bytes).div_ceil(atomic_bytes) - first;
    if units == 0 {
        return Vec::new();
    }
    match random.below(4) {
        0 => Vec::new(),
        1 => vec![change.clone()],
        // Zeros can be as long as the disk: they survive as a beginning, not in pieces.
        2 => vec![part(change, first, random.below(units), atomic_bytes)],
        _ if change.data.is_none() => vec![part(change, first, random.below(units), atomic_bytes)],
        _ => (first..first + units)
            .filter(|_| random.percent(50))
            .map(|unit| part(change, unit, 1, atomic_bytes))
            .collect(),
    }
}

/// The first half of a write, in whole units.
fn beginning(change: &Change, atomic_bytes: u64) -> Change {
    let first = change.offset / atomic_bytes;
    let units = (change.offset + change.bytes).div_ceil(atomic_bytes) - first;
    part(change, first, units / 2, atomic_bytes)
}

/// The part of `change` that is in `count` units from unit `unit` of the disk on.
pub(crate) fn part(change: &Change, unit: u64, count: u64, unit_bytes: u64) -> Change {
    let start = (unit * unit_bytes).max(change.offset);
    let end = ((unit + count) * unit_bytes).min(change.offset + change.bytes).max(start);
    cut(change, start, end)
}

fn overlap(one: &Change, other: &Change) -> bool {
    one.offset < other.offset + other.bytes && other.offset < one.offset + one.bytes
}

/// What of `change` lies outside `other`.
fn outside(change: Change, other: &Change) -> impl Iterator<Item = Change> {
    let (start, end) = (change.offset, change.offset + change.bytes);
    let rests = if overlap(&change, other) {
        let before = cut(&change, start, other.offset.clamp(start, end));
        let after = cut(&change, (other.offset + other.bytes).clamp(start, end), end);
        [Some(before), Some(after)]
    } else {
        [Some(change), None]
    };
    rests.into_iter().flatten().filter(|rest| rest.bytes > 0)
}

/// The part of `change` from `start` to `end`, which lie within it.
fn cut(change: &Change, start: u64, end: u64) -> Change {
    let from = to_usize(start - change.offset);
    let to = to_usize(end - change.offset);
    let data = change.data.as_ref().map(|data| Arc::from(&data[from..to]));
    Change { offset: start, bytes: to_u64(to - from), data, ..*change }
}
