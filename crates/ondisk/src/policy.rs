//! The choices at creation, and the forced actions since: the codes of the superblock.
//!
//! What must stay true: a code is never reused. A recorded forced action is never cleared.

/// How the array stays consistent over a crash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ConsistencyPolicy {
    /// The write-intent bitmap names the regions to resync; an unclean degraded array is read-only.
    #[default]
    Bitmap,
    /// Nothing is recorded: after a crash all that was written is to be resynced.
    None,
    /// The stripe intent log closes the write hole.
    Log,
}

impl ConsistencyPolicy {
    /// Every policy, in the order of the codes.
    pub const ALL: [ConsistencyPolicy; 3] =
        [ConsistencyPolicy::Bitmap, ConsistencyPolicy::None, ConsistencyPolicy::Log];

    /// The code on disk.
    pub fn code(self) -> u8 {
        match self {
            ConsistencyPolicy::Bitmap => 1,
            ConsistencyPolicy::None => 2,
            ConsistencyPolicy::Log => 3,
        }
    }

    /// The policy with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.code() == code)
    }

    /// The word for people.
    pub fn name(self) -> &'static str {
        match self {
            ConsistencyPolicy::Bitmap => "bitmap",
            ConsistencyPolicy::None => "none",
            ConsistencyPolicy::Log => "log",
        }
    }
}

/// Which checksums of data blocks are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ChecksumKind {
    /// None; the area may still be reserved.
    #[default]
    None,
    /// CRC-32C of each 4 KiB block and its address.
    Crc32c,
}

impl ChecksumKind {
    /// The code on disk.
    pub fn code(self) -> u8 {
        match self {
            ChecksumKind::None => 0,
            ChecksumKind::Crc32c => 1,
        }
    }

    /// The kind with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        [ChecksumKind::None, ChecksumKind::Crc32c].into_iter().find(|kind| kind.code() == code)
    }

    /// The word for people.
    pub fn name(self) -> &'static str {
        match self {
            ChecksumKind::None => "none",
            ChecksumKind::Crc32c => "crc32c",
        }
    }
}

/// Actions somebody forced against the engine's advice; once recorded, never cleared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ForcedActions {
    /// Which: the constants of this type.
    pub flags: u64,
    /// Generation of the update that recorded the last one; zero if there was none.
    pub generation: u64,
}

impl ForcedActions {
    /// Started read-write although unclean and degraded.
    pub const DIRTY_DEGRADED: u64 = 1;
    /// One of two halves that had lived on separately was declared the right one.
    pub const CHOSE_SIDE: u64 = 2;
    /// A device was accepted under another serial.
    pub const SERIAL_CHANGED: u64 = 4;
    /// Parity was declared right without a resync.
    pub const ASSUMED_CLEAN: u64 = 8;
    /// Created on drives whose volatile cache can be neither flushed nor turned off.
    pub const UNSAFE_CACHE: u64 = 16;
    /// Created over another signature.
    pub const OVERWROTE_SIGNATURE: u64 = 32;
    /// Pages of the written map were lost, and their stripes were taken as written.
    pub const LOST_MAP: u64 = 64;
    /// Members were taken that may lack writes, because too few others were there.
    pub const OLDER_MEMBERS: u64 = 128;

    /// The flags as words.
    pub fn names(self) -> Vec<&'static str> {
        [
            (Self::DIRTY_DEGRADED, "dirty-degraded"),
            (Self::CHOSE_SIDE, "chose-side"),
            (Self::SERIAL_CHANGED, "serial-changed"),
            (Self::ASSUMED_CLEAN, "assumed-clean"),
            (Self::UNSAFE_CACHE, "unsafe-cache"),
            (Self::OVERWROTE_SIGNATURE, "overwrote-signature"),
            (Self::LOST_MAP, "lost-map"),
            (Self::OLDER_MEMBERS, "older-members"),
        ]
        .into_iter()
        .filter(|(flag, _)| self.flags & flag != 0)
        .map(|(_, name)| name)
        .collect()
    }

    /// With `flags` recorded by the update `generation`.
    #[must_use]
    pub fn with(self, flags: u64, generation: u64) -> Self {
        if flags == 0 {
            return self;
        }
        ForcedActions { flags: self.flags | flags, generation }
    }
}
