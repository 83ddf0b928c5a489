//! A batch: the records that go to one device with one write, and the blocks behind them.
//!
//! What must stay true: a batch counts whole or not at all, by one CRC-32C over all of it. Encoding
//! allocates nothing. Whatever the bytes, decoding returns a batch or a fault and never panics.
//!
//! A batch is a header (head, records, zeros to a multiple of 4 KiB) and then the payload of its
//! records in their order. Not here: where on a device batches lie (`scan.rs` finds them), and what
//! follows from them (`judge.rs`).

use ashlar_units::{BLOCK_BYTES_USIZE, to_u64, to_usize};
use uuid::Uuid;
use zerocopy::{FromBytes, IntoBytes};

use super::record::{
    LogLimits, NewRecord, Record, RecordKind, payload_blocks, put, record_bytes, take,
};
use crate::format::{
    CHECKSUM_AT, LOG_BATCH_BYTES_MAX, LOG_BATCH_MAGIC, LOG_BLOCK_BYTES, LOG_HEADER_BYTES_MAX,
    RawBatch, checksum_without,
};
use crate::seal::is_zero;

/// Who wrote a batch: the array, the device by its log tag, and the start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LogIdentity {
    /// The array, as [`array_tag`](crate::bitmap::array_tag) gives it.
    pub array_tag: u64,
    /// The device the batch lies on.
    pub log_tag: u64,
    /// The start that wrote it.
    pub incarnation: Uuid,
}

/// What the head of a batch says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BatchHead {
    /// Who wrote it.
    pub identity: LogIdentity,
    /// The log ring.
    pub log_ring: u16,
    /// Number of the batch in its log ring on this device, rising.
    pub sequence: u64,
    /// Every update of the log ring with a lower sequence is durable in place.
    pub settled_below: u64,
}

/// Why bytes are not a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchFault {
    /// The magic is not that of a batch.
    #[error("not a batch")]
    Foreign,
    /// The lengths it claims are impossible, or reach beyond the bytes handed in.
    #[error("impossible lengths: header {header_bytes}, batch {bytes}")]
    Length {
        /// Length of the header it claims, in bytes.
        header_bytes: u64,
        /// Length of the batch it claims, in bytes.
        bytes: u64,
    },
    /// The checksum does not match: it was cut short, or partly overwritten.
    #[error("damaged: checksum {stored:08x} stored, {computed:08x} computed")]
    Checksum {
        /// As stored.
        stored: u32,
        /// Over what was read.
        computed: u32,
    },
    /// The checksum is right, the content is impossible: written by a broken or foreign program.
    #[error("field {name} has an impossible value although the checksum is right")]
    Field {
        /// The field.
        name: &'static str,
    },
}

/// Fills the header of a batch; the payload stays where it is and is written behind it.
///
/// The header's old content does not matter. Push records while they fit, then finish. What the
/// writer must keep, so that a restart judges rightly, is said in the head of [`log`](crate::log).
pub struct HeaderEncoder<'b> {
    header: &'b mut [u8],
    identity: LogIdentity,
    /// Bytes of the batch at most, and so far.
    bytes_max: usize,
    bytes: usize,
    header_end: usize,
    record_count: u16,
    least_sequence: u64,
}

impl<'b> HeaderEncoder<'b> {
    /// A batch of at most `bytes_max` bytes, empty so far. `header` is for the head (72 bytes) and
    /// the records (64 to 72 bytes each for one block on an array of two parities).
    ///
    /// # Panics
    /// If the header's length is not a positive multiple of 4 KiB, longer than
    /// [`LOG_HEADER_BYTES_MAX`] or `bytes_max`, or the log tag is zero.
    pub fn new(header: &'b mut [u8], bytes_max: usize, identity: LogIdentity) -> Self {
        let bytes = header.len();
        let is_header = (LOG_BLOCK_BYTES..=LOG_HEADER_BYTES_MAX).contains(&to_u64(bytes));
        assert!(is_header && bytes <= bytes_max, "a header of {bytes} bytes");
        assert!(bytes.is_multiple_of(BLOCK_BYTES_USIZE), "headers are whole blocks");
        assert!(identity.log_tag != 0, "a device without a log tag has no log");
        HeaderEncoder {
            header,
            identity,
            bytes_max: bytes_max.min(to_usize(LOG_BATCH_BYTES_MAX)),
            bytes,
            header_end: size_of::<RawBatch>(),
            record_count: 0,
            least_sequence: u64::MAX,
        }
    }

    /// Whether a record of this kind with these numbers of holders, parts and blocks of payload
    /// fits.
    pub fn fits(
        &self,
        kind: RecordKind,
        (holders, parts): (usize, usize),
        payload_blocks: usize,
    ) -> bool {
        let bytes = record_bytes(kind.code(), holders, parts);
        self.record_count < u16::MAX
            && self.header_end + bytes <= self.header.len()
            && payload_blocks <= (self.bytes_max - self.bytes) / BLOCK_BYTES_USIZE
    }

