//! How the log area of a member is divided into log rings, and how long a record may be.
//!
//! What must stay true: a ring has room for four of the longest records. One is wasted at the end
//! of the ring, and some blocks serve batches without records. An update of one block always fits.
//! A start with another number of workers may divide the area otherwise, because all older records
//! are dealt with by then.
//!
//! A short ring is enough: space comes back with every flush, and a flush for every few thousand
//! updates costs nothing measurable. It has advantages, too. Files have their blocks after the
//! first round, caches hold the ring, and a start has less to roll forward.
//!
//! Pure.

use ashlar_layout::Geometry;
use ashlar_units::{BLOCK_BYTES, Extent, to_u64, to_usize};

/// A log ring is not made smaller than this because there are many workers.
const LOG_RING_BYTES_MIN: u64 = 256 << 10;
/// Nor larger than this because there is room.
const LOG_RING_BYTES_MAX: u64 = 16 << 20;
/// Longest record with its payload that is ever written at once: what one device stores of a
/// request.
const RECORD_BYTES_MAX: u64 = 2 << 20;

/// Log rings of one array, all of the same length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogShape {
    /// Where the first log ring begins on every member, bytes.
    pub(crate) offset: u64,
    /// Length of a log ring, a multiple of 4 KiB.
    pub(crate) log_ring_bytes: u64,
    /// Rows of a strip: a device stores no more of one update.
    strip_blocks: u32,
    /// The number of rings: one for each worker that owns stripes.
    pub(crate) log_rings: usize,
}

impl LogShape {
    /// Log rings for `workers` workers in `area`; `None` if not even one fits.
    pub(crate) fn plan(area: Extent, geometry: &Geometry, workers: usize) -> Option<LogShape> {
        let least = least_log_ring_bytes(geometry);
        if area.bytes < least {
            return None;
        }
        let room = to_usize(area.bytes / least.max(LOG_RING_BYTES_MIN)).max(1);
        let log_rings = workers.clamp(1, room);
        let log_ring_bytes = (area.bytes / to_u64(log_rings)).min(LOG_RING_BYTES_MAX);
        Some(LogShape {
            offset: area.offset,
            log_ring_bytes: log_ring_bytes - log_ring_bytes % BLOCK_BYTES,
            strip_blocks: geometry.strip_blocks(),
            log_rings,
        })
    }

    /// Where a log ring begins, bytes from the member's start.
    pub(crate) fn log_ring_offset(&self, log_ring: usize) -> u64 {
        self.offset + to_u64(log_ring) * self.log_ring_bytes
    }

    /// The longest batch of one record: a strip behind one block of header, and a quarter of a log
    /// ring at most.
    pub(crate) fn record_bytes_max(&self) -> u64 {
        let quarter = self.log_ring_bytes / 4;
        let strip = (1 + u64::from(self.strip_blocks)) * BLOCK_BYTES;
        (quarter - quarter % BLOCK_BYTES).min(RECORD_BYTES_MAX).min(strip)
    }

    /// Rows of an update at most, so that no record of it is too long: each device logs only what
    /// it stores itself.
    pub(crate) fn rows_max(&self) -> u32 {
        u32::try_from(self.record_bytes_max() / BLOCK_BYTES - 1).unwrap_or(u32::MAX)
    }

    /// Blocks of one contiguous update at most; `None` if every update of a stripe will do.
    pub(crate) fn piece_blocks_max(&self) -> Option<u64> {
        // So many blocks in a row touch no more rows than that in any strip.
        (self.rows_max() < self.strip_blocks).then(|| u64::from(self.rows_max()))
    }
}

/// Bytes that a log ring needs: four records of a whole row and one parity block; 64 KiB for the
/// slack of the ring.
pub(crate) fn least_log_ring_bytes(geometry: &Geometry) -> u64 {
    (4 * (to_u64(geometry.data_strips()) + 2) * BLOCK_BYTES).max(16 * BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::LogShape;
    use ashlar_layout::{Geometry, Level, Shape};
    use ashlar_units::{BLOCK_BYTES, Extent};

    #[test]
    fn log_rings_lie_in_the_area_and_every_piece_fits_a_record() {
        for members in [3, 6, 24, 64] {
            let shape = Shape {
                level: if members == 3 { Level::Raid5 } else { Level::Raid6 },
                members,
                parity: None,
                group_members: None,
                strip_bytes: 64 << 10,
                declustered: None,
            };
            let Ok(geometry) = Geometry::new(&shape, 100) else { continue };
            for workers in [1, 2, 5, 64] {
                for area_bytes in [4096, 512 << 10, 1 << 20, (1 << 20) + 8192, 128 << 20] {
                    let area = Extent::new(1 << 20, area_bytes);
                    let Some(log) = LogShape::plan(area, &geometry, workers) else {
                        assert!(area_bytes < super::least_log_ring_bytes(&geometry));
                        continue;
                    };
                    assert!((1..=workers).contains(&log.log_rings));
                    let end = log.log_ring_offset(log.log_rings - 1) + log.log_ring_bytes;
                    assert!(log.log_ring_bytes.is_multiple_of(BLOCK_BYTES) && end <= area.end());
                    let record = log.record_bytes_max();
                    assert!(4 * record <= log.log_ring_bytes);
                    let rows = log.piece_blocks_max().unwrap_or(geometry.strip_blocks().into());
                    assert!((1..=u64::from(geometry.strip_blocks())).contains(&rows));
                    assert!((1 + rows) * BLOCK_BYTES <= record, "it fits");
                    assert!(log.log_ring_bytes <= super::LOG_RING_BYTES_MAX);
                }
            }
        }
    }
}
