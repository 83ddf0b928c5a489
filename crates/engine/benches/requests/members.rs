//! Members that cost next to nothing: they keep their metadata and, if they are to, their data.
//!
//! What must stay true: a command ends by its completion, as on a drive, never within the call that
//! starts it on the engine's shortcut for members in memory.

use ashlar_device::{
    Access, Command, Device, DeviceFacts, MemDevice, OpenRefusal, Opened, Opener, Outcome, Owed,
};
use ashlar_ring::{Completion, Handle, local};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Additions that a planted slow step takes for each command.
pub const PLANTED_STEPS: u64 = 400;

/// Bytes at the end that are kept: metadata, too.
const TAIL_BYTES: u64 = 1 << 20;

/// What becomes of data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// It is kept in memory.
    All,
    /// It is forgotten at once.
    Nothing,
    /// It is forgotten, and the answer comes when the tasks that are ready have run.
    NothingAndLate,
}

/// How members are.
#[derive(Clone, Copy)]
pub struct Manner {
    pub keep: Keep,
    /// A slow step for each command, if one is planted.
    pub planted: Option<u64>,
}

/// Opens members of `member_bytes` by any name.
pub struct MemberOpener {
    manner: Manner,
    member_bytes: u64,
    kept: Mutex<BTreeMap<String, MemDevice>>,
    data_offset: Arc<AtomicU64>,
}

impl MemberOpener {
    pub fn new(manner: Manner, member_bytes: u64) -> MemberOpener {
        let data_offset = Arc::new(AtomicU64::new(u64::MAX));
        MemberOpener { manner, member_bytes, kept: Mutex::default(), data_offset }
    }

    /// Data begins at `offset`: what is said of it counts from now on.
    pub fn data_begins(&self, offset: u64) {
        self.data_offset.store(offset, Ordering::Relaxed);
    }
}

impl Opener for MemberOpener {
    fn open(&self, path: &str, _: Access) -> Result<Arc<dyn Opened>, OpenRefusal> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || MemDevice::new(path, self.member_bytes);
        let memory = kept.entry(path.to_owned()).or_insert_with(make).clone();
        let data_offset = Arc::clone(&self.data_offset);
        Ok(Arc::new(Member { memory, manner: self.manner, data_offset }))
    }
}

struct Member {
    memory: MemDevice,
    manner: Manner,
    data_offset: Arc<AtomicU64>,
}

impl Opened for Member {
    fn facts(&self) -> &DeviceFacts {
        self.memory.facts()
    }

    fn attach(&self, handle: &Handle) -> Rc<dyn Device> {
        let late = local::Queue::new();
        if self.manner.keep == Keep::NothingAndLate {
            handle.spawn(answer_late(late.clone()));
        }
        Rc::new(Attached {
            memory: self.memory.attach(handle),
            manner: self.manner,
            data_offset: Arc::clone(&self.data_offset),
            late,
        })
    }
}

type Answer = (Completion<Outcome>, Outcome);

struct Attached {
    memory: Rc<dyn Device>,
    manner: Manner,
    data_offset: Arc<AtomicU64>,
    late: local::Queue<Answer>,
}

impl Device for Attached {
    fn facts(&self) -> &DeviceFacts {
        self.memory.facts()
    }

    fn submit(&self, offset: u64, command: Command, done: Completion<Outcome>) {
        for step in 0..self.manner.planted.unwrap_or(0) {
            black_box(step);
        }
        let is_end = offset + TAIL_BYTES >= self.facts().size_bytes;
        let is_data = !is_end && offset >= self.data_offset.load(Ordering::Relaxed);
        match (self.manner.keep, command) {
            (Keep::Nothing, command) if is_data => done.complete(forget(command)),
            (Keep::NothingAndLate, command) if is_data => self.late.push((done, forget(command))),
            (_, command) => self.memory.submit(offset, command, done),
        }
    }

    fn look_at_commands(&self) -> Owed {
        Owed::default()
    }

    fn give_up(&self) {}
}

fn forget(command: Command) -> Outcome {
    match command {
        Command::Read(buffer) => Outcome::done(Some(buffer)),
        _ => Outcome::done(None),
    }
}

/// Answers all that was asked for, as a ring does that is looked at once a turn.
async fn answer_late(late: local::Queue<Answer>) {
    loop {
        let (done, outcome) = late.pop().await;
        done.complete(outcome);
        while let Some((done, outcome)) = late.try_pop() {
            done.complete(outcome);
        }
    }
}
