//! What the device says of itself: pure.
//!
//! What must stay true: what is said is so. A file system that believes it (mkfs.xfs takes stripe
//! unit and width from here) fits the array. Numbers and places are those of the virtio
//! specification for block devices.

use ashlar_units::SECTOR_BYTES;
use ashlar_volume::VolumeFacts;

/// What a device offers, and what a driver uses of it.
pub mod feature {
    /// No segment is longer than the configuration says.
    pub const SEGMENT_BYTES: u64 = 1 << 1;
    /// No request has more segments than it says.
    pub const SEGMENTS: u64 = 1 << 2;
    /// Writes are refused.
    pub const READ_ONLY: u64 = 1 << 5;
    /// It says how long a block is.
    pub const BLOCK_BYTES: u64 = 1 << 6;
    /// Flushes.
    pub const FLUSH: u64 = 1 << 9;
    /// It says which sizes and places pay.
    pub const TOPOLOGY: u64 = 1 << 10;
    /// The driver may choose that answered writes are durable.
    pub const CACHE_MODE: u64 = 1 << 11;
    /// Several queues.
    pub const MULTI_QUEUE: u64 = 1 << 12;
    /// Discards.
    pub const DISCARD: u64 = 1 << 13;
    /// Writes of zeros.
    pub const WRITE_ZEROES: u64 = 1 << 14;
    /// A descriptor may stand for a table of descriptors.
    pub const INDIRECT: u64 = 1 << 28;
    /// Each side says of which request or answer it wants to hear.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// The protocol has parts that are agreed on.
    pub const PROTOCOL: u64 = 1 << 30;
    /// As the specification says, and not as it was before it.
    pub const VERSION_1: u64 = 1 << 32;
}

/// Queues of a device at most.
pub const QUEUES_MAX: u16 = 16;
/// Segments of one request at most. A ring of 128 entries holds them with head and status.
pub const SEGMENTS_MAX: u32 = 126;
/// Longest segment, in bytes.
pub const SEGMENT_BYTES_MAX: u32 = 1 << 20;
/// Longest discard and longest write of zeros, in bytes: a request takes the time of so much.
pub const WITHOUT_DATA_BYTES_MAX: u64 = 1 << 30;

/// Length of the configuration.
pub const CONFIG_BYTES: usize = 60;
/// Where in it the driver says whether answered writes may be volatile.
pub const CACHE_MODE_AT: u32 = 32;

/// What a device for this volume offers.
pub fn offered(facts: &VolumeFacts) -> u64 {
    let always = feature::SEGMENT_BYTES
        | feature::SEGMENTS
        | feature::BLOCK_BYTES
        | feature::FLUSH
        | feature::TOPOLOGY
        | feature::CACHE_MODE
        | feature::MULTI_QUEUE
        | feature::INDIRECT
        | feature::EVENT_INDEX
        | feature::PROTOCOL
        | feature::VERSION_1;
    match facts.read_only {
        true => always | feature::READ_ONLY,
        false => always | feature::DISCARD | feature::WRITE_ZEROES,
    }
}

/// The configuration of a device for this volume.
pub fn config(facts: &VolumeFacts, is_volatile: bool) -> [u8; CONFIG_BYTES] {
    let block = facts.logical_block_bytes;
    let blocks = |bytes: u32| bytes / block;
    let exponent = blocks(facts.physical_block_bytes).max(1).ilog2();
    let exponent = u8::try_from(exponent).expect("at most 31");
    let minimum = u16::try_from(blocks(facts.strip_bytes)).unwrap_or(0);
    let sectors = |bytes: u64| u32::try_from(bytes / SECTOR_BYTES).expect("a few GiB");
    let longest = sectors(WITHOUT_DATA_BYTES_MAX);
    let mut bytes = [0; CONFIG_BYTES];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &(facts.size_bytes / SECTOR_BYTES).to_le_bytes());
    put(8, &SEGMENT_BYTES_MAX.to_le_bytes());
    put(12, &SEGMENTS_MAX.to_le_bytes());
    put(20, &block.to_le_bytes());
    put(24, &[exponent, 0]);
    put(26, &minimum.to_le_bytes());
    put(28, &blocks(facts.optimal_bytes).to_le_bytes());
    put(32, &[u8::from(is_volatile)]);
    put(34, &QUEUES_MAX.to_le_bytes());
    put(36, &longest.to_le_bytes());
    put(40, &1_u32.to_le_bytes());
    put(44, &sectors(u64::from(facts.optimal_bytes)).to_le_bytes());
    put(48, &longest.to_le_bytes());
    put(52, &1_u32.to_le_bytes());
    // Zeroed blocks may be given back: they read as zeros either way.
    put(56, &[1]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::{config, feature, offered};
    use ashlar_volume::{MemVolume, Volume, VolumeFacts};

    fn facts() -> VolumeFacts {
        VolumeFacts {
            logical_block_bytes: 4096,
            physical_block_bytes: 4096,
            strip_bytes: 64 << 10,
            optimal_bytes: 7 * (64 << 10),
            ..MemVolume::new("disk", 1 << 30).facts()
        }
    }

    #[test]
    fn size_blocks_strip_and_stripe_are_told() {
        let told = config(&facts(), true);
        let number = |at: usize| u32::from_le_bytes(told[at..at + 4].try_into().expect("four"));
        assert_eq!(told[..8], (1_u64 << 21).to_le_bytes());
        assert_eq!((number(8), number(12), number(20)), (1 << 20, 126, 4096));
        assert_eq!(told[24..28], [0, 0, 16, 0], "blocks of one size; a strip of 16 of them");
        assert_eq!((number(28), told[32], told[34]), (7 * 16, 1, 16), "a stripe of any size");
        assert_eq!((number(36), number(40), number(44)), (1 << 21, 1, 7 * 128));
        assert_eq!((number(48), number(52), told[56]), (1 << 21, 1, 1));
        let small = VolumeFacts { logical_block_bytes: 512, ..facts() };
        assert_eq!(config(&small, false)[24], 3, "a physical block of eight logical ones");
        assert_eq!(config(&small, false)[32], 0);
    }

    #[test]
    fn a_volume_that_may_not_be_written_takes_no_changes() {
        let read_only = offered(&VolumeFacts { read_only: true, ..facts() });
        assert_ne!(read_only & feature::READ_ONLY, 0);
        assert_eq!(read_only & (feature::DISCARD | feature::WRITE_ZEROES), 0);
        assert_eq!(offered(&facts()) & feature::READ_ONLY, 0);
    }
}
