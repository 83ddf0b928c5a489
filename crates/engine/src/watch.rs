//! Finds devices that do not answer: every worker looks at its commands under way, a few times a
//! second, as long as there are any.
//!
//! What must stay true: a command pays only for one flag that is read. No thread wakes up while
//! nothing is under way. Time is counted in looks, so a suspended host or a clock that jumps makes
//! no device late. No command waits without end, unless the array cannot do without its device.
//!
//! - here      looks, and what they found of each device
//! - `judge`   who is given up, and who is waited for
//! - `act`     what follows, on the coordinator
//! - `slow`    members that answer, but much later than their peers
//!
//! Not here: how a device is given up (`ashlar_device`), how the others record that
//! (`coordinator`).

mod act;
mod judge;
pub(crate) mod slow;

pub(crate) use act::{Silences, put_out};
pub(crate) use judge::{Judged, Standing, Why, judge};

use crate::local_array::{LocalArray, SlotDevice, SlotDevices};
use crate::slot::DeviceEpoch;
use ashlar_device::{Device, DeviceFacts, DeviceKind, Owed};
use ashlar_ring::Handle;
use ashlar_units::MemberIdx;
use std::cell::{Cell, OnceCell};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time between two looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long a member's device may be silent, by its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SilenceLimits {
    /// Of flash, and of everything that is neither a file nor rotational.
    pub flash: Duration,
    /// Of devices whose seeks cost time: their own attempts to read a bad sector take up to 7
    /// seconds.
    pub rotational: Duration,
    /// Of files.
    pub file: Duration,
}

impl Default for SilenceLimits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        SilenceLimits { flash: seconds(5), rotational: seconds(8), file: seconds(5) }
    }
}

impl SilenceLimits {
    /// The limit of this device.
    pub fn of(&self, facts: &DeviceFacts) -> Duration {
        match facts.kind {
            DeviceKind::File => self.file,
            _ if facts.is_rotational => self.rotational,
            _ => self.flash,
        }
    }

    /// The same in looks, rounded up.
    pub(crate) fn looks_of(&self, facts: &DeviceFacts) -> u16 {
        let looks = self.of(facts).as_millis().div_ceil(LOOK_EVERY.as_millis());
        u16::try_from(looks).unwrap_or(u16::MAX).max(1)
    }
}

/// How long a device has not answered, in looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Silence {
    /// Looks in a row at which something was under way and nothing had been answered.
    pub(crate) looks: u16,
    /// Looks that the oldest command under way has seen.
    pub(crate) oldest: u16,
}

impl Silence {
    fn after(self, owed: Owed) -> Silence {
        let oldest = u16::try_from(owed.oldest_looks).unwrap_or(u16::MAX);
        let looks = if owed.has_answered { 0 } else { self.looks.saturating_add(1).min(oldest) };
        Silence { looks, oldest }
    }

    pub(crate) fn or(self, other: Silence) -> Silence {
        Silence { looks: self.looks.max(other.looks), oldest: self.oldest.max(other.oldest) }
    }

    /// How long it is, at least.
    pub(crate) fn time(self) -> Duration {
        LOOK_EVERY * u32::from(self.looks)
    }
}

/// What a worker's last look found of a device; any thread may read it.
#[derive(Debug, Default)]
pub(crate) struct Found(AtomicU64);

impl Found {
    /// Of the device of this device epoch.
    pub(crate) fn of(&self, device_epoch: DeviceEpoch) -> Silence {
        let found = self.0.load(Ordering::Acquire);
        if found >> 32 != u64::from(device_epoch.0) {
            return Silence::default();
        }
        let part = |shift: u32| u16::try_from(found >> shift & 0xFFFF).expect("16 bits");
        Silence { looks: part(16), oldest: part(0) }
    }

    fn set(&self, device_epoch: DeviceEpoch, silence: Silence) {
        let (looks, oldest) = (u64::from(silence.looks), u64::from(silence.oldest));
        self.0.store(u64::from(device_epoch.0) << 32 | looks << 16 | oldest, Ordering::Release);
    }
}

/// What all workers found of a slot's devices: of the one that fills it, and of the one that is to
/// replace it.
pub(crate) fn silences(local: &LocalArray, member: MemberIdx) -> [Silence; 2] {
    let slot = local.array.slot(member);
    let device_epochs = [slot.device_epoch(), slot.replacement_device_epoch()];
    let mut worst = [Silence::default(); 2];
    for tally in local.array.tallies(member) {
        for at in 0..2 {
            worst[at] = worst[at].or(tally.silences[at].of(device_epochs[at]));
        }
    }
    worst
}

/// The looks of one array on one worker.
pub(crate) struct Watch {
    handle: Handle,
    local: OnceCell<Weak<LocalArray>>,
    /// Looks are being taken, so the start of a command need not begin them.
    is_awake: Cell<bool>,
}

impl Watch {
    pub(crate) fn new(handle: &Handle) -> Rc<Watch> {
        Rc::new(Watch {
            handle: handle.clone(),
            local: OnceCell::new(),
            is_awake: Cell::new(false),
        })
    }

    /// Whose it is; said once.
    pub(crate) fn set_local(&self, local: &Rc<LocalArray>) {
        assert!(self.local.set(Rc::downgrade(local)).is_ok(), "a watch belongs to one local array");
    }

    /// A command is under way on a device of the array.
    pub(crate) fn note(&self) {
        if !self.is_awake.get() {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.is_awake.set(true);
        let Some(local) = self.local.get() else { return };
        self.handle.spawn(look_until_quiet(Weak::clone(local), self.handle.clone()));
    }
}

async fn look_until_quiet(local: Weak<LocalArray>, handle: Handle) {
    loop {
        handle.sleep(LOOK_EVERY).await;
        let Some(local) = local.upgrade() else { return };
        if !look(&local) {
            local.watch.is_awake.set(false);
            return;
        }
    }
}

/// Look, if something is under way that no look is going to be taken at: commands of the background
/// are started without saying so.
pub(crate) fn look_if_needed(local: &Rc<LocalArray>) {
    if !local.watch.is_awake.get() && look(local) {
        local.watch.wake();
    }
}

/// One look at all devices of the array on this worker. False if nothing is under way.
fn look(local: &Rc<LocalArray>) -> bool {
    let (mut is_busy, mut is_suspicious) = (false, local.array.waits_for_silent());
    for at in 0..local.array.slots.len() {
        let member = MemberIdx::from_at(at);
        let SlotDevices { current, replacement } = local.slot_devices(member);
        let device_epochs = local.device_epochs(member);
        for (place, device, device_epoch) in
            [(0, current, device_epochs.0), (1, replacement, device_epochs.1)]
        {
            let found = &local.tally(member).silences[place];
            let Some(SlotDevice { device, .. }) = device else {
                found.set(device_epoch, Silence::default());
                continue;
            };
            let owed = device.look_at_commands();
            let silence = found.of(device_epoch).after(owed);
            found.set(device_epoch, silence);
            is_busy |= owed.under_way > 0;
            is_suspicious |= is_suspicious_of(local, device.as_ref(), silence);
        }
    }
    if is_suspicious {
        let id = local.array.identity.id;
        local.worker.run_on(local.array.coordinator, move |worker| {
            if let Some(local) = worker.local(id) {
                act::act(&local);
            }
        });
    }
    is_busy
}

fn is_suspicious_of(local: &LocalArray, device: &dyn Device, silence: Silence) -> bool {
    let limit = local.array.tuning.silence.looks_of(device.facts());
    2 * u32::from(silence.looks) >= u32::from(limit) || silence.oldest >= limit
}
