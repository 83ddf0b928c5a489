//! The devices in service: superblocks, pages and marks go to all of them.

use super::{replacement_failed, take_out_holder};
use crate::array::Array;
use crate::devices::{SlotDevice, SlotDevices};
use crate::local_array::LocalArray;
use crate::member::SlotState;
use crate::slot::{DeviceEpoch, MemberDevice};
use ashlar_device::{Device, Fault};
use ashlar_units::MemberIdx;
use std::rc::Rc;

/// A device in service, and as what.
#[derive(Clone, Copy)]
pub(crate) struct Holder {
    pub(crate) member: MemberIdx,
    pub(crate) device_epoch: DeviceEpoch,
    pub(crate) is_replacement: bool,
    /// What pages that lie on it carry.
    pub(super) page_tag: u64,
}

impl Holder {
    /// Its slot, and which of the slot's devices it is.
    pub(crate) fn owner(&self) -> MemberDevice {
        MemberDevice { member: self.member, device_epoch: self.device_epoch }
    }

    /// Something is in its cache: the next flush must include it. (A replacement is always
    /// included.)
    pub(crate) fn set_unflushed(&self, array: &Array) {
        array.slot(self.member).set_unflushed();
    }
}

/// The device could not take something: it goes. False if the array cannot do without it.
pub(crate) async fn lose(local: &Rc<LocalArray>, holder: Holder, what: &str, fault: Fault) -> bool {
    let why = format!("{what} could not be written: {fault}");
    let device = holder.owner();
    if holder.is_replacement {
        replacement_failed(local, device, why).await;
        return true;
    }
    take_out_holder(local, device, why).await.is_ok()
}

/// The devices that take part in writes, with those that are being filled.
pub(crate) fn devices_in_service(local: &LocalArray) -> Vec<(Holder, Rc<dyn Device>)> {
    let mut devices = Vec::new();
    for at in 0..local.array.slots.len() {
        let member = MemberIdx::from_at(at);
        let state = local.array.slot(member).state();
        let (device_epoch, replacement_device_epoch) = local.device_epochs(member);
        let is_in_service = matches!(state, SlotState::InSync | SlotState::Rebuilding);
        let SlotDevices { current, replacement } = local.slot_devices(member);
        if let (true, Some(SlotDevice { device, tags })) = (is_in_service, current) {
            let page_tag = tags.pages;
            devices
                .push((Holder { member, device_epoch, is_replacement: false, page_tag }, device));
        }
        if let Some(SlotDevice { device, tags }) = replacement {
            let (device_epoch, page_tag) = (replacement_device_epoch, tags.pages);
            devices.push((Holder { member, device_epoch, is_replacement: true, page_tag }, device));
        }
    }
    devices
}
