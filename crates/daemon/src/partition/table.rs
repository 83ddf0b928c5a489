//! Whose a table of partitions is.
//!
//! What must stay true: it is only read. A table that cannot be understood is not Ashlar's.
//! Source: UEFI Specification 2.10, section 5.3.

use super::TYPE;
use ashlar_device::open_to_look;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use uuid::Uuid;

/// Sizes of logical blocks that drives have, bytes. The header is in the second block.
const BLOCKS: [u64; 2] = [512, 4096];
const MAGIC: &[u8; 8] = b"EFI PART";
/// Fields of the header: number of the first block with entries, how many there are, bytes of each.
const ENTRIES_AT: usize = 72;
const ENTRY_COUNT: usize = 80;
const ENTRY_BYTES: usize = 84;
/// The type of an entry that is not used.
const UNUSED: [u8; 16] = [0; 16];
/// Larger tables than this are nobody's whom we know: entries, and bytes of an entry.
const ENTRIES_MAX: u32 = 1024;
const ENTRY_BYTES_MAX: u32 = 4096;

/// Whether the drive has a table with one partition, of Ashlar's type.
///
/// # Errors
/// If the drive cannot be read.
pub fn is_ours_alone(drive: &str) -> io::Result<bool> {
    let file = open_to_look(Path::new(drive))?;
    let own = Uuid::try_parse(TYPE).map(|it| it.to_bytes_le()).map_err(io::Error::other)?;
    Ok(types(&file)?.is_some_and(|types| types == [own]))
}

/// Whether the drive has a partition of Ashlar's type; `None` if it has no GPT in front.
///
/// # Errors
/// If the drive cannot be read.
pub fn has_ours(drive: &str) -> io::Result<Option<bool>> {
    let file = open_to_look(Path::new(drive))?;
    let own = Uuid::try_parse(TYPE).map(|it| it.to_bytes_le()).map_err(io::Error::other)?;
    Ok(types(&file)?.map(|types| types.contains(&own)))
}

/// The types of its partitions; `None` if there is no such table.
fn types(file: &File) -> io::Result<Option<Vec<[u8; 16]>>> {
    for block_bytes in BLOCKS {
        let mut header = [0; 512];
        file.read_exact_at(&mut header, block_bytes)?;
        if header.starts_with(MAGIC) {
            return types_of(file, block_bytes, &header);
        }
    }
    Ok(None)
}

fn types_of(
    file: &File,
    block_bytes: u64,
    header: &[u8; 512],
) -> io::Result<Option<Vec<[u8; 16]>>> {
    let small = |at: usize| u32::from_le_bytes(std::array::from_fn(|it| header[at + it]));
    let first = u64::from_le_bytes(std::array::from_fn(|it| header[ENTRIES_AT + it]));
    let (count, entry_bytes) = (small(ENTRY_COUNT), small(ENTRY_BYTES));
    let begin = first.checked_mul(block_bytes);
    let is_known = count <= ENTRIES_MAX && (128..=ENTRY_BYTES_MAX).contains(&entry_bytes);
    let Some(begin) = begin.filter(|_| is_known) else { return Ok(None) };
    let mut types = Vec::new();
    for number in 0..u64::from(count) {
        let mut kind = UNUSED;
        file.read_exact_at(&mut kind, begin.saturating_add(number * u64::from(entry_bytes)))?;
        if kind != UNUSED {
            types.push(kind);
        }
    }
    Ok(Some(types))
}

#[cfg(test)]
mod tests {
    use super::{ENTRIES_AT, ENTRY_BYTES, ENTRY_COUNT, MAGIC, is_ours_alone};
    use crate::partition::TYPE;
    use uuid::Uuid;

    /// A drive with blocks of this size and these partitions.
    fn drive(block_bytes: usize, types: &[&str]) -> tempfile::NamedTempFile {
        let mut bytes = vec![0; 1 << 20];
        bytes[block_bytes..block_bytes + 8].copy_from_slice(MAGIC);
        for (field, value) in [(ENTRIES_AT, 2), (ENTRY_COUNT, 128), (ENTRY_BYTES, 128)] {
            bytes[block_bytes + field] = value;
        }
        for (number, kind) in types.iter().enumerate() {
            let at = 2 * block_bytes + number * 128;
            let kind = Uuid::try_parse(kind).expect("a GUID").to_bytes_le();
            bytes[at..at + 16].copy_from_slice(&kind);
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), bytes).expect("written");
        file
    }

    #[test]
    fn one_partition_of_our_type_is_ours_and_any_other_table_is_not() {
        let linux = "0FC63DAF-8483-4772-8E79-3D69D8477DE4";
        for (types, is_ours) in [
            (&[TYPE] as &[&str], true),
            (&[], false),
            (&[linux], false),
            (&[TYPE, linux], false),
            (&[TYPE, TYPE], false),
        ] {
            for block_bytes in [512, 4096] {
                let file = drive(block_bytes, types);
                let path = file.path().to_str().expect("text");
                assert_eq!(is_ours_alone(path).expect("read"), is_ours, "{types:?}");
            }
        }
    }

    #[test]
    fn a_drive_without_a_table_or_with_a_damaged_one_is_not_ours() {
        let blank = drive(512, &[]);
        std::fs::write(blank.path(), vec![0; 1 << 20]).expect("written");
        assert!(!is_ours_alone(blank.path().to_str().expect("text")).expect("read"));
        let damaged = drive(512, &[TYPE]);
        let mut bytes = std::fs::read(damaged.path()).expect("read");
        bytes[512 + ENTRY_BYTES + 3] = 0xFF;
        std::fs::write(damaged.path(), bytes).expect("written");
        assert!(!is_ours_alone(damaged.path().to_str().expect("text")).expect("read"));
    }
}
