//! Faults of a record that was read from a member.
//!
//! A fault is returned, never asserted, because disks may lie. Kinds are small and `Copy`. The
//! caller adds who read what from where.

/// Why bytes are not a usable superblock of the wanted kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SuperblockFault {
    /// Zero bytes only: never written, or erased.
    #[error("empty: no superblock was ever written here")]
    Empty,
    /// Some other content: the magic is not ours.
    #[error("foreign: the first bytes are not a superblock of ours")]
    Foreign,
    /// A spare's superblock where a member's was asked for, or the other way round.
    #[error("this is a superblock of the other kind (member or spare)")]
    OtherKind,
    /// The bytes handed in end before the superblock does.
    #[error("cut short: {bytes} bytes")]
    Short {
        /// Bytes handed in.
        bytes: u64,
    },
    /// The checksum does not match.
    #[error("damaged: checksum {stored:08x} stored, {computed:08x} computed")]
    Checksum {
        /// As stored.
        stored: u32,
        /// Over what was read.
        computed: u32,
    },
    /// A format version this program does not know.
    #[error("format version {found} is not known; a newer program wrote it")]
    Version {
        /// As stored.
        found: u32,
    },
    /// Incompatible features this program does not know.
    #[error("incompatible features {bits:#x} are not known; a newer program wrote it")]
    UnknownFeatures {
        /// The unknown bits.
        bits: u64,
    },
    /// The checksum is right, the content is impossible: written by a broken or foreign program.
    #[error("field {name} has an impossible value although the checksum is right")]
    Field {
        /// The field.
        name: &'static str,
    },
}

impl SuperblockFault {
    /// Whether a newer program may be able to read it: the bytes are intact and must not be
    /// overwritten.
    pub fn is_unsupported(self) -> bool {
        matches!(self, Self::Version { .. } | Self::UnknownFeatures { .. })
    }
}
