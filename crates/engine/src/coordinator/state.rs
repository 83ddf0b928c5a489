//! What the coordinator keeps for an array, and whom it tells of changes.

use super::rounds::Rounds;
use crate::appearances::Appearances;
use crate::background::jobs::Jobs;
use crate::coordinator::marks::Marks;
use crate::exposure::ExposureBoard;
use crate::identity::KeptDrives;
use crate::log::replay::summary::ReplaySummary;
use crate::ownership::beats::Beats;
use crate::slot::MemberDevice;
use crate::watch::silence::Silences;
use crate::watch::slow::SlowMembers;
use ashlar_layout::StripeId;
use ashlar_ondisk::Superblock;
use ashlar_ring::local::{Permit, Semaphore};
use ashlar_units::MemberIdx;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// How an array started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HowStarted {
    /// What the operator accepted and was needed: flags of [`ForcedActions`].
    ///
    /// [`ForcedActions`]: ashlar_ondisk::ForcedActions
    pub forced: u64,
    /// It had not been stopped cleanly.
    pub was_unclean: bool,
}

/// What the coordinator keeps for an array.
pub(crate) struct Coordinator {
    pub(super) superblock: RefCell<Superblock>,
    /// The generation that the members had when this start began.
    pub(crate) found_generation: u64,
    pub(super) gate: Semaphore,
    /// Whose turn it is to change states of cells, or to have a device join that has some. Taken
    /// before the gate.
    pub(crate) spare_gate: Semaphore,
    /// By page of states of cells: in which place it is stored next.
    pub(super) next_spare_places: RefCell<BTreeMap<u32, u64>>,
    pub(super) intent_rounds: Rounds,
    pub(super) flush_rounds: Rounds,
    /// Whose turn it is to write intent pages: two writes of one page under way could land in
    /// either order.
    pub(super) intent_pages: Semaphore,
    /// A device has joined: the next round of intent pages is to store all that have bits.
    pub(super) has_joining_device: Cell<bool>,
    pub(super) page_sequence: Cell<u64>,
    pub(super) marks: Marks,
    pub(super) drives: KeptDrives,
    pub(crate) appearances: Appearances,
    pub(crate) jobs: Jobs,
    pub(crate) exposure: ExposureBoard,
    pub(crate) looks: Looks,
    pub(crate) beats: Beats,
    pub(crate) silences: Silences,
    pub(crate) slow: SlowMembers,
    /// What this start found in the logs; `None` if it did not look.
    pub(crate) replayed: Cell<Option<ReplaySummary>>,
    /// How the array started.
    pub(crate) beginning: Cell<HowStarted>,
    /// Whom it tells of changes.
    listener: Listener,
}

impl Coordinator {
    /// Start from the superblock as it is on the members; page sequence numbers go on above
    /// `page_sequence`, flush marks above those of `marks`.
    pub(crate) fn new(
        superblock: Superblock,
        page_sequence: u64,
        marks: Marks,
        listener: Listener,
    ) -> Self {
        Coordinator {
            found_generation: superblock.generation,
            superblock: RefCell::new(superblock),
            gate: Semaphore::new(1),
            spare_gate: Semaphore::new(1),
            next_spare_places: RefCell::default(),
            intent_rounds: Rounds::default(),
            flush_rounds: Rounds::default(),
            intent_pages: Semaphore::new(1),
            has_joining_device: Cell::new(false),
            page_sequence: Cell::new(page_sequence),
            marks,
            drives: KeptDrives::default(),
            appearances: Appearances::default(),
            jobs: Jobs::default(),
            exposure: ExposureBoard::default(),
            looks: Looks::default(),
            beats: Beats::default(),
            silences: Silences::default(),
            slow: SlowMembers::default(),
            replayed: Cell::new(None),
            beginning: Cell::default(),
            listener,
        }
    }

    /// Tell background work of a change.
    pub(super) fn tell(&self, change: Change) {
        (self.listener)(change);
    }

    /// Whether a device has joined since this was asked last.
    pub(crate) fn take_joining_device(&self) -> bool {
        self.has_joining_device.take()
    }

    /// The superblock as last recorded.
    pub(crate) fn superblock(&self) -> Superblock {
        self.superblock.borrow().clone()
    }

    /// The array, and the start that runs it.
    pub(super) fn identity(&self) -> (Uuid, Uuid) {
        let superblock = self.superblock.borrow();
        (superblock.array_uuid, superblock.incarnation)
    }

    /// What the next update starts from: the start, before it is recorded.
    pub(crate) fn set_superblock(&self, superblock: Superblock) {
        *self.superblock.borrow_mut() = superblock;
    }

    /// Leave to change the superblocks, one at a time.
    pub(crate) async fn gate(&self) -> Permit {
        self.gate.acquire().await
    }

    pub(super) fn next_page_sequence(&self) -> u64 {
        self.page_sequence.set(self.page_sequence.get() + 1);
        self.page_sequence.get()
    }
}

/// What background work must know of.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    /// The members say that this one is out.
    MemberOut(MemberIdx),
    /// A device that was being filled to replace a member is gone.
    ReplacementDropped,
    /// A replacement has the slot from now on. It was copied below this stripe.
    ReplacementTookOver { member: MemberIdx, copied_below: StripeId },
    /// A flush round has ended well.
    Flushed,
}

/// Takes note of a change, and acts on it in a task of its own.
pub(crate) type Listener = Box<dyn Fn(Change)>;

/// What the looks of an array found so far. On the coordinator.
#[derive(Default)]
pub(crate) struct Looks {
    pub(super) is_under_way: Cell<bool>,
    /// The reports that were made already, by device.
    pub(super) told: RefCell<BTreeSet<(MemberDevice, Told)>>,
}

/// Each is reported once for a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Told {
    PathReplaced,
    Fault,
}
