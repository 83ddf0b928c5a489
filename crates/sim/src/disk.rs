//! What a test can do to a disk: faults, a look at its content, images of it.
//!
//! What must stay true: everything here affects commands that complete from now on. It is part of
//! the test's own program and as reproducible as that. Not here: power, which goes for all disks at
//! once (`world`).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use ashlar_device::{CommandKind, DeviceFacts, DeviceKind, Fault, FaultKind};
use ashlar_units::{Extent, SECTOR_BYTES, to_usize};

use crate::gate::Traffic;
use crate::lies::Lie;
use crate::state::{Change, Content, DiskState, Fate, Faults};
use crate::world::World;

/// What kind of disk it is.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// Size in bytes, a multiple of the logical block.
    pub size_bytes: u64,
    /// Smallest unit of I/O, in bytes.
    pub logical_block_bytes: u32,
    /// What a power cut never tears, in bytes: a multiple of 512, or a part of it, and then sectors
    /// tear inside.
    pub atomic_write_bytes: u64,
    /// Completed writes are lost in a power cut until they are flushed.
    pub has_volatile_cache: bool,
    /// Discarded ranges read as zeros. Otherwise they read as junk.
    pub discard_reads_zeros: bool,
    /// Where a power cut tears a write over sectors that could not be read, all of them can be read
    /// again, and those that were not stored hold junk: the device had put others in their place.
    pub torn_repairs_leave_junk: bool,
    /// What it takes space from; disks with the same number are full together, as the engine sees
    /// it.
    pub store: Option<u64>,
    /// Serial number; the disk's name if `None`.
    pub serial: Option<String>,
    /// How long commands take.
    pub latency: Latency,
    /// Bytes that it reads and writes in a second, one command after the other; `None`: any number.
    pub bytes_per_second: Option<u64>,
}

/// How long commands take: drawn evenly from these ranges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Latency {
    /// Reads.
    pub read: RangeInclusive<Duration>,
    /// Writes, discards and writes of zeros.
    pub write: RangeInclusive<Duration>,
    /// Flushes.
    pub flush: RangeInclusive<Duration>,
}

impl Default for Latency {
    /// A flash drive: reads 50 to 200 us, writes 10 to 100 us, flushes 100 us to 2 ms.
    fn default() -> Latency {
        let us = Duration::from_micros;
        Latency { read: us(50)..=us(200), write: us(10)..=us(100), flush: us(100)..=us(2000) }
    }
}

impl Latency {
    /// Everything takes exactly `time`.
    pub fn constant(time: Duration) -> Latency {
        Latency { read: time..=time, write: time..=time, flush: time..=time }
    }

    pub(crate) fn of(&self, kind: CommandKind) -> &RangeInclusive<Duration> {
        match kind {
            CommandKind::Read => &self.read,
            CommandKind::Flush => &self.flush,
            CommandKind::Write
            | CommandKind::WriteDurable
            | CommandKind::Discard
            | CommandKind::WriteZeroes => &self.write,
        }
    }
}

impl DiskOptions {
    /// A disk of `size_bytes` with a volatile cache, 512-byte blocks and a flash drive's latencies.
    pub fn sized(size_bytes: u64) -> DiskOptions {
        DiskOptions {
            size_bytes,
            logical_block_bytes: u32::try_from(SECTOR_BYTES).expect("512"),
            atomic_write_bytes: SECTOR_BYTES,
            has_volatile_cache: true,
            discard_reads_zeros: true,
            torn_repairs_leave_junk: false,
            store: None,
            serial: None,
            latency: Latency::default(),
            bytes_per_second: None,
        }
    }

    pub(crate) fn facts(&self, name: &str) -> DeviceFacts {
        let mut facts = DeviceFacts::plain(name, self.size_bytes, DeviceKind::Simulated);
        facts.logical_block_bytes = self.logical_block_bytes;
        facts.serial = Some(self.serial.clone().unwrap_or_else(|| name.to_owned()));
        facts.has_volatile_cache = self.has_volatile_cache;
        facts.discard_reads_zeros = self.discard_reads_zeros;
        facts.store = self.store;
        facts
    }

