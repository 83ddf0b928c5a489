//! The checksum table of one array: where it lies, and which of its pages are in memory.

use super::cache::{Cache, CacheUsage};
use ashlar_ondisk::Superblock;
use ashlar_ondisk::bitmap::array_tag;
use ashlar_units::Extent;

/// The checksums of one array, shared by all workers.
pub(crate) struct Checksums {
    /// The table on each member.
    pub(crate) area: Extent,
    pub(crate) array_tag: u64,
    pub(crate) cache: Cache,
}

impl Checksums {
    /// The checksums of an array whose superblock says that it keeps them. At most `cache_bytes` of
    /// its table are in memory, beside what requests under way hold.
    pub(crate) fn new(superblock: &Superblock, cache_bytes: u64) -> Option<Checksums> {
        (superblock.checksums == ashlar_ondisk::ChecksumKind::Crc32c).then(|| Checksums {
            area: superblock.areas.checksums,
            array_tag: array_tag(superblock.array_uuid),
            cache: Cache::new(cache_bytes),
        })
    }

    /// How much of the table is in memory.
    pub(crate) fn usage(&self) -> CacheUsage {
        self.cache.usage()
    }
}
