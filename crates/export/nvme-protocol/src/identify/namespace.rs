//! Identify Namespace: a namespace's blocks, its limits, and how it is best used.
//!
//! What must stay true: sizes are told as the volume has them, and the preferred granularity is a
//! full stripe of data, so that a file system finds its stripe by itself; NUSE is not less than
//! what is allocated, and here simply all. NVM Command Set 1.0, 4.1.5.1; Base 2.0, 5.17.2.8 "I/O
//! Command Set Independent Identify Namespace".

use super::STRUCTURE_BYTES;
use super::controller::ANA_GROUP;
use std::mem::offset_of;
use zerocopy::byteorder::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What one namespace is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamespaceFacts {
    /// NSID: from 1 on.
    pub id: u32,
    /// NGUID: stays the same over restarts and renames.
    pub nguid: [u8; 16],
    /// UUID: stays the same over restarts and renames.
    pub uuid: [u8; 16],
    /// Size in logical blocks.
    pub blocks: u64,
    /// A logical block has 2 to the power of this many bytes: 9 or 12.
    pub block_power: u8,
    /// Unit that needs no widening inside, in logical blocks.
    pub physical_blocks: u16,
    /// A write of this many logical blocks needs no reads: one full stripe of data.
    pub optimal_blocks: u16,
    /// Writes are refused.
    pub read_only: bool,
}

impl NamespaceFacts {
    /// Length of a logical block in bytes.
    pub fn block_bytes(&self) -> u32 {
        1 << u32::from(self.block_power.min(31))
    }
}

/// Identify Namespace of the NVM command set.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
pub struct IdentifyNamespace {
    size: U64,
    capacity: U64,
    used: U64,
    features: u8,
    formats_less_one: u8,
    format: u8,
    metadata: u8,
    protection: u8,
    protection_settings: u8,
    sharing: u8,
    reservations: u8,
    format_progress: u8,
    deallocation: u8,
    atomic: [U16; 6],
    optimal_boundary: U16,
    capacity_bytes: U128,
    write_granularity_less_one: U16,
    write_alignment_less_one: U16,
    deallocate_granularity_less_one: U16,
    deallocate_alignment_less_one: U16,
    optimal_write_less_one: U16,
    reserved_74: [u8; 18],
    ana_group: U32,
    reserved_96: [u8; 3],
    attributes: u8,
    nvm_set: U16,
    endurance_group: U16,
    nguid: [u8; 16],
    eui64: [u8; 8],
    formats: [U32; 64],
    vendor: [u8; 3712],
}

const _: () = {
    assert!(size_of::<IdentifyNamespace>() == STRUCTURE_BYTES);
    assert!(offset_of!(IdentifyNamespace, sharing) == 30);
    assert!(offset_of!(IdentifyNamespace, optimal_boundary) == 46);
    assert!(offset_of!(IdentifyNamespace, write_granularity_less_one) == 64);
    assert!(offset_of!(IdentifyNamespace, ana_group) == 92);
    assert!(offset_of!(IdentifyNamespace, nguid) == 104);
    assert!(offset_of!(IdentifyNamespace, formats) == 128);
};

/// NSFEAT: deallocated blocks are told apart by nobody; NPWG and its kin are there.
const FEATURES: u8 = 1 << 4;
/// NMIC: several controllers may use it.
const SHARED: u8 = 1;
/// RESCAP: all six types, persistence over power losses, and IEKEY as defined since revision 1.3.
const RESERVATIONS: u8 = 0xff;
/// DLFEAT: deallocated blocks read as zeros, and Write Zeroes may deallocate.
const DEALLOCATION: u8 = 1 | 1 << 3;
/// NSATTR: write protected now.
const WRITE_PROTECTED: u8 = 1;

impl IdentifyNamespace {
    /// The structure of a namespace.
    pub fn new(facts: &NamespaceFacts) -> IdentifyNamespace {
        let zeros = IdentifyNamespace::inactive();
        let blocks = U64::new(facts.blocks);
        let optimal = U16::new(facts.optimal_blocks.saturating_sub(1));
        let physical = U16::new(facts.physical_blocks.saturating_sub(1));
        let mut formats = zeros.formats;
        formats[0] = U32::new(u32::from(facts.block_power) << 16);
        IdentifyNamespace {
            size: blocks,
            capacity: blocks,
            used: blocks,
            features: FEATURES,
            sharing: SHARED,
            reservations: RESERVATIONS,
            deallocation: DEALLOCATION,
            capacity_bytes: U128::new(u128::from(facts.blocks) << facts.block_power.min(63)),
            write_granularity_less_one: physical,
            write_alignment_less_one: physical,
            deallocate_granularity_less_one: optimal,
            deallocate_alignment_less_one: optimal,
            optimal_write_less_one: optimal,
            ana_group: U32::new(ANA_GROUP),
            attributes: if facts.read_only { WRITE_PROTECTED } else { 0 },
            nguid: facts.nguid,
            formats,
            ..zeros
        }
    }

    /// All zeros: a namespace that may exist and does not.
    pub fn inactive() -> IdentifyNamespace {
        let zeros = [0; STRUCTURE_BYTES];
        IdentifyNamespace::read_from_bytes(&zeros).expect("as long as the structure")
    }

    /// NSZE, in logical blocks.
    pub fn blocks(&self) -> u64 {
        self.size.get()
    }

    /// Length of a logical block in bytes: LBADS of the format in use.
    pub fn block_bytes(&self) -> Option<u32> {
        let format = self.formats[usize::from(self.format & 0xf)].get();
        1_u32.checked_shl(format >> 16 & 0xff)
    }
}

/// I/O Command Set specific Identify Namespace of the NVM command set: no protection information,
/// so all zeros.
pub fn identify_nvm_namespace() -> [u8; STRUCTURE_BYTES] {
    [0; STRUCTURE_BYTES]
}

/// I/O Command Set Independent Identify Namespace.
pub fn identify_independent_namespace(facts: &NamespaceFacts) -> [u8; STRUCTURE_BYTES] {
    let mut structure = [0; STRUCTURE_BYTES];
    structure[1] = SHARED;
    structure[2] = RESERVATIONS;
    structure[4..8].copy_from_slice(&ANA_GROUP.to_le_bytes());
    structure[8] = if facts.read_only { WRITE_PROTECTED } else { 0 };
    // NSTAT: ready.
    structure[14] = 1;
    structure
}
