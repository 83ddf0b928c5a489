//! Members whose drive lost its power after the process was killed and before this start.
//!
//! What must stay true: such a drive may lack what was answered since the last flush, first writes
//! as well, below which old content lies. So it takes no part, as if it were not attached, if the
//! array can do without it and start for writing. Then the others have all. If it cannot, the start
//! is one after a power cut: the kept map, which speaks of what was not flushed, does not count.
//!
//! Not here: where the appearances are kept (`appearances.rs`).

use super::devices::FoundDevice;
use crate::appearances;
use crate::array::Array;
use crate::aside;
use crate::canary::{Canary, sings};
use crate::config::EngineConfig;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::worker::Worker;
use crate::written::kept::KeptMemory;
use ashlar_ondisk::assembly::{Extra, ExtraReason, MemberReading, SlotState, Start, Verdict};
use ashlar_ondisk::format::MEMBER_ENTRIES_MAX;
use ashlar_ondisk::{Role, Superblock};
use ashlar_units::{MemberIdx, to_usize};
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

/// Which of these devices they are, if the array was not stopped.
pub(super) async fn which(
    worker: &Worker,
    config: &EngineConfig,
    newest: &Superblock,
    (found, readings): (&[FoundDevice], &[MemberReading]),
) -> Vec<usize> {
    let is_asked = newest.unclean && !sings(Canary::AwayBelieved);
    let Some(memory) = config.kept_memory.clone().filter(|_| is_asked) else {
        return Vec::new();
    };
    let (array, incarnation) = (newest.array_uuid, newest.incarnation);
    let read = move || appearances::read(&*memory, array, incarnation);
    let Some(known) = aside::run(&worker.handle, &config.aside, read).await else {
        return Vec::new();
    };
    let has_reappeared = |at: &usize| {
        let Some(own) = readings[*at].superblock().filter(|own| own.array_uuid == array) else {
            return false;
        };
        let is_out = newest.member(own.member_uuid).is_none_or(|entry| entry.role == Role::Out);
        // Without a cache it has all that it answered.
        let facts = found[*at].opened.facts();
        let now = facts.appearance.filter(|_| facts.has_volatile_cache);
        let before = known.iter().find(|(uuid, _)| *uuid == own.member_uuid);
        !is_out && now.zip(before).is_some_and(|(now, (_, before))| now != *before)
    };
    (0..readings.len()).filter(has_reappeared).collect()
}

/// Whether it can be started for writing, whatever cells on distributed spares hold.
pub(super) fn can_start(verdict: &Verdict, newest: &Superblock) -> bool {
    let missing = verdict.slots.iter().filter(|slot| slot.state != SlotState::Current).count();
    let parity = newest.geometry.to_layout().map_or(0, |geometry| geometry.parity_strips());
    matches!(verdict.start, Start::Whole | Start::Degraded)
        && (!newest.has_spare_table() || missing <= parity)
}

/// An older copy of a member is there: the slot is out, and the events say why.
pub(super) fn name_older_copies(array: &Array, readings: &[MemberReading], verdict: &Verdict) {
    let is_older = |extra: &&Extra| matches!(extra.reason, ExtraReason::Older { .. });
    for reading in verdict.extras.iter().filter(is_older).map(|extra| &readings[extra.reading]) {
        let slot = reading.superblock().map_or(MemberIdx(0), |superblock| superblock.slot);
        let fields = vec![("slot", slot.to_string()), ("path", reading.path.clone())];
        array.record(names::MEMBER_OLDER, fields);
    }
}

/// Say of which members nothing is believed, and which were taken all the same.
pub(super) fn tell(array: &Array, readings: &[MemberReading], verdict: &Verdict, taken: &[usize]) {
    let has_reappeared = |extra: &&Extra| extra.reason == ExtraReason::Reappeared;
    let left_out = verdict.extras.iter().filter(has_reappeared).map(|it| it.reading);
    let left_out = left_out.map(|at| (at, names::MEMBER_FAILED));
    let taken = taken.iter().map(|at| (*at, names::MEMBER_TAKEN_OLDER));
    for (at, event) in left_out.chain(taken) {
        let Some(own) = readings[at].superblock() else { continue };
        let entry = verdict.newest.as_ref().and_then(|newest| newest.member(own.member_uuid));
        let (name, path) = (array.name(), &readings[at].path);
        let what = match event {
            names::MEMBER_FAILED => format!(
                "what its cache held; the array does without it until `ashlar re-add {name} {path}`"
            ),
            _ => "what was not flushed; that counts as a power cut".to_owned(),
        };
        let fields = vec![
            ("slot", entry.map_or(own.slot, |entry| entry.slot).to_string()),
            ("path", path.clone()),
            ("reason", format!("it was away since the array ran, and may have lost {what}")),
        ];
        array.record(event, fields);
    }
}

/// Keep the appearances of this start's devices, from its record on.
pub(super) async fn begin(
    local: &Rc<LocalArray>,
    memory: Option<&Arc<dyn KeptMemory>>,
    incarnation: Uuid,
) {
    let Some(memory) = memory.cloned() else { return };
    let array = Uuid::from_bytes(local.array.identity.uuid);
    let devices_max = to_usize(MEMBER_ENTRIES_MAX);
    let make = move || appearances::make(&*memory, (array, incarnation), devices_max);
    if let Some(place) = aside::run(&local.worker.handle, &local.array.aside, make).await {
        local.coordinator().appearances.keep_in(place);
    }
}
