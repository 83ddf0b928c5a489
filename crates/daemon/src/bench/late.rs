//! Members that answer as late as a drive does.
//!
//! What must stay true: no command is answered before its time, and commands of one kind are
//! answered in their order. Any number of them may be under way. Their bytes pass one after the
//! other at the member's rate, reads beside writes, whichever worker they come from. Each is
//! answered, so nobody is told that one is owed.

use ashlar_device::{
    Access, Command, Device, DeviceFacts, OpenRefusal, Opened, Opener, Outcome, Owed,
};
use ashlar_ring::local::Queue;
use ashlar_ring::{Completion, Handle};
use ashlar_units::Nanos;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a member takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AnswerTimes {
    /// To read.
    pub read: Duration,
    /// To do anything else.
    pub write: Duration,
    /// Bytes that it reads in a second, and as many that it writes; `None`: any number.
    pub bytes_per_second: Option<NonZeroU64>,
}

/// Opens what another opener does, and has it answer late.
pub struct LateOpener {
    inner: Arc<dyn Opener>,
    times: AnswerTimes,
}

impl LateOpener {
    /// All that `inner` opens takes these times.
    pub fn new(inner: Arc<dyn Opener>, times: AnswerTimes) -> Self {
        LateOpener { inner, times }
    }
}

impl Opener for LateOpener {
    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn Opened>, OpenRefusal> {
        let inner = self.inner.open(path, access)?;
        Ok(Arc::new(Late { inner, times: self.times, free_at: Arc::default() }))
    }
}

/// When the bytes of the last command have passed: of reads, and of writes.
type FreeAt = Arc<[AtomicU64; 2]>;

struct Late {
    inner: Arc<dyn Opened>,
    times: AnswerTimes,
    free_at: FreeAt,
}

impl Opened for Late {
    fn facts(&self) -> &DeviceFacts {
        self.inner.facts()
    }

    fn attach(&self, handle: &Handle) -> Rc<dyn Device> {
        let lane = |takes| {
            let lane = Lane { takes, waiting: Queue::new() };
            let inner = self.inner.attach(handle);
            handle.spawn(answer(handle.clone(), inner, lane.waiting.clone()));
            lane
        };
        let lanes = [lane(self.times.read), lane(self.times.write)];
        let inner = self.inner.attach(handle);
        let bytes_per_second = self.times.bytes_per_second;
        let free_at = Arc::clone(&self.free_at);
        Rc::new(Attached { inner, handle: handle.clone(), lanes, bytes_per_second, free_at })
    }
}

/// Commands that take the same time.
struct Lane {
    takes: Duration,
    /// In the order of their ends. None: there are no more.
    waiting: Queue<Option<Waiting>>,
}

struct Waiting {
    end: Nanos,
    offset: u64,
    command: Command,
    done: Completion<Outcome>,
}

async fn answer(handle: Handle, inner: Rc<dyn Device>, waiting: Queue<Option<Waiting>>) {
    while let Some(Waiting { end, offset, command, done }) = waiting.pop().await {
        if handle.turn_now() < end {
            handle.sleep_until(end).await;
        }
        inner.submit(offset, command, done);
    }
}

/// The same on one worker.
struct Attached {
    inner: Rc<dyn Device>,
    handle: Handle,
    /// Of reads, and of all else.
    lanes: [Lane; 2],
    bytes_per_second: Option<NonZeroU64>,
    free_at: FreeAt,
}

impl Attached {
    /// When so many bytes will have passed, behind those that were there before.
    fn passed(&self, lane: usize, bytes: u64) -> Nanos {
        let now = self.handle.turn_now();
        let Some(rate) = self.bytes_per_second else { return now };
        let takes = Duration::from_nanos(bytes * 1_000_000_000 / rate);
        let after = |free_at: u64| Nanos(free_at.max(now.0)).after(takes).0;
        let free_at = &self.free_at[lane];
        let update = |free_at| Some(after(free_at));
        let before = free_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        Nanos(after(before.unwrap_or_default()))
    }
}

impl Device for Attached {
    fn facts(&self) -> &DeviceFacts {
        self.inner.facts()
    }

    fn submit(&self, offset: u64, command: Command, done: Completion<Outcome>) {
        let lane = usize::from(!matches!(command, Command::Read(_)));
        let Lane { takes, waiting } = &self.lanes[lane];
        let bytes = match &command {
            // No content passes.
            Command::Discard { .. } | Command::WriteZeroes { .. } => 0,
            other => other.bytes(),
        };
        let end = self.passed(lane, bytes).after(*takes);
        waiting.push(Some(Waiting { end, offset, command, done }));
    }

    fn look_at_commands(&self) -> Owed {
        Owed::default()
    }

    /// Each is answered in its time.
    fn give_up(&self) {}
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.lanes.iter().for_each(|lane| lane.waiting.push(None));
    }
}
