//! Finds the batches in a log area, read piece by piece.
//!
//! What must stay true: memory is bounded by the header of one batch and by the records that count,
//! never by payload. A whole batch is found wherever it begins, whatever lies before it, unless it
//! lies in the payload of another whole one. A place that claims to be a batch and is none is left
//! one block later, even if that means reading again.

use std::collections::BTreeMap;

use ashlar_units::{BLOCK_BYTES_USIZE, Extent, to_u64, to_usize};

use super::batch::{BatchFault, Claim, LogIdentity};
use super::record::{LogLimits, Part, Record};
use crate::format::{CHECKSUM_AT, LOG_BLOCK_BYTES};

/// Most bytes that a scan asks for at once.
pub const SCAN_BYTES_MAX: u64 = 1 << 20;

/// A record in the log of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoggedRecord {
    /// The log ring of its batch.
    pub log_ring: u16,
    /// Where its batch begins, in bytes from the start of the log area.
    pub batch_offset: u64,
    /// The record.
    pub record: Record,
}

impl LoggedRecord {
    /// Its parts, each with where its blocks begin, in bytes from the start of the log area.
    pub fn placed_parts(&self) -> impl Iterator<Item = (Part, u64)> {
        self.record.placed_parts().map(|(part, offset)| (part, self.batch_offset + offset))
    }
}

/// What was found of one log ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogRingSummary {
    /// Batches.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Number of the newest.
    pub newest_batch: u64,
    /// The highest that a batch says: updates below are durable in place.
    pub settled_below: u64,
}

/// What the log area of one device says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemberLog {
    /// The log rings with a batch of the device and the start asked for.
    pub log_rings: BTreeMap<u16, LogRingSummary>,
    /// The records of these batches, in the order of their places; those the device itself calls
    /// settled are left out.
    pub records: Vec<LoggedRecord>,
    /// Whole batches of the array by another device or start; counted only if asked for.
    pub other_batches: u64,
    /// Records in those.
    pub other_records: u64,
    /// What was wrong with the first batch whose checksum is right but whose content is impossible.
    /// Then the log cannot be relied on.
    pub fault: Option<BatchFault>,
    /// A batch that was whole once, by what is left, and is not any more: its records may have been
    /// of updates that are in place. Then the log cannot be relied on.
    pub hole: Option<LogHole>,
}

/// A batch that is missing among the others of its log ring, which no crash explains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("batch {number} of log ring {log_ring} was whole and is damaged")]
pub struct LogHole {
    /// The log ring.
    pub log_ring: u16,
    /// The number of the batch.
    pub number: u64,
}

/// Batches of a log ring that a device has in flight at most: one is begun only when all but the
/// last before it are whole.
pub const BATCHES_IN_FLIGHT_MAX: usize = 2;

/// A scan under way. Ask what is [wanted](LogScan::wanted), read it, hand it in with
/// [`LogScan::take`], until nothing is wanted.
pub struct LogScan {
    identity: LogIdentity,
    limits: LogLimits,
    area_bytes: u64,
    counts_others: bool,
    takes_torn: bool,
    at: u64,
    open: Option<OpenBatch>,
    log: MemberLog,
    /// Of each log ring and whole batch, the sequence behind its newest update; 0 if it has none.
    batches: BTreeMap<u16, BTreeMap<u64, u64>>,
}

/// A batch that was begun.
struct OpenBatch {
    claim: Claim,
    offset: u64,
    taken: u64,
    header: Vec<u8>,
    digest: crc_fast::Digest,
}

impl LogScan {
    /// A scan of an area of `area_bytes` bytes for the batches of one device and start.
    pub fn new(identity: LogIdentity, limits: LogLimits, area_bytes: u64) -> Self {
        LogScan {
            identity,
            limits,
            area_bytes: area_bytes - area_bytes % LOG_BLOCK_BYTES,
            counts_others: false,
            takes_torn: false,
            at: 0,
            open: None,
            log: MemberLog::default(),
            batches: BTreeMap::new(),
        }
    }

    /// The same, counting the whole batches of other devices and starts as well.
    #[must_use]
    pub fn counting_others(self) -> Self {
        LogScan { counts_others: true, ..self }
    }

    /// The same, with batches of which only the first block is sure to be there: a fault planted on
    /// purpose.
    #[cfg(feature = "canaries")]
    #[must_use]
    pub fn taking_torn(self) -> Self {
        LogScan { takes_torn: true, ..self }
    }

    /// What to read next, from the start of the area: at most [`SCAN_BYTES_MAX`] bytes. `None`: it
    /// is done.
    pub fn wanted(&self) -> Option<Extent> {
        let left = self.area_bytes - self.at;
        (left > 0).then(|| Extent::new(self.at, left.min(SCAN_BYTES_MAX)))
    }

