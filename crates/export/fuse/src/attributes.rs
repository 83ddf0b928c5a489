//! Requests about the file and its attributes: nothing to wait for.
//!
//! What must stay true: a file is as long as its volume and stays so; who may not write learns it
//! when he opens. Not here: requests for bytes (`server`).

use crate::answer::Answer;
use crate::shown::{Shown, file_attr};
use crate::wire::{AttrOut, InMessage, OpenOut, SetattrIn, StatfsOut, opcode, open};
use ashlar_volume::Volume;
use rustix::io::Errno;

/// How long the kernel may trust an attribute, in seconds: how soon a resize is seen.
const CACHE_SECONDS: u64 = 1;

/// Flags of open(2) as they arrive from the kernel: for writing, or for both.
const FOR_WRITING: u32 = 0o1 | 0o2;

/// Answer such a request, or one that nobody does anything about.
///
/// # Errors
/// What the caller of the kernel is to be told.
pub fn answer<V: Volume>(shown: &Shown<V>, message: &InMessage<'_>) -> Result<Answer, Errno> {
    let node = message.header.node;
    match message.header.opcode {
        opcode::GETATTR => attributes(shown, node),
        opcode::SETATTR => set_attributes(shown, node, message),
        opcode::OPEN => open(shown, node, message),
        // A loop device takes the block of the file system as the unit of discards.
        opcode::STATFS => Ok(Answer::of(&StatfsOut {
            blocks: [0; 3],
            files: [0; 2],
            block_bytes: shown.facts().optimal_bytes.max(4096),
            name_bytes_max: 255,
            fragment_bytes: 4096,
            spare: [0; 7],
        })),
        opcode::RELEASE | opcode::DESTROY => Ok(Answer::done()),
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => Ok(Answer::None),
        // The kernel takes this as success for FLUSH and ACCESS, and does not ask again.
        _ => Err(Errno::NOSYS),
    }
}

fn attributes<V: Volume>(shown: &Shown<V>, node: u64) -> Result<Answer, Errno> {
    shown.check(node)?;
    let attr = file_attr(&shown.refreshed());
    Ok(Answer::of(&AttrOut { attr_seconds: CACHE_SECONDS, nanos: [0; 2], attr }))
}

/// A volume has one size: emptying the file (O_TRUNC) is ignored, as devices do it. Times are not
/// kept.
fn set_attributes<V: Volume>(
    shown: &Shown<V>,
    node: u64,
    message: &InMessage<'_>,
) -> Result<Answer, Errno> {
    const MODE_OR_OWNER: u32 = 0b111;
    const SIZE: u32 = 0b1000;
    let body: SetattrIn = message.body().ok_or(Errno::INVAL)?;
    shown.check(node)?;
    if body.valid & MODE_OR_OWNER != 0 {
        return Err(Errno::PERM);
    }
    if body.valid & SIZE != 0 && body.size_bytes != 0 {
        let facts = shown.refreshed();
        if body.size_bytes != facts.size_bytes {
            return Err(Errno::PERM);
        }
    }
    attributes(shown, node)
}

fn open<V: Volume>(shown: &Shown<V>, node: u64, message: &InMessage<'_>) -> Result<Answer, Errno> {
    let flags: u32 = message.body().ok_or(Errno::INVAL)?;
    shown.check(node)?;
    let is_for_writing = flags & FOR_WRITING != 0;
    if is_for_writing && shown.refreshed().read_only {
        return Err(Errno::ROFS);
    }
    let flags = open::DIRECT_IO | open::NO_FLUSH | open::PARALLEL_DIRECT_WRITES;
    Ok(Answer::of(&OpenOut { handle: 0, flags, padding: 0 }))
}
