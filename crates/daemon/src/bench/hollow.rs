//! Members that keep their metadata and forget data at once, to measure the engine alone.
//!
//! What must stay true: the ends of the device, with superblocks and maps, behave like memory. So
//! an array can be created, assembled and stopped on it. Between them nothing is kept.

use ashlar_device::{
    Access, Command, Device, DeviceFacts, MemDevice, NullDevice, OpenRefusal, Opened, Opener,
    Outcome, Owed,
};
use ashlar_ring::{Completion, Handle};
use ashlar_units::ByteSize;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes at the end that are kept.
const TAIL_BYTES: u64 = 1 << 20;

/// Opens `null:NAME:SIZE`.
pub struct HollowOpener {
    kept: Mutex<BTreeMap<String, MemDevice>>,
    /// Bytes at the start that are kept.
    head_bytes: Arc<AtomicU64>,
}

impl HollowOpener {
    /// Members that keep everything until [`HollowOpener::forget_from`] says otherwise.
    pub fn new() -> Self {
        HollowOpener { kept: Mutex::default(), head_bytes: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// Data begins at `offset`: forget what is written from there on.
    pub fn forget_from(&self, offset: u64) {
        self.head_bytes.store(offset, Ordering::Relaxed);
    }

    /// What keeps the ends of all that were opened.
    pub fn kept(&self) -> Vec<MemDevice> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

impl Opener for HollowOpener {
    fn open(&self, path: &str, _: Access) -> Result<Arc<dyn Opened>, OpenRefusal> {
        let size = path.rsplit(':').next().and_then(|size| size.parse::<ByteSize>().ok());
        let Some(ByteSize(bytes)) = size else {
            return Err(OpenRefusal::new(path, "write null:NAME:SIZE"));
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let ends =
            kept.entry(path.to_owned()).or_insert_with(|| MemDevice::new(path, bytes)).clone();
        let head_bytes = Arc::clone(&self.head_bytes);
        Ok(Arc::new(Hollow { ends, middle: NullDevice::new(path, bytes), head_bytes }))
    }
}

struct Hollow {
    ends: MemDevice,
    middle: NullDevice,
    head_bytes: Arc<AtomicU64>,
}

impl Opened for Hollow {
    fn facts(&self) -> &DeviceFacts {
        self.ends.facts()
    }

    fn attach(&self, handle: &Handle) -> Rc<dyn Device> {
        Rc::new(Attached {
            ends: self.ends.attach(handle),
            middle: self.middle.attach(handle),
            head_bytes: Arc::clone(&self.head_bytes),
        })
    }
}

/// The same on one worker.
struct Attached {
    ends: Rc<dyn Device>,
    middle: Rc<dyn Device>,
    head_bytes: Arc<AtomicU64>,
}

impl Device for Attached {
    fn facts(&self) -> &DeviceFacts {
        self.ends.facts()
    }

    fn look_at_commands(&self) -> Owed {
        self.ends.look_at_commands().and(self.middle.look_at_commands())
    }

    fn give_up(&self) {
        self.ends.give_up();
        self.middle.give_up();
    }

    fn submit(&self, offset: u64, command: Command, done: Completion<Outcome>) {
        let head_bytes = self.head_bytes.load(Ordering::Relaxed);
        let is_end = offset < head_bytes || offset + TAIL_BYTES >= self.facts().size_bytes;
        if is_end { &self.ends } else { &self.middle }.submit(offset, command, done);
    }
}