    pub(crate) fn check(&self) {
        let block = u64::from(self.logical_block_bytes);
        assert!(self.size_bytes.is_multiple_of(block), "size {} in blocks", self.size_bytes);
        assert!(block.is_multiple_of(SECTOR_BYTES), "block of {block} bytes");
        assert!(
            self.atomic_write_bytes > 0
                && (self.atomic_write_bytes.is_multiple_of(SECTOR_BYTES)
                    || SECTOR_BYTES.is_multiple_of(self.atomic_write_bytes)),
            "atomic writes of {} bytes",
            self.atomic_write_bytes
        );
    }
}

/// A disk of a [`SimWorld`](crate::SimWorld), as the test sees it. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    pub(crate) world: Arc<World>,
    pub(crate) at: usize,
}

/// A disk as it was at some moment: content, cache, faults and options.
#[derive(Clone)]
pub struct KeptDisk {
    content: Content,
    faults: Faults,
    options: DiskOptions,
    in_flight: BTreeMap<u64, Change>,
}

/// All that a disk held at some moment, cache included; for disks that come back stale.
#[derive(Clone)]
pub struct DiskImage(Content);

impl SimDisk {
    /// The name it is opened by.
    pub fn name(&self) -> String {
        self.with(|disk| disk.name.clone())
    }

    /// Makes every command fail as if the disk had been pulled, those under way too.
    pub fn vanish(&self) {
        self.with(|disk| disk.faults.is_absent = true);
    }

    /// The disk loses its own power: of what it has not made durable a subset of chance survives.
    /// Whoever opens it again sees another appearance of it.
    pub fn lose_cache(&self) {
        self.with(|disk| {
            disk.lose_cache();
            disk.faults.appearance += 1;
        });
    }

    /// From now on nothing completes, well or badly: it neither does what it is asked nor says that
    /// it does not.
    pub fn fall_silent(&self) {
        self.with(|disk| disk.faults.is_silent = true);
    }

    /// Whether nothing completes.
    pub fn is_silent(&self) -> bool {
        self.with(|disk| disk.faults.is_silent)
    }

