//! Feature flags in three classes, and what a program may do that does not know one of them.
//!
//! | class | an unknown flag means |
//! |---|---|
//! | compatible | nothing: read and write |
//! | read-only compatible | read, never write |
//! | incompatible | keep away |
//!
//! Writing drops an unknown compatible flag and its bytes, so such a feature must survive that.

/// Feature flags of a superblock, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Features {
    /// A program that does not know one of these may read and write.
    pub compatible: u64,
    /// A program that does not know one of these may only read.
    pub read_only_compatible: u64,
    /// A program that does not know one of these must refuse.
    pub incompatible: u64,
}

/// What a program may do with an array, judged by its features.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Read and write.
    Full,
    /// Read only: these read-only compatible features are not known.
    ReadOnly {
        /// The unknown bits.
        unknown: u64,
    },
    /// Neither: these incompatible features are not known.
    Refused {
        /// The unknown bits.
        unknown: u64,
    },
}

impl Features {
    /// No feature.
    pub const NONE: Features = Features { compatible: 0, read_only_compatible: 0, incompatible: 0 };
    /// Compatible: both places of every page of the written map hold a page, from creation on;
    /// zeros there are damage.
    pub const WHOLE_MAP: u64 = 1;
    /// Compatible: flush marks count. A program that does not know them drops the flag, and they
    /// count no more.
    pub const FLUSH_MARKS: u64 = 2;
    /// Compatible: members have room for a later reshape. A program that does not know it drops the
    /// flag and the entry of the area, and the room is only lost.
    pub const RESHAPE_AREA: u64 = 4;
    /// Read-only compatible: the checksum table is kept; writing without updating it would spoil
    /// it.
    pub const CHECKSUM_TABLE: u64 = 1;
    /// Incompatible: the stripe intent log may hold records that must be replayed before the first
    /// read.
    pub const INTENT_LOG: u64 = 1;
    /// Incompatible: the log may hold parity-only records, and members say what the operator stated
    /// of their devices.
    pub const PARITY_ONLY_RECORDS: u64 = 2;
    /// Incompatible: pages of the write-intent bitmap and of the written map name the member that
    /// they lie on.
    pub const MEMBER_PAGES: u64 = 4;
    /// Incompatible: the array is declustered, which is layout version 2.
    pub const DECLUSTERED: u64 = 8;
    /// Incompatible, set while the array runs: bits of the written map may lie only in memory that
    /// survives a killed process. A program that does not look there would read answered writes as
    /// zeros.
    pub const KEPT_MAP: u64 = 16;
    /// Incompatible: cells of lost members may lie on distributed spares; the spare table and the
    /// area of states say which.
    pub const DISTRIBUTED_SPARES: u64 = 32;
    /// Incompatible: the members of a declustered array are in failure domains.
    pub const FAILURE_DOMAINS: u64 = 64;
    /// Incompatible: a declustered array has grown, or grows.
    pub const GROWN: u64 = 128;
    /// What this program knows.
    pub const SUPPORTED: Features = Features {
        compatible: Features::WHOLE_MAP | Features::FLUSH_MARKS | Features::RESHAPE_AREA,
        read_only_compatible: Features::CHECKSUM_TABLE,
        incompatible: Features::INTENT_LOG
            | Features::PARITY_ONLY_RECORDS
            | Features::MEMBER_PAGES
            | Features::DECLUSTERED
            | Features::KEPT_MAP
            | Features::DISTRIBUTED_SPARES
            | Features::FAILURE_DOMAINS
            | Features::GROWN,
    };

    /// What a program that knows `supported` may do.
    pub fn access(self, supported: Features) -> Access {
        let incompatible = self.incompatible & !supported.incompatible;
        let read_only = self.read_only_compatible & !supported.read_only_compatible;
        if incompatible != 0 {
            Access::Refused { unknown: incompatible }
        } else if read_only != 0 {
            Access::ReadOnly { unknown: read_only }
        } else {
            Access::Full
        }
    }

    /// Whether any flag is set that `supported` does not have; then reserved bytes may carry a
    /// meaning.
    pub fn has_unknown(self, supported: Features) -> bool {
        self.compatible & !supported.compatible != 0 || self.access(supported) != Access::Full
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, Features};

    #[test]
    fn unknown_flags_restrict_by_their_class() {
        let none = Features::NONE;
        let supported = Features { compatible: 1, read_only_compatible: 1, incompatible: 1 };
        assert_eq!(supported.access(supported), Access::Full);
        assert_eq!(Features { compatible: 2, ..none }.access(supported), Access::Full);
        let read_only = Features { read_only_compatible: 7, ..none };
        assert_eq!(read_only.access(supported), Access::ReadOnly { unknown: 6 });
        let refused = Features { incompatible: 5, read_only_compatible: 2, compatible: 0 };
        assert_eq!(refused.access(supported), Access::Refused { unknown: 4 });
    }
}
