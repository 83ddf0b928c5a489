//! Opens devices by name: real paths, and memory and null devices for tests and measurements.
//!
//! - `mem:NAME:SIZE`: memory called NAME, made on first use and kept as long as this opener lives;
//!   closing and opening it again finds the same bytes
//! - `memory:NAME`: memory that [`PathOpener::make_memory`] made; without it nothing is opened, so
//!   memory that is lost is never taken for an empty device
//! - `null:SIZE`: a device that does nothing
//! - anything else: the path of a block device or a regular file
//!
//! What must stay true: memory is open exclusively at most once, like everything else. If a device
//! has commands that were given up and have not come back, it is not opened again: a late write
//! would land on newer data.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use ashlar_ring::Handle;
use ashlar_units::{ByteSize, SECTOR_BYTES};

use crate::device::{Access, Device, DeviceFacts, OpenRefusal, Opened, Opener};
use crate::file::FileDevice;
use crate::identity::Identity;
use crate::mem::MemDevice;
use crate::null::NullDevice;

/// How the path of memory begins that was made before it is opened.
const MEMORY: &str = "memory:";

/// How often to look whether a device has answered what nobody waits for any more, and how long
/// between two looks.
const OWED_LOOKS: u32 = 10;
const OWED_PAUSE: Duration = Duration::from_millis(20);

/// Opens what its name tells: see the module. Clones share the memory devices.
#[derive(Clone, Default)]
pub struct PathOpener {
    memory: Arc<Mutex<BTreeMap<String, Memory>>>,
    /// Devices and files that were opened exclusively and that somebody, or a command under way,
    /// still holds.
    held: Arc<Mutex<Vec<Weak<Identity>>>>,
    wait: Duration,
}

struct Memory {
    device: MemDevice,
    is_held: bool,
}

impl PathOpener {
    /// An opener that refuses at once what somebody else has.
    pub fn new() -> PathOpener {
        PathOpener::default()
    }

    /// An opener that waits up to `wait` for somebody else to let go: a predecessor that was killed
    /// has its devices until its last write has landed.
    pub fn with_wait(wait: Duration) -> PathOpener {
        PathOpener { wait, ..PathOpener::default() }
    }

