//! One member slot of an array, as all its workers see it: what its device may be used for, and
//! which of the slot's successive devices it is.
//!
//! What must stay true: everything here changes through atomics. A device is read at a stripe only
//! if it is in sync, or if the job that fills it was there. A function marked for the coordinator
//! is called by the coordinator alone. A failure counts against the device on which it happened
//! (its *device epoch*), not against its successor.
//!
//! Not here: which states follow one another (`member.rs`), what the superblocks say of the slot
//! (`coordinator/record.rs`).

use crate::canary::{Canary, sings};
use crate::member::SlotState;
use crate::metrics::MemberCounts;
use ashlar_layout::{Stripe, StripeId};
use ashlar_units::{MemberIdx, StripeNo};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One member slot as all workers see it.
#[derive(Default)]
pub(crate) struct Slot {
    state: AtomicU8,
    rebuilt: Rebuilt,
    is_unflushed: AtomicBool,
    /// Its device failed something, and its group could not do without it.
    fails: AtomicBool,
    /// That was so at some time since the start.
    has_failed: AtomicBool,
    /// The device that fills it since the start writes blocks whole.
    writes_whole: AtomicBool,
    /// Stripes whose strip could not be rebuilt: not to be read though they lie below the point.
    lost: LostStripes,
    device_epochs: DeviceEpochs,
}

impl Slot {
    /// The device epoch of the device that fills the slot.
    pub(crate) fn device_epoch(&self) -> DeviceEpoch {
        DeviceEpoch(self.device_epochs.current.load(Ordering::Acquire))
    }

    /// Whether a power cut leaves every block that is being written to its device as it was or as
    /// it is to be, and every block that was written as it is.
    pub(crate) fn writes_whole(&self) -> bool {
        self.writes_whole.load(Ordering::Acquire) && self.device_epoch() == DeviceEpoch::FIRST
    }

    /// Coordinator only, before the first request: the device that fills the slot at the start
    /// writes blocks whole.
    pub(crate) fn set_writes_whole(&self) {
        self.writes_whole.store(true, Ordering::Release);
    }

    /// Coordinator only: the device of this device epoch fills the slot from now on. This is what
    /// its predecessors did.
    pub(crate) fn set_device_epoch(&self, device_epoch: DeviceEpoch, counts_before: MemberCounts) {
        *self.device_epochs.counts_before() = counts_before;
        self.device_epochs.current.store(device_epoch.0, Ordering::Release);
    }

    /// What the devices did that filled the slot before this one.
    pub(crate) fn counts_before(&self) -> MemberCounts {
        *self.device_epochs.counts_before()
    }

    /// The device epoch of the newest device that was to replace it, still there or not.
    pub(crate) fn replacement_device_epoch(&self) -> DeviceEpoch {
        DeviceEpoch(self.device_epochs.replacement.load(Ordering::Acquire))
    }

    /// Coordinator only: a device epoch for a device that joins.
    pub(crate) fn draw_device_epoch(&self) -> DeviceEpoch {
        DeviceEpoch(self.device_epochs.drawn.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// Coordinator only: the device of this device epoch is being filled to replace it.
    pub(crate) fn set_replacement_device_epoch(&self, device_epoch: DeviceEpoch) {
        self.device_epochs.replacement.store(device_epoch.0, Ordering::Release);
    }

    /// Every stripe below is on the device that is being filled.
    pub(crate) fn whole_below(&self) -> StripeId {
        let lost = self.lost.stripes.lock().unwrap_or_else(PoisonError::into_inner);
        let below = self.rebuilt_below();
        lost.first().map_or(below, |lost| below.at(below.number().min(*lost)))
    }

    /// Coordinator only: of exactly these stripes the slot's strip could not be rebuilt; they are
    /// of the geometry of the rebuilt point. To be called before that point passes them.
    pub(crate) fn set_lost(&self, stripes: &BTreeSet<StripeNo>) {
        self.lost.set(stripes);
    }

    pub(crate) fn state(&self) -> SlotState {
        SlotState::from_u8(self.state.load(Ordering::Acquire))
    }

    /// Put it into `state`; what its device failed before does not count any more. Who may, says
    /// [`Array::set_slot_state`](crate::array::Array::set_slot_state).
    pub(crate) fn set_state(&self, state: SlotState) {
        self.state.store(state as u8, Ordering::Release);
        self.set_fails(false);
    }

    /// Stripes of its geometry below this one are on the device of a rebuilding slot.
    pub(crate) fn rebuilt_below(&self) -> StripeId {
        self.rebuilt.below()
    }

    pub(crate) fn set_rebuilt_below(&self, below: StripeId) {
        self.rebuilt.set(below);
    }

    /// Nothing is on the device of a rebuilding slot.
    pub(crate) fn set_nothing_rebuilt(&self) {
        self.rebuilt.set(StripeId::default());
        self.lost.set(&BTreeSet::new());
    }

    /// A write reached the device's cache: the next flush must include this member.
    pub(crate) fn set_unflushed(&self) {
        if !self.is_unflushed.load(Ordering::Acquire) {
            self.is_unflushed.store(true, Ordering::Release);
        }
    }

    /// Its device failed something and stays in service all the same, or it has answered a flush
    /// since.
    pub(crate) fn set_fails(&self, fails: bool) {
        self.fails.store(fails, Ordering::Release);
        self.has_failed.fetch_or(fails, Ordering::AcqRel);
    }

    /// Whether a device of the slot failed something since the start that nobody could stand in
    /// for. It may have lost what it had not flushed, whatever it says now.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Whether its device failed something that nobody can stand in for.
    pub(crate) fn fails(&self) -> bool {
        self.fails.load(Ordering::Acquire)
    }

    /// Whether a flush is owed; it counts as done from now on.
    pub(crate) fn take_unflushed(&self) -> bool {
        self.is_unflushed.swap(false, Ordering::AcqRel)
    }

    /// Whether its device may be read for this stripe, and whether it is written.
    #[inline]
    pub(crate) fn access(&self, stripe: Stripe) -> (bool, bool) {
        match self.state() {
            SlotState::InSync => (true, true),
            SlotState::Rebuilding => {
                let below = self.rebuilt_below();
                let is_below = stripe.epoch() == below.epoch() && stripe.id() < below;
                let is_whole = is_below && !self.lost.contains(stripe.number());
                (is_whole || sings(Canary::RebuiltTooSoon), true)
            }
            SlotState::Failing | SlotState::Out => (false, false),
        }
    }
}

/// How many slots of an array are not in service, for questions that every write asks.
#[derive(Default)]
pub(crate) struct SlotCounts {
    /// Slots whose members fail; one more while a member in service lacks the newest superblock.
    failing: AtomicUsize,
    missing: AtomicUsize,
    owes_superblock: AtomicBool,
}

impl SlotCounts {
    pub(crate) fn count(&self, slots: &[Slot]) {
        let count = |wanted: fn(SlotState) -> bool| {
            slots.iter().filter(|slot| wanted(slot.state())).count()
        };
        let owed = usize::from(self.owes_superblock());
        self.failing.store(owed + count(|s| s == SlotState::Failing), Ordering::Release);
        self.missing.store(count(|s| s != SlotState::InSync), Ordering::Release);
    }

    pub(crate) fn set_owes_superblock(&self, owes: bool, slots: &[Slot]) {
        if self.owes_superblock.swap(owes, Ordering::AcqRel) != owes {
            self.count(slots);
        }
    }

    pub(crate) fn owes_superblock(&self) -> bool {
        self.owes_superblock.load(Ordering::Acquire)
    }

    pub(crate) fn has_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire) != 0
    }

