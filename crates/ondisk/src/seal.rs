//! The envelope of both kinds of superblock: magic, length, checksum, version and incompatible
//! features. And the checksum of other records.
//!
//! What must stay true: nothing behind the envelope is used before the checksum is right. A
//! superblock of a newer program never counts as damage.

use ashlar_units::{BLOCK_BYTES_USIZE, to_u64, to_usize};
use zerocopy::FromBytes;

use crate::fault::SuperblockFault;
use crate::features::Features;
use crate::format::{
    CHECKSUM_AT, FORMAT_VERSION, MEMBER_MAGIC, RawPreamble, SPARE_MAGIC, SUPERBLOCK_HEADER_BYTES,
    SUPERBLOCK_LENGTH_UNIT, SUPERBLOCK_SLOT_BYTES, checksum_without,
};

/// Writes the checksum into a complete superblock.
pub(crate) fn seal(bytes: &mut [u8]) {
    seal_at(bytes, CHECKSUM_AT);
}

/// Writes the checksum to its place in a complete record.
pub(crate) fn seal_at(bytes: &mut [u8], at: usize) {
    let checksum = checksum_without(bytes, at);
    bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// The 4 KiB of a record that fills them, with its checksum.
///
/// # Panics
/// If the record is shorter or longer.
pub(crate) fn sealed_block(record: &[u8]) -> [u8; BLOCK_BYTES_USIZE] {
    let mut bytes: [u8; BLOCK_BYTES_USIZE] = record.try_into().expect("a record of one block");
    seal(&mut bytes);
    bytes
}

/// Checks magic, length, checksum, version and incompatible features of a superblock of either
/// kind; returns exactly its bytes.
pub(crate) fn open<'a>(bytes: &'a [u8], magic: &[u8; 8]) -> Result<&'a [u8], SuperblockFault> {
    let (preamble, _) = RawPreamble::ref_from_prefix(bytes).map_err(|_| short(bytes))?;
    if preamble.magic != *magic {
        return Err(match preamble.magic {
            MEMBER_MAGIC | SPARE_MAGIC => SuperblockFault::OtherKind,
            // Zero for 4 KiB is empty; a superblock whose magic alone was erased is not.
            _ if is_zero(&bytes[..bytes.len().min(4096)]) => SuperblockFault::Empty,
            _ => SuperblockFault::Foreign,
        });
    }
    let stored = preamble.checksum.get();
    let length = u64::from(preamble.length.get());
    let possible = (SUPERBLOCK_HEADER_BYTES..=SUPERBLOCK_SLOT_BYTES).contains(&length)
        && length.is_multiple_of(SUPERBLOCK_LENGTH_UNIT);
    if !possible {
        return Err(SuperblockFault::Checksum { stored, computed: !stored });
    }
    let sealed = bytes.get(..to_usize(length)).ok_or_else(|| short(bytes))?;
    let computed = checksum_without(sealed, CHECKSUM_AT);
    if stored != computed {
        return Err(SuperblockFault::Checksum { stored, computed });
    }
    let found = preamble.version.get();
    if found != FORMAT_VERSION {
        return Err(SuperblockFault::Version { found });
    }
    let bits = preamble.features_incompatible.get() & !Features::SUPPORTED.incompatible;
    if bits != 0 {
        return Err(SuperblockFault::UnknownFeatures { bits });
    }
    Ok(sealed)
}

/// Whether every byte is zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    // Many at a time: byte by byte it was one part in thirty of a simulated start.
    let (groups, rest) = bytes.as_chunks::<32>();
    groups.iter().all(|group| *group == [0; 32]) && rest.iter().all(|&byte| byte == 0)
}

/// The fault of bytes that end too early.
pub(crate) fn short(bytes: &[u8]) -> SuperblockFault {
    SuperblockFault::Short { bytes: to_u64(bytes.len()) }
}
