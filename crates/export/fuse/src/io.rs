//! Reads and writes of any alignment and length on a volume, which takes only whole logical blocks.
//!
//! What must stay true: a byte that the caller did not name keeps its value, also when two callers
//! change different bytes of one block at the same time, on any workers. Data that reaches the
//! volume lies in memory as devices want it. Not here: the kernel's protocol.

use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::Handle;
use ashlar_session::{errno_of, pieces, read};
use ashlar_units::{Extent, to_u64, to_usize};
use ashlar_volume::{Command, Reply, Request, Transfer, Volume, VolumeFacts};
use rustix::io::Errno;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Pause before a busy block is tried again. Two writers within one block are rare, and each takes
/// a read and a write of that block.
const BUSY_RETRY: Duration = Duration::from_micros(50);

/// Blocks that some worker is changing in part, by offset. All workers of a mount share one.
#[derive(Debug, Default)]
pub struct BusyBlocks(Mutex<Vec<u64>>);

impl BusyBlocks {
    /// No block is busy.
    pub fn new() -> BusyBlocks {
        BusyBlocks::default()
    }

    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn try_take(&self, at: u64) -> Option<BusyBlock<'_>> {
        let mut blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if blocks.contains(&at) {
            return None;
        }
        blocks.push(at);
        Some(BusyBlock { blocks: self, block: at })
    }
}

/// The right to change parts of one block; goes back when dropped.
struct BusyBlock<'a> {
    blocks: &'a BusyBlocks,
    block: u64,
}

impl Drop for BusyBlock<'_> {
    fn drop(&mut self) {
        let mut blocks = self.blocks.0.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.retain(|block| *block != self.block);
    }
}

/// A volume as a file of bytes.
pub struct FileIo<'a, V> {
    pub handle: &'a Handle,
    pub busy: &'a BusyBlocks,
    pub volume: &'a V,
    pub facts: &'a VolumeFacts,
}

/// A change of an extent.
#[derive(Clone, Copy)]
struct Change<'a> {
    /// Where the extent and the content begin.
    offset: u64,
    content: Content<'a>,
    fua: bool,
}

/// What a write puts into its extent.
#[derive(Clone, Copy)]
enum Content<'a> {
    Bytes(&'a Buf),
    Zeros { may_unmap: bool },
}

