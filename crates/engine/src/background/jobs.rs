//! The jobs of one array that run, on its coordinator.

use super::job::Job;
use ashlar_ring::local::Signal;
use ashlar_units::{MemberIdx, StripeNo};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The jobs of one array, on its coordinator.
#[derive(Default)]
pub(crate) struct Jobs {
    pub(super) running: RefCell<Vec<Rc<Job>>>,
    /// Tasks that hold the array's share: jobs, and whatever starts them.
    pub(super) tasks: Cell<usize>,
    pub(super) changed: Signal,
    /// Blocks of stripes that clients gave back are on their way to the members.
    pub(super) is_giving_back: Cell<bool>,
    /// The start is recorded. Before that no device joins and no job runs: the logs are being
    /// rolled forward.
    pub(super) has_begun: Cell<bool>,
    /// Copies that the start found: below which stripe all was done but for the dirty regions.
    pub(super) copied_below: RefCell<BTreeMap<MemberIdx, StripeNo>>,
}

impl Jobs {
    /// Whether the start is recorded: devices join and jobs run from then on.
    pub(crate) fn have_begun(&self) -> bool {
        self.has_begun.get()
    }
}