    /// Adds a record. What its parts say is the payload's next.
    ///
    /// # Panics
    /// If it does not fit, a number in it is impossible (see [`NewRecord`]), or this device is not
    /// among its holders.
    pub fn push(&mut self, record: &NewRecord<'_>) {
        let sound = LogLimits::WIDEST.check(record, self.identity.log_tag);
        assert!(sound.is_ok(), "{sound:?} of {record:?}");
        let blocks = to_usize(payload_blocks(record.parts));
        let counts = (record.holders.len(), record.parts.len());
        assert!(self.fits(record.kind, counts, blocks), "it does not fit");
        let end = self.header_end + record_bytes(record.kind.code(), counts.0, counts.1);
        put(record, &mut self.header[self.header_end..end]);
        self.header_end = end;
        self.bytes += blocks * BLOCK_BYTES_USIZE;
        self.record_count += 1;
        self.least_sequence = self.least_sequence.min(record.sequence);
    }

    /// Records so far.
    pub fn record_count(&self) -> usize {
        self.record_count.into()
    }

    /// Bytes of the batch so far, header and payload.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes head and checksum; returns the length of the batch in bytes, a multiple of 4 KiB.
    /// `payload` is what the parts of all records hold, in pieces of any length. `sequence` is the
    /// number of the batch in its log ring on this device. A batch without records is good for
    /// saying what is settled.
    ///
    /// # Panics
    /// If a record of the batch is called settled, or the payload is not as long as the parts.
    pub fn finish<'p>(
        self,
        log_ring: u16,
        sequence: u64,
        settled_below: u64,
        payload: impl IntoIterator<Item = &'p [u8]>,
    ) -> usize {
        assert!(settled_below <= self.least_sequence, "a record of this batch is under way");
        let length = u32::try_from(self.bytes).expect("at most 16 MiB");
        let header_length = u32::try_from(self.header.len()).expect("at most 64 KiB");
        let head = RawBatch {
            magic: LOG_BATCH_MAGIC,
            checksum: 0.into(),
            length: length.into(),
            header_length: header_length.into(),
            log_ring: log_ring.into(),
            record_count: self.record_count.into(),
            array_tag: self.identity.array_tag.into(),
            log_tag: self.identity.log_tag.into(),
            incarnation: self.identity.incarnation.into_bytes(),
            sequence: sequence.into(),
            settled_below: settled_below.into(),
        };
        self.header[self.header_end..].fill(0);
        self.header[..size_of::<RawBatch>()].copy_from_slice(head.as_bytes());
        // As `checksum_without`, of bytes that lie in several places.
        let mut checksum = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        checksum.update(&self.header[..CHECKSUM_AT]);
        checksum.update(&self.header[CHECKSUM_AT + 4..]);
        let mut bytes = self.header.len();
        for piece in payload {
            checksum.update(piece);
            bytes += piece.len();
        }
        assert_eq!(bytes, self.bytes, "the payload is as long as its parts");
        let checksum = u32::try_from(checksum.finalize()).expect("a CRC-32 has 32 bits");
        self.header[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

/// Fills a buffer with a batch, payload and all: as [`HeaderEncoder`], where a batch is to be in
/// one piece.
pub struct BatchEncoder<'b> {
    head: HeaderEncoder<'b>,
    payload: &'b mut [u8],
    payload_end: usize,
}

impl<'b> BatchEncoder<'b> {
    /// An empty batch in `buffer`, with `header_bytes` of it for head and records.
    ///
    /// # Panics
    /// As [`HeaderEncoder::new`], and if the buffer is shorter than the header.
    pub fn new(buffer: &'b mut [u8], header_bytes: usize, identity: LogIdentity) -> Self {
        let bytes_max = buffer.len();
        let (header, payload) = buffer.split_at_mut(header_bytes);
        BatchEncoder {
            head: HeaderEncoder::new(header, bytes_max, identity),
            payload,
            payload_end: 0,
        }
    }

    /// As [`HeaderEncoder::fits`].
    pub fn fits(&self, kind: RecordKind, counts: (usize, usize), payload_blocks: usize) -> bool {
        self.head.fits(kind, counts, payload_blocks)
    }

    /// Adds a record and the content of its parts, which may come in pieces of any length.
    ///
    /// # Panics
    /// As [`HeaderEncoder::push`], and if the payload is not as long as its parts.
    pub fn push<'p>(
        &mut self,
        record: &NewRecord<'_>,
        payload: impl IntoIterator<Item = &'p [u8]>,
    ) {
        self.head.push(record);
        let payload_end = self.head.bytes() - self.head.header.len();
        for piece in payload {
            let end = self.payload_end + piece.len();
            assert!(end <= payload_end, "more payload than parts");
            self.payload[self.payload_end..end].copy_from_slice(piece);
            self.payload_end = end;
        }
        assert!(self.payload_end == payload_end, "less payload than parts");
    }

    /// Records so far.
    pub fn record_count(&self) -> usize {
        self.head.record_count()
    }

    /// Bytes of the batch so far.
    pub fn bytes(&self) -> usize {
        self.head.bytes()
    }

    /// As [`HeaderEncoder::finish`].
    ///
    /// # Panics
    /// If a record of the batch is called settled.
    pub fn finish(self, log_ring: u16, sequence: u64, settled_below: u64) -> usize {
        let payload = &self.payload[..self.payload_end];
        self.head.finish(log_ring, sequence, settled_below, [payload])
    }
}

