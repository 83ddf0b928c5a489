//! The members that reads go around.
//!
//! What must stay true: the question costs a read one relaxed load while there are none. Not here:
//! which members these are (`act.rs`), what reads do (`datapath/avoid.rs`).

use ashlar_units::MemberIdx;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// The members that reads go around; changed by the coordinator alone.
#[derive(Debug)]
pub(crate) struct Avoided {
    count: AtomicUsize,
    slots: Box<[AtomicBool]>,
}

impl Avoided {
    pub(crate) fn new(slots: usize) -> Avoided {
        let slots = (0..slots).map(|_| AtomicBool::new(false)).collect();
        Avoided { count: AtomicUsize::new(0), slots }
    }

    /// Whether there are any.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    pub(crate) fn contains(&self, member: MemberIdx) -> bool {
        self.slots[member.at()].load(Relaxed)
    }

    /// Coordinator only.
    pub(super) fn set(&self, member: MemberIdx, is_avoided: bool) {
        match (self.slots[member.at()].swap(is_avoided, Relaxed), is_avoided) {
            (false, true) => drop(self.count.fetch_add(1, Relaxed)),
            (true, false) => drop(self.count.fetch_sub(1, Relaxed)),
            _ => {}
        }
    }
}
