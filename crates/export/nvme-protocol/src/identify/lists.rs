//! Lists of namespaces and controllers, and the identifiers of one namespace.
//!
//! What must stay true: lists rise, and hold at most what 4 KiB hold; a host asks for the rest by
//! the last entry. Base 2.0, 5.17.2.2, 5.17.2.3, 5.17.2.13 and 4.3.1 "Controller List Format".

use super::namespace::NamespaceFacts;
use super::{NVM_COMMAND_SET, STRUCTURE_BYTES};

/// Entries of one namespace list.
const NAMESPACES_MAX: usize = STRUCTURE_BYTES / 4;
/// Entries of one controller list, behind its count.
const CONTROLLERS_MAX: usize = STRUCTURE_BYTES / 2 - 1;

/// Active Namespace ID list: those above `after`. `ids` rise.
pub fn active_list(ids: impl Iterator<Item = u32>, after: u32) -> [u8; STRUCTURE_BYTES] {
    let mut list = [0; STRUCTURE_BYTES];
    let ids = ids.filter(|id| *id > after).take(NAMESPACES_MAX);
    for (entry, id) in list.chunks_exact_mut(4).zip(ids) {
        entry.copy_from_slice(&id.to_le_bytes());
    }
    list
}

/// Controller list: those from `from` on. `ids` rise.
pub fn controller_list(ids: impl Iterator<Item = u16>, from: u16) -> [u8; STRUCTURE_BYTES] {
    let mut list = [0; STRUCTURE_BYTES];
    let ids: Vec<u16> = ids.filter(|id| *id >= from).take(CONTROLLERS_MAX).collect();
    let count = u16::try_from(ids.len()).expect("below 2048");
    for (entry, id) in list.chunks_exact_mut(2).zip(std::iter::once(&count).chain(&ids)) {
        entry.copy_from_slice(&id.to_le_bytes());
    }
    list
}

/// Namespace Identification Descriptor list: NGUID, UUID and command set.
pub fn descriptors(facts: &NamespaceFacts) -> [u8; STRUCTURE_BYTES] {
    let mut list = [0; STRUCTURE_BYTES];
    let mut at = 0;
    let mut add = |kind: u8, identifier: &[u8]| {
        list[at] = kind;
        list[at + 1] = u8::try_from(identifier.len()).expect("16 at most");
        at += 4;
        list[at..at + identifier.len()].copy_from_slice(identifier);
        at += identifier.len();
    };
    add(2, &facts.nguid);
    add(3, &facts.uuid);
    add(4, &[NVM_COMMAND_SET]);
    list
}

/// I/O Command Set combinations: the NVM command set, and nothing else.
pub fn command_set_list() -> [u8; STRUCTURE_BYTES] {
    let mut list = [0; STRUCTURE_BYTES];
    list[0] = 1;
    list
}