    pub(crate) fn missing(&self) -> usize {
        self.missing.load(Ordering::Acquire)
    }
}

/// One of the successive devices of a slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct MemberDevice {
    pub(crate) member: MemberIdx,
    pub(crate) device_epoch: DeviceEpoch,
}

/// Which of the devices that a slot has had: drawn when a device joins, never used again in one run
/// of the array. A failure is held against the device it happened on, not against its successor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct DeviceEpoch(pub(crate) u32);

impl DeviceEpoch {
    /// Of the device that fills the slot when the array starts.
    pub(crate) const FIRST: DeviceEpoch = DeviceEpoch(0);
    /// Of the device that is replacing it when the array starts.
    pub(crate) const FIRST_REPLACEMENT: DeviceEpoch = DeviceEpoch(1);
}

/// The device epochs of a slot's devices; changed by the coordinator alone.
struct DeviceEpochs {
    current: AtomicU32,
    replacement: AtomicU32,
    drawn: AtomicU32,
    /// What earlier devices did.
    counts_before: Mutex<MemberCounts>,
}

impl DeviceEpochs {
    fn counts_before(&self) -> MutexGuard<'_, MemberCounts> {
        self.counts_before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for DeviceEpochs {
    fn default() -> Self {
        DeviceEpochs {
            current: AtomicU32::new(DeviceEpoch::FIRST.0),
            replacement: AtomicU32::new(DeviceEpoch::FIRST_REPLACEMENT.0),
            drawn: AtomicU32::new(DeviceEpoch::FIRST_REPLACEMENT.0),
            counts_before: Mutex::default(),
        }
    }
}

/// How far the device of a rebuilding slot is filled: in one word, so that number and geometry
/// change together.
#[derive(Default)]
struct Rebuilt(AtomicU64);

impl Rebuilt {
    fn below(&self) -> StripeId {
        StripeId::from_word(self.0.load(Ordering::Acquire))
    }

    fn set(&self, below: StripeId) {
        self.0.store(below.word(), Ordering::Release);
    }
}

/// Stripes whose strip on a slot is lost. Nearly always none, and then the question costs one load.
#[derive(Default)]
struct LostStripes {
    count: AtomicUsize,
    stripes: Mutex<BTreeSet<StripeNo>>,
}

impl LostStripes {
    fn set(&self, stripes: &BTreeSet<StripeNo>) {
        let mut own = self.stripes.lock().unwrap_or_else(PoisonError::into_inner);
        own.clone_from(stripes);
        self.count.store(own.len(), Ordering::Release);
    }

    fn contains(&self, stripe: StripeNo) -> bool {
        self.count.load(Ordering::Acquire) != 0
            && self.stripes.lock().unwrap_or_else(PoisonError::into_inner).contains(&stripe)
    }
}

/// Where a write goes.
#[derive(Clone, Copy)]
pub(crate) struct WriteTarget {
    pub(crate) device: MemberDevice,
    pub(crate) is_replacement: bool,
}

impl WriteTarget {
    /// The device that fills the slot.
    pub(crate) fn current(device: MemberDevice) -> WriteTarget {
        WriteTarget { device, is_replacement: false }
    }

    /// The device that is being filled to replace it.
    pub(crate) fn replacement(device: MemberDevice) -> WriteTarget {
        WriteTarget { device, is_replacement: true }
    }

    /// The member, if it is the device that fills the slot.
    pub(crate) fn if_current(self) -> Option<MemberIdx> {
        (!self.is_replacement).then_some(self.device.member)
    }
}
