//! A device that fails on command, around any other: for tests, and for showing what a real engine
//! does when a member dies.
//!
//! What must stay true: without faults it costs one atomic load for each command. A fault is
//! decided when a command reaches the device, after its delay. An injected fault leaves the device
//! below untouched. Not here: chance and power cuts, which simulated disks have.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ashlar_ring::{Completion, Handle};
use ashlar_units::Extent;

use crate::device::{
    Access, Command, CommandKind, Device, DeviceFacts, Look, OpenRefusal, Opened, Opener, Outcome,
};
use crate::fault::{Fault, FaultKind};
use crate::flights::{Flights, Owed};

/// What makes a device fail, from any thread. Clones control the same device. All faults stay until
/// undone.
#[derive(Clone, Default)]
pub struct FaultControl(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Whether there is anything in `faults`.
    is_armed: AtomicBool,
    faults: Mutex<Faults>,
}

#[derive(Clone, Default, PartialEq, Eq)]
struct Faults {
    is_gone: bool,
    by_kind: [Option<FaultKind>; CommandKind::ALL.len()],
    unreadable: Vec<Extent>,
    delay: Duration,
}

impl FaultControl {
    /// No faults yet.
    pub fn new() -> FaultControl {
        FaultControl::default()
    }

    /// Makes every command of `kind` fail with `fault`.
    pub fn fail(&self, kind: CommandKind, fault: FaultKind) {
        self.change(|faults| faults.by_kind[kind.at()] = Some(fault));
    }

    /// Makes reads that touch `extent` fail as media errors, until what they read has been written.
    pub fn break_media(&self, extent: Extent) {
        self.change(|faults| faults.unreadable.push(extent));
    }

    /// Makes every command take `delay` longer; zero undoes it.
    pub fn delay(&self, delay: Duration) {
        self.change(|faults| faults.delay = delay);
    }

    /// Makes every command fail as on a device that was pulled, and the device refuse to be opened.
    pub fn vanish(&self) {
        self.change(|faults| faults.is_gone = true);
    }

    /// Undoes all faults.
    pub fn heal(&self) {
        self.change(|faults| *faults = Faults::default());
    }

    fn change(&self, change: impl FnOnce(&mut Faults)) {
        let mut faults = self.faults();
        change(&mut faults);
        self.0.is_armed.store(*faults != Faults::default(), Ordering::Release);
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.0.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_armed(&self) -> bool {
        self.0.is_armed.load(Ordering::Acquire)
    }

    /// The fault of a command that reaches the device now.
    fn judge(&self, offset: u64, command: &Command) -> Option<Fault> {
        if !self.is_armed() {
            return None;
        }
        let mut faults = self.faults();
        if faults.is_gone {
            return Some(Fault::GONE);
        }
        if let Some(kind) = faults.by_kind[command.kind().at()] {
            return Some(kind.into());
        }
        let extent = Extent::new(offset, command.bytes().min(u64::MAX - offset));
        match command {
            Command::Read(_) => {
                let is_hit = faults.unreadable.iter().any(|broken| overlap(*broken, extent));
                is_hit.then_some(Fault::MEDIA)
            }
            Command::Write(_)
            | Command::WriteWhole(_)
            | Command::WriteDurable(_)
            | Command::WriteParts { .. }
            | Command::WriteZeroes { .. } => {
                let broken = std::mem::take(&mut faults.unreadable);
                faults.unreadable = broken.into_iter().flat_map(|b| without(b, extent)).collect();
                None
            }
            Command::Flush | Command::Discard { .. } => None,
        }
    }
}

fn overlap(a: Extent, b: Extent) -> bool {
    a.offset < b.end() && b.offset < a.end()
}

/// What is left of `whole` before and after `part`.
fn without(whole: Extent, part: Extent) -> impl Iterator<Item = Extent> {
    let before = Extent::new(whole.offset, part.offset.saturating_sub(whole.offset));
    let before = Extent { bytes: before.bytes.min(whole.bytes), ..before };
    let start = whole.offset.max(part.end()).min(whole.end());
    let after = Extent::new(start, whole.end() - start);
    [before, after].into_iter().filter(|rest| rest.bytes > 0)
}

/// A device around another one, failing as its control says.
pub struct FaultyDevice {
    inner: Arc<dyn Opened>,
    control: FaultControl,
}

impl FaultyDevice {
    /// Puts `inner` under `control`.
    pub fn new(inner: Arc<dyn Opened>, control: FaultControl) -> FaultyDevice {
        FaultyDevice { inner, control }
    }
}

impl Opened for FaultyDevice {
    fn facts(&self) -> &DeviceFacts {
        self.inner.facts()
    }

