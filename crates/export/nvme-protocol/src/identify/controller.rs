//! Identify Controller: what a controller can do, and its limits.
//!
//! What must stay true: a bit is set here only if the command, log page or feature behind it is
//! served; reserved bytes are zero. Base 2.0, 5.17.2.1 "Identify Controller Data Structure"; NVM
//! Command Set 1.0, 4.1.5.2.

use super::{STRUCTURE_BYTES, blank_padded};
use crate::nqn::{NQN_FIELD_BYTES, Nqn};
use std::mem::offset_of;
use zerocopy::byteorder::little_endian::{U16, U32, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// CNTRLTYPE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControllerKind {
    /// Serves namespaces.
    Io,
    /// Tells where subsystems are.
    Discovery,
}

/// What one controller is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerFacts {
    /// I/O or discovery.
    pub kind: ControllerKind,
    /// CNTLID.
    pub id: u16,
    /// SUBNQN.
    pub subsystem: Nqn,
    /// SN: the same for all controllers of a subsystem; 20 characters count.
    pub serial: String,
    /// MN: 40 characters count.
    pub model: String,
    /// FR: 8 characters count.
    pub firmware: String,
    /// Most data of one command: 4 KiB to the power of this.
    pub transfer_power_max: u8,
    /// Highest namespace identifier.
    pub namespaces_max: u32,
    /// Most data within a command capsule, in bytes; a multiple of 16.
    pub in_capsule_bytes_max: u32,
    /// Most commands that wait on a queue.
    pub commands_max: u16,
    /// Asynchronous event requests that may wait.
    pub async_events_max: u8,
    /// Aborts that may be under way.
    pub aborts_max: u8,
}

/// Identify Controller.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
pub struct IdentifyController {
    vendor: U16,
    subsystem_vendor: U16,
    serial: [u8; 20],
    model: [u8; 40],
    firmware: [u8; 8],
    arbitration_burst: u8,
    oui: [u8; 3],
    multi_path: u8,
    transfer_power_max: u8,
    id: U16,
    version: U32,
    resume_latency: U32,
    entry_latency: U32,
    async_events: U32,
    attributes: U32,
    reserved_100: [u8; 11],
    kind: u8,
    fru: [u8; 16],
    retry_delays: [U16; 3],
    reserved_134: [u8; 122],
    admin_support: U16,
    aborts_less_one: u8,
    async_events_less_one: u8,
    firmware_updates: u8,
    log_attributes: u8,
    error_entries_less_one: u8,
    power_states_less_one: u8,
    vendor_admin: u8,
    autonomous_power: u8,
    warning_kelvin: U16,
    critical_kelvin: U16,
    reserved_270: [u8; 10],
    capacity: U128,
    unallocated: U128,
    reserved_312: [u8; 8],
    keep_alive_units: U16,
    reserved_322: [u8; 20],
    ana_seconds: u8,
    ana_capabilities: u8,
    ana_group_max: U32,
    ana_groups: U32,
    reserved_352: [u8; 160],
    submission_sizes: u8,
    completion_sizes: u8,
    commands_max: U16,
    namespaces: U32,
    command_support: U16,
    fused: U16,
    format: u8,
    write_cache: u8,
    atomic_less_one: U16,
    atomic_power_less_one: U16,
    reserved_530: [u8; 6],
    sgls: U32,
    namespaces_allowed: U32,
    reserved_544: [u8; 224],
    subsystem: [u8; NQN_FIELD_BYTES],
    reserved_1024: [u8; 768],
    capsule_units: U32,
    response_units: U32,
    capsule_offset_units: U16,
    fabrics_attributes: u8,
    sgl_descriptors: u8,
    fabrics_support: U16,
    reserved_1806: [u8; 242],
    power_states: [u8; 1024],
    vendor_specific: [u8; 1024],
}

const _: () = {
    assert!(size_of::<IdentifyController>() == STRUCTURE_BYTES);
    assert!(offset_of!(IdentifyController, id) == 78);
    assert!(offset_of!(IdentifyController, kind) == 111);
    assert!(offset_of!(IdentifyController, admin_support) == 256);
    assert!(offset_of!(IdentifyController, capacity) == 280);
    assert!(offset_of!(IdentifyController, keep_alive_units) == 320);
    assert!(offset_of!(IdentifyController, ana_seconds) == 342);
    assert!(offset_of!(IdentifyController, submission_sizes) == 512);
    assert!(offset_of!(IdentifyController, command_support) == 520);
    assert!(offset_of!(IdentifyController, sgls) == 536);
    assert!(offset_of!(IdentifyController, subsystem) == 768);
    assert!(offset_of!(IdentifyController, capsule_units) == 1792);
    assert!(offset_of!(IdentifyController, fabrics_support) == 1804);
    assert!(offset_of!(IdentifyController, power_states) == 2048);
};

/// VS, and VER here: revision 2.0 of the base specification.
pub const VERSION: u32 = 0x0002_0000;

/// KAS: keep-alive timeouts count in units of this many milliseconds.
pub const KEEP_ALIVE_UNIT_MS: u32 = 100;

/// The only ANA group.
pub const ANA_GROUP: u32 = 1;

