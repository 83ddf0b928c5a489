//! How long devices have not answered: what looks found, and what the coordinator keeps of it.
//!
//! Plain values. Not here: looks (`watch.rs`), what follows from them (`act.rs`).

use crate::slot::{DeviceEpoch, MemberDevice};
use ashlar_device::{DeviceFacts, DeviceKind, Owed};
use ashlar_units::{MemberIdx, Nanos};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
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
    pub(super) fn after(self, owed: Owed) -> Silence {
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

    pub(super) fn set(&self, device_epoch: DeviceEpoch, silence: Silence) {
        let (looks, oldest) = (u64::from(silence.looks), u64::from(silence.oldest));
        self.0.store(u64::from(device_epoch.0) << 32 | looks << 16 | oldest, Ordering::Release);
    }
}

/// A device: its slot, whether it is the one that is being filled to replace another, and its
/// device epoch.
pub(super) type DevicePlace = (MemberIdx, bool, DeviceEpoch);

/// What the coordinator of an array keeps of silent devices.
#[derive(Default)]
pub(crate) struct Silences {
    /// Silent members that requests wait for, and that were reported.
    pub(super) told: RefCell<BTreeSet<DevicePlace>>,
    /// Those of them that need not be waited for any more, and since when.
    pub(super) free_since: RefCell<BTreeMap<DevicePlace, Nanos>>,
    /// Why a slot is failing, if that was decided and not met.
    pub(super) reasons: RefCell<BTreeMap<MemberIdx, (DeviceEpoch, String)>>,
    /// When the others were asked last whether they answer.
    pub(super) asked_at: Cell<Nanos>,
}

impl Silences {
    /// Why the device of this device epoch fails, if that was decided here; else `why`.
    pub(crate) fn reason(
        &self,
        MemberDevice { member, device_epoch }: MemberDevice,
        why: &str,
    ) -> String {
        let reasons = self.reasons.borrow();
        let decided = reasons.get(&member).filter(|(of, _)| *of == device_epoch);
        decided.map_or_else(|| why.to_owned(), |(_, reason)| reason.clone())
    }
}
