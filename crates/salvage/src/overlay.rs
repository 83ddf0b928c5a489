//! What the stripe intent log changes about the blocks on the members, without writing anything:
//! the judgement of a restart after a crash, kept beside the images.
//!
//! What must stay true: a record counts only if every device that could speak has it. If a device's
//! log cannot be read, its blocks do not count where a complete record names the device. Rows in
//! doubt lend their parity only to blocks that say so. A parity-only record counts unless its block
//! is still the old one.

use crate::bytes::block_checksum;
use crate::image::ReadAt;
use crate::log::{Batch, BlockChange, Kind, Record, Writer, has_hole, read};
use crate::membership::{Membership, Standing};
use crate::place::StripPlace;
use std::collections::{BTreeMap, HashMap};

/// Rows of a strip; a strip has at most 256.
#[derive(Clone, Copy, Debug, Default)]
struct RowSet([u64; 4]);

impl RowSet {
    fn has(&self, row: u64) -> bool {
        usize::try_from(row / 64).is_ok_and(|word| self.0[word % 4] & (1 << (row % 64)) != 0)
    }

    fn set(&mut self, record: &Record, value: bool) {
        for row in record.first_row..record.first_row + record.row_count {
            self.set_row(row, value);
        }
    }

    fn set_row(&mut self, row: u16, value: bool) {
        let (word, bit) = (usize::from(row / 64) % 4, 1 << (row % 64));
        self.0[word] = if value { self.0[word] | bit } else { self.0[word] & !bit };
    }
}

/// What the log says about one stripe.
#[derive(Clone, Debug, Default)]
struct StripeOverlay {
    /// Where the block of (image, row) lies in the log of that image.
    cells: BTreeMap<(usize, u64), u64>,
    in_doubt: RowSet,
    /// Images that hold a complete record but cannot tell what is in it.
    unproven: BTreeMap<usize, RowSet>,
    /// Images on which the newest parity-only record of a row found neither the old block nor the
    /// new one.
    damaged: BTreeMap<usize, RowSet>,
}

/// What the log came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSummary {
    /// Batches that count.
    pub batches: usize,
    /// Updates that were complete and not known to be in place.
    pub complete: usize,
    /// Updates that were not complete: nothing of them is in place.
    pub dropped: usize,
    /// Images whose log cannot be read, or lacks batches that it had.
    pub unreadable_images: Vec<usize>,
}

/// All that the log says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay {
    stripes: HashMap<u64, StripeOverlay>,
    pub(crate) summary: LogSummary,
}

/// What the judgement needs besides logs: the written map, and where strips are.
pub(crate) struct Known<'k> {
    pub(crate) is_written: &'k dyn Fn(u64) -> bool,
    pub(crate) strip_place: &'k dyn Fn(u64, usize) -> Option<StripPlace>,
}

/// A device in service: its image, and its batches if its log can be read.
struct Device {
    image: usize,
    batches: Option<Vec<Batch>>,
}

/// All that there is to judge by.
struct Evidence<'a, I> {
    images: &'a [I],
    membership: &'a Membership,
    devices: &'a HashMap<u64, Device>,
    known: &'a Known<'a>,
}

/// The records of one update, by image.
type Copies<'a> = BTreeMap<usize, &'a Record>;

