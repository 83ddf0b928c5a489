//! A device that does nothing, at once: to measure what the engine itself costs.
//!
//! What must stay true: every command within its size succeeds without touching a byte; a read
//! leaves its buffer as it was. Nothing but a benchmark may be built on it.

use std::rc::Rc;
use std::sync::Arc;

use ashlar_ring::{Completion, Handle};

use crate::device::{Command, Device, DeviceFacts, DeviceKind, Opened, Outcome};
use crate::flights::Owed;
use crate::mem::beyond_the_end;

/// A device that does nothing. Clones are the same device.
#[derive(Clone)]
pub struct NullDevice(Arc<DeviceFacts>);

impl NullDevice {
    /// A device called `name` that claims to have `size_bytes` (rounded down to 512).
    pub fn new(name: &str, size_bytes: u64) -> NullDevice {
        let mut facts = DeviceFacts::plain(name, size_bytes, DeviceKind::Null);
        facts.size_bytes -= size_bytes % u64::from(facts.logical_block_bytes);
        facts.discard_reads_zeros = false;
        NullDevice(Arc::new(facts))
    }
}

impl Opened for NullDevice {
    fn facts(&self) -> &DeviceFacts {
        &self.0
    }

    fn attach(&self, _handle: &Handle) -> Rc<dyn Device> {
        Rc::new(Attached(Arc::clone(&self.0)))
    }
}

/// The same on one worker.
struct Attached(Arc<DeviceFacts>);

impl Attached {
    fn run(&self, offset: u64, command: Command) -> Outcome {
        if !self.0.contains(offset, &command) {
            let fault = beyond_the_end(&command);
            return Outcome::refused(command, fault);
        }
        let buffer = match command {
            Command::Read(buffer) => Some(buffer),
            _ => None,
        };
        Outcome::done(buffer)
    }
}

impl Device for Attached {
    fn facts(&self) -> &DeviceFacts {
        &self.0
    }

    fn submit(&self, offset: u64, command: Command, done: Completion<Outcome>) {
        done.complete(self.run(offset, command));
    }

    fn look_at_commands(&self) -> Owed {
        Owed::default()
    }

    /// Nothing is ever under way here: there is nothing to give up.
    fn give_up(&self) {}

    fn runs_now(&self) -> bool {
        true
    }

    fn run_now(&self, offset: u64, command: Command) -> Result<Outcome, Command> {
        Ok(self.run(offset, command))
    }
}
