//! What makes a superblock coherent in itself; the same checks run before every write and after
//! every read.
//!
//! What must stay true: a failed check names one field of the format document, so that examine can
//! print it. Whether several superblocks fit together is judged in `assembly`.

use ashlar_units::to_u64;

use crate::features::Features;
use crate::format::{
    JOBS_MAX, MEMBER_BYTES_MIN, MEMBER_ENTRIES_MAX, MEMBER_SIZE_UNIT, TAIL_COPIES_BYTES,
};
use crate::geometry::GrowthRecord;
use crate::member::Role;
use crate::policy::{ChecksumKind, ConsistencyPolicy};
use crate::superblock::Superblock;

/// A generation that is not written any more: page sequences would lose bits. With ten updates a
/// second an array gets there in thirteen years without a stop.
const GENERATION_END: u64 = 1 << 32;

/// A generation that readers reject: it was forged, and leaves too little room for later ones.
pub(crate) const GENERATION_READ_END: u64 = GENERATION_END / 2;

/// No array is started from this generation on, so that none reaches generations that readers
/// reject. An array that runs has nineteen days left at ten updates a second.
pub(crate) const GENERATION_START_END: u64 = GENERATION_READ_END - (1 << 24);

impl Superblock {
    /// The name of the first field that is impossible. Run before every write and after every read.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.generation == 0 || self.generation >= GENERATION_END {
            return Err("generation");
        }
        for (uuid, name) in [
            (self.array_uuid, "array_uuid"),
            (self.incarnation, "incarnation"),
            (self.member_uuid, "member_uuid"),
        ] {
            if uuid.is_nil() {
                return Err(name);
            }
        }
        self.geometry.check()?;
        if !matches!(self.logical_block_bytes, 512 | 4096) {
            return Err("logical_block_bytes");
        }
        self.check_features()?;
        let stripe = self.geometry.stripe_data_bytes();
        if !self.region_bytes.is_multiple_of(stripe)
            || !(self.region_bytes / stripe).is_power_of_two()
        {
            return Err("region_bytes");
        }
        if self.member_bytes < MEMBER_BYTES_MIN
            || !self.member_bytes.is_multiple_of(MEMBER_SIZE_UNIT)
        {
            return Err("member_bytes");
        }
        if self.forced.generation > self.generation {
            return Err("forced_generation");
        }
        if self.last_scrub.is_some_and(|scrub| scrub.at_s == 0) {
            return Err("last_scrub_at_s");
        }
        if self.jobs.len() > JOBS_MAX {
            return Err("jobs");
        }
        self.areas.check(&self.geometry, self.region_bytes, self.member_bytes)?;
        self.check_members()?;
        self.check_spare_table()
    }

    fn check_features(&self) -> Result<(), &'static str> {
        let log = self.features.incompatible & Features::INTENT_LOG != 0;
        if (self.policy == ConsistencyPolicy::Log) != log {
            return Err("consistency_policy");
        }
        let declustered = self.features.incompatible & Features::DECLUSTERED != 0;
        if self.geometry.is_declustered() != declustered {
            return Err("layout_version");
        }
        let has_grown = self.features.incompatible & Features::GROWN != 0;
        if self.geometry.growths().next().is_some() != has_grown {
            return Err("growths");
        }
        self.check_enclosures()?;
        let has_room = self.features.compatible & Features::RESHAPE_AREA != 0;
        if has_room != (self.areas.reshape.bytes != 0) {
            return Err("areas.reshape");
        }
        let parity_only = self.features.incompatible & Features::PARITY_ONLY_RECORDS != 0;
        if parity_only && !log {
            return Err("features_incompatible");
        }
        if !parity_only && self.members.iter().any(|entry| entry.stated_atomic_bytes != 0) {
            return Err("members.stated_atomic_bytes");
        }
        let has_kept_map = self.features.incompatible & Features::KEPT_MAP != 0;
        if self.kept_map_boot.is_some() != has_kept_map || has_kept_map && !self.unclean {
            return Err("kept_map_boot");
        }
        let has_marks = self.features.compatible & Features::FLUSH_MARKS != 0;
        if !has_marks && self.members.iter().any(|entry| entry.out_flushed != 0) {
            return Err("members.out_flushed");
        }
        let table = self.features.read_only_compatible & Features::CHECKSUM_TABLE != 0;
        if (self.checksums == ChecksumKind::Crc32c) != table {
            return Err("checksum_kind");
        }
        // What the log does not cover could not be told from damage after a crash.
        if table && !log {
            return Err("consistency_policy");
        }
        if table && self.areas.checksums.bytes < crate::checksums::table_bytes(&self.geometry) {
            return Err("areas.checksums");
        }
        Ok(())
    }

    /// Without enclosures each member is a failure domain of its own.
    fn check_enclosures(&self) -> Result<(), &'static str> {
        let has_domains = self.features.incompatible & Features::FAILURE_DOMAINS != 0;
        if self.enclosures.is_some() != has_domains {
            return Err("enclosure_domains");
        }
        match self.enclosures {
            Some(own) => {
                own.check(&self.geometry)?;
                // Slots of an enclosure follow each other, so it comes as a whole.
                let slots = own.slots(&self.geometry);
                let is_whole =
                    |growth: GrowthRecord| usize::from(growth.members_before).is_multiple_of(slots);
                if self.geometry.growths().all(is_whole) { Ok(()) } else { Err("growths") }
            }
            None if self.geometry.spread.is_some_and(|spread| spread.domain_members != 1) => {
                Err("domain_members")
            }
            None => Ok(()),
        }
    }

    fn check_members(&self) -> Result<(), &'static str> {
        if self.members.is_empty() || to_u64(self.members.len()) > MEMBER_ENTRIES_MAX {
            return Err("member_count");
        }
        for (at, entry) in self.members.iter().enumerate() {
            entry.check()?;
            if entry.out_since > self.generation {
                return Err("members.out_since");
            }
            let is_served = !matches!(entry.role, Role::Out | Role::Removed);
            if self.policy == ConsistencyPolicy::Log && is_served && entry.log_tag == 0 {
                return Err("members.log_tag");
            }
            if entry.slot.0 >= self.geometry.slots() {
                return Err("members.slot");
            }
            // Its superblock is written by what is said here of its size.
            let has_room = entry.bytes >= MEMBER_BYTES_MIN
                && entry.bytes.is_multiple_of(MEMBER_SIZE_UNIT)
                && self.areas.data.end() <= entry.bytes - TAIL_COPIES_BYTES;
            if !has_room {
                return Err("members.member_bytes");
            }
            for other in &self.members[..at] {
                if other.uuid == entry.uuid {
                    return Err("members.member_uuid");
                }
                if other.log_tag == entry.log_tag && entry.log_tag != 0 {
                    return Err("members.log_tag");
                }
                let both_hold = entry.role.is_holder() && other.role.is_holder();
                let both_new = entry.role.is_joining_device() && other.role.is_joining_device();
                if entry.slot == other.slot && (both_hold || both_new) {
                    return Err("members.slot");
                }
            }
            // The member being copied may go out while its replacement is under way, not vanish.
            if entry.role == Role::Replacement && self.holder(entry.slot).is_none() {
                return Err("members.role");
            }
        }
        let own = self.member(self.member_uuid).ok_or("member_uuid")?;
        if own.slot != self.slot {
            return Err("slot");
        }
        if own.bytes != self.member_bytes {
            return Err("member_bytes");
        }
        Ok(())
    }
}
