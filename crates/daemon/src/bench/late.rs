//! Members in memory that answer as late as a drive does.
//!
//! What must stay true: no command is answered before its time, and commands of one kind are
//! answered in their order. Any number of them may be under way. Each is answered, so nobody is
//! told that one is owed.

use ashlar_device::{
    Access, Command, Device, DeviceFacts, OpenRefusal, Opened, Opener, Outcome, Owed, PathOpener,
};
use ashlar_ring::local::Queue;
use ashlar_ring::{Completion, Handle};
use ashlar_units::Nanos;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long a member takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnswerTimes {
    /// To read.
    pub read: Duration,
    /// To do anything else.
    pub write: Duration,
}

/// Opens memory as [`PathOpener`] does, and has it answer late.
pub struct LateOpener {
    memory: PathOpener,
    times: AnswerTimes,
}

impl LateOpener {
    /// All that it opens takes these times.
    pub fn new(times: AnswerTimes) -> Self {
        LateOpener { memory: PathOpener::new(), times }
    }
}

impl Opener for LateOpener {
    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn Opened>, OpenRefusal> {
        let memory = self.memory.open(path, access)?;
        Ok(Arc::new(Late { memory, times: self.times }))
    }
}

struct Late {
    memory: Arc<dyn Opened>,
    times: AnswerTimes,
}

impl Opened for Late {
    fn facts(&self) -> &DeviceFacts {
        self.memory.facts()
    }

    fn attach(&self, handle: &Handle) -> Rc<dyn Device> {
        let lane = |takes| {
            let lane = Lane { takes, waiting: Queue::new() };
            let memory = self.memory.attach(handle);
            handle.spawn(answer(handle.clone(), memory, lane.waiting.clone()));
            lane
        };
        let (reads, writes) = (lane(self.times.read), lane(self.times.write));
        let memory = self.memory.attach(handle);
        Rc::new(Attached { memory, handle: handle.clone(), reads, writes })
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

async fn answer(handle: Handle, memory: Rc<dyn Device>, waiting: Queue<Option<Waiting>>) {
    while let Some(Waiting { end, offset, command, done }) = waiting.pop().await {
        if handle.turn_now() < end {
            handle.sleep_until(end).await;
        }
        memory.submit(offset, command, done);
    }
}

/// The same on one worker.
struct Attached {
    memory: Rc<dyn Device>,
    handle: Handle,
    reads: Lane,
    writes: Lane,
}

impl Device for Attached {
    fn facts(&self) -> &DeviceFacts {
        self.memory.facts()
    }

    fn submit(&self, offset: u64, command: Command, done: Completion<Outcome>) {
        let is_read = matches!(command, Command::Read(_));
        let lane = if is_read { &self.reads } else { &self.writes };
        let end = self.handle.turn_now().after(lane.takes);
        lane.waiting.push(Some(Waiting { end, offset, command, done }));
    }

    fn look_at_commands(&self) -> Owed {
        Owed::default()
    }

    /// Each is answered in its time.
    fn give_up(&self) {}
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.reads.waiting.push(None);
        self.writes.waiting.push(None);
    }
}
