//! What the coordinator of an array keeps of slow members.

use super::SlowLimits;
use super::judge::{Judge, SlowFigures};
use super::timing::Total;
use crate::slot::DeviceEpoch;
use ashlar_units::MemberIdx;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// What the coordinator of an array keeps of slow members.
#[derive(Default)]
pub(crate) struct SlowMembers {
    pub(super) judge: RefCell<Judge>,
    pub(super) counted: RefCell<Vec<Counted>>,
    /// Members for which no spare was found and reported.
    pub(super) without_spare: RefCell<BTreeSet<MemberIdx>>,
    /// A spare is on its way into a slot.
    pub(super) is_taking_spare: Cell<bool>,
}

/// What was timed of a slot's device when its last period began.
#[derive(Clone, Copy, Default)]
pub(super) struct Counted {
    pub(super) device_epoch: Option<DeviceEpoch>,
    pub(super) totals: [Total; 2],
}

impl SlowMembers {
    /// Why the member is slow, if it is.
    pub(crate) fn figures(&self, member: MemberIdx, limits: &SlowLimits) -> Option<SlowFigures> {
        self.judge.borrow().figures(member, limits)
    }

    /// Whether a spare may be taken for a slow member now; then nobody else may until
    /// `spare_taken`.
    pub(super) fn take_turn(&self) -> bool {
        !self.is_taking_spare.replace(true)
    }

    /// A spare has been taken for this member, or none was there.
    pub(crate) fn spare_taken(&self, member: MemberIdx, was_there: bool) -> bool {
        self.is_taking_spare.set(false);
        !was_there && self.without_spare.borrow_mut().insert(member)
    }
}
