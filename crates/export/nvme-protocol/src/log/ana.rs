//! Asymmetric Namespace Access: through which path a namespace is best reached.
//!
//! What must stay true: there is one group, and all namespaces are in it.
//! Base 2.0, 5.16.1.13 and 8.1.

use crate::identify::ANA_GROUP;

/// How namespaces of a group can be reached through this controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnaState {
    /// As well as through any other.
    Optimized,
    /// Not as well.
    NonOptimized,
    /// Not now.
    Inaccessible,
    /// Never again.
    PersistentLoss,
    /// Changing.
    Change,
}

impl AnaState {
    /// The code on the wire.
    pub fn code(self) -> u8 {
        match self {
            AnaState::Optimized => 0x01,
            AnaState::NonOptimized => 0x02,
            AnaState::Inaccessible => 0x03,
            AnaState::PersistentLoss => 0x04,
            AnaState::Change => 0x0f,
        }
    }
}

/// The page: `state` of the one group, and its namespaces unless only groups are asked for.
pub fn ana_page(state: AnaState, changes: u64, namespaces: &[u32], only_groups: bool) -> Vec<u8> {
    let listed = if only_groups { &[] } else { namespaces };
    let count = u32::try_from(listed.len()).unwrap_or(u32::MAX);
    let mut page = Vec::with_capacity(48 + listed.len() * 4);
    page.extend(changes.to_le_bytes());
    page.extend(1_u16.to_le_bytes());
    page.extend([0; 6]);
    page.extend(ANA_GROUP.to_le_bytes());
    page.extend(count.to_le_bytes());
    page.extend(changes.to_le_bytes());
    page.push(state.code());
    page.extend([0; 15]);
    for namespace in listed {
        page.extend(namespace.to_le_bytes());
    }
    page
}
