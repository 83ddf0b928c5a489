//! Before an array grows: its new members are cleared, and the others get room for larger maps.
//!
//! What must stay true: nothing here changes what any start reads. On members it writes where
//! nothing lies by their superblocks, and on the new devices no superblock is written. All of it is
//! flushed.

use crate::control_io::{self, refused};
use crate::error::Refusal;
use crate::joining_device::{JoiningDevice, check_distinct};
use crate::local_array::LocalArray;
use crate::map_pages;
use crate::worker::Worker;
use ashlar_device::{Command, Device, Fault};
use ashlar_ondisk::format::PAGE_BYTES;
use ashlar_ondisk::{Features, MemberEntry, Superblock};
use ashlar_units::{Extent, MemberIdx};
use std::rc::Rc;

/// New members with empty maps, as `next` places them.
///
/// # Errors
/// A device that fails; the array is as it was.
pub(super) async fn new_members(
    worker: &Rc<Worker>,
    next: &Superblock,
    candidates: &[JoiningDevice],
    entries: &[MemberEntry],
) -> Result<(), Refusal> {
    for (candidate, entry) in candidates.iter().zip(entries) {
        let (device, path) = (candidate.device.as_ref(), &candidate.path);
        candidate.blanking.run(worker, device).await?;
        for extent in cleared(next) {
            let zeroed = control_io::zero(worker, device, extent).await;
            zeroed.map_err(|fault| refused(path, "clearing its maps", fault))?;
        }
        let made = map_pages::make(worker, device, next, entry.uuid).await;
        made.map_err(|fault| refused(path, "making its written map", fault))?;
        let flushed = flush(worker, device).await;
        flushed.map_err(|fault| refused(path, "a flush", fault))?;
    }
    // Before pages named members, those of all members were equal.
    if next.features.incompatible & Features::MEMBER_PAGES == 0 {
        return Ok(());
    }
    let page = Extent::new(next.areas.written_map.offset, PAGE_BYTES);
    check_distinct(worker, candidates, page).await
}

/// All maps, beside the ends. What else there is names whose it is.
fn cleared(next: &Superblock) -> [Extent; 3] {
    let areas = &next.areas;
    [areas.write_intent, areas.written_map, areas.grown_map]
}

/// The further pages of the written map on the members that there are, for stripes that the growth
/// opens. Runs on the coordinator.
///
/// # Errors
/// A member that fails; the array is as it was.
pub(super) async fn make_room(local: &Rc<LocalArray>, next: &Superblock) -> Result<(), Refusal> {
    let before = local.coordinator().superblock();
    let first = map_pages::pages_of_written_map(&before);
    for slot in (0..local.array.slots.len()).map(MemberIdx::from_at) {
        let (device, holder) = (local.device(slot), before.holder(slot));
        let (Some(device), Some(holder)) = (device, holder) else { continue };
        let worker = &local.worker;
        let made = map_pages::make_from(worker, device.as_ref(), (next, first), holder.uuid).await;
        let path = &device.facts().path;
        made.map_err(|fault| refused(path, "making room for its written map", fault))?;
        let flushed = flush(worker, device.as_ref()).await;
        flushed.map_err(|fault| refused(path, "a flush", fault))?;
    }
    Ok(())
}

async fn flush(worker: &Rc<Worker>, device: &dyn Device) -> Result<(), Fault> {
    control_io::run(worker, device, 0, Command::Flush).await.result.map(drop)
}
