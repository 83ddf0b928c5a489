//! Finds devices that do not answer: every worker looks at its commands under way, a few times a
//! second, as long as there are any.
//!
//! What must stay true: a command pays only for one flag that is read. No thread wakes up while
//! nothing is under way. Time is counted in looks, so a suspended host or a clock that jumps makes
//! no device late. No command waits without end, unless the array cannot do without its device.
//!
//! - here      looks
//! - `silence` what they found of each device
//! - `wake`    how the first of them begins
//! - `judge`   who is given up, and who is waited for
//! - `act`     what follows, on the coordinator
//! - `slow`    members that answer, but much later than their peers
//!
//! Not here: how a device is given up (`ashlar_device`), how the others record that
//! (`coordinator`).

mod act;
mod judge;
pub(crate) mod silence;
pub(crate) mod slow;
pub(crate) mod wake;

pub(crate) use act::put_out;
pub(crate) use judge::{Judged, Standing, Why, judge};

use crate::array::Array;
use crate::devices::{SlotDevice, SlotDevices};
use crate::local_array::LocalArray;
use crate::watch::silence::{LOOK_EVERY, Silence};
use ashlar_device::Device;
use ashlar_ring::Handle;
use ashlar_units::MemberIdx;
use std::rc::{Rc, Weak};

/// See to it that no command of this array on this worker is waited for without end.
pub(crate) fn watch_over(local: &Rc<LocalArray>) {
    let (weak, handle) = (Rc::downgrade(local), local.worker.handle.clone());
    local.watch.set_begin(move || {
        handle.spawn(look_until_quiet(Weak::clone(&weak), handle.clone()));
    });
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
            is_suspicious |= is_suspicious_of(&local.array, device.as_ref(), silence);
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

fn is_suspicious_of(array: &Array, device: &dyn Device, silence: Silence) -> bool {
    let limit = array.tuning.get().silence.looks_of(device.facts());
    2 * u32::from(silence.looks) >= u32::from(limit) || silence.oldest >= limit
}
