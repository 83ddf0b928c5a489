//! The data structures of Identify.
//!
//! - `controller`: the controller, and what it is for NVM commands
//! - `namespace`: a namespace: its blocks and its limits
//! - `lists`: which namespaces there are, and by which identifiers

mod controller;
mod lists;
mod namespace;

pub use controller::{
    ANA_GROUP, ControllerFacts, ControllerKind, IdentifyController, KEEP_ALIVE_UNIT_MS, VERSION,
    identify_nvm_controller, notice,
};
pub use lists::{active_list, command_set_list, controller_list, descriptors};
pub use namespace::{
    IdentifyNamespace, NamespaceFacts, identify_independent_namespace, identify_nvm_namespace,
};

/// Every structure of Identify has this length, in bytes.
pub const STRUCTURE_BYTES: usize = 4096;

/// CNS: which structure is asked for (Base 2.0, 5.17.1).
pub mod structure {
    /// Identify Namespace of the NVM command set.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active Namespace ID list.
    pub const ACTIVE_LIST: u8 = 0x02;
    /// Namespace Identification Descriptor list.
    pub const DESCRIPTORS: u8 = 0x03;
    /// I/O Command Set specific Identify Namespace.
    pub const SPECIFIC_NAMESPACE: u8 = 0x05;
    /// I/O Command Set specific Identify Controller.
    pub const SPECIFIC_CONTROLLER: u8 = 0x06;
    /// I/O Command Set specific Active Namespace ID list.
    pub const SPECIFIC_ACTIVE_LIST: u8 = 0x07;
    /// I/O Command Set Independent Identify Namespace.
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
    /// Allocated Namespace ID list.
    pub const ALLOCATED_LIST: u8 = 0x10;
    /// Identify Namespace of an allocated namespace.
    pub const ALLOCATED_NAMESPACE: u8 = 0x11;
    /// Controller list of a namespace.
    pub const NAMESPACE_CONTROLLERS: u8 = 0x12;
    /// Controller list of the subsystem.
    pub const CONTROLLERS: u8 = 0x13;
    /// I/O Command Set combinations.
    pub const COMMAND_SETS: u8 = 0x1c;
}

/// CSI of the NVM command set, the only one here.
pub const NVM_COMMAND_SET: u8 = 0;

/// NSID that means all namespaces.
pub const ALL_NAMESPACES: u32 = u32::MAX;

/// `text` in `field`, filled up with blanks, as the structures want ASCII strings.
pub(crate) fn blank_padded<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    let printable = text.bytes().map(|b| if (0x20..0x7f).contains(&b) { b } else { b'?' });
    for (to, from) in field.iter_mut().zip(printable) {
        *to = from;
    }
    field
}