/// What the first bytes of a batch claim, before its checksum is known to be right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    pub(super) head: BatchHead,
    pub(super) header_bytes: usize,
    pub(super) bytes: u64,
    pub(super) record_count: u16,
    pub(super) checksum: u32,
}

impl Claim {
    /// The claim at the start of `block`, if it can be a batch.
    pub(super) fn of(block: &[u8]) -> Result<Claim, BatchFault> {
        let (raw, _) = RawBatch::ref_from_prefix(block).map_err(|_| BatchFault::Foreign)?;
        if raw.magic != LOG_BATCH_MAGIC {
            return Err(BatchFault::Foreign);
        }
        let (header_bytes, bytes) = (raw.header_length.get().into(), raw.length.get().into());
        let possible = (LOG_BLOCK_BYTES..=LOG_HEADER_BYTES_MAX).contains(&header_bytes)
            && (header_bytes..=LOG_BATCH_BYTES_MAX).contains(&bytes)
            && header_bytes.is_multiple_of(LOG_BLOCK_BYTES)
            && bytes.is_multiple_of(LOG_BLOCK_BYTES);
        if !possible {
            return Err(BatchFault::Length { header_bytes, bytes });
        }
        Ok(Claim {
            head: BatchHead {
                identity: LogIdentity {
                    array_tag: raw.array_tag.get(),
                    log_tag: raw.log_tag.get(),
                    incarnation: Uuid::from_bytes(raw.incarnation),
                },
                log_ring: raw.log_ring.get(),
                sequence: raw.sequence.get(),
                settled_below: raw.settled_below.get(),
            },
            header_bytes: to_usize(header_bytes),
            bytes,
            record_count: raw.record_count.get(),
            checksum: raw.checksum.get(),
        })
    }

    /// The records in the header, which is as long as claimed and under a checksum that was found
    /// right.
    pub(super) fn records(
        &self,
        header: &[u8],
        limits: &LogLimits,
    ) -> Result<Vec<Record>, BatchFault> {
        let fault = |name| Err(BatchFault::Field { name });
        if self.head.identity.log_tag == 0 {
            return fault("log_tag");
        }
        let mut records = Vec::with_capacity(self.record_count.into());
        let mut rest = &header[size_of::<RawBatch>()..];
        let mut payload_offset = to_u64(self.header_bytes);
        for _ in 0..self.record_count {
            let place = (self.head.identity.log_tag, payload_offset);
            let (record, after) = take(rest, limits, place)?;
            if record.sequence < self.head.settled_below {
                return fault("settled_below");
            }
            payload_offset += payload_blocks(&record.parts) * LOG_BLOCK_BYTES;
            records.push(record);
            rest = after;
        }
        if !is_zero(rest) {
            return fault("reserved");
        }
        if payload_offset != self.bytes {
            return fault("length");
        }
        Ok(records)
    }
}

/// A batch as read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// What its head says.
    pub head: BatchHead,
    /// Its length, in bytes.
    pub bytes: u64,
    /// Its records, in order.
    pub records: Vec<Record>,
}

impl Batch {
    /// The batch at the start of `bytes`; what follows its length is ignored.
    ///
    /// # Errors
    /// Why there is none.
    pub fn decode(bytes: &[u8], limits: &LogLimits) -> Result<Batch, BatchFault> {
        let claim = Claim::of(bytes)?;
        let too_long =
            BatchFault::Length { header_bytes: to_u64(claim.header_bytes), bytes: claim.bytes };
        let whole = bytes.get(..to_usize(claim.bytes)).ok_or(too_long)?;
        let computed = checksum_without(whole, CHECKSUM_AT);
        if computed != claim.checksum {
            return Err(BatchFault::Checksum { stored: claim.checksum, computed });
        }
        let records = claim.records(&whole[..claim.header_bytes], limits)?;
        Ok(Batch { head: claim.head, bytes: claim.bytes, records })
    }
}