impl<V: Volume> FileIo<'_, V> {
    /// Read `extent`, as far as the file goes.
    ///
    /// # Errors
    /// See [`errno_of`].
    pub async fn read(&self, extent: Extent) -> Result<Buf, Errno> {
        let Some(extent) = self.clipped(extent) else { return Ok(BufMut::zeroed(0).freeze()) };
        let whole = extent.widened_to(self.block_bytes());
        let from = to_usize(extent.offset - whole.offset);
        let range = from..from + to_usize(extent.bytes);
        if whole.bytes <= self.request_bytes_max() {
            let data = self.read_blocks(whole).await?.freeze();
            return Ok(if range == (0..data.len()) { data } else { data.slice(range) });
        }
        // Longer than the volume takes: rare, so the copy and the allocation do not matter.
        let mut all = BufMut::zeroed(to_usize(whole.bytes));
        for piece in pieces(whole, self.request_bytes_max()) {
            let at = to_usize(piece.offset - whole.offset);
            let data = self.read_blocks(piece).await?;
            all[at..at + data.len()].copy_from_slice(&data);
        }
        Ok(all.freeze().slice(range))
    }

    /// Write `data` at `offset`, as far as the file goes, and say how much that was, in bytes.
    ///
    /// # Errors
    /// `ENOSPC` at or beyond the end; see [`errno_of`].
    pub async fn write(&self, offset: u64, data: &Buf, fua: bool) -> Result<u64, Errno> {
        let wanted = Extent::new(offset, to_u64(data.len()));
        let Some(extent) = self.clipped(wanted) else {
            return if data.is_empty() { Ok(0) } else { Err(Errno::NOSPC) };
        };
        self.change(extent, Content::Bytes(data), fua).await?;
        Ok(extent.bytes)
    }

    /// Zero `extent`, as far as the file goes.
    ///
    /// # Errors
    /// See [`errno_of`].
    pub async fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Result<(), Errno> {
        let Some(extent) = self.clipped(extent) else { return Ok(()) };
        self.change(extent, Content::Zeros { may_unmap }, false).await
    }

    /// Make everything durable that was answered before.
    ///
    /// # Errors
    /// See [`errno_of`].
    pub async fn flush(&self) -> Result<(), Errno> {
        self.submit(Command::Flush, Extent::default(), false).await.map(drop)
    }

    /// The first byte at or after `offset` that was written (or was not), or the end of the file.
    ///
    /// # Errors
    /// `ENXIO` if `offset` is beyond the end, or nothing written follows it.
    pub async fn seek(&self, offset: u64, to_written: bool) -> Result<u64, Errno> {
        const RUNS_MAX: usize = 256;
        let size = self.facts.size_bytes;
        let mut at = offset - offset % self.block_bytes();
        if offset >= size {
            return Err(Errno::NXIO);
        }
        while at < size {
            let runs = self.volume.allocation(Extent::new(at, size - at), RUNS_MAX).await;
            for run in runs.map_err(errno_of)? {
                if run.is_written == to_written {
                    return Ok(at.max(offset));
                }
                at += run.bytes;
            }
        }
        if to_written { Err(Errno::NXIO) } else { Ok(size) }
    }

    /// Change an extent: whole blocks as they are, and the parts of blocks at its ends by reading
    /// them first.
    async fn change(&self, extent: Extent, content: Content<'_>, fua: bool) -> Result<(), Errno> {
        let change = Change { offset: extent.offset, content, fua };
        let unit = self.block_bytes();
        let inner_start = extent.offset.next_multiple_of(unit);
        let inner_end = extent.end() - extent.end() % unit;
        if inner_start > inner_end {
            return self.change_part(extent, &change).await;
        }
        let head = Extent::new(extent.offset, inner_start - extent.offset);
        let inner = Extent::new(inner_start, inner_end - inner_start);
        let tail = Extent::new(inner_end, extent.end() - inner_end);
        if head.bytes > 0 {
            self.change_part(head, &change).await?;
        }
        if inner.bytes > 0 {
            self.change_blocks(inner, &change).await?;
        }
        if tail.bytes > 0 {
            self.change_part(tail, &change).await?;
        }
        Ok(())
    }

    /// Change whole blocks.
    async fn change_blocks(&self, blocks: Extent, change: &Change<'_>) -> Result<(), Errno> {
        let Change { offset, content, fua } = *change;
        let data = match content {
            Content::Zeros { may_unmap } => {
                let command = Command::WriteZeroes { may_unmap };
                return self.submit(command, blocks, fua).await.map(drop);
            }
            Content::Bytes(data) => data,
        };
        for piece in pieces(blocks, self.request_bytes_max()) {
            self.volume.turn(Transfer::Write, piece.bytes).await;
            let from = to_usize(piece.offset - offset);
            let range = from..from + to_usize(piece.bytes);
            let payload = if offset == blocks.offset {
                data.slice(range)
            } else {
                // Bytes that do not begin on a block lie askew in memory too.
                let mut straight = self.volume.buffer(range.len()).await;
                straight.copy_from_slice(&data[range]);
                straight.freeze()
            };
            self.submit(Command::Write(payload), piece, fua).await?;
        }
        Ok(())
    }

    /// Change a part of one block: read it, patch it, write it, while nobody else does that.
    async fn change_part(&self, part: Extent, change: &Change<'_>) -> Result<(), Errno> {
        let Change { offset, content, fua } = *change;
        let block = part.widened_to(self.block_bytes());
        self.volume.turn(Transfer::Write, block.bytes).await;
        let _busy = self.take_block(block.offset).await;
        let mut data = self.read_blocks(block).await?;
        let at = to_usize(part.offset - block.offset);
        let patch = &mut data[at..at + to_usize(part.bytes)];
        match content {
            Content::Zeros { .. } => patch.fill(0),
            Content::Bytes(bytes) => {
                let from = to_usize(part.offset - offset);
                patch.copy_from_slice(&bytes[from..from + to_usize(part.bytes)]);
            }
        }
        self.submit(Command::Write(data.freeze()), block, fua).await.map(drop)
    }

    async fn take_block(&self, at: u64) -> BusyBlock<'_> {
        loop {
            if let Some(busy) = self.busy.try_take(at) {
                return busy;
            }
            self.handle.sleep(BUSY_RETRY).await;
        }
    }

    async fn read_blocks(&self, blocks: Extent) -> Result<BufMut, Errno> {
        self.volume.turn(Transfer::Read, blocks.bytes).await;
        let buffer = self.volume.buffer(to_usize(blocks.bytes)).await;
        read(self.volume, buffer, blocks).await.map_err(errno_of)
    }

    async fn submit(&self, command: Command, extent: Extent, fua: bool) -> Result<Reply, Errno> {
        self.volume.submit(Request { command, extent, fua }).await.map_err(errno_of)
    }

    /// The part of `extent` within the file; `None` if there is none.
    fn clipped(&self, extent: Extent) -> Option<Extent> {
        let left = self.facts.size_bytes.checked_sub(extent.offset)?;
        let bytes = extent.bytes.min(left);
        (bytes > 0).then(|| Extent::new(extent.offset, bytes))
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.facts.logical_block_bytes)
    }

    fn request_bytes_max(&self) -> u64 {
        u64::from(self.facts.request_bytes_max)
    }
}
