//! Which log pages and commands are known.
//!
//! What must stay true: a command is in here exactly if it is decoded; a test compares.
//! Base 2.0, 5.16.1.1 and 5.16.1.6.

use crate::command::{admin_opcode, io_opcode};
use crate::identify::ControllerKind;

/// CSUPP.
const SUPPORTED: u32 = 1;
/// LBCC: changes logical blocks.
const CHANGES_BLOCKS: u32 = 1 << 1;

/// Commands Supported and Effects: 256 dwords for the admin queue, 256 for I/O queues, and 2 KiB of
/// zeros.
pub fn effects_page(kind: ControllerKind) -> Vec<u8> {
    let mut page = vec![0; 4096];
    let mut set = |at: usize, effects: u32| {
        page[at * 4..at * 4 + 4].copy_from_slice(&effects.to_le_bytes());
    };
    for opcode in admin_opcode::ALL {
        if kind == ControllerKind::Io || opcode != admin_opcode::ABORT {
            set(usize::from(opcode), SUPPORTED);
        }
    }
    if kind == ControllerKind::Io {
        for opcode in io_opcode::ALL {
            let is_change = matches!(
                opcode,
                io_opcode::WRITE | io_opcode::WRITE_ZEROES | io_opcode::DATASET_MANAGEMENT
            );
            let effects = SUPPORTED | if is_change { CHANGES_BLOCKS } else { 0 };
            set(256 + usize::from(opcode), effects);
        }
    }
    page
}

/// Supported Log Pages: a dword for each of 256.
pub fn supported_pages(pages: &[u8]) -> Vec<u8> {
    let mut page = vec![0; 1024];
    for known in pages {
        page[usize::from(*known) * 4] = 1;
    }
    page
}