impl Overlay {
    /// Read the logs of all devices in service and judge them. `has_head` says of each image
    /// whether nobody overwrote its first areas.
    pub(crate) fn of<I: ReadAt>(
        images: &[I],
        membership: &Membership,
        has_head: &[bool],
        known: &Known<'_>,
    ) -> Overlay {
        let newest = &membership.newest;
        let mut overlay = Overlay::default();
        if newest.consistency_policy != 3 || !newest.unclean {
            return overlay;
        }
        let mut devices: HashMap<u64, Device> = HashMap::new();
        for (image, judged) in membership.images.iter().enumerate() {
            if !matches!(judged.standing, Standing::Current | Standing::Until(_)) {
                continue;
            }
            let Some(log_tag) = judged.log_tag.filter(|tag| *tag != 0) else { continue };
            let (array_uuid, incarnation) = (newest.array_uuid, newest.incarnation);
            let writer = Writer { array_uuid, log_tag, incarnation };
            let batches = has_head[image].then(|| read(&images[image], newest.intent_log, &writer));
            let batches = batches.flatten().filter(|batches| !has_hole(batches));
            overlay.summary.batches += batches.as_ref().map_or(0, Vec::len);
            if batches.is_none() {
                overlay.summary.unreadable_images.push(image);
            }
            devices.insert(log_tag, Device { image, batches });
        }
        let evidence = Evidence { images, membership, devices: &devices, known };
        for (_, copies) in updates(&devices) {
            overlay.judge(&evidence, &copies);
        }
        overlay
    }

    fn judge<I: ReadAt>(&mut self, evidence: &Evidence<'_, I>, copies: &Copies<'_>) {
        let Evidence { membership, devices, known, .. } = *evidence;
        let Some(record) = copies.values().next() else { return };
        let geometry = &membership.newest.geometry;
        let rows = u64::from(record.first_row) + u64::from(record.row_count);
        if record.stripe >= geometry.stripes() || rows > geometry.strip_blocks() {
            return;
        }
        let in_service =
            record.holders.iter().filter_map(|it| Some((it, devices.get(&it.log_tag)?)));
        let silent = |device: &Device| device.batches.is_none();
        let complete =
            in_service.clone().all(|(_, it)| silent(it) || copies.contains_key(&it.image));
        let agree = copies.values().all(|copy| same_update(copy, record));
        if !complete || !agree {
            self.summary.dropped += 1;
            return;
        }
        if !(known.is_written)(record.stripe) {
            return;
        }
        if let Kind::ParityOnly(change) = record.kind
            && !self.is_new(evidence, record, change)
        {
            self.summary.dropped += 1;
            return;
        }
        self.summary.complete += 1;
        let stripe = self.stripes.entry(record.stripe).or_default();
        // A later update of the row was planned when the block of an earlier one was there, or had
        // become another.
        if !matches!(record.kind, Kind::ParityOnly(_)) {
            stripe.damaged.values_mut().for_each(|damaged| damaged.set(record, false));
        }
        if matches!(record.kind, Kind::InDoubt | Kind::FirstWrite) {
            let rows = u64::from(record.first_row)..rows;
            stripe.cells.retain(|(_, row), _| !rows.contains(row));
            stripe.in_doubt.set(record, record.kind == Kind::InDoubt);
            stripe.unproven.values_mut().for_each(|unproven| unproven.set(record, false));
            return;
        }
        for (holder, device) in in_service {
            let strip = usize::from(holder.strip);
            let is_a_strip = strip < geometry.stripe_width();
            let slot = membership.images[device.image].slot.map(usize::from);
            let place = || (known.strip_place)(record.stripe, strip).map(|at| at.slot);
            // One that holds the strip no more counts as a holder all the same.
            if !is_a_strip || slot != place() {
                continue;
            }
            let Some(copy) = copies.get(&device.image) else {
                stripe.unproven.entry(device.image).or_default().set(record, true);
                continue;
            };
            for block in copy.payload.iter().filter(|block| block.strip == holder.strip) {
                stripe.cells.insert((device.image, u64::from(block.row)), block.offset);
                if let Some(unproven) = stripe.unproven.get_mut(&device.image) {
                    unproven.set_row(block.row, false);
                }
            }
        }
    }

