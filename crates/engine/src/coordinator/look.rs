//! Checks with each heartbeat that the members' devices are still the opened ones.
//!
//! What must stay true: a look may take as long as a file system does, and never makes a request
//! wait. Not here: looks before something is written (`changed_beneath.rs`), and how a device tells
//! (`ashlar_device`).

use crate::aside;
use crate::coordinator::holders::{Holder, devices_in_service};
use crate::coordinator::state::Told;
use crate::event::names;
use crate::local_array::LocalArray;
use ashlar_device::{Change, Look};
use std::rc::Rc;

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
