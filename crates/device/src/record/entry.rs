//! The format of a record of writes (`ashlar serve --record-writes FILE`): one entry as bytes and
//! back.
//!
//! The file begins with 16 bytes: `ASHLARWR`, the version 1 and three zeros, four zeros. Entries
//! follow in the order of their times. All integers are little-endian. An entry has these fields,
//! and then its payload:
//! - kind (4 bytes), 1 to 8 in the order of [`RecordKind`];
//! - number of the opening of a device, counted from 0 (4 bytes); a device that is opened again
//!   gets a new one, and its path identifies it;
//! - number of the command, counted from 1 (8 bytes); 0 for an opening;
//! - time (8 bytes): nanoseconds of `CLOCK_MONOTONIC`, which all processes of a host share;
//! - offset on the device in bytes (8 bytes); for an opening its size;
//! - bytes of the device that the command changes (8 bytes); 0 for openings, flushes and ends;
//! - bytes of payload (8 bytes): the path of an opening, the bytes of a write.
//!
//! What must stay true: a record that ends in the middle of an entry, as a killed process leaves
//! it, is read up to there. Not here: what a power cut may leave of it (`tests/crashes/replay.rs`).

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;

use ashlar_units::to_usize;

/// What a record begins with: its name, and version 1.
pub(super) const HEAD: [u8; 16] = *b"ASHLARWR\x01\0\0\0\0\0\0\0";
/// Bytes of an entry before its payload.
const ENTRY_BYTES: usize = 48;
/// More payload than any command has: such a record is damaged.
const PAYLOAD_MAX: u64 = 1 << 30;

/// What an entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// A device was opened for use: the payload is its path, the offset its size in bytes.
    Opened,
    /// A write begins.
    Write,
    /// A write that is durable when it is done begins.
    WriteDurable,
    /// A flush begins.
    Flush,
    /// Zeros are to be written.
    WriteZeroes,
    /// Content is given up.
    Discard,
    /// The command with this number was done.
    Done,
    /// The command with this number failed.
    Failed,
}

const KINDS: [RecordKind; 8] = [
    RecordKind::Opened,
    RecordKind::Write,
    RecordKind::WriteDurable,
    RecordKind::Flush,
    RecordKind::WriteZeroes,
    RecordKind::Discard,
    RecordKind::Done,
    RecordKind::Failed,
];

/// An entry of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordEntry {
    /// What it says.
    pub kind: RecordKind,
    /// Which opening of a device it is about, counted from 0.
    pub device: u32,
    /// Which command it is about, counted from 1; 0 for openings.
    pub number: u64,
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Offset on the device in bytes; the size of a device that was opened.
    pub offset: u64,
    /// How many bytes of the device the command is about.
    pub bytes: u64,
    /// What is written; the path of a device that was opened.
    pub payload: Vec<u8>,
}

impl RecordEntry {
    pub(super) fn to_bytes(&self, payload_bytes: u64) -> [u8; ENTRY_BYTES] {
        let kind = KINDS.iter().position(|kind| *kind == self.kind).expect("listed");
        let kind = 1 + u32::try_from(kind).expect("few");
        let mut bytes = [0; ENTRY_BYTES];
        bytes[0..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.device.to_le_bytes());
        let words = [self.number, self.at_ns, self.offset, self.bytes, payload_bytes];
        for (at, word) in words.iter().enumerate() {
            bytes[8 + at * 8..16 + at * 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn of_bytes(bytes: &[u8; ENTRY_BYTES]) -> Option<(RecordEntry, u64)> {
        let word = |at: usize| {
            let at = 8 + at * 8;
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"))
        };
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let kind = usize::try_from(half(0)).ok()?.checked_sub(1)?;
        let entry = RecordEntry {
            kind: *KINDS.get(kind)?,
            device: half(4),
            number: word(0),
            at_ns: word(1),
            offset: word(2),
            bytes: word(3),
            payload: Vec::new(),
        };
        (word(4) <= PAYLOAD_MAX).then_some((entry, word(4)))
    }
}

/// All whole entries of the record at `path`, in order.
///
/// # Errors
/// It cannot be read, or is no record.
pub fn read_record(path: &Path) -> io::Result<Vec<RecordEntry>> {
    let mut file = BufReader::new(File::open(path)?);
    let mut head = [0; HEAD.len()];
    file.read_exact(&mut head)?;
    let damaged = |what: &str| io::Error::new(ErrorKind::InvalidData, what.to_owned());
    if head != HEAD {
        return Err(damaged("not a record of writes of version 1"));
    }
    let mut entries = Vec::new();
    loop {
        let mut bytes = [0; ENTRY_BYTES];
        match file.read_exact(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(entries),
            read => read?,
        }
        let entry = RecordEntry::of_bytes(&bytes);
        let (mut entry, payload_bytes) = entry.ok_or_else(|| damaged("no such entry"))?;
        entry.payload = vec![0; to_usize(payload_bytes)];
        match file.read_exact(&mut entry.payload) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(entries),
            read => read?,
        }
        entries.push(entry);
    }
}
