//! Members that an array grows by, from a start on.
//!
//! What must stay true: the growth begins with the superblocks of this start, and only then. The
//! new members have theirs first, with whole maps and a flush mark. A new member that no other one
//! lists counts for nothing (`ashlar_ondisk::assembly`). So a crash before an older member has the
//! update leaves the array as it was, and after a later one every new member is there. A second
//! update comes before any request: new members that have it prove that the growth began.
//!
//! Not here: looking at the devices and clearing them, before the array stops (`grow.rs`).

use super::not_recorded;
use super::plan::{Filler, Plan, SlotPlan};
use crate::array::ArrayId;
use crate::control_io;
use crate::coordinator::{proof, record};
use crate::devices::Tags;
use crate::error::Refusal;
use crate::local_array::LocalArray;
use crate::member::SlotState;
use ashlar_device::{Fault, Opened};
use ashlar_ondisk::format::{JOBS_MAX, MEMBER_ENTRIES_MAX};
use ashlar_ondisk::{JobKind, JobRecord, MemberEntry, Role, Superblock};
use ashlar_units::{MemberIdx, to_u64};
use std::rc::Rc;
use std::sync::Arc;

/// A member to be: its device, with empty maps, and what the member table is to say of it.
#[derive(Clone)]
pub(crate) struct NewMember {
    pub(crate) opened: Arc<dyn Opened>,
    pub(crate) entry: MemberEntry,
}

/// A start of an array that runs in this process, while its clients wait.
#[derive(Default)]
pub(crate) struct Anew {
    /// Its number, which it keeps.
    pub(crate) id: Option<ArrayId>,
    /// It grows by these members from this start on.
    pub(crate) new_members: Vec<NewMember>,
}

impl Plan {
    /// From this start on the array grows by these, with whose slots it ends.
    ///
    /// # Errors
    /// If it is not whole and stopped clean, or cannot grow so.
    pub(super) fn grow_by(&mut self, new_members: Vec<NewMember>) -> Result<(), Refusal> {
        if !self.is_whole() {
            return Err(cannot_grow(
                &self.found,
                "is not whole, or was not stopped clean",
                "start it, let its jobs end, and run the command again",
            ));
        }
        let entries: Vec<MemberEntry> = new_members.iter().map(|it| it.entry).collect();
        self.superblock = grown(&self.superblock, &entries)?;
        let geometry = self.superblock.geometry.to_layout();
        self.geometry = geometry.expect("its layout was just computed");
        for NewMember { opened, entry } in &new_members {
            let tags = Tags::of(&self.superblock, entry);
            let current = Some(Filler { opened: Arc::clone(opened), tags });
            let state = Some(SlotState::InSync);
            self.slots.push(SlotPlan { state, current, ..SlotPlan::default() });
        }
        self.new_members = new_members;
        Ok(())
    }

    fn is_whole(&self) -> bool {
        let is_served =
            |slot: &SlotPlan| slot.state == Some(SlotState::InSync) && slot.replacement.is_none();
        let is_clean = !self.found.unclean && self.found.has_flush_marks();
        self.read_only.is_none() && is_clean && self.slots.iter().all(is_served)
    }
}

/// The same array at the beginning of a growth by these members.
///
/// # Errors
/// If it cannot grow so.
pub(crate) fn grown(
    superblock: &Superblock,
    entries: &[MemberEntry],
) -> Result<Superblock, Refusal> {
    let next = "nothing was changed";
    if superblock.geometry.spread.is_some() && !superblock.has_whole_map() {
        let what = "has a written map of an older kind";
        return Err(cannot_grow(superblock, what, "make another array and copy the data"));
    }
    let grown = superblock.growing(entries.len());
    let mut grown = grown.map_err(|fault| cannot_grow(superblock, &format!(": {fault}"), next))?;
    if grown.jobs.len() >= JOBS_MAX {
        return Err(cannot_grow(superblock, "has too many jobs under way", "let one of them end"));
    }
    grown.jobs.push(JobRecord::new(JobKind::Grow));
    grown.members.extend(entries);
    while to_u64(grown.members.len()) > MEMBER_ENTRIES_MAX {
        let oldest = grown.members.iter().position(|entry| entry.role == Role::Removed);
        let Some(oldest) = oldest else {
            return Err(cannot_grow(superblock, "has no room for so many members", next));
        };
        grown.members.remove(oldest);
    }
    Ok(grown)
}

/// Why the array does not grow, and what to do.
pub(crate) fn cannot_grow(superblock: &Superblock, what: &str, next: &str) -> Refusal {
    let gap = if what.starts_with(':') { "" } else { " " };
    let name = superblock.array_name.as_str();
    Refusal::new("array.cannot_grow", format!("array '{name}' cannot grow{gap}{what}"), next)
}

/// Record a start from which on the array grows: the new members have all of it before anybody else
/// does.
///
/// # Errors
/// If a new member does not take it, or a member was lost meanwhile: then the array is as it was.
/// Or if too few members take it.
pub(super) async fn record(
    local: &Rc<LocalArray>,
    next: Superblock,
    new_members: &[NewMember],
) -> Result<(), Refusal> {
    let _gate = local.coordinator().gate().await;
    let now = local.coordinator().superblock();
    let all = (0..local.array.slots.len()).map(MemberIdx::from_at);
    let mut states = all.map(|slot| local.array.slot(slot).state());
    if now.generation + 1 != next.generation || states.any(|state| state != SlotState::InSync) {
        let next = "see `ashlar status`; nothing moved";
        return Err(cannot_grow(&now, "as a member was lost meanwhile", next));
    }
    for new_member in new_members {
        announce(local, &next, new_member).await.map_err(|fault| {
            let path = &new_member.opened.facts().path;
            control_io::refused(path, "writing its superblock", fault)
        })?;
    }
    let not_recorded = |lost| not_recorded(&local.array, lost);
    record::write_in_turn(local, next).await.map_err(not_recorded)?;
    record::update(local, |_| {}).await.map_err(not_recorded)
}

async fn announce(
    local: &Rc<LocalArray>,
    next: &Superblock,
    NewMember { opened, entry }: &NewMember,
) -> Result<(), Fault> {
    let device = opened.attach(&local.worker.handle);
    proof::greet(local, device.as_ref()).await;
    let own = next.for_member(entry.uuid).expect("it lists them").encode();
    let bytes = own.expect("the engine makes valid superblocks");
    control_io::write_copies(&local.worker, device.as_ref(), entry.bytes, &bytes).await
}
