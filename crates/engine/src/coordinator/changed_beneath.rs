//! Whether devices are still the opened ones, asked before something is written that could hide it.
//!
//! What must stay true: a device that shrank, or whose backing file was exchanged, is out before a
//! repair or a superblock is written to it. Either would make it grow, superblocks to its full
//! size, and the gap would read as zeros. A look never makes this worker's other requests wait. Not
//! here: what becomes of such a member (`look.rs`, `record.rs`).

use crate::aside;
use crate::canary::{Canary, sings};
use crate::local_array::LocalArray;
use ashlar_device::{Change, Device, Fault, Look};
use ashlar_ring::within;
use std::time::Duration;

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
