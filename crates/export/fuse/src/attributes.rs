//! Requests about names and attributes: nothing to wait for.
//!
//! What must stay true: a file is as long as its volume and stays so; who may not write learns it
//! when he opens. Not here: requests for bytes (`server`), nodes and their names (`files`).

use crate::Files;
use crate::answer::{Answer, PAYLOAD_BYTES_MAX, init_reply};
use crate::files::{FileTable, directory_attr, file_attr, generation_of};
use crate::wire::{
    AttrOut, EntryOut, InMessage, OpenOut, ROOT_NODE, ReadIn, SetattrIn, StatfsOut, opcode, open,
};
use ashlar_iobuf::Buf;
use rustix::io::Errno;

/// How long the kernel may trust a name or an attribute, in seconds: how soon a resize is seen.
const CACHE_SECONDS: u64 = 1;

/// Flags of open(2) as they arrive from the kernel: for writing, or for both.
const FOR_WRITING: u32 = 0o1 | 0o2;

/// Answer such a request, or one that nobody does anything about.
///
/// # Errors
/// What the caller of the kernel is to be told.
pub fn answer<F: Files>(table: &FileTable<F>, message: &InMessage<'_>) -> Result<Answer, Errno> {
    let node = message.header.node;
    match message.header.opcode {
        opcode::INIT => init_reply(message),
        opcode::LOOKUP => look_up(table, message),
        opcode::GETATTR => attributes(table, node),
        opcode::SETATTR => set_attributes(table, node, message),
        opcode::OPEN => open(table, node, message),
        opcode::OPENDIR => Ok(Answer::of(&OpenOut { handle: 0, flags: 0, padding: 0 })),
        opcode::READDIR => {
            let body: ReadIn = message.body().ok_or(Errno::INVAL)?;
            let bytes_max = body.bytes.min(PAYLOAD_BYTES_MAX);
            let list = table.list(body.offset, ashlar_units::to_usize(bytes_max.into()));
            Ok(Answer::Data(Buf::copied(&list)))
        }
        opcode::STATFS => Ok(Answer::of(&StatfsOut {
            blocks: [0; 3],
            files: [0; 2],
            block_bytes: 4096,
            name_bytes_max: 255,
            fragment_bytes: 4096,
            spare: [0; 7],
        })),
        opcode::RELEASE | opcode::RELEASEDIR | opcode::FSYNCDIR | opcode::DESTROY => {
            Ok(Answer::done())
        }
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => Ok(Answer::None),
        // The kernel takes this as success for FLUSH and ACCESS, and does not ask again.
        _ => Err(Errno::NOSYS),
    }
}

fn look_up<F: Files>(table: &FileTable<F>, message: &InMessage<'_>) -> Result<Answer, Errno> {
    let name = message.name().ok_or(Errno::NOENT)?;
    if message.header.node != ROOT_NODE {
        return Err(Errno::NOTDIR);
    }
    let file = table.look_up(&name).ok_or(Errno::NOENT)?;
    Ok(Answer::of(&EntryOut {
        node: file.node,
        generation: generation_of(&file.facts),
        entry_seconds: CACHE_SECONDS,
        attr_seconds: CACHE_SECONDS,
        nanos: [0; 2],
        attr: file_attr(file.node, &file.facts),
    }))
}

fn attributes<F: Files>(table: &FileTable<F>, node: u64) -> Result<Answer, Errno> {
    let attr = match node {
        ROOT_NODE => directory_attr(),
        _ => file_attr(node, &table.refreshed(node).ok_or(Errno::NOENT)?.facts),
    };
    Ok(Answer::of(&AttrOut { attr_seconds: CACHE_SECONDS, nanos: [0; 2], attr }))
}

/// A volume has one size: emptying the file (O_TRUNC) is ignored, as devices do it. Times are not
/// kept.
fn set_attributes<F: Files>(
    table: &FileTable<F>,
    node: u64,
    message: &InMessage<'_>,
) -> Result<Answer, Errno> {
    const MODE_OR_OWNER: u32 = 0b111;
    const SIZE: u32 = 0b1000;
    let body: SetattrIn = message.body().ok_or(Errno::INVAL)?;
    if node == ROOT_NODE || body.valid & MODE_OR_OWNER != 0 {
        return Err(Errno::PERM);
    }
    if body.valid & SIZE != 0 && body.size_bytes != 0 {
        let file = table.refreshed(node).ok_or(Errno::NOENT)?;
        if body.size_bytes != file.facts.size_bytes {
            return Err(Errno::PERM);
        }
    }
    attributes(table, node)
}

fn open<F: Files>(
    table: &FileTable<F>,
    node: u64,
    message: &InMessage<'_>,
) -> Result<Answer, Errno> {
    let flags: u32 = message.body().ok_or(Errno::INVAL)?;
    let file = table.refreshed(node).ok_or(Errno::NOENT)?;
    let is_for_writing = flags & FOR_WRITING != 0;
    if is_for_writing && file.facts.read_only {
        return Err(Errno::ROFS);
    }
    let flags = open::DIRECT_IO | open::PARALLEL_DIRECT_WRITES;
    Ok(Answer::of(&OpenOut { handle: 0, flags, padding: 0 }))
}
