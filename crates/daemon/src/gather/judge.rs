//! What becomes of an array that does not run and some of whose members are there. Pure judgement.
//!
//! What must stay true: an array starts by itself only if its members prove one coherent array that
//! can be written. It waits for members that the newest superblock counts as in service; members
//! that were out before are not waited for. Not here: the start, which judges again with its
//! devices open.

use ashlar_ondisk::Role;
use ashlar_ondisk::assembly::{
    ArrayChoice, AssemblyRequest, MemberReading, RefusalKind, SlotState, Start, Verdict, assemble,
};
use uuid::Uuid;

/// What is to be done with an array now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Start it: every member that was in service is there.
    Start,
    /// These slots are missing, and the others are enough: wait for them, then start degraded.
    Wait(Vec<u16>),
    /// It cannot start yet, because of this.
    Lacks(String),
    /// It cannot start by itself: somebody must decide.
    Refuse(String),
}

/// What becomes of the array of this UUID, by what was read.
pub fn step(readings: &[MemberReading], array: Uuid) -> Step {
    let request = AssemblyRequest { array: ArrayChoice::Uuid(array), ..Default::default() };
    let verdict = assemble(readings, &request);
    let missing = missing(&verdict);
    match &verdict.start {
        Start::Refused(refusal) if refusal.kind == RefusalKind::TooManyMissing => {
            Step::Lacks(refusal.line.clone())
        }
        Start::Refused(refusal) => Step::Refuse(refusal.line.clone()),
        Start::ReadOnly(_) if missing.is_empty() => Step::Start,
        Start::ReadOnly(_) => Step::Lacks(format!(
            "stopped uncleanly, and slot {} is missing: what was being written then may be wrong; \
             attach it, or name the devices to read it: ashlar assemble DEVICE...; to write to it \
             all the same: ashlar assemble --accept-dirty-degraded DEVICE...",
            slots(&missing)
        )),
        Start::Whole | Start::Degraded if missing.is_empty() => Step::Start,
        Start::Whole | Start::Degraded => Step::Wait(missing),
    }
}

/// Slots whose members count as in service and are not there.
fn missing(verdict: &Verdict) -> Vec<u16> {
    let away = verdict.slots.iter().filter(|slot| slot.state == SlotState::Missing);
    let in_service = away.filter(|slot| {
        let entries = verdict.newest.iter().flat_map(|newest| &newest.members);
        let mut own = entries.filter(|entry| entry.slot == slot.slot);
        own.any(|entry| entry.role == Role::Active)
    });
    in_service.map(|slot| slot.slot.0).collect()
}

/// Slots for people: `1, 4`.
pub fn slots(slots: &[u16]) -> String {
    slots.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}