    /// Undoes [`fall_silent`](Self::fall_silent): what it was asked meanwhile completes now, in any
    /// order.
    pub fn speak(&self) {
        let waiting = self.with(|disk| {
            disk.faults.is_silent = false;
            std::mem::take(&mut disk.waiting)
        });
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Commands that nobody waits for any more and that it still has.
    pub fn owed(&self) -> usize {
        self.with(|disk| disk.owed)
    }

    /// Counts from now on what is read and written there.
    pub fn count_traffic(&self, place: Extent) {
        self.with(|disk| {
            (disk.gate.counted, disk.gate.traffic) = (place, Traffic::default());
        });
    }

    /// What [`count_traffic`](Self::count_traffic) has counted.
    pub fn traffic(&self) -> Traffic {
        self.with(|disk| disk.gate.traffic)
    }

    /// How many commands that change it were submitted so far.
    pub fn changes(&self) -> u64 {
        self.with(|disk| disk.changes)
    }

    /// Undoes [`vanish`](Self::vanish): the disk is there again with what it held.
    pub fn come_back(&self) {
        self.with(|disk| disk.faults.is_absent = false);
    }

    /// Makes commands of `kind` fail from now on, for ever or this many `times`.
    pub fn fail(&self, kind: CommandKind, fault: FaultKind, times: Option<u32>) {
        let entry = (times != Some(0)).then_some((Fault::from(fault), times));
        self.with(|disk| disk.faults.by_kind[kind.at()] = entry);
    }

    /// Undoes [`fail`](Self::fail) for all kinds.
    pub fn stop_failing(&self) {
        self.with(|disk| disk.faults.by_kind = Default::default());
    }

    /// From now on there is no space for any write. What is under way is asked when it completes.
    pub fn fill_up(&self) {
        self.with(|disk| disk.faults.is_full = true);
    }

    /// Undoes [`fill_up`](Self::fill_up).
    pub fn make_room(&self) {
        self.with(|disk| disk.faults.is_full = false);
    }

    /// What lies beneath it is cut short while it is in use: what lay beyond `offset` is lost,
    /// cannot be read, and reads as zeros once a write beyond has made it grow.
    pub fn cut_beneath(&self, offset: u64) {
        self.cut_and_grow(offset);
        self.with(|disk| disk.faults.ends_at = Some(offset));
    }

    /// Whether a write that ends beyond `offset` is under way.
    pub fn is_written_beyond(&self, offset: u64) -> bool {
        let is_beyond = |change: &Change| change.offset + change.bytes > offset;
        self.with(|disk| disk.in_flight.values().any(is_beyond))
    }

    /// It was cut short and made as long as before again: from `offset` on it reads as zeros.
    pub fn cut_and_grow(&self, offset: u64) {
        self.with(|disk| {
            let lost = disk.options.size_bytes.saturating_sub(offset);
            disk.content.put(offset, &vec![0; to_usize(lost)]);
        });
    }

    /// Makes every sector that `extent` touches unreadable until it is written.
    pub fn break_media(&self, extent: Extent) {
        let first = extent.offset / SECTOR_BYTES;
        let end = extent.end().div_ceil(SECTOR_BYTES);
        self.with(|disk| disk.faults.unreadable.extend(first..end));
    }

    /// Undoes [`break_media`](Self::break_media): all sectors can be read again, with what they
    /// held.
    pub fn repair_media(&self) {
        self.with(|disk| disk.faults.unreadable.clear());
    }

    /// Whether a sector that `extent` touches is unreadable.
    pub fn is_broken(&self, extent: Extent) -> bool {
        self.with(|disk| !disk.is_readable(extent.offset, extent.bytes))
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.with(|disk| disk.options.size_bytes)
    }

    /// How many sectors are unreadable.
    pub fn unreadable_sectors(&self) -> usize {
        self.with(|disk| disk.faults.unreadable.len())
    }

    /// Whether flushes are acknowledged without effect, and durable writes as if they were others.
    pub fn lie_on_flush(&self, lies: bool) {
        self.with(|disk| disk.faults.lies_on_flush = lies);
    }

    /// Makes the next `count` writes be acknowledged and forgotten.
    pub fn lose_writes(&self, count: u32) {
        self.with(|disk| disk.faults.writes_to_lose = count);
    }

    /// Makes the next write go to `offset` instead of where it belongs.
    pub fn misdirect_next_write(&self, offset: u64) {
        self.with(|disk| disk.faults.misdirect_to = Some(offset));
    }

    /// What becomes of the next write of data that lies in `extent`: it is acknowledged all the
    /// same.
    pub fn lie_about_next_write(&self, extent: Extent, lie: Lie) {
        self.with(|disk| disk.faults.lies.about_next(extent, lie));
    }

    /// Undoes [`lie_about_next_write`](Self::lie_about_next_write) where there was no such write
    /// yet.
    pub fn stop_lying(&self) {
        self.with(|disk| disk.faults.lies.stop());
    }

    /// How often it has lied about a write, or changed content by itself.
    pub fn lies_told(&self) -> u64 {
        self.with(|disk| disk.faults.lies.told())
    }

    /// As [`corrupt`](Self::corrupt), and [`is_damaged`](Self::is_damaged) knows of it.
    pub fn rot(&self, extent: Extent) {
        self.with(|disk| disk.rot(extent));
    }

    /// Whether a lie or rot has left something wrong in `extent` that was not stored anew since, or
    /// will with the next write there.
    pub fn is_damaged(&self, extent: Extent) -> bool {
        self.with(|disk| disk.is_damaged(extent))
    }

    /// The same for all of it.
    pub fn is_damaged_anywhere(&self) -> bool {
        self.with(|disk| disk.is_damaged_anywhere())
    }

    /// Changes every byte of `extent` silently and durably.
    pub fn corrupt(&self, extent: Extent) {
        let mut bytes = self.peek(extent);
        self.with(|disk| {
            for byte in &mut bytes {
                *byte ^= u8::try_from(1 + disk.random.below(255)).expect("below 256");
            }
            disk.content.put(extent.offset, &bytes);
        });
    }

    /// Commands submitted from now on take so long.
    pub fn set_latency(&self, latency: Latency) {
        self.with(|disk| disk.options.latency = latency);
    }

    /// What a read of `extent` would see, faults aside.
    pub fn peek(&self, extent: Extent) -> Vec<u8> {
        let mut bytes = vec![0; to_usize(extent.bytes)];
        self.with(|disk| disk.content.read(extent.offset, &mut bytes));
        bytes
    }

    /// What of `extent` is durable.
    pub fn peek_durable(&self, extent: Extent) -> Vec<u8> {
        let mut bytes = vec![0; to_usize(extent.bytes)];
        self.with(|disk| disk.content.read_durable(extent.offset, &mut bytes));
        bytes
    }

    /// Stores `bytes` at `offset`, durably, behind the back of the disk's user.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        self.with(|disk| disk.content.put(offset, bytes));
    }

