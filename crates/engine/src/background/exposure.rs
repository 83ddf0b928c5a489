//! Counts how many losses stripes still survive, whenever members are lost or come back.
//!
//! Goes through all slices, some at a time: 1.2 million for members of 20 TB, if cells have 16 MiB.
//!
//! Not here: the counts, and how they follow the rebuild (`src/exposure.rs`).

use super::spawn;
use crate::exposure::ExposureBoard;
use crate::local_array::LocalArray;
use ashlar_ring::within;
use std::rc::Rc;
use std::time::Duration;

/// Time between two looks at an array that lacks members: not all that changes is told.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Keep the counts as long as the array runs. Spawned once, on the coordinator.
pub(super) fn begin(local: &Rc<LocalArray>) {
    if local.array.spare_cells.is_some() {
        spawn(local, run);
    }
}

async fn run(local: Rc<LocalArray>) {
    let coordinator = local.coordinator();
    while !local.array.is_stopping() {
        let change = coordinator.jobs.changed.changed();
        if ExposureBoard::is_whole(&local.array) {
            change.await;
        } else if coordinator.exposure.is_current(&local.array) {
            let _changed = within(&local.worker.handle, LOOK_EVERY, change).await;
        } else {
            coordinator.exposure.count_some(&local.array);
            local.worker.handle.yield_now().await;
        }
    }
}
