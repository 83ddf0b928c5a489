//! A volume in plain memory, to test exports without an engine.
//!
//! What must stay true: an export that submits a read or a write without having waited for its turn
//! fails its tests.

use crate::{
    AllocationRun, Command, Reply, Request, Transfer, Volume, VolumeError, VolumeErrorKind,
    VolumeFacts,
};
use ashlar_iobuf::{BufMut, Pool, PoolClass};
use ashlar_units::{BLOCK_BYTES, BLOCK_BYTES_USIZE, Extent, to_u64, to_usize};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// Bytes in memory. Clones share them. Blocks written are tracked, so that allocation maps are
/// real.
#[derive(Clone)]
pub struct MemVolume {
    state: Rc<RefCell<State>>,
    /// Where buffers come from; `None`: from the heap.
    pool: Option<Pool>,
}

struct State {
    facts: VolumeFacts,
    bytes: Vec<u8>,
    written: Vec<bool>,
    failing: Option<Extent>,
    flush_count: u64,
    /// Bytes whose turn has come and that were not submitted.
    read_turns: u64,
    write_turns: u64,
}

impl MemVolume {
    /// A volume of zeros called `name`; `size_bytes` is rounded up to whole 4 KiB blocks.
    pub fn new(name: &str, size_bytes: u64) -> Self {
        let size_bytes = size_bytes.next_multiple_of(BLOCK_BYTES);
        let facts = VolumeFacts {
            name: name.to_owned(),
            uuid: [0x5a; 16],
            size_bytes,
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            strip_bytes: 16_384,
            optimal_bytes: 65_536,
            request_bytes_max: 1 << 20,
            read_only: false,
            is_rotational: false,
        };
        let state = State {
            facts,
            bytes: vec![0; to_usize(size_bytes)],
            written: vec![false; to_usize(size_bytes / BLOCK_BYTES)],
            failing: None,
            flush_count: 0,
            read_turns: 0,
            write_turns: 0,
        };
        MemVolume { state: Rc::new(RefCell::new(state)), pool: None }
    }

    /// The same with other facts. Its size stays.
    #[must_use]
    pub fn with_facts(self, change: impl FnOnce(&mut VolumeFacts)) -> Self {
        change(&mut self.state.borrow_mut().facts);
        self
    }

    /// The same with buffers from a pool, as the engine's are.
    ///
    /// # Errors
    /// If there is no memory for the pool.
    pub fn with_pool(self) -> io::Result<Self> {
        let classes = [(4 << 10, 512), (64 << 10, 128), (1 << 20, 64)];
        let classes = classes.map(|(buffer_bytes, count)| PoolClass { buffer_bytes, count });
        Ok(MemVolume { pool: Some(Pool::new(&classes)?), ..self })
    }

    /// Refuse changes from now on.
    pub fn set_read_only(&self) {
        self.state.borrow_mut().facts.read_only = true;
    }

    /// Answer requests that touch `extent` with an I/O error from now on.
    pub fn fail_at(&self, extent: Extent) {
        self.state.borrow_mut().failing = Some(extent);
    }

    /// Flushes (and FUA changes) answered so far.
    pub fn flush_count(&self) -> u64 {
        self.state.borrow().flush_count
    }
}

impl State {
    fn turns(&mut self, transfer: Transfer) -> &mut u64 {
        match transfer {
            Transfer::Read => &mut self.read_turns,
            Transfer::Write => &mut self.write_turns,
        }
    }

    /// A transfer that is submitted uses its turn.
    fn use_turn(&mut self, request: &Request) {
        let turns = match request.command {
            Command::Read(_) => self.turns(Transfer::Read),
            Command::Write(_) => self.turns(Transfer::Write),
            _ => return,
        };
        let left = turns.checked_sub(request.extent.bytes);
        *turns = left.unwrap_or_else(|| panic!("{request:?} has not waited for its turn"));
    }

    fn apply(&mut self, request: Request) -> Result<Reply, VolumeError> {
        self.use_turn(&request);
        self.facts.admit(&request)?;
        let extent = request.extent;
        let is_hit =
            |failing: Extent| failing.offset < extent.end() && extent.offset < failing.end();
        if self.failing.is_some_and(is_hit) {
            return Err(VolumeError::new(VolumeErrorKind::Io, extent));
        }
        self.flush_count += u64::from(request.fua || matches!(request.command, Command::Flush));
        let range = to_usize(extent.offset)..to_usize(extent.end());
        match request.command {
            Command::Flush => Ok(Reply::Done),
            Command::Read(mut buffer) => {
                buffer.copy_from_slice(&self.bytes[range]);
                Ok(Reply::Data(buffer))
            }
            Command::Write(buffer) => {
                self.bytes[range].copy_from_slice(&buffer);
                self.mark(extent, true);
                Ok(Reply::Done)
            }
            Command::WriteZeroes { may_unmap } => {
                self.bytes[range].fill(0);
                self.mark(extent, !may_unmap);
                Ok(Reply::Done)
            }
            Command::Discard => {
                self.bytes[range].fill(0);
                self.mark(extent, false);
                Ok(Reply::Done)
            }
        }
    }

    /// A write marks every block it touches; an unmap only the blocks it covers whole.
    fn mark(&mut self, extent: Extent, is_written: bool) {
        let (first, end) = if is_written {
            (extent.offset / BLOCK_BYTES, extent.end().div_ceil(BLOCK_BYTES))
        } else {
            (extent.offset.div_ceil(BLOCK_BYTES), extent.end() / BLOCK_BYTES)
        };
        for block in first..end {
            self.written[to_usize(block)] = is_written;
        }
    }

    fn runs(&self, extent: Extent, runs_max: usize) -> Vec<AllocationRun> {
        let mut runs: Vec<AllocationRun> = Vec::new();
        let mut at = extent.offset;
        while at < extent.end() {
            let bytes = (BLOCK_BYTES - at % BLOCK_BYTES).min(extent.end() - at);
            let is_written = self.written[to_usize(at) / BLOCK_BYTES_USIZE];
            let is_full = runs.len() == runs_max;
            match runs.last_mut() {
                Some(run) if run.is_written == is_written => run.bytes += bytes,
                _ if is_full => break,
                _ => runs.push(AllocationRun { bytes, is_written }),
            }
            at += bytes;
        }
        runs
    }
}

impl Volume for MemVolume {
    fn facts(&self) -> VolumeFacts {
        self.state.borrow().facts.clone()
    }

    async fn turn(&self, transfer: Transfer, bytes: u64) {
        *self.state.borrow_mut().turns(transfer) += bytes;
    }

    async fn buffer(&self, bytes: usize) -> BufMut {
        assert!(to_u64(bytes) <= u64::from(self.state.borrow().facts.request_bytes_max));
        match &self.pool {
            Some(pool) => pool.get(bytes).await,
            None => BufMut::zeroed(bytes),
        }
    }

    async fn submit(&self, request: Request) -> Result<Reply, VolumeError> {
        self.state.borrow_mut().apply(request)
    }

    async fn allocation(
        &self,
        extent: Extent,
        runs_max: usize,
    ) -> Result<Vec<AllocationRun>, VolumeError> {
        let state = self.state.borrow();
        if !state.facts.covers(extent) {
            return Err(VolumeError::new(VolumeErrorKind::BadExtent, extent));
        }
        Ok(state.runs(extent, runs_max))
    }
}