    fn descriptor_path(&self) -> Option<String> {
        self.inner.descriptor_path()
    }

    fn attach(&self, handle: &Handle) -> Rc<dyn Device> {
        Rc::new(Attached {
            inner: self.inner.attach(handle),
            control: self.control.clone(),
            handle: handle.clone(),
            delayed: Rc::default(),
        })
    }
}

struct Attached {
    inner: Rc<dyn Device>,
    control: FaultControl,
    handle: Handle,
    /// Commands that have not reached the device below.
    delayed: Rc<Flights<()>>,
}

impl Device for Attached {
    fn facts(&self) -> &DeviceFacts {
        self.inner.facts()
    }

    fn look(&self) -> Option<Look> {
        self.inner.look()
    }

    fn look_at_commands(&self) -> Owed {
        self.delayed.look().and(self.inner.look_at_commands())
    }

    fn give_up(&self) {
        let _never_reach_it = self.delayed.give_up();
        self.inner.give_up();
    }

    fn submit(&self, offset: u64, command: Command, done: Completion<Outcome>) {
        if self.delayed.is_given_up() {
            return done.complete(Outcome::refused(command, Fault::TIMED_OUT));
        }
        if !self.control.is_armed() {
            return self.inner.submit(offset, command, done);
        }
        let (inner, control) = (Rc::clone(&self.inner), self.control.clone());
        let delay = control.faults().delay;
        if delay.is_zero() {
            return pass_on(&*inner, &control, offset, command, done);
        }
        let (handle, delayed) = (self.handle.clone(), Rc::clone(&self.delayed));
        let ticket = delayed.begin((), done);
        self.handle.spawn(async move {
            handle.sleep(delay).await;
            let flight = delayed.take(ticket);
            delayed.free(ticket);
            if let Some(done) = flight.into_done() {
                pass_on(&*inner, &control, offset, command, done);
            }
        });
    }
}

fn pass_on(
    inner: &dyn Device,
    control: &FaultControl,
    offset: u64,
    command: Command,
    done: Completion<Outcome>,
) {
    match control.judge(offset, &command) {
        Some(fault) => done.complete(Outcome::refused(command, fault)),
        None => inner.submit(offset, command, done),
    }
}

/// Opens what another opener opens, each path under a control of its own. Clones share the
/// controls.
#[derive(Clone)]
pub struct FaultyOpener {
    inner: Arc<dyn Opener>,
    controls: Arc<Mutex<BTreeMap<String, FaultControl>>>,
}

impl FaultyOpener {
    /// Puts everything that `inner` opens under control.
    pub fn new(inner: Arc<dyn Opener>) -> FaultyOpener {
        FaultyOpener { inner, controls: Arc::default() }
    }

    /// What makes the device at `path` fail, now or once it is opened.
    pub fn control(&self, path: &str) -> FaultControl {
        let mut controls = self.controls.lock().unwrap_or_else(PoisonError::into_inner);
        controls.entry(path.to_owned()).or_default().clone()
    }
}

impl Opener for FaultyOpener {
    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn Opened>, OpenRefusal> {
        let control = self.control(path);
        if control.faults().is_gone {
            return Err(OpenRefusal::new(path, "the device behind it is gone; check its cabling"));
        }
        let inner = self.inner.open(path, access)?;
        Ok(Arc::new(FaultyDevice::new(inner, control)))
    }
}

#[cfg(test)]
mod tests {
    use super::without;
    use ashlar_units::Extent;

    #[test]
    fn cutting_a_part_out_leaves_exactly_the_bytes_outside_it() {
        for (start, end) in (0..8).flat_map(|start| (start..8).map(move |end| (start, end))) {
            let whole = Extent::new(2, 3);
            let part = Extent::new(start, end - start);
            let left: Vec<Extent> = without(whole, part).collect();
            let is_left = |at: u64| left.iter().any(|e| e.offset <= at && at < e.end());
            for at in 0..8 {
                let wanted = (2..5).contains(&at) && !(start..end).contains(&at);
                assert_eq!(is_left(at), wanted, "byte {at} of 2..5 without {start}..{end}");
            }
        }
    }
}