    /// All it holds now.
    pub fn image(&self) -> DiskImage {
        self.with(|disk| DiskImage(disk.content.clone()))
    }

    /// Makes it hold what `image` says: an old image of itself (stale), or another disk's.
    pub fn put_image(&self, image: &DiskImage) {
        let content = image.0.clone();
        self.with(|disk| disk.content = content);
    }

    /// Numbers of the operations that changed it and are not durable: in its cache, or under way
    /// when the host was frozen.
    pub fn volatile_writes(&self) -> Vec<u64> {
        self.with(|disk| disk.volatile().map(|change| change.number).collect())
    }

    /// After [`Stop::Freeze`](crate::Stop::Freeze): what becomes of each write that is not durable,
    /// by the number of its operation. Where several cover the same bytes the later one comes out
    /// on top.
    pub fn settle(&self, fate_of: impl FnMut(u64) -> Fate) {
        self.with(|disk| disk.settle(fate_of));
    }

    /// Everything about it now; for what is to be undone.
    pub fn keep(&self) -> KeptDisk {
        self.with(|disk| KeptDisk {
            content: disk.content.clone(),
            faults: disk.faults.clone(),
            options: disk.options.clone(),
            in_flight: disk.in_flight.clone(),
        })
    }

    /// Makes it as it was.
    pub fn put_back(&self, kept: KeptDisk) {
        self.with(|disk| {
            disk.content = kept.content;
            disk.faults = kept.faults;
            disk.options = kept.options;
            disk.in_flight = kept.in_flight;
        });
    }

    /// It is of this size from the next opening on. What lay beyond is out of reach.
    pub fn set_size(&self, size_bytes: u64) {
        self.with(|disk| disk.options.size_bytes = size_bytes);
    }

    /// The disk of its world to which this path leads now.
    pub fn found_at(&self, path: &str) -> Option<SimDisk> {
        let at = self.world.lock().disk_at(path)?;
        Some(SimDisk { world: Arc::clone(&self.world), at })
    }

    /// It shows this serial number from the next opening on.
    pub fn set_serial(&self, serial: &str) {
        self.with(|disk| disk.options.serial = Some(serial.to_owned()));
    }

    /// Makes it a blank disk without media errors: a replacement.
    pub fn wipe(&self) {
        self.with(|disk| {
            disk.content = Content::default();
            disk.faults.unreadable.clear();
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut DiskState) -> T) -> T {
        act(&mut self.world.lock().disks[self.at])
    }
}
