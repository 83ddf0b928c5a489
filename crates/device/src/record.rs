//! Records everything that changes devices: each write with its bytes, each flush, when it began
//! and how it ended. From a record tests make the states that a power cut could have left.
//! Recording copies every written byte and makes the daemon slow.
//!
//! What must stay true: the beginning is in the record before the device gets the command, the end
//! before any task learns of it. The entries of all devices and workers are in the order of their
//! times. A command that cannot be recorded fails with [`Fault::GONE`]. Reads are not recorded. Not
//! here: the format (`record::entry`), and the use of a record.

mod entry;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use ashlar_ring::Handle;
use ashlar_units::to_u64;
use rustix::time::{ClockId, clock_gettime};

use crate::device::{Access, Command, Device, DeviceFacts, OpenRefusal, Opened, Opener, Outcome};
use crate::fault::Fault;
use crate::noted::{NotedDevice, Notes};
pub use entry::{RecordEntry, RecordKind, read_record};

/// A record that is being written.
pub struct Recorder(Mutex<Writer>);

struct Writer {
    file: File,
    devices: u32,
    commands: u64,
}

impl Recorder {
    /// A new record; a file that was there is overwritten.
    ///
    /// # Errors
    /// It cannot be written there.
    pub fn create(path: &Path) -> io::Result<Recorder> {
        let mut file = File::create(path)?;
        file.write_all(&entry::HEAD)?;
        Ok(Recorder(Mutex::new(Writer { file, devices: 0, commands: 0 })))
    }

    fn opened(&self, facts: &DeviceFacts) -> io::Result<u32> {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let device = writer.devices;
        writer.devices += 1;
        let kind = RecordKind::Opened;
        writer.append((kind, device, 0), facts.size_bytes, 0, facts.path.as_bytes())?;
        Ok(device)
    }

    /// The number of the command that begins.
    fn begins(&self, device: u32, offset: u64, command: &Command) -> io::Result<u64> {
        let joined;
        let (kind, payload): (_, &[u8]) = match command {
            Command::Read(_) => unreachable!("reads are not recorded"),
            Command::Write(bytes) | Command::WriteWhole(bytes) => (RecordKind::Write, bytes),
            Command::WriteDurable(bytes) => (RecordKind::WriteDurable, bytes),
            Command::WriteParts { parts, is_durable } => {
                joined = parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>();
                let durable = (RecordKind::WriteDurable, joined.as_slice());
                if *is_durable { durable } else { (RecordKind::Write, joined.as_slice()) }
            }
            Command::Flush => (RecordKind::Flush, &[]),
            Command::Discard { .. } => (RecordKind::Discard, &[]),
            Command::WriteZeroes { .. } => (RecordKind::WriteZeroes, &[]),
        };
        let offset = if kind == RecordKind::Flush { 0 } else { offset };
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writer.commands += 1;
        let number = writer.commands;
        writer.append((kind, device, number), offset, command.bytes(), payload)?;
        Ok(number)
    }

    fn ends(&self, device: u32, number: u64, is_done: bool) -> io::Result<()> {
        let kind = if is_done { RecordKind::Done } else { RecordKind::Failed };
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writer.append((kind, device, number), 0, 0, &[])
    }
}

impl Writer {
    fn append(
        &mut self,
        (kind, device, number): (RecordKind, u32, u64),
        offset: u64,
        bytes: u64,
        payload: &[u8],
    ) -> io::Result<()> {
        let at_ns = monotonic_ns();
        let payload_bytes = to_u64(payload.len());
        let head = RecordEntry { kind, device, number, at_ns, offset, bytes, payload: Vec::new() };
        // One call: a killed process leaves whole entries, but for the last one at most.
        self.file.write_all(&[&head.to_bytes(payload_bytes), payload].concat())
    }
}

/// The clock of the record: `CLOCK_MONOTONIC`, the same for all processes of a host.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

/// Opens what another opener opens, and records what is done to it.
pub struct RecordingOpener {
    inner: Arc<dyn Opener>,
    recorder: Arc<Recorder>,
}

impl RecordingOpener {
    /// Record what is done to devices that `inner` opens for use.
    pub fn new(inner: Arc<dyn Opener>, recorder: Arc<Recorder>) -> RecordingOpener {
        RecordingOpener { inner, recorder }
    }
}

impl Opener for RecordingOpener {
    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn Opened>, OpenRefusal> {
        let inner = self.inner.open(path, access)?;
        if access == Access::ReadOnly {
            return Ok(inner);
        }
        let device = self.recorder.opened(inner.facts());
        let device = device.map_err(|error| {
            OpenRefusal::new(path, format!("the record of writes cannot be written: {error}"))
        })?;
        Ok(Arc::new(Recorded { inner, device, recorder: Arc::clone(&self.recorder) }))
    }
}

/// An opened device whose changes are recorded.
struct Recorded {
    inner: Arc<dyn Opened>,
    device: u32,
    recorder: Arc<Recorder>,
}

impl Opened for Recorded {
    fn facts(&self) -> &DeviceFacts {
        self.inner.facts()
    }

    fn descriptor_path(&self) -> Option<String> {
        self.inner.descriptor_path()
    }

    fn attach(&self, handle: &Handle) -> Rc<dyn Device> {
        let scribe = Scribe { device: self.device, recorder: Arc::clone(&self.recorder) };
        Rc::new(NotedDevice::new(self.inner.attach(handle), handle, scribe))
    }
}

/// Writes down how commands end.
struct Scribe {
    device: u32,
    recorder: Arc<Recorder>,
}

impl Notes for Scribe {
    /// The number of the command.
    type Began = u64;

    fn begins(&self, offset: u64, command: &Command) -> Result<Option<u64>, Fault> {
        if matches!(command, Command::Read(_)) {
            return Ok(None);
        }
        let number = self.recorder.begins(self.device, offset, command);
        number.map(Some).map_err(|_| Fault::GONE)
    }

    fn ends(&self, number: u64, outcome: Option<Outcome>) -> Option<Outcome> {
        let mut outcome = outcome?;
        if self.recorder.ends(self.device, number, outcome.result.is_ok()).is_err() {
            outcome.result = Err(Fault::GONE);
        }
        Some(outcome)
    }
}