    /// The memory device called `name`, if it has been opened yet.
    pub fn memory(&self, name: &str) -> Option<MemDevice> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.get(name).map(|memory| memory.device.clone())
    }

    /// Makes memory of `size_bytes` zeros that `memory:NAME` opens. It stays until
    /// [`forget_memory`](Self::forget_memory), or as long as this opener and its clones live.
    ///
    /// # Errors
    /// There is one of this name, or `size_bytes` is less than a sector.
    pub fn make_memory(&self, name: &str, size_bytes: u64) -> Result<(), OpenRefusal> {
        let path = format!("{MEMORY}{name}");
        if size_bytes < SECTOR_BYTES {
            return Err(OpenRefusal::new(&path, "has no space: give it at least 512 bytes"));
        }
        let mut registry = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if registry.contains_key(name) {
            return Err(OpenRefusal::new(&path, "is there already"));
        }
        let device = MemDevice::new(&path, size_bytes);
        registry.insert(name.to_owned(), Memory { device, is_held: false });
        Ok(())
    }

    /// Lets go of memory that nobody has open exclusively; others who have it open keep it until
    /// they close it. Whether there was such memory.
    pub fn forget_memory(&self, name: &str) -> bool {
        let mut registry = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = registry.get(name).is_some_and(|memory| !memory.is_held);
        is_free && registry.remove(name).is_some()
    }

    fn open_made_memory(&self, path: &str, access: Access) -> Result<Arc<dyn Opened>, OpenRefusal> {
        let name = path.strip_prefix(MEMORY).unwrap_or(path);
        let mut registry = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(memory) = registry.get_mut(name) else {
            let reason = "this process has no such memory device: the content of memory devices is \
                          lost when the process that has them ends";
            return Err(OpenRefusal::new(path, reason));
        };
        self.hold(path, (name, memory), access)
    }

    fn hold(
        &self,
        path: &str,
        (name, memory): (&str, &mut Memory),
        access: Access,
    ) -> Result<Arc<dyn Opened>, OpenRefusal> {
        let is_exclusive = access == Access::Exclusive;
        if is_exclusive && std::mem::replace(&mut memory.is_held, true) {
            return Err(OpenRefusal::new(path, "in use by this process; close it first"));
        }
        Ok(Arc::new(OpenedMemory {
            device: memory.device.clone(),
            registry: is_exclusive.then(|| Arc::clone(&self.memory)),
            name: name.to_owned(),
        }))
    }

    /// Refuses a device that still has commands of this process which nobody waits for.
    fn refuse_if_owed(&self, path: &str) -> Result<(), OpenRefusal> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let owed = || -> usize {
            let known = held.iter().filter_map(Weak::upgrade).filter(|it| it.owed() > 0);
            known.filter(|it| it.is_at(path)).map(|it| it.owed()).sum()
        };
        // A device that was let go just now answers in a moment.
        for _ in 0..OWED_LOOKS {
            if owed() == 0 {
                return Ok(());
            }
            thread::sleep(OWED_PAUSE);
        }
        let owed = owed();
        let reason = format!(
            "the device did not answer in time and still has {owed} commands of this process: a \
             late write would land on newer data; repeat this when it has answered them, or pull it"
        );
        Err(OpenRefusal::new(path, reason))
    }

    fn open_memory(
        &self,
        path: &str,
        named: &str,
        access: Access,
    ) -> Result<Arc<dyn Opened>, OpenRefusal> {
        let Some((name, size)) = named.split_once(':') else {
            return Err(OpenRefusal::new(path, "write mem:NAME:SIZE, for example mem:a:64MiB"));
        };
        let size_bytes = size_of(path, size)?;
        let mut registry = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = registry
            .entry(name.to_owned())
            .or_insert_with(|| Memory { device: MemDevice::new(path, size_bytes), is_held: false });
        let has_bytes = memory.device.facts().size_bytes;
        if has_bytes != size_bytes - size_bytes % 512 {
            let reason = format!("memory {name} is there already with {}", ByteSize(has_bytes));
            return Err(OpenRefusal::new(path, reason));
        }
        self.hold(path, (name, memory), access)
    }
}

impl Opener for PathOpener {
    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn Opened>, OpenRefusal> {
        if let Some(named) = path.strip_prefix("mem:") {
            return self.open_memory(path, named, access);
        }
        if path.starts_with(MEMORY) {
            return self.open_made_memory(path, access);
        }
        if let Some(size) = path.strip_prefix("null:") {
            return Ok(Arc::new(NullDevice::new(path, size_of(path, size)?)));
        }
        if access == Access::Exclusive {
            self.refuse_if_owed(path)?;
        }
        let opened = FileDevice::open(path, access, self.wait)?;
        if access == Access::Exclusive {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.retain(|identity| identity.strong_count() > 0);
            held.push(Arc::downgrade(opened.identity()));
        }
        Ok(Arc::new(opened))
    }
}

fn size_of(path: &str, size: &str) -> Result<u64, OpenRefusal> {
    match size.parse::<ByteSize>() {
        Ok(ByteSize(bytes)) if bytes >= 512 => Ok(bytes),
        Ok(_) => Err(OpenRefusal::new(path, "has no space: give it at least 512 bytes")),
        Err(error) => Err(OpenRefusal::new(path, error.to_string())),
    }
}

/// Memory that is open; lets go of it when dropped.
struct OpenedMemory {
    device: MemDevice,
    /// Where it is held, if it is.
    registry: Option<Arc<Mutex<BTreeMap<String, Memory>>>>,
    name: String,
}

impl Opened for OpenedMemory {
    fn facts(&self) -> &DeviceFacts {
        Opened::facts(&self.device)
    }

    fn attach(&self, handle: &Handle) -> Rc<dyn Device> {
        self.device.attach(handle)
    }
}

impl Drop for OpenedMemory {
    fn drop(&mut self) {
        let Some(registry) = &self.registry else { return };
        let mut registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = registry.get_mut(&self.name) {
            memory.is_held = false;
        }
    }
}
