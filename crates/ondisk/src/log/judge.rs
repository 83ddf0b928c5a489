//! Judges the logs of all devices in service at a restart: which blocks to write in place again,
//! and where to generate parity anew.
//!
//! What must stay true, and why:
//!
//! - **Complete: every device in service that the record names has it.** In-place writes begin only
//!   when all holders have the record. So nothing of an incomplete update is in place, and it is
//!   dropped: its blocks are old. A complete one may be in place in any part, so it is written
//!   again everywhere it is named. Each device has its own new blocks. Then the row is a whole
//!   codeword, but for lost strips within what the parity can bear.
//! - **A device that the record does not name does not count.** It was recorded as out before the
//!   record was written. If it is in service, it came back since.
//! - **A holder that is not in service does not count.** It was recorded as out before anything
//!   that it lacks went in place, or it was lost with the crash. Either way its content is never
//!   used later. If it came back it has a new tag, and its rebuilt content is newer than records
//!   that do not name it. The same holds for a replacement that takes over from a failed device,
//!   because updates went on without it meanwhile.
//! - **Settled: below the highest `settled_below` of the ring on any device in service.** The
//!   writer uses space again only for updates that the same device calls settled. So no device in
//!   service has lost its record of an update that is not settled by that measure. An incomplete
//!   one was never complete.
//! - **Of two complete records of a row the later one counts**, block by block. It was planned
//!   after the earlier had gone in place, so its parity includes the earlier's data. The earlier
//!   one is still needed where the later has no block, because caches may have lost what it stored.
//! - **Rows in doubt outdate older records of all their strips**, and parity is generated from the
//!   data as found. An incomplete record of this kind does nothing: older records of its rows still
//!   count, because nothing was written over them.
//! - **A later full record does not clear the doubt.** Its parity was computed from data in place
//!   that may have been in a cache only. After the crash the data may be older than that parity. So
//!   its blocks and its parity are written, and then parity is generated anew from all data. If a
//!   data strip is lost, the strip follows from parity, and the later record has the right one.
//!   Therefore that parity is written, and written first.
//! - **A first write outdates older records and leaves no doubt**: the stripe counts as written
//!   only after it is durable. No record of a stripe counts that the map calls unwritten.
//! - **A parity-only record is looked up only if no later complete record touches its row.** Parity
//!   goes in place only after the block is durable. If the block found is the old one, no parity
//!   was in place, and the record is dropped. If it is the new one, parity is written. If its
//!   device is lost, parity is written too, and the new block follows from it. A block that is
//!   neither was damaged: it is lost, and computed anew from that parity. An unreadable block is
//!   computed anew as well, but only after it was overwritten. Otherwise a repeated restart might
//!   read it as old, drop the record, and leave parity in place. A later record of the row was
//!   planned when this update had ended. Its block is durable, or was changed since by that record
//!   or after its device was out. So nothing is looked up, and the block is not called damaged.
//!   Older blocks of its strip and row are never written over it.
//! - **A record that is missing under a later complete one of its rows** is impossible if the
//!   devices kept what they called durable. The device that lacks it has lost part of its log, and
//!   is named: its log counts as unreadable.
//!
//! - **A device that the operator takes although it may lack writes does not count where it lacks
//!   the record.** It is not written there, and is as old as it was; the others get their blocks.
//! - **A holder that does not store the strip any more counts, and is not written.** It had to have
//!   the record when in-place writes began. By now the strip is elsewhere, where it was brought
//!   after this update had ended, and what lies there on the holder may be of another stripe.
//!
//! A restart that is cut off and repeated finds the same records. It judges alike. If more devices
//! are lost, it may find more updates complete, and those were planned on what the first restart
//! made of the rows.
//!
//! Not here: reading logs (`scan.rs`), which device has which record (`updates.rs`), writing (the
//! engine).

use super::record::{BlockChange, Record, RecordKind};
use super::rows::RowSet;
use super::scan::MemberLog;
use super::updates::{Contradiction, DeviceLog, LoggedUpdate, Places, updates_by_stripe};
use ashlar_layout::RowRange;
use ashlar_units::{BLOCK_BYTES, StripIdx, StripeNo};
use std::collections::BTreeMap;

/// A block of data in its place, which a parity-only record is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChangedBlock {
    /// Its stripe.
    pub stripe: StripeNo,
    /// Its strip.
    pub strip: StripIdx,
    /// Its row.
    pub row: u32,
}

/// What a restart finds in the place of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoundBlock {
    /// Nothing that counts: no device is in service there, or it is only being filled.
    Gone,
    /// The device cannot read it.
    Unreadable,
    /// A block of this CRC-32C.
    Holds(u32),
}

/// A block in place that is damaged: to be computed from the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostBlock {
    /// Its row.
    pub row: u32,
    /// What it was and was to be.
    pub change: BlockChange,
    /// Whether it can be read. If not, something that is neither is to be written in its place
    /// before anything else.
    pub is_readable: bool,
}

