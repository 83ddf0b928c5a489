//! A pool grows: new members are prepared while it serves, and then it starts again with them.
//!
//! What must stay true: everything that can be refused is refused before a request waits. The
//! clients' way into the array is shut for the time of a stop and a start. Requests that come wait
//! there, and none gets an error. The start records the growth (`assemble/new_members.rs`). If that
//! start fails, the array starts as it was.
//!
//! - here        the steps, in their order
//! - `check`   what stands against it
//! - `prepare`   new members, and room for the larger maps on the others
//! - `restart`   stop and start while clients wait
//!
//! Not here: how cells move (`background/growing.rs`).

mod check;
mod prepare;
mod restart;

use crate::array::Array;
use crate::assemble::{NewMember, grown};
use crate::engine::Engine;
use crate::engine_state::EngineState;
use crate::error::Refusal;
use crate::event::names;
use crate::joining_device::{self, JoiningDevice};
use crate::local_array::LocalArray;
use crate::worker::Worker;
use ashlar_layout::declustered::Declustered;
use ashlar_ondisk::format::member_bytes;
use ashlar_ondisk::{ConsistencyPolicy, MemberEntry, Role, Superblock, Text};
use ashlar_units::{MemberIdx, to_u64};
use std::rc::Rc;
use std::sync::Arc;

/// A pool, and what it is to grow by.
#[derive(Clone, Debug, Default)]
pub struct GrowSpec {
    /// The running array.
    pub array: String,
    /// Devices of the new members, one for each.
    pub devices: Vec<String>,
    /// Devices among them whose content may go.
    pub destroy: Vec<String>,
    /// Look only: nothing is written.
    pub is_dry_run: bool,
}

/// What a growth comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrowReport {
    /// Members before it.
    pub members_before: usize,
    /// Members after it.
    pub members: usize,
    /// Cells that move, of all members together.
    pub moved_cells: u64,
    /// Cells that the members before it have.
    pub cells: u64,
    /// Bytes of a cell.
    pub cell_bytes: u64,
    /// Bytes of the volume before it.
    pub volume_bytes_before: u64,
    /// Bytes of the volume at its end.
    pub volume_bytes: u64,
}

impl GrowReport {
    /// Bytes that the busiest of the drives writes: they bound the time.
    pub fn bytes_to_each_new(&self) -> u64 {
        let added = to_u64(self.members - self.members_before);
        self.moved_cells.div_ceil(added) * self.cell_bytes
    }
}

impl Engine {
    /// Have a pool grow over more devices: see [`GrowSpec`]. Its clients wait for a moment, and
    /// then it grows while it serves them. Its volume is larger at the end.
    ///
    /// # Errors
    /// A refusal, and the array is as it was unless that says otherwise.
    pub async fn grow(&self, spec: GrowSpec) -> Result<GrowReport, Refusal> {
        let array = self.array(&spec.array)?;
        let engine_state = Arc::clone(self.engine_state());
        let grow = async move |worker| grow(&worker, &engine_state, array, spec).await;
        let report = self.on_worker(0, grow).await??;
        self.offer_spares().await;
        Ok(report)
    }
}

async fn grow(
    worker: &Rc<Worker>,
    engine_state: &Arc<EngineState>,
    array: Arc<Array>,
    spec: GrowSpec,
) -> Result<GrowReport, Refusal> {
    check::paths(&spec)?;
    let look = async move |local: Rc<LocalArray>| check::look(&local);
    let before = engine_state.on_coordinator_of(&array, look).await??;
    // What the layout refuses it refuses before a device is asked.
    let count = spec.devices.len();
    let nobody = |at| MemberEntry::new(worker.draw_uuid(), MemberIdx::from_at(at), Role::Active);
    let first = usize::from(before.superblock.geometry.slots());
    grown(&before.superblock, &(first..first + count).map(nobody).collect::<Vec<_>>())?;
    let mut candidates = Vec::new();
    for path in &spec.devices {
        let may_destroy = spec.destroy.contains(path);
        let candidate = joining_device::open(worker, engine_state, path, may_destroy).await?;
        check::device(&before.superblock, &candidate)?;
        candidates.push(candidate);
    }
    let entries = entries(worker, &before.superblock, &candidates);
    let next = grown(&before.superblock, &entries)?;
    let report = report(&array, &next);
    if spec.is_dry_run {
        return Ok(report);
    }
    prepare::new_members(worker, &next, &candidates, &entries).await?;
    let own = next.clone();
    let make_room = async move |local: Rc<LocalArray>| prepare::make_room(&local, &own).await;
    engine_state.on_coordinator_of(&array, make_room).await??;
    let devices = candidates.into_iter().map(|candidate| candidate.opened);
    let new_members = devices.zip(entries).map(|(opened, entry)| NewMember { opened, entry });
    let new_members: Vec<NewMember> = new_members.collect();
    let members = restart::Members { before: before.paths, new_members };
    restart::with(worker, engine_state, &array, members).await?;
    let fields = vec![
        ("members", report.members.to_string()),
        ("members_before", report.members_before.to_string()),
        ("cells", report.moved_cells.to_string()),
    ];
    array.record(names::ARRAY_GROWING, fields);
    Ok(report)
}

/// The entries of the new members in the member table.
fn entries(
    worker: &Worker,
    superblock: &Superblock,
    candidates: &[JoiningDevice],
) -> Vec<MemberEntry> {
    let first = usize::from(superblock.geometry.slots());
    let has_log = superblock.policy == ConsistencyPolicy::Log;
    let entry = |(at, candidate): (usize, &JoiningDevice)| {
        let facts = candidate.opened.facts();
        let serial = Text::cut(facts.serial.as_deref().unwrap_or(""));
        let slot = MemberIdx::from_at(first + at);
        let entry = MemberEntry::new(worker.draw_uuid(), slot, Role::Active)
            .on_device(member_bytes(facts.size_bytes), serial);
        MemberEntry { log_tag: if has_log { worker.draw_log_tag() } else { 0 }, ..entry }
    };
    candidates.iter().enumerate().map(entry).collect()
}

fn report(array: &Array, next: &Superblock) -> GrowReport {
    let geometry = next.geometry.to_layout().expect("its layout was just computed");
    let map: &Declustered = geometry.declustered().expect("only pools grow");
    let growth = map.growth().expect("it has only begun");
    let members = map.parts().members;
    // A block has as many units of each member as members, and each new one gets one cell for each
    // of the others.
    let to_each = to_u64(growth.members_before) * growth.end_cells / to_u64(members);
    GrowReport {
        members_before: growth.members_before,
        members,
        moved_cells: to_each * to_u64(members - growth.members_before),
        cells: to_u64(growth.members_before) * map.cells(),
        cell_bytes: map.parts().cell_rows * map.parts().strip_bytes,
        volume_bytes_before: array.volume_bytes(),
        volume_bytes: geometry.fully_grown().volume_bytes(),
    }
}