    /// Takes what was wanted.
    ///
    /// # Panics
    /// If it is of another length.
    pub fn take(&mut self, piece: &[u8]) {
        let wanted = self.wanted().map_or(0, |extent| extent.bytes);
        assert!(to_u64(piece.len()) == wanted, "{} bytes, not {wanted}", piece.len());
        let mut at = 0;
        while at < piece.len() {
            let Some(mut open) = self.open.take() else {
                let block = &piece[at..at + BLOCK_BYTES_USIZE];
                self.open = self.begin(block, self.at + to_u64(at));
                at += if self.open.is_some() { 0 } else { BLOCK_BYTES_USIZE };
                continue;
            };
            at += open.feed(&piece[at..]);
            if open.taken < open.claim.bytes {
                self.open = Some(open);
            } else if let Err(next) = self.close(open) {
                match next.checked_sub(self.at) {
                    Some(inside) => at = to_usize(inside),
                    None => {
                        self.at = next;
                        return;
                    }
                }
            }
        }
        self.at += wanted;
    }

    /// What was found.
    ///
    /// # Panics
    /// If something is still wanted.
    pub fn finish(self) -> MemberLog {
        assert!(self.wanted().is_none(), "the scan is not done");
        let mut log = self.log;
        let log_rings = &log.log_rings;
        log.hole = self
            .batches
            .iter()
            .find_map(|(log_ring, batches)| hole(*log_ring, batches, log_rings.get(log_ring)?));
        log.records.retain(|logged| {
            log_rings
                .get(&logged.log_ring)
                .is_some_and(|l| l.settled_below <= logged.record.sequence)
        });
        log
    }

    fn begin(&self, block: &[u8], offset: u64) -> Option<OpenBatch> {
        let claim = Claim::of(block).ok()?;
        let is_ours = claim.head.identity == self.identity;
        let is_other =
            self.counts_others && claim.head.identity.array_tag == self.identity.array_tag;
        let has_room = claim.bytes <= self.area_bytes - offset;
        ((is_ours || is_other) && has_room).then(|| OpenBatch {
            claim,
            offset,
            taken: 0,
            header: Vec::with_capacity(claim.header_bytes),
            digest: crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi),
        })
    }

    /// The batch was read to its end. `Err`: it is none; where to look next.
    fn close(&mut self, open: OpenBatch) -> Result<(), u64> {
        let OpenBatch { claim, offset, header, digest, .. } = open;
        if digest.finalize() != u64::from(claim.checksum) && !self.takes_torn {
            return Err(offset + LOG_BLOCK_BYTES);
        }
        let records = claim.records(&header, &self.limits);
        if claim.head.identity != self.identity {
            self.log.other_batches += 1;
            self.log.other_records += records.map_or(0, |records| to_u64(records.len()));
            return Ok(());
        }
        match records {
            Ok(records) => self.add(&claim, offset, records),
            Err(fault) => self.log.fault = self.log.fault.or(Some(fault)),
        }
        Ok(())
    }

    fn add(&mut self, claim: &Claim, batch_offset: u64, records: Vec<Record>) {
        let log_ring = self.log.log_rings.entry(claim.head.log_ring).or_default();
        log_ring.batches += 1;
        log_ring.records += to_u64(records.len());
        log_ring.bytes += claim.bytes;
        log_ring.newest_batch = log_ring.newest_batch.max(claim.head.sequence);
        log_ring.settled_below = log_ring.settled_below.max(claim.head.settled_below);
        let (log_ring, settled) = (claim.head.log_ring, log_ring.settled_below);
        let behind =
            records.iter().map(|record| record.sequence.saturating_add(1)).max().unwrap_or(0);
        self.batches.entry(log_ring).or_default().insert(claim.head.sequence, behind);
        let counting = records.into_iter().filter(|record| record.sequence >= settled);
        self.log.records.extend(counting.map(|record| LoggedRecord {
            log_ring,
            batch_offset,
            record,
        }));
    }
}

/// The first batch that must have been whole and is not there.
///
/// Space is used again from the oldest batch on, and only if all its updates are settled. So behind
/// one that has an update which is not, all were there; and of those all but the newest were whole
/// when the newest was begun, but for one that may have been under way with it.
fn hole(log_ring: u16, batches: &BTreeMap<u64, u64>, summary: &LogRingSummary) -> Option<LogHole> {
    let newest = *batches.keys().next_back()?;
    let (oldest, _) = batches.iter().find(|(_, behind)| **behind > summary.settled_below)?;
    let mut kept = batches.range(oldest..).map(|(number, _)| *number);
    let mut before = kept.next()?;
    let number = kept.find_map(|found| {
        // A forged number may be the last there is.
        let wanted = std::mem::replace(&mut before, found).saturating_add(1);
        (found != wanted).then_some(wanted)
    })?;
    (newest - number >= to_u64(BATCHES_IN_FLIGHT_MAX)).then_some(LogHole { log_ring, number })
}

impl OpenBatch {
    /// Takes as much of `bytes` as belongs to the batch; how much that was. The first call has its
    /// first block.
    fn feed(&mut self, bytes: &[u8]) -> usize {
        let left = self.claim.bytes - self.taken;
        let count = bytes.len().min(to_usize(left));
        let own = &bytes[..count];
        let header_left = self.claim.header_bytes - self.header.len();
        self.header.extend_from_slice(&own[..header_left.min(count)]);
        if self.taken == 0 {
            self.digest.update(&own[..CHECKSUM_AT]);
            self.digest.update(&own[CHECKSUM_AT + 4..]);
        } else {
            self.digest.update(own);
        }
        self.taken += to_u64(count);
        count
    }
}