/// Blocks to be written in place from a device's log to the same device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplayWrite {
    /// The device: its index in what was judged.
    pub device: usize,
    /// The strip it stores.
    pub strip: StripIdx,
    /// The rows.
    pub rows: RowRange,
    /// Where the blocks lie in its log, in bytes from the start of the area.
    pub log_offset: u64,
}

/// What is to be done to one stripe: lost blocks that cannot be read are overwritten, then the
/// writes, in any order, then the lost blocks are computed, then parity of the rows in doubt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StripeReplay {
    /// The stripe.
    pub stripe: StripeNo,
    /// The blocks to write, none twice.
    pub writes: Vec<ReplayWrite>,
    /// Blocks in place that are damaged.
    pub lost: Vec<LostBlock>,
    /// Rows whose parity is to be generated anew.
    pub in_doubt: Vec<RowRange>,
}

/// How many updates were found, by what becomes of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplayTally {
    /// Rolled forward, at least in part.
    pub rolled_forward: u64,
    /// Complete, but all their blocks were written again by later updates.
    pub outdated: u64,
    /// Without data: parity of their rows is generated anew, unless a later first write covers
    /// them.
    pub in_doubt: u64,
    /// First writes.
    pub first_writes: u64,
    /// Not complete, or parity-only and the old block is in place: nothing of them was.
    pub dropped: u64,
    /// Durable in place, as another device says.
    pub settled: u64,
    /// Of stripes that the map calls unwritten.
    pub unwritten: u64,
}

/// What a restart is to do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Judgement {
    /// The stripes with something to do, rising.
    pub stripes: Vec<StripeReplay>,
    /// The updates counted.
    pub tally: ReplayTally,
    /// Devices whose log lacks a record that it must have had: they count as devices whose log
    /// cannot be read, and the others are to be judged again without them. Empty: the judgement
    /// stands.
    pub damaged: Vec<usize>,
}

/// The blocks that parity-only records of a log are about: what is to be read before logs are
/// judged.
pub fn changed_blocks(log: &MemberLog) -> impl Iterator<Item = ChangedBlock> {
    let of = |record: &Record| Some(ChangedBlock::of(record, record.kind.change()?));
    log.records.iter().filter_map(move |logged| of(&logged.record))
}

impl ChangedBlock {
    fn of(record: &Record, change: BlockChange) -> ChangedBlock {
        ChangedBlock { stripe: record.stripe, strip: change.strip, row: record.rows.start }
    }
}

/// What a judgement rests on besides the logs.
pub trait Found {
    /// Whether the written map, as the members have it, calls a stripe written.
    fn is_written(&self, stripe: StripeNo) -> bool;

    /// A block as it lies in its place.
    fn block(&self, block: ChangedBlock) -> FoundBlock;
}

