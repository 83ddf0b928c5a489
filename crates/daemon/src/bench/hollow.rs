//! Members that keep their metadata and forget data at once: what is left to measure is the engine.
//!
//! What must stay true: the ends of the device, where superblocks and maps are, behave like memory, so that
//! an array can be created, assembled and stopped on it. Between them nothing is kept.

use ashlar_device::{
    Access, Command, Device, DeviceFacts, MemDevice, NullDevice, OpenRefusal, Opened, Opener,
    Outcome,
};
use ashlar_ring::{Completion, Handle};
use ashlar_units::ByteSize;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes at the start that are kept; areas of small members end well before.
const HEAD_BYTES: u64 = 64 << 20;
/// Bytes at the end that are kept.
const TAIL_BYTES: u64 = 1 << 20;

/// Opens `null:NAME:SIZE`.
#[derive(Default)]
pub struct HollowOpener {
    kept: Mutex<BTreeMap<String, MemDevice>>,
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
        Ok(Arc::new(Hollow { ends, middle: NullDevice::new(path, bytes) }))
    }
}

struct Hollow {
    ends: MemDevice,
    middle: NullDevice,
}

impl Opened for Hollow {
    fn facts(&self) -> &DeviceFacts {
        self.ends.facts()
    }

    fn attach(&self, handle: &Handle) -> Rc<dyn Device> {
        Rc::new(Attached { ends: self.ends.attach(handle), middle: self.middle.attach(handle) })
    }
}

/// The same on one worker.
struct Attached {
    ends: Rc<dyn Device>,
    middle: Rc<dyn Device>,
}

impl Device for Attached {
    fn facts(&self) -> &DeviceFacts {
        self.ends.facts()
    }

    fn submit(&self, offset: u64, command: Command, done: Completion<Outcome>) {
        let is_end = offset < HEAD_BYTES || offset + TAIL_BYTES >= self.facts().size_bytes;
        if is_end { &self.ends } else { &self.middle }.submit(offset, command, done);
    }
}
