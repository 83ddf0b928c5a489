//! Checks that the members' devices are still the opened ones: with each heartbeat, before a
//! repair, and before a superblock is written.
//!
//! What must stay true: a device that shrank, or whose backing file was exchanged, is out before a
//! repair or a superblock is written to it. Either would make it grow, superblocks to its full
//! size, and the gap would read as zeros. A look
//! may take as long as a file system does, and never makes a request wait. Not here: how a device
//! tells (`ashlar_device`).

use crate::aside;
use crate::canary::{Canary, sings};
use crate::coordinator::holders::{Holder, devices_in_service};
use crate::coordinator::state::Told;
use crate::event::names;
use crate::local_array::LocalArray;
use ashlar_device::{Change, Device, Fault, Look};
use ashlar_ring::within;
use std::rc::Rc;
use std::time::Duration;

/// Look at all devices in service, aside. A round that still waits for a file system is not joined
/// by another.
pub(crate) fn look_at_all(local: &Rc<LocalArray>) {
    if local.coordinator().looks.is_under_way.replace(true) {
        return;
    }
    let local = Rc::clone(local);
    let handle = local.worker.handle.clone();
    handle.spawn(async move {
        let (holders, looks): (Vec<(Holder, String)>, Vec<Look>) = devices_in_service(&local)
            .into_iter()
            .filter_map(|(holder, device)| {
                Some(((holder, device.facts().path.clone()), device.look()?))
            })
            .unzip();
        let look = move || looks.into_iter().map(|look| look()).collect::<Vec<_>>();
        let found = aside::run(&local.worker.handle, &local.array.aside, look).await;
        local.coordinator().looks.is_under_way.set(false);
        for ((holder, path), change) in holders.into_iter().zip(found) {
            if let Some(change) = change {
                act(&local, &holder, &path, change).await;
            }
        }
    });
}

/// Why nothing may be written to the device any more; `None` if it is what was opened.
pub(crate) async fn fault_of(local: &LocalArray, device: &dyn Device) -> Option<Fault> {
    if sings(Canary::ShorterMemberRepaired) {
        return None;
    }
    let look = device.look()?;
    let looked = aside::run(&local.worker.handle, &local.array.aside, look);
    // The file system beneath it may be as silent as a device.
    let patience = local.array.tuning.get().silence.of(device.facts());
    match within(&local.worker.handle, patience, looked).await {
        Some(change) => change.and_then(Change::fault),
        None => Some(Fault::TIMED_OUT),
    }
}

/// The same of several devices, all at once. A look that takes too long says nothing: what is
/// written then does not end either.
pub(crate) async fn faults_of(
    local: &LocalArray,
    devices: impl Iterator<Item = &dyn Device>,
) -> Vec<Option<Fault>> {
    let (looks, patience): (Vec<Option<Look>>, Vec<Duration>) = devices
        .map(|device| (device.look(), local.array.tuning.get().silence.of(device.facts())))
        .unzip();
    let count = looks.len();
    let patience = patience.into_iter().max().unwrap_or_default();
    let look = move || looks.into_iter().map(|look| look?()).collect::<Vec<_>>();
    let looked = aside::run(&local.worker.handle, &local.array.aside, look);
    let found = within(&local.worker.handle, patience, looked).await;
    let fault = |change: Option<Change>| change.and_then(Change::fault);
    found.map_or_else(|| vec![None; count], |all| all.into_iter().map(fault).collect())
}

async fn act(local: &Rc<LocalArray>, holder: &Holder, path: &str, change: Change) {
    let fault = change.fault();
    let told = if fault.is_some() { Told::Fault } else { Told::PathReplaced };
    let device = holder.owner();
    let is_new = local.coordinator().looks.told.borrow_mut().insert((device, told));
    if !is_new {
        return;
    }
    match fault {
        None => {
            let fields = vec![("slot", holder.member.to_string()), ("path", path.to_owned())];
            local.array.record(names::MEMBER_PATH_REPLACED, fields);
        }
        Some(fault) if holder.is_replacement => {
            super::replacement_failed(local, device, fault.to_string()).await;
        }
        // A member whose group cannot do without it stays: the event says so.
        Some(fault) => super::take_out_soon(local, device, fault.to_string()),
    }
}
