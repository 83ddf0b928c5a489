//! Handles bytes from the kernel without a mount: for tests that make such bytes from a seed, and
//! for libFuzzer.
//!
//! What must stay true: the kernel is trusted more than a network. Still, no bytes of it cause a
//! panic here or take more than one request may. A read lies within the file. Not here:
//! attributes of a mounted file (`server`).

use crate::io::{BusyBlocks, FileIo};
use crate::wire::{
    FallocateIn, HEAD_BYTES, IN_HEADER_BYTES, InHeader, InMessage, InitIn, LseekIn, ReadIn,
    SetattrIn, WriteIn, opcode,
};
use ashlar_iobuf::Buf;
use ashlar_ring::{Executor, Handle, Schedule, VirtualReactor};
use ashlar_units::Extent;
use ashlar_volume::{MemVolume, Volume};
use zerocopy::FromBytes;

/// What came of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Heard {
    /// Requests that could be taken apart.
    pub requests: u32,
    /// Of those that read or change, how many went well.
    pub done: u32,
    /// And how many were answered with an error.
    pub refused: u32,
}

/// Size of the file, in bytes.
const FILE_BYTES: u64 = 256 << 10;

/// Hear requests one after the other: each takes as many bytes of `input` as its header says, or
/// 80.
///
/// # Panics
/// If something that must stay true does not.
pub fn hear(input: &[u8]) -> Heard {
    let mut executor = Executor::new(Box::new(VirtualReactor::new()), Schedule::InOrder);
    let handle = executor.handle();
    executor.block_on(hear_on(handle, input))
}

async fn hear_on(handle: Handle, input: &[u8]) -> Heard {
    let (volume, busy) = (MemVolume::new("disk", FILE_BYTES), BusyBlocks::new());
    let facts = volume.facts();
    let io = FileIo { handle: &handle, busy: &busy, volume: &volume, facts: &facts };
    let mut heard = Heard::default();
    let mut rest = input;
    while let Ok((header, _)) = InHeader::read_from_prefix(rest) {
        let said = usize::try_from(header.bytes).unwrap_or(usize::MAX);
        let bytes = said.clamp(IN_HEADER_BYTES, rest.len().max(IN_HEADER_BYTES)).min(rest.len());
        let (request, after) = rest.split_at(bytes);
        let mut head = [0; HEAD_BYTES];
        let in_head = bytes.min(HEAD_BYTES);
        head[..in_head].copy_from_slice(&request[..in_head]);
        if let Some(message) = InMessage::decode(&head, &request[in_head..], bytes) {
            heard.requests += 1;
            carry_out(&io, &message, &request[in_head..], &mut heard).await;
        }
        rest = after;
    }
    heard
}

async fn carry_out(
    io: &FileIo<'_, MemVolume>,
    message: &InMessage<'_>,
    payload: &[u8],
    heard: &mut Heard,
) {
    let _bodies = (message.body::<InitIn>(), message.body::<SetattrIn>());
    let result = match message.header.opcode {
        opcode::READ => match message.body::<ReadIn>() {
            Some(body) => {
                let wanted = Extent::new(body.offset, u64::from(body.bytes.min(1 << 20)));
                let read = io.read(wanted).await;
                read.map(|data| assert!(ashlar_units::to_u64(data.len()) <= wanted.bytes))
            }
            None => return,
        },
        opcode::WRITE => match message.body::<WriteIn>() {
            Some(body) => {
                io.write(body.offset, &Buf::copied(payload), body.flags & 1 == 1).await.map(drop)
            }
            None => return,
        },
        opcode::FALLOCATE => match message.body::<FallocateIn>() {
            Some(body) => {
                let extent = Extent::new(body.offset, body.bytes);
                if extent.checked_end().is_none() {
                    return;
                }
                io.write_zeroes(extent, body.mode & 2 != 0).await
            }
            None => return,
        },
        opcode::LSEEK => match message.body::<LseekIn>() {
            Some(body) => {
                io.seek(body.offset, body.whence == 3).await.map(|at| assert!(at <= FILE_BYTES))
            }
            None => return,
        },
        opcode::FSYNC => io.flush().await,
        _ => return,
    };
    match result {
        Ok(()) => heard.done += 1,
        Err(_) => heard.refused += 1,
    }
}