/// OAES and the bits of Asynchronous Event Configuration.
pub mod notice {
    /// A namespace appeared, disappeared or changed.
    pub const NAMESPACE: u32 = 1 << 8;
    /// The state of an ANA group changed.
    pub const ANA: u32 = 1 << 11;
    /// The discovery log page changed.
    pub const DISCOVERY: u32 = 1 << 31;
}

/// CTRATT: 128-bit host identifiers, and keep-alive by any command.
const ATTRIBUTES: u32 = 1 | 1 << 6;
/// LPA: Commands Supported and Effects, and offsets into log pages.
const LOG_ATTRIBUTES: u8 = 1 << 1 | 1 << 2;
/// CMIC: several controllers, and ANA.
const MULTI_PATH: u8 = 1 << 1 | 1 << 3;
/// ANACAP: only "optimized" is ever reported; group identifiers do not change.
const ANA_CAPABILITIES: u8 = 1 | 1 << 6;
/// ONCS: Compare, Dataset Management, Write Zeroes, Save/Select of features (select only),
/// Reservations.
const COMMAND_SUPPORT: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5;
/// VWC: there is a cache to flush, for one namespace at a time or for all of them.
const WRITE_CACHE: u8 = 1 | 3 << 1;
/// SGLS: supported without alignment; offsets in capsules; the transport's descriptor.
const SGLS: u32 = 1 | 1 << 20 | 1 << 21;
/// OFCS: Disconnect.
const FABRICS_SUPPORT: u16 = 1;

impl IdentifyController {
    /// The structure of a controller.
    pub fn new(facts: &ControllerFacts) -> IdentifyController {
        let mut structure = IdentifyController::both(facts);
        match facts.kind {
            ControllerKind::Io => structure.add_io(facts),
            ControllerKind::Discovery => {
                structure.kind = 2;
                structure.async_events = U32::new(notice::DISCOVERY);
            }
        }
        structure
    }

    /// What discovery and I/O controllers have in common.
    fn both(facts: &ControllerFacts) -> IdentifyController {
        let zeros = [0; STRUCTURE_BYTES];
        let zeros = IdentifyController::read_from_bytes(&zeros).expect("as long as the structure");
        IdentifyController {
            serial: blank_padded(&facts.serial),
            model: blank_padded(&facts.model),
            firmware: blank_padded(&facts.firmware),
            transfer_power_max: facts.transfer_power_max,
            id: U16::new(facts.id),
            version: U32::new(VERSION),
            attributes: U32::new(ATTRIBUTES),
            aborts_less_one: facts.aborts_max.saturating_sub(1),
            async_events_less_one: facts.async_events_max.saturating_sub(1),
            // One slot, which cannot be written.
            firmware_updates: 1 | 1 << 1,
            log_attributes: LOG_ATTRIBUTES,
            keep_alive_units: U16::new(u16::try_from(KEEP_ALIVE_UNIT_MS / 100).expect("1")),
            submission_sizes: 0x66,
            completion_sizes: 0x44,
            commands_max: U16::new(facts.commands_max),
            sgls: U32::new(SGLS),
            subsystem: facts.subsystem.field(),
            capsule_units: U32::new((64 + facts.in_capsule_bytes_max) / 16),
            response_units: U32::new(1),
            sgl_descriptors: 1,
            fabrics_support: U16::new(FABRICS_SUPPORT),
            ..zeros
        }
    }

    fn add_io(&mut self, facts: &ControllerFacts) {
        self.kind = 1;
        self.multi_path = MULTI_PATH;
        self.async_events = U32::new(notice::NAMESPACE | notice::ANA);
        self.ana_seconds = 10;
        self.ana_capabilities = ANA_CAPABILITIES;
        self.ana_group_max = U32::new(ANA_GROUP);
        self.ana_groups = U32::new(1);
        self.namespaces = U32::new(facts.namespaces_max);
        self.namespaces_allowed = U32::new(facts.namespaces_max);
        self.command_support = U16::new(COMMAND_SUPPORT);
        self.write_cache = WRITE_CACHE;
    }

    /// CNTLID.
    pub fn id(&self) -> u16 {
        self.id.get()
    }

    /// Most data of one command in bytes, if there is a limit.
    pub fn transfer_bytes_max(&self) -> Option<u64> {
        let power = u32::from(self.transfer_power_max);
        (power > 0).then(|| 4096_u64.checked_shl(power)).flatten()
    }
}

/// Identify Controller of the NVM command set: the most that Write Zeroes and Dataset Management
/// take.
///
/// `zeroes_power_max` is a power of 2 in units of 4 KiB, 0 for no limit; `dsm_ranges_max` the
/// ranges of one command.
pub fn identify_nvm_controller(zeroes_power_max: u8, dsm_ranges_max: u16) -> [u8; STRUCTURE_BYTES] {
    let mut structure = [0; STRUCTURE_BYTES];
    structure[1] = zeroes_power_max;
    // 0 is "no limit": a command holds no more than 256 ranges anyway.
    structure[3] = u8::try_from(dsm_ranges_max).unwrap_or(0);
    structure
}
