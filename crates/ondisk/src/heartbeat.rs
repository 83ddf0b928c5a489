//! The heartbeat: it says who runs the array, so that nobody else does.
//!
//! What must stay true: every interval the running engine writes a block with a rising sequence, to
//! the two places in turn, so one of them is always whole. A clean stop writes one with interval
//! zero. A start that finds a running heartbeat waits longer than the interval, without writing,
//! and goes on only if the sequence stood still. It need not wait if that process is known to have
//! ended. No wall clock is compared.

use uuid::Uuid;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use ashlar_units::{BLOCK_BYTES_USIZE, to_usize};

use crate::format::{
    CHECKSUM_AT, FORMAT_VERSION, HEARTBEAT_MAGIC, HEARTBEAT_SLOTS, HOST_BYTES, RawHeartbeat,
    checksum_without,
};
use crate::seal::{is_zero, sealed_block};
use crate::text::Text;

/// One heartbeat block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// The array.
    pub array_uuid: Uuid,
    /// The start of the array this heartbeat belongs to.
    pub incarnation: Uuid,
    /// Rises by one with every block.
    pub sequence: u64,
    /// Time to the next block, in milliseconds; zero: stopped cleanly, nobody runs the array.
    pub interval_ms: u32,
    /// The host and the process: see [`RunnerName`](crate::RunnerName).
    pub host_id: Text<HOST_BYTES>,
    /// The kernel's id of this boot.
    pub boot_id: Uuid,
}

impl Heartbeat {
    /// Which of the two places this block goes to.
    pub fn slot(&self) -> usize {
        to_usize(self.sequence % HEARTBEAT_SLOTS as u64)
    }

    /// The 4 KiB for the member.
    pub fn encode(&self) -> [u8; BLOCK_BYTES_USIZE] {
        let raw = RawHeartbeat {
            magic: HEARTBEAT_MAGIC,
            version: FORMAT_VERSION.into(),
            array_uuid: self.array_uuid.into_bytes(),
            incarnation: self.incarnation.into_bytes(),
            sequence: self.sequence.into(),
            interval_ms: self.interval_ms.into(),
            host_id: self.host_id.to_bytes(),
            boot_id: self.boot_id.into_bytes(),
            ..RawHeartbeat::new_zeroed()
        };
        sealed_block(raw.as_bytes())
    }

    /// The heartbeat in a 4 KiB block; `None` if it was never written or is damaged.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let raw = RawHeartbeat::ref_from_bytes(bytes).ok()?;
        let intact = raw.magic == HEARTBEAT_MAGIC
            && raw.version.get() == FORMAT_VERSION
            && raw.checksum.get() == checksum_without(bytes, CHECKSUM_AT)
            && raw.reserved_0 == [0; 4]
            && is_zero(&raw.reserved_1);
        if !intact {
            return None;
        }
        Some(Heartbeat {
            array_uuid: Uuid::from_bytes(raw.array_uuid),
            incarnation: Uuid::from_bytes(raw.incarnation),
            sequence: raw.sequence.get(),
            interval_ms: raw.interval_ms.get(),
            host_id: Text::from_bytes(raw.host_id)?,
            boot_id: Uuid::from_bytes(raw.boot_id),
        })
    }

    /// The newer of the two blocks of `array`; `None` if neither can be read.
    pub fn newest(blocks: [Option<&[u8]>; HEARTBEAT_SLOTS], array: Uuid) -> Option<Self> {
        blocks
            .into_iter()
            .flatten()
            .filter_map(Self::decode)
            .filter(|heartbeat| heartbeat.array_uuid == array)
            .max_by_key(|heartbeat| heartbeat.sequence)
    }

    /// Whether somebody may be running the array.
    pub fn is_running(&self) -> bool {
        self.interval_ms != 0
    }
}
