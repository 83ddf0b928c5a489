//! Who holds the record of an update: every device that the update writes in place, each with its
//! lane.
//!
//! What must stay true, as members come and go:
//!
//! A device is a holder from the moment at which this worker has its lane, until the slot lets it
//! go; its writes in place start and end at the same two moments, but for an update that is between
//! its two rounds:
//! - *A member fails a batch, or fails otherwise meanwhile*: it is recorded as out before the
//!   second round (`datapath/log.rs`). Its tag is then of a device out of service, and nobody asks
//!   it.
//! - *A device joins between the rounds* (new, re-added, or to replace): it gets the second round
//!   without having the record. Nothing there is believed before the job that fills it was at the
//!   stripe, under the row lock of this update, thus after it; and the region is dirty, so that the
//!   job comes here whatever the device held (`home/join.rs`). After a crash before that the device
//!   is still to be filled there.
//! - *A device joins before the superblocks name it*: records name a tag that nobody knows after a
//!   crash; it is not in service then and is not asked.
//! - *A replacement takes over because it is complete*: it keeps lane and tag. Whether records call
//!   it "being filled" says only what the device was when they were written.
//! - *A replacement takes over because the slot's own device failed*: from the failure until then
//!   updates do without the slot, so without the replacement, too. What it lacks of them it gets by
//!   a rebuild, and a restart that rolled forward an older record on it would undo that. So it has
//!   a new tag, as a member that comes back.
//! - *A member comes back*: under a new tag, with an empty lane at the same place. What is left of
//!   its old ring has the old tag and is nobody's.
//! - *The slot's device goes between the rounds*: there is no second round on it. It is recorded as
//!   out by then.

use super::NewUpdate;
use super::lane::{Common, Lane};
use crate::datapath::store::Target;
use crate::member::SlotState;
use crate::shard::{Shard, SlotDevice, SlotDevices, Tags};
use ashlar_ondisk::log::Holder;
use ashlar_units::MemberIdx;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;

/// A holder of an update: its lane, whom to blame, and what the record calls it.
pub(super) type Held = (Rc<Lane>, Target, Holder);

/// The lanes of one worker on all devices, slot by slot.
pub(super) struct Lanes(RefCell<Vec<SlotLanes>>);

/// The lane on the slot's device, and on the one that is to replace it.
#[derive(Clone, Default)]
struct SlotLanes {
    current: Option<Rc<Lane>>,
    replacement: Option<Rc<Lane>>,
}

impl SlotLanes {
    fn each(&self) -> impl Iterator<Item = &Rc<Lane>> {
        [&self.current, &self.replacement].into_iter().flatten()
    }
}

impl Lanes {
    /// None yet.
    pub(super) fn new(slots: usize) -> Lanes {
        Lanes(RefCell::new(vec![SlotLanes::default(); slots]))
    }

    /// The slot has these devices from now on. A device that was there already keeps its lane,
    /// unless it has a new name: then its new lane begins where the old one did, once that one has
    /// ended.
    pub(super) fn set(
        &self,
        (common, handle): (&Rc<Common>, &ashlar_ring::Handle),
        member: MemberIdx,
        devices: &SlotDevices,
    ) {
        let mut lanes = self.0.borrow_mut();
        let before = std::mem::take(&mut lanes[member.at()]);
        let lane_of = |device: &Option<SlotDevice>| {
            let SlotDevice { device, tags: Tags { log: log_tag, .. } } = device.clone()?;
            let known = before.each().find(|lane| lane.log_tag == log_tag);
            Some(match known {
                Some(lane) => Rc::clone(lane),
                None => {
                    let before = before.each().find(|lane| lane.is_on(&device)).cloned();
                    Lane::open(common, handle, (member, device, log_tag), before)
                }
            })
        };
        let now = SlotLanes {
            current: lane_of(&devices.current),
            replacement: lane_of(&devices.replacement),
        };
        let stays = |tag: u64| now.each().any(|lane| lane.log_tag == tag);
        before.each().filter(|lane| !stays(lane.log_tag)).for_each(|lane| lane.close());
        lanes[member.at()] = now;
    }

    /// Whether it is so of all lanes.
    pub(super) fn all(&self, is_so: impl FnMut(&Rc<Lane>) -> bool) -> bool {
        self.0.borrow().iter().flat_map(SlotLanes::each).all(is_so)
    }

    /// Whether it is so of some lane.
    pub(super) fn any(&self, is_so: impl FnMut(&Rc<Lane>) -> bool) -> bool {
        self.0.borrow().iter().flat_map(SlotLanes::each).any(is_so)
    }

    /// Do it with each lane.
    pub(super) fn for_each(&self, act: impl FnMut(&Rc<Lane>)) {
        self.0.borrow().iter().flat_map(SlotLanes::each).for_each(act);
    }

    /// Everybody who writes the update in place, as of now.
    pub(super) fn holders(&self, shard: &Shard, new: &NewUpdate) -> SmallVec<[Held; 8]> {
        let array = &shard.array;
        let lanes = self.0.borrow();
        let mut held = SmallVec::new();
        for strip in new.stored.iter() {
            let member = array.member_of(new.stripe, strip);
            let SlotLanes { current, replacement } = &lanes[member.at()];
            let (tenure, replacement_tenure) = shard.tenures(member);
            if let Some(lane) = replacement {
                let holder = Holder { log_tag: lane.log_tag, strip, is_filled: true };
                held.push((
                    Rc::clone(lane),
                    Target::replacement(member, replacement_tenure),
                    holder,
                ));
            }
            if let Some(lane) = current {
                let is_filled = array.slot(member).state() == SlotState::Rebuilding;
                let holder = Holder { log_tag: lane.log_tag, strip, is_filled };
                held.push((Rc::clone(lane), Target::current(member, tenure), holder));
            }
        }
        held
    }
}