    /// Whether the block that a complete parity-only record is about was not found as it was
    /// before. What the log has of it is older then; and if it is not as it was to be either, a
    /// later record must say what it is, or nobody can.
    fn is_new<I: ReadAt>(
        &mut self,
        evidence: &Evidence<'_, I>,
        record: &Record,
        change: BlockChange,
    ) -> bool {
        let Evidence { images, membership, devices, known } = *evidence;
        let newest = &membership.newest;
        let (stripe, strip) = (record.stripe, usize::from(change.strip));
        if strip >= newest.geometry.k() || record.row_count != 1 {
            return false;
        }
        // The block of a strip that is lost is gone, and then the record counts.
        let Some(place) = (known.strip_place)(stripe, strip) else { return true };
        let row = u64::from(record.first_row);
        let at = newest.data.offset + (place.first_block + row) * 4096;
        let is_its_place = |it: &&Device| {
            let judged = &membership.images[it.image];
            judged.slot.map(usize::from) == Some(place.slot) && judged.standing == Standing::Current
        };
        let mut block = [0; 4096];
        for device in devices.values().filter(is_its_place) {
            let is_read = images[device.image].read_at(at, &mut block).is_ok();
            let found = is_read.then(|| block_checksum(&block));
            if found == Some(change.old) {
                return false;
            }
            let overlay = self.stripes.entry(stripe).or_default();
            overlay.cells.remove(&(device.image, row));
            let is_new = found == Some(change.new);
            overlay.damaged.values_mut().for_each(|damaged| damaged.set(record, false));
            overlay.damaged.entry(device.image).or_default().set(record, !is_new);
            if let Some(unproven) = overlay.unproven.get_mut(&device.image).filter(|_| is_new) {
                unproven.set(record, false);
            }
        }
        true
    }

    /// Where the log has a newer block for a place of an image.
    pub(crate) fn cell(&self, image: usize, stripe: u64, row: u64) -> Option<u64> {
        self.stripes.get(&stripe)?.cells.get(&(image, row)).copied()
    }

    /// Whether what lies in place on an image may be older than a complete record, or is no block
    /// that anybody wrote.
    pub(crate) fn is_unproven(&self, image: usize, stripe: u64, row: u64) -> bool {
        let Some(stripe) = self.stripes.get(&stripe) else { return false };
        let of_image = [stripe.unproven.get(&image), stripe.damaged.get(&image)];
        of_image.into_iter().flatten().any(|rows| rows.has(row))
    }

    /// Whether parity of a row was to be made anew.
    pub(crate) fn is_in_doubt(&self, stripe: u64, row: u64) -> bool {
        self.stripes.get(&stripe).is_some_and(|stripe| stripe.in_doubt.has(row))
    }

    /// Whether the log says anything about a stripe.
    pub(crate) fn touches(&self, stripe: u64) -> bool {
        self.stripes.contains_key(&stripe)
    }
}

/// Whether two copies are about the same; their parts differ from device to device.
fn same_update(one: &Record, other: &Record) -> bool {
    let key = |it: &Record| (it.stripe, it.first_row, it.row_count, it.kind);
    key(one) == key(other) && one.holders == other.holders
}

/// All updates that are not known to be in place, by log ring and sequence.
fn updates(devices: &HashMap<u64, Device>) -> BTreeMap<(u16, u64), Copies<'_>> {
    let batches = || {
        let all = devices.values().filter_map(|it| Some((it.image, it.batches.as_ref()?)));
        all.flat_map(|(image, batches)| batches.iter().map(move |batch| (image, batch)))
    };
    let mut settled: HashMap<u16, u64> = HashMap::new();
    for (_, batch) in batches() {
        let below = settled.entry(batch.log_ring).or_default();
        *below = (*below).max(batch.settled_below);
    }
    let mut updates: BTreeMap<(u16, u64), Copies<'_>> = BTreeMap::new();
    for (image, batch) in batches() {
        for record in batch.records.iter().filter(|it| it.sequence >= settled[&batch.log_ring]) {
            updates.entry((batch.log_ring, record.sequence)).or_default().insert(image, record);
        }
    }
    updates
}