/// Judges the logs of all devices in service.
///
/// # Errors
/// If records of one update differ, a holder's strip is not the one that lies on its slot, or two
/// log rings speak of one stripe.
pub fn judge(
    devices: &[DeviceLog<'_>],
    places: Places<'_>,
    found: &impl Found,
) -> Result<Judgement, Contradiction> {
    let settled = settled_below(devices);
    let mut judgement = Judgement::default();
    for (stripe, updates) in updates_by_stripe(devices, places)? {
        let (counting, settled): (Vec<_>, Vec<_>) = updates
            .into_iter()
            .partition(|update| update.record.sequence >= settled[&update.log_ring]);
        judgement.tally.settled += count(settled.len());
        if found.is_written(stripe) {
            let newer =
                Newer { changed_blocks: changed_on(devices, places, stripe), ..Newer::default() };
            judgement.add_stripe((devices, found), stripe, (&counting, newer));
        } else {
            judgement.tally.unwritten += count(counting.len());
        }
    }
    judgement.damaged.sort_unstable();
    judgement.damaged.dedup();
    Ok(judgement)
}

fn count(number: usize) -> u64 {
    ashlar_units::to_u64(number)
}

/// For each log ring the highest that any device says.
fn settled_below(devices: &[DeviceLog<'_>]) -> BTreeMap<u16, u64> {
    let mut settled: BTreeMap<u16, u64> = BTreeMap::new();
    for (log_ring, summary) in devices.iter().flat_map(|device| &device.log.log_rings) {
        let highest = settled.entry(*log_ring).or_default();
        *highest = summary.settled_below.max(*highest);
    }
    settled
}

/// The devices in service that store each strip of a stripe.
fn changed_on(
    devices: &[DeviceLog<'_>],
    places: Places<'_>,
    stripe: StripeNo,
) -> BTreeMap<StripIdx, Vec<usize>> {
    let mut changed_blocks: BTreeMap<StripIdx, Vec<usize>> = BTreeMap::new();
    for (at, device) in devices.iter().enumerate() {
        if let Some(strip) = places.strip_of(device, stripe) {
            changed_blocks.entry(strip).or_default().push(at);
        }
    }
    changed_blocks
}

/// What is known of a stripe, going from its newest update to its oldest.
#[derive(Default)]
struct Newer {
    /// Rows that a later complete update touches in any strip.
    touched: RowSet,
    /// Rows whose older records are outdated on all strips.
    outdated: RowSet,
    /// Rows in doubt.
    in_doubt: RowSet,
    /// Rows with a newer block, by device.
    stored: BTreeMap<usize, RowSet>,
    /// Blocks in place that are damaged.
    lost: Vec<LostBlock>,
    /// The devices that store each strip.
    changed_blocks: BTreeMap<StripIdx, Vec<usize>>,
}

impl Judgement {
    fn add_stripe(
        &mut self,
        (devices, found): (&[DeviceLog<'_>], &impl Found),
        stripe: StripeNo,
        (updates, mut newer): (&[LoggedUpdate<'_>], Newer),
    ) {
        let mut writes = Vec::new();
        for update in updates.iter().rev() {
            let record = update.record;
            let lacking = update.lacking(devices);
            if !lacking.is_empty() {
                if newer.touched.touches(record.rows) {
                    self.damaged.extend(lacking);
                }
                self.tally.dropped += 1;
                continue;
            }
            let is_newest = !newer.touched.touches(record.rows);
            newer.touched.insert(record.rows);
            match record.kind {
                RecordKind::ParityOnly(change)
                    if is_newest
                        && !newer.is_new(record.rows, change, || {
                            found.block(ChangedBlock::of(record, change))
                        }) =>
                {
                    self.tally.dropped += 1;
                }
                RecordKind::Full | RecordKind::ParityOnly(_) => {
                    let before = writes.len();
                    newer.roll_forward(update, &mut writes);
                    record
                        .kind
                        .change()
                        .into_iter()
                        .for_each(|change| newer.keep_change(record.rows, change));
                    let is_outdated = writes.len() == before;
                    self.tally.outdated += u64::from(is_outdated);
                    self.tally.rolled_forward += u64::from(!is_outdated);
                }
                RecordKind::InDoubt => {
                    let open = newer.outdated.missing_from(record.rows, &RowSet::default());
                    open.into_iter().for_each(|rows| newer.in_doubt.insert(rows));
                    newer.outdated.insert(record.rows);
                    self.tally.in_doubt += 1;
                }
                RecordKind::FirstWrite => {
                    newer.outdated.insert(record.rows);
                    self.tally.first_writes += 1;
                }
            }
        }
        let (lost, in_doubt) = (newer.lost, newer.in_doubt.runs());
        if !(writes.is_empty() && lost.is_empty() && in_doubt.is_empty()) {
            writes.reverse();
            self.stripes.push(StripeReplay { stripe, writes, lost, in_doubt });
        }
    }
}

impl Newer {
    /// Whether parity of a complete parity-only update, the newest of its row, is to be written,
    /// for all that is found in the place of its block.
    fn is_new(
        &mut self,
        rows: RowRange,
        change: BlockChange,
        found: impl FnOnce() -> FoundBlock,
    ) -> bool {
        let is_readable = match found() {
            FoundBlock::Holds(checksum) if checksum == change.old => return false,
            FoundBlock::Holds(checksum) if checksum == change.new => return true,
            FoundBlock::Gone => return true,
            FoundBlock::Holds(_) => true,
            FoundBlock::Unreadable => false,
        };
        self.lost.push(LostBlock { row: rows.start, change, is_readable });
        true
    }

    /// No older block of the strip is written over that of a parity-only update.
    fn keep_change(&mut self, rows: RowRange, change: BlockChange) {
        let on = self.changed_blocks.get(&change.strip).cloned().unwrap_or_default();
        on.into_iter().for_each(|at| self.stored.entry(at).or_default().insert(rows));
    }

    /// Adds the blocks of a complete record that nothing newer covers.
    fn roll_forward(&mut self, update: &LoggedUpdate<'_>, writes: &mut Vec<ReplayWrite>) {
        for held in update.held.iter().filter(|held| held.is_there) {
            let stored = self.stored.entry(held.device).or_default();
            // Blocks of other strips may lie behind it; their own devices have them, too.
            for (part, offset) in held.logged.placed_parts().filter(|p| p.0.strip == held.strip) {
                for rows in stored.missing_from(part.rows, &self.outdated) {
                    let skipped = u64::from(rows.start - part.rows.start) * BLOCK_BYTES;
                    writes.push(ReplayWrite {
                        device: held.device,
                        strip: held.strip,
                        rows,
                        log_offset: offset + skipped,
                    });
                }
                stored.insert(part.rows);
            }
        }
    }
}
