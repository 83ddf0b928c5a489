//! The superblock of a spare device: it waits in a pool and belongs to no array until it is used.
//!
//! It lies in the same four places as a member's and follows the same update rule.

use uuid::Uuid;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::fault::SuperblockFault;
use crate::features::Features;
use crate::format::{
    FORMAT_VERSION, MEMBER_BYTES_MIN, MEMBER_SIZE_UNIT, RawSpare, SERIAL_BYTES, SPARE_MAGIC,
};
use crate::seal::{is_zero, open, seal};
use crate::text::{ArrayName, Text};

/// The pool a spare joins when none is named.
pub const DEFAULT_POOL: &str = "spares";

/// The superblock of a spare device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpareSuperblock {
    /// Feature flags.
    pub features: Features,
    /// Number of this update; the highest wins. Never zero.
    pub generation: u64,
    /// The device's identity; it keeps it when it becomes a member.
    pub member_uuid: Uuid,
    /// Usable size of the device, in bytes.
    pub member_bytes: u64,
    /// Wall clock when it became a spare, seconds since 1970; for display only.
    pub created_at_s: u64,
    /// The pool it waits in.
    pub pool_name: ArrayName,
    /// Serial of the device; empty if it has none.
    pub serial: Text<SERIAL_BYTES>,
    /// Bytes that the device writes whole or not at all at multiples of them, as the operator
    /// stated: a power of two, and only with the flag of parity-only records. 0: nothing was
    /// stated.
    pub stated_atomic_bytes: u32,
}

impl SpareSuperblock {
    /// The 4 KiB for the device. All four copies are equal.
    ///
    /// # Errors
    /// The field that is impossible: nothing is encoded that would not decode.
    pub fn encode(&self) -> Result<Vec<u8>, SuperblockFault> {
        self.check()?;
        let raw = RawSpare {
            magic: SPARE_MAGIC,
            length: 4096.into(),
            version: FORMAT_VERSION.into(),
            features_compatible: (self.features.compatible & Features::SUPPORTED.compatible).into(),
            features_read_only_compatible: self.features.read_only_compatible.into(),
            features_incompatible: self.features.incompatible.into(),
            generation: self.generation.into(),
            member_uuid: self.member_uuid.into_bytes(),
            member_bytes: self.member_bytes.into(),
            created_at_s: self.created_at_s.into(),
            pool_name: self.pool_name.to_bytes(),
            serial: self.serial.to_bytes(),
            stated_atomic_bytes: self.stated_atomic_bytes.into(),
            ..RawSpare::new_zeroed()
        };
        let mut bytes = raw.as_bytes().to_vec();
        seal(&mut bytes);
        Ok(bytes)
    }

    /// The spare superblock at the start of `bytes`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Self, SuperblockFault> {
        let sealed = open(bytes, &SPARE_MAGIC)?;
        let raw = RawSpare::ref_from_bytes(sealed)
            .map_err(|_| SuperblockFault::Field { name: "length" })?;
        let features = Features {
            compatible: raw.features_compatible.get(),
            read_only_compatible: raw.features_read_only_compatible.get(),
            incompatible: raw.features_incompatible.get(),
        };
        let zero = raw.reserved_0 == [0; 4] && is_zero(&raw.reserved_1);
        if !zero && !features.has_unknown(Features::SUPPORTED) {
            return Err(SuperblockFault::Field { name: "reserved" });
        }
        let field = |name| SuperblockFault::Field { name };
        let spare = SpareSuperblock {
            features,
            generation: raw.generation.get(),
            member_uuid: Uuid::from_bytes(raw.member_uuid),
            member_bytes: raw.member_bytes.get(),
            created_at_s: raw.created_at_s.get(),
            pool_name: Text::from_bytes(raw.pool_name)
                .and_then(ArrayName::from_text)
                .ok_or(field("pool_name"))?,
            serial: Text::from_bytes(raw.serial).ok_or(field("serial"))?,
            stated_atomic_bytes: raw.stated_atomic_bytes.get(),
        };
        spare.check()?;
        Ok(spare)
    }

    /// With this stated of the device, in bytes; 0: nothing.
    #[must_use]
    pub fn stated_to_write_whole(mut self, bytes: u32) -> Self {
        self.stated_atomic_bytes = bytes;
        self.features.incompatible &= !Features::PARITY_ONLY_RECORDS;
        if bytes != 0 {
            self.features.incompatible |= Features::PARITY_ONLY_RECORDS;
        }
        self
    }

    fn check(&self) -> Result<(), SuperblockFault> {
        let is_known = self.features.incompatible & Features::PARITY_ONLY_RECORDS != 0;
        let stated = self.stated_atomic_bytes;
        let name = if self.generation == 0 {
            "generation"
        } else if self.member_uuid.is_nil() {
            "member_uuid"
        } else if self.member_bytes < MEMBER_BYTES_MIN
            || !self.member_bytes.is_multiple_of(MEMBER_SIZE_UNIT)
        {
            "member_bytes"
        } else if stated != 0 && !(is_known && stated.is_power_of_two()) {
            "stated_atomic_bytes"
        } else {
            return Ok(());
        };
        Err(SuperblockFault::Field { name })
    }
}
