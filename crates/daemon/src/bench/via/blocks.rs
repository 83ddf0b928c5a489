//! A client of a file or a block device: direct I/O by io_uring, one thread.
//!
//! What must stay true: nothing is cached between the client and what it measures.

use super::Client;
use super::load::{Asked, Effort, Until};
use crate::bench::places::Places;
use ashlar_iobuf::BufMut;
use ashlar_ring::local::Signal;
use ashlar_ring::{Executor, Handle, Ring, RingConfig, Schedule};
use rustix::fs::OFlags;
use std::cell::{Cell, RefCell};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use tokio::time::Instant;

/// A file or block device that is open.
pub(super) struct Blocks {
    file: Arc<OwnedFd>,
}

impl Blocks {
    /// Open what is at `path`, around the page cache.
    pub(super) fn open(path: &Path) -> io::Result<Blocks> {
        let direct = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
        let file = OpenOptions::new().read(true).write(true).custom_flags(direct).open(path)?;
        Ok(Blocks { file: Arc::new(file.into()) })
    }
}

/// What the tasks of a client share.
struct Shared {
    ring: Ring,
    handle: Handle,
    file: Arc<OwnedFd>,
    asked: Asked,
    places: RefCell<Places>,
    until: Cell<Until>,
    effort: RefCell<Effort>,
    failed: Cell<Option<io::Error>>,
    running: Cell<usize>,
    ended: Signal,
}

impl Client for Blocks {
    fn drive(&mut self, asked: &Asked, until: Until) -> io::Result<Effort> {
        let entries = u32::try_from(asked.depth).map_err(io::Error::other)?;
        let ring = Ring::new(RingConfig::of(entries.max(2)))?;
        let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
        let shared = Rc::new(Shared {
            ring,
            handle: executor.handle(),
            file: Arc::clone(&self.file),
            asked: *asked,
            places: RefCell::new(asked.places()),
            until: Cell::new(until),
            effort: RefCell::default(),
            failed: Cell::new(None),
            running: Cell::new(asked.depth),
            ended: Signal::new(),
        });
        let begin = Instant::now();
        for _ in 0..asked.depth {
            shared.handle.spawn(Rc::clone(&shared).run());
        }
        executor.block_on(async {
            while shared.running.get() > 0 {
                shared.ended.changed().await;
            }
        });
        let mut effort = shared.effort.take();
        effort.time = begin.elapsed();
        shared.failed.take().map_or(Ok(effort), Err)
    }
}

impl Shared {
    async fn run(self: Rc<Self>) {
        if let Err(error) = self.ask().await {
            self.failed.set(Some(error));
        }
        self.running.set(self.running.get() - 1);
        self.ended.notify_all();
    }

    fn allows_one(&self) -> bool {
        let mut until = self.until.get();
        let is_allowed = until.allows_one();
        self.until.set(until);
        is_allowed
    }

    async fn ask(&self) -> io::Result<()> {
        let mut buffer = BufMut::zeroed(self.asked.bytes_usize());
        while self.allows_one() {
            let offset = self.places.borrow_mut().next_offset(!self.asked.is_write);
            let since;
            let count;
            if self.asked.is_write {
                self.places.borrow_mut().renew(&mut buffer);
                since = Instant::now();
                let (written, payload) =
                    self.ring.write_at(&self.file, offset, buffer.freeze()).await;
                count = written?;
                buffer = payload.try_into_mut().unwrap_or_else(|payload| BufMut::copied(&payload));
            } else {
                since = Instant::now();
                let (read, filled) = self.ring.read_at(&self.file, offset, buffer).await;
                (count, buffer) = (read?, filled);
            }
            if count != self.asked.bytes_usize() {
                let what = format!("{count} of {} bytes at {offset}", self.asked.bytes);
                return Err(io::Error::other(what));
            }
            self.effort.borrow_mut().done(since);
        }
        Ok(())
    }
}
