//! The holders of an update's record: every device that the update writes in place, each with its
//! log ring.
//!
//! What must stay true, as members come and go:
//!
//! A device is a holder from the moment at which this worker has its ring until the slot lets it
//! go. Its writes in place start and end at the same two moments. The exception is an update that
//! is between its two rounds:
//! - *A member fails a batch, or fails otherwise meanwhile*: it is recorded as out before the
//!   second round (`datapath/log.rs`). Its tag then belongs to a device out of service, and a start
//!   ignores it.
//! - *A device joins between the rounds* (new, re-added, or to replace): it gets the second round
//!   without having the record. Nothing there counts before the job that fills it was at the
//!   stripe. The job comes under the row lock of this update, so after it. The region is dirty, so
//!   the job comes here whatever the device held (`coordinator/join.rs`). After an earlier crash
//!   the device is still to be filled there.
//! - *A device joins before the superblocks name it*: records name a tag that is unknown after a
//!   crash. The device is not in service then, and a start ignores it.
//! - *A replacement takes over because it is complete*: it keeps ring and tag. The mark "being
//!   filled" in records says only what the device was when they were written.
//! - *A replacement takes over because the slot's own device failed*: from the failure until then,
//!   updates do without the slot, and so without the replacement. A rebuild brings what it lacks. A
//!   restart that rolled forward an older record on it would undo that. So the replacement gets a
//!   new tag, like a returning member.
//! - *A member comes back*: it gets a new tag, and an empty ring at the same place. The rest of its
//!   old ring has the old tag and belongs to no device.
//! - *The slot's device goes between the rounds*: it gets no second round, and is recorded as out
//!   by then.

use super::log_ring::{Common, LogRing, RingDevice};
use crate::array::Array;
use crate::devices::{SlotDevice, SlotDevices, Tags};
use crate::log::update::NewUpdate;
use crate::member::SlotState;
use crate::slot::DeviceEpoch;
use crate::slot::MemberDevice;
use crate::slot::WriteTarget;
use ashlar_ondisk::log::Holder;
use ashlar_units::MemberIdx;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;

/// A holder of an update: its log ring, whom to blame, and what the record calls it.
pub(super) type Held = (Rc<LogRing>, WriteTarget, Holder);

/// The log rings of one worker on all devices, slot by slot.
pub(super) struct LogRings(RefCell<Vec<SlotLogRings>>);

/// The log ring on the slot's device, and on the one that is to replace it.
#[derive(Clone, Default)]
struct SlotLogRings {
    current: Option<Rc<LogRing>>,
    replacement: Option<Rc<LogRing>>,
}

impl SlotLogRings {
    fn each(&self) -> impl Iterator<Item = &Rc<LogRing>> {
        [&self.current, &self.replacement].into_iter().flatten()
    }
}

impl LogRings {
    /// None yet.
    pub(super) fn new(slots: usize) -> LogRings {
        LogRings(RefCell::new(vec![SlotLogRings::default(); slots]))
    }

    /// The slot has these devices from now on. A device that was there already keeps its log ring,
    /// unless it has a new name: then its new log ring begins where the old one did, once that one
    /// has ended.
    pub(super) fn set(
        &self,
        common: &Rc<Common>,
        handle: &ashlar_ring::Handle,
        member: MemberIdx,
        devices: &SlotDevices,
    ) {
        let mut log_rings = self.0.borrow_mut();
        let before = std::mem::take(&mut log_rings[member.at()]);
        let log_ring_of = |device: &Option<SlotDevice>| {
            let SlotDevice { device, tags: Tags { log: log_tag, .. } } = device.clone()?;
            let known = before.each().find(|log_ring| log_ring.log_tag == log_tag);
            Some(match known {
                Some(log_ring) => Rc::clone(log_ring),
                None => {
                    let before = before.each().find(|log_ring| log_ring.is_on(&device)).cloned();
                    LogRing::open(common, handle, RingDevice { member, device, log_tag }, before)
                }
            })
        };
        let now = SlotLogRings {
            current: log_ring_of(&devices.current),
            replacement: log_ring_of(&devices.replacement),
        };
        let stays = |tag: u64| now.each().any(|log_ring| log_ring.log_tag == tag);
        before
            .each()
            .filter(|log_ring| !stays(log_ring.log_tag))
            .for_each(|log_ring| log_ring.close());
        log_rings[member.at()] = now;
    }

    /// Whether it is so of all log rings.
    pub(super) fn all(&self, is_so: impl FnMut(&Rc<LogRing>) -> bool) -> bool {
        self.0.borrow().iter().flat_map(SlotLogRings::each).all(is_so)
    }

    /// Whether it is so of some log ring.
    pub(super) fn any(&self, is_so: impl FnMut(&Rc<LogRing>) -> bool) -> bool {
        self.0.borrow().iter().flat_map(SlotLogRings::each).any(is_so)
    }

    /// Do it with each log ring.
    pub(super) fn for_each(&self, act: impl FnMut(&Rc<LogRing>)) {
        self.0.borrow().iter().flat_map(SlotLogRings::each).for_each(act);
    }

    /// All devices that get the update in place, as of now.
    pub(super) fn holders(
        &self,
        array: &Array,
        device_epochs: impl Fn(MemberIdx) -> (DeviceEpoch, DeviceEpoch),
        new: &NewUpdate,
    ) -> SmallVec<[Held; 8]> {
        let log_rings = self.0.borrow();
        let mut held = SmallVec::new();
        for strip in new.stored.iter() {
            let (place, copies) = array.write_places(new.stripe, strip);
            let member = place.member;
            // What is being copied back goes to both places, so both hold the record.
            for copy in copies.into_iter().map(|copy| copy.member) {
                let Some(log_ring) = &log_rings[copy.at()].current else { continue };
                let device_epoch = device_epochs(copy).0;
                let owner = MemberDevice { member: copy, device_epoch };
                let is_filled = array.slot(copy).state() == SlotState::Rebuilding;
                let holder = Holder { log_tag: log_ring.log_tag, strip, is_filled };
                held.push((Rc::clone(log_ring), WriteTarget::current(owner), holder));
            }
            let SlotLogRings { current, replacement } = &log_rings[member.at()];
            let (device_epoch, replacement_device_epoch) = device_epochs(member);
            if let Some(log_ring) = replacement {
                let holder = Holder { log_tag: log_ring.log_tag, strip, is_filled: true };
                held.push((
                    Rc::clone(log_ring),
                    WriteTarget::replacement(MemberDevice {
                        member,
                        device_epoch: replacement_device_epoch,
                    }),
                    holder,
                ));
            }
            if let Some(log_ring) = current {
                let is_filled = array.slot(member).state() == SlotState::Rebuilding;
                let holder = Holder { log_tag: log_ring.log_tag, strip, is_filled };
                held.push((
                    Rc::clone(log_ring),
                    WriteTarget::current(MemberDevice { member, device_epoch }),
                    holder,
                ));
            }
        }
        held
    }
}
